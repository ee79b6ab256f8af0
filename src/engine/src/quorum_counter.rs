//! The active and the synced members, as a leader counts them for `mntr`. Nothing is decided here.
//!
//! Raft notes which members replied since its last check of the quorum, once in an election timeout. So a member counts
//! until that time has passed without a reply.

use std::collections::BTreeMap;

use corral_consensus::{Membership, Micros, RaftNode, Role, ServerId};
use corral_core::report::Quorum;

/// When members were last observed.
#[derive(Debug, Default)]
pub(crate) struct QuorumCounter {
    /// When each member was last active.
    active: BTreeMap<ServerId, Micros>,
    /// When each member was last synced.
    synced: BTreeMap<ServerId, Micros>,
}

impl QuorumCounter {
    /// One tick: the counts to show. A learner that `wanted` has as a voter is a non-voting follower; other learners are
    /// observers.
    pub(crate) fn count(&mut self, now: Micros, election: Micros, raft: &RaftNode, wanted: &Membership) -> Quorum {
        let members = raft.membership();
        if raft.role() != Role::Leader {
            *self = QuorumCounter::default();
            return Quorum { size: members.voters.len() as u64, ..Quorum::default() };
        }
        let (active, synced) = (raft.followers().active(), raft.followers().synced());
        self.note(now, election, &active, &synced, raft.id());
        self.counts(&members, wanted)
    }

    fn note(&mut self, now: Micros, election: Micros, active: &[ServerId], synced: &[ServerId], own: ServerId) {
        for (seen, ids) in [(&mut self.active, active), (&mut self.synced, synced)] {
            seen.extend(ids.iter().filter(|id| **id != own).map(|id| (*id, now)));
            seen.retain(|_, at| now.since(*at).0 <= election.0);
        }
    }

    fn counts(&self, members: &Membership, wanted: &Membership) -> Quorum {
        let is_voter = |id: &ServerId| members.voters.contains(id) || members.voters_outgoing.contains(id);
        let is_to_vote = |id: &ServerId| wanted.voters.contains(id);
        let count = |of: &dyn Fn(&ServerId) -> bool| self.synced.keys().filter(|id| of(id)).count() as u64;
        Quorum {
            size: members.voters.len() as u64,
            learners: self.active.len() as u64,
            synced_followers: count(&is_voter),
            synced_non_voting_followers: count(&|id| !is_voter(id) && is_to_vote(id)),
            synced_observers: count(&|id| !is_voter(id) && !is_to_vote(id)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_is_silent_for_an_election_does_not_count() {
        let ids = |list: &[u8]| list.iter().map(|id| ServerId(*id)).collect::<Vec<_>>();
        let (members, wanted) =
            (Membership::simple(&ids(&[1, 2, 3]), &ids(&[4, 5])), Membership::simple(&ids(&[1, 2, 3, 4]), &ids(&[5])));
        let mut quorum_counter = QuorumCounter::default();
        let mut at = |now: u64, reached: &[u8], in_step: &[u8]| {
            quorum_counter.note(Micros(now), Micros(100), &ids(reached), &ids(in_step), ServerId(1));
            let told = quorum_counter.counts(&members, &wanted);
            assert_eq!(told.size, 3);
            (told.learners, told.synced_followers, told.synced_non_voting_followers, told.synced_observers)
        };
        assert_eq!(at(0, &[1], &[1]), (0, 0, 0, 0), "this server is none of them");
        assert_eq!(at(10, &[1, 2, 3, 4, 5], &[1, 2, 4, 5]), (4, 1, 1, 1));
        // Raft has just checked the quorum: no member has replied since.
        assert_eq!(at(20, &[1], &[1]), (4, 1, 1, 1));
        assert_eq!(at(110, &[1, 2], &[1, 2]), (4, 1, 1, 1));
        assert_eq!(at(111, &[1], &[1]), (1, 1, 0, 0));
    }
}
