//! Drives one shard actor: its mailbox, its clients' sockets, its clock.
//!
//! On the shard's executor. One task serves, and drives the consensus actor that may live beside it. A turn takes messages, bytes of
//! clients and proposals. Then all replies go in one call. Another task ticks. Both borrow the actor for the length of one call and
//! never across an await.
//!
//! While traffic is brisk, the thread sleeps in the ring of the clients' sockets: one call of the kernel, and no work of the runtime.
//! Otherwise the task sleeps in the runtime. Timers belong to the runtime, so it gets a pass every now and then.

mod closing;

use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::mem;
use std::net::TcpStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use corral_core::ids::{ConnId, ShardId, Zxid};
use corral_core::shard::audit::Record;
use corral_core::shard::conn::Close;
use corral_core::shard::{
    Answer, ClientEvent, Effects, NewClient, Question, SessionActivity, Shard, ShardEvent, ShardMessage, SlowRequest,
    SlowRequests,
};
use corral_engine::Garbage;
use corral_types::Micros;
use glommio::timer::Timer;

use crate::actor::consensus::Resident;
use crate::actor::shard::closing::{CLOSED_AT_ONCE, Closing, Lines};
use crate::actor::taken::Taken;
use crate::audit::AuditLog;
use crate::gauges::Gauges;
use crate::gauges::latencies::{Latencies, Stage};
use crate::messages::{Asker, Event, ToConsensus, ToControl, ToShard, ToWriter};
use crate::net::acceptor::{Accepted, Ended, SharedAcceptor};
use crate::net::client::{Clients, SocketEvent, ToSend};
use crate::runtime::clock::Clock;
use crate::runtime::complaint::Allowance;
use crate::runtime::mailbox::{Post, SleepsIn};
use crate::runtime::turn::{Piece, Turn};

/// Of slow requests.
const SLOW_LINES_PER_SECOND: u32 = 10;
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

/// Where a shard's messages go.
pub(crate) struct ShardChannels {
    pub(crate) consensus: Post<ToConsensus>,
    pub(crate) writer: flume::Sender<ToWriter>,
    pub(crate) control: flume::Sender<ToControl>,
    pub(crate) ended: flume::Sender<Ended>,
    pub(crate) audit: Option<AuditLog>,
    pub(crate) gauges: Arc<Gauges>,
    /// The newest zxid that the view of any shard is at.
    pub(crate) applied: Arc<AtomicU64>,
    /// How far this shard has applied.
    pub(crate) taken: Taken,
}

impl ShardChannels {
    /// How far the view of any shard has come.
    fn applied_anywhere(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }
}

/// Drives one shard: passes it messages and clients' bytes, and sends its replies and proposals.
pub(crate) struct ShardActor {
    id: ShardId,
    shard: RefCell<Shard>,
    /// Emptied, kept for their memory.
    effects: RefCell<Effects>,
    clients: Clients,
    closing: RefCell<Closing>,
    /// Connections with a four-letter command that is answered elsewhere.
    asking: RefCell<HashSet<ConnId>>,
    /// When the batch that is being applied was sent.
    batch_sent: Cell<Option<Micros>>,
    /// Stalled clients that took something, and how many bytes: to be gone on with when there is time.
    taken: RefCell<VecDeque<(ConnId, usize)>>,
    /// The serving task is at work, and will look at everything before it sleeps.
    serving: Cell<bool>,
    /// The shard's last connection has ended after it was told to drain.
    drained: Cell<bool>,
    /// Whether a session was active in the last tick.
    was_active: Cell<bool>,
    /// Requests that were answered in this turn.
    answered: RefCell<Vec<Answer>>,
    lines: RefCell<Lines>,
    slow_lines: RefCell<Allowance>,
    /// If this shard's ring serves the listener.
    acceptor: RefCell<Option<SharedAcceptor>>,
    channels: ShardChannels,
    latencies: Arc<Latencies>,
    clock: Clock,
    turn: Rc<Turn>,
}

impl ShardActor {
    pub(crate) fn new(
        shard: Shard,
        channels: ShardChannels,
        clients: Clients,
        clock: Clock,
        turn: Rc<Turn>,
    ) -> Rc<ShardActor> {
        Rc::new(ShardActor {
            id: shard.config().shard,
            shard: RefCell::new(shard),
            effects: RefCell::default(),
            clients,
            closing: RefCell::default(),
            asking: RefCell::new(HashSet::new()),
            batch_sent: Cell::default(),
            taken: RefCell::new(VecDeque::new()),
            serving: Cell::new(false),
            drained: Cell::new(false),
            was_active: Cell::new(false),
            answered: RefCell::default(),
            lines: RefCell::default(),
            slow_lines: RefCell::new(Allowance::of(SLOW_LINES_PER_SECOND)),
            acceptor: RefCell::default(),
            latencies: channels.gauges.add_latencies(),
            channels,
            clock,
            turn,
        })
    }

    /// Whether the shard is drained, and the sockets of its connections are closed.
    fn is_drained(&self) -> bool {
        self.drained.get() && self.closing.borrow().is_empty()
    }

    fn receive(self: &Rc<Self>, message: ToShard) {
        match message {
            ToShard::Message { message, sent } => {
                self.batch_sent.set(sent.filter(|_| matches!(message, ShardMessage::Batch(_))));
                self.shard.borrow_mut().handle(self.now(), ShardEvent::Message(message));
                self.note_applied();
                self.carry_out();
            }
            ToShard::Accepted(accepted) => self.accept(accepted),
            ToShard::Accept(acceptor) => *self.acceptor.borrow_mut() = Some(acceptor),
            ToShard::Listen(listener) => self.clients.listen(listener),
            ToShard::PieceAsked { asker, command, from } => {
                let piece = Box::new(self.shard.borrow_mut().report(command, from));
                let _ = self.channels.control.send(ToControl::Piece { asker, shard: self.id, piece });
            }
        }
    }

    /// Takes messages: one at least, and no more once they have used up a turn's time or a batch is applied in part.
    fn receive_some(self: &Rc<Self>, messages: impl IntoIterator<Item = ToShard>) {
        let piece = Turn::begin();
        let mut messages = messages.into_iter();
        while !self.shard.borrow().is_applying()
            && let Some(message) = messages.next()
        {
            self.receive(message);
            if self.turn.is_long(&piece) {
                return;
            }
        }
    }

    /// Ends the turn: hands out what was proposed, and goes on with long work for the length of another turn.
    fn end_turn(self: &Rc<Self>) {
        if !self.goes_on() {
            return;
        }
        let piece = Turn::begin();
        loop {
            self.shard.borrow_mut().turn(self.now());
            self.note_applied();
            self.carry_out();
            if !self.goes_on() || self.turn.is_long(&piece) {
                return;
            }
        }
    }

    /// Whether something is left for [`ShardActor::end_turn`].
    fn goes_on(&self) -> bool {
        self.shard.borrow().needs_turn() || !self.closing.borrow().is_empty()
    }

    fn handle(self: &Rc<Self>, now: Micros, event: ShardEvent<'_>) {
        self.shard.borrow_mut().handle(now, event);
        self.carry_out();
    }

    /// The view may have moved. Called before anything is sent.
    fn note_applied(&self) {
        let shard = self.shard.borrow();
        self.channels.applied.fetch_max(shard.view().zxid().0, Ordering::Release);
    }

    /// Carries out what the last calls of the shard asked for.
    fn carry_out(self: &Rc<Self>) {
        let mut effects = self.effects.take();
        loop {
            self.shard.borrow_mut().take_effects(&mut effects);
            if effects.is_empty() {
                break;
            }
            for id in effects.dirty.drain(..) {
                self.send_later(id);
            }
            for id in effects.resumed.drain(..) {
                self.clients.resume(id);
            }
            self.closing.borrow_mut().add(effects.closed.drain(..));
            for requests in effects.requests.drain(..) {
                let (shard, sent) = (self.id, self.now());
                let _ = self.channels.consensus.send(ToConsensus::Requests { shard, requests, sent });
            }
            self.answered.borrow_mut().append(&mut effects.answered);
            self.carry_out_seldom(&mut effects);
        }
        *self.effects.borrow_mut() = effects;
        if !self.shard.borrow().is_applying() {
            self.batch_sent.set(None);
        }
        self.close_some();
        self.rouse();
    }

    /// Effects that most calls do not have.
    fn carry_out_seldom(self: &Rc<Self>, effects: &mut Effects) {
        for _ in 0..mem::take(&mut effects.applied) {
            self.channels.taken.another();
            if let Some(sent) = self.batch_sent.get() {
                self.latencies.stage(Stage::Apply, self.now().since(sent).0);
            }
        }
        for question in effects.questions.drain(..) {
            self.ask(question);
        }
        for garbage in effects.garbage.drain(..) {
            let _ = self.channels.writer.send(ToWriter::Drop(Garbage::Core(garbage)));
        }
        if let Some(activity) = effects.activity.take() {
            self.report_activity(activity);
        }
        if !effects.audited.is_empty() {
            self.audit(mem::take(&mut effects.audited));
        }
        self.log_slow_requests(mem::take(&mut effects.slow));
        if mem::take(&mut effects.drained) {
            self.drained.set(true);
        }
    }

    fn log_slow_requests(&self, SlowRequests { kept, left_out }: SlowRequests) {
        let mut lines = self.slow_lines.borrow_mut();
        lines.leave_out(left_out);
        for SlowRequest { ms, operation, session, address, xid, path, update, zxid } in kept {
            let path = path.as_deref();
            let apply_us = self.batch_sent.get().filter(|_| update).map(|sent| self.now().since(sent).0);
            let apply_ms = apply_us.map(|us| ms.min(us / 1000));
            if let Some(left_out) = lines.line(self.clock.now().0) {
                tracing::info!(
                    took_ms = ms,
                    apply_ms,
                    operation,
                    path,
                    %session,
                    %address,
                    xid,
                    %zxid,
                    left_out,
                    "slow request"
                );
            }
        }
    }

    /// Notes the times of the requests that were answered in this turn.
    fn time_answers(&self) {
        self.latencies.answered(self.now(), self.answered.borrow_mut().drain(..));
    }

    fn now(&self) -> Micros {
        self.clock.now_us()
    }

    fn audit(&self, records: Vec<Record>) {
        if let Some(audit) = &self.channels.audit {
            let is_held = audit.write(records);
            if is_held {
                self.shard.borrow_mut().handle(self.now(), ShardEvent::HoldWrites);
            }
        }
    }

    // ----- clients -----

    fn accept(self: &Rc<Self>, Accepted { stream, peer, entropy, tls, meter }: Accepted) {
        let is_secured = tls.is_some();
        let (connection, subject) = tls.map(|secured| (secured.connection, secured.subject)).unzip();
        let client = NewClient { peer, entropy, meter, is_secured, subject: subject.flatten() };
        let accepted = self.shard.borrow_mut().accept(self.now(), client);
        let Some(id) = accepted else {
            let _ = self.channels.ended.send(Ended { shard: self.id, address: peer.ip() });
            return;
        };
        self.vacate(id.slot);
        self.clients.adopt(stream, peer, id, connection);
        self.carry_out();
    }

    /// Closes some of the sockets that are to be closed.
    fn close_some(&self) {
        for _ in 0..CLOSED_AT_ONCE {
            let next = self.closing.borrow_mut().next();
            let Some((id, why)) = next else { return };
            self.close(id, why);
        }
    }

    fn close(&self, id: ConnId, why: Close) {
        let Some(peer) = self.clients.close(id) else { return };
        self.lines.borrow_mut().log(peer, why, self.clock.now().0);
        if self.asking.borrow_mut().remove(&id) {
            let _ = self.channels.control.send(ToControl::Ended(Asker::Connection { shard: self.id, conn: id }));
        }
        let _ = self.channels.ended.send(Ended { shard: self.id, address: peer.ip() });
    }

    /// The slot has another connection from now on: the socket of the one before is closed first.
    fn vacate(&self, slot: u32) {
        if !self.clients.is_occupied(slot) {
            return;
        }
        let earlier = self.closing.borrow_mut().take_slot(slot);
        if let Some((earlier, why)) = earlier {
            self.close(earlier, why);
        }
    }

    /// The client is sent what there is for it when the turn ends.
    fn send_later(&self, id: ConnId) {
        if !self.shard.borrow().unsent(id).is_empty() {
            self.clients.send_later(id);
        }
    }

    fn report_activity(&self, activity: SessionActivity) {
        let is_active = !activity.sessions.is_empty();
        // A whole tick without an active session, after one with some.
        if self.was_active.replace(is_active) && !is_active {
            let _ = self.channels.writer.send(ToWriter::Calm);
        }
        let _ = self.channels.consensus.send(Event::SessionActivity(self.id, activity).into());
    }

    fn ask(&self, question: Question) {
        self.asking.borrow_mut().insert(question.conn);
        let _ = self.channels.control.send(ToControl::Asked { shard: self.id, question });
    }

    /// Wakes the serving task if a task beside it has left it something to do.
    fn rouse(&self) {
        let something = || self.goes_on() || self.clients.has_unsent() || self.clients.has_work() || self.is_drained();
        if !self.serving.get() && something() {
            self.clients.bell().rouse();
        }
    }
}

// ----- the tasks -----

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
