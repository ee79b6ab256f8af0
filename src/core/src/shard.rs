//! The shard actor: one core's connections, its view of the tree, its watches. Serves every read here, at once; turns
//! writes into proposals; moves its view only by committed batches, so it is always at exactly one zxid.
//!
//! Exists once per configured shard. Knows no socket, no clock, no other shard: the driver carries bytes and messages.
//!
//! Order within a connection: requests are answered in the order they came. A write is proposed the moment it is read.
//! A read behind it waits in the queue. It is served when that write's transaction has been applied, and no later one.
//!
//! # Layers
//!
//! `state` holds the parts of a shard; each part guards its own fields. Code that needs several parts stands in layers of functions.
//! A layer calls only what stands before it:
//!
//! `ending`, `leaderless`, `authentication`, `proposing`, `long`, `serving`, `greeting`, `input`, `resuming`, `applying`,
//! `upkeep`, `several_turns`, `messages`.
//!
//! Where a new function belongs:
//!
//! - Code that needs the fields of one part alone: a method in the file of that part, such as `freshness`, `memory`, `lists` or `in_flight`.
//! - `read`, its folder and `walk` serve reads by op code. `reply` encodes. `audit` drafts records. `passes` gives pieces for reports.
//! - Code that needs several parts: the lowest layer that can hold it. All functions that it calls stand in that layer or before it.
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
mod applying;
pub mod audit;
mod authentication;
mod config;
pub mod conn;
mod conns;
pub mod counters;
mod delays;
mod effects;
mod ending;
mod events;
pub mod four_letter;
mod freshness;
mod greeting;
mod in_flight;
mod input;
mod leaderless;
mod lists;
pub mod load;
mod long;
mod long_commands;
mod memory;
mod messages;
mod metered;
mod passes;
pub mod pieces;
mod proposal_flow;
mod proposing;
mod read;
mod reply;
mod resuming;
pub mod sasl;
mod sasl_exchanges;
mod serving;
mod sessions;
mod several_turns;
mod shed;
mod slow;
mod state;
mod turn;
mod upkeep;
mod walk;
mod warm;
pub mod watch;
mod watch_events;
mod write_queues;

use crate::apply::outcome::AppliedBatch;
use crate::ids::{ConnId, Millis, Zxid};
use crate::limits::PIECE_ENTRIES;
use crate::shard::conn::Conn;
use crate::shard::counters::{ConnCounters, Statistics};
use crate::shard::passes::Pass;
use crate::shard::pieces::Piece;
use crate::shard::state::{Draining, ShardState};
use crate::tree::acl;
use crate::tree::view::View;
use alloc::sync::Arc;
pub use config::ShardConfig;
use core::mem;
use corral_types::Micros;
use corral_wire::fourletter::FourLetter;
pub use effects::{Answer, Effects, Garbage, Question, Requests, SessionActivity};
pub use events::{ClientEvent, Flow, NewClient, ShardEvent, ShardMessage};
pub use slow::{SlowRequest, SlowRequests};

/// One core's connections, view, watches and sessions.
pub struct Shard {
    state: ShardState,
}

impl Shard {
    /// A shard without connections, at the zxid of `view`.
    pub fn new(config: ShardConfig, view: View, sessions_alive: u64, now: Millis) -> Self {
        Self { state: ShardState::new(config, view, sessions_alive, now) }
    }

    /// The configuration. Of the fields, `sasl_users` may change.
    pub const fn config(&self) -> &ShardConfig {
        &self.state.config
    }

    /// The tree as this shard serves it, at the zxid up to which it applied changes.
    pub const fn view(&self) -> &View {
        &self.state.view
    }

    /// Connections open now.
    pub const fn connections(&self) -> usize {
        self.state.conns.len()
    }

    /// Adds a connection that was accepted. `None` if the shard is draining: the socket is closed.
    pub fn accept(&mut self, now: Micros, client: NewClient) -> Option<ConnId> {
        if self.state.draining.has_begun() {
            return None;
        }
        self.state.clock = now;
        let NewClient { peer, entropy, meter, is_secured, subject } = client;
        let identities = self.state.addresses.of(peer.ip());
        let id = self.state.conns.insert(|id| {
            let mut conn = Conn::new(id, peer, entropy, Millis::of(now), identities);
            conn.is_secured = is_secured;
            conn
        });
        if let Some(meter) = meter {
            self.state.metered.add(id, meter);
        }
        if let Some(subject) = subject
            && let Some(mut conn) = self.state.conns.take(id)
        {
            // The connection ends if the subject is longer than identities may be.
            let verdict = authentication::add_identity(&self.state, &mut conn, acl::identity("x509", &subject));
            ending::settle(&mut self.state, Millis::of(now), conn, verdict);
        }
        Some(id)
    }

    /// Handles an event. A message waits while [`Shard::is_applying`].
    pub fn handle(&mut self, now: Micros, event: ShardEvent<'_>) {
        self.state.clock = now;
        let now = Millis::of(now);
        match event {
            ShardEvent::Client(id, event) => match event {
                ClientEvent::Received { bytes, applied } => {
                    self.observe(applied);
                    input::received(&mut self.state, now, id, bytes);
                }
                ClientEvent::Sent(count) => input::sent(&mut self.state, now, id, count),
                ClientEvent::InputEnded => input::input_ended(&mut self.state, id),
                ClientEvent::Failed => ending::hung_up(&mut self.state, id),
            },
            ShardEvent::Message(message) if self.is_applying() => self.state.mailbox.waiting.push_back(message),
            ShardEvent::Message(message) => self.take_message(now, message),
            ShardEvent::Tick => upkeep::tick(&mut self.state, now),
            ShardEvent::HoldWrites => self.state.writes.held = true,
        }
        if self.state.proposal_bytes() >= self.state.config.limits.proposals_bytes_max / 4 {
            self.hand_out_requests();
        }
        self.note_drained();
    }

    /// Carries out a message. None is given while a batch is applied in part.
    fn take_message(&mut self, now: Millis, message: ShardMessage) {
        let shard = &mut self.state;
        match message {
            ShardMessage::Batch(batch) => self.apply_from(now, batch, 0),
            ShardMessage::Adopt(frozen) => applying::adopt_frozen(shard, frozen),
            ShardMessage::Swap(snapshot) => applying::swap_snapshot(shard, snapshot),
            ShardMessage::Install(view, sessions_alive) => messages::install(shard, View::clone(&view), sessions_alive),
            ShardMessage::Flow(flow) => match flow {
                Flow::Pause => shard.flow.pause(now),
                Flow::Resume => messages::resume_proposals(shard, now),
                Flow::Uncertain { generation, unsent_too } => messages::uncertain(shard, now, generation, unsent_too),
                Flow::Leaderless => leaderless::leaderless(shard, now),
                Flow::Distrusted => leaderless::distrust(shard, now),
            },
            ShardMessage::Growth(refuses) => shard.refuses_growth = refuses,
            ShardMessage::Drain => ending::drain(shard, now),
            ShardMessage::Synced(conns) => conns.into_iter().for_each(|id| applying::synced(shard, now, id)),
            ShardMessage::SyncRefused(conns) => conns.into_iter().for_each(|id| ending::hung_up(shard, id)),
            ShardMessage::Refused(conns) => messages::refuse(shard, now, conns),
            ShardMessage::FourLetterAnswered { conn, text } => {
                greeting::answer_four_letter(shard, now, conn, text.into_bytes())
            }
            ShardMessage::WritesGoOn => resuming::release_writes(shard, now),
            ShardMessage::Shed(percent) => upkeep::shed(shard, now, percent),
            ShardMessage::SaslUsers(users) => authentication::set_sasl_users(shard, users),
        }
    }

    /// Applies the next transactions of a batch, for the length of a turn, or takes the next message behind it.
    fn apply_next(&mut self, now: Millis) {
        if let Some((batch, from)) = self.state.mailbox.unfinished.take() {
            self.apply_from(now, batch, from);
        } else if let Some(message) = self.state.mailbox.waiting.pop_front() {
            self.take_message(now, message);
        }
    }

    fn apply_from(&mut self, now: Millis, batch: Arc<AppliedBatch>, from: usize) {
        let next = applying::apply_some(&mut self.state, now, &batch, from);
        if next < batch.txns.len() {
            self.state.mailbox.unfinished = Some((batch, next));
        } else {
            self.state.effects.applied += 1;
        }
    }

    /// Ends a turn: does one piece of the work that takes several turns, and hands out the requests of this one.
    pub fn turn(&mut self, now: Micros) {
        self.state.clock = now;
        if self.is_applying() {
            self.apply_next(Millis::of(now));
        }
        if several_turns::is_walking(&self.state) {
            several_turns::walk_on(&mut self.state, Millis::of(now));
        }
        self.hand_out_requests();
        self.note_drained();
    }

    /// Whether [`Shard::turn`] has something to do.
    pub fn needs_turn(&self) -> bool {
        self.is_applying()
            || self.state.proposal_bytes() > 0
            || self.state.freshness.has_syncs()
            || several_turns::is_walking(&self.state)
    }

    /// Whether a batch is applied in part. The driver should take no messages until the batch is applied: it can only keep them here.
    /// Events of connections are handled meanwhile.
    pub fn is_applying(&self) -> bool {
        self.state.mailbox.is_busy()
    }

    /// Gives the effects of the calls so far in the place of `into`, which is empty. Called after each call of [`Shard::accept`],
    /// [`Shard::handle`] and [`Shard::turn`].
    pub fn take_effects(&mut self, into: &mut Effects) {
        debug_assert!(into.is_empty(), "effects are carried out before others are taken");
        mem::swap(&mut self.state.effects, into);
    }

    /// Hands out all proposals that may go, and behind them the syncs.
    fn hand_out_requests(&mut self) {
        if !self.state.flow.paused {
            self.state
                .in_flight
                .hand_out(self.state.config.limits.proposals_bytes_max, &mut self.state.effects.requests);
        }
        if !self.state.freshness.has_syncs() {
            return;
        }
        let syncs = self.state.freshness.take_syncs();
        match self.state.effects.requests.last_mut() {
            Some(last) => last.syncs.extend(syncs),
            None => self.state.effects.requests.push(Requests { syncs, ..Requests::default() }),
        }
    }

    fn note_drained(&mut self) {
        if self.state.draining == Draining::Begun && self.state.conns.len() == 0 {
            self.state.draining = Draining::Done;
            self.state.effects.drained = true;
        }
    }

    /// Notes that another shard's view has come to this zxid, so that its clients may have seen that state. Requests
    /// received from now on are answered from no older state. The batch that leads there is on its way to this shard.
    fn observe(&mut self, zxid: Zxid) {
        self.state.freshness.observe(zxid);
        self.state.events.observe(zxid);
    }

    /// This shard's part of an answer to a four-letter command, from a place that an earlier piece gave; 0 begins. `crst` and `srst`
    /// are carried out here.
    pub fn report(&mut self, command: FourLetter, from: usize) -> Piece {
        match command {
            FourLetter::Crst => {
                self.state.conns.range_mut(from, PIECE_ENTRIES).for_each(|conn| conn.counters = ConnCounters::reset())
            }
            FourLetter::Srst => self.state.statistics = Statistics::default(),
            _ => {}
        }
        let pass = Pass {
            config: &self.state.config,
            view: &self.state.view,
            watches: &self.state.watches,
            conns: &self.state.conns,
            sessions: &self.state.sessions,
            loads: self.state.loads.last(),
            statistics: &self.state.statistics,
            connection_bytes: self.state.memory.held(),
        };
        pass.piece(command, from)
    }

    /// Whether the driver should leave this connection's socket unread for now.
    pub fn is_stalled(&self, id: ConnId) -> bool {
        self.state.conns.get(id).is_none_or(|conn| conn.stalled)
    }

    /// Whether the connection ends when [`Shard::unsent`] has been sent.
    pub fn is_closing(&self, id: ConnId) -> bool {
        self.state.conns.get(id).is_some_and(Conn::is_closing)
    }

    /// The first of the bytes that wait to be sent: all, unless they are many.
    pub fn unsent(&self, id: ConnId) -> &[u8] {
        self.state.conns.get(id).map_or(&[], |conn| conn.output.front())
    }

    /// How many bytes wait to be sent.
    pub fn unsent_bytes(&self, id: ConnId) -> usize {
        self.state.conns.get(id).map_or(0, Conn::unsent)
    }

    /// The work that the last call did, see [`TURN_COST_MAX`](crate::limits::TURN_COST_MAX).
    pub const fn spent(&self) -> usize {
        self.state.turn.spent()
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

    pub(crate) fn event(shard: &mut Shard, now: Millis, id: ConnId, event: ClientEvent<'_>) {
        shard.handle(now.micros(), ShardEvent::Client(id, event));
    }

    pub(crate) fn receive(shard: &mut Shard, now: Millis, id: ConnId, bytes: &[u8]) {
        event(shard, now, id, ClientEvent::Received { bytes, applied: Zxid(0) });
    }

    pub(crate) fn tick(shard: &mut Shard, now: Millis) {
        shard.handle(now.micros(), ShardEvent::Tick);
    }

    pub(crate) fn message(shard: &mut Shard, now: Millis, message: ShardMessage) {
        shard.handle(now.micros(), ShardEvent::Message(message));
    }
}
