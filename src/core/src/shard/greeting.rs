//! The first bytes of a connection: a four-letter word, or the request to begin or resume a session (protocol chapters 3, 23).

use super::memory::Wanting;
use super::{Outputs, Question, Shard, Verdict};
use crate::change::Outcome;
use crate::command::CommandKind;
use crate::conn::{Close, Conn, Pending, Phase};
use crate::ids::{ConnId, Millis, SessionId};
use crate::limits::WORD_BYTES_MAX;
use crate::report::Answered;
use alloc::vec::Vec;
use corral_wire::OpCode;
use corral_wire::Reader;
use corral_wire::fourletter::{FourLetter, TELNET_CLOSE};
use corral_wire::records::ConnectRequest;

impl Shard {
    /// Whether the connection began with a four-letter word, which is all it will ever say: then how many of the bytes
    /// are done with, all of them or, while the word's argument is not whole, none.
    pub(super) fn greeted_with_word(
        &mut self,
        now: Millis,
        conn: &mut Conn,
        bytes: &[u8],
        out: &mut Outputs,
    ) -> Result<Option<usize>, Close> {
        if conn.word.is_some() {
            return Ok(Some(bytes.len()));
        }
        let Some((first, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
        if *first == TELNET_CLOSE {
            return Err(Close::Done);
        }
        let Some(word) = FourLetter::from_bytes(*first) else { return Ok(None) };
        let allowed = self.config.whitelist.contains(&word);
        let argument = rest.first_chunk::<8>().map(|bytes| i64::from_be_bytes(*bytes));
        if word == FourLetter::Stmk && allowed && argument.is_none() {
            return Ok(Some(0));
        }
        if allowed && crate::report::is_long(word) && self.room(conn) < WORD_BYTES_MAX {
            self.wait_for_memory(conn, Wanting { conn: conn.id, need: WORD_BYTES_MAX, list: false, since: now });
            return Ok(Some(0));
        }
        conn.word = Some(word);
        conn.counters.received += 1;
        self.statistics.received += 1;
        if !allowed {
            let refusal = alloc::format!("{} is not executed because it is not in the whitelist.\n", word.name());
            self.say(conn, refusal.into_bytes());
            return Err(Close::Done);
        }
        match word {
            FourLetter::Ruok => self.say(conn, b"imok".to_vec()),
            FourLetter::Isro => self.say(conn, self.isro().to_vec()),
            _ => {
                out.words.push(Question { conn: conn.id, word, argument: argument.unwrap_or_default() });
                return Ok(Some(bytes.len()));
            }
        }
        Err(Close::Done)
    }

    /// The text for a four-letter word is ready.
    pub fn answer_word(&mut self, now: Millis, id: ConnId, text: Vec<u8>, out: &mut Outputs) {
        let Some(mut conn) = self.conns.take(id) else { return };
        self.say(&mut conn, text);
        self.settle(now, conn, Err(Close::Done), out);
    }

    /// Long texts are not copied: a connection that asked with a word has sent nothing else.
    fn say(&mut self, conn: &mut Conn, text: Vec<u8>) {
        assert!(conn.output.is_empty(), "a word has one answer");
        conn.output = text;
        self.statistics.sent += 1;
    }

    pub(super) fn connect(&mut self, now: Millis, conn: &mut Conn, frame: &[u8], entropy: [u8; 16]) -> Verdict {
        let request = ConnectRequest::decode(&mut Reader::new(frame)).map_err(|_| Close::Malformed)?;
        conn.counters.received += 1;
        self.statistics.received += 1;
        self.statistics.connects += 1;
        conn.knows_read_only = request.read_only.is_some();
        if self.course.away {
            return self.connect_leaderless(conn, &request, entropy);
        }
        if request.last_zxid_seen > self.view.zxid().max(self.floor).wire() {
            return Err(Close::ClientAhead);
        }
        let timeout_ms = self.negotiated(request.timeout_ms);
        let kind = if request.session_id == 0 {
            if self.sessions_alive >= self.config.limits.sessions_max {
                return Err(Close::SessionLimit);
            }
            CommandKind::CreateSession { timeout_ms, password: entropy }
        } else {
            let (session, password) = (SessionId(request.session_id), password(&request));
            CommandKind::AttachSession { session, timeout_ms, password }
        };
        conn.phase = Phase::Connecting;
        conn.pending.push_back(Pending::Connect { at: now });
        self.propose(conn, kind, 0, 0);
        Ok(())
    }

    /// Answers connections whose attach takes no log entry, because it is known here that it proves nothing. One walk over
    /// what is in flight, for all of them together.
    pub fn refuse(&mut self, now: Millis, mut refused: Vec<ConnId>, out: &mut Outputs) {
        refused.sort_unstable();
        let Self { in_flight, in_flight_bytes, large_bytes, .. } = self;
        in_flight.retain(|command| {
            // A connection has nothing else in flight before it has a session.
            let stays = refused.binary_search(&command.conn).is_err();
            if !stays {
                *in_flight_bytes -= command.weight;
                *large_bytes -= command.large;
            }
            stays
        });
        for id in refused {
            let Some(mut conn) = self.conns.take(id) else { continue };
            if conn.is_closing() {
                self.conns.put_back(conn);
                continue;
            }
            conn.proposed -= 1;
            let Some(Pending::Connect { at }) = conn.pending.pop_front() else {
                unreachable!("a connection that attaches waits for nothing else")
            };
            self.buffers.lend(&mut conn.output);
            self.count_reply(&mut conn, now, Answered { op: Some(OpCode::CreateSession), xid: 0, at, update: true });
            let verdict = self.connected(&mut conn, &Outcome::SessionRefused);
            self.settle(now, conn, verdict, out);
        }
        self.resume_held_back(now, out);
        self.close_if_drained(now, out);
    }

    /// The timeout that a session has whose client asks for this one.
    pub(super) fn negotiated(&self, timeout_ms: i32) -> i32 {
        timeout_ms.clamp(self.config.session_timeout_min_ms, self.config.session_timeout_max_ms)
    }
}

/// Zeros for one that is no password.
pub(super) fn password(request: &ConnectRequest<'_>) -> [u8; 16] {
    request.passwd.and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; 16])
}

#[cfg(test)]
mod tests {
    use super::super::tests::shard;
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    /// What is said, what is asked, how the connection ends; the bytes come in the given portions.
    fn check(portions: &[&[u8]], said: &str, asked: Option<(FourLetter, i64)>, ended: Option<Close>) {
        let mut shard = shard();
        let mut out = Outputs::default();
        let id = shard.accepted(Millis(0), "10.0.0.1:1".parse().expect("an address"), [0; 16]);
        for portion in portions {
            shard.received(Millis(1), id, portion, &mut out);
        }
        assert_eq!(shard.unsent(id), said.as_bytes(), "{portions:?}");
        let words: Vec<_> = out.words.iter().map(|question| (question.word, question.argument)).collect();
        assert_eq!(words, asked.into_iter().collect::<Vec<_>>(), "{portions:?}");
        let length = said.len();
        if length > 0 {
            shard.sent(Millis(2), id, length, &mut out);
        }
        let closed: Vec<Close> = out.closed.iter().map(|(_, why)| *why).collect();
        assert_eq!(closed, ended.into_iter().collect::<Vec<_>>(), "{portions:?}");
    }

    #[test]
    fn words_whole_and_byte_by_byte() {
        check(&[b"ruok"], "imok", None, Some(Close::Done));
        check(&[b"r", b"u", b"o", b"k"], "imok", None, Some(Close::Done));
        check(&[b"isro\r\n"], "rw", None, Some(Close::Done));
        check(&[b"hash"], "", Some((FourLetter::Hash, 0)), None);
        check(&[b"cons"], "", Some((FourLetter::Cons, 0)), None);
        check(&[b"co", b"ns\n", b"more"], "", Some((FourLetter::Cons, 0)), None);
        check(&[b"RUOK"], "", None, Some(Close::BadLength(0x5255_4f4b)));
        check(&[&TELNET_CLOSE], "", None, Some(Close::Done));
        let refusal = "wchc is not executed because it is not in the whitelist.\n";
        check(&[b"wchc"], refusal, None, Some(Close::Done));
    }

    #[test]
    fn a_mask_follows_its_word() {
        let asked = Some((FourLetter::Stmk, 0x132));
        let whole = b"stmk\0\0\0\0\0\0\x01\x32";
        check(&[whole], "", asked, None);
        check(&[b"stmk\0\0\0\0\0\0\x01\x32 and more"], "", asked, None);
        let bytes: Vec<&[u8]> = whole.chunks(1).collect();
        check(&bytes, "", asked, None);
        check(&bytes[..11], "", None, None);
        check(&[b"stmk", &[0xff; 8]], "", Some((FourLetter::Stmk, -1)), None);
    }

    #[test]
    fn an_answer_reaches_a_client_that_sends_no_more() {
        let mut shard = shard();
        let mut out = Outputs::default();
        let peer = "10.0.0.1:1".parse().expect("an address");
        let ids = vec![shard.accepted(Millis(0), peer, [0; 16]), shard.accepted(Millis(0), peer, [0; 16])];
        shard.received(Millis(1), ids[0], b"conf", &mut out);
        for id in &ids {
            shard.input_ended(*id, &mut out);
        }
        assert_eq!(out.closed, [(ids[1], Close::HungUp)]);
        shard.answer_word(Millis(2), ids[0], b"text".to_vec(), &mut out);
        assert_eq!(shard.unsent(ids[0]), b"text");
        shard.sent(Millis(3), ids[0], 4, &mut out);
        assert_eq!(out.closed[1..], [(ids[0], Close::Done)]);
    }
}
