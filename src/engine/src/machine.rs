//! What Raft replicates: the core's [`Member`].
//!
//! Only here may both be named, the core's struct and the consensus crate's trait. The simulator wraps the same machine: it
//! records what is committed, and plants bugs.

use std::ops::{Deref, DerefMut};

use bytes::Bytes;
use corral_consensus::{Index, Machine, NodeId, Term};
use corral_core::member::Member;
use corral_core::sequencer::{MembersSeen, NotABatch, Proposal, Ticked};

/// The replicated machine as the engine uses it. What it decides it decides as a [`Machine`]; these show it what the engine makes of
/// that.
pub trait Replicated: Machine<Fault = NotABatch> + DerefMut<Target = Member> {
    /// Sessions have expired, or znodes are outlived: commands for that are under way.
    fn ticked(&mut self, _ticked: &Ticked) {}

    /// What the leader sees of the members before it takes the next step of a membership change.
    fn sees(&self, seen: MembersSeen) -> MembersSeen {
        seen
    }

    /// The next step of a membership change, before it is proposed.
    fn proposes(&mut self, step: Proposal) -> Proposal {
        step
    }
}

/// A [`Member`] as Raft's machine. Holds nothing of its own.
pub struct ReplicatedMember(pub Member);

impl Replicated for ReplicatedMember {}

impl Deref for ReplicatedMember {
    type Target = Member;

    fn deref(&self) -> &Member {
        &self.0
    }
}

impl DerefMut for ReplicatedMember {
    fn deref_mut(&mut self) -> &mut Member {
        &mut self.0
    }
}

impl Machine for ReplicatedMember {
    type Fault = NotABatch;

    fn waiting(&self) -> usize {
        self.sequencer.commands_waiting()
    }

    fn propose(&mut self) -> Option<Bytes> {
        self.0.propose().map(Bytes::from)
    }

    fn waiting_elsewhere(&self) -> Vec<NodeId> {
        self.elsewhere().iter().map(|server| NodeId(u64::from(*server))).collect()
    }

    fn prepare(&mut self, index: Index, term: Term, payload: &[u8]) -> Result<(), NotABatch> {
        self.sequencer.prepare(index.0, term.0, payload)
    }

    fn commit(&mut self, index: Index, term: Term, payload: &[u8], own: bool) -> Result<(), NotABatch> {
        self.0.commit(index.0, term.0, payload, own)
    }

    fn work(&self) -> u64 {
        self.sequencer.machine().units_spent()
    }

    fn lead(&mut self, term: Term) {
        self.0.lead(term.0);
    }

    fn follow(&mut self) {
        self.0.follow();
    }
}
