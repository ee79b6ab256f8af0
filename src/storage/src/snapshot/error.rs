//! Errors of a snapshot, each with the remedy. The server maps these to exit codes.

use std::io;

use crate::disk::is_lost;
use crate::log::{ADVICE, SPACE, shortage};

/// An error of a snapshot file, or of reading or writing one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// A call of the disk failed.
    #[error("{file}: {what}: {source}")]
    Io {
        /// Name of the file.
        file: String,
        /// What failed.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// Space, or another resource that may be there again later, is missing. The older snapshots are not affected.
    #[error(
        "{file}: no {what} for the snapshot: {source}; {remedy}, the server continues with its older snapshot",
        what = shortage(.source).unwrap_or(SPACE).0,
        remedy = shortage(.source).unwrap_or(SPACE).1
    )]
    NoSpace {
        /// Name of the file.
        file: String,
        /// Why.
        source: io::Error,
    },
    /// The file does not begin as a snapshot.
    #[error("{file}: not a snapshot file; remove it if corral did not write it, else {advice}", advice = ADVICE)]
    NotASnapshot {
        /// Name of the file.
        file: String,
    },
    /// A newer program wrote the file.
    #[error("{file}: format version {found}, this program reads {expected}; use the version that wrote it")]
    WrongVersion {
        /// Name of the file.
        file: String,
        /// Version in the file.
        found: u32,
        /// Version that this program reads.
        expected: u32,
    },
    /// The header or the section table does not match its checksum, or they contradict the file or its name.
    #[error("{file}: header or section table damaged: {what}")]
    Damaged {
        /// Name of the file.
        file: String,
        /// The mismatch.
        what: &'static str,
    },
    /// A section is cut off, overlaps another, or does not exist.
    #[error("{file}: section {section} damaged: {what}")]
    DamagedSection {
        /// Name of the file.
        file: String,
        /// Number of the section, from 0.
        section: usize,
        /// The mismatch.
        what: &'static str,
    },
    /// The content of a section does not match its checksum.
    #[error("{file}: section {section} damaged: the {bytes} bytes from offset {offset} on do not match their checksum")]
    ChangedSection {
        /// Name of the file.
        file: String,
        /// Number of the section, from 0.
        section: usize,
        /// Offset of the section in the file, in bytes.
        offset: u64,
        /// Bytes of the section.
        bytes: u64,
    },
    /// The file holds, or would hold, more sections than a snapshot may have.
    #[error("{file}: {found} sections, at most {max} are supported")]
    TooManySections {
        /// Name of the file.
        file: String,
        /// Sections in the file.
        found: usize,
        /// [`SNAPSHOT_SECTIONS_MAX`](crate::limits::SNAPSHOT_SECTIONS_MAX).
        max: usize,
    },
}

impl SnapshotError {
    /// Whether the file is known to be damaged.
    ///
    /// If not, it may be whole and could not be read here and now. Memory or permission may be missing, or another
    /// version may have written it.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            SnapshotError::Io { source, .. } => is_lost(source),
            SnapshotError::NoSpace { .. } | SnapshotError::WrongVersion { .. } => false,
            SnapshotError::NotASnapshot { .. }
            | SnapshotError::Damaged { .. }
            | SnapshotError::DamagedSection { .. }
            | SnapshotError::ChangedSection { .. }
            | SnapshotError::TooManySections { .. } => true,
        }
    }
}

/// Makes an error of the disk one of a snapshot file, for `map_err`.
pub(super) fn fault(file: &str, what: &'static str) -> impl FnOnce(io::Error) -> SnapshotError {
    let file = file.to_owned();
    move |source| match shortage(&source) {
        Some(_) => SnapshotError::NoSpace { file, source },
        None => SnapshotError::Io { file, what, source },
    }
}
