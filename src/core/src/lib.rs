//! The coordination service itself, with no way to name a clock, a file or a socket.
//!
//! Everything here is a plain value or a plain struct with `handle(now, input, &mut outputs)`. Drivers (the server's
//! executors, the deterministic simulator) bring time, bytes and messages in, and carry the outputs away.
//!
//! Absent on purpose: threads, async, IO, the wall clock, randomness, Raft.
#![no_std]
#![warn(missing_docs)]

extern crate alloc;

pub mod acl;
pub mod audit;
pub mod change;
pub mod command;
pub mod conn;
pub mod cost;
pub mod delta;
pub mod digest;
mod draft;
pub mod evaluate;
pub mod forwarding;
pub mod ids;
mod kids;
pub mod limits;
pub mod load;
pub mod path;
pub mod peer;
pub mod rate;
mod read;
pub mod reaper;
mod reply;
pub mod report;
mod request;
pub mod sasl;
pub mod sequencer;
pub mod servers;
pub mod session;
pub mod shard;
pub mod shared;
pub mod snapshot;
pub mod view;
mod walk;
pub mod watch;
pub mod znode;
