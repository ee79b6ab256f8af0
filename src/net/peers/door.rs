//! The door: the thread that listens for peers, hears their hellos, and gives each that is welcome a receiver.
//!
//! One thread, which never blocks but in `poll`: TLS and hello of all connections that are not known yet make progress side by
//! side, so that a slow or silent one delays nobody. Their number and their time are bounded.

use std::collections::BTreeMap;
use std::io::{ErrorKind, IoSlice};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use corral_consensus::NodeId;
use corral_link::hello::ANSWER_BYTES;
use corral_link::secret::TOKEN_BYTES;
use corral_link::{Answer, ClusterName, FrameKey, Generation, Hello, Secrets, Verdict};
use rustix::event::{PollFd, PollFlags};

use crate::net::peers::Events;
use crate::net::peers::PeerAddress;
use crate::net::peers::budget::Budget;
use crate::net::peers::channel::{self, Channel, tune};
use crate::net::peers::dial::wire_id;
use crate::net::peers::guest::{Guest, Progress, Proven};
use crate::net::peers::lane::Lane;
use crate::net::peers::limits::{ACCEPTED_MAX, ENDING_MAX, HELLO_MAX, SHUT_FOR, STRANGERS_MAX};
use crate::net::peers::lineage::Lineage;
use crate::net::peers::receiver::{Handle, Receiver};
use crate::net::peers::tls::{self, Tls};
use crate::runtime::complaint::Complaint;
use crate::runtime::mailbox::Bell;

/// What the door has of one peer.
pub(crate) struct Place {
    pub(crate) address: PeerAddress,
    pub(crate) lane: Arc<Lane>,
    current: Option<Current>,
    living: Arc<AtomicUsize>,
    /// What it said was not understood: until then it is not let in again.
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

/// Who may come in from now on.
pub(crate) enum Change {
    /// A new peer, or one whose address has changed.
    Put(Place),
    Remove(NodeId),
    /// They may come by way of this one, too.
    Listen(TcpListener),
    /// What a peer says on this connection is not understood: the connection ends, if it is still the peer's newest.
    Shut {
        peer: NodeId,
        stream: u64,
    },
}

impl Place {
    pub(crate) fn new(address: PeerAddress, lane: Arc<Lane>) -> Place {
        Place { address, lane, current: None, living: Arc::new(AtomicUsize::new(0)), shut_until: None }
    }
}

/// See the module.
pub(crate) struct Door {
    pub(crate) own: NodeId,
    pub(crate) cluster: ClusterName,
    pub(crate) lineage: Arc<Lineage>,
    /// One at least, and `LISTENERS_MAX` at most.
    pub(crate) listeners: Vec<TcpListener>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) places: BTreeMap<NodeId, Place>,
    /// Connections of peers that are none any more, so that one that is one again begins after their end.
    pub(crate) parted: BTreeMap<NodeId, Current>,
    pub(crate) changes: flume::Receiver<Change>,
    pub(crate) tls: Option<Tls>,
    pub(crate) secrets: Option<Arc<Secrets>>,
    pub(crate) received_bytes_max: usize,
    pub(crate) streams: Arc<AtomicU64>,
    pub(crate) stopping: Arc<AtomicBool>,
    pub(crate) events: Events,
    /// Threads that live tell so by holding one of these.
    pub(crate) alive: Arc<()>,
    pub(crate) guests: Vec<Guest>,
    /// By what went wrong, of which there are a handful.
    pub(crate) complaints: BTreeMap<&'static str, Complaint>,
}

impl Door {
    /// Listens until the links are stopped, then ends every connection that came in.
    pub(crate) fn run(mut self) {
        while !self.stopping.load(Ordering::Relaxed) {
            let (knocked, ready) = self.sleep();
            while let Ok(change) = self.changes.try_recv() {
                self.change(change);
            }
            for at in (0..self.guests.len()).rev() {
                if ready[at] {
                    self.advance(at);
                }
            }
            let now = Instant::now();
            while let Some(at) = self.guests.iter().position(|guest| guest.deadline <= now) {
                let guest = self.guests.swap_remove(at);
                self.complain("it says no hello in time; look at its log", &guest.from.to_string());
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
            (Some(place), current) => drop(self.places.insert(id, Place { current, ..place })),
            (None, Some(current)) => drop(self.parted.insert(id, current)),
            (None, None) => {}
        }
    }

    fn shut(&mut self, peer: NodeId, stream: u64) {
        let Some(place) = self.places.get_mut(&peer) else { return };
        if let Some(current) = place.current.as_ref().filter(|current| current.stream == stream) {
            current.handle.shut();
            place.shut_until = Some(Instant::now() + SHUT_FOR);
        }
    }

    /// Waits for anybody, or the first deadline: at which listeners somebody knocked, and for each guest whether it is ready.
    fn sleep(&self) -> (Vec<usize>, Vec<bool>) {
        let inside = PollFlags::IN | PollFlags::RDHUP;
        let mut polled = Vec::with_capacity(1 + self.listeners.len() + self.guests.len());
        polled.push(PollFd::from_borrowed_fd(self.bell.outer(), PollFlags::IN));
        polled.extend(self.listeners.iter().map(|one| PollFd::from_borrowed_fd(one.as_fd(), PollFlags::IN)));
        polled.extend(self.guests.iter().map(|guest| {
            let wanted = if guest.channel.wants_write() { inside | PollFlags::OUT } else { inside };
            PollFd::from_borrowed_fd(guest.channel.socket().as_fd(), wanted)
        }));
        let first = self.guests.iter().map(|guest| guest.deadline).min();
        let time = first.map(|deadline| deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
        if let Err(error) = channel::pause(&mut polled, time) {
            tracing::error!("peers cannot be waited for, trying again: {error}");
            thread::sleep(Duration::from_millis(100));
        }
        if polled[0].revents().intersects(PollFlags::IN) {
            channel::silence(self.bell.outer());
        }
        let told: Vec<bool> = polled[1..].iter().map(|one| !one.revents().is_empty()).collect();
        let (doors, guests) = told.split_at(self.listeners.len());
        (doors.iter().enumerate().filter_map(|(at, knocked)| knocked.then_some(at)).collect(), guests.to_vec())
    }

    /// Lets in everybody who waits outside of this listener.
    fn accept(&mut self, at: usize) {
        // So many that those inside get their turn.
        for _ in 0..ACCEPTED_MAX {
            match self.listeners[at].accept() {
                Ok((socket, from)) => {
                    let tls = self.tls.as_ref().map(Tls::accept).transpose();
                    let prepared = tune(&socket).and_then(|()| socket.set_nonblocking(true));
                    let (Ok(tls), Ok(())) = (tls, prepared) else {
                        self.complain("its connection was lost at once", &from.to_string());
                        continue;
                    };
                    if self.guests.len() >= STRANGERS_MAX {
                        // Who has said hello stays longer than who has said nothing.
                        let rank = |at: &usize| (self.guests[*at].was_asked(), self.guests[*at].deadline);
                        let oldest = (0..self.guests.len()).min_by_key(rank);
                        if let Some(oldest) = oldest {
                            self.guests.swap_remove(oldest);
                        }
                        let reason = "too many connections have said no hello, the oldest is closed; look who dials here \
                                      (this port is for servers of the ensemble alone)";
                        self.complain(reason, &from.to_string());
                    }
                    self.guests.push(Guest::new(Channel::new(socket, tls), from, Instant::now() + HELLO_MAX));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(error) => {
                    tracing::warn!("cannot accept a connection of a peer, trying again: {error}");
                    thread::sleep(Duration::from_millis(100));
                    return;
                }
            }
        }
    }

    /// Hears what a guest has to say.
    fn advance(&mut self, at: usize) {
        match self.guests[at].listen(self.secrets.as_deref()) {
            Progress::Waits => {}
            Progress::Gone(reason) => {
                let guest = self.guests.swap_remove(at);
                self.complain(reason, &guest.from.to_string());
            }
            Progress::Failed(sentence) => {
                let guest = self.guests.swap_remove(at);
                self.complain_of("TLS", &guest.from.to_string(), &sentence);
            }
            Progress::OtherVersion(sentence) => {
                let mut guest = self.guests.swap_remove(at);
                self.answer(&mut guest.channel, Verdict::WrongVersion, None);
                self.complain_of("version", &guest.from.to_string(), &sentence);
            }
            Progress::NotProven => {
                let mut guest = self.guests.swap_remove(at);
                self.answer(&mut guest.channel, Verdict::NotProven, None);
                let reason = "it does not hold this ensemble's secret; give all servers the same ensemble.secret_file";
                self.complain_of(verdict_name(Verdict::NotProven), &guest.from.to_string(), reason);
            }
            Progress::Said(hello, proven) => {
                let guest = self.guests.swap_remove(at);
                self.decide(guest, &hello, proven.as_deref());
            }
        }
    }

    fn decide(&mut self, mut guest: Guest, hello: &Hello, proven: Option<&Proven>) {
        if let Some((verdict, reason)) = self.refusal(&guest, hello, proven.is_some()) {
            self.answer(&mut guest.channel, verdict, proven);
            let who = format!("{}, which says it is server {}", guest.from, hello.from);
            self.complain_of(verdict_name(verdict), &who, &reason);
            return;
        }
        let answer = self.answer(&mut guest.channel, Verdict::Welcome, proven);
        let Some(answer) = answer.filter(|_| guest.channel.socket().set_nonblocking(false).is_ok()) else {
            return self.complain("its connection was lost before the hello was answered", &guest.from.to_string());
        };
        let key = proven.map(|proven| proven.secret.frame_key(&proven.said, &answer));
        if let Err(error) = self.welcome(guest, hello, key) {
            tracing::error!(peer = hello.from, "a connection of the peer cannot be served, closed: {error}");
        }
    }

    /// Why this hello is not welcome.
    fn refusal(&self, guest: &Guest, hello: &Hello, has_secret: bool) -> Option<(Verdict, String)> {
        let proven = has_secret || guest.channel.tls().is_some();
        if hello.cluster != self.cluster {
            let reason = format!(
                "it is of the cluster {}, this server of {}; give all servers of an ensemble the same ensemble.cluster",
                hello.cluster, self.cluster
            );
            return Some((Verdict::WrongCluster, reason));
        }
        if NodeId(hello.to.into()) != self.own {
            let reason = format!(
                "it means server {}, this is server {}; correct its list of servers or the id here",
                hello.to, self.own.0
            );
            return Some((Verdict::WrongServer, reason));
        }
        let Some(place) = self.places.get(&NodeId(hello.from.into())) else {
            self.lineage.knocked(NodeId(hello.from.into()), hello.generation);
            let reason =
                "this server does not know it; give all servers the same list, or let it in with reconfig".to_owned();
            return Some((Verdict::NotConfigured, reason));
        };
        if let Some(connection) = guest.channel.tls()
            && let Err(reason) = tls::is_for(connection, &place.address)
        {
            return Some((Verdict::WrongCertificate, reason));
        }
        if place.shut_until.is_some_and(|until| Instant::now() < until) {
            return Some((Verdict::Busy, "what it said was not understood; it may try again soon".to_owned()));
        }
        let current = place.current.as_ref().filter(|current| !current.handle.is_over());
        if let Some(current) = current
            && (current.incarnation, current.token) != (hello.incarnation, hello.token)
        {
            let reason = format!(
                "another process with this id is connected from {}; look for a second server with this id (after the \
                 loss of a host it takes some seconds)",
                current.from
            );
            return Some((Verdict::Duplicate, reason));
        }
        // Behind all that may tell that it is somebody else.
        let met = if proven {
            self.lineage.meet(place.address.id, hello.generation)
        } else {
            // Whoever says so may be anybody: the server that is dialled at its address tells it too.
            self.lineage.hear(hello.generation).inspect(|_| place.lane.hurry())
        };
        if let Some(reason) = met {
            return Some((Verdict::WrongGeneration, reason.to_owned()));
        }
        let busy = current.is_some() && place.living.load(Ordering::Acquire) >= ENDING_MAX;
        busy.then(|| (Verdict::Busy, "its last connections have not ended yet".to_owned()))
    }

    /// Starts the receiver. A connection of the same process that still stands ends.
    fn welcome(&mut self, guest: Guest, hello: &Hello, key: Option<FrameKey>) -> std::io::Result<()> {
        let Guest { channel, from, .. } = guest;
        let place = self.places.get_mut(&NodeId(hello.from.into())).expect("it was looked up before");
        let budget = Budget::new(self.received_bytes_max);
        let handle = Handle::new(&channel, Arc::clone(&budget))?;
        let before = place.current.take().map(|before| {
            before.handle.make_way();
            before.thread
        });
        let stream = self.streams.fetch_add(1, Ordering::Relaxed);
        let peer = hello.from;
        let (tls, secret) = (channel.tls().is_some(), key.is_some());
        tracing::debug!(peer, %from, stream, tls, secret, "the peer has connected");
        place.living.fetch_add(1, Ordering::AcqRel);
        let receiver = Receiver {
            lane: Arc::clone(&place.lane),
            channel,
            key,
            handle: Arc::clone(&handle),
            budget,
            stream,
            incarnation: hello.incarnation,
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
                let (incarnation, token) = (hello.incarnation, hello.token);
                place.current = Some(Current { incarnation, token, stream, from, handle, thread });
                place.lane.hurry();
                Ok(())
            }
            Err(error) => {
                place.living.fetch_sub(1, Ordering::AcqRel);
                Err(error)
            }
        }
    }

    /// The answer, if it left; it always fits into an empty socket. A rejection tells nothing of this server to who has proven
    /// nothing, but to one with data of another generation, which is to find out which of the two is older.
    fn answer(&self, channel: &mut Channel, verdict: Verdict, proven: Option<&Proven>) -> Option<[u8; ANSWER_BYTES]> {
        let tells = match verdict {
            Verdict::NotProven | Verdict::WrongVersion => false,
            Verdict::Welcome | Verdict::WrongGeneration => true,
            _ => proven.is_some() || channel.tls().is_some(),
        };
        let own = (wire_id(self.own), self.lineage.own());
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
        if let Some(times) = self.complaints.entry(kind).or_default().again(Instant::now()) {
            tracing::warn!(from = who, times, "a connection to the port for servers is refused: {reason}");
        }
    }
}

fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Welcome => "welcome",
        Verdict::WrongCluster => "cluster",
        Verdict::WrongServer => "server",
        Verdict::NotConfigured => "not configured",
        Verdict::Duplicate => "duplicate",
        Verdict::Busy => "busy",
        Verdict::WrongCertificate => "certificate",
        Verdict::WrongVersion => "version",
        Verdict::WrongGeneration => "generation",
        Verdict::NotProven => "secret",
    }
}
