//! What is applied goes to every shard, and no further than the slowest one keeps up with.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use corral_consensus::Backlog;

use super::ConsensusActor;
use crate::actor::messages::ToShard;

/// What a transaction takes on its way, beside its bytes in the log.
const TXN_BYTES: u64 = 512;

/// How many batches a shard has applied; written by the shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken(Arc<AtomicU64>);

impl Taken {
    /// One more is applied whole.
    pub(crate) fn another(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    /// The shard has ended: nothing is kept for it.
    pub(crate) fn everything(&self) {
        self.0.store(u64::MAX, Ordering::Release);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// The shards, and what they have not taken yet.
pub(super) struct Audience {
    taken: Vec<Taken>,
    backlog: Backlog,
    /// Bytes of all entries that were applied when it was last told.
    applied_bytes: u64,
}

impl Audience {
    pub(super) fn new(taken: Vec<Taken>, applied_bytes: u64) -> Audience {
        Audience { taken, backlog: Backlog::default(), applied_bytes }
    }
}

impl ConsensusActor {
    /// Nothing more is applied while a shard is far behind.
    pub(super) fn wait_for_shards(&mut self) {
        let Audience { taken, backlog, .. } = &mut self.audience;
        if !backlog.is_empty() {
            backlog.taken(taken.iter().map(Taken::count).min().unwrap_or(u64::MAX));
        }
        self.replica.hold(backlog.is_full(self.clock.now_us()));
    }

    /// Every committed batch goes to every shard.
    pub(super) fn tell_applied(&mut self) {
        let now = self.clock.now_us();
        for batch in self.replica.machine_mut().take_applied() {
            let payload = self.replica.applied_bytes() - self.audience.applied_bytes;
            self.audience.applied_bytes += payload;
            self.audience.backlog.handed(now, payload + TXN_BYTES * batch.txns.len() as u64);
            let batch = Arc::new(batch);
            self.tell_shards(|| ToShard::Batch(Arc::clone(&batch)));
        }
    }

    pub(super) fn tell_shards(&self, message: impl Fn() -> ToShard) {
        for shard in &self.links.shards {
            let _ = shard.send(message());
        }
    }
}
