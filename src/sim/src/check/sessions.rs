//! Sessions: none expires before its timeout after the last byte that the server could have read. Ended ones leave no
//! ephemeral, and ephemerals exist only with living sessions (protocol chapters 9 and 15).
//!
//! A sign of life is a byte that arrives at the socket of the session's connection, while the server is willing to read
//! it. A session may be ended only if it once was silent for its whole timeout.

use std::collections::BTreeMap;

use corral_core::command::{CommandKind, Proposals};
use corral_core::ids::{Millis, SessionId};

use super::{Checkers, Proposed};
use crate::model::{Expected, LinkId, Model};
use crate::violation::{Checked, Violation, require};

/// The deadline of a session, as far as a server knows it.
pub(crate) type Deadline = (SessionId, Option<Millis>);

#[derive(Clone, Copy, Debug)]
struct Life {
    active_at: Millis,
    timeout_ms: u64,
    /// It was silent for its whole timeout: whatever it says now may be too late.
    overdue: bool,
    /// The index of the log entry with which it began, or was attached to: an attach takes no zxid of its own.
    since: u64,
}

/// When each session was last heard from.
#[derive(Debug, Default)]
pub(super) struct Lives {
    known: BTreeMap<i64, Life>,
    /// Sessions that a leader of an ensemble decided to end too early, and the complaint: for when that is committed.
    ended_early: BTreeMap<i64, String>,
    term: u64,
}

impl Lives {
    pub(super) fn starts(&mut self, now: Millis, session: i64, timeout_ms: i32, since: u64) {
        let timeout_ms = u64::try_from(timeout_ms).unwrap_or(0);
        self.known.insert(session, Life { active_at: now, timeout_ms, overdue: false, since });
    }

    pub(super) fn ends(&mut self, session: i64) {
        self.known.remove(&session);
    }

    /// A session was ended by the servers themselves.
    pub(super) fn ends_rightly(&mut self, session: i64) -> Checked {
        self.ends(session);
        let complaint = self.ended_early.remove(&session);
        complaint.map_or(Ok(()), |complaint| Err(Violation::of("sessions", complaint)))
    }

    /// A new leader gives every session a full timeout. A leader that was frozen may lead for a moment when another has
    /// long done so.
    pub(super) fn led_by(&mut self, term: u64, now: Millis, model: &Model) {
        if term > self.term {
            self.term = term;
            self.all_start(now, model);
        }
    }

    /// Every session has its full timeout from now on.
    pub(super) fn all_start(&mut self, now: Millis, model: &Model) {
        self.known.clear();
        self.ended_early.clear();
        for (session, state) in &model.sessions {
            self.starts(now, *session, state.timeout_ms, 0);
        }
    }
}

impl Checkers {
    /// Bytes of this connection reached the server, which wants to read it.
    pub(crate) fn sign_of_life(&mut self, link: LinkId, now: Millis) {
        let session = self.facts[link.0].session;
        let owns = self.model.sessions.get(&session).is_some_and(|state| state.owner == link);
        if let Some(life) = self.lives.known.get_mut(&session).filter(|_| owns) {
            life.overdue |= now.since(life.active_at) >= life.timeout_ms;
            life.active_at = now;
        }
    }

    /// The server, which has applied the log up to that index, decides to end a session. A decision of an ensemble's
    /// leader counts once it is committed. The other servers may have committed an attach that a leader with a slow
    /// disk has not applied. It does not know of that life, and until then no server can tell the client that it has
    /// begun.
    pub(crate) fn expired(&mut self, session: i64, now: Millis, applied: u64) -> Checked {
        let Some(life) = self.lives.known.get(&session).copied().filter(|life| life.since <= applied) else {
            return Ok(());
        };
        let silent_ms = now.since(life.active_at);
        if life.overdue || silent_ms >= life.timeout_ms {
            self.lives.ended_early.remove(&session);
            return Ok(());
        }
        let timeout_ms = life.timeout_ms;
        let complaint =
            format!("session {session:#x} expires {silent_ms} ms after its last byte, its timeout is {timeout_ms}");
        if self.in_ensemble {
            self.lives.ended_early.insert(session, complaint);
            return Ok(());
        }
        Err(Violation::of("sessions", complaint))
    }

    /// The answer to a connect request reached its client.
    pub(crate) fn connected(&mut self, link: LinkId, session: i64, timeout_ms: i32, password: [u8; 16]) -> Checked {
        let verdict = self.facts[link.0].verdicts.first();
        let right = match verdict {
            Some((_, Expected::SessionBegun { session, timeout_ms, password })) => (*session, *timeout_ms, *password),
            Some((_, Expected::SessionRefused)) => (0, 0, [0; 16]),
            _ => return self.refused_at_once(link, session),
        };
        let got = (session, timeout_ms, password);
        require(got == right, "sessions", || format!("link {} was told {got:x?}, right is {right:x?}", link.0))
    }

    /// A connect request is answered that is in no log entry: refused, and rightly so for ever.
    fn refused_at_once(&self, link: LinkId, session: i64) -> Checked {
        let asked = self.facts[link.0].proposed.first();
        let is_wrong = match asked {
            Some(Proposed::Connect { session, password, .. }) if *session != 0 => !self.proves(*session, password),
            _ => false,
        };
        require(session == 0 && is_wrong, "sessions", || {
            format!("link {} has session {session:#x} without a command for {asked:x?}", link.0)
        })
    }

    fn proves(&self, session: i64, password: &[u8; 16]) -> bool {
        self.model.sessions.get(&session).is_some_and(|known| known.password == *password)
    }

    /// Living sessions that these commands want to attach to, none of them with the right password. A session that has
    /// ended here may live on for a while in the state of the server that is asked.
    pub(crate) fn unproven(&self, proposals: &Proposals) -> Vec<SessionId> {
        let attaches = |right: bool| {
            proposals.commands.iter().filter_map(move |command| match &command.kind {
                CommandKind::AttachSession { session, password, .. } => {
                    (self.proves(session.0, password) == right).then_some(*session)
                }
                _ => None,
            })
        };
        let lives = |session: &SessionId| self.model.sessions.contains_key(&session.0);
        attaches(false).filter(lives).filter(|session| attaches(true).all(|proven| proven != *session)).collect()
    }

    /// Attaches without the right password leave the deadlines of those sessions unchanged.
    pub(crate) fn no_deadline_moved(before: &[Deadline], after: &[Deadline]) -> Checked {
        require(before == after, "sessions", || format!("{before:?} become {after:?} by attaches without passwords"))
    }

    pub(crate) fn no_ephemerals(&self) -> Checked {
        let left = self.model.tree.nodes().find(|(_, node)| node.owner != 0);
        require(left.is_none(), "sessions", || format!("{left:?} outlives every session"))
    }
}
