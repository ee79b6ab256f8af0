//! The first bytes of a connection: a four-letter command, or the request to begin or resume a session
//! (protocol chapters 3 and 23).

use crate::apply::outcome::Outcome;
use crate::command::CommandKind;
use crate::ids::{ConnId, Millis, SessionId};
use crate::limits::{FOUR_LETTER_BYTES_MAX, LONG_COMMANDS_MAX};
use crate::shard::conn::{Close, Conn, Pending, Phase};
use crate::shard::effects::Question;
use crate::shard::four_letter::is_long;
use crate::shard::leaderless::password;
use crate::shard::memory::Wanting;
use crate::shard::state::{Served, ShardState};
use crate::shard::{ending, leaderless, proposing, reply};
use alloc::vec::Vec;
use corral_wire::Reader;
use corral_wire::fourletter::{FourLetter, TELNET_CLOSE};
use corral_wire::records::ConnectRequest;

/// Whether the connection began with a four-letter command, which is its only request. Returns the number of
/// consumed bytes: all of them, or none while the command's argument is incomplete.
pub(super) fn greeted_with_four_letter(
    shard: &mut ShardState,
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
    let allowed = shard.config.whitelist.contains(&command);
    let argument = rest.first_chunk::<8>().map(|bytes| i64::from_be_bytes(*bytes));
    if command == FourLetter::Stmk && allowed && argument.is_none() {
        return Ok(Some(0));
    }
    if allowed && is_long(command) && !may_ask(shard, now, conn) {
        return Ok(Some(0));
    }
    conn.command = Some(command);
    conn.counters.received += 1;
    shard.statistics.received += 1;
    if !allowed {
        let refusal = alloc::format!("{} is not executed because it is not in the whitelist.\n", command.name());
        say(shard, conn, refusal.into_bytes());
        conn.command = None;
        return Err(Close::Done);
    }
    match command {
        FourLetter::Ruok => say(shard, conn, b"imok".to_vec()),
        FourLetter::Isro => say(shard, conn, leaderless::isro(shard).to_vec()),
        _ => {
            shard.effects.questions.push(Question { conn: conn.id, command, argument: argument.unwrap_or_default() });
            return Ok(Some(bytes.len()));
        }
    }
    Err(Close::Done)
}

/// Whether a long command is asked now; if not, its connection waits.
fn may_ask(shard: &mut ShardState, now: Millis, conn: &mut Conn) -> bool {
    if shard.long_commands.unanswered >= long_commands_max(shard) {
        // Not in the queue for memory: replies to others go before it.
        (conn.stalled, conn.waits.memory) = (true, true);
        shard.long_commands.waiting.push_back(conn.id);
        return false;
    }
    if shard.memory.room(conn) < FOUR_LETTER_BYTES_MAX {
        shard.memory.wait(conn, Wanting { conn: conn.id, need: FOUR_LETTER_BYTES_MAX, list: false, since: now });
        return false;
    }
    shard.long_commands.unanswered += 1;
    true
}

fn long_commands_max(shard: &ShardState) -> usize {
    let half = shard.config.limits.reply_buffer_bytes_total_max / 2;
    (half / FOUR_LETTER_BYTES_MAX).clamp(1, LONG_COMMANDS_MAX)
}

/// Connections with long commands, as many as may be asked, wait for memory only. Nothing while others wait for that.
pub(super) fn let_ask(shard: &mut ShardState, now: Millis) {
    if shard.memory.is_awaited() {
        return;
    }
    let mut free = long_commands_max(shard).saturating_sub(shard.long_commands.unanswered);
    while free > 0
        && let Some(id) = shard.long_commands.waiting.pop_front()
    {
        let Some(mut conn) = shard.conns.take(id) else { continue };
        conn.waits.memory = false;
        shard.memory.wait(&mut conn, Wanting { conn: id, need: FOUR_LETTER_BYTES_MAX, list: false, since: now });
        shard.conns.put_back(conn);
        free -= 1;
    }
}

/// The text for a four-letter command is ready.
pub(super) fn answer_four_letter(shard: &mut ShardState, now: Millis, id: ConnId, text: Vec<u8>) {
    let Some(mut conn) = shard.conns.take(id) else { return };
    shard.long_commands.forget(conn.command.take());
    say(shard, &mut conn, text);
    ending::settle(shard, now, conn, Err(Close::Done));
    let_ask(shard, now);
}

/// Long texts are not copied: a connection that asked with a command has sent nothing else.
fn say(shard: &mut ShardState, conn: &mut Conn, text: Vec<u8>) {
    assert!(conn.unsent() == 0, "a command has one answer");
    conn.output.append_whole(text);
    shard.statistics.sent += 1;
}

pub(super) fn connect(shard: &mut ShardState, conn: &mut Conn, frame: &[u8], entropy: [u8; 16]) -> Served {
    let request = ConnectRequest::decode(&mut Reader::new(frame)).map_err(|_| Close::Malformed)?;
    conn.counters.received += 1;
    shard.statistics.received += 1;
    shard.statistics.connects += 1;
    conn.session.requested(request.read_only.is_some());
    if shard.flow.leaderless {
        return leaderless::connect_leaderless(shard, conn, &request, entropy);
    }
    if request.last_zxid_seen > shard.view.zxid().max(shard.freshness.floor()).wire() {
        return Err(Close::ClientAhead);
    }
    let timeout_ms = shard.config.negotiated(request.timeout_ms);
    let kind = if request.session_id == 0 {
        if shard.sessions.alive() >= shard.config.limits.sessions_max {
            return Err(Close::SessionLimit);
        }
        CommandKind::CreateSession { timeout_ms, password: entropy }
    } else {
        let (session, password) = (SessionId(request.session_id), password(&request));
        CommandKind::AttachSession { session, timeout_ms, password }
    };
    conn.phase = Phase::Connecting;
    conn.pending.push(Pending::Connect { at: shard.clock });
    proposing::propose(shard, conn, kind, 0, 0);
    Ok(())
}

pub(super) fn connected(shard: &mut ShardState, conn: &mut Conn, outcome: &Outcome) -> Served {
    match outcome {
        Outcome::SessionCreated { session, timeout_ms, password }
        | Outcome::SessionAttached { session, timeout_ms, password, .. } => {
            let ephemerals =
                if let Outcome::SessionAttached { ephemerals, .. } = outcome { Some(ephemerals) } else { None };
            conn.phase = Phase::Live;
            conn.session.attach(*session, *timeout_ms);
            shard.sessions.bind(*session, conn.id, ephemerals);
            let read_only = conn.session.response_byte();
            reply::connected(conn.output.buffer(&mut shard.buffers), session.0, *timeout_ms, password, read_only);
            Ok(())
        }
        _ => {
            reply::connected(conn.output.buffer(&mut shard.buffers), 0, 0, &[0; 16], conn.session.response_byte());
            Err(Close::SessionRefused)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{client, event, message, receive, shard, tick};
    use super::super::{ClientEvent, ShardMessage};
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    /// Checks the answer, the question and the end of a connection that sends bytes in the given portions.
    fn check(portions: &[&[u8]], said: &str, asked: Option<(FourLetter, i64)>, ended: Option<Close>) {
        let mut shard = shard();
        let id = client(&mut shard);
        for portion in portions {
            receive(&mut shard, Millis(1), id, portion);
        }
        assert_eq!(shard.unsent(id), said.as_bytes(), "{portions:?}");
        let words: Vec<_> =
            shard.state.effects.questions.iter().map(|question| (question.command, question.argument)).collect();
        assert_eq!(words, asked.into_iter().collect::<Vec<_>>(), "{portions:?}");
        let length = said.len();
        if length > 0 {
            event(&mut shard, Millis(2), id, ClientEvent::Sent(length));
        }
        let closed: Vec<Close> = shard.state.effects.closed.iter().map(|(_, why)| *why).collect();
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
        let half = shard.state.config.limits.reply_buffer_bytes_total_max / 2;
        let ids: Vec<_> = (0..50).map(|_| client(&mut shard)).collect();
        for id in &ids {
            receive(&mut shard, Millis(1), *id, b"cons");
            receive(&mut shard, Millis(1), *id, b"\n");
        }
        assert_eq!(shard.state.effects.questions.len(), LONG_COMMANDS_MAX);
        assert!(shard.state.memory.held() <= half + (1 << 20) && !shard.state.memory.is_awaited());
        // One connection with an asked command has ended, and a waiting one too.
        event(&mut shard, Millis(1), ids[0], ClientEvent::Failed);
        event(&mut shard, Millis(1), ids[49], ClientEvent::Failed);
        tick(&mut shard, Millis(2));
        let mut answered = 0;
        while answered < shard.state.effects.questions.len() {
            let id = shard.state.effects.questions[answered].conn;
            answered += 1;
            message(&mut shard, Millis(3), ShardMessage::FourLetterAnswered { conn: id, text: "text".into() });
            while shard.needs_turn() {
                shard.turn(Millis(3).micros());
            }
            assert!(shard.state.effects.questions.len() <= answered + LONG_COMMANDS_MAX);
        }
        assert_eq!(answered, 49, "each of those that stayed was asked once");
        assert_eq!((shard.state.long_commands.unanswered, shard.state.long_commands.waiting.len()), (0, 0));
    }

    #[test]
    fn an_answer_reaches_a_client_that_sends_no_more() {
        let mut shard = shard();
        let ids = vec![client(&mut shard), client(&mut shard)];
        receive(&mut shard, Millis(1), ids[0], b"conf");
        for id in &ids {
            event(&mut shard, Millis(1), *id, ClientEvent::InputEnded);
        }
        assert_eq!(shard.state.effects.closed, [(ids[1], Close::HungUp)]);
        message(&mut shard, Millis(2), ShardMessage::FourLetterAnswered { conn: ids[0], text: "text".into() });
        assert_eq!(shard.unsent(ids[0]), b"text");
        event(&mut shard, Millis(3), ids[0], ClientEvent::Sent(4));
        assert_eq!(shard.state.effects.closed[1..], [(ids[0], Close::Done)]);
    }
}
