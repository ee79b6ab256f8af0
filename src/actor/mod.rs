//! The drivers of the pure actors: each carries time, bytes and messages in, and the actor's effects out.
//!
//! One file per actor; `crate::messages` holds the closed set of messages between them. `corral-core` and
//! `corral-engine` make an actor's decisions, never this module.

mod append_times;
pub(crate) mod consensus;
pub(crate) mod log_thread;
pub(crate) mod scrubber;
pub(crate) mod shard;
pub(crate) mod snapshot_receiver;
pub(crate) mod snapshot_writer;
pub(crate) mod taken;
