//! A sender: the thread that dials one peer for ever and writes what is queued for it.
//!
//! One thread a peer. While it has nothing to write it sleeps on its bell and on the socket. So it notices the end of a
//! connection at once. Meanwhile a thread with little to send writes it itself ([`PeerOutbox::flush`]). It never reads
//! frames and does not know what they mean.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use corral_types::SplitMix64;
use rustix::event::{PollFd, PollFlags};

use crate::net::peers::Events;
use crate::net::peers::channel::{self, Channel, wait};
use crate::net::peers::dial::{Dialled, Dialler, Failure};
use crate::net::peers::event::{ConnectionEvent, Direction, Reason};
use crate::net::peers::limits::{LASTING, ORDINARY, PAUSE_MAX, PAUSE_MIN, STALL_MAX, STOP_FLUSH_MAX};
use crate::net::peers::outbox::PeerOutbox;
use crate::net::peers::outlet::Outlet;
use crate::net::peers::traffic::Outgoing;
use crate::runtime::complaint::Complaint;
use crate::runtime::mailbox::SleepsIn;

/// Dials one peer for ever and writes the queued messages.
pub(crate) struct Sender {
    pub(crate) outbox: Arc<PeerOutbox>,
    pub(crate) queue: flume::Receiver<Outgoing>,
    pub(crate) dialler: Dialler,
    pub(crate) streams: Arc<AtomicU64>,
    pub(crate) events: Events,
    /// The sender of this peer before this one; its end is told before this one's begin.
    pub(crate) before: Option<JoinHandle<()>>,
    /// Randomness of the pauses.
    pub(crate) noise: SplitMix64,
}

impl Sender {
    /// Dials and writes until the outbox is stopped.
    pub(crate) fn run(mut self) {
        if let Some(before) = self.before.take() {
            // It was told to end, and its panic would have ended the process.
            let _ = before.join();
        }
        let mut pause = PAUSE_MIN;
        let mut complaints = Complaints::new(Instant::now());
        let mut resolves = None;
        while !self.is_stopping() {
            let dialled = self.dialler.dial(&self.outbox);
            self.tell_of_name(&mut resolves, dialled.as_ref().err().is_none_or(|failure| !failure.is_unresolved));
            match dialled {
                Ok(dialled) => {
                    let begin = Instant::now();
                    self.connected(dialled);
                    complaints = Complaints::new(Instant::now());
                    if begin.elapsed() >= LASTING {
                        // The peer may be there again at once.
                        pause = PAUSE_MIN;
                        continue;
                    }
                }
                Err(_) if self.is_stopping() => return,
                Err(reason) => {
                    self.outbox.traffic.counters.dials_failed.fetch_add(1, Ordering::Relaxed);
                    complaints.tell(&self.dialler, &reason);
                }
            }
            let waited = self.sleep(pause);
            pause = if waited { (pause * 2).min(PAUSE_MAX) } else { PAUSE_MIN };
        }
    }

    /// `before` is whether the name has resolved in earlier dials, `now` whether it does. Once it has, nothing is told.
    fn tell_of_name(&self, before: &mut Option<bool>, now: bool) {
        let is_told = if now { *before == Some(false) } else { before.is_none() };
        if is_told {
            (self.events)(ConnectionEvent::Name { peer: self.outbox.peer, resolves: now });
        }
        *before = Some(now || *before == Some(true));
    }

    fn is_stopping(&self) -> bool {
        self.outbox.is_stopping()
    }

    /// The life of one connection.
    fn connected(&mut self, dialled: Dialled) {
        let Dialled { channel, key } = dialled;
        let (peer, direction) = (self.outbox.peer, Direction::Out);
        let stream = self.streams.fetch_add(1, Ordering::Relaxed);
        let address = channel.socket().peer_addr().map_or_else(|_| "-".to_owned(), |address| address.to_string());
        let (tls, secret) = (channel.tls().is_some(), key.is_some());
        tracing::info!(peer = peer.0, %address, stream, tls, secret, "connected to the peer");
        self.outbox.open(stream);
        (self.events)(ConnectionEvent::Up { peer, direction, stream, incarnation: 0 });
        let socket = channel.socket().try_clone();
        let outlet = Outlet::new(channel, key, stream, self.queue.clone());
        let (mut outlet, reason) = match socket {
            Ok(socket) => self.serve(outlet, &socket),
            Err(error) => (outlet, Reason::of(&error)),
        };
        self.outbox.close();
        outlet.give_up(&self.outbox.traffic);
        match reason {
            Reason::Stopped => tracing::debug!(peer = peer.0, stream, "the connection to the peer ends: {reason}"),
            Reason::Closed | Reason::Reset => {
                tracing::info!(peer = peer.0, stream, "the connection to the peer is closed: {reason}; reconnecting");
            }
            _ => tracing::warn!(peer = peer.0, stream, "the connection to the peer is lost: {reason}; reconnecting"),
        }
        (self.events)(ConnectionEvent::Down { peer, direction, stream, reason });
    }

    /// Writes until the connection is over: why. `socket` is the connection's.
    fn serve(&self, mut outlet: Outlet, socket: &TcpStream) -> (Outlet, Reason) {
        loop {
            if self.outbox.is_doomed(outlet.stream) {
                return (outlet, Reason::QueueFull);
            }
            if let Err(reason) = self.write(&mut outlet) {
                return (outlet, reason);
            }
            if self.is_stopping() {
                return (outlet, Reason::Stopped);
            }
            let idled;
            (outlet, idled) = self.idle(outlet, socket);
            if let Err(reason) = idled {
                return (outlet, reason);
            }
        }
    }

    /// Sleeps until there is something to write that no other thread has written, or the connection ends.
    fn idle(&self, outlet: Outlet, socket: &TcpStream) -> (Outlet, Result<(), Reason>) {
        let bell = &self.outbox.bell;
        self.outbox.leave(outlet);
        bell.listen(SleepsIn::Runtime);
        // From here on a thread that leaves something to be done rings.
        let readable = if self.outbox.is_idle() { wait(socket, false, bell.outer(), None) } else { Ok(false) };
        bell.awake();
        let mut outlet = self.outbox.take_back();
        let done = match readable {
            Ok(true) => read_reset(&mut outlet.channel),
            Ok(false) => Ok(()),
            Err(error) => Err(Reason::of(&error)),
        };
        (outlet, done)
    }

    /// Writes what waits, however long the socket takes for it.
    fn write(&self, outlet: &mut Outlet) -> Result<(), Reason> {
        let (mut progress, mut taken) = (Instant::now(), 0);
        loop {
            let before = taken;
            if outlet.write(&self.outbox.traffic, &mut taken)? {
                return Ok(());
            }
            if taken > before {
                progress = Instant::now();
            }
            self.full(&mut outlet.channel, outlet.stream, progress)?;
        }
    }

    /// Sleeps until a socket that was full takes more.
    fn full(&self, channel: &mut Channel, stream: u64, progress: Instant) -> Result<(), Reason> {
        let timeout = if self.is_stopping() { STOP_FLUSH_MAX } else { STALL_MAX };
        let left = timeout.saturating_sub(progress.elapsed());
        if left.is_zero() {
            return Err(if self.is_stopping() { Reason::Stopped } else { Reason::Stalled });
        }
        match wait(channel.socket(), true, self.outbox.bell.outer(), Some(left)) {
            Err(error) => Err(Reason::of(&error)),
            Ok(_) if self.outbox.is_doomed(stream) => Err(Reason::QueueFull),
            Ok(true) => read_reset(channel),
            Ok(_) => Ok(()),
        }
    }

    /// Between half of the pause and all of it, so that servers do not dial in step. False when there is no reason to
    /// wait any more: the peer was heard of, or the connections are stopped.
    fn sleep(&mut self, pause: Duration) -> bool {
        let half = pause / 2;
        let nanos = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX).max(1);
        let deadline = Instant::now() + half + Duration::from_nanos(self.noise.below(nanos));
        let bell = self.outbox.bell.outer();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if self.is_stopping() || self.outbox.is_urgent() {
                return false;
            }
            if left.is_zero() {
                return true;
            }
            let mut polled = [PollFd::from_borrowed_fd(bell.as_fd(), PollFlags::IN)];
            if channel::pause(&mut polled, Some(left)).is_ok() && polled[0].revents().intersects(PollFlags::IN) {
                channel::silence(bell);
            }
        }
    }
}

/// Reads from a peer that sends nothing on this connection: most likely it has closed the connection.
fn read_reset(channel: &mut Channel) -> Result<(), Reason> {
    match channel.read(&mut [0; 64]) {
        Ok(0) => Err(Reason::Closed),
        Ok(_) => Err(Reason::Spoke),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
        Err(error) => Err(Reason::of(&error)),
    }
}

/// Dials that fail for one reason after the other.
struct Complaints {
    /// Since when the peer is not reached.
    since: Instant,
    reason: String,
    complaint: Complaint,
    /// It was said that this may be ordinary.
    excused: bool,
}

impl Complaints {
    fn new(since: Instant) -> Complaints {
        Complaints { since, reason: String::new(), complaint: Complaint::default(), excused: false }
    }

    /// A warning; while a peer that does not run may be starting, one line that is none.
    fn tell(&mut self, dialler: &Dialler, failure: &Failure) {
        let (peer, reason, now) = (&dialler.peer, &failure.words, Instant::now());
        let at = format!("{}:{}", peer.host, peer.port);
        if failure.is_ordinary && now.duration_since(self.since) < ORDINARY {
            if !std::mem::replace(&mut self.excused, true) {
                tracing::info!(peer = peer.id.0, %at, "the peer is not reached yet, retrying: {reason}");
            }
            return;
        }
        if self.reason != *reason {
            (self.reason, self.complaint) = (reason.clone(), Complaint::default());
        }
        let Some(times) = self.complaint.again(now) else { return };
        if failure.is_unlisted {
            tracing::info!(peer = peer.id.0, %at, times, "this server waits to be added to the ensemble: {reason}");
        } else {
            tracing::warn!(peer = peer.id.0, %at, times, "the peer is not reached, retrying: {reason}");
        }
    }
}
