//! The snapshot: the whole state at one zxid, immutable, read in place from bytes of the caller (a mapping).
//!
//! Cut by the top bits of the path hash into sections, each an archive of its own. A meta section has counts, distinct
//! ACL lists and sessions. Every core and the snapshot writer share one snapshot. Knows no files and no checksums:
//! bytes in, bytes out. Reading stays inside the bytes, even if these are corrupt: nonsense reads as absent. A
//! reference that leads out of a section that was checked ends the process: its bytes were changed since.

mod annex;
mod format;
mod node;
mod read;
mod write;

pub use format::SnapshotSession;
pub use node::{Names, SnapshotNode};
pub use read::{AlignedBytes, CheckedMeta, CheckedSection, Lender, SectionChecksums, Snapshot, SnapshotBytes};
pub use write::{SnapshotMerger, TreeBuilder, initial_nodes, initial_snapshot, merge_in_memory, section_bits_for};

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use rkyv::rancor;

/// Alignment, in bytes, that every section needs within the snapshot's bytes.
pub const SECTION_ALIGN: usize = 16;
/// Most bytes of one section: archives address themselves with signed 32-bit offsets.
pub const SECTION_BYTES_MAX: usize = 0x7fff_0000;
/// A merge doubles the number of sections until they are expected to stay below this.
pub const SECTION_BYTES_TARGET: usize = 24 << 20;
/// Most doublings: 65,536 sections.
pub const SECTION_BITS_MAX: u32 = 16;

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

/// Why bytes are no snapshot, or why one cannot be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotFault {
    /// The layout contradicts the bytes or itself.
    Layout(&'static str),
    /// A section's archive does not check.
    Section {
        /// Number of the section, from 0.
        index: usize,
        /// The fault, for an error text.
        reason: String,
    },
    /// The meta section's archive does not check.
    Meta {
        /// The fault, for an error text.
        reason: String,
    },
    /// A section would pass [`SECTION_BYTES_MAX`].
    SectionTooLarge {
        /// Number of the section, from 0.
        index: usize,
        /// Bytes that the section would have.
        bytes: usize,
    },
    /// A znode's number of children is not that of its names: a damaged snapshot below, or a bug.
    ChildCount {
        /// Path of the parent.
        path: String,
        /// Number of children in the parent's Stat.
        stat: u32,
        /// Number of names that the parent has.
        names: u32,
    },
    /// A section of the snapshot below does not match its checksum any more; where.
    Damaged(String),
    /// The znodes of a snapshot that was read have another digest than the writer stored.
    Digest {
        /// The digest that the writer stored.
        stored: u64,
        /// The digest of the znodes as they were read.
        found: u64,
    },
    /// The znodes of a snapshot that is written have another digest than the changes to the tree led to.
    Diverged {
        /// The digest that the changes led to.
        kept: u64,
        /// The digest of the znodes that are written.
        found: u64,
    },
    /// The archive could not be written.
    Encode {
        /// The error of the encoder.
        reason: String,
    },
}

impl fmt::Display for SnapshotFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layout(reason) => write!(f, "snapshot layout: {reason}"),
            Self::Section { index, reason } => write!(f, "snapshot section {index}: {reason}"),
            Self::Meta { reason } => write!(f, "snapshot meta section: {reason}"),
            Self::SectionTooLarge { index, bytes } => write!(f, "snapshot section {index} would need {bytes} bytes"),
            Self::ChildCount { path, stat, names } => write!(f, "{path:?} counts {stat} children but names {names}"),
            Self::Damaged(place) => f.write_str(place),
            Self::Digest { stored, found } => {
                write!(f, "the digest of its znodes is {found}, and {stored} was stored")
            }
            Self::Diverged { kept, found } => {
                write!(f, "the digest of the znodes in memory is {found}, and the changes led to {kept}")
            }
            Self::Encode { reason } => write!(f, "snapshot encoding: {reason}"),
        }
    }
}

impl core::error::Error for SnapshotFault {}

impl SnapshotFault {
    fn section(index: usize, reason: &rancor::Error) -> Self {
        Self::Section { index, reason: reason.to_string() }
    }

    fn too_many_probes(index: usize, probes: u32) -> Self {
        let reason = format!("a search for a path takes {probes} probes, and may take {}", format::PROBES_MAX);
        Self::Section { index, reason }
    }

    fn meta(reason: &rancor::Error) -> Self {
        Self::Meta { reason: reason.to_string() }
    }

    fn encode(reason: &rancor::Error) -> Self {
        Self::Encode { reason: reason.to_string() }
    }
}

/// The section, of `1 << bits`, in which a path is found.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "at most SECTION_BITS_MAX bits are left")]
pub(crate) const fn section_of(hash: u64, bits: u32) -> usize {
    debug_assert!(bits <= SECTION_BITS_MAX);
    if bits == 0 { 0 } else { (hash >> (u64::BITS - bits)) as usize }
}
