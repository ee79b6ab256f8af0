//! The memberships since the last snapshot, and the changes on their way to the next one.
//!
//! A membership change takes effect when its entry is reported applied. A snapshot at an index needs the membership of
//! that index, so each one is kept until a snapshot is newer.
//!
//! Invariant: the history is never empty, and its indices grow.

use std::collections::VecDeque;

use crate::conf_change::ConfChange;
use crate::membership::Membership;
use crate::types::{Entry, EntryKind, Index};

/// Memberships by the index from which they are in force.
pub(super) struct MembershipHistory {
    /// Handed out as committed and not applied yet, oldest first.
    pending: VecDeque<(Index, ConfChange)>,
    /// The first is the one at or before the last snapshot.
    in_force: VecDeque<(Index, Membership)>,
}

impl MembershipHistory {
    /// `membership` is in force at `index`, and nothing before is of interest.
    pub(super) fn new(index: Index, membership: Membership) -> MembershipHistory {
        MembershipHistory { pending: VecDeque::new(), in_force: VecDeque::from([(index, membership)]) }
    }

    /// Committed entries are handed out to be applied: the membership changes among them are pending from here on.
    pub(super) fn handed_out(&mut self, entries: &[Entry]) {
        for entry in entries.iter().filter(|entry| entry.kind == EntryKind::ConfChange) {
            let change = ConfChange::decode(&entry.payload).expect("checked before it entered the log");
            self.pending.push_back((entry.index, change));
        }
    }

    /// Takes the next change if its entry is at or before `index`. It is applied with everything up to there.
    pub(super) fn next_applied(&mut self, index: Index) -> Option<(Index, ConfChange)> {
        let is_applied = self.pending.front().is_some_and(|(at, _)| *at <= index);
        if is_applied { self.pending.pop_front() } else { None }
    }

    /// A change put this membership into force.
    pub(super) fn entered(&mut self, at: Index, membership: Membership) {
        self.in_force.push_back((at, membership));
    }

    /// A durable snapshot ends at `index`: gives the membership of that index, unless the history begins later, and drops
    /// those before it.
    pub(super) fn snapshot_taken(&mut self, index: Index) -> Option<Membership> {
        while self.in_force.get(1).is_some_and(|(from, _)| *from <= index) {
            self.in_force.pop_front();
        }
        let (from, membership) = self.in_force.front().expect("never emptied");
        (*from <= index && index > Index(0)).then(|| membership.clone())
    }
}
