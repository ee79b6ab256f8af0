//! The numbers and records that consensus, state and storage share: terms, indices, entries and server ids. It also has
//! the interfaces of the machine that Raft replicates, and of a log that was just opened.
//!
//! Plain data. It names no Raft library and no encoding.
#![no_std]
#![warn(missing_docs)]

extern crate alloc;

mod entry;
mod ids;
mod log;
mod machine;
mod random;
mod reader;

pub use entry::{Entry, EntryKind, HardState};
pub use ids::{Index, Micros, ServerId, Term};
pub use log::{Record, StoredEntry, StoredLog};
pub use machine::Machine;
pub use random::{SplitMix64, Xoshiro256PlusPlus};
pub use reader::Reader;
