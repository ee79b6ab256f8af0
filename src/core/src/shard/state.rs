//! The parts of a shard, and steps that several layers share.
//!
//! A part has its own file and guards its own fields. Code that needs several parts stands in the layers, as functions of
//! [`ShardState`]. [The shard](super) lists them.

use crate::ids::{ConnId, Millis};
use crate::shard::activity::Activity;
use crate::shard::config::ShardConfig;
use crate::shard::conn::{AddressIdentities, BufferPool, Close, Conn};
use crate::shard::conns::Conns;
use crate::shard::counters::Statistics;
use crate::shard::delays::Delay;
use crate::shard::effects::Effects;
use crate::shard::events::Mailbox;
use crate::shard::freshness::Freshness;
use crate::shard::in_flight::InFlight;
use crate::shard::lists::Lists;
use crate::shard::load::LoadMeter;
use crate::shard::long_commands::LongCommands;
use crate::shard::memory::Memory;
use crate::shard::metered::Metered;
use crate::shard::proposal_flow::ProposalFlow;
use crate::shard::sasl_exchanges::SaslExchanges;
use crate::shard::sessions::Sessions;
use crate::shard::shed::Shedding;
use crate::shard::turn::Turn;
use crate::shard::watch::WatchTable;
use crate::shard::watch_events::WatchEvents;
use crate::shard::write_queues::WriteQueues;
use crate::tree::view::View;
use alloc::collections::VecDeque;
use core::mem;
use corral_types::Micros;

/// The verdict on a connection after some of its input: go on, or end it.
pub(super) type Served = Result<(), Close>;

/// One core's connections, view, watches and sessions.
pub(super) struct ShardState {
    pub(super) config: ShardConfig,
    pub(super) view: View,
    pub(super) watches: WatchTable,
    pub(super) conns: Conns,
    pub(super) sessions: Sessions,
    pub(super) flow: ProposalFlow,
    pub(super) in_flight: InFlight,
    pub(super) writes: WriteQueues,
    pub(super) memory: Memory,
    pub(super) long_commands: LongCommands,
    /// The next read is the first of a connection's turn: it may be costly.
    pub(super) has_turn: bool,
    pub(super) turn: Turn,
    pub(super) events: WatchEvents,
    pub(super) lists: Lists,
    /// Ended connections with watches.
    pub(super) dropping: VecDeque<ConnId>,
    pub(super) draining: Draining,
    pub(super) freshness: Freshness,
    /// Connections with a long read or next requests that go on, in turn.
    pub(super) walking: VecDeque<ConnId>,
    /// The step with which the next `several_turns::walk_on` begins.
    pub(super) walk_first: u8,
    pub(super) delay: Delay,
    pub(super) mailbox: Mailbox,
    pub(super) effects: Effects,
    pub(super) activity: Activity,
    pub(super) buffers: BufferPool,
    pub(super) addresses: AddressIdentities,
    pub(super) sasl: SaslExchanges,
    pub(super) metered: Metered,
    /// See [`ShardMessage::Growth`].
    pub(super) refuses_growth: bool,
    pub(super) shedding: Option<Shedding>,
    pub(super) loads: LoadMeter,
    /// The time of the call that is under way.
    pub(super) clock: Micros,
    pub(super) statistics: Statistics,
}

/// Whether the server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Draining {
    NotBegun,
    /// Nothing more is read, and connections end when every answer under way has been sent.
    Begun,
    /// [`Effects::drained`] was given.
    Done,
}

impl Draining {
    pub(super) const fn has_begun(self) -> bool {
        !matches!(self, Self::NotBegun)
    }
}

impl ShardState {
    /// A shard without connections, at the zxid of `view`.
    pub(super) fn new(config: ShardConfig, view: View, sessions_alive: u64, now: Millis) -> Self {
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

    /// The connection's next requests wait until others have had their turns.
    pub(super) fn go_on_later(&mut self, conn: &mut Conn) {
        conn.stalled = true;
        if !mem::replace(&mut conn.waits.turn, true) {
            self.walking.push_back(conn.id);
        }
    }

    /// Bytes of the proposals that may go.
    pub(super) const fn proposal_bytes(&self) -> usize {
        if self.flow.paused { 0 } else { self.in_flight.waiting_bytes() }
    }
}
