//! Recipes of ZooKeeper as sub-commands, in the layouts of Curator and kazoo.
//!
//! The main thread, with a runtime of tokio for the session.

pub(super) mod barrier;
pub(super) mod child;
mod contenders;
pub(super) mod counter;
pub(super) mod elect;
pub(super) mod examples;
pub(super) mod group;
mod item;
pub(super) mod kv;
pub(super) mod lock;
pub(super) mod queue;
pub(super) mod semaphore;
mod session;
pub(super) mod two_phase;
