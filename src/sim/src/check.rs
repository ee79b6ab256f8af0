//! The checkers: they see what clients send and receive and which log entries commit, and compare that with the model.
//!
//! `checkers` holds what they share. Its parts are `entry`, `proposed`, `due_events`, `facts`, `history`, `lives` and `voters`. Each
//! property is a file of functions. A file calls only what stands before it: `members`, `elections`, `reads`, `sessions`, `trees`,
//! `watches`, `writes`, `replies`.

pub(crate) mod checkers;
mod due_events;
pub(crate) mod elections;
pub(crate) mod entry;
mod facts;
mod history;
mod lives;
pub(crate) mod members;
mod proposed;
mod reads;
pub(crate) mod replies;
pub(crate) mod sessions;
pub(crate) mod trees;
mod voters;
pub(crate) mod watches;
pub(crate) mod writes;
