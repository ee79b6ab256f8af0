//! The shard actor: one core's connections, its view of the tree, its watches. Serves every read here, at once; turns
//! writes into proposals; moves its view only by committed batches, so it is always at exactly one zxid.
//!
//! Exists once per configured shard. Knows no socket, no clock, no other shard: the driver carries bytes and messages.
//!
//! Order within a connection: requests are answered in the order they came. A write is proposed the moment it is
//! read; a read behind it waits queued, and is served when that write's transaction has been applied and no later one.
//!
//! # Order of calls
//!
//! 1. [`Shard::new`] makes a shard of the view that the state machine has.
//! 2. The driver calls [`Shard::accept`] for each new connection, and [`Shard::handle`] for each event.
//! 3. It calls [`Shard::turn`] as long as [`Shard::needs_turn`] is true, between the events of others. A turn goes on with work that takes
//!    several turns, such as a long list, and hands out the proposals since the last one.
//! 4. After each of these calls it takes the effects ([`Shard::take_effects`]), and carries them out before the next call.
//! 5. [`ShardEvent::Tick`] comes every few hundred milliseconds.
//! 6. After [`Effects::drained`] no connection is left, and the driver may stop.
//!
//! # Guarantees of the driver
//!
//! - Messages of the consensus actor keep their order, and each [`Requests`] arrives there in the order in which it was given.
//! - A connection in [`Effects::dirty`] is sent [`Shard::unsent`], and each sending is reported as [`ClientEvent::Sent`].
//! - A connection for which [`Shard::is_stalled`] is true is not read until it stands in [`Effects::resumed`]. Bytes that were read
//!   before that are given all the same.
//! - If [`Shard::is_closing`] is true, the socket may be closed as soon as all unsent bytes are sent.
//!
//! Bytes of a client may be arbitrary: they are answered, or they end the connection.

mod barriers;
mod config;
mod delays;
mod effects;
mod events;
mod flow;
mod greeting;
mod input;
mod leaderless;
mod long;
mod memory;
mod metered;
mod outcomes;
mod proposal_flow;
mod requests;
mod shed;
mod slow;
mod warm;

use crate::acl;
use crate::audit::Draft;
use crate::change::AppliedBatch;
use crate::command::{Proposals, Waiting};
use crate::conn::{AddressIdentities, BufferPool, Close, Conn, Conns};
use crate::ids::{ConnId, Micros, Millis, SessionId, Zxid};
use crate::load::{LoadMeter, Loads};
use crate::notify::{Event, Telling};
use crate::report::Statistics;
use crate::session::Ephemerals;
use crate::view::View;
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
use delays::Delay;
pub use effects::{Answer, Effects, Garbage, Question, Requests, SessionActivity};
use events::Mailbox;
pub use events::{ClientEvent, Flow, NewClient, ShardEvent, ShardMessage};
use flow::{Costly, InFlight};
use greeting::LongCommands;
use hashbrown::HashMap;
use input::Round;
use memory::{SlowHolders, Wanting};
use metered::Metered;
use proposal_flow::ProposalFlow;
use shed::Shedding;
pub use slow::{SlowRequest, SlowRequests};
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
    /// Nothing more is read, and connections end when every answer under way has been sent.
    draining: bool,
    /// [`Effects::drained`] was given.
    drained: bool,
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
    mailbox: Mailbox,
    effects: Effects,
    /// Connections whose sync waits for the end of the turn, each once in a row.
    syncs: Vec<ConnId>,
    /// Connections that wait for the end of a membership change.
    underway: Vec<ConnId>,
    /// Of them, what the audit log is to say.
    audited_later: Vec<(ConnId, Box<Draft>)>,
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
    /// See [`ShardEvent::Growth`].
    refuses_growth: bool,
    shedding: Option<Shedding>,
    loads: LoadMeter,
    /// The time of the call that is under way.
    clock: Micros,
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
            drained: false,
            floor: Zxid(0),
            gate,
            barriers: HashMap::with_hasher(Xxh3DefaultBuilder::new()),
            behind: BinaryHeap::new(),
            walking: VecDeque::new(),
            walk_first: 0,
            delay: Delay::default(),
            mailbox: Mailbox::default(),
            effects: Effects::default(),
            syncs: Vec::new(),
            underway: Vec::new(),
            audited_later: Vec::new(),
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

    /// Adds a connection that was accepted. `None` if the shard is draining: the socket is closed.
    pub fn accept(&mut self, now: Micros, client: NewClient) -> Option<ConnId> {
        if self.draining {
            return None;
        }
        self.clock = now;
        let NewClient { peer, entropy, meter, is_secured, subject } = client;
        let identities = self.addresses.of(peer.ip());
        let id = self.conns.insert(|id| {
            let mut conn = Conn::new(id, peer, entropy, now.millis(), identities);
            conn.is_secured = is_secured;
            conn
        });
        if let Some(meter) = meter {
            self.metered.add(id, meter);
        }
        if let Some(subject) = subject
            && let Some(mut conn) = self.conns.take(id)
        {
            // The connection ends if the subject is longer than identities may be.
            let verdict = self.add_identity(&mut conn, acl::identity("x509", &subject));
            self.settle(now.millis(), conn, verdict);
        }
        Some(id)
    }

    /// Handles an event. A message waits while [`Shard::is_applying`].
    pub fn handle(&mut self, now: Micros, event: ShardEvent<'_>) {
        self.clock = now;
        let now = now.millis();
        match event {
            ShardEvent::Client(id, event) => match event {
                ClientEvent::Received { bytes, applied } => {
                    self.observe(applied);
                    self.received(now, id, bytes);
                }
                ClientEvent::Sent(count) => self.sent(now, id, count),
                ClientEvent::InputEnded => self.input_ended(id),
                ClientEvent::Failed => self.hung_up(id),
            },
            ShardEvent::Message(message) if self.is_applying() => self.mailbox.waiting.push_back(message),
            ShardEvent::Message(message) => self.take_message(now, message),
            ShardEvent::Tick => self.tick(now),
            ShardEvent::HoldWrites => self.hold_writes(),
        }
        if self.proposal_bytes() >= self.config.limits.proposals_bytes_max / 4 {
            self.hand_out_requests();
        }
        self.note_drained();
    }

    /// Ends a turn: does one piece of the work that takes several turns, and hands out the requests of this one.
    pub fn turn(&mut self, now: Micros) {
        self.clock = now;
        if self.is_applying() {
            self.apply_next(now.millis());
        }
        if self.is_walking() {
            self.walk_on(now.millis());
        }
        self.hand_out_requests();
        self.note_drained();
    }

    /// Whether [`Shard::turn`] has something to do.
    pub fn needs_turn(&self) -> bool {
        self.is_applying() || self.proposal_bytes() > 0 || !self.syncs.is_empty() || self.is_walking()
    }

    /// Whether a batch is applied in part. The driver should take no messages until the batch is applied: it can only keep them here.
    /// Events of connections are handled meanwhile.
    pub fn is_applying(&self) -> bool {
        self.mailbox.unfinished.is_some() || !self.mailbox.waiting.is_empty()
    }

    /// Gives the effects of the calls so far in the place of `into`, which is empty. Called after each call of [`Shard::accept`],
    /// [`Shard::handle`] and [`Shard::turn`].
    pub fn take_effects(&mut self, into: &mut Effects) {
        debug_assert!(into.is_empty(), "effects are carried out before others are taken");
        mem::swap(&mut self.effects, into);
    }

    /// Applies the next transactions of a batch, for the length of a turn, or takes the next message behind it.
    fn apply_next(&mut self, now: Millis) {
        if let Some((batch, from)) = self.mailbox.unfinished.take() {
            self.apply_from(now, batch, from);
        } else if let Some(message) = self.mailbox.waiting.pop_front() {
            self.take_message(now, message);
        }
    }

    fn apply_from(&mut self, now: Millis, batch: Arc<AppliedBatch>, from: usize) {
        let next = self.apply_some(now, &batch, from);
        if next < batch.txns.len() {
            self.mailbox.unfinished = Some((batch, next));
        } else {
            self.effects.applied += 1;
        }
    }

    fn take_message(&mut self, now: Millis, message: ShardMessage) {
        match message {
            ShardMessage::Batch(batch) => self.apply_from(now, batch, 0),
            ShardMessage::Adopt(frozen) => self.adopt_frozen(frozen),
            ShardMessage::Swap(snapshot) => self.swap_snapshot(snapshot),
            ShardMessage::Install(view, sessions_alive) => self.install(View::clone(&view), sessions_alive),
            ShardMessage::Flow(flow) => match flow {
                Flow::Pause => self.pause_proposals(now),
                Flow::Resume => self.resume_proposals(now),
                Flow::Uncertain { generation, unsent_too } => self.uncertain(now, generation, unsent_too),
                Flow::Leaderless => self.leaderless(now),
                Flow::Distrusted => self.distrust(now),
            },
            ShardMessage::Growth(refuses) => self.refuses_growth = refuses,
            ShardMessage::Drain => self.drain(now),
            ShardMessage::Synced(conns) => conns.into_iter().for_each(|id| self.synced(now, id)),
            ShardMessage::SyncRefused(conns) => conns.into_iter().for_each(|id| self.hung_up(id)),
            ShardMessage::Refused(conns) => self.refuse(now, conns),
            ShardMessage::FourLetterAnswered { conn, text } => self.answer_four_letter(now, conn, text.into_bytes()),
            ShardMessage::WritesGoOn => self.release_writes(now),
            ShardMessage::Shed(percent) => self.shed(now, percent),
            ShardMessage::SaslUsers(users) => self.set_sasl_users(users),
        }
    }

    /// Bytes of the proposals that may go.
    const fn proposal_bytes(&self) -> usize {
        if self.flow.paused { 0 } else { self.proposals.bytes() }
    }

    /// Hands out all proposals that may go, and behind them the syncs.
    fn hand_out_requests(&mut self) {
        while self.proposal_bytes() > 0
            && let Some(taken) = self.proposals.take(self.config.limits.proposals_bytes_max)
        {
            let generation = self.flow.generation;
            let (proposals, syncs) = (Proposals { generation, ..taken }, Vec::new());
            self.effects.requests.push(Requests { proposals, syncs });
        }
        if self.syncs.is_empty() {
            return;
        }
        let syncs = mem::take(&mut self.syncs);
        match self.effects.requests.last_mut() {
            Some(last) => last.syncs.extend(syncs),
            None => self.effects.requests.push(Requests { syncs, ..Requests::default() }),
        }
    }

    fn note_drained(&mut self) {
        if self.draining && self.conns.len() == 0 && !mem::replace(&mut self.drained, true) {
            self.effects.drained = true;
        }
    }

    /// Another shard's view has come to this zxid, so its clients may have seen that state and told of it: what is
    /// received from here on is answered from no older one. The batch that leads there is on its way to this shard.
    fn observe(&mut self, zxid: Zxid) {
        self.floor = self.floor.max(zxid);
        self.gate = self.gate.max(zxid);
        if let Some(telling) = &mut self.telling {
            telling.seen = telling.seen.max(zxid);
        }
    }

    /// Closes so many of a hundred connections in the next ticks. Their sessions go on.
    fn shed(&mut self, now: Millis, percent: u8) {
        self.shedding = Some(Shedding::begin(now, self.conns.len(), percent));
    }

    fn shed_some(&mut self) {
        let chosen = self.shedding.as_mut().map(|shedding| shedding.choose(&self.conns)).unwrap_or_default();
        for id in chosen {
            if let Some(conn) = self.conns.take(id) {
                self.end(&conn, Close::Shed);
            }
        }
        self.shedding.take_if(|shedding| shedding.is_over());
    }

    /// The load by clients in the last window.
    pub(crate) const fn loads(&self) -> &Loads {
        self.loads.last()
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

    /// Bytes that all connections hold.
    pub(crate) const fn connection_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The work that the last call did, see [`TURN_COST_MAX`](crate::limits::TURN_COST_MAX).
    pub const fn spent(&self) -> usize {
        self.spent
    }

    /// Begins a look at all connections, with which [`Shard::walk_on`] goes on. The report of session activity is complete up to the
    /// last tick, because every socket has had its turn since.
    fn tick(&mut self, now: Millis) {
        self.spent = 0;
        self.begin_round();
        let sessions = self.take_heard();
        self.look_for_slow_holders(now);
        self.look_around(now);
        self.let_ask(now);
        self.loads.tick(now);
        self.shed_some();
        self.statistics.rate_limited += self.metered.take_waits();
        let mut queue = self.metered.queue();
        while let Some(id) = self.metered.next_ready(&self.config.limits, now, &mut queue) {
            self.resume_by_id(now, id);
        }
        self.effects.garbage.extend(iter::from_fn(|| self.watches.take_emptied()).map(Garbage::Watches));
        let upto = mem::replace(&mut self.reported_at, now);
        self.effects.activity = Some(SessionActivity { upto, sessions });
    }

    /// The server stops: nothing more is read. Connections end when every answer under way has been sent.
    fn drain(&mut self, now: Millis) {
        self.draining = true;
        self.close_if_drained(now);
    }

    fn close_if_drained(&mut self, now: Millis) {
        if !self.draining || !self.in_flight.is_empty() || self.conns.len() == 0 {
            return;
        }
        let all: Vec<ConnId> = self.conns.iter().map(|conn| conn.id).collect();
        for id in all {
            if let Some(mut conn) = self.conns.take(id) {
                // Not read since the stop began, so nobody can say that it was silent.
                (conn.heard, conn.heard_noted) = (now, true);
                self.settle(now, conn, Err(Close::Shutdown));
            }
        }
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

    /// A new connection at the time 0.
    pub(crate) fn client(shard: &mut Shard) -> ConnId {
        client_at(shard, Millis(0))
    }

    pub(crate) fn client_at(shard: &mut Shard, now: Millis) -> ConnId {
        let peer = "10.0.0.1:1".parse().expect("an address");
        shard.accept(Micros::of(now), NewClient::new(peer, [0; 16])).expect("it does not drain")
    }

    pub(crate) fn message(shard: &mut Shard, now: Millis, message: ShardMessage) {
        shard.handle(Micros::of(now), ShardEvent::Message(message));
    }

    #[test]
    fn what_was_sent_is_not_kept_for_a_client_that_always_has_more_to_take() {
        const REPLY_BYTES: usize = 10_000;
        let mut shard = shard();
        let id = client(&mut shard);
        for number in 0..1000_u32 {
            let mut conn = shard.conns.take(id).expect("it is open");
            conn.output.extend(number.to_be_bytes().iter().cycle().take(REPLY_BYTES));
            shard.conns.put_back(conn);
            if number > 0 {
                // It takes all but the newest.
                assert_eq!(shard.unsent(id)[..4], (number - 1).to_be_bytes());
                shard.sent(Millis(1), id, REPLY_BYTES);
            }
            let held = shard.conns.get(id).expect("it is open").output.len();
            assert!(held <= 64 * 1024 + 2 * REPLY_BYTES, "{held} bytes are held after {number} replies");
        }
    }
}
