//! Sessions: none expires before its timeout after the last byte that the server could have read. Ended ones leave no
//! ephemeral, and ephemerals exist only with living sessions (protocol chapters 9 and 15).
//!
//! A sign of life is a byte that arrives at the socket of the session's connection, while the server is willing to read
//! it. A session may be ended only if it once was silent for its whole timeout.

use corral_core::command::{CommandKind, Proposals};
use corral_core::ids::{Millis, SessionId};

use crate::check::checkers::Checkers;
use crate::check::proposed::Proposed;
use crate::model::{Expected, LinkId};
use crate::violation::{Checked, Violation, require};

/// The deadline of a session, as far as a server knows it.
pub(crate) type Deadline = (SessionId, Option<Millis>);

pub(crate) fn leads(checkers: &mut Checkers, term: u64, now: Millis) {
    checkers.lives.led_by(term, now, &checkers.model);
}

/// Sessions have their full timeout again when the server that is alone has started.
pub(crate) fn started_alone(checkers: &mut Checkers, now: Millis) {
    checkers.lives.all_start(now, &checkers.model);
}

/// Bytes of this connection reached the server, which wants to read it.
pub(crate) fn sign_of_life(checkers: &mut Checkers, link: LinkId, now: Millis) {
    let session = checkers.facts[link.0].session;
    let owns = checkers.model.sessions.get(&session).is_some_and(|state| state.owner == link);
    if let Some(life) = checkers.lives.known.get_mut(&session).filter(|_| owns) {
        life.overdue |= now.since(life.byte_at) >= life.timeout_ms;
        (life.active_at, life.byte_at) = (now, now);
    }
}

/// The server, which has applied the log up to that index, decides to end a session. A decision of an ensemble's
/// leader counts once it is committed. The other servers may have committed an attach that a leader with a slow
/// disk has not applied. It does not know of that life, and until then no server can tell the client that it has
/// begun.
pub(crate) fn expired(checkers: &mut Checkers, session: i64, now: Millis, applied: u64) -> Checked {
    let Some(life) = checkers.lives.known.get(&session).copied().filter(|life| life.since <= applied) else {
        return Ok(());
    };
    let silent_ms = now.since(life.active_at);
    if life.overdue || silent_ms >= life.timeout_ms {
        checkers.lives.ended_early.remove(&session);
        return Ok(());
    }
    let timeout_ms = life.timeout_ms;
    let complaint =
        format!("session {session:#x} expires {silent_ms} ms after its last byte, its timeout is {timeout_ms}");
    if checkers.in_ensemble {
        checkers.lives.ended_early.insert(session, complaint);
        return Ok(());
    }
    Err(Violation::of("sessions", complaint))
}

/// The answer to a connect request reached its client.
pub(crate) fn connected(
    checkers: &mut Checkers,
    link: LinkId,
    session: i64,
    timeout_ms: i32,
    password: [u8; 16],
) -> Checked {
    let verdict = checkers.facts[link.0].verdicts.first();
    let right = match verdict {
        Some((_, Expected::SessionBegun { session, timeout_ms, password })) => (*session, *timeout_ms, *password),
        Some((_, Expected::SessionRefused)) => (0, 0, [0; 16]),
        _ => return refused_at_once(checkers, link, session),
    };
    let got = (session, timeout_ms, password);
    require(got == right, "sessions", || format!("link {} was told {got:x?}, right is {right:x?}", link.0))
}

/// A connect request is answered that is in no log entry: refused, and rightly so for ever.
fn refused_at_once(checkers: &Checkers, link: LinkId, session: i64) -> Checked {
    let asked = checkers.facts[link.0].proposed.first();
    let is_wrong = match asked {
        Some(Proposed::Connect { session, password, .. }) if *session != 0 => !proves(checkers, *session, password),
        _ => false,
    };
    require(session == 0 && is_wrong, "sessions", || {
        format!("link {} has session {session:#x} without a command for {asked:x?}", link.0)
    })
}

fn proves(checkers: &Checkers, session: i64, password: &[u8; 16]) -> bool {
    checkers.model.sessions.get(&session).is_some_and(|known| known.password == *password)
}

/// Living sessions that these commands want to attach to, none of them with the right password. A session that has
/// ended here may live on for a while in the state of the server that is asked.
pub(crate) fn unproven(checkers: &Checkers, proposals: &Proposals) -> Vec<SessionId> {
    let attaches = |right: bool| {
        proposals.commands.iter().filter_map(move |command| match &command.kind {
            CommandKind::AttachSession { session, password, .. } => {
                (proves(checkers, session.0, password) == right).then_some(*session)
            }
            _ => None,
        })
    };
    let lives = |session: &SessionId| checkers.model.sessions.contains_key(&session.0);
    attaches(false).filter(lives).filter(|session| attaches(true).all(|proven| proven != *session)).collect()
}

/// Attaches without the right password leave the deadlines of those sessions unchanged.
pub(crate) fn no_deadline_moved(before: &[Deadline], after: &[Deadline]) -> Checked {
    require(before == after, "sessions", || format!("{before:?} become {after:?} by attaches without passwords"))
}

pub(crate) fn no_ephemerals(checkers: &Checkers) -> Checked {
    let left = checkers.model.tree.nodes().find(|(_, node)| node.owner != 0);
    require(left.is_none(), "sessions", || format!("{left:?} outlives every session"))
}
