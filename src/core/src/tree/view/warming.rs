//! Bringing znodes into the core's caches, many at a time, before they are looked up.
//!
//! The links of a look-up (slot, entry, znode, data) are followed for all paths together, link by link. So the
//! processor waits for many of them at once. It goes by hashes alone: a znode of another path with the same hash is
//! touched for nothing. Knows neither requests nor rules.

use super::layers::Layers;
use crate::tree::delta::Entry;
use crate::tree::snapshot::SnapshotNode;
use core::hint::black_box;

/// Znodes beyond which a look-up usually misses the caches. Below it looking ahead would only cost.
pub(super) const LARGE_NODES: u64 = 20_000;
/// Paths touched together; a core waits for no more lines at once.
pub(crate) const WARM_MAX: usize = 16;

/// Some paths' hashes, to be touched together.
pub(crate) struct Warming<'v> {
    layers: Layers<'v>,
    hashes: [u64; WARM_MAX],
    count: usize,
}

impl<'v> Warming<'v> {
    pub(crate) const fn new(layers: Layers<'v>) -> Self {
        Self { layers, hashes: [0; WARM_MAX], count: 0 }
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.count == WARM_MAX
    }

    /// Does nothing when it is full.
    pub(crate) fn add(&mut self, hash: u64) {
        if let Some(place) = self.hashes.get_mut(self.count) {
            *place = hash;
            self.count += 1;
        }
    }

    /// Follows the links. One path alone is left to its look-up.
    pub(crate) fn prefetch(&self) {
        if self.count < 2 {
            return;
        }
        let hashes = &self.hashes[..self.count];
        let mut live: [Option<&Entry>; WARM_MAX] = [None; WARM_MAX];
        for (place, hash) in live.iter_mut().zip(hashes) {
            *place = self.layers.live.likely_entry(*hash);
        }
        let mut snapshot: [Option<SnapshotNode<'_>>; WARM_MAX] = [None; WARM_MAX];
        for ((place, live), hash) in snapshot.iter_mut().zip(&mut live).zip(hashes) {
            if live.is_none() {
                *live = self.layers.below.frozen.and_then(|frozen| frozen.likely_entry(*hash));
            }
            if live.is_none() {
                *place = self.layers.below.snapshot.likely_node(*hash);
            }
        }
        // The reads must not be optimised away; the sum means nothing.
        let mut sum = 0;
        for (entry, node) in live.iter().zip(&snapshot) {
            sum += entry.map_or(0, |entry| first(entry.path.as_bytes()));
            sum += entry.and_then(|entry| entry.state.node()).map_or(0, |node| node.data_len());
            sum += node.map_or(0, |node| first(node.path().as_bytes()));
        }
        for (entry, node) in live.iter().zip(&snapshot) {
            sum += entry.and_then(|entry| entry.state.node()?.data.as_deref()).map_or(0, first);
            sum += node.and_then(|node| node.data()).map_or(0, first);
        }
        black_box(sum);
    }
}

fn first(bytes: &[u8]) -> usize {
    bytes.first().map_or(0, |byte| usize::from(*byte))
}
