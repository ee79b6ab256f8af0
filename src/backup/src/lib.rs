//! Backups of a server: their format, compression and encryption.
//!
//! A backup is an [envelope] around a snapshot or [entries] of the log, compressed by zstd, and encrypted by age if that is wanted. The
//! commands `zstd` and `age` undo both. Nothing here knows the content, a file or a server.

#![warn(missing_docs)]

pub mod entries;
pub mod envelope;
mod error;
pub mod pack;

pub use error::BackupError;
