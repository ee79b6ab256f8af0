//! The numbers and records that consensus, state and storage name alike: terms, indices, entries, server ids, and what
//! Raft asks of the machine that it replicates.
//!
//! Plain data. It names no Raft library and no encoding.
#![no_std]
#![warn(missing_docs)]

extern crate alloc;

mod entry;
mod ids;
mod machine;

pub use entry::{Entry, EntryKind, HardState};
pub use ids::{Index, Micros, NodeId, Term};
pub use machine::Machine;
