//! The coordination service itself, with no way to name a clock, a file or a socket.
//!
//! Everything here is a plain value or a plain struct with `handle(now, input, &mut outputs)`. Drivers (the server's
//! executors, the deterministic simulator) bring time, bytes and messages in, and carry the outputs away.
//!
//! Absent on purpose: threads, async, IO, the wall clock, randomness, Raft.
#![no_std]
#![warn(missing_docs)]

extern crate alloc;

pub mod apply;
pub mod command;
pub mod cost;
mod encoding;
pub mod features;
pub mod forwarding;
pub mod ids;
pub mod limits;
pub mod ops;
pub mod path;
pub mod quota;
pub mod rate;
pub mod report;
pub mod sequencer;
pub mod servers;
pub mod session;
pub mod shard;
pub mod shared;
pub mod sizes;
pub mod tree;
