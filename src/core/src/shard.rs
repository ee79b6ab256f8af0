//! The shard actor: one core's connections, its view of the tree, its watches. Serves every read here, at once; turns
//! writes into proposals; moves its view only by committed batches, so it is always at exactly one zxid.
//!
//! Exists once per configured shard. Knows no socket, no clock, no other shard: the driver carries bytes and messages.
//!
//! Order within a connection: requests are answered in the order they came. A write is proposed the moment it is
//! read; a read behind it waits queued, and is served when that write's transaction has been applied and no later one.

mod barriers;
mod config;
mod delays;
mod flow;
mod greeting;
mod input;
mod leaderless;
mod long;
mod memory;
mod metered;
mod outcomes;
mod outputs;
mod proposal_flow;
mod requests;
mod shed;
mod slow;
mod warm;

use crate::audit::{self, Draft};
use crate::change::{AppliedBatch, AppliedTxn, Outcome};
use crate::command::{Proposals, Waiting};
use crate::conn::{AddressIdentities, BufferPool, Close, Conn, Conns, Pending};
use crate::delta::Delta;
use crate::ids::{ConnId, Micros, Millis, SessionId, ShardId, Zxid};
use crate::limits::REQUEST_COST;
use crate::load::{LoadMeter, Loads};
use crate::notify::{Event, Telling};
use crate::rate::AddressMeter;
use crate::report::Statistics;
use crate::session::Ephemerals;
use crate::snapshot::Snapshot;
use crate::view::{View, WARM_MAX};
use crate::watch::WatchTable;
use alloc::boxed::Box;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use barriers::Barriers;
pub use config::ShardConfig;
use core::cmp::Reverse;
use core::iter;
use core::mem;
use core::net::SocketAddr;
use delays::Delay;
use flow::{Costly, InFlight};
use greeting::LongCommands;
use hashbrown::HashMap;
use input::Round;
use memory::{SlowHolders, Wanting};
use metered::Metered;
pub use outputs::{Answer, Garbage, Outputs, Question};
use proposal_flow::ProposalFlow;
use shed::Shedding;
pub use slow::SlowRequest;
use slow::SlowRequests;
use xxhash_rust::xxh3::Xxh3DefaultBuilder;

/// See the module.
pub struct Shard {
    config: ShardConfig,
    pub(crate) view: View,
    pub(crate) watches: WatchTable,
    pub(crate) conns: Conns,
    sessions: HashMap<SessionId, ConnId, Xxh3DefaultBuilder>,
    /// Ephemerals of the sessions that are here, of those that have any.
    ephemerals: HashMap<SessionId, Ephemerals, Xxh3DefaultBuilder>,
    /// Living sessions of the whole server, here or not.
    pub(crate) sessions_alive: u64,
    /// Proposed and not taken yet: the tail of what is in flight.
    proposals: Waiting,
    flow: ProposalFlow,
    /// Each proposed command that has not come back, oldest first.
    in_flight: VecDeque<InFlight>,
    pub(crate) in_flight_bytes: usize,
    /// Bytes of the large requests among them.
    large_bytes: usize,
    costly: Costly,
    /// Bytes that all connections hold.
    held_bytes: usize,
    /// Connections that wait for memory, oldest first.
    wanting: VecDeque<Wanting>,
    long_commands: LongCommands,
    /// When those who hold memory were last looked at.
    looked_at: Millis,
    slow_holders: Option<Box<SlowHolders>>,
    /// A look at all connections that is under way.
    round: Option<Round>,
    /// Ticks since the last one began.
    ticks: usize,
    /// The first of these has its turn.
    admitting: bool,
    /// The first that waits for memory has waited so long that no others go past it.
    keeps_order: bool,
    /// The next read is the first of a connection's turn: it may be costly.
    has_turn: bool,
    /// Work done in this turn, see [`TURN_COST_MAX`](crate::limits::TURN_COST_MAX).
    pub(crate) spent: usize,
    /// The transaction that is applied next, if telling its events takes several turns.
    pub(crate) telling: Option<Box<Telling>>,
    /// Counts the transactions with events; it stands on the connections that were told of the latest.
    pub(crate) tellings: u32,
    /// Connections whose list of children is being written.
    lists: Vec<ConnId>,
    /// Changes of the next transaction of which they have kept what was.
    preserved: usize,
    /// Ended connections with watches.
    dropping: VecDeque<ConnId>,
    /// Stalled because too much is in flight from this shard.
    held_back: VecDeque<ConnId>,
    draining: bool,
    /// The newest state that any client of this server may have seen: no read shows an older one.
    pub(crate) floor: Zxid,
    /// A read that comes while the view is there may be served at once: the floor, or out of reach if reads wait for a
    /// barrier.
    pub(crate) gate: Zxid,
    barriers: HashMap<ConnId, Barriers, Xxh3DefaultBuilder>,
    /// Connections whose next read waits until the view has come that far.
    behind: BinaryHeap<Reverse<(Zxid, ConnId)>>,
    /// Connections whose long read goes on, or whose next requests, in turn.
    pub(crate) walking: VecDeque<ConnId>,
    /// What the next [`Shard::walk_on`] does first.
    walk_first: u8,
    delay: Delay,
    /// Connections that wait for the end of a membership change.
    underway: Vec<ConnId>,
    /// Of them, what the audit log is to say.
    audited_later: Vec<(ConnId, Box<Draft>)>,
    slow: SlowRequests,
    heard: Vec<ConnId>,
    /// Heard from before the last tick, each once: when they are still not heard from again, they are idle.
    cooling: VecDeque<ConnId>,
    /// Sessions heard from since the last report on connections that have ended.
    heard_and_ended: Vec<(SessionId, Millis)>,
    reported_at: Millis,
    buffers: BufferPool,
    addresses: AddressIdentities,
    /// Connections that have begun a SASL exchange, each with the nonce that it was sent; no text after the exchange.
    sasl: HashMap<ConnId, Box<str>, Xxh3DefaultBuilder>,
    metered: Metered,
    /// See [`Shard::refuse_growth`].
    refuses_growth: bool,
    shedding: Option<Shedding>,
    loads: LoadMeter,
    clock: Micros,
    answered: Vec<Answer>,
    /// Nonces made so far.
    nonces: u64,
    pub(crate) event: Event,
    pub(crate) statistics: Statistics,
}

/// The verdict on a connection after some of its input: go on, or end it.
type Served = Result<(), Close>;

impl Shard {
    /// A shard without connections, at the zxid of `view`.
    pub fn new(config: ShardConfig, view: View, sessions_alive: u64, now: Millis) -> Self {
        let watches = WatchTable::of(&config.limits);
        let seed = u64::from_le_bytes(*config.nonce_key.first_chunk().expect("it is longer"));
        let gate = Zxid(if config.linearizable { u64::MAX } else { 0 });
        Self {
            config,
            view,
            watches,
            conns: Conns::default(),
            sessions: HashMap::with_hasher(Xxh3DefaultBuilder::new()),
            ephemerals: HashMap::with_hasher(Xxh3DefaultBuilder::new()),
            sessions_alive,
            proposals: Waiting::default(),
            flow: ProposalFlow::default(),
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            large_bytes: 0,
            costly: Costly::default(),
            held_bytes: 0,
            wanting: VecDeque::new(),
            long_commands: LongCommands::default(),
            looked_at: now,
            slow_holders: None,
            round: None,
            ticks: 0,
            admitting: false,
            keeps_order: false,
            has_turn: false,
            spent: 0,
            telling: None,
            tellings: 0,
            lists: Vec::new(),
            preserved: 0,
            dropping: VecDeque::new(),
            held_back: VecDeque::new(),
            draining: false,
            floor: Zxid(0),
            gate,
            barriers: HashMap::with_hasher(Xxh3DefaultBuilder::new()),
            behind: BinaryHeap::new(),
            walking: VecDeque::new(),
            walk_first: 0,
            delay: Delay::default(),
            underway: Vec::new(),
            audited_later: Vec::new(),
            slow: SlowRequests::default(),
            heard: Vec::new(),
            cooling: VecDeque::new(),
            heard_and_ended: Vec::new(),
            reported_at: now,
            buffers: BufferPool::default(),
            addresses: AddressIdentities::new(),
            sasl: HashMap::with_hasher(Xxh3DefaultBuilder::new()),
            metered: Metered::default(),
            refuses_growth: false,
            shedding: None,
            loads: LoadMeter::new(now, seed),
            clock: Micros::of(now),
            answered: Vec::new(),
            nonces: 0,
            event: Event::default(),
            statistics: Statistics::default(),
        }
    }

    pub const fn config(&self) -> &ShardConfig {
        &self.config
    }

    pub const fn view(&self) -> &View {
        &self.view
    }

    /// Connections open now.
    pub const fn connections(&self) -> usize {
        self.conns.len()
    }

    /// A connection was accepted. `entropy` is fresh from the system's generator: it becomes the password of a session.
    pub fn accepted(&mut self, now: Millis, peer: SocketAddr, entropy: [u8; 16]) -> ConnId {
        let identities = self.addresses.of(peer.ip());
        self.conns.insert(|id| Conn::new(id, peer, entropy, now, identities))
    }

    /// A connection that was just accepted is read only while its address keeps to the limits on requests and bytes in a second.
    pub fn metered(&mut self, id: ConnId, address: Arc<AddressMeter>) {
        self.metered.add(id, address);
    }

    /// Another shard's view has come to this zxid, so its clients may have seen that state and told of it: what is
    /// received from here on is answered from no older one. The batch that leads there is on its way to this shard.
    pub fn observe(&mut self, zxid: Zxid) {
        self.floor = self.floor.max(zxid);
        self.gate = self.gate.max(zxid);
        if let Some(telling) = &mut self.telling {
            telling.seen = telling.seen.max(zxid);
        }
    }

    /// Bytes came in. They are taken whole; while the connection is stalled the driver reads no more of it.
    pub fn received(&mut self, now: Millis, id: ConnId, bytes: &[u8], out: &mut Outputs) {
        let Some(mut conn) = self.conns.take(id) else { return };
        self.spent = 0;
        conn.heard = now;
        conn.note_moved(bytes.len());
        self.statistics.bytes_received += bytes.len() as u64;
        if !self.metered.is_empty() {
            self.metered.count_bytes(&self.config.limits, now, id, bytes.len());
        }
        if !mem::replace(&mut conn.heard_noted, true) {
            self.heard.push(id);
        }
        let verdict = if conn.input.is_empty() {
            self.consume(now, &mut conn, bytes, out).map(|used| conn.input.append(&bytes[used..]))
        } else if conn.missing() > bytes.len() && !conn.is_closing() {
            conn.input.append(bytes);
            Ok(())
        } else {
            conn.input.append(bytes);
            self.consume_kept(now, &mut conn, out)
        };
        self.settle(now, conn, verdict, out);
    }

    /// From now on, or no longer, writes that add data are answered QUOTAEXCEEDED here, in their places, and not proposed.
    pub const fn refuse_growth(&mut self, refuses: bool) {
        self.refuses_growth = refuses;
    }

    /// Closes so many of a hundred connections in the next ticks. Their sessions go on.
    pub fn shed(&mut self, now: Millis, percent: u8) {
        self.shedding = Some(Shedding::begin(now, self.conns.len(), percent));
    }

    fn shed_some(&mut self, out: &mut Outputs) {
        let chosen = self.shedding.as_mut().map(|shedding| shedding.choose(&self.conns)).unwrap_or_default();
        for id in chosen {
            if let Some(conn) = self.conns.take(id) {
                self.end(&conn, Close::Shed, out);
            }
        }
        self.shedding.take_if(|shedding| shedding.is_over());
    }

    /// The load by clients in the last window.
    pub(crate) const fn loads(&self) -> &Loads {
        self.loads.last()
    }

    /// The time of the next call, finer than its argument.
    pub const fn set_clock(&mut self, now: Micros) {
        self.clock = now;
    }

    /// The same for a driver that has no such clock.
    fn at(&self, now: Millis) -> Micros {
        self.clock.max(Micros::of(now))
    }

    /// Replies since the last call, for the driver to time.
    pub fn take_answered(&mut self) -> impl Iterator<Item = Answer> {
        self.answered.drain(..)
    }

    /// Whether the driver should leave this connection's socket unread for now.
    pub fn is_stalled(&self, id: ConnId) -> bool {
        self.conns.get(id).is_none_or(|conn| conn.stalled)
    }

    /// Whether the connection ends when [`Shard::unsent`] has been sent.
    pub fn is_closing(&self, id: ConnId) -> bool {
        self.conns.get(id).is_some_and(Conn::is_closing)
    }

    /// The first of the bytes that wait to be sent: all, unless they are many.
    pub fn unsent(&self, id: ConnId) -> &[u8] {
        self.conns.get(id).map_or(&[], Conn::front)
    }

    /// How many bytes wait to be sent.
    pub fn unsent_bytes(&self, id: ConnId) -> usize {
        self.conns.get(id).map_or(0, Conn::unsent)
    }

    /// The socket took `count` bytes of [`Shard::unsent`].
    pub fn sent(&mut self, now: Millis, id: ConnId, count: usize, out: &mut Outputs) {
        let Some(mut conn) = self.conns.take(id) else { return };
        self.spent = 0;
        conn.note_moved(count);
        conn.forget_sent(count);
        self.statistics.bytes_sent += count as u64;
        if conn.unsent() == 0 {
            conn.sent = 0;
            conn.announced = false;
            self.buffers.take_back(&mut conn.output);
        }
        let verdict = self.catch_up(now, &mut conn).and_then(|()| self.resume(now, &mut conn, out));
        self.settle(now, conn, verdict, out);
    }

    /// The client sends no more. It may still read, as netcat does, which closes its side at once: what it has asked
    /// for is answered, then the connection ends.
    pub fn input_ended(&mut self, id: ConnId, out: &mut Outputs) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.mute = true;
        if conn.is_paid() {
            self.hung_up(id, out);
        }
    }

    /// The socket failed or the client closed it.
    pub fn hung_up(&mut self, id: ConnId, out: &mut Outputs) {
        if let Some(conn) = self.conns.take(id) {
            self.end(&conn, Close::HungUp, out);
        }
    }

    /// Bytes that all connections hold.
    pub(crate) const fn connection_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Bytes of proposals not taken yet that may go; the driver takes them before they are many.
    pub const fn proposal_bytes(&self) -> usize {
        if self.flow.paused { 0 } else { self.proposals.bytes() }
    }

    /// The turn's proposals, if there are any and they may go. No more at a time than the limit; the driver takes all,
    /// one behind the other.
    pub fn take_proposals(&mut self) -> Option<Proposals> {
        if self.flow.paused {
            return None;
        }
        let generation = self.flow.generation;
        self.proposals.take(self.config.limits.proposals_bytes_max).map(|taken| Proposals { generation, ..taken })
    }

    /// A committed batch: the only thing that moves the view. Transaction by transaction: events, then the new state,
    /// then the answers and the reads that waited for it. Those who wrote are sent to before those who only watched: no
    /// writer waits until thousands have been told.
    pub fn apply(&mut self, now: Millis, batch: &AppliedBatch, out: &mut Outputs) {
        let mut next = 0;
        while next < batch.txns.len() {
            next = self.apply_some(now, batch, next, out);
        }
    }

    /// Applies a batch from one of its transactions on, until the turn's work is done; gives the next transaction,
    /// which is the same one when not all of what goes before it is done, such as its events. Until all are applied no
    /// other batch may come, and nothing that goes by the batch's last zxid.
    pub fn apply_some(&mut self, now: Millis, batch: &AppliedBatch, from: usize, out: &mut Outputs) -> usize {
        self.spent = 0;
        let mut next = batch.txns.len();
        let mut answered = out.dirty.len();
        for (at, txn) in batch.txns.iter().enumerate().skip(from) {
            if self.spent >= self.config.limits.turn_cost_max {
                next = at;
                break;
            }
            let goes_on = self.telling.is_some();
            if !goes_on && self.may_serve_behind() {
                // Before the next events, which they would have to wait for.
                self.serve_those_behind(now, out);
                if self.may_serve_behind() {
                    next = at;
                    break;
                }
            }
            if (at - from).is_multiple_of(WARM_MAX) && !goes_on {
                let changes = batch.txns[at..].iter().take(WARM_MAX).flat_map(|txn| &txn.changes);
                self.view.warm(changes.map(|change| change.at().hash));
            }
            if let Some(origin) = txn.origin.filter(|origin| !goes_on && self.is_mine(*origin))
                && !self.serve_reads_before(now, origin.conn, out)
            {
                next = at;
                break;
            }
            let is_kept = self.lists.is_empty() || self.preserve(txn);
            if !is_kept || !self.tell_events(now, txn, out) {
                next = at;
                break;
            }
            self.spent += REQUEST_COST * (1 + txn.changes.len());
            for change in &txn.changes {
                self.note_ephemeral(change);
                self.view.apply(txn.zxid, change);
            }
            self.view.set_zxid(txn.zxid);
            (self.delay, self.preserved) = (Delay::default(), 0);
            if self.config.audit && self.config.shard == ShardId(0) {
                out.audited.extend(audit::ephemerals_deleted(txn));
            }
            if let Some(change) = txn.session {
                self.session_changed(now, change, txn.origin, out);
            }
            if let Some(origin) = txn.origin.filter(|origin| self.is_mine(*origin))
                && !self.ends_underway(now, origin.conn, txn, out)
                && self.came_back(origin.conn, txn, out)
            {
                let told = out.dirty.len();
                self.answer(now, origin.conn, txn, out);
                if out.dirty.get(told) == Some(&origin.conn) {
                    out.dirty.swap(answered, told);
                    answered += 1;
                }
            }
            if !self.behind.is_empty() {
                self.serve_those_behind(now, out);
            }
        }
        self.resume_held_back(now, out);
        self.close_if_drained(now, out);
        next
    }

    /// The work that the last call did, see [`TURN_COST_MAX`](crate::limits::TURN_COST_MAX).
    pub const fn spent(&self) -> usize {
        self.spent
    }

    /// Whether the transaction is no command that comes back, but the end of what one began.
    fn ends_underway(&mut self, now: Millis, conn: ConnId, txn: &AppliedTxn, out: &mut Outputs) -> bool {
        let Outcome::Later(outcome) = &txn.outcome else { return false };
        self.audit_later(conn, outcome, out);
        self.answer_later(now, conn, txn.zxid, outcome, out);
        true
    }

    /// A sync asked for in [`Outputs::syncs`] has come back from the leader, behind every batch it stands for.
    pub fn synced(&mut self, now: Millis, id: ConnId, out: &mut Outputs) {
        let Some(mut conn) = self.conns.take(id) else { return };
        if conn.is_closing() {
            return self.conns.put_back(conn);
        }
        let last = self.pass_barrier(id);
        if let Some(Pending::Sync { done, .. }) = conn.pending.back_mut()
            && last
        {
            *done = true;
            // A read in front of it may have become a long one meanwhile.
            conn.blocked = conn.pending.iter().any(Pending::blocks);
        }
        let verdict = self.catch_up(now, &mut conn).and_then(|()| self.resume(now, &mut conn, out));
        self.settle(now, conn, verdict, out);
    }

    /// Time passes; call it every few hundred milliseconds. Begins a look at all connections, with which
    /// [`Shard::walk_on`] goes on. Gives the sessions heard from since the last call, and the
    /// time up to which that list is complete: the last call's, because every socket has had its turn since.
    pub fn tick(&mut self, now: Millis, out: &mut Outputs) -> (Millis, Vec<(SessionId, Millis)>) {
        self.spent = 0;
        self.begin_round();
        let list = self.take_heard();
        self.look_for_slow_holders(now);
        self.look_around(now, out);
        self.let_ask(now);
        self.loads.tick(now);
        self.shed_some(out);
        self.statistics.rate_limited += self.metered.take_waits();
        let mut queue = self.metered.queue();
        while let Some(id) = self.metered.next_ready(&self.config.limits, now, &mut queue) {
            self.resume_by_id(now, id, out);
        }
        out.garbage.extend(iter::from_fn(|| self.watches.take_emptied()).map(Garbage::Watches));
        (mem::replace(&mut self.reported_at, now), list)
    }

    /// The server stops: nothing more is read. Connections end when every answer under way has been sent.
    pub fn drain(&mut self, now: Millis, out: &mut Outputs) {
        self.draining = true;
        self.close_if_drained(now, out);
    }

    fn close_if_drained(&mut self, now: Millis, out: &mut Outputs) {
        if !self.draining || !self.in_flight.is_empty() || self.conns.len() == 0 {
            return;
        }
        let all: Vec<ConnId> = self.conns.iter().map(|conn| conn.id).collect();
        for id in all {
            if let Some(mut conn) = self.conns.take(id) {
                // Not read since the stop began, so nobody can say that it was silent.
                (conn.heard, conn.heard_noted) = (now, true);
                self.settle(now, conn, Err(Close::Shutdown), out);
            }
        }
    }

    /// The state machine froze its delta at this shard's zxid; the shard uses the shared one from now on.
    pub fn adopt_frozen(&mut self, frozen: Arc<Delta>, out: &mut Outputs) {
        let own = self.view.adopt_frozen(frozen);
        out.garbage.push(Garbage::Delta(own));
    }

    /// The frozen delta is part of the new snapshot.
    pub fn swap_snapshot(&mut self, snapshot: Arc<Snapshot>, out: &mut Outputs) {
        let (old, frozen) = self.view.swap_snapshot(snapshot);
        out.garbage.push(Garbage::Snapshot(old));
        out.garbage.extend(frozen.map(Garbage::Frozen));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use corral_wire::fourletter::FourLetter;

    /// A shard of an empty tree that answers all commands but `wchc`.
    pub(crate) fn shard() -> Shard {
        let whitelist = FourLetter::ALL.iter().copied().filter(|word| *word != FourLetter::Wchc).collect();
        Shard::new(ShardConfig { whitelist, ..ShardConfig::default() }, View::empty(7), 0, Millis(0))
    }

    #[test]
    fn what_was_sent_is_not_kept_for_a_client_that_always_has_more_to_take() {
        const REPLY_BYTES: usize = 10_000;
        let (mut shard, mut out) = (shard(), Outputs::default());
        let id = shard.accepted(Millis(0), "10.0.0.1:1".parse().expect("an address"), [0; 16]);
        for number in 0..1000_u32 {
            let mut conn = shard.conns.take(id).expect("it is open");
            conn.output.extend(number.to_be_bytes().iter().cycle().take(REPLY_BYTES));
            shard.conns.put_back(conn);
            if number > 0 {
                // It takes all but the newest.
                assert_eq!(shard.unsent(id)[..4], (number - 1).to_be_bytes());
                shard.sent(Millis(1), id, REPLY_BYTES, &mut out);
            }
            let held = shard.conns.get(id).expect("it is open").output.len();
            assert!(held <= 64 * 1024 + 2 * REPLY_BYTES, "{held} bytes are held after {number} replies");
        }
    }
}
