//! The state of the simulated disk at a start, and the engine's recovery from that; with the bugs that are planted in
//! it.

use corral_consensus::{BOOTSTRAP_INDEX, BOOTSTRAP_TERM, Config as RaftConfig, Membership};
use corral_core::cost::COMMAND_MAX;
use corral_core::features;
use corral_core::forwarding::{EnsembleConfig, Founders};
use corral_core::sequencer::reaper::ReapPolicy;
use corral_core::sequencer::{SequencerConfig, SnapshotPolicy};
use corral_engine::recovery::{self, DataKind, Plan, Recovered, RecoveryFault};
use corral_engine::{LoadedSnapshot, Offered, OnDamage, Purpose, on_damage};
use corral_peer::Generation;
use corral_storage::log::{Log, LogConfig, Recovered as Found};
use corral_storage::{Disk as _, RecoveredLog, SimDisk};

use crate::options::{Bug, Options, Switches};
use crate::reconfig::{lines, participants};
use crate::server::snapshot_file::{newest, text};
use crate::servers::{founders, server_id};
use crate::world::World;
use crate::world::observed_machine::ObservedMachine;

/// The engine's unit of time of a server of an ensemble, in microseconds.
pub(super) const TICK: u64 = 20_000;
/// Of an ensemble.
const ELECTION_TICKS: u32 = 10;
/// The shortest time without a leader until an election, in microseconds.
pub(crate) const ELECTION: u64 = ELECTION_TICKS as u64 * TICK;
const HEARTBEAT_TICKS: u32 = 2;

/// The result of a start.
pub(super) struct Started {
    pub(super) recovered: Recovered<ObservedMachine>,
    pub(super) log: Log<SimDisk>,
    /// The log is applied behind this index.
    pub(super) snapshot_index: u64,
    /// The snapshot of the start, for other servers.
    pub(super) newest: Option<Offered>,
    /// The part of the log that is damaged, and that the snapshot holds.
    pub(super) log_damaged: Option<String>,
}

/// Opens the disk's content, and leads if it is alone.
///
/// # Errors
/// A sentence; without a disk that was told to fail there must be none.
pub(super) fn recover(world: &mut World, incarnation: u64, path_seed: u64, log_seed: u64) -> Result<Started, String> {
    let (disk, server) = (world.nodes[world.at].disk.clone(), server_id(world.at));
    // As the server's directory is opened: what a killed process left there only by name would be lost by a power
    // cut.
    disk.sync_dir().map_err(text)?;
    let loaded = newest(&disk)?;
    let index = loaded.as_ref().map_or(0, |loaded| loaded.index);
    let config = LogConfig { create_if_missing: loaded.is_none(), seed: log_seed, ..log_config(world, index) };
    let (mut log, mut found) = Log::open(disk.clone(), config, &mut |_| {}).map_err(text)?;
    for name in &found.put_aside {
        disk.remove(name).map_err(text)?;
    }
    let log_damaged = found.stepped_over.as_ref().map(|damage| format!("{} at {}", damage.file, damage.offset));
    let data = data_kind(world, loaded.as_ref(), &found)?;
    world.nodes[world.at].is_healing &= data == DataKind::Uninitialised;
    let mut state = recovery::state_of(loaded.as_ref(), path_seed);
    if loaded.is_none() && matches!(data, DataKind::Member(..)) {
        // [`Bug::UninitialisedVotes`].
        (state.1, state.2) = (BOOTSTRAP_INDEX.0, BOOTSTRAP_TERM.0);
    }
    if let Some(hard_state) = found.hard_state.as_mut().filter(|_| world.options.bug == Some(Bug::VoteTwice)) {
        hard_state.vote = None;
    }
    let (snapshot_index, payload_bytes_max) = (state.1, log.payload_bytes_max());
    let mut sequencer = sequencer_config(world, incarnation, payload_bytes_max);
    if world.options.has_builds && state.0.has_admitted() {
        // Earlier entries are judged by the prices of their time.
        sequencer.command_cost_max = world.nodes[world.at].command_cost_max;
    }
    let list = world.options.ensemble.filter(|ensemble| ensemble.list.is_some());
    let founds_alone = world.options.bug == Some(Bug::FoundAlone);
    let file = world.nodes[world.at].file.keys().copied();
    let voters = file.filter(|id| !founds_alone || *id == server).collect();
    let plan = Plan {
        data,
        state,
        sequencer,
        servers: list.map(|ensemble| lines(&participants((0..ensemble.servers).map(server_id))).into()),
        ensemble: world.options.ensemble.map(|ensemble| EnsembleConfig {
            shards: world.options.shards,
            hold_ms: ensemble.hold_ms,
            lost_after_ms: u64::from(ELECTION_TICKS) * TICK / 1000,
        }),
        founders: Founders { own: server, voters, learners: Vec::new() },
        raft: raft_config(world, incarnation, payload_bytes_max),
        is_healing: world.nodes[world.at].is_healing,
        is_state_corrupt: false,
    };
    let machine = |sequencer| ObservedMachine::new(sequencer, world.options.bug, server);
    let mut opened = RecoveredLog { log: &mut log, found: &mut found };
    let recovered = recovery::recover(plan, &mut opened, machine, &|| world.engine_time());
    let recovered = recovered.map_err(|fault| match fault {
        RecoveryFault::Log(error) => error.to_string(),
        other => format!("{other:?}"),
    })?;
    let newest = loaded.as_ref().map(LoadedSnapshot::offered);
    Ok(Started { recovered, log, snapshot_index, newest, log_damaged })
}

/// For a log behind a snapshot that ends at this index.
pub(super) fn log_config(world: &World, snapshot: u64) -> LogConfig {
    let purpose = if world.options.ensemble.is_some() { Purpose::Member } else { Purpose::Standalone };
    let held = purpose.damage_tolerated_to(snapshot);
    LogConfig { segment_bytes: world.options.segment_bytes, held, ..LogConfig::default() }
}

/// The decision of this server about its damaged data.
pub(super) fn decide_on_damage(world: &World) -> OnDamage {
    let node = &world.nodes[world.at];
    let list = node.remembered.as_ref().map(|stored| &stored.servers);
    let loaded = newest(&node.disk).ok().flatten();
    let extra = loaded.as_ref().map(|loaded| loaded.snapshot.extra());
    on_damage(server_id(world.at), &configured_members(world), list, extra)
}

/// The members by configuration, with this server.
fn configured_members(world: &World) -> Membership {
    let file = &world.nodes[world.at].file;
    let voters = if file.is_empty() { vec![server_id(world.at)] } else { file.keys().copied().collect() };
    Membership::simple(&voters, &[])
}

/// The kind of this server's data by its disk, or by a bug.
fn data_kind(world: &World, loaded: Option<&LoadedSnapshot>, found: &Found) -> Result<DataKind, String> {
    let held = (found.first_index, found.last_index);
    let kind = DataKind::of(world.options.ensemble.is_some(), loaded.map(|loaded| &*loaded.snapshot), held);
    let mut kind = kind.map_err(|mismatch| format!("{mismatch:?}"))?;
    let Some(ensemble) = &world.options.ensemble else { return Ok(kind) };
    if loaded.is_none() && world.options.bug == Some(Bug::UninitialisedVotes) {
        return Ok(DataKind::Member(founders(ensemble), Generation::FIRST));
    }
    if let (DataKind::Member(members, _), Some(Bug::RemovedCounts)) = (&mut kind, world.options.bug) {
        let mut removed = founders(ensemble).voters;
        removed.retain(|id| !members.contains(*id));
        members.voters.extend(removed);
        members.voters.sort_unstable();
    }
    Ok(kind)
}

fn raft_config(world: &World, incarnation: u64, payload_bytes_max: usize) -> RaftConfig {
    let id = server_id(world.at);
    let in_ensemble = world.options.ensemble.is_some();
    RaftConfig {
        id,
        voters: if in_ensemble { world.nodes[world.at].file.keys().copied().collect() } else { vec![id] },
        learners: Vec::new(),
        election_ticks: ELECTION_TICKS,
        heartbeat_ticks: if in_ensemble { HEARTBEAT_TICKS } else { 1 },
        max_inflight_entries: 4096,
        log_cache_bytes: world.options.ensemble.map_or(0, |ensemble| ensemble.log_cache_bytes),
        max_entry_bytes: u32::try_from(payload_bytes_max).expect("segments are small here"),
        seed: incarnation,
    }
}

fn feature_bits(world: &World) -> u32 {
    let Switches { extended_types, enforce_quota, reconfig, keeper } = world.options.switches;
    let list = world.options.ensemble.and_then(|ensemble| ensemble.list);
    let switches = [
        (extended_types, features::EXTENDED_TYPES),
        (enforce_quota, features::ENFORCE_QUOTA),
        (reconfig, features::RECONFIG),
        (keeper, features::KEEPER),
        (list.is_some_and(|list| list.voters_min == 1), features::ONE_VOTER),
    ];
    switches.iter().filter(|(on, _)| *on).fold(0, |bits, (_, bit)| bits | bit)
}

fn sequencer_config(world: &World, incarnation: u64, entry_bytes_max: usize) -> SequencerConfig {
    let Options { session_tick_ms, batch_bytes_max, .. } = world.options;
    SequencerConfig {
        server: server_id(world.at),
        incarnation,
        tick_ms: session_tick_ms,
        features: feature_bits(world),
        batch_bytes_max,
        entry_bytes_max,
        command_cost_max: COMMAND_MAX,
        reap: ReapPolicy { check_interval_ms: 1_000, deletes_per_minute_max: 10_000, never_used_max_ms: 0 },
        snapshot: SnapshotPolicy {
            floor_bytes: world.options.snapshot_floor_bytes,
            share_of_snapshot_percent: 30,
            txns_max: world.options.snapshot_txns,
            log_bytes_max: 64 << 10,
            interval_min_ms: world.options.snapshot_interval_min_ms,
            interval_max_ms: 20_000,
            calm_ms: world.options.snapshot_calm_ms,
        },
    }
}
