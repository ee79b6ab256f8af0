//! Takes connections in and gives each to the shard with the fewest.
//!
//! One place for the limits on connections, in all and per address. It is part of the first shard whose ring the listener
//! is on, or a plain thread of its own where no shard has a ring. It never reads from a connection.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use corral_core::ids::ShardId;

use crate::gauges::Gauges;

/// Connections the kernel holds while they wait to be accepted.
pub(crate) const BACKLOG: i32 = 4096;
/// A connection that is nobody's yet.
pub(crate) struct Accepted {
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    /// Fresh random bytes.
    pub(crate) entropy: [u8; 16],
}

/// Gives a connection to a shard; false when that has ended.
pub(crate) type Give = Box<dyn Fn(Accepted) -> bool + Send>;

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
    shards: Vec<Give>,
    ended: flume::Receiver<Ended>,
    open: Vec<usize>,
    by_address: HashMap<IpAddr, usize>,
    entropy: Entropy,
    gauges: Arc<Gauges>,
}

impl Acceptor {
    pub(crate) fn new(
        limits: ConnectionLimits,
        shards: Vec<Give>,
        ended: flume::Receiver<Ended>,
        gauges: Arc<Gauges>,
    ) -> Acceptor {
        let open = vec![0; shards.len()];
        Acceptor { limits, shards, ended, open, by_address: HashMap::new(), entropy: Entropy::new(), gauges }
    }

    /// Accepts from one listener after the other, each until it is shut down: the life of a thread that does nothing else.
    pub(crate) fn run(&mut self, listeners: &flume::Receiver<TcpListener>) {
        for listener in listeners {
            self.serve(&listener);
        }
    }

    fn serve(&mut self, listener: &TcpListener) {
        loop {
            match listener.accept() {
                Ok((stream, peer)) => {
                    if let Some((shard, accepted)) = self.admit(stream, peer) {
                        self.pass_on(shard, accepted);
                    }
                }
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

    /// Whether a connection is taken in, and whose it is; it counts until an [`Ended`] says that it is gone.
    pub(crate) fn admit(&mut self, stream: TcpStream, peer: SocketAddr) -> Option<(ShardId, Accepted)> {
        while let Ok(Ended { shard, address }) = self.ended.try_recv() {
            self.forget(shard, address);
        }
        let address = peer.ip();
        if let Some(reason) = self.refusal(address) {
            let refused = self.gauges.refused.fetch_add(1, Ordering::Relaxed) + 1;
            if refused.is_power_of_two() {
                tracing::warn!(%peer, refused_so_far = refused, "connection refused: {reason}");
            }
            return None;
        }
        let room = |at: &usize| self.open[*at] < self.limits.per_shard[*at];
        let at = (0..self.shards.len()).filter(room).min_by_key(|at| self.open[*at])?;
        let entropy = match self.entropy.draw() {
            Ok(entropy) => entropy,
            Err(error) => {
                tracing::error!(%peer, "connection refused: no randomness: {error}");
                return None;
            }
        };
        self.open[at] += 1;
        *self.by_address.entry(address).or_insert(0) += 1;
        let shard = ShardId(u16::try_from(at).expect("fewer shards than 2^16"));
        Some((shard, Accepted { stream, peer, entropy }))
    }

    /// Leaves a connection that was taken in to its shard.
    pub(crate) fn pass_on(&mut self, shard: ShardId, accepted: Accepted) {
        let address = accepted.peer.ip();
        if !self.shards[usize::from(shard.0)](accepted) {
            self.forget(shard, address);
        }
    }

    fn forget(&mut self, shard: ShardId, address: IpAddr) {
        self.open[usize::from(shard.0)] -= 1;
        if let Some(count) = self.by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&address);
            }
        }
    }

    fn refusal(&self, address: IpAddr) -> Option<String> {
        let total: usize = self.open.iter().sum();
        let here = self.by_address.get(&address).copied().unwrap_or(0);
        let Self { limits, .. } = self;
        if total >= limits.total {
            return Some(format!(
                "{total} connections are open (limits.connections_max, or what RLIMIT_NOFILE allows)"
            ));
        }
        if limits.per_address > 0 && here >= limits.per_address {
            return Some(format!("{here} connections of this address are open (limits.connections_per_ip_max)"));
        }
        let full = self.open.iter().zip(&limits.per_shard).all(|(open, max)| open >= max);
        full.then(|| "every shard has as many connections as it may (core.connections_max)".to_owned())
    }
}

/// The system's random bytes, fetched for several connections at once. Each is given out once and kept nowhere else.
struct Entropy {
    bytes: Box<[[u8; 16]; Entropy::AHEAD]>,
    left: usize,
}

impl Entropy {
    const AHEAD: usize = 64;

    fn new() -> Entropy {
        Entropy { bytes: Box::new([[0; 16]; Entropy::AHEAD]), left: 0 }
    }

    fn draw(&mut self) -> Result<[u8; 16], getrandom::Error> {
        if self.left == 0 {
            getrandom::fill(self.bytes.as_flattened_mut())?;
            self.left = Entropy::AHEAD;
        }
        self.left -= 1;
        Ok(std::mem::take(&mut self.bytes[self.left]))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// Which shard each client goes to, by the last byte of its address; `None` for those that are refused, negative
    /// numbers for the end of a connection of that shard (from -1 on) and of the address given with it.
    fn check(limits: (usize, usize, Vec<usize>), clients: &[(i16, u8)], expect: &[Option<u16>]) {
        let (total, per_address, per_shard) = limits;
        let (sender, given) = flume::unbounded();
        let give = |_| -> Give {
            let sender = sender.clone();
            Box::new(move |accepted| sender.send(accepted).is_ok())
        };
        let shards = per_shard.iter().map(give).collect();
        let (ends, ended) = flume::unbounded();
        let limits = ConnectionLimits { total, per_address, per_shard };
        let mut acceptor = Acceptor::new(limits, shards, ended, Arc::new(Gauges::default()));
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let there = listener.local_addr().expect("it is bound");
        let mut found = Vec::new();
        let mut passwords = std::collections::HashSet::new();
        for (step, last) in clients {
            let peer = SocketAddr::from((Ipv4Addr::new(10, 0, 0, *last), 4000));
            if let Ok(shard) = u16::try_from(-1 - i32::from(*step)) {
                ends.send(Ended { shard: ShardId(shard), address: peer.ip() }).expect("the acceptor is there");
                continue;
            }
            let stream = TcpStream::connect(there).expect("it listens");
            let admitted = acceptor.admit(stream, peer);
            found.push(admitted.as_ref().map(|(shard, _)| shard.0));
            if let Some((shard, accepted)) = admitted {
                assert!(passwords.insert(accepted.entropy), "nobody has another one's password");
                acceptor.pass_on(shard, accepted);
            }
        }
        assert_eq!(found, expect);
        assert_eq!(given.len(), expect.iter().flatten().count());
    }

    #[test]
    fn connections_are_spread_and_no_limit_is_passed() {
        let any = usize::MAX;
        check((9, 0, vec![any, any]), &[(0, 1); 4], &[Some(0), Some(1), Some(0), Some(1)]);
        check((9, 0, vec![1, any]), &[(0, 1); 4], &[Some(0), Some(1), Some(1), Some(1)]);
        check((9, 0, vec![1, 1]), &[(0, 1); 3], &[Some(0), Some(1), None]);
        check((2, 0, vec![any, any]), &[(0, 1); 3], &[Some(0), Some(1), None]);
        check((9, 1, vec![any]), &[(0, 1), (0, 2), (0, 1)], &[Some(0), Some(0), None]);
        // A place is free again when its connection has ended, and the emptier shard is filled up first.
        check((9, 1, vec![any]), &[(0, 1), (-1, 1), (0, 1)], &[Some(0), Some(0)]);
        let steps = [(0, 1), (0, 1), (0, 1), (-2, 1), (0, 1), (0, 1)];
        check((9, 0, vec![any, any]), &steps, &[Some(0), Some(1), Some(0), Some(1), Some(1)]);
    }

    #[test]
    fn every_password_is_another() {
        let (mut entropy, mut seen) = (Entropy::new(), std::collections::HashSet::new());
        for _ in 0..3 * Entropy::AHEAD {
            assert!(seen.insert(entropy.draw().expect("the system has randomness")));
        }
    }
}
