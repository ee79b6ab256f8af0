//! From the data directory to a replica that leads: the newest snapshot, then the log behind it.
//!
//! A thread of its own, before any actor starts. Says how far it is while that takes long.

use corral_core::features;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use corral_consensus::limits::ENTRY_BYTES_MAX;
use corral_consensus::{Config as RaftConfig, ConsensusError, Membership};
use corral_core::apply::StateMachine;
use corral_core::cost::COMMAND_MAX;
use corral_core::sequencer::reaper::ReapPolicy;
use corral_core::sequencer::{FrozenState, Sequencer, SequencerConfig, SnapshotPolicy};
use corral_core::shared::Text;
use corral_engine::recovery::{self, DataKind, Member, Plan, Recovered, RecoveryFault};
use corral_engine::{LoadedSnapshot, Now, Offered, OnDamage, Purpose, on_damage};
use corral_peer::Generation;
use corral_storage::log::{ADVICE, CutInfo, Log, LogConfig, LogError, Progress, Recovered as Found, SteppedOver};
use corral_storage::{Access, MmapDisk, RecoveredLog, SyncRecipe};

use crate::config::Config;
use crate::data::{owner, quarantine, remembered, snapshots};
use crate::exit::{ExitCode, Fault, not_a_batch};
use crate::node::replay::gap;
use crate::node::{configured, membership};
use crate::runtime::clock::{Clock, whole_ms};
use crate::runtime::random::random;

/// Bytes of commands in one log entry, exceeded by at most what one shard proposes at once.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// The result of a start's recovery.
pub(crate) struct Recovery {
    pub(crate) member: Member<Sequencer>,
    pub(crate) log: Log<MmapDisk>,
    /// Holds the snapshots.
    pub(crate) disk: MmapDisk,
    /// The replayed state, if it is worth a snapshot: every view begins above it.
    pub(crate) frozen: Option<FrozenState>,
    /// The snapshot it started from, for other servers.
    pub(crate) offered: Option<Offered>,
    /// Of which generation the data are.
    pub(crate) generation: Generation,
    /// Why the state is not to be trusted, as an earlier process noted.
    pub(crate) distrusted: Option<String>,
    /// Which place of the log is damaged, where the newest snapshot holds all that can have been there.
    pub(crate) log_damaged: Option<String>,
}

/// The inputs of a start besides the configuration.
#[derive(Clone, Copy)]
pub(crate) struct Start<'a> {
    pub(crate) clock: Clock,
    pub(crate) incarnation: u64,
    /// That check a snapshot.
    pub(crate) threads: usize,
    pub(crate) shards: usize,
    /// Grows by one for each snapshot with znodes that do not have the stored digest.
    pub(crate) mismatches: &'a AtomicU64,
}

/// Opens the data directory, loads the newest snapshot and reads the log. A server that is alone replays it and leads:
/// everything that was acknowledged is applied then, and this start's own first entry is durable. One of an ensemble
/// does not know what was acknowledged before it hears of a leader.
///
/// # Errors
/// Any fault that keeps the data from being served, each with file, offset and remedy.
pub(crate) fn recover(config: &Config, start: Start<'_>) -> Result<Recovery, Fault> {
    let purpose = if config.own_member().is_some() { Purpose::Member } else { Purpose::Standalone };
    let damaged = match recover_whole(config, start, purpose) {
        Err(fault) if fault.code == ExitCode::DataDamaged && purpose == Purpose::Member => fault,
        other => return other,
    };
    // Only data that are this server's, and while no other process has them.
    let disk = MmapDisk::open(&config.server.data_dir, SyncRecipe::default())?;
    owner::claim(&disk, config)?;
    if config.server.log_dir != config.server.data_dir {
        owner::claim(&MmapDisk::open(&config.server.log_dir, SyncRecipe::default())?, config)?;
    }
    let decision = decide(config, &disk);
    drop(disk);
    match decision {
        OnDamage::Refuse => Err(damaged),
        // Once more, for a sentence that sends no operator to servers that have nothing to give.
        OnDamage::ReadAsOnlyVoter => recover_whole(config, start, Purpose::OnlyVoter).map_err(|fault| {
            let sentence = format!(
                "{fault}; this server is the only voter, so no other server can replace its data; nothing was changed"
            );
            Fault::new(fault.code, sentence)
        }),
        OnDamage::PutAside => {
            tracing::error!("{}", as_healed(&damaged.sentence));
            quarantine::put_aside(config)?;
            tracing::warn!(
                "the damaged data were put aside into the directory `damaged`: this server begins without data, and takes \
                 everything from the other servers"
            );
            recover_whole(config, start, purpose)
        }
    }
}

/// The damage, without advice to do by hand the steps that this server does itself.
fn as_healed(sentence: &str) -> String {
    let heals = "this server replaces its data by those of the other servers; look at the disk";
    sentence.replace(ADVICE, heals).replace(Purpose::Member.remedy(), heals)
}

/// Decides about damaged data.
fn decide(config: &Config, disk: &MmapDisk) -> OnDamage {
    let own = config.own_id();
    let list = remembered::read(disk).map(|list| list.servers);
    on_damage(own, &membership::wanted(config), list.as_ref(), snapshots::readable_extra(disk).as_deref())
}

/// As [`recover`]; damage is not healed.
fn recover_whole(config: &Config, start: Start<'_>, purpose: Purpose) -> Result<Recovery, Fault> {
    let Start { clock, incarnation, threads, shards, mismatches } = start;
    let started = Instant::now();
    let Opened { disk, newest, mut log, mut found, .. } = open(config, threads, mismatches, purpose, owner::claim)?;
    let data = membership::data_kind(config, newest.as_ref().map(|loaded| &*loaded.snapshot), &found)?;
    let distrusted = quarantine::distrusted(disk.path())?;
    let log_damaged =
        found.stepped_over.as_ref().map(|damage| format!("{}: damaged at offset {}", damage.file, damage.offset));
    let is_healing = quarantine::waits(&disk, data != DataKind::Uninitialised)?;
    let offered = newest.as_ref().map(LoadedSnapshot::offered);
    let state = state_machine(newest.as_ref())?;
    let (nodes, index) = (state.0.view().node_count(), state.1);
    let (generation, bytes_max) = (data.generation(), entry_bytes_max(&log));
    let plan = Plan {
        state,
        sequencer: sequencer_config(config, incarnation, bytes_max),
        servers: config.own_member().map(|_| Text::from(&*configured::servers(config).lines())),
        ensemble: config.own_member().map(|_| configured::member_config(config, shards)),
        founders: membership::founders(config),
        raft: raft_config(config, incarnation, bytes_max),
        is_healing,
        is_state_corrupt: distrusted.is_some(),
        data,
    };
    let now = || Now { micros: clock.now_us(), wall: clock.wall() };
    let mut opened = RecoveredLog { log: &mut log, found: &mut found };
    let recovered = recovery::recover(plan, &mut opened, |sequencer| sequencer, &now);
    let Recovered { member, frozen, .. } = recovered.map_err(|fault| as_fault(purpose, fault))?;
    log.release_read()?;
    let view = member.machine.view();
    tracing::info!(
        zxid = %view.zxid(),
        nodes = view.node_count(),
        nodes_in_snapshot = nodes,
        entries_replayed = found.last_index - index,
        took_ms = whole_ms(started.elapsed()),
        "state recovered"
    );
    Ok(Recovery { member, log, disk, frozen, offered, generation, distrusted, log_damaged })
}

/// The fault that keeps the data from being served, with the remedy.
fn as_fault(purpose: Purpose, fault: RecoveryFault<LogError>) -> Fault {
    match fault {
        RecoveryFault::Log(error) => error.into(),
        RecoveryFault::Gap { first, last, snapshot } => gap(purpose, (first, last), snapshot),
        RecoveryFault::NotABatch { index } => not_a_batch(index),
        RecoveryFault::Inconsistent(error) => unfit(&error),
    }
}

/// Why Raft does not start. Only what contradicts the stored data is damage: a member has damaged data replaced.
fn unfit(error: &ConsensusError) -> Fault {
    match error {
        ConsensusError::Config { .. } => {
            Fault::new(ExitCode::Config, format!("{error}; correct the section [ensemble] of the configuration"))
        }
        ConsensusError::Library(_) => Fault::new(ExitCode::Internal, error.to_string()),
        _ => Fault::new(ExitCode::DataDamaged, format!("log and snapshot do not fit together: {error}")),
    }
}

/// The content of the data directory, before the replay.
pub(crate) struct Opened {
    /// Holds the snapshots.
    pub(crate) disk: MmapDisk,
    /// Holds the log; often the same directory.
    pub(crate) log_disk: MmapDisk,
    /// The newest snapshot that is whole.
    pub(crate) newest: Option<LoadedSnapshot>,
    pub(crate) log: Log<MmapDisk>,
    pub(crate) found: Found,
}

/// Opens the data directory, and finds snapshot and log. `check` judges each directory before anything of it is read.
/// `mismatches` counts snapshots with znodes that do not have the stored digest.
///
/// # Errors
/// Damaged data, a directory in use, or the fault of `check`.
pub(crate) fn open(
    config: &Config,
    threads: usize,
    mismatches: &AtomicU64,
    purpose: Purpose,
    check: fn(&MmapDisk, &Config) -> Result<(), Fault>,
) -> Result<Opened, Fault> {
    let disk = MmapDisk::open(&config.server.data_dir, SyncRecipe::default())?;
    let log_disk = if config.server.log_dir == config.server.data_dir {
        disk.clone()
    } else {
        MmapDisk::open(&config.server.log_dir, SyncRecipe::default())?
    };
    say_who_could_read(&disk);
    if log_disk.path() != disk.path() {
        say_who_could_read(&log_disk);
    }
    check(&disk, config)?;
    check(&log_disk, config)?;
    if !matches!(purpose, Purpose::Member | Purpose::OnlyVoter) {
        quarantine::refuse_distrusted(disk.path())?;
    }
    let snapshots = snapshots::newest(&disk, threads, mismatches)?;
    let create_if_missing = snapshots.newest.is_none() && snapshots.damaged.is_empty();
    let index = snapshots.newest.as_ref().map_or(0, |loaded| loaded.index);
    let held = purpose.damage_tolerated_to(index);
    let (log, found) =
        open_log(log_disk.clone(), config, purpose, LogConfig { create_if_missing, held, ..LogConfig::default() })?;
    if snapshots.newest.is_none() && !snapshots.damaged.is_empty() && found.first_index > 1 {
        let mut sentence = snapshots.damaged.join("; ");
        sentence.push_str("; no snapshot is whole and the log does not go back to the beginning: ");
        sentence.push_str(purpose.remedy());
        return Err(Fault::new(ExitCode::DataDamaged, sentence));
    }
    if let Some(instead) = snapshots.instead(found.first_index) {
        tracing::warn!("{instead}");
    }
    Ok(Opened { disk, log_disk, newest: snapshots.newest, log, found })
}

fn open_log(
    disk: MmapDisk,
    config: &Config,
    purpose: Purpose,
    log_config: LogConfig,
) -> Result<(Log<MmapDisk>, Found), Fault> {
    let log_config = LogConfig {
        segment_bytes: usize::try_from(config.log.segment_bytes).unwrap_or(usize::MAX),
        spares_max: usize::from(config.log.spare_segments_max),
        seed: u64::from_le_bytes(random()?),
        ..log_config
    };
    let mut said = Instant::now();
    let mut progress = |progress: Progress| {
        if said.elapsed() >= Duration::from_secs(1) {
            said = Instant::now();
            let Progress { segments_done, segments, bytes_done, entries } = progress;
            tracing::info!(segments_done, segments, bytes_done, entries, "reading the log");
        }
    };
    let (log, found) = Log::open(disk.clone(), log_config, &mut progress)?;
    for name in &found.put_aside {
        quarantine::put_file_aside(&disk, name).map_err(|error| {
            let sentence = format!("{name}: the damaged segment cannot be put aside: {error}");
            Fault::new(ExitCode::StorageUnavailable, sentence)
        })?;
    }
    if found.durable_point_lost {
        tracing::warn!(
            "the file DURABLE is missing or damaged, and is made anew: how far the log was durable at the end of the last process is \
             known from the log alone"
        );
    }
    if let Some(cut) = &found.tail_cut {
        say_what_was_cut(purpose, cut);
    }
    if let Some(SteppedOver { file, offset, places }) = &found.stepped_over {
        tracing::warn!(
            %file,
            offset,
            places,
            segments_put_aside = found.put_aside.len(),
            "log damaged: the newest snapshot holds every entry that was there, so nothing is lost and the server starts; look at the disk"
        );
    }
    Ok((log, found))
}

/// Reports the end of the log that was truncated. It reassures only where the durable point of the last process is
/// known.
fn say_what_was_cut(purpose: Purpose, cut: &CutInfo) {
    let CutInfo { file, offset, bytes, never_acknowledged } = cut;
    let consequence = match (never_acknowledged, purpose) {
        (true, _) => "it lies behind the durable point that the file DURABLE states: it was never acknowledged",
        (false, Purpose::Standalone | Purpose::OnlyVoter | Purpose::Rescue) => {
            "the power was lost, or the file DURABLE, so it is not known whether it was acknowledged. A write that a power cut \
             interrupted looks like this, and so does a damaged disk: if the disk is suspect, compare with a backup"
        }
        (false, Purpose::Member) => {
            "the power was lost, or the file DURABLE, so it is not known whether it was acknowledged. A write that a power cut \
             interrupted looks like this, and so does a damaged disk: if the disk is suspect, stop this server, empty its \
             data directory but for `myid`, and start it while the others run: it receives everything from them"
        }
    };
    tracing::warn!(%file, offset, bytes, "truncated an incomplete record at the end of the log; {consequence}");
}

/// Reports what other users of this host could read. The files are for their owner alone; a directory is left as it is.
fn say_who_could_read(disk: &MmapDisk) {
    let Access { directory_mode, files_restricted, files_left } = disk.access();
    let path = disk.path().display();
    if let Some(mode) = directory_mode {
        tracing::warn!(
            "the data directory {path} has mode {mode:o}: other users can enter it. Run `chmod 700 {path}` if that is not \
             wanted"
        );
    }
    if *files_restricted > 0 {
        tracing::info!(files = files_restricted, "files in {path} were readable by other users; their mode is now 600");
    }
    if let Some((files, first)) = files_left {
        tracing::warn!(
            files,
            "files in {path} are accessible to other users, and their mode cannot be changed ({first}). They hold session \
             passwords: run `chmod 600` on them as their owner"
        );
    }
}

/// The state of the snapshot and its place in the log, or that of an empty server.
pub(crate) fn state_machine(loaded: Option<&LoadedSnapshot>) -> Result<(StateMachine, u64, u64), Fault> {
    Ok(recovery::state_of(loaded, u64::from_le_bytes(random()?)))
}

/// Bytes of the largest entry that log and Raft take.
pub(crate) fn entry_bytes_max(log: &Log<MmapDisk>) -> usize {
    log.payload_bytes_max().min(ENTRY_BYTES_MAX as usize)
}

fn raft_config(config: &Config, incarnation: u64, entry_bytes_max: usize) -> RaftConfig {
    let Membership { voters, learners, .. } = membership::wanted(config);
    RaftConfig {
        id: config.own_id(),
        voters,
        learners,
        election_ticks: configured::election_ticks(config),
        heartbeat_ticks: 1,
        max_inflight_entries: 4096,
        log_cache_bytes: config.ensemble.log_cache_bytes,
        max_entry_bytes: u32::try_from(entry_bytes_max).expect("at most ENTRY_BYTES_MAX"),
        seed: incarnation,
    }
}

pub(crate) fn sequencer_config(config: &Config, incarnation: u64, entry_bytes_max: usize) -> SequencerConfig {
    let switches = [
        (config.features.extended_types, features::EXTENDED_TYPES),
        (config.features.enforce_quota, features::ENFORCE_QUOTA),
        (config.features.reconfig, features::RECONFIG),
        (!config.features.two_voters, features::ONE_VOTER),
        (config.features.keeper_extensions, features::KEEPER),
        (config.security.skip_acl, features::SKIP_ACL),
        (config.security.sasl_acls, features::SASL_ACLS),
        (config.security.x509_acls, features::X509_ACLS),
    ];
    let bits = switches.iter().filter(|(on, _)| *on).fold(0, |bits, (_, bit)| bits | bit);
    let txns_max = if config.snapshot.txns_max == 0 { u64::MAX } else { config.snapshot.txns_max };
    SequencerConfig {
        server: config.own_id(),
        incarnation,
        tick_ms: u64::from(config.server.tick_time_ms),
        features: bits,
        batch_bytes_max: BATCH_BYTES_MAX,
        entry_bytes_max,
        command_cost_max: COMMAND_MAX,
        reap: ReapPolicy {
            check_interval_ms: config.containers.check_interval_ms,
            deletes_per_minute_max: config.containers.deletes_per_minute_max,
            never_used_max_ms: config.containers.never_used_max_ms,
        },
        snapshot: SnapshotPolicy {
            floor_bytes: usize::try_from(config.snapshot.floor_bytes).unwrap_or(usize::MAX),
            share_of_snapshot_percent: config.snapshot.share_of_snapshot_percent as usize,
            txns_max,
            log_bytes_max: if config.snapshot.log_bytes_max == 0 { u64::MAX } else { config.snapshot.log_bytes_max },
            interval_min_ms: config.snapshot.interval_min_ms,
            interval_max_ms: if config.snapshot.interval_max_ms == 0 {
                u64::MAX
            } else {
                config.snapshot.interval_max_ms
            },
            calm_ms: config.snapshot.calm_ms,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_contradicts_the_data_is_damage() {
        let code = |error| unfit(&error).code;
        assert_eq!(code(ConsensusError::Config { reason: "election_ticks is too large" }), ExitCode::Config);
        assert_eq!(code(ConsensusError::Library("it is not ready".to_owned())), ExitCode::Internal);
        assert_eq!(code(ConsensusError::VoteForNodeZero), ExitCode::DataDamaged);
    }
}
