//! Drives one shard actor: its mailbox, its clients' sockets, its clock.
//!
//! On the shard's executor. One task serves: messages, what clients sent, proposals, replies. One ticks. Both borrow the actor for the
//! length of one call and never across an await.

mod closing;
pub(crate) mod serve;

use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use corral_core::ids::{ConnId, ShardId};
use corral_core::shard::audit::Record;
use corral_core::shard::conn::Close;
use corral_core::shard::{
    Answer, Effects, NewClient, Question, SessionActivity, Shard, ShardEvent, ShardMessage, SlowRequest, SlowRequests,
};
use corral_engine::Garbage;
use corral_types::Micros;

use crate::actor::shard::closing::{CLOSED_AT_ONCE, Closing, Lines};
use crate::actor::taken::Taken;
use crate::audit::AuditLog;
use crate::gauges::Gauges;
use crate::gauges::latencies::{Latencies, Stage};
use crate::messages::{Asker, Event, ToConsensus, ToControl, ToShard, ToWriter};
use crate::net::acceptor::{Accepted, Ended, SharedAcceptor};
use crate::net::client::Clients;
use crate::runtime::clock::Clock;
use crate::runtime::complaint::Allowance;
use crate::runtime::mailbox::Post;
use crate::runtime::turn::Turn;

/// Of slow requests.
const SLOW_LINES_PER_SECOND: u32 = 10;

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
