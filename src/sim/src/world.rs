//! The simulated world: one queue of events in time, and everything that handles them. One thread, one seed.
//!
//! One server or an ensemble of them. The servers' actors are the real ones; their mailboxes, the networks, the disks
//! and the clocks are made here. Actors hear of each other late but in order. Checkers look on from outside: at bytes
//! that reach clients, and at log entries that some server found committed.

use std::collections::{BTreeMap, VecDeque};

use corral_core::ids::{Millis, WallMillis};
use corral_engine::StoredServers;
use corral_peer::Frame;
use corral_storage::SimDisk;

use crate::check::Checkers;
use crate::client::Client;
use crate::limits::{EVENTS_MAX, HEAL_MS_MAX};
use crate::link::Link;
use crate::log_lines;
use crate::model::LinkId;
use crate::options::Options;
use crate::rng::Stream;
use crate::server::{Inner, Server, Wire};
use crate::servers::is_member;
use crate::trace::{Trace, Tracing};
use crate::violation::{Checked, Violation};

/// Longer than any pause or delay: after it nothing is under way.
const REST: u64 = 6_000_000;

const OPERATORS: usize = 2;

pub(crate) enum Event {
    Act(usize),
    ReadAgain(usize),
    /// A connection reaches the server.
    Arrive(LinkId),
    /// Bytes, or the end, reach the server's socket.
    ToServer(LinkId, Vec<u8>),
    EndToServer(LinkId),
    /// Bytes, or the end, reach the client's socket.
    ToClient(LinkId, Vec<u8>),
    EndToClient(LinkId),
    Writable(LinkId),
    /// Of a server, in this life of its.
    Inside(usize, u32, Inner),
    Fault,
    Start(usize),
    Space(usize),
    FastDisk(usize),
    EndScarcity(usize),
    /// Between servers: the sender dials in this life of its, a frame arrives, a cut since then ends.
    Dial {
        from: usize,
        to: usize,
        life: u32,
    },
    Frame {
        from: usize,
        to: usize,
        number: u64,
        frame: Frame,
    },
    EndCut {
        from: usize,
        to: usize,
        since: u64,
    },
    /// A server that was stopped goes on.
    Thaw(usize),
}

/// Pairs between which order is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Channel {
    ToServer(LinkId),
    ToClient(LinkId),
    ConsensusToShard(usize),
    ShardToConsensus(usize),
    ConsensusToLog,
    LogToConsensus,
    ConsensusToWriter,
    WriterToConsensus,
    ConsensusToReceiver,
    ReceiverToConsensus,
    Wire(usize, usize),
    /// Reports of a link's threads to the consensus actor, by the other server.
    LinksToConsensus(usize),
}

/// One server: its process, if it runs, and the parts that outlive it.
#[derive(Default)]
pub(crate) struct Node {
    pub(crate) disk: SimDisk,
    pub(crate) disk_stops: bool,
    pub(crate) disk_slow: bool,
    pub(crate) server: Option<Box<Server>>,
    pub(crate) life: u32,
    pub(crate) starting: bool,
    /// Its own clock is ahead of the world's by so many milliseconds.
    pub(crate) clock_ahead_ms: u64,
    /// The events that wait until the process continues; `None` while it runs.
    pub(crate) frozen: Option<VecDeque<Event>>,
    /// Before this time signs of life that reach it may not reach the leader.
    pub(crate) unsure_until: u64,
    /// The servers by its configuration, with their ports for each other.
    pub(crate) file: BTreeMap<u8, u16>,
    /// .. and an operator has left one out.
    pub(crate) has_odd_file: bool,
    /// The newest membership that it has known.
    pub(crate) remembered: Option<StoredServers>,
    /// It noted that its state is not to be trusted.
    pub(crate) distrusted: Option<String>,
    /// Its damaged data were put aside, and no snapshot of another server has replaced them.
    pub(crate) is_healing: bool,
    /// Units that a command may cost in its build.
    pub(crate) command_cost_max: u64,
    /// Its disk space or memory is scarce.
    pub(crate) is_scarce: bool,
    /// A snapshot file with a byte that changed, and its earlier content.
    pub(crate) spoiled: Option<(String, Vec<u8>)>,
}

counts! {
    /// The counts of a run.
    Counts:
    operations,
    replies,
    events,
    sessions,
    expiries,
    /// Attaches that were refused without a log entry.
    refused,
    reaped,
    crashes,
    stops,
    cuts,
    snapshots,
    failed_syncs,
    full_disks,
    replayed,
    /// Of ensembles: leaderships, connections ended because the fate of their writes was unknown, links that broke.
    leaders,
    uncertain,
    broken_wires,
    /// .. servers that began as founders, snapshots taken over, disks emptied.
    founders,
    installs,
    emptied,
    /// .. states found damaged.
    distrusted,
    /// .. bytes of snapshots changed, those found by a merge or a scrub, and those passed over at a start.
    spoiled,
    found,
    passed_over,
    /// .. and leaders cut off from a server during the repair of its state.
    silenced,
    /// Commands that a leader refused because of their cost.
    too_costly,
    /// Writes that were refused because they add data.
    growth_refused,
    /// Leaders that let another lead because their disks were slow.
    slow_disk_transfers,
    /// Steps of membership changes, and lists that servers saw come about.
    members_changed,
    lists,
    /// Servers that were told to listen at another port for their peers.
    moves,
    /// Power cuts at an append that replaces entries.
    cuts_at_replacement,
    /// Pages of logs lost while the process was down, and those with which the log was refused.
    lost_pages,
    refused_logs,
}

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
    queue: BTreeMap<(u64, u64), Event>,
    planned: u64,
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
    /// A world at its beginning: an empty disk, a server about to start, clients about to act.
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
        let operators = if world.has_list() { OPERATORS } else { 0 };
        let draw = |at| Client::draw(&mut world.workload, keeper, at < operators);
        world.clients = (0..world.options.clients).map(draw).collect();
        for client in 0..world.options.clients {
            let wait = world.workload.below(50_000);
            world.after(wait, Event::Act(client));
        }
        for node in 0..world.nodes.len() {
            world.after(0, Event::Start(node));
        }
        world.plan_fault();
        world
    }

    /// Runs to the end: busy, healing, a last crash, fading.
    ///
    /// # Errors
    /// The first property that did not hold.
    pub(crate) fn run(&mut self) -> Checked {
        self.run_until(self.options.busy_ms * 1000)?;
        self.heal()?;
        self.compare_everywhere()?;
        for node in 0..self.nodes.len() {
            self.at = node;
            self.crash(true)?;
        }
        self.run_while("a server does not come back", |world| !world.is_whole())?;
        self.compare_everywhere()?;
        self.fade()?;
        self.compare_everywhere()
    }

    /// Whether every server runs and, in an ensemble, votes and shows everything that was ever committed.
    fn is_whole(&self) -> bool {
        let newest = self.check.model.zxid;
        let shows_all = |server: &Server| {
            let machine = server.engine.sequencer().view().zxid().0;
            machine == newest && server.shards.iter().all(|side| side.shard.view().zxid().0 == newest)
        };
        let alone = self.nodes.len() == 1;
        let listed = self.listed();
        self.emptied.is_none()
            && (0..self.nodes.len()).filter(|at| is_member(listed.as_ref(), *at)).all(|at| {
                let server = self.nodes[at].server.as_deref();
                server.is_some_and(|server| alone || shows_all(server))
            })
            && self.all_vote()
    }

    fn run_until(&mut self, end: u64) -> Checked {
        while self.queue.first_key_value().is_some_and(|((at, _), _)| *at <= end) {
            self.step()?;
        }
        self.now = self.now.max(end);
        Ok(())
    }

    /// Runs as long as the condition holds, which must not be for ever.
    fn run_while(&mut self, complaint: &'static str, pending: impl Fn(&World) -> bool) -> Checked {
        let end = self.now + HEAL_MS_MAX * 1000;
        while pending(self) {
            if self.now > end || self.queue.is_empty() {
                self.note_servers();
                return Err(Violation::of("liveness", complaint));
            }
            self.step()?;
        }
        Ok(())
    }

    /// No more faults: the server runs, every client gets a session and answers, and its last ping brings every event.
    fn heal(&mut self) -> Checked {
        self.stage = Stage::Healing;
        self.note(format_args!("healing"));
        for node in &mut self.nodes {
            node.disk.limit_space(None);
            node.disk_slow = false;
        }
        (0..self.nodes.len()).for_each(|at| self.set_scarce(at, false));
        self.mend_wires();
        self.mend_files()?;
        let goal: Vec<u64> = self.clients.iter().map(|client| client.healthy_replies + 5).collect();
        let waits = |(client, goal): (&Client, &u64)| client.healthy_replies < *goal;
        let pending = |world: &World| world.clients.iter().zip(&goal).any(waits);
        self.run_while("a client gets no answers from a healthy server", pending)?;
        self.clients.iter_mut().for_each(|client| client.last_words = true);
        let pending = |world: &World| world.clients.iter().any(|client| !client.last_words_answered);
        self.run_while("a client's last requests are not answered", pending)?;
        self.run_until(self.now + REST)?;
        self.run_while("a server does not catch up", |world| !world.is_whole())
    }

    /// Clients leave without a word: every session must expire and take its ephemerals along.
    fn fade(&mut self) -> Checked {
        self.stage = Stage::Fading;
        self.note(format_args!("fading"));
        for client in 0..self.clients.len() {
            self.cut(client, true);
        }
        self.run_while("a silent session does not expire", |world| !world.check.model.sessions.is_empty())?;
        let outlived = |world: &World| world.check.something_is_outlived(world.wall());
        self.run_while("an outlived container or TTL node stays", outlived)?;
        self.run_until(self.now + REST)?;
        self.run_while("a server does not catch up", |world| !world.is_whole())?;
        self.check.no_ephemerals()
    }

    fn step(&mut self) -> Checked {
        let Some(((at, _), event)) = self.queue.pop_first() else { return Ok(()) };
        if self.planned > EVENTS_MAX {
            return Err(Violation::of("liveness", "the run does not come to an end"));
        }
        self.now = self.now.max(at);
        // The server that it concerns, and whether its process has to run for that.
        let (at, of_process) = match &event {
            Event::Arrive(link) | Event::ToServer(link, _) | Event::EndToServer(link) | Event::Writable(link) => {
                (self.links[link.0].server, true)
            }
            Event::Inside(node, ..) => (*node, true),
            Event::Start(node)
            | Event::Space(node)
            | Event::FastDisk(node)
            | Event::EndScarcity(node)
            | Event::Thaw(node) => (*node, false),
            _ => (self.at, false),
        };
        self.at = at;
        match &mut self.nodes[self.at].frozen {
            Some(frozen) if of_process => {
                frozen.push_back(event);
                Ok(())
            }
            _ => {
                let handled = self.handle(event);
                for line in log_lines::take() {
                    self.note(format_args!("server {} {line}", at + 1));
                }
                handled
            }
        }
    }

    /// A stopped process continues with the events that came meanwhile, or has ended.
    pub(crate) fn thaw(&mut self) -> Checked {
        let at = self.at;
        for event in self.nodes[at].frozen.take().into_iter().flatten() {
            self.at = at;
            self.handle(event)?;
        }
        Ok(())
    }

    pub(crate) fn handle(&mut self, event: Event) -> Checked {
        match event {
            Event::Act(client) => self.act(client),
            Event::ReadAgain(client) => return self.read_again(client),
            Event::Arrive(link) => self.arrive(link),
            Event::ToServer(link, bytes) => self.at_server(link, bytes),
            Event::EndToServer(link) => self.end_at_server(link),
            Event::ToClient(link, bytes) => return self.at_client(link, &bytes),
            Event::EndToClient(link) => self.end_at_client(link),
            Event::Writable(link) => self.writable(link),
            Event::Inside(_, life, inner) => {
                let node = &self.nodes[self.at];
                return if life == node.life && node.server.is_some() { self.inside(inner) } else { Ok(()) };
            }
            Event::Fault => return self.fault(),
            Event::Start(_) => return self.start(),
            Event::Space(_) => self.nodes[self.at].disk.limit_space(None),
            Event::FastDisk(_) => self.nodes[self.at].disk_slow = false,
            Event::EndScarcity(node) => self.set_scarce(node, false),
            Event::Dial { from, to, life } => return self.dial(from, to, life),
            Event::Frame { from, to, number, frame } => self.frame_comes(from, to, number, frame),
            Event::EndCut { from, to, since } => self.heal_wire(from, to, since),
            Event::Thaw(node) => {
                self.thaw()?;
                self.review_sureness(node);
            }
        }
        Ok(())
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
    pub(crate) fn bug(&mut self, bug: crate::options::Bug, share: u64) -> bool {
        let now = self.options.bug == Some(bug) && !self.bug_done && self.faults.per_mille(share);
        self.bug_done |= now;
        now
    }
}
