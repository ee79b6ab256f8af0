//! Drives one shard actor: its mailbox, its clients' sockets, its clock.
//!
//! On the shard's executor. One task reads the mailbox, one the ring of all clients' sockets (without a ring: one each
//! client's, and one more while it does not take what it is sent), one sends the turn's proposals, one ticks. All of
//! them borrow the actor for the length of one call and never across an await.

mod closing;
mod ring;
mod unsent;

use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::mem;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use corral_core::change::AppliedBatch;
use corral_core::coordinator::Flow;
use corral_core::ids::{ConnId, ShardId, Zxid};
use corral_core::shard::{Outputs, Question, Shard};
use corral_engine::Garbage;
use glommio::timer::Timer;

use crate::actor::consensus::Resident;
use crate::actor::shard::closing::Closing;
use crate::actor::shard::unsent::Unsent;
use crate::actor::taken::Taken;
use crate::messages::{Event, ToConsensus, ToFourLetter, ToShard, ToWriter};
use crate::net::Transport;
use crate::net::acceptor::{Accepted, Acceptor, Ended};
use crate::net::ring::SocketSlot;
use crate::net::stream::Stream;
use crate::runtime::clock::Clock;
use crate::runtime::complaint::Allowance;
use crate::runtime::mailbox::Post;
use crate::runtime::turn::Turn;

/// One read from a socket takes at most this; shared by all connections of the executor.
const SCRATCH_BYTES: usize = 64 * 1024;
/// Proposals are sent on before they outgrow this, even within a turn.
const PROPOSAL_BYTES_MAX: usize = 256 * 1024;
/// Bytes given to one socket before others have their turn.
const SENT_BYTES_MAX: usize = 1 << 20;
/// Lines for connections that ended.
const LINES_PER_SECOND: u32 = 100;
/// Messages taken from the mailbox in one turn.
const MAILBOX_BATCH: usize = 16;
/// How often sessions heard from are reported.
const TICK: Duration = Duration::from_millis(200);

/// Where a shard's messages go.
pub(crate) struct ShardChannels {
    pub(crate) consensus: Post<ToConsensus>,
    /// This shard's own mailbox.
    pub(crate) own: Post<ToShard>,
    pub(crate) writer: flume::Sender<ToWriter>,
    pub(crate) four_letter: flume::Sender<ToFourLetter>,
    pub(crate) ended: flume::Sender<Ended>,
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

/// One client of this shard, as the driver knows it.
struct Client {
    generation: u32,
    /// Bytes are with the ring, or it, or a task, waits for the socket to take more.
    writing: bool,
    /// Of the peer, in less room than a `SocketAddr` takes.
    address: IpAddr,
    port: u16,
    socket: Socket,
}

const _: () = assert!(size_of::<Option<Client>>() <= 40, "there is one for each connection, also an idle one");

/// A client's socket, on the data path that serves it.
#[derive(Clone)]
enum Socket {
    Ring(SocketSlot),
    Stream(Rc<Stream>),
}

/// What came of reading a client's stream.
enum Input {
    /// Bytes, and there may be more.
    Some,
    /// The client sends no more.
    Ended,
    /// The client is gone.
    Failed,
}

/// See the module.
pub(crate) struct ShardActor {
    id: ShardId,
    shard: RefCell<Shard>,
    out: RefCell<Outputs>,
    clients: RefCell<Vec<Option<Client>>>,
    scratch: RefCell<Vec<u8>>,
    closing: RefCell<Closing>,
    /// Connections whose four-letter command is answered elsewhere.
    asking: RefCell<HashSet<ConnId>>,
    /// A batch that is applied up to this transaction.
    unfinished: RefCell<Option<(Arc<AppliedBatch>, usize)>>,
    transport: Transport,
    /// Clients that are sent something at the end of the ring's turn.
    unsent: RefCell<Unsent>,
    /// Stalled clients that took something, and how many bytes: to be gone on with when there is time.
    taken: RefCell<VecDeque<(ConnId, usize)>>,
    /// The ring's task is at work, and will look at everything before it sleeps.
    serving: Cell<bool>,
    /// The task that sends proposals, when there is nothing to send.
    pump: Cell<Option<Waker>>,
    /// The task that goes on with subtree walks, when there is none.
    walker: Cell<Option<Waker>>,
    syncs: RefCell<Vec<ConnId>>,
    draining: Cell<bool>,
    /// Of closed connections.
    lines: RefCell<Allowance>,
    /// If this shard's ring serves the listener.
    acceptor: RefCell<Option<Acceptor>>,
    channels: ShardChannels,
    clock: Clock,
    turn: Rc<Turn>,
}

impl ShardActor {
    pub(crate) fn new(
        shard: Shard,
        channels: ShardChannels,
        transport: Transport,
        clock: Clock,
        turn: Rc<Turn>,
    ) -> Rc<ShardActor> {
        let scratch = if transport.ring().is_some() { Vec::new() } else { vec![0; SCRATCH_BYTES] };
        Rc::new(ShardActor {
            id: shard.config().shard,
            shard: RefCell::new(shard),
            out: RefCell::new(Outputs::default()),
            clients: RefCell::new(Vec::new()),
            scratch: RefCell::new(scratch),
            closing: RefCell::default(),
            asking: RefCell::new(HashSet::new()),
            unfinished: RefCell::default(),
            transport,
            unsent: RefCell::default(),
            taken: RefCell::new(VecDeque::new()),
            serving: Cell::new(false),
            pump: Cell::new(None),
            walker: Cell::new(None),
            syncs: RefCell::new(Vec::new()),
            draining: Cell::new(false),
            lines: RefCell::new(Allowance::of(LINES_PER_SECOND)),
            acceptor: RefCell::default(),
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
        if self.transport.ring().is_some() {
            return self.serve(mailbox, resident).await;
        }
        glommio::spawn_local(Rc::clone(&self).send_proposals()).detach();
        let resident = resident.map(|resident| glommio::spawn_local(resident.run()));
        self.take_messages(mailbox).await;
        if let Some(resident) = resident {
            resident.await;
        }
    }

    async fn take_messages(self: &Rc<Self>, mailbox: flume::Receiver<ToShard>) {
        loop {
            let first = if self.is_applying() { None } else { Some(mailbox.recv_async().await) };
            let first = match first {
                Some(Err(_)) => return,
                first => first.and_then(Result::ok),
            };
            let piece = Turn::begin();
            self.receive_some(first.into_iter().chain(mailbox.try_iter().take(MAILBOX_BATCH)));
            self.turn.end(&piece);
            if self.is_drained() {
                self.tell_drained();
                return;
            }
            self.turn.yield_if_over().await;
        }
    }

    fn is_drained(&self) -> bool {
        self.draining.get() && self.shard.borrow().connections() == 0 && self.closing.borrow().is_empty()
    }

    fn receive(self: &Rc<Self>, message: ToShard) {
        let now = self.clock.now();
        match message {
            ToShard::Batch(batch) => {
                *self.unfinished.borrow_mut() = Some((batch, 0));
                self.go_on_with_the_batch();
            }
            ToShard::Accepted(accepted) => self.accept(accepted),
            ToShard::Accept(acceptor) => *self.acceptor.borrow_mut() = Some(*acceptor),
            ToShard::Listen(listener) => {
                self.transport.ring().expect("only who has a ring is asked to listen").listen(listener);
            }
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
                let _ = self.channels.four_letter.send(ToFourLetter::Piece { asker, shard: self.id, piece });
            }
            ToShard::FourLetterAnswered { conn, text } => {
                self.with(|shard, out| shard.answer_four_letter(now, conn, text.into_bytes(), out));
            }
            ToShard::Drain => {
                self.draining.set(true);
                self.with(|shard, out| shard.drain(now, out));
                // The mailbox loop looks whether all are gone; the last one may go later, so it is woken then.
                self.wake_mailbox_if_drained();
            }
        }
    }

    /// Applies a turn's worth of the batch that is being applied. No message is taken before it is applied whole.
    fn go_on_with_the_batch(self: &Rc<Self>) {
        let Some((batch, from)) = self.unfinished.take() else { return };
        let now = self.clock.now();
        self.with(|shard, out| {
            let next = shard.apply_some(now, &batch, from, out);
            // Before anything of it is sent.
            self.channels.applied.fetch_max(shard.view().zxid().0, Ordering::Release);
            if next < batch.txns.len() {
                *self.unfinished.borrow_mut() = Some((batch, next));
            } else {
                self.channels.taken.another();
            }
        });
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
                self.send(id);
            }
            for id in out.resumed.drain(..) {
                self.resume(id);
            }
            self.closing.borrow_mut().add(out.closed.drain(..));
            self.syncs.borrow_mut().append(&mut out.syncs);
            for question in out.questions.drain(..) {
                self.ask(question);
            }
            for garbage in out.garbage.drain(..) {
                let _ = self.channels.writer.send(ToWriter::Drop(Garbage::Core(garbage)));
            }
            // Sending may have led to more; otherwise the emptied lists go back with their capacity.
            let mut held = self.out.borrow_mut();
            if held.is_empty() {
                *held = out;
                break;
            }
        }
        self.close_some();
        self.pass_on_proposals();
        if self.goes_on()
            && let Some(waker) = self.walker.take()
        {
            waker.wake();
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
                let now = self.clock.now();
                self.with(|shard, out| shard.walk_on(now, out));
            }
            self.turn.end(&piece);
            self.turn.yield_now().await;
        }
    }

    // ----- clients -----

    fn accept(self: &Rc<Self>, Accepted { stream, peer, entropy }: Accepted) {
        if self.draining.get() {
            let _ = self.channels.ended.send(Ended { shard: self.id, address: peer.ip() });
            return;
        }
        let id = self.shard.borrow_mut().accepted(self.clock.now(), peer, entropy);
        let socket = match self.transport.ring() {
            Some(ring) => Socket::Ring(ring.adopt(stream, id)),
            None => Socket::Stream(Rc::new(Stream::adopt(stream))),
        };
        let slot = id.slot as usize;
        self.vacate(id.slot);
        let mut clients = self.clients.borrow_mut();
        if clients.len() <= slot {
            clients.resize_with(slot + 1, || None);
        }
        let (address, port) = (peer.ip(), peer.port());
        let client = Client { generation: id.generation, writing: false, address, port, socket: socket.clone() };
        clients[slot] = Some(client);
        if let Socket::Stream(stream) = socket {
            glommio::spawn_local(Rc::clone(self).read(id, stream)).detach();
        }
    }

    /// The life of a stream's reading side.
    async fn read(self: Rc<Self>, id: ConnId, socket: Rc<Stream>) {
        loop {
            match poll_fn(|cx| self.poll_client(cx, id, &socket)).await {
                Input::Some => self.turn.yield_if_over().await,
                Input::Ended => return self.with(|shard, out| shard.input_ended(id, out)),
                Input::Failed => return self.with(|shard, out| shard.hung_up(id, out)),
            }
        }
    }

    /// One read, handed to the actor.
    fn poll_client(self: &Rc<Self>, cx: &mut Context<'_>, id: ConnId, socket: &Stream) -> Poll<Input> {
        if self.shard.borrow().is_stalled(id) {
            let gone = self.with_client(id, |_| ()).is_none();
            if gone {
                return Poll::Ready(Input::Failed);
            }
            socket.pause(cx.waker());
            return Poll::Pending;
        }
        let piece = Turn::begin();
        let mut scratch = self.scratch.borrow_mut();
        match socket.poll_read(cx, &mut scratch) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(0)) => Poll::Ready(Input::Ended),
            Poll::Ready(Err(_)) => Poll::Ready(Input::Failed),
            Poll::Ready(Ok(count)) => {
                let now = self.clock.now();
                let applied = Zxid(self.channels.applied_anywhere());
                self.with(|shard, out| {
                    shard.observe(applied);
                    shard.received(now, id, &scratch[..count], out);
                });
                self.turn.end(&piece);
                Poll::Ready(Input::Some)
            }
        }
    }

    fn with_client<T>(&self, id: ConnId, look: impl FnOnce(&mut Client) -> T) -> Option<T> {
        let mut clients = self.clients.borrow_mut();
        let client = clients.get_mut(id.slot as usize)?.as_mut().filter(|client| client.generation == id.generation)?;
        Some(look(client))
    }

    fn resume(&self, id: ConnId) {
        match self.with_client(id, |client| client.socket.clone()) {
            Some(Socket::Ring(place)) => self.transport.ring().map_or((), |ring| ring.resume(place)),
            Some(Socket::Stream(stream)) => stream.resume(),
            None => {}
        }
    }

    /// Sends what the socket takes, at once or at the end of the ring's turn; the rest goes when it takes more, and
    /// when others have had their turn.
    fn send(self: &Rc<Self>, id: ConnId) {
        let waiting = self.with_client(id, |client| client.writing).unwrap_or(true);
        if waiting {
            return;
        }
        if self.transport.ring().is_some() {
            return self.send_later(id);
        }
        if self.poll_send(&mut Context::from_waker(Waker::noop()), id) == Poll::Ready(true) {
            return;
        }
        self.with_client(id, |client| client.writing = true);
        glommio::spawn_local(Rc::clone(self).write(id)).detach();
    }

    async fn write(self: Rc<Self>, id: ConnId) {
        let poll = |cx: &mut Context<'_>| {
            let piece = Turn::begin();
            let sent = self.poll_send(cx, id);
            self.carry_out();
            self.turn.end(&piece);
            sent
        };
        while !poll_fn(poll).await {
            self.turn.yield_if_over().await;
        }
        self.with_client(id, |client| client.writing = false);
    }

    /// Ready with true when everything is sent or the client is gone; with false when there is more, but a client that
    /// takes whatever it is given must not keep the core from the others.
    fn poll_send(&self, cx: &mut Context<'_>, id: ConnId) -> Poll<bool> {
        let Some(Socket::Stream(stream)) = self.with_client(id, |client| client.socket.clone()) else {
            return Poll::Ready(true);
        };
        let mut room = SENT_BYTES_MAX;
        loop {
            let mut shard = self.shard.borrow_mut();
            let mut out = self.out.borrow_mut();
            let bytes = shard.unsent(id);
            if bytes.is_empty() {
                return Poll::Ready(true);
            }
            if room == 0 {
                return Poll::Ready(false);
            }
            match stream.poll_write(cx, &bytes[..bytes.len().min(room)]) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(count)) => {
                    room -= count;
                    shard.sent(self.clock.now(), id, count, &mut out);
                }
                Poll::Ready(Err(_)) => {
                    shard.hung_up(id, &mut out);
                    return Poll::Ready(true);
                }
            }
        }
    }

    fn wake_mailbox_if_drained(&self) {
        if self.is_drained() {
            // An empty list of syncs: nothing to do but to come round.
            let _ = self.channels.own.send(ToShard::Synced(Vec::new()));
        }
    }

    // ----- proposals -----

    /// Wakes the sending task, which runs after the tasks that are ready now: their proposals travel together. What has
    /// grown large goes at once.
    fn pass_on_proposals(&self) {
        let bytes = self.shard.borrow().proposal_bytes();
        if bytes >= PROPOSAL_BYTES_MAX {
            self.send_batch();
        } else if let Some(ring) = self.transport.ring() {
            self.rouse(ring);
        } else if (bytes > 0 || !self.syncs.borrow().is_empty())
            && let Some(waker) = self.pump.take()
        {
            waker.wake();
        }
    }

    async fn send_proposals(self: Rc<Self>) {
        loop {
            poll_fn(|cx| {
                let idle = self.shard.borrow().proposal_bytes() == 0 && self.syncs.borrow().is_empty();
                if idle {
                    self.pump.set(Some(cx.waker().clone()));
                    return Poll::Pending;
                }
                Poll::Ready(())
            })
            .await;
            self.send_batch();
        }
    }

    fn send_batch(&self) {
        let mut shard = self.shard.borrow_mut();
        loop {
            let proposals = shard.take_proposals().unwrap_or_default();
            let last = shard.proposal_bytes() == 0;
            // A sync goes behind the writes before it.
            let syncs = if last { mem::take(&mut *self.syncs.borrow_mut()) } else { Vec::new() };
            let _ = self.channels.consensus.send(Event::Requests { shard: self.id, proposals, syncs }.into());
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
            if let Some(ring) = self.transport.ring() {
                ring.look_after();
            }
            if let Some(acceptor) = &mut *self.acceptor.borrow_mut() {
                acceptor.look_after();
            }
        }
    }

    fn ask(&self, question: Question) {
        self.asking.borrow_mut().insert(question.conn);
        let _ = self.channels.four_letter.send(ToFourLetter::Asked { shard: self.id, question });
    }
}
