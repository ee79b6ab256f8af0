//! How many batches each shard has applied: the slowest sets the pace of all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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

    /// How many each of these has applied.
    pub(crate) fn by_all(shards: &[Taken]) -> u64 {
        shards.iter().map(|taken| taken.0.load(Ordering::Acquire)).min().unwrap_or(u64::MAX)
    }
}
