//! `sync` requests of clients that wait for a read index.

use std::collections::BTreeMap;

use corral_core::ids::{ConnId, ShardId};
use corral_core::shard::ShardMessage;

use crate::effect::{Effect, Outbox};

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

    /// The read indexes of these tokens were answered or refused: sends that to the requests that waited for them.
    pub(super) fn answer(&mut self, tokens: &[u64], answer: fn(Vec<ConnId>) -> ShardMessage, out: &mut Outbox) {
        for (shard, conns) in tokens.iter().filter_map(|token| self.waiting.remove(token)) {
            out.push(Effect::Shard(shard, answer(conns)));
        }
    }
}
