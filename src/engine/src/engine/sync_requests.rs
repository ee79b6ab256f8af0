//! `sync` requests of clients that wait for a read index.

use std::collections::BTreeMap;

use corral_core::ids::{ConnId, ShardId};

/// Requests in flight, by the token of their read index.
pub(super) struct SyncRequests {
    waiting: BTreeMap<u64, (ShardId, Vec<ConnId>)>,
    next_token: u64,
}

impl SyncRequests {
    pub(super) fn new() -> SyncRequests {
        SyncRequests { waiting: BTreeMap::new(), next_token: 1 }
    }

    /// Adds the requests that a shard sent at one time. Gives the token for the read index that they wait for.
    pub(super) fn add(&mut self, shard: ShardId, conns: Vec<ConnId>) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        self.waiting.insert(token, (shard, conns));
        token
    }

    /// The read index of this token was answered or refused: gives the requests that waited for it.
    pub(super) fn take(&mut self, token: u64) -> Option<(ShardId, Vec<ConnId>)> {
        self.waiting.remove(&token)
    }
}
