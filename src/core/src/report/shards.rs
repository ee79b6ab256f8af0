//! The load of each shard.

use crate::ids::ShardId;

/// Load and memory of one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardLoad {
    /// The shard.
    pub id: ShardId,
    /// Connections that are open.
    pub connections: u64,
    /// Received since the start, or the last `srst`.
    pub requests: u64,
    /// Watches, counted per path, table and connection.
    pub watches: u64,
    /// Estimated bytes of the changes of the tree since its snapshot.
    pub delta_bytes: u64,
    /// Bytes of the requests and replies that its connections hold.
    pub connection_bytes: u64,
    /// Bytes of the watches, as their limits count them.
    pub watch_bytes: u64,
}
