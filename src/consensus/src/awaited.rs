//! The entries that followers will need behind the snapshot that they receive: the log keeps them in memory.
//!
//! It takes seconds to write, send and install a snapshot, and writes go on meanwhile. If the budget alone decided
//! which entries are dropped, the installed snapshot would already be too old. So would the next one, and under load
//! the follower would never catch up. Pure, and empty unless a follower lags.

use std::collections::BTreeMap;

use crate::types::{Index, ServerId};

/// The entries to keep, by follower.
#[derive(Debug, Default)]
pub(crate) struct Awaited {
    by: BTreeMap<ServerId, Waiting>,
}

/// The entries that one follower will need.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// It will need every entry behind this index.
    pub(crate) from: Index,
    /// Ticks since it was last active.
    pub(crate) silent: u32,
}

impl Awaited {
    /// There is no snapshot for this follower yet. The next one ends at `applied` or later.
    pub(crate) fn wanted(&mut self, by: ServerId, applied: Index) {
        self.by.entry(by).or_insert(Waiting { from: applied, silent: 0 });
    }

    /// The follower is sent the snapshot that ends at `index`.
    pub(crate) fn given(&mut self, to: ServerId, index: Index) {
        self.by.insert(to, Waiting { from: index, silent: 0 });
    }

    /// Every entry behind this index is kept.
    pub(crate) fn first(&self) -> Option<Index> {
        self.by.values().map(|waiting| waiting.from).min()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by.is_empty()
    }

    /// Keeps the followers for which `waits` is true.
    pub(crate) fn retain(&mut self, mut waits: impl FnMut(ServerId, &mut Waiting) -> bool) {
        self.by.retain(|id, waiting| waits(*id, waiting));
    }
}
