//! The start of a process: the server recovers from its disk, and its actors begin.

use std::collections::{BTreeMap, VecDeque};

use corral_consensus::{Membership, Micros};
use corral_core::cost::COMMAND_MAX;
use corral_core::ids::ShardId;
use corral_core::limits::{ShardLimits, TURN_COST_MAX};
use corral_core::sequencer::Sequencer;
use corral_core::shard::ShardConfig;
use corral_engine::recovery::Recovered;
use corral_engine::{Engine, EnsembleSettings, Offered, Replicated as _, Settings};
use corral_peer::Generation;
use corral_wire::fourletter::FourLetter;

use crate::check::{sessions, writes};
use crate::limits::PROPOSALS_BYTES_MAX;
use crate::model::SUPER_ID;
use crate::options::Options;
use crate::server::recovery::{ELECTION, Started, TICK};
use crate::server::{consensus, ending, judges, list, recovery, spoiled};
use crate::servers::server_id;
use crate::shard_driver::ShardDriver;
use crate::violation::{Checked, Violation};
use crate::world::event::{Channel, Inner};
use crate::world::observed_machine::ObservedMachine;
use crate::world::server::{LogSide, Server, ShardSide, WriterSide};
use crate::world::{Stage, World};

/// Units that one command may cost, of several builds.
const COSTS_MAX: [u64; 3] = [4_000, 8_000, COMMAND_MAX];
/// Of a piece of a snapshot that is given to another server: snapshots take several.
const PIECE_BYTES: usize = 4 << 10;

pub(crate) fn start(world: &mut World) -> Checked {
    let in_ensemble = world.options.ensemble.is_some();
    let at = world.at;
    list::write_file(world);
    spoiled::judge_snapshots(world)?;
    let node = &mut world.nodes[at];
    node.starting = false;
    node.life += 1;
    node.disk.limit_space(None);
    if in_ensemble {
        node.clock_ahead_ms = world.schedule.below(100_000_000);
    }
    if world.stage == Stage::Busy && world.faults.per_mille(100) {
        let step = world.faults.below(40);
        node.disk.stop_at_step(step);
        node.disk_stops = true;
    }
    node.command_cost_max = world.builds.pick(&COSTS_MAX);
    let incarnation = (at as u64) << 56 | u64::from(node.life) << 32 | world.schedule.below(1 << 32);
    let (path_seed, log_seed) = (world.schedule.word(), world.disk_rng.word());
    let recovered = recovery::recover(world, incarnation, path_seed, log_seed);
    let Started { recovered, log, snapshot_index, newest, log_damaged } = match recovered {
        Ok(started) => started,
        // A fault that was ordered, and fell into the start.
        Err(reason) if reason.contains("simulated") => {
            ending::crash(world, true);
            return Ok(());
        }
        Err(reason) => return Err(Violation::of("recovery", reason)),
    };
    let Recovered { mut member, frozen, hard_state } = recovered;
    let entries = std::mem::take(&mut member.machine.committed);
    world.counts.replayed += entries.len() as u64;
    let upto = member.replica.applied().0;
    let life = world.nodes[world.at].life;
    world.note(format_args!("life {life} begins: snapshot at {snapshot_index}, log to {upto}"));
    writes::restarted(&world.check, at, snapshot_index, upto, &hard_state)?;
    let time = world.time();
    for entry in entries {
        writes::committed(&mut world.check, entry, time)?;
    }
    let shards =
        (0..world.options.shards).map(|id| new_shard(world, id, incarnation, member.machine.sequencer())).collect();
    let engine = Engine::new(member, settings(world, newest));
    let server = new_server(world, shards, engine, LogSide::new(log, log_damaged), incarnation);
    world.nodes[world.at].server = Some(Box::new(server));
    consensus::begin(world)?;
    if !in_ensemble {
        sessions::started_alone(&mut world.check, time);
        judges::compare_everywhere(world)?;
    }
    if let Some(frozen) = frozen {
        world.note(format_args!("snapshot of {} begins, of what was replayed", frozen.zxid));
        world.mail(Channel::ConsensusToWriter, Inner::ToWriter(Box::new(frozen)));
    }
    world.inside_after(TICK, Inner::Tick);
    for shard in 0..usize::from(world.options.shards) {
        world.inside_after(200_000, Inner::ShardTick(shard));
    }
    Ok(())
}

/// A process that has just started.
fn new_server(
    world: &World,
    shards: Vec<ShardSide>,
    engine: Engine<ObservedMachine>,
    log: LogSide,
    incarnation: u64,
) -> Server {
    let own_port = world.nodes[world.at].file.get(&server_id(world.at)).copied();
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

fn settings(world: &World, newest: Option<Offered>) -> Settings {
    let node = &world.nodes[world.at];
    let ensemble = world.options.ensemble.map(|_| EnsembleSettings {
        own: server_id(world.at),
        configured: list::configured(world),
        client_addr: std::net::SocketAddr::from(([127, 0, 0, 1], 3)),
        wanted: Membership::simple(&Vec::from_iter(node.file.keys().copied()), &[]),
        stored: node.remembered.clone(),
        read_only: false,
        election: Micros(ELECTION),
        generation: if newest.is_some() { Generation::FIRST } else { Generation::NONE },
        piece_bytes: PIECE_BYTES,
    });
    Settings {
        shards: usize::from(world.options.shards),
        snapshots_retained: world.options.snapshots_retained,
        newest,
        ensemble,
    }
}

fn new_shard(world: &World, id: u16, incarnation: u64, sequencer: &Sequencer) -> ShardSide {
    let tick = i32::try_from(world.options.session_tick_ms).expect("a small number");
    let config = ShardConfig {
        shard: ShardId(id),
        server: server_id(world.at),
        incarnation,
        session_timeout_min_ms: tick * 2,
        session_timeout_max_ms: tick * 20,
        sessionless_timeout_ms: 2_000,
        whitelist: vec![FourLetter::Ruok],
        super_digest: world.options.has_list().then(|| SUPER_ID.into()),
        keeper_extensions: world.options.switches.keeper,
        linearizable: world.options.ensemble.is_some_and(|ensemble| ensemble.linearizable),
        limits: shard_limits(&world.options),
        ..ShardConfig::default()
    };
    let view = sequencer.view().clone();
    ShardSide {
        shard: ShardDriver::new(config, view, sequencer.sessions_alive(), world.clock()),
        links: BTreeMap::new(),
        batches: VecDeque::new(),
        turn_planned: false,
        taken: 0,
        deferred: None,
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
