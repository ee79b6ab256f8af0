//! The files of an Apache ZooKeeper server, read as ZooKeeper reads them (protocol chapter 30).
//!
//! [`directory::Source`] finds the snapshots and the transaction logs of a stopped server, and [`directory::Source::load`] replays them
//! into a [`tree::Tree`]. Nothing is written there. Damage is reported with file and offset. [`export::write`] makes a snapshot for ZooKeeper.
//!
//! Versions 3.4 to 3.9 are read. Where this crate is stricter than ZooKeeper, `docs/migrate.md` says so.

#![warn(missing_docs)]

mod codec;
pub mod directory;
mod error;
pub mod export;
mod input;
mod java;
mod log;
pub mod servable;
mod session;
mod snapshot;
pub mod tree;
mod txn;

/// Bytes that are read or written at once.
const BUFFER_BYTES: usize = 256 << 10;
/// Znodes or transactions between two calls of a function for progress.
const PROGRESS_EVERY: u64 = 10_000;

pub use error::SourceError;
pub use session::password;
