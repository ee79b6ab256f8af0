//! Integration tests of the storage crate, in one binary to save links.

#![allow(clippy::cast_possible_truncation, reason = "test sizes are small")]

mod common;
mod log_calls;
mod log_corruption;
mod log_crash;
mod log_lost_page;
mod mmap_disk;
mod snapshot;
mod snapshot_receiver;
