//! The drivers of a server: the events of its shards, its engine, its threads and its network, as functions of
//! [`World`](crate::world::World).
//!
//! A shard passes its proposals on after a turn. The engine takes the waiting events and has its turn. The log thread
//! copies, waits and syncs, and the snapshot writer takes its time.
//!
//! A driver calls only drivers that stand before it: `snapshot_file`, `list`, `recovery`, `spoiled`, `emptying`, `lost_page`, `judges`,
//! `peers`, `shard_side`, `ending`, `dialing`, `disk_threads`, `receiving`, `consensus`, `starting`.

pub(crate) mod consensus;
pub(crate) mod dialing;
pub(crate) mod disk_threads;
pub(crate) mod emptying;
pub(crate) mod ending;
pub(crate) mod judges;
pub(crate) mod list;
pub(crate) mod lost_page;
pub(crate) mod peers;
pub(crate) mod receiving;
pub(crate) mod recovery;
pub(crate) mod shard_side;
mod snapshot_file;
pub(crate) mod spoiled;
pub(crate) mod starting;
