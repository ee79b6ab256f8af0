//! What a leader sees of the other members, for whoever decides about the membership, and what it keeps for those that lag.

use raft::{ProgressState, StateRole};

use super::RaftNode;
use crate::limits;
use crate::types::{Index, NodeId};

impl RaftNode {
    /// Whether a change of the membership would be taken now: this node leads, none is on its way, and the log has room.
    pub fn may_change_membership(&self) -> bool {
        self.raw.raft.state == StateRole::Leader && !self.raw.raft.has_pending_conf() && self.has_room()
    }

    /// Whether this node's log holds a change of the membership that may still come into force.
    pub fn holds_membership_change(&self) -> bool {
        self.raw.store().holds_conf_change()
    }

    /// Members that were heard from lately, with this node. Nobody is just after a new election timeout has begun.
    pub fn reached(&self) -> Vec<NodeId> {
        let members = self.raw.raft.prs().iter();
        members
            .filter(|(id, progress)| **id == self.id.0 || progress.recent_active)
            .map(|(id, _)| NodeId(*id))
            .collect()
    }

    /// Those of them that lack little of what is committed, with this node, and without those that remember nothing.
    pub fn in_step(&self) -> Vec<NodeId> {
        let raft = &self.raw.raft;
        let near = |matched: u64| matched > 0 && matched + limits::KEEPS_UP_ENTRIES >= raft.raft_log.committed;
        let remembers = |id: u64| !self.newborns.contains(&NodeId(id));
        let members = raft.prs().iter().filter(|(id, progress)| {
            **id == self.id.0 || progress.recent_active && near(progress.matched) && remembers(**id)
        });
        members.map(|(id, _)| NodeId(*id)).collect()
    }

    /// Entries behind an image stay in memory until the follower that takes it over has them, or is not heard any more.
    pub(super) fn look_after_awaited(&mut self) {
        let store = self.raw.mut_store();
        if store.awaited_mut().is_empty() {
            return;
        }
        let mut awaited = std::mem::take(store.awaited_mut());
        let raft = &self.raw.raft;
        let leads = raft.state == StateRole::Leader;
        let silence = limits::AWAITED_SILENCE_ELECTIONS * u32::try_from(raft.election_timeout()).unwrap_or(u32::MAX);
        awaited.retain(|id, waiting| {
            let Some(progress) = raft.prs().get(id.0).filter(|_| leads) else { return false };
            waiting.silent = if progress.recent_active { 0 } else { waiting.silent + 1 };
            let takes_over = progress.state == ProgressState::Snapshot;
            if !takes_over {
                waiting.from = waiting.from.max(Index(progress.matched));
            }
            let has_it = !takes_over && progress.matched > 0 && raft.store().fits_behind(progress.matched);
            waiting.silent < silence && !has_it
        });
        *self.raw.mut_store().awaited_mut() = awaited;
    }
}
