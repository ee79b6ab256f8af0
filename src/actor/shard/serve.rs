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
use crate::actor::shard::ShardActor;
use crate::messages::{Event, ToShard};
use crate::net::client::{SocketEvent, ToSend};
use crate::runtime::mailbox::SleepsIn;
use crate::runtime::turn::{Piece, Turn};

/// Messages taken from the mailbox in one turn.
const MAILBOX_BATCH: usize = 16;
/// How often sessions heard from are reported.
const TICK: Duration = Duration::from_millis(200);
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

/// Serves until drained or until every sender to the mailbox is gone.
/// `resident` is the consensus actor, if that lives on this executor; then it serves until that ends, too.
pub(crate) async fn run(actor: Rc<ShardActor>, mailbox: flume::Receiver<ToShard>, resident: Option<Resident>) {
    glommio::spawn_local(tick(Rc::clone(&actor))).detach();
    serve(&actor, mailbox, resident).await;
}

async fn tick(actor: Rc<ShardActor>) {
    loop {
        Timer::new(TICK).await;
        actor.handle(actor.now(), ShardEvent::Tick);
        actor.clients.look_after();
        if let Some(acceptor) = &*actor.acceptor.borrow() {
            acceptor.lock().look_after();
        }
    }
}

/// Serves until the shard is drained and the resident is over.
async fn serve(actor: &Rc<ShardActor>, mailbox: flume::Receiver<ToShard>, resident: Option<Resident>) {
    let resident = RefCell::new(resident);
    if let Some(resident) = &mut *resident.borrow_mut() {
        resident.begin();
    }
    let is_quiet = || mailbox.is_empty() && resident.borrow().as_ref().is_none_or(Resident::is_quiet);
    let rest = || resident.borrow().as_ref().and_then(Resident::rest);
    let mut pace = Pace { passed: Instant::now(), brisk: false };
    let mut drained = false;
    loop {
        actor.serving.set(true);
        let piece = Turn::begin();
        // Events first: the actor knows of sent bytes before a message asks for them.
        let left = take_events(actor, &piece);
        actor.receive_some(mailbox.try_iter().take(MAILBOX_BATCH));
        actor.end_turn();
        if let Some(resident) = &mut *resident.borrow_mut() {
            resident.turn();
        }
        if actor.is_drained() && !mem::replace(&mut drained, true) {
            report_drained(actor);
        }
        if drained && resident.borrow().as_ref().is_none_or(Resident::is_over) {
            return;
        }
        let busy = left || !is_quiet() || actor.goes_on();
        if busy || !pace.brisk {
            send_all(actor, None);
        }
        actor.time_answers();
        actor.turn.end(&piece);
        actor.serving.set(false);
        sleep(actor, &mut pace, busy, is_quiet, rest()).await;
    }
}

/// The last connection is closed: nothing is applied for this shard's sake from here on.
fn report_drained(actor: &ShardActor) {
    actor.channels.taken.everything();
    let _ = actor.channels.consensus.send(Event::Drained.into());
}

/// Until there is something to do, or the resident has had its rest; not at all when there is, but for the
/// runtime's timers.
async fn sleep(actor: &ShardActor, pace: &mut Pace, busy: bool, is_quiet: impl Fn() -> bool, rest: Option<Duration>) {
    // Timers of the runtime would be too late for it.
    pace.brisk = actor.clients.sleeps_in_ring() && (pace.brisk || rest.is_some());
    let since = pace.passed.elapsed();
    if since >= PASS_EVERY || actor.goes_on() {
        send_all(actor, None);
        actor.turn.yield_now().await;
        pace.passed = Instant::now();
        return;
    }
    if busy || actor.clients.has_unsent() && !pace.brisk {
        return;
    }
    if pace.brisk {
        // Replies are sent before any polling.
        if actor.turn.polls() && (send_all(actor, None) || actor.turn.poll(|| actor.clients.poll() || !is_quiet())) {
            return;
        }
        actor.clients.bell().listen(SleepsIn::Ring);
        // An event that came in between rings no bell.
        let longest = rest.unwrap_or(PASS_EVERY).min(PASS_EVERY - since);
        let sleep = if is_quiet() { longest } else { Duration::ZERO };
        pace.brisk = send_all(actor, Some(sleep)) || sleep.is_zero() || rest.is_some();
        actor.clients.bell().awake();
        return;
    }
    if actor.clients.has_work() {
        return;
    }
    if let Some(rest) = rest {
        Timer::new(rest.min(NAP)).await;
        return;
    }
    let slept = Instant::now();
    if actor.clients.wait(is_quiet).await {
        pace.passed = Instant::now();
        pace.brisk = slept.elapsed() < PASS_EVERY;
    }
}

/// Handles the events of clients, until the turn is over. Whether something is left.
fn take_events(actor: &Rc<ShardActor>, piece: &Piece) -> bool {
    loop {
        let now = actor.now();
        let applied = Zxid(actor.channels.applied_anywhere());
        let mut spent = 0;
        for _ in 0..EVENTS {
            if spent >= SPENT_MAX {
                break;
            }
            match actor.clients.next() {
                None => return go_on_with_the_stalled(actor, piece),
                Some(SocketEvent::Accepted { stream }) => admit(actor, stream),
                Some(SocketEvent::Received { conn, bytes }) => {
                    pause_if_stalled(actor, conn);
                    handle_client(actor, now, conn, ClientEvent::Received { bytes: &bytes, applied });
                    spent += actor.shard.borrow().spent();
                }
                Some(SocketEvent::Ended { conn }) => handle_client(actor, now, conn, ClientEvent::InputEnded),
                Some(SocketEvent::Failed { conn }) => handle_client(actor, now, conn, ClientEvent::Failed),
                // A client that is not read until it has taken its replies has many more requests. It comes after
                // all other clients.
                Some(SocketEvent::Sent { conn, count }) if actor.shard.borrow().is_stalled(conn) => {
                    actor.taken.borrow_mut().push_back((conn, count));
                }
                Some(SocketEvent::Sent { conn, count }) => {
                    sent(actor, now, conn, count);
                    spent += actor.shard.borrow().spent();
                }
            }
        }
        if actor.turn.is_long(piece) {
            go_on_with_the_stalled(actor, piece);
            return true;
        }
    }
}

/// A client connected: one of this shard's from now on, or of another's.
fn admit(actor: &Rc<ShardActor>, stream: TcpStream) {
    // Without an address it is gone already.
    let Ok(peer) = stream.peer_addr() else { return };
    let acceptor = actor.acceptor.borrow();
    let Some(acceptor) = &*acceptor else { return };
    let admitted = acceptor.lock().admit(stream, peer);
    match admitted {
        Some((shard, accepted)) if shard == actor.id => actor.accept(accepted),
        Some((shard, accepted)) => acceptor.lock().pass_on(shard, accepted),
        None => {}
    }
}

/// Handles the replies that stalled clients have taken, one client after the other until the turn is over. It
/// handles one at least, whatever the other clients ask for. Whether one is left.
fn go_on_with_the_stalled(actor: &Rc<ShardActor>, piece: &Piece) -> bool {
    loop {
        let Some((conn, count)) = actor.taken.borrow_mut().pop_front() else { return false };
        sent(actor, actor.now(), conn, count);
        if actor.turn.is_long(piece) {
            return !actor.taken.borrow().is_empty();
        }
    }
}

fn sent(actor: &Rc<ShardActor>, now: Micros, conn: ConnId, count: usize) {
    handle_client(actor, now, conn, ClientEvent::Sent(count));
    actor.send_later(conn);
}

fn handle_client(actor: &Rc<ShardActor>, now: Micros, conn: ConnId, event: ClientEvent<'_>) {
    actor.handle(now, ShardEvent::Client(conn, event));
}

/// A client that the actor does not want to read is paused when more of it comes, not before. Most clients send
/// nothing more until they are answered. The actor keeps the bytes that have come: no more than the ring's buffers
/// hold.
fn pause_if_stalled(actor: &ShardActor, conn: ConnId) {
    if actor.shard.borrow().is_stalled(conn) {
        actor.clients.pause(conn);
    }
}

/// Sends a portion of the replies, and the requests for the kernel. Then it sleeps for this long at most if nothing is left.
/// Returns whether something has come.
fn send_all(actor: &ShardActor, sleep: Option<Duration>) -> bool {
    let shard = actor.shard.borrow();
    let to_send = |id| {
        let bytes = shard.unsent(id);
        ToSend { bytes, ends: shard.is_closing(id) && bytes.len() == shard.unsent_bytes(id) }
    };
    actor.clients.exchange(to_send, sleep)
}
