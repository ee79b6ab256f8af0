//! The state of a simulated world: one queue of events in time, and the parts that the events concern.
//!
//! One server or an ensemble of them. The servers' actors are the real ones; their mailboxes, the networks, the disks
//! and the clocks are made here. The drivers in `server`, `client` and `faults` are functions of [`World`].
//! Above them `dispatch` hands each event to its driver, and `run` goes through the events from beginning to end.

pub(crate) mod client;
pub(crate) mod counts;
pub(crate) mod event;
pub(crate) mod node;
pub(crate) mod observed_machine;
pub(crate) mod server;
pub(crate) mod wire;

use std::collections::BTreeMap;

use corral_consensus::Micros;
use corral_core::ids::{Millis, WallMillis};
use corral_engine::{self as engine, Now};

use crate::check::checkers::Checkers;
use crate::link::Link;
use crate::options::{Bug, Options};
use crate::rng::Stream;
use crate::trace::{Trace, Tracing};
use crate::world::client::Client;
use crate::world::counts::Counts;
use crate::world::event::{Channel, Event, Inner};
use crate::world::node::Node;
use crate::world::wire::Wire;

const OPERATORS: usize = 2;

/// Where a run has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Faults happen.
    Busy,
    /// No more faults; clients must get through.
    Healing,
    /// Clients are gone; their sessions must go.
    Fading,
}

pub(crate) struct World {
    pub(crate) options: Options,
    pub(crate) now: u64,
    pub(crate) wall_offset_ms: i64,
    /// The latest time that the wall clock ever showed to the leader.
    pub(crate) wall_latest: WallMillis,
    /// The planned events, by time and by how much was planned before.
    pub(crate) queue: BTreeMap<(u64, u64), Event>,
    pub(crate) planned: u64,
    channels: BTreeMap<(usize, Channel), u64>,
    pub(crate) schedule: Stream,
    pub(crate) disk_rng: Stream,
    pub(crate) workload: Stream,
    pub(crate) faults: Stream,
    pub(crate) pages: Stream,
    pub(crate) builds: Stream,
    pub(crate) nodes: Vec<Node>,
    /// The server that handles the present event.
    pub(crate) at: usize,
    /// Connections that ever stood between servers.
    pub(crate) connections: u64,
    pub(crate) wires: BTreeMap<(usize, usize), Wire>,
    pub(crate) clients: Vec<Client>,
    pub(crate) links: Vec<Link>,
    pub(crate) check: Checkers,
    pub(crate) trace: Trace,
    pub(crate) counts: Counts,
    pub(crate) stage: Stage,
    /// The bug of this run has been put in already; most are put in once.
    pub(crate) bug_done: bool,
    /// The server with an emptied disk that does not vote again yet.
    pub(crate) emptied: Option<usize>,
    /// When a client asked for another membership last.
    pub(crate) list_asked: Option<u64>,
}

impl World {
    /// A world at its beginning: empty disks, no server that runs, no event that is planned.
    pub(crate) fn new(options: Options, tracing: Tracing) -> World {
        let seed = options.seed;
        let mut world = World {
            now: 0,
            wall_offset_ms: 0,
            wall_latest: WallMillis(0),
            queue: BTreeMap::new(),
            planned: 0,
            channels: BTreeMap::new(),
            schedule: Stream::new(seed, "schedule"),
            disk_rng: Stream::new(seed, "disk"),
            workload: Stream::new(seed, "workload"),
            faults: Stream::new(seed, "faults"),
            pages: Stream::new(seed, "pages"),
            builds: Stream::new(seed, "builds"),
            nodes: (0..options.servers()).map(|_| Node { starting: true, ..Node::default() }).collect(),
            at: 0,
            connections: 0,
            wires: BTreeMap::new(),
            clients: Vec::new(),
            links: Vec::new(),
            check: Checkers::new(&options),
            trace: Trace::new(tracing),
            counts: Counts::default(),
            stage: Stage::Busy,
            bug_done: false,
            emptied: None,
            list_asked: None,
            options,
        };
        let keeper = world.options.switches.keeper;
        let operators = if world.options.has_list() { OPERATORS } else { 0 };
        let draw = |at| Client::draw(&mut world.workload, keeper, at < operators);
        world.clients = (0..world.options.clients).map(draw).collect();
        world
    }

    pub(crate) fn after(&mut self, delay: u64, event: Event) {
        self.at(self.now + delay, event);
    }

    pub(crate) fn at(&mut self, at: u64, event: Event) {
        self.planned += 1;
        self.queue.insert((at, self.planned), event);
    }

    /// As [`World::after`], but never before what was sent on the same channel earlier.
    pub(crate) fn send(&mut self, channel: Channel, delay: u64, event: Event) {
        let is_outside = matches!(channel, Channel::ToServer(_) | Channel::ToClient(_) | Channel::Wire(..));
        let last = self.channels.entry((if is_outside { 0 } else { self.at }, channel)).or_insert(0);
        let at = (self.now + delay).max(*last);
        *last = at;
        self.at(at, event);
    }

    /// As [`World::send`], with a delay of the network between clients and servers.
    pub(crate) fn send_over_network(&mut self, channel: Channel, event: Event) {
        let delay = self.schedule.delay(self.options.network_delay);
        self.send(channel, delay, event);
    }

    /// Nothing more comes by this channel for so long.
    pub(crate) fn hold_channel(&mut self, channel: Channel, time: u64) {
        let last = self.channels.entry((0, channel)).or_insert(0);
        *last = (*last).max(self.now + time);
    }

    /// As [`World::inside_after`], after about that time.
    pub(crate) fn inside_soon(&mut self, usual: u64, inner: Inner) {
        let wait = self.schedule.delay(usual);
        self.inside_after(wait, inner);
    }

    pub(crate) fn inside_after(&mut self, delay: u64, inner: Inner) {
        self.after(delay, Event::Inside(self.at, self.nodes[self.at].life, inner));
    }

    pub(crate) fn mail(&mut self, channel: Channel, inner: Inner) {
        let delay = self.schedule.delay(self.options.mailbox_delay);
        self.send(channel, delay, Event::Inside(self.at, self.nodes[self.at].life, inner));
    }

    /// The time of the present server's clock.
    pub(crate) fn clock(&self) -> Millis {
        self.time().plus(self.nodes[self.at].clock_ahead_ms)
    }

    /// The time for observers from outside.
    pub(crate) fn time(&self) -> Millis {
        Millis(self.now / 1000)
    }

    pub(crate) fn wall(&self) -> WallMillis {
        let ms = i64::try_from(self.now / 1000).expect("runs are short");
        WallMillis(1_700_000_000_000 + self.wall_offset_ms + ms)
    }

    pub(crate) fn note(&mut self, what: std::fmt::Arguments<'_>) {
        self.trace.note(self.now, what);
    }

    /// Once in a run: whether the bug is to be put in now.
    pub(crate) fn bug(&mut self, bug: Bug, share: u64) -> bool {
        let now = self.options.bug == Some(bug) && !self.bug_done && self.faults.per_mille(share);
        self.bug_done |= now;
        now
    }

    /// The time of the present server's engine.
    pub(crate) fn engine_time(&self) -> Now {
        Now { micros: Micros(self.now + self.nodes[self.at].clock_ahead_ms * 1000), wall: self.wall() }
    }

    /// An event reaches the mailbox of the present server's engine, which takes it in its next turn.
    pub(crate) fn put_in_mailbox(&mut self, event: engine::Event) {
        let Some(server) = &mut self.nodes[self.at].server else { return };
        server.inbox.push_back(event);
        self.plan_turn();
    }

    /// Plans a turn of the present server's engine, unless one is planned.
    pub(crate) fn plan_turn(&mut self) {
        let Some(server) = &mut self.nodes[self.at].server else { return };
        if !std::mem::replace(&mut server.turn_planned, true) {
            self.inside_soon(self.options.mailbox_delay, Inner::Turn);
        }
    }
}
