//! The numbers and records that consensus, state and storage share: terms, indices, entries and server ids. It also has
//! the interface of the machine that Raft replicates.
//!
//! Plain data. It names no Raft library and no encoding.
#![no_std]
#![warn(missing_docs)]

extern crate alloc;

mod entry;
mod ids;
mod machine;

pub use entry::{Entry, EntryKind, HardState};
pub use ids::{Index, Micros, ServerId, Term};
pub use machine::Machine;
