//! Client sockets: accepted by one plain thread, served on the shards' executors.

pub(crate) mod acceptor;
pub(crate) mod socket;
