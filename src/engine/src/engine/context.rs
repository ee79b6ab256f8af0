//! The parts of the engine that a component works on in one call.

use corral_consensus::Replica;
use corral_core::forwarding::Forwarding;
use corral_core::sequencer::Sequencer;
use corral_peer::Generation;

use crate::effect::Outbox;
use crate::event::Now;

/// The parts of the engine that its components share.
pub(super) struct Context<'a> {
    /// The time of this call.
    pub(super) now: Now,
    pub(super) replica: &'a mut Replica,
    pub(super) sequencer: &'a mut Sequencer,
    /// `None` of a standalone server.
    pub(super) forwarding: Option<&'a mut Forwarding>,
    /// The generation of this server's data; `None` of a standalone server.
    pub(super) generation: Option<Generation>,
    pub(super) out: &'a mut Outbox,
}

impl Context<'_> {
    /// Whether this server is one of an ensemble.
    pub(super) fn is_in_ensemble(&self) -> bool {
        self.generation.is_some()
    }
}
