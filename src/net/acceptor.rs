//! Takes connections in and gives each to the shard with the fewest.
//!
//! One place for the limits on connections, in all and per address. It is part of the first shard with the listener on
//! its ring. Where no shard has a ring, it is a plain thread of its own. It never reads from a connection.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use corral_core::ids::{Millis, ShardId};
use corral_core::rate::{AddressMeter, Meter, Rate};
use rustls::ServerConnection;

use crate::gauges::Gauges;
use crate::net::listen::canonical;
use crate::runtime::clock::Clock;
use crate::runtime::complaint::Complaint;

/// Connections the kernel holds while they wait to be accepted.
pub(crate) const BACKLOG: i32 = 4096;
/// Ended connections that are taken off the counts before one is accepted: well below a millisecond.
const ENDED_PER_ACCEPT: usize = 1024;
/// The same between others' work, and before a connection is refused: about a millisecond.
const ENDED_PER_LOOK: usize = 16 * ENDED_PER_ACCEPT;

/// Addresses without a connection of which the uses are remembered.
const REMEMBERED_MAX: usize = 65_536;
/// Of them looked at between others' work.
const REMEMBERED_PER_LOOK: usize = 1024;

/// A connection that is nobody's yet.
pub(crate) struct Accepted {
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    /// Fresh random bytes.
    pub(crate) entropy: [u8; 16],
    pub(crate) tls: Option<Box<Secured>>,
    /// Uses by its address, if any rate of addresses is limited.
    pub(crate) meter: Option<Arc<AddressMeter>>,
}

/// Result of a handshake.
pub(crate) struct Secured {
    pub(crate) connection: ServerConnection,
    /// The subject of the client's certificate, if there is one.
    pub(crate) subject: Option<String>,
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
    /// A connection is kept only if the number of its descriptor is below this.
    pub(crate) descriptors_end: u64,
    pub(crate) total: usize,
    /// 0 is no limit.
    pub(crate) per_address: usize,
    /// By shard.
    pub(crate) per_shard: Vec<usize>,
    pub(crate) rates: ConnectionRates,
}

#[cfg(test)]
impl ConnectionLimits {
    /// Nine connections on one shard.
    pub(crate) fn nine() -> ConnectionLimits {
        ConnectionLimits {
            descriptors_end: u64::MAX,
            total: 9,
            per_address: 0,
            per_shard: vec![9],
            rates: ConnectionRates::default(),
        }
    }
}

/// How fast connections may come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConnectionRates {
    /// Whether shards limit rates of addresses.
    pub(crate) has_metered_shards: bool,
    /// Connections of one address.
    pub(crate) per_address: Rate,
    /// Connections of all.
    pub(crate) total: Rate,
}

impl ConnectionRates {
    /// Whether the uses by each address are counted.
    const fn are_metered(&self) -> bool {
        self.has_metered_shards || self.per_address.is_limit()
    }
}

/// Connections of one address.
#[derive(Default)]
struct Address {
    open: usize,
    /// Among [`Acceptor::remembered`].
    is_remembered: bool,
    meter: Arc<AddressMeter>,
}

/// Accepts connections within the limits, and chooses a shard for each.
pub(crate) struct Acceptor {
    limits: ConnectionLimits,
    shards: Vec<Give>,
    ended: flume::Receiver<Ended>,
    open: Vec<usize>,
    /// By the address that [`counted_as`] gives.
    by_address: HashMap<IpAddr, Address>,
    /// Addresses that had no connection left, each once, longest first.
    remembered: VecDeque<IpAddr>,
    accepted: Meter,
    entropy: Entropy,
    clock: Clock,
    gauges: Arc<Gauges>,
}

/// The one acceptor of the server, for all that accept. It is held for the time of admitting one connection.
#[derive(Clone)]
pub(crate) struct SharedAcceptor(Arc<Mutex<Acceptor>>);

impl SharedAcceptor {
    pub(crate) fn new(acceptor: Acceptor) -> SharedAcceptor {
        SharedAcceptor(Arc::new(Mutex::new(acceptor)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Acceptor> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives the address under which a client's connections are counted. For IPv6 it is a network of 64 bits, because one
/// host may take all its addresses. For an IPv4 address mapped into IPv6 it is the IPv4 address.
fn counted_as(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address @ IpAddr::V4(_) => address,
    }
}

impl Acceptor {
    pub(crate) fn new(
        limits: ConnectionLimits,
        shards: Vec<Give>,
        ended: flume::Receiver<Ended>,
        clock: Clock,
        gauges: Arc<Gauges>,
    ) -> Acceptor {
        let open = vec![0; shards.len()];
        let (by_address, remembered) = (HashMap::new(), VecDeque::new());
        let (accepted, entropy) = (Meter::default(), Entropy::new());
        Acceptor { limits, shards, ended, open, by_address, remembered, accepted, entropy, clock, gauges }
    }

    /// Accepts from one listener after the other, each until it is shut down: the life of a thread that does nothing else.
    pub(crate) fn run(shared: &SharedAcceptor, listeners: &flume::Receiver<TcpListener>) {
        for listener in listeners {
            serve(shared, &listener);
        }
    }

    /// Decides whether a connection is accepted, and gives its shard. It counts until an [`Ended`] reports its end.
    pub(crate) fn admit(&mut self, stream: TcpStream, peer: SocketAddr) -> Option<(ShardId, Accepted)> {
        let peer = canonical(peer);
        self.forget_ended(ENDED_PER_ACCEPT);
        let address = counted_as(peer.ip());
        let now = self.clock.now();
        let descriptor = u64::try_from(stream.as_raw_fd()).unwrap_or_default();
        if self.refusal(address, descriptor).is_some() {
            self.forget_ended(ENDED_PER_LOOK);
        }
        if let Some(reason) = self.refusal(address, descriptor).or_else(|| self.refusal_by_rate(address, now)) {
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
                tracing::error!(%peer, "connection refused: no random bytes: {error}");
                return None;
            }
        };
        self.open[at] += 1;
        let known = self.by_address.entry(address).or_default();
        known.open += 1;
        let rates = &self.limits.rates;
        self.accepted.count(&rates.total, now, 1);
        known.meter.connections.count(&rates.per_address, now, 1);
        let meter = rates.has_metered_shards.then(|| Arc::clone(&known.meter));
        let shard = ShardId(u16::try_from(at).expect("fewer shards than 2^16"));
        Some((shard, Accepted { stream, peer, entropy, tls: None, meter }))
    }

    /// Leaves a connection that was taken in to its shard.
    pub(crate) fn pass_on(&mut self, shard: ShardId, accepted: Accepted) {
        let address = accepted.peer.ip();
        if !self.shards[usize::from(shard.0)](accepted) {
            self.forget(shard, address);
        }
    }

    /// To be called a few times a second: connections that have ended are counted no more, though none is accepted.
    pub(crate) fn look_after(&mut self) {
        self.forget_ended(ENDED_PER_LOOK);
        self.forget_addresses(self.clock.now());
    }

    /// An address without a connection is remembered until its uses are paid for: otherwise a client that connects anew had
    /// a new burst.
    fn forget_addresses(&mut self, now: Millis) {
        for _ in 0..self.remembered.len().min(REMEMBERED_PER_LOOK) {
            let Some(address) = self.remembered.pop_front() else { return };
            let Some(known) = self.by_address.get_mut(&address) else { continue };
            known.is_remembered = known.open == 0 && !known.meter.is_settled(now);
            if known.is_remembered {
                self.remembered.push_back(address);
            } else if known.open == 0 {
                self.by_address.remove(&address);
            }
        }
    }

    fn forget_ended(&mut self, most: usize) {
        for _ in 0..most {
            let Ok(Ended { shard, address }) = self.ended.try_recv() else { return };
            self.forget(shard, address);
        }
    }

    fn forget(&mut self, shard: ShardId, address: IpAddr) {
        let address = counted_as(address);
        self.open[usize::from(shard.0)] -= 1;
        let Some(known) = self.by_address.get_mut(&address) else { return };
        known.open -= 1;
        if known.open > 0 {
            return;
        }
        if !self.limits.rates.are_metered() {
            self.by_address.remove(&address);
            return;
        }
        if !std::mem::replace(&mut known.is_remembered, true) {
            self.remembered.push_back(address);
        }
        if self.remembered.len() > REMEMBERED_MAX
            && let Some(longest) = self.remembered.pop_front()
            && let Some(known) = self.by_address.get_mut(&longest)
        {
            known.is_remembered = false;
            if known.open == 0 {
                self.by_address.remove(&longest);
            }
        }
    }

    fn refusal_by_rate(&self, address: IpAddr, now: Millis) -> Option<String> {
        let rates = &self.limits.rates;
        let known = self.by_address.get(&address);
        if known.is_some_and(|known| !known.meter.connections.has_room(&rates.per_address, now)) {
            return Some("this address opens connections too fast (rate_limits.connections_per_second)".to_owned());
        }
        let is_full = !self.accepted.has_room(&rates.total, now);
        is_full.then(|| "all clients open connections too fast (rate_limits.connection_tokens)".to_owned())
    }

    fn refusal(&self, address: IpAddr, descriptor: u64) -> Option<String> {
        let total: usize = self.open.iter().sum();
        let here = self.by_address.get(&address).map_or(0, |known| known.open);
        let Self { limits, .. } = self;
        if total >= limits.total {
            return Some(format!(
                "{total} connections are open (limits.connections_max, or the limit by RLIMIT_NOFILE)"
            ));
        }
        if descriptor >= limits.descriptors_end {
            return Some(format!(
                "{total} connections are open, and the other file descriptors are kept for log and other servers (raise LimitNOFILE= \
                 or `ulimit -n`)"
            ));
        }
        if limits.per_address > 0 && here >= limits.per_address {
            return Some(format!("{here} connections of this address are open (limits.connections_per_ip_max)"));
        }
        let full = self.open.iter().zip(&limits.per_shard).all(|(open, max)| open >= max);
        full.then(|| "every shard has as many connections as it may (core.connections_max)".to_owned())
    }
}

fn serve(shared: &SharedAcceptor, listener: &TcpListener) {
    let mut complaint = Complaint::default();
    loop {
        match listener.accept() {
            Ok((stream, peer)) => {
                let mut acceptor = shared.lock();
                if let Some((shard, accepted)) = acceptor.admit(stream, peer) {
                    acceptor.pass_on(shard, accepted);
                }
            }
            Err(error) => match retry_after(&error, &mut complaint) {
                Some(pause) => std::thread::sleep(pause),
                None => return,
            },
        }
    }
}

/// The pause after an accept that failed. `None` if the listener is shut down.
pub(crate) fn retry_after(error: &io::Error, complaint: &mut Complaint) -> Option<Duration> {
    const PAUSE: Duration = Duration::from_millis(100);
    match error.kind() {
        ErrorKind::InvalidInput => None,
        ErrorKind::Interrupted | ErrorKind::ConnectionAborted => Some(Duration::ZERO),
        _ => {
            if let Some(times) = complaint.again(Instant::now()) {
                tracing::warn!(times_so_far = times, "cannot accept a connection, trying again: {error}");
            }
            Some(PAUSE)
        }
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

    /// Checks the shard of each client, by the last byte of its address; `None` if it is refused. Negative numbers are
    /// the end of a connection of that shard (from -1 on) and of the given address.
    fn check(limits: (usize, usize, Vec<usize>), clients: &[(i16, u8)], expect: &[Option<u16>]) {
        let (total, per_address, per_shard) = limits;
        let (sender, given) = flume::unbounded();
        let give = |_| -> Give {
            let sender = sender.clone();
            Box::new(move |accepted| sender.send(accepted).is_ok())
        };
        let shards = per_shard.iter().map(give).collect();
        let (ends, ended) = flume::unbounded();
        let limits = ConnectionLimits { total, per_address, per_shard, ..ConnectionLimits::nine() };
        let mut acceptor = Acceptor::new(limits, shards, ended, Clock::start(), Arc::new(Gauges::default()));
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

    /// A host may take any address of its network of 64 bits.
    #[test]
    fn addresses_that_one_host_may_take_are_counted_as_one() {
        let check = |address: &str, counted: &str| {
            let parsed = |text: &str| text.parse::<IpAddr>().expect("an address");
            assert_eq!(counted_as(parsed(address)), parsed(counted), "{address}");
        };
        check("10.0.0.7", "10.0.0.7");
        check("::ffff:10.0.0.7", "10.0.0.7");
        check("2001:db8:1:2:a:b:c:d", "2001:db8:1:2::");
        check("2001:db8:1:3::1", "2001:db8:1:3::");
        check("::1", "::");
        let (ends, ended) = flume::unbounded();
        let limits = ConnectionLimits { per_address: 1, ..ConnectionLimits::nine() };
        let mut acceptor =
            Acceptor::new(limits, vec![Box::new(|_| true)], ended, Clock::start(), Arc::new(Gauges::default()));
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let there = listener.local_addr().expect("it is bound");
        let mut admits = |address: &str| {
            let peer = SocketAddr::new(address.parse().expect("an address"), 4000);
            acceptor.admit(TcpStream::connect(there).expect("it listens"), peer).is_some()
        };
        assert!(admits("2001:db8::1") && !admits("2001:db8::2") && admits("2001:db8:0:1::1"));
        assert!(admits("10.0.0.1") && !admits("::ffff:10.0.0.1"));
        ends.send(Ended { shard: ShardId(0), address: "2001:db8::1".parse().expect("an address") })
            .expect("it is there");
        assert!(admits("2001:db8::2"), "a place is free again");
    }

    /// A bucket that does not fill within a test.
    #[test]
    fn an_address_may_open_connections_as_fast_as_its_rate() {
        let (ends, ended) = flume::unbounded();
        let never_fills = |tokens| Rate::bucket(tokens, 1, 3_600_000);
        let rates =
            ConnectionRates { per_address: never_fills(2), total: never_fills(3), ..ConnectionRates::default() };
        let limits = ConnectionLimits { rates, ..ConnectionLimits::nine() };
        let mut acceptor =
            Acceptor::new(limits, vec![Box::new(|_| true)], ended, Clock::start(), Arc::new(Gauges::default()));
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let there = listener.local_addr().expect("it is bound");
        let mut admits = |last: u8| {
            let peer = SocketAddr::from((Ipv4Addr::new(10, 0, 0, last), 4000));
            let admitted = acceptor.admit(TcpStream::connect(there).expect("it listens"), peer).is_some();
            if admitted {
                ends.send(Ended { shard: ShardId(0), address: peer.ip() }).expect("the acceptor is there");
            }
            acceptor.look_after();
            admitted
        };
        assert_eq!([1, 1, 1, 2, 2].map(&mut admits), [true, true, false, true, false]);
        assert_eq!((acceptor.by_address.len(), acceptor.remembered.len()), (2, 2));
        acceptor.forget_addresses(Millis(u64::MAX));
        assert!(acceptor.by_address.is_empty() && acceptor.remembered.is_empty());
    }

    #[test]
    fn no_client_takes_the_last_descriptors() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let there = listener.local_addr().expect("it is bound");
        // Other tests open and close descriptors meanwhile, so the end is that of the stream itself.
        let admits = |end: fn(u64) -> u64| {
            let stream = TcpStream::connect(there).expect("it listens");
            let number = u64::try_from(stream.as_raw_fd()).expect("it is open");
            let limits = ConnectionLimits { descriptors_end: end(number), ..ConnectionLimits::nine() };
            let (_ends, ended) = flume::unbounded();
            let mut acceptor =
                Acceptor::new(limits, vec![Box::new(|_| true)], ended, Clock::start(), Arc::new(Gauges::default()));
            acceptor.admit(stream, there).is_some()
        };
        assert!(!admits(|number| number) && admits(|number| number + 1));
    }

    #[test]
    fn many_ends_do_not_hold_up_one_accept() {
        const MANY: usize = 100_000;
        let (ends, ended) = flume::unbounded();
        let limits = ConnectionLimits { total: 2 * MANY, per_shard: vec![2 * MANY], ..ConnectionLimits::nine() };
        let mut acceptor =
            Acceptor::new(limits, vec![Box::new(|_| true)], ended, Clock::start(), Arc::new(Gauges::default()));
        acceptor.open[0] = MANY;
        for _ in 0..MANY {
            let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
            ends.send(Ended { shard: ShardId(0), address }).expect("the acceptor is there");
        }
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let there = listener.local_addr().expect("it is bound");
        assert!(acceptor.admit(TcpStream::connect(there).expect("it listens"), there).is_some());
        assert_eq!(ends.len(), MANY - ENDED_PER_ACCEPT);
        acceptor.look_after();
        assert_eq!(ends.len(), MANY - ENDED_PER_ACCEPT - ENDED_PER_LOOK);
        // Before one is refused more of them are counted off.
        acceptor.limits.total = acceptor.open[0];
        assert!(acceptor.admit(TcpStream::connect(there).expect("it listens"), there).is_some());
    }

    #[test]
    fn every_password_is_another() {
        let (mut entropy, mut seen) = (Entropy::new(), std::collections::HashSet::new());
        for _ in 0..3 * Entropy::AHEAD {
            assert!(seen.insert(entropy.draw().expect("the system has randomness")));
        }
    }
}
