//! The replicated machine: the [`Coordinator`] of `corral-core` as a [`Machine`] of `corral-consensus`.
//!
//! The simulator wraps the same machine: it records what is committed, and plants bugs.

use std::ops::{Deref, DerefMut};

use bytes::Bytes;
use corral_consensus::{Index, Machine, NodeId, Term};
use corral_core::coordinator::Coordinator;
use corral_core::sequencer::{MembersSeen, NotABatch, Proposal, Ticked};

/// The replicated machine as the engine uses it. The methods are hooks for a simulator; they change nothing by default.
pub trait Replicated: Machine<Fault = NotABatch> + DerefMut<Target = Coordinator> {
    /// A tick found expired sessions or znodes: commands for them are in flight.
    fn observe_tick(&mut self, _ticked: &Ticked) {}

    /// What the leader observes of the members, before the next step of a membership change is chosen.
    fn members_seen(&self, seen: MembersSeen) -> MembersSeen {
        seen
    }

    /// The next step of a membership change, before it is proposed.
    fn membership_step(&mut self, step: Proposal) -> Proposal {
        step
    }
}

/// A [`Coordinator`] as a [`Machine`].
pub struct ReplicatedCoordinator(pub Coordinator);

impl Replicated for ReplicatedCoordinator {}

impl Deref for ReplicatedCoordinator {
    type Target = Coordinator;

    fn deref(&self) -> &Coordinator {
        &self.0
    }
}

impl DerefMut for ReplicatedCoordinator {
    fn deref_mut(&mut self) -> &mut Coordinator {
        &mut self.0
    }
}

impl Machine for ReplicatedCoordinator {
    type Fault = NotABatch;

    fn commands_queued(&self) -> usize {
        self.sequencer.commands_waiting()
    }

    fn next_batch(&mut self) -> Option<Bytes> {
        self.0.propose().map(Bytes::from)
    }

    fn servers_waiting(&self) -> Vec<NodeId> {
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
