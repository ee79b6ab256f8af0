//! The first bytes of a connection: a four-letter word, or the request to begin or resume a session (protocol chapters 3, 23).

use super::{Outputs, Shard, Verdict};
use crate::command::CommandKind;
use crate::conn::{Close, Conn, Pending, Phase};
use crate::ids::{ConnId, Millis, SessionId};
use corral_wire::Reader;
use corral_wire::fourletter::{FourLetter, TELNET_CLOSE};
use corral_wire::records::ConnectRequest;

impl Shard {
    /// True when the connection began with a four-letter word, which is all it will ever say.
    pub(super) fn greeted_with_word(
        &mut self,
        now: Millis,
        conn: &mut Conn,
        bytes: &[u8],
        out: &mut Outputs,
    ) -> Result<bool, Close> {
        if conn.word.is_some() {
            return Ok(true);
        }
        let Some(first) = bytes.first_chunk::<4>() else { return Ok(false) };
        if *first == TELNET_CLOSE {
            return Err(Close::Done);
        }
        let Some(word) = FourLetter::from_bytes(*first) else { return Ok(false) };
        conn.word = Some(word);
        if !self.config.whitelist.contains(&word) {
            let refusal = alloc::format!("{} is not executed because it is not in the whitelist.\n", word.name());
            self.say(conn, refusal.as_bytes());
            return Err(Close::Done);
        }
        match word {
            FourLetter::Ruok => self.say(conn, b"imok"),
            FourLetter::Isro => self.say(conn, b"rw"),
            _ => {
                out.words.push((conn.id, word));
                return Ok(true);
            }
        }
        conn.close_after_flush(now, Close::Done);
        Ok(true)
    }

    /// The text for a four-letter word is ready; `None` for one that this server does not serve.
    pub fn answer_word(&mut self, now: Millis, id: ConnId, text: &str, out: &mut Outputs) {
        let Some(mut conn) = self.conns.take(id) else { return };
        self.say(&mut conn, text.as_bytes());
        self.settle(now, conn, Err(Close::Done), out);
    }

    pub(super) fn say(&mut self, conn: &mut Conn, text: &[u8]) {
        self.buffers.lend(&mut conn.output);
        conn.output.extend_from_slice(text);
    }

    pub(super) fn connect(&mut self, now: Millis, conn: &mut Conn, frame: &[u8]) -> Verdict {
        let request = ConnectRequest::decode(&mut Reader::new(frame)).map_err(|_| Close::Malformed)?;
        conn.knows_read_only = request.read_only.is_some();
        if request.last_zxid_seen > self.view.zxid().wire() {
            return Err(Close::ClientAhead);
        }
        let timeout_ms =
            request.timeout_ms.clamp(self.config.session_timeout_min_ms, self.config.session_timeout_max_ms);
        let kind = if request.session_id == 0 {
            if self.sessions_alive >= self.config.limits.sessions_max {
                return Err(Close::SessionLimit);
            }
            CommandKind::CreateSession { timeout_ms, password: conn.entropy }
        } else {
            let password = request.passwd.and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; 16]);
            CommandKind::AttachSession { session: SessionId(request.session_id), timeout_ms, password }
        };
        conn.phase = Phase::Connecting;
        conn.pending.push_back(Pending::Connect { at: now });
        self.propose(conn, kind, 0);
        Ok(())
    }
}
