//! The shard actor: one core's connections, its view of the tree, its watches. Serves every read here, at once; turns
//! writes into proposals; moves its view only by committed batches, so it is always at exactly one zxid.
//!
//! Exists once per configured shard. Knows no socket, no clock, no other shard: the driver carries bytes and messages.
//!
//! Order within a connection: requests are answered in the order they came. A write is proposed the moment it is read.
//! A read behind it waits in the queue. It is served when that write's transaction has been applied, and no later one.
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
#![doc = include_str!("shard/example.md")]

mod activity;
pub mod audit;
mod config;
pub mod conn;
mod conns;
pub mod counters;
mod delays;
mod effects;
mod events;
mod flow;
pub mod four_letter;
mod freshness;
mod greeting;
mod in_flight;
mod input;
mod leaderless;
mod lists;
pub mod load;
mod long;
mod memory;
mod metered;
mod outcomes;
mod passes;
pub mod pieces;
mod proposal_flow;
mod read;
mod reply;
mod requests;
pub mod sasl;
mod sasl_exchanges;
mod sessions;
mod shed;
mod slow;
mod turn;
mod walk;
mod warm;
pub mod watch;
mod watch_events;

use crate::apply::outcome::AppliedBatch;
use crate::ids::{ConnId, Millis, Zxid};
use crate::limits::PIECE_ENTRIES;
use crate::shard::conn::{AddressIdentities, BufferPool, Close, Conn};
use crate::shard::conns::Conns;
use crate::shard::counters::{ConnCounters, Statistics};
use crate::shard::load::LoadMeter;
use crate::shard::passes::Pass;
use crate::shard::pieces::Piece;
use crate::shard::watch::WatchTable;
use crate::tree::acl;
use crate::tree::view::View;
use activity::Activity;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
pub use config::ShardConfig;
use core::iter;
use core::mem;
use corral_types::Micros;
use corral_wire::fourletter::FourLetter;
use delays::Delay;
pub use effects::{Answer, Effects, Garbage, Question, Requests, SessionActivity};
use events::Mailbox;
pub use events::{ClientEvent, Flow, NewClient, ShardEvent, ShardMessage};
use flow::WriteQueues;
use freshness::Freshness;
use greeting::LongCommands;
use in_flight::InFlight;
use lists::Lists;
use memory::Memory;
use metered::Metered;
use proposal_flow::ProposalFlow;
use sasl_exchanges::SaslExchanges;
use sessions::Sessions;
use shed::Shedding;
pub use slow::{SlowRequest, SlowRequests};
use turn::Turn;
use watch_events::WatchEvents;

/// One core's connections, view, watches and sessions.
pub struct Shard {
    config: ShardConfig,
    view: View,
    watches: WatchTable,
    conns: Conns,
    sessions: Sessions,
    flow: ProposalFlow,
    in_flight: InFlight,
    writes: WriteQueues,
    memory: Memory,
    long_commands: LongCommands,
    /// The next read is the first of a connection's turn: it may be costly.
    has_turn: bool,
    turn: Turn,
    events: WatchEvents,
    lists: Lists,
    /// Ended connections with watches.
    dropping: VecDeque<ConnId>,
    draining: Draining,
    freshness: Freshness,
    /// Connections with a long read or next requests that go on, in turn.
    walking: VecDeque<ConnId>,
    /// The step with which the next [`Shard::walk_on`] begins.
    walk_first: u8,
    delay: Delay,
    mailbox: Mailbox,
    effects: Effects,
    activity: Activity,
    buffers: BufferPool,
    addresses: AddressIdentities,
    sasl: SaslExchanges,
    metered: Metered,
    /// See [`ShardMessage::Growth`].
    refuses_growth: bool,
    shedding: Option<Shedding>,
    loads: LoadMeter,
    /// The time of the call that is under way.
    clock: Micros,
    statistics: Statistics,
}

/// Whether the server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Draining {
    NotBegun,
    /// Nothing more is read, and connections end when every answer under way has been sent.
    Begun,
    /// [`Effects::drained`] was given.
    Done,
}

impl Draining {
    const fn has_begun(self) -> bool {
        !matches!(self, Self::NotBegun)
    }
}

/// The verdict on a connection after some of its input: go on, or end it.
type Served = Result<(), Close>;

impl Shard {
    /// A shard without connections, at the zxid of `view`.
    pub fn new(config: ShardConfig, view: View, sessions_alive: u64, now: Millis) -> Self {
        let (watches, memory) = (WatchTable::of(&config.limits), Memory::new(&config.limits, now));
        let seed = u64::from_le_bytes(*config.nonce_key.first_chunk().expect("it is longer"));
        let (freshness, turn) = (Freshness::new(config.linearizable), Turn::new(config.limits.turn_cost_max));
        Self {
            config,
            view,
            watches,
            conns: Conns::default(),
            sessions: Sessions::new(sessions_alive),
            flow: ProposalFlow::default(),
            in_flight: InFlight::default(),
            writes: WriteQueues::default(),
            memory,
            long_commands: LongCommands::default(),
            has_turn: false,
            turn,
            events: WatchEvents::default(),
            lists: Lists::default(),
            dropping: VecDeque::new(),
            draining: Draining::NotBegun,
            freshness,
            walking: VecDeque::new(),
            walk_first: 0,
            delay: Delay::default(),
            mailbox: Mailbox::default(),
            effects: Effects::default(),
            activity: Activity::new(now),
            buffers: BufferPool::default(),
            addresses: AddressIdentities::new(),
            sasl: SaslExchanges::default(),
            metered: Metered::default(),
            refuses_growth: false,
            shedding: None,
            loads: LoadMeter::new(now, seed),
            clock: now.micros(),
            statistics: Statistics::default(),
        }
    }

    /// The configuration. Of the fields, `sasl_users` may change.
    pub const fn config(&self) -> &ShardConfig {
        &self.config
    }

    /// The tree as this shard serves it, at the zxid up to which it applied changes.
    pub const fn view(&self) -> &View {
        &self.view
    }

    /// Connections open now.
    pub const fn connections(&self) -> usize {
        self.conns.len()
    }

    /// Adds a connection that was accepted. `None` if the shard is draining: the socket is closed.
    pub fn accept(&mut self, now: Micros, client: NewClient) -> Option<ConnId> {
        if self.draining.has_begun() {
            return None;
        }
        self.clock = now;
        let NewClient { peer, entropy, meter, is_secured, subject } = client;
        let identities = self.addresses.of(peer.ip());
        let id = self.conns.insert(|id| {
            let mut conn = Conn::new(id, peer, entropy, Millis::of(now), identities);
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
            self.settle(Millis::of(now), conn, verdict);
        }
        Some(id)
    }

    /// Handles an event. A message waits while [`Shard::is_applying`].
    pub fn handle(&mut self, now: Micros, event: ShardEvent<'_>) {
        self.clock = now;
        let now = Millis::of(now);
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
            self.apply_next(Millis::of(now));
        }
        if self.is_walking() {
            self.walk_on(Millis::of(now));
        }
        self.hand_out_requests();
        self.note_drained();
    }

    /// Whether [`Shard::turn`] has something to do.
    pub fn needs_turn(&self) -> bool {
        self.is_applying() || self.proposal_bytes() > 0 || self.freshness.has_syncs() || self.is_walking()
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
        if self.flow.paused { 0 } else { self.in_flight.waiting_bytes() }
    }

    /// Hands out all proposals that may go, and behind them the syncs.
    fn hand_out_requests(&mut self) {
        if !self.flow.paused {
            self.in_flight.hand_out(self.config.limits.proposals_bytes_max, &mut self.effects.requests);
        }
        if !self.freshness.has_syncs() {
            return;
        }
        let syncs = self.freshness.take_syncs();
        match self.effects.requests.last_mut() {
            Some(last) => last.syncs.extend(syncs),
            None => self.effects.requests.push(Requests { syncs, ..Requests::default() }),
        }
    }

    fn note_drained(&mut self) {
        if self.draining == Draining::Begun && self.conns.len() == 0 {
            self.draining = Draining::Done;
            self.effects.drained = true;
        }
    }

    /// Notes that another shard's view has come to this zxid, so that its clients may have seen that state. Requests
    /// received from now on are answered from no older state. The batch that leads there is on its way to this shard.
    fn observe(&mut self, zxid: Zxid) {
        self.freshness.observe(zxid);
        self.events.observe(zxid);
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

    /// This shard's part of an answer to a four-letter command, from a place that an earlier piece gave; 0 begins. `crst` and `srst`
    /// are carried out here.
    pub fn report(&mut self, command: FourLetter, from: usize) -> Piece {
        match command {
            FourLetter::Crst => {
                self.conns.range_mut(from, PIECE_ENTRIES).for_each(|conn| conn.counters = ConnCounters::reset())
            }
            FourLetter::Srst => self.statistics = Statistics::default(),
            _ => {}
        }
        let pass = Pass {
            config: &self.config,
            view: &self.view,
            watches: &self.watches,
            conns: &self.conns,
            sessions: &self.sessions,
            loads: self.loads.last(),
            statistics: &self.statistics,
            connection_bytes: self.memory.held(),
        };
        pass.piece(command, from)
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
        self.conns.get(id).map_or(&[], |conn| conn.output.front())
    }

    /// How many bytes wait to be sent.
    pub fn unsent_bytes(&self, id: ConnId) -> usize {
        self.conns.get(id).map_or(0, Conn::unsent)
    }

    /// The work that the last call did, see [`TURN_COST_MAX`](crate::limits::TURN_COST_MAX).
    pub const fn spent(&self) -> usize {
        self.turn.spent()
    }

    /// Begins a look at all connections, with which [`Shard::walk_on`] goes on. The report of session activity is complete up to the
    /// last tick, because every socket has had its turn since.
    fn tick(&mut self, now: Millis) {
        self.turn.begin();
        self.activity.begin_round(self.conns.slots());
        let (upto, sessions) = self.activity.report(now, &mut self.conns);
        self.memory.look_for_slow_holders(now);
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
        self.effects.activity = Some(SessionActivity { upto, sessions });
    }

    /// The server stops: nothing more is read. Connections end when every answer under way has been sent.
    fn drain(&mut self, now: Millis) {
        self.draining = Draining::Begun;
        self.close_if_drained(now);
    }

    fn close_if_drained(&mut self, now: Millis) {
        if !self.draining.has_begun() || !self.in_flight.is_empty() || self.conns.len() == 0 {
            return;
        }
        let all: Vec<ConnId> = self.conns.iter().map(|conn| conn.id).collect();
        for id in all {
            if let Some(mut conn) = self.conns.take(id) {
                // It has not been read since the stop began, so it may not have been silent.
                (conn.active_at, conn.activity.noted) = (now, true);
                self.settle(now, conn, Err(Close::Shutdown));
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

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
        shard.accept(now.micros(), NewClient::new(peer, [0; 16])).expect("it does not drain")
    }

    pub(crate) fn message(shard: &mut Shard, now: Millis, message: ShardMessage) {
        shard.handle(now.micros(), ShardEvent::Message(message));
    }
}
