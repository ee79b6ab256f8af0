//! Why bytes are no snapshot, or why one cannot be written.

use super::format::PROBES_MAX;
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;
use rkyv::rancor;

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
    /// A section would pass [`SECTION_BYTES_MAX`](super::SECTION_BYTES_MAX).
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
    pub(super) fn section(index: usize, reason: &rancor::Error) -> Self {
        Self::Section { index, reason: reason.to_string() }
    }

    pub(super) fn too_many_probes(index: usize, probes: u32) -> Self {
        let reason = format!("a search for a path takes {probes} probes, and may take {}", PROBES_MAX);
        Self::Section { index, reason }
    }

    pub(super) fn meta(reason: &rancor::Error) -> Self {
        Self::Meta { reason: reason.to_string() }
    }

    pub(super) fn encode(reason: &rancor::Error) -> Self {
        Self::Encode { reason: reason.to_string() }
    }
}
