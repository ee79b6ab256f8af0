//! The server as the simulator drives it: the real shards and the real engine, their mailboxes made of events.
//!
//! A shard passes its proposals on after a turn. The engine takes the waiting events and has its turn. The log thread
//! copies, waits and syncs, and the snapshot writer takes its time.

mod consensus;
mod disk_threads;
mod judges;
mod list;
mod lost_page;
mod observed_machine;
mod peers;
mod receiving;
mod recovery;
mod shard_side;
mod snapshot_file;
mod spoiled;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use corral_consensus::{Membership, Micros};
use corral_core::apply::outcome::AppliedBatch;
use corral_core::cost::COMMAND_MAX;
use corral_core::ids::{ConnId, ShardId};
use corral_core::limits::{ShardLimits, TURN_COST_MAX};
use corral_core::sequencer::{FrozenState, Sequencer};
use corral_core::shard::{ShardConfig, ShardMessage};
use corral_engine::Replicated as _;
use corral_engine::recovery::Recovered;
use corral_engine::{Engine, EnsembleSettings, Event, LogQueue, Offered, Receive, Settings, ToLog};
use corral_peer::Generation;
use corral_storage::SimDisk;
use corral_storage::log::Log;
use corral_wire::fourletter::FourLetter;

pub(crate) use observed_machine::ObservedMachine;
pub(crate) use peers::Wire;

use self::recovery::Started;
use crate::limits::PROPOSALS_BYTES_MAX;
use crate::model::{LinkId, SUPER_ID};
use crate::options::Options;
use crate::servers::{server_id, server_ids};
use crate::shard_driver::ShardDriver;
use crate::violation::{Checked, Violation};
use crate::world::{self, Channel, Stage, World};

/// The shortest time without a leader until an election, in microseconds.
pub(crate) const ELECTION: u64 = recovery::ELECTION_TICKS as u64 * consensus::TICK;
/// Units that one command may cost, of several builds.
const COSTS_MAX: [u64; 3] = [4_000, 8_000, COMMAND_MAX];
/// Of a piece of a snapshot that is given to another server: snapshots take several.
const PIECE_BYTES: usize = 4 << 10;

/// The events inside of the server.
pub(crate) enum Inner {
    ToShard(usize, ShardMessage),
    /// A shard ends a turn.
    ShardTurn(usize),
    ShardTick(usize),
    Resume(usize),
    /// A shard looks at a socket again.
    Readable(LinkId),
    ToConsensus(Event),
    Turn,
    /// It wanted one then.
    Wake(Micros),
    Tick,
    ToLog(ToLog),
    LogTurn,
    LogSync(u64),
    /// Nothing was appended since the append of this number.
    LogIdle(u64),
    ToWriter(Box<FrozenState>),
    WriterBegins,
    WriterEnds,
    /// All snapshots are read.
    Scrub,
    ToReceiver(Receive),
    /// The process ends because of a fault.
    Die,
}

/// One shard and its driver's state.
pub(crate) struct ShardSide {
    pub(crate) shard: ShardDriver,
    pub(crate) links: BTreeMap<ConnId, LinkId>,
    /// Batches that it has applied.
    taken: u64,
    /// Batches that it has not applied to their ends, oldest first.
    batches: VecDeque<Arc<AppliedBatch>>,
    turn_planned: bool,
    /// The events that came while the shard was paused; `None` while it runs.
    deferred: Option<VecDeque<world::Event>>,
}

struct LogSide {
    log: Log<SimDisk>,
    inbox: LogQueue,
    /// A turn is planned or a sync is under way.
    busy: bool,
    appends: u64,
    is_full: bool,
    failed: bool,
    /// The part of the log that was damaged at the start, and that the newest snapshot holds.
    damaged: Option<String>,
}

impl LogSide {
    fn new(log: Log<SimDisk>, damaged: Option<String>) -> LogSide {
        LogSide { log, inbox: LogQueue::default(), busy: false, appends: 0, is_full: false, failed: false, damaged }
    }
}

#[derive(Default)]
struct WriterSide {
    waiting: VecDeque<Box<FrozenState>>,
    /// One is being written, or about to be.
    busy: bool,
    half: Option<disk_threads::HalfWritten>,
}

pub(crate) struct Server {
    pub(crate) shards: Vec<ShardSide>,
    pub(crate) engine: Engine<ObservedMachine>,
    inbox: VecDeque<Event>,
    turn_planned: bool,
    wake_at: Option<Micros>,
    log: LogSide,
    writer: WriterSide,
    receiving: Option<receiving::Receiving>,
    pub(crate) incarnation: u64,
    led: bool,
    /// Requests of its clients go to the leader, and so do its reports of them.
    flows: bool,
    /// The servers that it dials and lets in, with all ports at which it has known them.
    known: BTreeMap<u8, BTreeSet<u16>>,
    /// The ports at which it accepts other servers.
    listens: BTreeSet<u16>,
    members: Membership,
    distrusts: bool,
    /// Leaderships given up because of a slow disk.
    slow_disk_transfers: u64,
}

impl World {
    pub(crate) fn start(&mut self) -> Checked {
        let in_ensemble = self.options.ensemble.is_some();
        let at = self.at;
        self.write_file();
        self.judge_snapshots()?;
        let node = &mut self.nodes[at];
        node.starting = false;
        node.life += 1;
        node.disk.limit_space(None);
        if in_ensemble {
            node.clock_ahead_ms = self.schedule.below(100_000_000);
        }
        if self.stage == Stage::Busy && self.faults.per_mille(100) {
            let step = self.faults.below(40);
            node.disk.stop_at_step(step);
            node.disk_stops = true;
        }
        node.command_cost_max = self.builds.pick(&COSTS_MAX);
        let incarnation = (at as u64) << 56 | u64::from(node.life) << 32 | self.schedule.below(1 << 32);
        let (path_seed, log_seed) = (self.schedule.word(), self.disk_rng.word());
        let recovered = self.recover(incarnation, path_seed, log_seed);
        let Started { recovered, log, snapshot_index, newest, log_damaged } = match recovered {
            Ok(started) => started,
            // A fault that was ordered, and fell into the start.
            Err(reason) if reason.contains("simulated") => return self.crash(true),
            Err(reason) => return Err(Violation::of("recovery", reason)),
        };
        let Recovered { mut member, frozen, hard_state } = recovered;
        let entries = std::mem::take(&mut member.machine.committed);
        self.counts.replayed += entries.len() as u64;
        let upto = member.replica.applied().0;
        let life = self.nodes[self.at].life;
        self.note(format_args!("life {life} begins: snapshot at {snapshot_index}, log to {upto}"));
        self.check.restarted(at, snapshot_index, upto, &hard_state)?;
        for entry in entries {
            self.check.committed(entry, self.time())?;
        }
        let shards =
            (0..self.options.shards).map(|id| self.new_shard(id, incarnation, member.machine.sequencer())).collect();
        let engine = Engine::new(member, self.settings(newest));
        let server = self.server(shards, engine, LogSide::new(log, log_damaged), incarnation);
        self.nodes[self.at].server = Some(Box::new(server));
        self.begin()?;
        if !in_ensemble {
            self.check.started_alone(self.time());
            self.compare_everywhere()?;
        }
        if let Some(frozen) = frozen {
            self.note(format_args!("snapshot of {} begins, of what was replayed", frozen.zxid));
            self.mail(Channel::ConsensusToWriter, Inner::ToWriter(Box::new(frozen)));
        }
        self.inside_after(consensus::TICK, Inner::Tick);
        for shard in 0..usize::from(self.options.shards) {
            self.inside_after(200_000, Inner::ShardTick(shard));
        }
        Ok(())
    }

    /// A process that has just started.
    fn server(
        &self,
        shards: Vec<ShardSide>,
        engine: Engine<ObservedMachine>,
        log: LogSide,
        incarnation: u64,
    ) -> Server {
        let own_port = self.nodes[self.at].file.get(&server_id(self.at)).copied();
        Server {
            shards,
            engine,
            inbox: VecDeque::new(),
            turn_planned: false,
            wake_at: None,
            log,
            writer: WriterSide::default(),
            receiving: None,
            incarnation,
            led: false,
            flows: false,
            known: BTreeMap::new(),
            listens: own_port.into_iter().collect(),
            members: Membership::default(),
            distrusts: false,
            slow_disk_transfers: 0,
        }
    }

    fn settings(&self, newest: Option<Offered>) -> Settings {
        let node = &self.nodes[self.at];
        let ensemble = self.options.ensemble.map(|_| EnsembleSettings {
            own: server_id(self.at),
            configured: self.configured(),
            client_addr: std::net::SocketAddr::from(([127, 0, 0, 1], 3)),
            wanted: Membership::simple(&server_ids(node.file.keys()), &[]),
            stored: node.remembered.clone(),
            read_only: false,
            election: Micros(ELECTION),
            generation: if newest.is_some() { Generation::FIRST } else { Generation::NONE },
            piece_bytes: PIECE_BYTES,
        });
        Settings {
            shards: usize::from(self.options.shards),
            snapshots_retained: self.options.snapshots_retained,
            newest,
            ensemble,
        }
    }

    fn new_shard(&self, id: u16, incarnation: u64, sequencer: &Sequencer) -> ShardSide {
        let tick = i32::try_from(self.options.session_tick_ms).expect("a small number");
        let config = ShardConfig {
            shard: ShardId(id),
            server: server_id(self.at),
            incarnation,
            session_timeout_min_ms: tick * 2,
            session_timeout_max_ms: tick * 20,
            sessionless_timeout_ms: 2_000,
            whitelist: vec![FourLetter::Ruok],
            super_digest: self.has_list().then(|| SUPER_ID.into()),
            keeper_extensions: self.options.switches.keeper,
            linearizable: self.options.ensemble.is_some_and(|ensemble| ensemble.linearizable),
            limits: shard_limits(&self.options),
            ..ShardConfig::default()
        };
        let view = sequencer.view().clone();
        ShardSide {
            shard: ShardDriver::new(config, view, sequencer.sessions_alive(), self.clock()),
            links: BTreeMap::new(),
            batches: VecDeque::new(),
            turn_planned: false,
            taken: 0,
            deferred: None,
        }
    }

    /// The process ends at once, with the machine's power or without. It starts again a little later.
    pub(crate) fn crash(&mut self, power: bool) -> Checked {
        self.counts.crashes += 1;
        self.note(format_args!("{}", if power { "power cut" } else { "killed" }));
        let node = &mut self.nodes[self.at];
        if !node.disk_stops {
            // A dead process does not tidy up.
            node.disk.stop_at_step(0);
        }
        node.server = None;
        node.disk.limit_space(None);
        self.ended(power);
        self.thaw()
    }

    /// The consequences of the end of a process, however it came; perhaps of the power too.
    fn ended(&mut self, power: bool) {
        let at = self.at;
        self.nodes[at].disk.stop_at_step(u64::MAX);
        self.nodes[at].disk_stops = false;
        if power {
            let seed = self.disk_rng.word();
            self.nodes[at].disk.crash(seed);
        }
        for link in 0..self.links.len() {
            if self.links[link].server == at && self.links[link].conn.is_some() {
                self.close_at_server(LinkId(link));
            }
        }
        if !self.nodes[at].starting {
            self.nodes[at].starting = true;
            let wait = 1_000 + self.schedule.delay(100_000);
            self.after(wait, world::Event::Start(at));
        }
        self.wires_end(power);
    }

    /// The disk said no. Either it was told to stop the process here, or the log is lost to this process.
    fn disk_failed(&mut self, reason: &str) -> Checked {
        self.note(format_args!("disk: {reason}"));
        if self.nodes[self.at].disk_stops {
            let power = self.faults.per_mille(700);
            return self.crash(power);
        }
        if let Some(server) = &mut self.nodes[self.at].server
            && !std::mem::replace(&mut server.log.failed, true)
        {
            self.inside_soon(20_000, Inner::Die);
        }
        Ok(())
    }

    /// How each server stands, for the reader of a trace of a world that does not go on.
    pub(crate) fn note_servers(&mut self) {
        for at in 0..self.nodes.len() {
            let state = match self.nodes[at].server.as_deref() {
                None => "is down".to_owned(),
                Some(Server { engine, .. }) => {
                    let (replica, raft, status) = (engine.replica(), engine.raft(), engine.status());
                    let (role, term, leader) = (raft.role(), raft.term(), raft.leader());
                    let (last, committed, applied) = (raft.last_index(), raft.commit(), replica.applied());
                    let (uninitialised, distrusted) = (raft.is_uninitialised(), replica.is_state_corrupt());
                    format!(
                        "{role:?} of term {term} under {leader:?}, log to {last}, committed {committed}, applied {applied}, \
                         uninitialised {uninitialised}, distrusted {distrusted}, {status:?}, members {:?}",
                        raft.membership(),
                    )
                }
            };
            self.note(format_args!("server {}: {state}", at + 1));
        }
    }

    pub(crate) fn inside(&mut self, mut inner: Inner) -> Checked {
        if let Inner::ToShard(shard, _) | Inner::ShardTurn(shard) | Inner::ShardTick(shard) = inner {
            let event = world::Event::Inside(self.at, self.nodes[self.at].life, inner);
            let Some(world::Event::Inside(_, _, back)) = self.defer(shard, event) else { return Ok(()) };
            inner = back;
        }
        match inner {
            Inner::ToShard(shard, message) => self.shard_message(shard, message),
            Inner::ShardTurn(shard) => self.shard_turn(shard),
            Inner::ShardTick(shard) => self.shard_tick(shard),
            Inner::Resume(shard) => return self.resume_shard(shard),
            Inner::Readable(link) => self.at_server(link, Vec::new()),
            Inner::ToConsensus(event) => self.consensus_message(event),
            Inner::Turn => return self.consensus_turn(),
            Inner::Wake(at) => return self.wake(at),
            Inner::Tick => return self.consensus_tick(),
            Inner::ToLog(message) => self.log_message(message),
            Inner::LogTurn => return self.log_turn(),
            Inner::LogSync(number) => return self.log_sync(number),
            Inner::LogIdle(appends) => return self.log_idle(appends),
            Inner::ToWriter(state) => self.writer_message(state),
            Inner::WriterBegins => return self.writer_begins(),
            Inner::WriterEnds => return self.writer_ends(),
            Inner::Scrub => self.scrub(),
            Inner::ToReceiver(receive) => return self.receive_snapshot(receive),
            Inner::Die => {
                let power = self.faults.per_mille(500);
                return self.crash(power);
            }
        }
        Ok(())
    }

    /// Every view of every server against the model, once the actors have nothing under way.
    pub(crate) fn compare_everywhere(&self) -> Checked {
        let listed = (0..self.nodes.len()).filter(|at| self.is_listed(*at));
        for server in listed.filter_map(|at| self.nodes[at].server.as_ref()) {
            let machine = server.engine.sequencer().machine();
            self.check.same_tree("state machine", machine.view())?;
            self.check.same_sessions(machine.sessions())?;
            for side in &server.shards {
                self.check.same_tree("shard", side.shard.view())?;
            }
        }
        Ok(())
    }
}

fn shard_limits(options: &Options) -> ShardLimits {
    let tight = options.seed.is_multiple_of(3);
    // The hard limit stays above the soft one, as the configuration demands.
    let hard = options.seed.is_multiple_of(5) && (tight || options.ensemble.is_none());
    ShardLimits {
        requests_in_flight_per_connection_max: if tight { 4 } else { 1000 },
        queued_bytes_max: if tight { 300 } else { 4 << 20 },
        reply_buffer_bytes_soft_max: if tight || hard { 500 } else { 1 << 20 },
        reply_buffer_bytes_hard_max: if hard { 6_000 } else { 64 << 20 },
        inflight_bytes_per_shard_max: if tight { 2_000 } else { 64 << 20 },
        proposals_bytes_max: PROPOSALS_BYTES_MAX,
        // A turn of half the runs ends after a few requests.
        turn_cost_max: [TURN_COST_MAX, 800, TURN_COST_MAX, 6_000]
            [usize::try_from(options.seed / 2 % 4).expect("small")],
        ..ShardLimits::default()
    }
}
