//! Integration tests of the consensus crate, in one binary to save links.

mod bootstrap;
mod crash;
mod group;
mod group_of_one;
mod hostile;
mod net;
mod network;
mod replicas;
mod setup;
