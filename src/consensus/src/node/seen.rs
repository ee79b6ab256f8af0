//! What a leader sees of the other members, for whoever decides about the membership.

use raft::StateRole;

use super::RaftNode;
use crate::limits;
use crate::types::NodeId;

impl RaftNode {
    /// Whether a change of the membership would be taken now: this node leads, none is on its way, and the log has room.
    pub fn may_change_membership(&self) -> bool {
        self.raw.raft.state == StateRole::Leader && !self.raw.raft.has_pending_conf() && self.has_room()
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
}
