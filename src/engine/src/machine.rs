//! The machine that Raft replicates, as the engine uses it: the [`Sequencer`].
//!
//! The simulator wraps it: it records what is committed, and plants bugs.

use corral_core::sequencer::{MembersSeen, NotABatch, Proposal, Sequencer, Ticked};
use corral_types::Machine;

/// A [`Sequencer`], or its wrapper. Hooks that are not implemented change nothing.
pub trait Replicated: Machine<Fault = NotABatch> {
    /// The sequencer, read only.
    fn sequencer(&self) -> &Sequencer;

    /// The sequencer, for inputs that do not pass through the log.
    fn sequencer_mut(&mut self) -> &mut Sequencer;

    /// A tick found expired sessions or znodes: commands for them are in flight.
    fn observe_tick(&mut self, _ticked: &Ticked) {}

    /// The members as the leader observes them, before the next step of a membership change is chosen.
    fn members_seen(&self, seen: MembersSeen) -> MembersSeen {
        seen
    }

    /// The next step of a membership change, before it is proposed.
    fn membership_step(&mut self, step: Proposal) -> Proposal {
        step
    }
}

impl Replicated for Sequencer {
    fn sequencer(&self) -> &Sequencer {
        self
    }

    fn sequencer_mut(&mut self) -> &mut Sequencer {
        self
    }
}
