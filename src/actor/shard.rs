//! Drives one shard actor: its mailbox, its clients' sockets, its clock.
//!
//! On the shard's executor. One task serves: messages, what clients sent, proposals, replies. One goes on with long work, one ticks. All
//! of them borrow the actor for the length of one call and never across an await.

mod closing;
mod serve;

use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use corral_core::audit::Record;
use corral_core::change::AppliedBatch;
use corral_core::coordinator::Flow;
use corral_core::ids::{ConnId, Micros, Millis, ShardId};
use corral_core::shard::{Outputs, Question, Shard, SlowRequest};
use corral_engine::Garbage;
use glommio::timer::Timer;

use crate::actor::consensus::Resident;
use crate::actor::shard::closing::{Closing, Lines};
use crate::actor::taken::Taken;
use crate::audit::AuditLog;
use crate::gauges::Gauges;
use crate::gauges::latencies::{Latencies, Stage};
use crate::messages::{Event, ToConsensus, ToControl, ToShard, ToWriter};
use crate::net::acceptor::{Accepted, Ended, SharedAcceptor};
use crate::net::client::Clients;
use crate::runtime::clock::Clock;
use crate::runtime::complaint::Allowance;
use crate::runtime::mailbox::Post;
use crate::runtime::turn::Turn;

/// Proposals are sent on before they outgrow this, even within a turn.
const PROPOSAL_BYTES_MAX: usize = 256 * 1024;
/// Of slow requests.
const SLOW_LINES_PER_SECOND: u32 = 10;
/// Messages taken from the mailbox in one turn.
const MAILBOX_BATCH: usize = 16;
/// How often sessions heard from are reported.
const TICK: Duration = Duration::from_millis(200);

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
    /// What this shard has applied.
    pub(crate) taken: Taken,
}

impl ShardChannels {
    /// How far the view of any shard has come.
    fn applied_anywhere(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }
}

/// A batch that is applied up to its next transaction.
struct Unfinished {
    batch: Arc<AppliedBatch>,
    next: usize,
    sent: Micros,
}

/// See the module.
pub(crate) struct ShardActor {
    id: ShardId,
    shard: RefCell<Shard>,
    out: RefCell<Outputs>,
    clients: Clients,
    closing: RefCell<Closing>,
    /// Connections whose four-letter command is answered elsewhere.
    asking: RefCell<HashSet<ConnId>>,
    unfinished: RefCell<Option<Unfinished>>,
    /// When the batch that is being applied was sent.
    batch_sent: Cell<Option<Micros>>,
    /// Stalled clients that took something, and how many bytes: to be gone on with when there is time.
    taken: RefCell<VecDeque<(ConnId, usize)>>,
    /// The serving task is at work, and will look at everything before it sleeps.
    serving: Cell<bool>,
    /// The task that goes on with subtree walks, when there is none.
    walker: Cell<Option<Waker>>,
    syncs: RefCell<Vec<ConnId>>,
    draining: Cell<bool>,
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
            out: RefCell::new(Outputs::default()),
            clients,
            closing: RefCell::default(),
            asking: RefCell::new(HashSet::new()),
            unfinished: RefCell::default(),
            batch_sent: Cell::default(),
            taken: RefCell::new(VecDeque::new()),
            serving: Cell::new(false),
            walker: Cell::new(None),
            syncs: RefCell::new(Vec::new()),
            draining: Cell::new(false),
            lines: RefCell::default(),
            slow_lines: RefCell::new(Allowance::of(SLOW_LINES_PER_SECOND)),
            acceptor: RefCell::default(),
            latencies: channels.gauges.add_latencies(),
            channels,
            clock,
            turn,
        })
    }

    /// Serves until drained or until every sender to the mailbox is gone.
    /// `resident` is the consensus actor, if that lives on this executor; then it serves until that ends, too.
    pub(crate) async fn run(self: Rc<Self>, mailbox: flume::Receiver<ToShard>, resident: Option<Resident>) {
        glommio::spawn_local(Rc::clone(&self).walk()).detach();
        glommio::spawn_local(Rc::clone(&self).tick()).detach();
        self.serve(mailbox, resident).await;
    }

    fn is_drained(&self) -> bool {
        self.draining.get() && self.shard.borrow().connections() == 0 && self.closing.borrow().is_empty()
    }

    fn receive(self: &Rc<Self>, message: ToShard) {
        let now = self.begin();
        match message {
            ToShard::Batch { batch, sent } => {
                *self.unfinished.borrow_mut() = Some(Unfinished { batch, next: 0, sent });
                self.go_on_with_the_batch();
            }
            ToShard::Accepted(accepted) => self.accept(accepted),
            ToShard::Accept(acceptor) => *self.acceptor.borrow_mut() = Some(acceptor),
            ToShard::Listen(listener) => self.clients.listen(listener),
            ToShard::Synced(list) => self.with(|shard, out| list.iter().for_each(|id| shard.synced(now, *id, out))),
            ToShard::SyncRefused(list) => self.with(|shard, out| list.iter().for_each(|id| shard.hung_up(*id, out))),
            ToShard::Refused(list) => self.with(|shard, out| shard.refuse(now, list, out)),
            ToShard::Adopt(frozen) => self.with(|shard, out| shard.adopt_frozen(frozen, out)),
            ToShard::Swap(snapshot) => self.with(|shard, out| shard.swap_snapshot(snapshot, out)),
            ToShard::Install(view, sessions) => self.with(|shard, out| {
                shard.install(*view, sessions, out);
                self.channels.applied.fetch_max(shard.view().zxid().0, Ordering::Release);
            }),
            ToShard::Flow(note) => self.with(|shard, out| match note {
                Flow::Pause => shard.pause_proposals(now),
                Flow::Resume => shard.resume_proposals(now, out),
                Flow::Uncertain { generation, unsent_too } => shard.uncertain(now, generation, unsent_too, out),
                Flow::Leaderless => shard.leaderless(now, out),
                Flow::Distrusted => shard.distrust(now, out),
            }),
            ToShard::PieceAsked { asker, command, from } => {
                let piece = Box::new(self.shard.borrow_mut().report(command, from));
                let _ = self.channels.control.send(ToControl::Piece { asker, shard: self.id, piece });
            }
            ToShard::FourLetterAnswered { conn, text } => {
                self.with(|shard, out| shard.answer_four_letter(now, conn, text.into_bytes(), out));
            }
            ToShard::WritesGoOn => self.with(|shard, out| shard.hold_writes(now, false, out)),
            ToShard::Growth(refuses) => self.shard.borrow_mut().refuse_growth(refuses),
            ToShard::Shed { percent } => self.shard.borrow_mut().shed(now, percent),
            ToShard::SaslUsers(users) => self.shard.borrow_mut().set_sasl_users(users),
            ToShard::Drain => {
                self.draining.set(true);
                self.with(|shard, out| shard.drain(now, out));
            }
        }
    }

    /// Applies a turn's worth of the batch that is being applied. No message is taken before it is applied whole.
    fn go_on_with_the_batch(self: &Rc<Self>) {
        let Some(Unfinished { batch, next, sent }) = self.unfinished.take() else { return };
        let now = self.begin();
        self.batch_sent.set(Some(sent));
        self.with(|shard, out| {
            let next = shard.apply_some(now, &batch, next, out);
            // Before anything of it is sent.
            self.channels.applied.fetch_max(shard.view().zxid().0, Ordering::Release);
            if next < batch.txns.len() {
                *self.unfinished.borrow_mut() = Some(Unfinished { batch, next, sent });
            } else {
                self.channels.taken.another();
                self.latencies.stage(Stage::Apply, self.now().since(sent));
            }
        });
        self.batch_sent.set(None);
    }

    /// Whether a batch is applied in part.
    fn is_applying(&self) -> bool {
        self.unfinished.borrow().is_some()
    }

    /// Takes messages, up to a batch that cannot be applied in this turn, after what is left of the last one. One at least
    /// if that is done, and no more once they have used up a turn's time.
    fn receive_some(self: &Rc<Self>, messages: impl IntoIterator<Item = ToShard>) {
        let piece = Turn::begin();
        self.go_on_with_the_batch();
        let mut messages = messages.into_iter();
        while !self.is_applying()
            && let Some(message) = messages.next()
        {
            self.receive(message);
            if self.turn.is_long(&piece) {
                return;
            }
        }
    }

    /// One call of the actor, then everything it asked for.
    fn with(self: &Rc<Self>, call: impl FnOnce(&mut Shard, &mut Outputs)) {
        call(&mut self.shard.borrow_mut(), &mut self.out.borrow_mut());
        self.carry_out();
    }

    fn carry_out(self: &Rc<Self>) {
        loop {
            let mut out = self.out.take();
            for id in out.dirty.drain(..) {
                self.send_later(id);
            }
            for id in out.resumed.drain(..) {
                self.clients.resume(id);
            }
            self.closing.borrow_mut().add(out.closed.drain(..));
            self.syncs.borrow_mut().append(&mut out.syncs);
            for question in out.questions.drain(..) {
                self.ask(question);
            }
            for garbage in out.garbage.drain(..) {
                let _ = self.channels.writer.send(ToWriter::Drop(Garbage::Core(garbage)));
            }
            if !out.audited.is_empty() {
                self.audit(mem::take(&mut out.audited));
            }
            // Sending may have led to more; otherwise the emptied lists go back with their capacity.
            let mut held = self.out.borrow_mut();
            if held.is_empty() {
                *held = out;
                break;
            }
        }
        self.log_slow_requests();
        self.close_some();
        self.pass_on_proposals();
        if self.goes_on()
            && let Some(waker) = self.walker.take()
        {
            waker.wake();
        }
    }

    fn log_slow_requests(&self) {
        let (slow, left_out) = self.shard.borrow_mut().take_slow();
        let mut lines = self.slow_lines.borrow_mut();
        lines.leave_out(left_out);
        for SlowRequest { ms, operation, session, address, xid, path, update, zxid } in slow {
            let path = path.as_deref();
            let apply_us = self.batch_sent.get().filter(|_| update).map(|sent| self.now().since(sent));
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
        let mut shard = self.shard.borrow_mut();
        self.latencies.answered(self.now(), shard.take_answered());
    }

    fn now(&self) -> Micros {
        Micros(self.clock.now_us().0)
    }

    /// The time of the next call of the actor.
    fn begin(&self) -> Millis {
        let now = self.now();
        self.shard.borrow_mut().set_clock(now);
        now.millis()
    }

    fn audit(&self, records: Vec<Record>) {
        if let Some(audit) = &self.channels.audit {
            let is_held = audit.write(records);
            if is_held {
                self.shard.borrow_mut().hold_writes(self.clock.now(), true, &mut self.out.borrow_mut());
            }
        }
    }

    /// Whether something is done in pieces, between everybody else's work: subtree walks, the ends of connections.
    fn goes_on(&self) -> bool {
        self.shard.borrow().is_walking() || !self.closing.borrow().is_empty()
    }

    /// Goes on with that, a piece at a time.
    async fn walk(self: Rc<Self>) {
        loop {
            poll_fn(|cx| {
                if self.goes_on() {
                    return Poll::Ready(());
                }
                self.walker.set(Some(cx.waker().clone()));
                Poll::Pending
            })
            .await;
            let piece = Turn::begin();
            while self.goes_on() && !self.turn.is_long(&piece) {
                let now = self.begin();
                self.with(|shard, out| shard.walk_on(now, out));
            }
            self.turn.end(&piece);
            self.turn.yield_now().await;
        }
    }

    // ----- clients -----

    fn accept(self: &Rc<Self>, Accepted { stream, peer, entropy, tls, meter }: Accepted) {
        if self.draining.get() {
            let _ = self.channels.ended.send(Ended { shard: self.id, address: peer.ip() });
            return;
        }
        let id = self.shard.borrow_mut().accepted(self.clock.now(), peer, entropy);
        self.vacate(id.slot);
        if let Some(meter) = meter {
            self.shard.borrow_mut().metered(id, meter);
        }
        if tls.is_some() {
            self.shard.borrow_mut().secured(id);
        }
        let (connection, subject) = tls.map(|secured| (secured.connection, secured.subject)).unzip();
        self.clients.adopt(stream, peer, id, connection);
        if let Some(subject) = subject.flatten() {
            let now = self.clock.now();
            self.with(|shard, out| shard.proved_subject(now, id, &subject, out));
        }
    }

    /// The client is sent what there is for it when the turn ends.
    fn send_later(&self, id: ConnId) {
        if !self.shard.borrow().unsent(id).is_empty() {
            self.clients.send_later(id);
        }
    }

    // ----- proposals -----

    /// Proposals travel together at the end of the serving task's turn. What has grown large goes at once.
    fn pass_on_proposals(&self) {
        if self.shard.borrow().proposal_bytes() >= PROPOSAL_BYTES_MAX {
            self.send_batch();
        } else {
            self.rouse();
        }
    }

    fn send_batch(&self) {
        let mut shard = self.shard.borrow_mut();
        loop {
            let proposals = shard.take_proposals().unwrap_or_default();
            let last = shard.proposal_bytes() == 0;
            // A sync goes behind the writes before it.
            let syncs = if last { mem::take(&mut *self.syncs.borrow_mut()) } else { Vec::new() };
            let (shard, sent) = (self.id, self.now());
            let _ = self.channels.consensus.send(ToConsensus::Requests { shard, proposals, syncs, sent });
            if last {
                return;
            }
        }
    }

    async fn tick(self: Rc<Self>) {
        let mut spoken = false;
        loop {
            Timer::new(TICK).await;
            let now = self.clock.now();
            let mut heard = None;
            self.with(|shard, out| heard = Some(shard.tick(now, out)));
            let (upto, sessions) = heard.expect("the call was made");
            // A whole tick in which nobody said anything, after one in which somebody did.
            if mem::replace(&mut spoken, !sessions.is_empty()) && sessions.is_empty() {
                let _ = self.channels.writer.send(ToWriter::Calm);
            }
            let _ = self.channels.consensus.send(Event::SessionActivity { shard: self.id, upto, sessions }.into());
            self.clients.look_after();
            if let Some(acceptor) = &*self.acceptor.borrow() {
                acceptor.lock().look_after();
            }
        }
    }

    fn ask(&self, question: Question) {
        self.asking.borrow_mut().insert(question.conn);
        let _ = self.channels.control.send(ToControl::Asked { shard: self.id, question });
    }
}
