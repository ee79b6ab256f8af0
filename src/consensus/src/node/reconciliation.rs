//! A leader's observation of the other members, to bring the membership closer to the wanted one.
//!
//! The rule itself is in `next_change.rs`. This component collects its inputs and sets its pace. It observes twice in
//! an election timeout, and a member keeps up if it was close behind in two observations in a row.

use std::collections::BTreeSet;

use raft::StateRole;

use super::library::Library;
use super::next_change::{self, MemberState};
use crate::conf_change::MemberChange;
use crate::convert::id_of;
use crate::limits;
use crate::membership::Membership;
use crate::types::{Index, ServerId};

/// Observations of a leader.
#[derive(Default)]
pub(super) struct Reconciliation {
    /// Members that reported that they are uninitialised, and have acknowledged nothing since.
    uninitialised: BTreeSet<ServerId>,
    /// Members that have replied since the last observation.
    replied: BTreeSet<ServerId>,
    /// Members that were close behind at the last observation.
    keeping_up: BTreeSet<ServerId>,
    /// Ticks until the next observation.
    ticks_left: u32,
}

impl Reconciliation {
    /// Term, role or leader changed.
    pub(super) fn leader_changed(&mut self) {
        self.uninitialised.clear();
        self.keeping_up.clear();
    }

    /// A member reported that it is uninitialised.
    pub(super) fn note_uninitialised(&mut self, id: ServerId) {
        self.uninitialised.insert(id);
    }

    /// A member replied to an append or a heartbeat, which an uninitialised server does not.
    pub(super) fn note_reply(&mut self, id: ServerId) {
        self.uninitialised.remove(&id);
        self.replied.insert(id);
    }

    /// The connection to a member is lost: what it reported may be old.
    pub(super) fn forget(&mut self, id: ServerId) {
        self.uninitialised.remove(&id);
    }

    /// Members that reported that they are uninitialised.
    pub(super) fn uninitialised(&self) -> &BTreeSet<ServerId> {
        &self.uninitialised
    }

    /// One tick of a leader. The change to propose now, if an observation is due and there is one.
    pub(super) fn tick(&mut self, library: &Library, wanted: &Membership) -> Option<MemberChange> {
        if library.raft().state != StateRole::Leader {
            return None;
        }
        if let Some(left) = self.ticks_left.checked_sub(1) {
            self.ticks_left = left;
            return None;
        }
        self.ticks_left = library.election_ticks() / 2;
        let others = self.observe(library);
        next_change::next_change(wanted, &library.membership(), &others)
    }

    fn observe(&mut self, library: &Library) -> Vec<MemberState> {
        let raft = library.raft();
        let (mut others, mut keeping_up) = (Vec::new(), BTreeSet::new());
        for (id, progress) in raft.prs().iter().filter(|(id, _)| **id != raft.id) {
            let id = id_of(*id);
            let near = is_near(progress.matched, raft.raft_log.committed);
            let is_close = self.replied.contains(&id) && near;
            if is_close {
                keeping_up.insert(id);
            }
            let keeps_up = is_close && self.keeping_up.contains(&id);
            let uninitialised = self.uninitialised.contains(&id);
            others.push(MemberState { id, uninitialised, matched: Index(progress.matched), keeps_up });
        }
        self.keeping_up = keeping_up;
        self.replied.clear();
        others.sort_unstable_by_key(|state| state.id);
        others
    }
}

/// Whether a member that has acknowledged up to `matched` is close behind `committed`.
pub(super) fn is_near(matched: u64, committed: u64) -> bool {
    matched > 0 && matched + limits::KEEPS_UP_ENTRIES >= committed
}
