//! The first bytes of a connection: a four-letter command, or the request to begin or resume a session
//! (protocol chapters 3 and 23).

use super::memory::Wanting;
use super::{Question, Served, Shard};
use crate::apply::outcome::Outcome;
use crate::command::CommandKind;
use crate::ids::{ConnId, Millis, SessionId};
use crate::limits::{FOUR_LETTER_BYTES_MAX, LONG_COMMANDS_MAX};
use crate::shard::conn::{Close, Conn, Pending, Phase};
use crate::shard::counters::Answered;
use crate::shard::four_letter::is_long;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use corral_wire::OpCode;
use corral_wire::Reader;
use corral_wire::fourletter::{FourLetter, TELNET_CLOSE};
use corral_wire::records::ConnectRequest;

/// Four-letter commands with long answers, for each of which memory is set aside.
#[derive(Debug, Default)]
pub(super) struct LongCommands {
    /// Commands that were asked and not answered.
    unanswered: usize,
    /// Connections that wait until there are fewer.
    waiting: VecDeque<ConnId>,
}

impl Shard {
    /// Whether the connection began with a four-letter command, which is its only request. Returns the number of
    /// consumed bytes: all of them, or none while the command's argument is incomplete.
    pub(super) fn greeted_with_four_letter(
        &mut self,
        now: Millis,
        conn: &mut Conn,
        bytes: &[u8],
    ) -> Result<Option<usize>, Close> {
        if conn.command.is_some() {
            return Ok(Some(bytes.len()));
        }
        let Some((first, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
        if *first == TELNET_CLOSE {
            return Err(Close::Done);
        }
        let Some(command) = FourLetter::from_bytes(*first) else { return Ok(None) };
        let allowed = self.config.whitelist.contains(&command);
        let argument = rest.first_chunk::<8>().map(|bytes| i64::from_be_bytes(*bytes));
        if command == FourLetter::Stmk && allowed && argument.is_none() {
            return Ok(Some(0));
        }
        if allowed && is_long(command) && !self.may_ask(now, conn) {
            return Ok(Some(0));
        }
        conn.command = Some(command);
        conn.counters.received += 1;
        self.statistics.received += 1;
        if !allowed {
            let refusal = alloc::format!("{} is not executed because it is not in the whitelist.\n", command.name());
            self.say(conn, refusal.into_bytes());
            conn.command = None;
            return Err(Close::Done);
        }
        match command {
            FourLetter::Ruok => self.say(conn, b"imok".to_vec()),
            FourLetter::Isro => self.say(conn, self.isro().to_vec()),
            _ => {
                self.effects.questions.push(Question {
                    conn: conn.id,
                    command,
                    argument: argument.unwrap_or_default(),
                });
                return Ok(Some(bytes.len()));
            }
        }
        Err(Close::Done)
    }

    /// Whether a long command is asked now; if not, its connection waits.
    fn may_ask(&mut self, now: Millis, conn: &mut Conn) -> bool {
        if self.long_commands.unanswered >= self.long_commands_max() {
            // Not in the queue for memory: replies to others go before it.
            (conn.stalled, conn.waits.memory) = (true, true);
            self.long_commands.waiting.push_back(conn.id);
            return false;
        }
        if self.memory.room(conn) < FOUR_LETTER_BYTES_MAX {
            self.memory.wait(conn, Wanting { conn: conn.id, need: FOUR_LETTER_BYTES_MAX, list: false, since: now });
            return false;
        }
        self.long_commands.unanswered += 1;
        true
    }

    fn long_commands_max(&self) -> usize {
        let half = self.config.limits.reply_buffer_bytes_total_max / 2;
        (half / FOUR_LETTER_BYTES_MAX).clamp(1, LONG_COMMANDS_MAX)
    }

    /// Connections with long commands, as many as may be asked, wait for memory only. Nothing while others wait for that.
    pub(super) fn let_ask(&mut self, now: Millis) {
        if self.memory.is_awaited() {
            return;
        }
        let mut free = self.long_commands_max().saturating_sub(self.long_commands.unanswered);
        while free > 0
            && let Some(id) = self.long_commands.waiting.pop_front()
        {
            let Some(mut conn) = self.conns.take(id) else { continue };
            conn.waits.memory = false;
            self.memory.wait(&mut conn, Wanting { conn: id, need: FOUR_LETTER_BYTES_MAX, list: false, since: now });
            self.conns.put_back(conn);
            free -= 1;
        }
    }

    /// The connection waits for no text any more.
    pub(super) fn forget_command(&mut self, command: Option<FourLetter>) {
        if command.is_some_and(is_long) {
            self.long_commands.unanswered -= 1;
        }
    }

    /// The text for a four-letter command is ready.
    pub(super) fn answer_four_letter(&mut self, now: Millis, id: ConnId, text: Vec<u8>) {
        let Some(mut conn) = self.conns.take(id) else { return };
        self.forget_command(conn.command.take());
        self.say(&mut conn, text);
        self.settle(now, conn, Err(Close::Done));
        self.let_ask(now);
    }

    /// Long texts are not copied: a connection that asked with a command has sent nothing else.
    fn say(&mut self, conn: &mut Conn, text: Vec<u8>) {
        assert!(conn.unsent() == 0, "a command has one answer");
        conn.output.append_whole(text);
        self.statistics.sent += 1;
    }

    pub(super) fn connect(&mut self, conn: &mut Conn, frame: &[u8], entropy: [u8; 16]) -> Served {
        let request = ConnectRequest::decode(&mut Reader::new(frame)).map_err(|_| Close::Malformed)?;
        conn.counters.received += 1;
        self.statistics.received += 1;
        self.statistics.connects += 1;
        conn.session.requested(request.read_only.is_some());
        if self.flow.leaderless {
            return self.connect_leaderless(conn, &request, entropy);
        }
        if request.last_zxid_seen > self.view.zxid().max(self.freshness.floor()).wire() {
            return Err(Close::ClientAhead);
        }
        let timeout_ms = self.negotiated(request.timeout_ms);
        let kind = if request.session_id == 0 {
            if self.sessions.alive() >= self.config.limits.sessions_max {
                return Err(Close::SessionLimit);
            }
            CommandKind::CreateSession { timeout_ms, password: entropy }
        } else {
            let (session, password) = (SessionId(request.session_id), password(&request));
            CommandKind::AttachSession { session, timeout_ms, password }
        };
        conn.phase = Phase::Connecting;
        conn.pending.push(Pending::Connect { at: self.clock });
        self.propose(conn, kind, 0, 0);
        Ok(())
    }

    /// Answers connections with an attach that needs no log entry, because it is known here that it proves nothing. One
    /// walk over the commands in flight serves all of them.
    pub(super) fn refuse(&mut self, now: Millis, mut refused: Vec<ConnId>) {
        refused.sort_unstable();
        // A connection has nothing else in flight before it has a session.
        self.in_flight.refuse(&refused);
        for id in refused {
            let Some(mut conn) = self.conns.take(id) else { continue };
            if conn.is_closing() {
                self.conns.put_back(conn);
                continue;
            }
            conn.pending.note_back();
            let Some(Pending::Connect { at }) = conn.pending.pop() else {
                unreachable!("a connection that attaches waits for nothing else")
            };
            self.count_reply(&mut conn, now, Answered { op: Some(OpCode::CreateSession), xid: 0, at, update: true }, 0);
            let verdict = self.connected(&mut conn, &Outcome::SessionRefused);
            self.settle(now, conn, verdict);
        }
        self.resume_held_back(now);
        self.close_if_drained(now);
    }

    /// Returns the timeout of a session for the timeout that its client requests.
    pub(super) fn negotiated(&self, timeout_ms: i32) -> i32 {
        timeout_ms.clamp(self.config.session_timeout_min_ms, self.config.session_timeout_max_ms)
    }
}

/// Returns the password of a connect request, or zeros if it is missing or has another length.
pub(super) fn password(request: &ConnectRequest<'_>) -> [u8; 16] {
    request.passwd.and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; 16])
}

#[cfg(test)]
mod tests {
    use super::super::ShardMessage;
    use super::super::tests::{client, message, shard};
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    /// Checks the answer, the question and the end of a connection that sends bytes in the given portions.
    fn check(portions: &[&[u8]], said: &str, asked: Option<(FourLetter, i64)>, ended: Option<Close>) {
        let mut shard = shard();
        let id = client(&mut shard);
        for portion in portions {
            shard.received(Millis(1), id, portion);
        }
        assert_eq!(shard.unsent(id), said.as_bytes(), "{portions:?}");
        let words: Vec<_> =
            shard.effects.questions.iter().map(|question| (question.command, question.argument)).collect();
        assert_eq!(words, asked.into_iter().collect::<Vec<_>>(), "{portions:?}");
        let length = said.len();
        if length > 0 {
            shard.sent(Millis(2), id, length);
        }
        let closed: Vec<Close> = shard.effects.closed.iter().map(|(_, why)| *why).collect();
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

    /// Of many that ask with long commands few are asked at once, and others' replies have half of the memory meanwhile.
    #[test]
    fn long_commands_take_turns() {
        let mut shard = shard();
        let half = shard.config.limits.reply_buffer_bytes_total_max / 2;
        let ids: Vec<_> = (0..50).map(|_| client(&mut shard)).collect();
        for id in &ids {
            shard.received(Millis(1), *id, b"cons");
            shard.received(Millis(1), *id, b"\n");
        }
        assert_eq!(shard.effects.questions.len(), LONG_COMMANDS_MAX);
        assert!(shard.memory.held() <= half + (1 << 20) && !shard.memory.is_awaited());
        // One connection with an asked command has ended, and a waiting one too.
        shard.hung_up(ids[0]);
        shard.hung_up(ids[49]);
        shard.tick(Millis(2));
        let mut answered = 0;
        while answered < shard.effects.questions.len() {
            let id = shard.effects.questions[answered].conn;
            answered += 1;
            message(&mut shard, Millis(3), ShardMessage::FourLetterAnswered { conn: id, text: "text".into() });
            while shard.is_walking() {
                shard.walk_on(Millis(3));
            }
            assert!(shard.effects.questions.len() <= answered + LONG_COMMANDS_MAX);
        }
        assert_eq!(answered, 49, "each of those that stayed was asked once");
        assert_eq!((shard.long_commands.unanswered, shard.long_commands.waiting.len()), (0, 0));
    }

    #[test]
    fn an_answer_reaches_a_client_that_sends_no_more() {
        let mut shard = shard();
        let ids = vec![client(&mut shard), client(&mut shard)];
        shard.received(Millis(1), ids[0], b"conf");
        for id in &ids {
            shard.input_ended(*id);
        }
        assert_eq!(shard.effects.closed, [(ids[1], Close::HungUp)]);
        message(&mut shard, Millis(2), ShardMessage::FourLetterAnswered { conn: ids[0], text: "text".into() });
        assert_eq!(shard.unsent(ids[0]), b"text");
        shard.sent(Millis(3), ids[0], 4);
        assert_eq!(shard.effects.closed[1..], [(ids[0], Close::Done)]);
    }
}
