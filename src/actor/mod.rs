//! The drivers of the pure actors: each carries time, bytes and messages in, and what the actor asks for away.
//!
//! One file per actor; `messages` holds the closed set of messages between them. What an actor decides is decided in
//! `corral-core` and `corral-consensus`, never here.

pub(crate) mod authority;
mod census;
pub(crate) mod consensus;
pub(crate) mod image_writer;
pub(crate) mod log_thread;
pub(crate) mod messages;
pub(crate) mod peers;
pub(crate) mod progress;
pub(crate) mod reconfig;
pub(crate) mod scrubber;
mod serving;
pub(crate) mod shard;
pub(crate) mod transfer;
