//! The sessions that live, each with its last sign of life.

use std::collections::BTreeMap;
use std::mem;

use corral_core::ids::Millis;

use crate::model::Model;
use crate::violation::{Checked, Violation};

#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    pub(super) active_at: Millis,
    /// When its last byte came, also if another led then.
    pub(super) byte_at: Millis,
    pub(super) timeout_ms: u64,
    /// It was silent for its whole timeout: whatever it says now may be too late.
    pub(super) overdue: bool,
    /// The index of the log entry with which it began, or was attached to: an attach takes no zxid of its own.
    pub(super) since: u64,
}

#[derive(Debug, Default)]
pub(super) struct Lives {
    pub(super) known: BTreeMap<i64, Life>,
    /// Sessions that a leader of an ensemble decided to end too early, and the complaint: for when that is committed.
    pub(super) ended_early: BTreeMap<i64, String>,
    term: u64,
}

impl Lives {
    pub(super) fn starts(&mut self, now: Millis, session: i64, timeout_ms: i32, since: u64) {
        let timeout_ms = u64::try_from(timeout_ms).unwrap_or(0);
        self.known.insert(session, Life { active_at: now, byte_at: now, timeout_ms, overdue: false, since });
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
        let before = mem::take(&mut self.known);
        self.ended_early.clear();
        for (session, state) in &model.sessions {
            self.starts(now, *session, state.timeout_ms, 0);
            if let (Some(before), Some(life)) = (before.get(session), self.known.get_mut(session)) {
                life.byte_at = before.byte_at;
            }
        }
    }
}
