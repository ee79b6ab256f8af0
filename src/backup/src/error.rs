//! Faults of backups.

/// Why a backup cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// It begins with something else.
    #[error("this is no backup of corral")]
    Foreign,
    /// A later version of corral wrote it.
    #[error("the backup has version {0} of the format, which this program does not read: take a later corral")]
    Version(u32),
    /// It does not match its checksums, or it ends early.
    #[error("the backup is damaged: {0}")]
    Damaged(String),
    /// It is encrypted, and no key was given.
    #[error("the backup is encrypted: give the key with --identity")]
    Encrypted,
    /// None of the keys decrypts it.
    #[error("the backup is encrypted for other keys: {0}")]
    OtherKey(String),
    /// Reading or writing fails.
    #[error(transparent)]
    Io(std::io::Error),
}
