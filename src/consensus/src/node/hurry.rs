//! Elections that do not wait for the timeout: the transport saw the leader go.
//!
//! A reset connection says more than a missing heartbeat: the leader's process is gone. The node then forgets the
//! leader, whose lease would make it deaf to others that noticed too, and asks for votes after a stagger of its own, so
//! that two survivors do not split them. Always by pre-vote: if the leader lives after all, nobody's term moves.

use raft::StateRole;

use super::RaftNode;
use crate::limits;
use crate::types::NodeId;

/// Elections to come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hurry {
    in_ticks: u32,
    stagger: u32,
    attempts_left: u32,
}

impl RaftNode {
    /// The process of `leader` is gone as far as the transport can tell. If it leads here, it is forgotten, and this
    /// node stands for election after `stagger_ticks` (0: at once), and some more times if others had not noticed yet.
    pub fn leader_lost(&mut self, leader: NodeId, stagger_ticks: u32) {
        let raft = &mut self.raw.raft;
        if raft.state != StateRole::Follower || raft.leader_id != leader.0 || leader.0 == 0 {
            return;
        }
        self.forget_leader();
        let stagger = stagger_ticks.min(limits::TICKS_MAX);
        self.hurry = Some(Hurry { in_ticks: stagger, stagger, attempts_left: limits::HURRIED_ELECTIONS_MAX });
        self.settle();
        if stagger == 0 {
            self.stand_hurriedly();
        }
    }

    /// The leader has been silent for an election timeout, and this node cannot stand for election: it has no vote, or its log is
    /// full, or its state is not to be trusted. Without this it would count as led for ever, and refuse its vote to the others.
    pub(super) fn forget_silent_leader(&mut self) {
        let waited = self.raw.raft.election_elapsed;
        self.forget_leader();
        if self.raw.raft.promotable() {
            // As soon as it can stand, it does.
            self.raw.raft.election_elapsed = waited;
        }
    }

    /// No leader is known any more.
    fn forget_leader(&mut self) {
        let raft = &mut self.raw.raft;
        let term = raft.term;
        raft.become_follower(term, 0);
    }

    /// Stops hurrying once a leader is known, or an election is truly under way.
    pub(super) fn hurry_on(&mut self) {
        let raft = &self.raw.raft;
        let waits = matches!(raft.state, StateRole::Follower | StateRole::PreCandidate) && raft.leader_id == 0;
        let Some(hurry) = self.hurry.as_mut().filter(|_| waits) else {
            self.hurry = None;
            return;
        };
        hurry.in_ticks = hurry.in_ticks.saturating_sub(1);
        if hurry.in_ticks == 0 {
            self.stand_hurriedly();
        }
    }

    fn stand_hurriedly(&mut self) {
        let Some(hurry) = &mut self.hurry else { return };
        hurry.attempts_left -= 1;
        // Two that ask in the same tick must not do so for ever.
        let extra = u32::try_from(self.rng.below(u64::from(limits::HURRY_TICKS))).expect("below a u32");
        hurry.in_ticks = hurry.stagger + limits::HURRY_TICKS + extra;
        if hurry.attempts_left == 0 {
            self.hurry = None;
        }
        self.campaign();
    }
}
