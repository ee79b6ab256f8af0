//! The acceptor: a plain thread that takes connections and gives each to the shard with the fewest.
//!
//! One place for the limits on connections, in all and per address. It never reads from a connection.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use corral_core::ids::ShardId;

use crate::actor::messages::ToShard;
use crate::control::Gauges;
use crate::runtime::mailbox::Post;

/// A connection of a shard has ended.
pub(crate) struct Ended {
    pub(crate) shard: ShardId,
    pub(crate) address: IpAddr,
}

/// How many connections there may be.
pub(crate) struct ConnectionLimits {
    pub(crate) total: usize,
    /// 0 is no limit.
    pub(crate) per_address: usize,
    /// By shard.
    pub(crate) per_shard: Vec<usize>,
}

/// See the module.
pub(crate) struct Acceptor {
    limits: ConnectionLimits,
    shards: Vec<Post<ToShard>>,
    ended: flume::Receiver<Ended>,
    open: Vec<usize>,
    by_address: HashMap<IpAddr, usize>,
    gauges: Arc<Gauges>,
}

impl Acceptor {
    pub(crate) fn new(
        limits: ConnectionLimits,
        shards: Vec<Post<ToShard>>,
        ended: flume::Receiver<Ended>,
        gauges: Arc<Gauges>,
    ) -> Acceptor {
        let open = vec![0; shards.len()];
        Acceptor { limits, shards, ended, open, by_address: HashMap::new(), gauges }
    }

    /// Accepts until the listener is shut down.
    pub(crate) fn run(&mut self, listener: &TcpListener) {
        loop {
            match listener.accept() {
                Ok((stream, peer)) => self.admit(stream, peer),
                Err(error) if error.kind() == ErrorKind::InvalidInput => return,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(error) => {
                    const PAUSE: Duration = Duration::from_millis(100);
                    tracing::warn!("cannot accept a connection, trying again: {error}");
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }

    fn admit(&mut self, stream: TcpStream, peer: SocketAddr) {
        while let Ok(Ended { shard, address }) = self.ended.try_recv() {
            self.open[usize::from(shard.0)] -= 1;
            if let Some(count) = self.by_address.get_mut(&address) {
                *count -= 1;
                if *count == 0 {
                    self.by_address.remove(&address);
                }
            }
        }
        let address = peer.ip();
        if let Some(reason) = self.refusal(address) {
            let refused = self.gauges.refused.fetch_add(1, Ordering::Relaxed) + 1;
            if refused.is_power_of_two() {
                tracing::warn!(%peer, refused_so_far = refused, "connection refused: {reason}");
            }
            return;
        }
        let room = |at: &usize| self.open[*at] < self.limits.per_shard[*at];
        let Some(shard) = (0..self.shards.len()).filter(room).min_by_key(|at| self.open[*at]) else { return };
        let mut entropy = [0; 16];
        if let Err(error) = getrandom::fill(&mut entropy) {
            tracing::error!(%peer, "connection refused: no randomness: {error}");
            return;
        }
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%peer, "connection lost at once: {error}");
            return;
        }
        if self.shards[shard].send(ToShard::Accepted { stream, peer, entropy }).is_ok() {
            self.open[shard] += 1;
            *self.by_address.entry(address).or_insert(0) += 1;
        }
    }

    fn refusal(&self, address: IpAddr) -> Option<String> {
        let total: usize = self.open.iter().sum();
        let here = self.by_address.get(&address).copied().unwrap_or(0);
        let Self { limits, .. } = self;
        if total >= limits.total {
            return Some(format!("{total} connections are open (limits.connections_max)"));
        }
        if limits.per_address > 0 && here >= limits.per_address {
            return Some(format!("{here} connections of this address are open (limits.connections_per_ip_max)"));
        }
        let full = self.open.iter().zip(&limits.per_shard).all(|(open, max)| open >= max);
        full.then(|| "every shard has as many connections as it may (core.connections_max)".to_owned())
    }
}
