//! How a shard is served: one task drives it, and the consensus actor that may live beside it. A turn takes messages, bytes of clients
//! and proposals. Then all replies go in one call.
//!
//! On the shard's executor. While traffic is brisk, the thread sleeps in the ring of the clients' sockets: one call of the kernel, and no
//! work of the runtime. Otherwise the task sleeps in the runtime. Timers belong to the runtime, so it gets a pass every now and then.

use std::cell::RefCell;
use std::mem;
use std::net::TcpStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

use corral_core::ids::{ConnId, Zxid};
use corral_core::shard::{ClientEvent, ShardEvent};
use corral_types::Micros;
use glommio::timer::Timer;

use crate::actor::consensus::Resident;
use crate::actor::shard::{MAILBOX_BATCH, ShardActor};
use crate::messages::{Event, ToShard};
use crate::net::client::{SocketEvent, ToSend};
use crate::runtime::mailbox::SleepsIn;
use crate::runtime::turn::{Piece, Turn};

/// Events after which the time is looked at: a few cost less than a turn may take, whatever they are.
const EVENTS: usize = 8;
/// Work of the actor, in about nanoseconds, after which the time is looked at all the same.
const SPENT_MAX: usize = 100_000;
/// Timers are late by this at most, and a sleep that would be shorter is spent in the ring.
const PASS_EVERY: Duration = Duration::from_millis(2);
/// Longest sleep of a task that cannot sleep in a ring, when it is to go on soon.
const NAP: Duration = Duration::from_micros(100);

/// Where to sleep next, as the last sleeps tell.
struct Pace {
    /// When the runtime last looked at its timers.
    passed: Instant,
    brisk: bool,
}

impl ShardActor {
    /// Serves until the shard is drained and the resident is over.
    pub(super) async fn serve(self: Rc<Self>, mailbox: flume::Receiver<ToShard>, resident: Option<Resident>) {
        let resident = RefCell::new(resident);
        if let Some(resident) = &mut *resident.borrow_mut() {
            resident.begin();
        }
        let is_quiet = || mailbox.is_empty() && resident.borrow().as_ref().is_none_or(Resident::is_quiet);
        let rest = || resident.borrow().as_ref().and_then(Resident::rest);
        let mut pace = Pace { passed: Instant::now(), brisk: false };
        let mut drained = false;
        loop {
            self.serving.set(true);
            let piece = Turn::begin();
            // Events first: the actor knows of sent bytes before a message asks for them.
            let left = self.take_events(&piece);
            self.receive_some(mailbox.try_iter().take(MAILBOX_BATCH));
            self.end_turn();
            if let Some(resident) = &mut *resident.borrow_mut() {
                resident.turn();
            }
            if self.is_drained() && !mem::replace(&mut drained, true) {
                self.tell_drained();
            }
            if drained && resident.borrow().as_ref().is_none_or(Resident::is_over) {
                return;
            }
            let busy = left || !is_quiet() || self.goes_on();
            if busy || !pace.brisk {
                self.send_all(None);
            }
            self.time_answers();
            self.turn.end(&piece);
            self.serving.set(false);
            self.sleep(&mut pace, busy, is_quiet, rest()).await;
        }
    }

    /// The last connection is closed: nothing is applied for this shard's sake from here on.
    pub(super) fn tell_drained(&self) {
        self.channels.taken.everything();
        let _ = self.channels.consensus.send(Event::Drained.into());
    }

    /// Until there is something to do, or the resident has had its rest; not at all when there is, but for the
    /// runtime's timers.
    async fn sleep(&self, pace: &mut Pace, busy: bool, is_quiet: impl Fn() -> bool, rest: Option<Duration>) {
        // Timers of the runtime would be too late for it.
        pace.brisk = self.clients.sleeps_in_ring() && (pace.brisk || rest.is_some());
        let since = pace.passed.elapsed();
        if since >= PASS_EVERY || self.goes_on() {
            self.send_all(None);
            self.turn.yield_now().await;
            pace.passed = Instant::now();
            return;
        }
        if busy || self.clients.has_unsent() && !pace.brisk {
            return;
        }
        if pace.brisk {
            // Replies are sent before any polling.
            if self.turn.polls() && (self.send_all(None) || self.turn.poll(|| self.clients.poll() || !is_quiet())) {
                return;
            }
            self.clients.bell().listen(SleepsIn::Ring);
            // An event that came in between rings no bell.
            let longest = rest.unwrap_or(PASS_EVERY).min(PASS_EVERY - since);
            let sleep = if is_quiet() { longest } else { Duration::ZERO };
            pace.brisk = self.send_all(Some(sleep)) || sleep.is_zero() || rest.is_some();
            self.clients.bell().awake();
            return;
        }
        if self.clients.has_work() {
            return;
        }
        if let Some(rest) = rest {
            Timer::new(rest.min(NAP)).await;
            return;
        }
        let slept = Instant::now();
        if self.clients.wait(is_quiet).await {
            pace.passed = Instant::now();
            pace.brisk = slept.elapsed() < PASS_EVERY;
        }
    }

    /// Handles the events of clients, until the turn is over. Whether something is left.
    fn take_events(self: &Rc<Self>, piece: &Piece) -> bool {
        loop {
            let now = self.now();
            let applied = Zxid(self.channels.applied_anywhere());
            let mut spent = 0;
            for _ in 0..EVENTS {
                if spent >= SPENT_MAX {
                    break;
                }
                match self.clients.next() {
                    None => return self.go_on_with_the_stalled(piece),
                    Some(SocketEvent::Accepted { stream }) => self.admit(stream),
                    Some(SocketEvent::Received { conn, bytes }) => {
                        self.pause_if_stalled(conn);
                        self.handle_client(now, conn, ClientEvent::Received { bytes: &bytes, applied });
                        spent += self.shard.borrow().spent();
                    }
                    Some(SocketEvent::Ended { conn }) => self.handle_client(now, conn, ClientEvent::InputEnded),
                    Some(SocketEvent::Failed { conn }) => self.handle_client(now, conn, ClientEvent::Failed),
                    // A client that is not read until it has taken its replies has many more requests. It comes after
                    // all other clients.
                    Some(SocketEvent::Sent { conn, count }) if self.shard.borrow().is_stalled(conn) => {
                        self.taken.borrow_mut().push_back((conn, count));
                    }
                    Some(SocketEvent::Sent { conn, count }) => {
                        self.sent(now, conn, count);
                        spent += self.shard.borrow().spent();
                    }
                }
            }
            if self.turn.is_long(piece) {
                self.go_on_with_the_stalled(piece);
                return true;
            }
        }
    }

    /// A client connected: one of this shard's from now on, or of another's.
    fn admit(self: &Rc<Self>, stream: TcpStream) {
        // Without an address it is gone already.
        let Ok(peer) = stream.peer_addr() else { return };
        let acceptor = self.acceptor.borrow();
        let Some(acceptor) = &*acceptor else { return };
        let admitted = acceptor.lock().admit(stream, peer);
        match admitted {
            Some((shard, accepted)) if shard == self.id => self.accept(accepted),
            Some((shard, accepted)) => acceptor.lock().pass_on(shard, accepted),
            None => {}
        }
    }

    /// Handles the replies that stalled clients have taken, one client after the other until the turn is over. It
    /// handles one at least, whatever the other clients ask for. Whether one is left.
    fn go_on_with_the_stalled(self: &Rc<Self>, piece: &Piece) -> bool {
        loop {
            let Some((conn, count)) = self.taken.borrow_mut().pop_front() else { return false };
            self.sent(self.now(), conn, count);
            if self.turn.is_long(piece) {
                return !self.taken.borrow().is_empty();
            }
        }
    }

    fn sent(self: &Rc<Self>, now: Micros, conn: ConnId, count: usize) {
        self.handle_client(now, conn, ClientEvent::Sent(count));
        self.send_later(conn);
    }

    fn handle_client(self: &Rc<Self>, now: Micros, conn: ConnId, event: ClientEvent<'_>) {
        self.handle(now, ShardEvent::Client(conn, event));
    }

    /// A client that the actor does not want to read is paused when more of it comes, not before. Most clients send
    /// nothing more until they are answered. The actor keeps the bytes that have come: no more than the ring's buffers
    /// hold.
    fn pause_if_stalled(&self, conn: ConnId) {
        if self.shard.borrow().is_stalled(conn) {
            self.clients.pause(conn);
        }
    }

    /// Sends a portion of the replies, and the requests for the kernel. Then it sleeps for this long at most if nothing is left.
    /// Returns whether something has come.
    fn send_all(&self, sleep: Option<Duration>) -> bool {
        let shard = self.shard.borrow();
        let to_send = |id| {
            let bytes = shard.unsent(id);
            ToSend { bytes, ends: shard.is_closing(id) && bytes.len() == shard.unsent_bytes(id) }
        };
        self.clients.exchange(to_send, sleep)
    }

    /// Wakes the serving task if a task beside it has left it something to do.
    pub(super) fn rouse(&self) {
        let something = || self.goes_on() || self.clients.has_unsent() || self.clients.has_work() || self.is_drained();
        if !self.serving.get() && something() {
            self.clients.bell().rouse();
        }
    }
}
