//! A leader's view of the other members for the caller, computed from the library's progress tracking.

use std::collections::BTreeSet;

use raft::{Raft, StateRole};

use super::reconciliation::is_near;
use super::repairs::Repairs;
use crate::convert::id_of;
use crate::log::MemLog;
use crate::types::{Index, ServerId};

/// The other members as this node sees them, see [`RaftNode::followers`](crate::RaftNode::followers).
#[derive(Clone, Copy)]
pub struct Followers<'a> {
    raft: &'a Raft<MemLog>,
    uninitialised: &'a BTreeSet<ServerId>,
    repairs: &'a Repairs,
}

impl<'a> Followers<'a> {
    pub(super) fn new(
        raft: &'a Raft<MemLog>,
        uninitialised: &'a BTreeSet<ServerId>,
        repairs: &'a Repairs,
    ) -> Followers<'a> {
        Followers { raft, uninitialised, repairs }
    }

    /// Members that have replied since the last check of the quorum, and this node. The others are missing right after
    /// such a check, which comes once in an election timeout.
    #[must_use]
    pub fn active(self) -> Vec<ServerId> {
        let members = self.raft.prs().iter();
        members
            .filter(|(id, progress)| **id == self.raft.id || progress.recent_active)
            .map(|(id, _)| id_of(*id))
            .collect()
    }

    /// The active members that are close behind the commit index ([`crate::limits::KEEPS_UP_ENTRIES`]), and this node.
    /// Uninitialised members are left out.
    #[must_use]
    pub fn synced(self) -> Vec<ServerId> {
        let committed = self.raft.raft_log.committed;
        let members = self.raft.prs().iter().filter(|(id, progress)| {
            let has_data = !self.uninitialised.contains(&id_of(**id));
            **id == self.raft.id || progress.recent_active && is_near(progress.matched, committed) && has_data
        });
        members.map(|(id, _)| id_of(*id)).collect()
    }

    /// Whether a member has reported that it is uninitialised, and has acknowledged nothing since. A leader removes such
    /// a member.
    #[must_use]
    pub fn any_uninitialised(self) -> bool {
        !self.uninitialised.is_empty()
    }

    /// The best voter to transfer leadership to: the active one with the longest log. Voters that reported a corrupt state do
    /// not count. `None` when there is none, or this node does not lead.
    #[must_use]
    pub fn successor(self) -> Option<ServerId> {
        self.successor_except(&[])
    }

    /// The same without these voters.
    #[must_use]
    pub fn successor_except(self, excluded: &[ServerId]) -> Option<ServerId> {
        if self.raft.state != StateRole::Leader {
            return None;
        }
        let others = self.raft.prs().iter().filter(|(id, progress)| {
            let id = id_of(**id);
            self.is_other_voter(id.wide())
                && progress.recent_active
                && !self.repairs.includes(id)
                && !excluded.contains(&id)
        });
        let best = others.max_by_key(|(id, progress)| (progress.matched, u64::MAX - **id));
        best.map(|(id, _)| id_of(*id))
    }

    /// Whether that member has reported lately that its state is corrupt. This holds on each node, whatever its role.
    #[must_use]
    pub fn has_corrupt_state(self, id: ServerId) -> bool {
        self.repairs.includes(id)
    }

    /// Log entries that the newest snapshot holds, and that are kept on disk for members that receive an older one.
    #[must_use]
    pub fn log_entries_kept(self) -> u64 {
        self.raft.store().kept_for_followers()
    }

    /// The index up to which the log of that member is known to be durable. 0 if it is not a member, or this node does
    /// not lead.
    #[must_use]
    pub fn matched(self, id: ServerId) -> Index {
        let progress = self.raft.prs().get(id.wide()).filter(|_| self.raft.state == StateRole::Leader);
        Index(progress.map_or(0, |progress| progress.matched))
    }

    /// Whether the log of another voter is known to be durable up to `index`.
    #[must_use]
    pub fn any_has(self, index: Index) -> bool {
        self.raft.prs().iter().any(|(id, _)| self.is_other_voter(*id) && self.matched(id_of(*id)) >= index)
    }

    fn is_other_voter(self, id: u64) -> bool {
        id != self.raft.id && self.raft.prs().conf().voters().contains(id)
    }
}
