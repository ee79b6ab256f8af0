//! What a component of the engine works on in one call.

use corral_consensus::Replica;
use corral_peer::Generation;

use crate::effect::Outbox;
use crate::event::Now;
use crate::machine::Replicated;

/// The parts of the engine that its components share.
pub(super) struct Context<'a, M: Replicated> {
    /// The time of this call.
    pub(super) now: Now,
    pub(super) replica: &'a mut Replica<M>,
    /// The generation of this server's data; `None` of a standalone server.
    pub(super) generation: Option<Generation>,
    pub(super) out: &'a mut Outbox,
}

impl<M: Replicated> Context<'_, M> {
    /// Whether this server is one of an ensemble.
    pub(super) fn is_in_ensemble(&self) -> bool {
        self.generation.is_some()
    }
}
