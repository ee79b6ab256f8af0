//! Whom a leader hears of and who keeps up, counted for whoever asks: `mntr` of an ensemble.
//!
//! Once a tick. Raft notes who was heard from since its last look, and looks anew each election
//! timeout: a member counts until that time has passed without it. It decides nothing.

use std::collections::BTreeMap;

use corral_consensus::{Membership, Micros, NodeId, RaftNode, Role};
use corral_core::report::Quorum;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Census {
    /// When each was last known to be there.
    reached: BTreeMap<NodeId, Micros>,
    /// When each was last known to keep up.
    in_step: BTreeMap<NodeId, Micros>,
}

impl Census {
    /// What is to be told now. Who does not vote and ought to, by `wanted`, is a follower yet; other learners are observers.
    pub(crate) fn count(&mut self, now: Micros, election: Micros, raft: &RaftNode, wanted: &Membership) -> Quorum {
        let members = raft.membership();
        if raft.role() != Role::Leader {
            *self = Census::default();
            return Quorum { size: members.voters.len() as u64, ..Quorum::default() };
        }
        let (reached, in_step) = (raft.reached(), raft.in_step());
        self.note(now, election, &reached, &in_step, raft.id());
        self.tell(&members, wanted)
    }

    fn note(&mut self, now: Micros, election: Micros, reached: &[NodeId], in_step: &[NodeId], own: NodeId) {
        for (seen, heard) in [(&mut self.reached, reached), (&mut self.in_step, in_step)] {
            seen.extend(heard.iter().filter(|id| **id != own).map(|id| (*id, now)));
            seen.retain(|_, at| now.since(*at).0 <= election.0);
        }
    }

    fn tell(&self, members: &Membership, wanted: &Membership) -> Quorum {
        let is_voter = |id: &NodeId| members.voters.contains(id) || members.voters_outgoing.contains(id);
        let is_to_vote = |id: &NodeId| wanted.voters.contains(id);
        let synced = |of: &dyn Fn(&NodeId) -> bool| self.in_step.keys().filter(|id| of(id)).count() as u64;
        Quorum {
            size: members.voters.len() as u64,
            learners: self.reached.len() as u64,
            synced_followers: synced(&is_voter),
            synced_non_voting_followers: synced(&|id| !is_voter(id) && is_to_vote(id)),
            synced_observers: synced(&|id| !is_voter(id) && !is_to_vote(id)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_heard_for_an_election_does_not_count() {
        let ids = |list: &[u64]| list.iter().map(|id| NodeId(*id)).collect::<Vec<_>>();
        let (members, wanted) =
            (Membership::simple(&ids(&[1, 2, 3]), &ids(&[4, 5])), Membership::simple(&ids(&[1, 2, 3, 4]), &ids(&[5])));
        let mut census = Census::default();
        let mut at = |now: u64, reached: &[u64], in_step: &[u64]| {
            census.note(Micros(now), Micros(100), &ids(reached), &ids(in_step), NodeId(1));
            let told = census.tell(&members, &wanted);
            assert_eq!(told.size, 3);
            (told.learners, told.synced_followers, told.synced_non_voting_followers, told.synced_observers)
        };
        assert_eq!(at(0, &[1], &[1]), (0, 0, 0, 0), "this server is none of them");
        assert_eq!(at(10, &[1, 2, 3, 4, 5], &[1, 2, 4, 5]), (4, 1, 1, 1));
        // Raft looks anew: nobody was heard yet.
        assert_eq!(at(20, &[1], &[1]), (4, 1, 1, 1));
        assert_eq!(at(110, &[1, 2], &[1, 2]), (4, 1, 1, 1));
        assert_eq!(at(111, &[1], &[1]), (1, 1, 0, 0));
    }
}
