//! The coordination service itself, with no way to name a clock, a file or a socket.
//!
//! Everything here is a plain value or a plain struct with `handle(now, input, &mut outputs)`. Drivers (the server's
//! executors, the deterministic simulator) bring time, bytes and messages in, and carry the outputs away.
//!
//! Absent on purpose: threads, async, IO, the wall clock, randomness, Raft.
#![no_std]

extern crate alloc;

pub mod command;
pub mod delta;
pub mod change;
pub mod ids;
pub mod image;
pub mod path;
pub mod shared;
pub mod view;
pub mod znode;
