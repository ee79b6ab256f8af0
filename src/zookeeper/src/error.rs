//! Errors of reading the files of a ZooKeeper server.

use std::io;
use std::path::PathBuf;

/// Each with its file.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The system refuses it.
    #[error("{}: {error}", file.display())]
    Io {
        /// The file or directory.
        file: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// A file is damaged, or of another kind. The offset is that of the decompressed bytes.
    #[error("{}: {what} at offset {offset}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Where the damaged part begins.
        offset: u64,
        /// The damage.
        what: String,
    },
    /// The files do not make up a state. A sentence.
    #[error("{0}")]
    Unfit(String),
}
