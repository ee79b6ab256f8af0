//! Where the parts of a snapshot lie, and its sums.

use alloc::vec::Vec;
use core::ops::Range;

/// Alignment, in bytes, that every section needs within the snapshot's bytes.
pub const SECTION_ALIGN: usize = 16;
/// Most bytes of one section: archives address themselves with signed 32-bit offsets.
pub const SECTION_BYTES_MAX: usize = 0x7fff_0000;
/// A merge doubles the number of sections until they are expected to stay below this.
pub const SECTION_BYTES_TARGET: usize = 24 << 20;
/// Where the parts of a snapshot lie within its bytes, as its holder recorded it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotLayout {
    /// Seed of the path hash; the same for a data directory for ever.
    pub seed: u64,
    /// The last zxid contained.
    pub zxid: u64,
    /// Sections in order; their count is a power of two. Each starts at a multiple of [`SECTION_ALIGN`].
    pub sections: Vec<Range<usize>>,
    /// The meta section: counts, ACL lists and sessions.
    pub meta: Range<usize>,
}

/// Sums over the tree of a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotStats {
    /// Number of znodes, the root included.
    pub nodes: u64,
    /// Bytes of all paths and all data.
    pub data_bytes: u64,
    /// Number of ephemeral znodes.
    pub ephemerals: u64,
}

impl SnapshotStats {
    pub(crate) const fn add(&mut self, path: usize, data: usize, ephemeral: bool) {
        self.nodes += 1;
        self.data_bytes += path as u64 + data as u64;
        self.ephemerals += ephemeral as u64;
    }
}
