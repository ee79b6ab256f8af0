//! How far the shards of this server lag behind the state machine.
//!
//! Every committed batch is sent to every shard. While the slowest shard lags too far no more entries are applied, so
//! that the memory of batches in flight is bounded.

use corral_consensus::{Backlog, Micros};
use corral_core::apply::outcome::AppliedBatch;

/// Bytes that a transaction takes on its way to the shards, beside its bytes in the log.
const TXN_BYTES: u64 = 512;

/// Batches that the slowest shard has not applied.
pub(super) struct ShardBacklog {
    backlog: Backlog,
    /// Bytes of all entries that were applied when the last batch was sent.
    applied_bytes: u64,
}

impl ShardBacklog {
    /// `applied_bytes`: bytes of the entries that were applied before any batch is sent.
    pub(super) fn new(applied_bytes: u64) -> ShardBacklog {
        ShardBacklog { backlog: Backlog::default(), applied_bytes }
    }

    /// A batch is sent to every shard; `applied_bytes` are those of all entries applied so far.
    pub(super) fn sent(&mut self, now: Micros, batch: &AppliedBatch, applied_bytes: u64) {
        let payload = applied_bytes - self.applied_bytes;
        self.applied_bytes = applied_bytes;
        self.backlog.handed(now, payload + TXN_BYTES * batch.txns.len() as u64);
    }

    /// Every shard has applied so many batches since the start. Whether one lags too far.
    pub(super) fn is_full(&mut self, now: Micros, applied_batches: u64) -> bool {
        if !self.backlog.is_empty() {
            self.backlog.taken(applied_batches);
        }
        self.backlog.is_full(now)
    }
}
