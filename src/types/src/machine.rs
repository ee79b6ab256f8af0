//! The state machine that Raft replicates.

use alloc::vec::Vec;

use crate::ids::{Index, ServerId, Term};

/// A replicated state machine. Called by the replica of `corral-consensus`, in log order.
pub trait Machine {
    /// Why a committed entry cannot be applied.
    type Fault;

    /// Number of commands queued for the log.
    fn commands_queued(&self) -> usize;

    /// Takes queued commands as the next payload for the log, which is never empty. `None` when none is queued, or when
    /// the next one waits until all batches are applied. Called only while this node leads.
    fn next_batch(&mut self) -> Option<Vec<u8>>;

    /// Other members with clients that wait for the last [`Machine::next_batch`]. They receive a commit notice at once
    /// when it is committed; the others a little later at most.
    fn servers_waiting(&self) -> Vec<ServerId>;

    /// Decodes an entry of another leader before it enters the log. It may replace the entries from its index on.
    ///
    /// # Errors
    /// When [`Machine::commit`] could not apply it: it is refused then, because every member would stop at it.
    fn prepare(&mut self, index: Index, term: Term, payload: &[u8]) -> Result<(), Self::Fault>;

    /// Applies a committed entry. An empty payload changes only the index. `own`: this machine made the payload, by the
    /// oldest [`Machine::next_batch`] not yet committed. Of a membership change the payload is its context, and never own.
    ///
    /// # Errors
    /// When the payload cannot be decoded. The replica must stop then.
    fn commit(&mut self, index: Index, term: Term, payload: &[u8], own: bool) -> Result<(), Self::Fault>;

    /// A membership change with this context counts from now on, before [`Machine::commit`] applies it: the state is
    /// corrupt, and is replaced meanwhile.
    fn membership_ahead(&mut self, index: Index, context: &[u8]);

    /// The cost of all commits so far, in nanoseconds by estimate. It is counted, not measured, so it is equal on every
    /// server. It bounds what one turn applies.
    fn work(&self) -> u64;

    /// This node leads in `term`, and everything before that term is applied.
    fn lead(&mut self, term: Term);

    /// This node leads no more. Its batches that were not committed may still be, but not as own.
    fn follow(&mut self);
}
