//! SASL exchanges of connections: one for each connection, whatever its result.

use crate::ids::{ConnId, ShardId};
use crate::shard::sasl;
use alloc::boxed::Box;
use hashbrown::HashMap;
use xxhash_rust::xxh3::Xxh3DefaultBuilder;

/// The SASL exchange of each connection that has begun one.
#[derive(Default)]
pub(super) struct SaslExchanges {
    /// The nonce that each connection was sent; empty after its exchange.
    nonces: HashMap<ConnId, Box<str>, Xxh3DefaultBuilder>,
    /// Nonces made so far.
    made: u64,
}

impl SaslExchanges {
    /// Begins the connection's exchange with a new nonce, made of this key.
    pub(super) fn begin(&mut self, conn: ConnId, key: &[u8; 16], shard: ShardId) -> &str {
        self.made += 1;
        let nonce = sasl::nonce(key, shard, self.made).into_boxed_str();
        self.nonces.insert(conn, nonce);
        &self.nonces[&conn]
    }

    /// Whether the connection has begun its exchange, or must not.
    pub(super) fn has_begun(&self, conn: ConnId) -> bool {
        self.nonces.contains_key(&conn)
    }

    /// Ends the connection's exchange, or notes that it must not begin one. Gives the nonce, if one was sent.
    pub(super) fn end(&mut self, conn: ConnId) -> Option<Box<str>> {
        self.nonces.insert(conn, Box::default())
    }

    /// The connection has ended.
    pub(super) fn forget(&mut self, conn: ConnId) {
        if !self.nonces.is_empty() {
            self.nonces.remove(&conn);
        }
    }
}
