//! Integration tests of the core, in one binary to save links.

mod deadlines;
mod digests;
mod entries;
mod forwarding;
mod limits;
mod logged;
mod member;
mod one_shard;
mod proof;
mod read_limits;

mod shard_delays;
mod shard_events;
mod shard_flow;
mod shard_hostile;
mod shard_leaderless;
mod shard_limits;
mod shard_linearizable;
mod shard_looks_ahead;
mod shard_many_clients;
mod shard_proposal_flow;
mod shard_rounds;
mod streams;
mod twins;
mod view_layers;
mod view_snapshot;
