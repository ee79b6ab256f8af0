//! The listener: the thread that listens for peers, hears their handshakes, and gives each that is welcome a receiver.
//!
//! One thread, which never blocks but in `poll`. TLS and handshake of all unknown connections make progress side by
//! side, so that a slow or silent one delays no other. Their number and their time are bounded.

use std::collections::BTreeMap;
use std::io::{ErrorKind, IoSlice};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use corral_consensus::ServerId;
use corral_peer::handshake::ANSWER_BYTES;
use corral_peer::secret::TOKEN_BYTES;
use corral_peer::{Admission, Answer, ClusterName, FrameKey, Generation, Handshake, Secrets};
use rustix::event::{PollFd, PollFlags};

use crate::net::listen::canonical;
use crate::net::peers::Events;
use crate::net::peers::PeerAddress;
use crate::net::peers::budget::{Budget, Held};
use crate::net::peers::channel::{self, Channel, tune};
use crate::net::peers::dial::wire_id;
use crate::net::peers::generations::Generations;
use crate::net::peers::inbound::{Inbound, Progress, Proven};
use crate::net::peers::limits::{ACCEPTED_MAX, ENDING_MAX, HANDSHAKE_MAX, SHUT_FOR, STRANGERS_MAX};
use crate::net::peers::outbox::PeerOutbox;
use crate::net::peers::receiver::{Handle, Receiver};
use crate::net::peers::tls::{self, Tls};
use crate::runtime::complaint::Complaint;
use crate::runtime::mailbox::Bell;

/// The reason for which a server that is not in the list is refused.
const UNLISTED: &str =
    "the list of servers here lacks it; add it with reconfig, give all servers the same list, or stop it";

/// The listener's record of one peer.
pub(crate) struct KnownPeer {
    pub(crate) address: PeerAddress,
    pub(crate) outbox: Arc<PeerOutbox>,
    current: Option<Current>,
    living: Arc<AtomicUsize>,
    held: Held,
    /// Its messages were not understood: until then it is not let in again.
    shut_until: Option<Instant>,
}

/// The newest connection of a peer.
pub(crate) struct Current {
    incarnation: u64,
    token: [u8; TOKEN_BYTES],
    stream: u64,
    from: SocketAddr,
    handle: Arc<Handle>,
    thread: JoinHandle<()>,
}

/// A change of the peers that may connect, or of the listeners.
pub(crate) enum Change {
    /// A new peer, or a peer with a changed address.
    Put(KnownPeer),
    Remove(ServerId),
    /// They may come by way of this one, too.
    Listen(TcpListener),
    /// A peer's messages on this connection are not understood: the connection ends, if it is still the peer's newest.
    Shut {
        peer: ServerId,
        stream: u64,
    },
}

impl KnownPeer {
    pub(crate) fn new(address: PeerAddress, outbox: Arc<PeerOutbox>) -> KnownPeer {
        let (living, held) = (Arc::new(AtomicUsize::new(0)), Held::default());
        KnownPeer { address, outbox, current: None, living, held, shut_until: None }
    }
}

/// Accepts connections of peers, checks their handshakes and starts their receivers.
pub(crate) struct PeerListener {
    pub(crate) own: ServerId,
    pub(crate) cluster: ClusterName,
    pub(crate) generations: Arc<Generations>,
    /// One at least, and `LISTENERS_MAX` at most.
    pub(crate) listeners: Vec<TcpListener>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) places: BTreeMap<ServerId, KnownPeer>,
    /// Connections of removed peers, so that a connection of a peer that is added again begins after their end.
    pub(crate) parted: BTreeMap<ServerId, Current>,
    pub(crate) changes: flume::Receiver<Change>,
    pub(crate) tls: Option<Tls>,
    pub(crate) secrets: Option<Arc<Secrets>>,
    pub(crate) received_bytes_max: usize,
    pub(crate) streams: Arc<AtomicU64>,
    pub(crate) stopping: Arc<AtomicBool>,
    pub(crate) events: Events,
    /// Threads that live tell so by holding one of these.
    pub(crate) alive: Arc<()>,
    pub(crate) inbound: Vec<Inbound>,
    /// By kind of failure, of which there are a handful.
    pub(crate) complaints: BTreeMap<&'static str, Complaint>,
}

impl PeerListener {
    /// Listens until the connections are stopped, then ends every connection that came in.
    pub(crate) fn run(mut self) {
        while !self.stopping.load(Ordering::Relaxed) {
            let (knocked, ready) = self.sleep();
            while let Ok(change) = self.changes.try_recv() {
                self.change(change);
            }
            for at in (0..self.inbound.len()).rev() {
                if ready[at] {
                    self.advance(at);
                }
            }
            let now = Instant::now();
            while let Some(at) = self.inbound.iter().position(|inbound| inbound.deadline <= now) {
                let inbound = self.inbound.swap_remove(at);
                self.complain("it says no handshake in time; look at its log", &inbound.from.to_string());
            }
            for at in knocked {
                self.accept(at);
            }
        }
        let left: Vec<Current> = self.places.into_values().filter_map(|place| place.current).collect();
        left.iter().for_each(|current| current.handle.stop());
        for current in left.into_iter().chain(self.parted.into_values()) {
            let _ = current.thread.join();
        }
    }

    fn change(&mut self, change: Change) {
        let (id, put) = match change {
            Change::Put(place) => (place.address.id, Some(place)),
            Change::Remove(id) => (id, None),
            Change::Listen(listener) => return self.listeners.push(listener),
            Change::Shut { peer, stream } => return self.shut(peer, stream),
        };
        let current = self.places.remove(&id).and_then(|place| place.current).or_else(|| self.parted.remove(&id));
        if let Some(current) = &current {
            current.handle.stop();
        }
        match (put, current) {
            (Some(place), current) => drop(self.places.insert(id, KnownPeer { current, ..place })),
            (None, Some(current)) => drop(self.parted.insert(id, current)),
            (None, None) => {}
        }
    }

    fn shut(&mut self, peer: ServerId, stream: u64) {
        let Some(place) = self.places.get_mut(&peer) else { return };
        if let Some(current) = place.current.as_ref().filter(|current| current.stream == stream) {
            current.handle.shut();
            place.shut_until = Some(Instant::now() + SHUT_FOR);
        }
    }

    /// Waits for a connection, or the first deadline. Gives the listeners with a new connection, and for each inbound
    /// whether it is ready.
    fn sleep(&self) -> (Vec<usize>, Vec<bool>) {
        let inside = PollFlags::IN | PollFlags::RDHUP;
        let mut polled = Vec::with_capacity(1 + self.listeners.len() + self.inbound.len());
        polled.push(PollFd::from_borrowed_fd(self.bell.outer(), PollFlags::IN));
        polled.extend(self.listeners.iter().map(|one| PollFd::from_borrowed_fd(one.as_fd(), PollFlags::IN)));
        polled.extend(self.inbound.iter().map(|inbound| {
            let wanted = if inbound.channel.wants_write() { inside | PollFlags::OUT } else { inside };
            PollFd::from_borrowed_fd(inbound.channel.socket().as_fd(), wanted)
        }));
        let first = self.inbound.iter().map(|inbound| inbound.deadline).min();
        let time = first.map(|deadline| deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
        if let Err(error) = channel::pause(&mut polled, time) {
            tracing::error!("cannot poll the port for servers, retrying: {error}");
            thread::sleep(Duration::from_millis(100));
        }
        if polled[0].revents().intersects(PollFlags::IN) {
            channel::silence(self.bell.outer());
        }
        let told: Vec<bool> = polled[1..].iter().map(|one| !one.revents().is_empty()).collect();
        let (listeners, inbound) = told.split_at(self.listeners.len());
        (listeners.iter().enumerate().filter_map(|(at, knocked)| knocked.then_some(at)).collect(), inbound.to_vec())
    }

    /// Accepts the connections that wait at this listener.
    fn accept(&mut self, at: usize) {
        // So many that those inside get their turn.
        for _ in 0..ACCEPTED_MAX {
            match self.listeners[at].accept() {
                Ok((socket, from)) => {
                    let from = canonical(from);
                    let tls = self.tls.as_ref().map(Tls::accept).transpose();
                    let prepared = tune(&socket).and_then(|()| socket.set_nonblocking(true));
                    let (Ok(tls), Ok(())) = (tls, prepared) else {
                        self.complain("its connection was lost at once", &from.to_string());
                        continue;
                    };
                    if self.inbound.len() >= STRANGERS_MAX {
                        // A connection that has sent its handshake stays longer than a silent one.
                        let rank = |at: &usize| (self.inbound[*at].was_asked(), self.inbound[*at].deadline);
                        let oldest = (0..self.inbound.len()).min_by_key(rank);
                        if let Some(oldest) = oldest {
                            self.inbound.swap_remove(oldest);
                        }
                        let reason = "too many connections have sent no handshake, the oldest is closed; find the program that dials this port \
                                      (this port is for servers of the ensemble alone)";
                        self.complain(reason, &from.to_string());
                    }
                    self.inbound.push(Inbound::new(Channel::new(socket, tls), from, Instant::now() + HANDSHAKE_MAX));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(error) => {
                    let complaint = self.complaints.entry("accept").or_default();
                    if let Some(times) = complaint.again(Instant::now()) {
                        tracing::warn!(times, "cannot accept a connection of a peer, trying again: {error}");
                    }
                    thread::sleep(Duration::from_millis(100));
                    return;
                }
            }
        }
    }

    /// Hears what an inbound connection has to say.
    fn advance(&mut self, at: usize) {
        match self.inbound[at].listen(self.secrets.as_deref()) {
            Progress::Waits => {}
            Progress::Gone(reason) => {
                let inbound = self.inbound.swap_remove(at);
                self.complain(reason, &inbound.from.to_string());
            }
            Progress::Failed(sentence) => {
                let inbound = self.inbound.swap_remove(at);
                self.complain_of("TLS", &inbound.from.to_string(), &sentence);
            }
            Progress::OtherVersion(sentence) => {
                let mut inbound = self.inbound.swap_remove(at);
                self.answer(&mut inbound.channel, Admission::WrongVersion, None);
                self.complain_of("version", &inbound.from.to_string(), &sentence);
            }
            Progress::NotProven => {
                let mut inbound = self.inbound.swap_remove(at);
                self.answer(&mut inbound.channel, Admission::NotProven, None);
                let reason = "it does not hold this ensemble's secret; give all servers the same ensemble.secret_file";
                self.complain_of(verdict_name(Admission::NotProven), &inbound.from.to_string(), reason);
            }
            Progress::Said(handshake, proven) => {
                let inbound = self.inbound.swap_remove(at);
                self.decide(inbound, &handshake, proven.as_deref());
            }
        }
    }

    fn decide(&mut self, mut inbound: Inbound, handshake: &Handshake, proven: Option<&Proven>) {
        if let Some((verdict, reason)) = self.refusal(&inbound, handshake, proven.is_some()) {
            self.answer(&mut inbound.channel, verdict, proven);
            let who = format!("{}, which says it is server {}", inbound.from, handshake.from);
            self.complain_of(verdict_name(verdict), &who, &reason);
            return;
        }
        let answer = self.answer(&mut inbound.channel, Admission::Welcome, proven);
        let Some(answer) = answer.filter(|_| inbound.channel.socket().set_nonblocking(false).is_ok()) else {
            return self
                .complain("its connection was lost before the handshake was answered", &inbound.from.to_string());
        };
        let key = proven.map(|proven| proven.secret.frame_key(&proven.said, &answer));
        if let Err(error) = self.welcome(inbound, handshake, key) {
            tracing::error!(peer = handshake.from, "a connection of the peer cannot be served, closed: {error}");
        }
    }

    /// Why this handshake is not welcome.
    fn refusal(&self, inbound: &Inbound, handshake: &Handshake, has_secret: bool) -> Option<(Admission, String)> {
        let proven = has_secret || inbound.channel.tls().is_some();
        if handshake.cluster != self.cluster {
            let reason = format!(
                "it is of the cluster {}, this server of {}; give all servers of an ensemble the same ensemble.cluster",
                handshake.cluster, self.cluster
            );
            return Some((Admission::WrongCluster, reason));
        }
        if ServerId(handshake.to) != self.own {
            let reason = format!(
                "it means server {}, this is server {}; correct the other server's list of servers or the id here",
                handshake.to, self.own.0
            );
            return Some((Admission::WrongServer, reason));
        }
        let Some(place) = self.places.get(&ServerId(handshake.from)) else {
            self.generations.knocked(ServerId(handshake.from), handshake.generation);
            return Some((Admission::NotConfigured, UNLISTED.to_owned()));
        };
        if let Some(connection) = inbound.channel.tls()
            && let Err(reason) = tls::is_for(connection, &place.address)
        {
            return Some((Admission::WrongCertificate, reason));
        }
        if place.shut_until.is_some_and(|until| Instant::now() < until) {
            return Some((Admission::Busy, "its messages could not be decoded; it may try again soon".to_owned()));
        }
        let current = place.current.as_ref().filter(|current| !current.handle.is_over());
        if let Some(current) = current
            && (current.incarnation, current.token) != (handshake.incarnation, handshake.token)
        {
            let reason = format!(
                "another process with this id is connected from {}; look for a second server with this id (after the \
                 loss of a host it takes some seconds)",
                current.from
            );
            return Some((Admission::Duplicate, reason));
        }
        // Behind all checks that may show that it is another server.
        let met = if proven {
            self.generations.meet(place.address.id, handshake.generation)
        } else {
            // Any host may claim this: the server that is dialled at that address reports its generation too.
            self.generations.hear(handshake.generation).inspect(|_| place.outbox.dial_now())
        };
        if let Some(reason) = met {
            return Some((Admission::WrongGeneration, reason.to_owned()));
        }
        let busy = current.is_some() && place.living.load(Ordering::Acquire) >= ENDING_MAX;
        busy.then(|| (Admission::Busy, "its last connections have not ended yet".to_owned()))
    }

    /// Starts the receiver. A connection of the same process that still stands ends.
    fn welcome(&mut self, inbound: Inbound, handshake: &Handshake, key: Option<FrameKey>) -> std::io::Result<()> {
        let Inbound { channel, from, .. } = inbound;
        let place = self.places.get_mut(&ServerId(handshake.from)).expect("it was looked up before");
        let budget = Budget::new(&place.held, self.received_bytes_max);
        let handle = Handle::new(&channel, Arc::clone(&budget))?;
        let before = place.current.take().map(|before| {
            before.handle.make_way();
            before.thread
        });
        let stream = self.streams.fetch_add(1, Ordering::Relaxed);
        let peer = handshake.from;
        let (tls, secret) = (channel.tls().is_some(), key.is_some());
        tracing::debug!(peer, %from, stream, tls, secret, "the peer has connected");
        place.living.fetch_add(1, Ordering::AcqRel);
        let receiver = Receiver {
            outbox: Arc::clone(&place.outbox),
            channel,
            key,
            handle: Arc::clone(&handle),
            budget,
            stream,
            incarnation: handshake.incarnation,
            before,
            living: Arc::clone(&place.living),
            events: Arc::clone(&self.events),
        };
        let alive = Arc::clone(&self.alive);
        let run = move || {
            receiver.run();
            drop(alive);
        };
        match thread::Builder::new().name(format!("peer {peer} in")).spawn(run) {
            Ok(thread) => {
                let (incarnation, token) = (handshake.incarnation, handshake.token);
                place.current = Some(Current { incarnation, token, stream, from, handle, thread });
                place.outbox.dial_now();
                Ok(())
            }
            Err(error) => {
                place.living.fetch_sub(1, Ordering::AcqRel);
                Err(error)
            }
        }
    }

    /// The answer, if it left; it always fits into an empty socket. A rejection tells nothing of this server to a host
    /// without a proof. The exception is a host with data of another generation, which has to find out which of the two
    /// is older.
    fn answer(&self, channel: &mut Channel, verdict: Admission, proven: Option<&Proven>) -> Option<[u8; ANSWER_BYTES]> {
        let tells = match verdict {
            Admission::NotProven | Admission::WrongVersion => false,
            Admission::Welcome | Admission::WrongGeneration => true,
            _ => proven.is_some() || channel.tls().is_some(),
        };
        let own = (wire_id(self.own), self.generations.own());
        let (id, generation) = if tells { own } else { (0, Generation::NONE) };
        let answer = Answer { verdict, id, generation }.encode();
        let mut bytes = answer.to_vec();
        if let Some(Proven { secret, said }) = proven {
            bytes.extend_from_slice(&secret.seal(said, &answer));
        }
        let written = matches!(channel.write(&[IoSlice::new(&bytes)]), Ok(written) if written == bytes.len());
        (written && channel.flush().is_ok()).then_some(answer)
    }

    fn complain(&mut self, reason: &'static str, who: &str) {
        self.complain_of(reason, who, reason);
    }

    /// Logs a refusal, unless there were many of this kind lately.
    fn complain_of(&mut self, kind: &'static str, who: &str, reason: &str) {
        let Some(times) = self.complaints.entry(kind).or_default().again(Instant::now()) else { return };
        if reason == UNLISTED {
            tracing::info!(from = who, times, "a server that is not a member connects: {reason}");
        } else {
            tracing::warn!(from = who, times, "a connection to the port for servers is refused: {reason}");
        }
    }
}

fn verdict_name(verdict: Admission) -> &'static str {
    match verdict {
        Admission::Welcome => "welcome",
        Admission::WrongCluster => "cluster",
        Admission::WrongServer => "server",
        Admission::NotConfigured => "not configured",
        Admission::Duplicate => "duplicate",
        Admission::Busy => "busy",
        Admission::WrongCertificate => "certificate",
        Admission::WrongVersion => "version",
        Admission::WrongGeneration => "generation",
        Admission::NotProven => "secret",
    }
}
