//! From the simulated disk to a server that leads, or in an ensemble follows: the newest whole image, then the log behind
//! it, as the real server's start does it.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use corral_consensus::{
    Append, Config as RaftConfig, Effects, Entry, EntryKind, FORMED_INDEX, FORMED_TERM, HardState, Index, Machine,
    Membership, Micros, NodeId, RaftNode, Replica, Restored, Stored, Term,
};
use corral_core::command::Batch;
use corral_core::evaluate::{StateMachine, features};
use corral_core::ids::{Millis, WallMillis};
use corral_core::image::{AlignedBytes, CheckedMeta, CheckedSection, Image, ImageBytes, ImageLayout, initial_image};
use corral_core::member::{EnsembleConfig, Founders, Member};
use corral_core::reaper::ReapPolicy;
use corral_core::sequencer::{FrozenState, Sequencer, SequencerConfig, SnapshotPolicy};
use corral_engine::{LoadedImage, Offered, extra};
use corral_storage::log::{Log, LogConfig, LogError, Record, Recovered};
use corral_storage::{Disk as _, ImageFile, ImageHead, SimDisk, list_images};
use rkyv::util::AlignedVec;

use super::authority::Authority;
use super::consensus::TICK;
use super::receiving::Given;
use super::server_id;
use super::spoiled::OnDisk;
use crate::options::{Bug, EnsembleOptions, Options, Switches};
use crate::reconfig::{lines, participants};

pub(crate) const SECTION_NODES: u32 = 1;
pub(crate) const SECTION_META: u32 = 2;
const READ_BYTES: usize = 64 << 10;
/// How often containers and TTL nodes are looked at.
const REAP_INTERVAL_MS: u64 = 1_000;
/// Of an ensemble.
pub(super) const ELECTION_TICKS: u32 = 10;
const HEARTBEAT_TICKS: u32 = 2;

/// What a start needs besides the disk.
pub(crate) struct Start<'a> {
    pub(crate) options: &'a Options,
    /// Its id.
    pub(crate) server: u8,
    /// The servers in its file; with this one.
    pub(crate) file: &'a BTreeSet<u8>,
    pub(crate) incarnation: u64,
    pub(crate) path_seed: u64,
    pub(crate) log_seed: u64,
    pub(crate) now: Millis,
    pub(crate) wall: WallMillis,
}

/// What a start brings back.
pub(crate) struct Started {
    pub(crate) replica: Replica<Authority>,
    pub(crate) log: Log<SimDisk>,
    /// The log begins to be applied behind this index.
    pub(crate) image_index: u64,
    /// The image it starts from, for other servers.
    pub(crate) newest: Option<Offered>,
    /// What was replayed, if it is worth an image.
    pub(crate) frozen: Option<FrozenState>,
    /// What it remembers of elections.
    pub(crate) hard_state: HardState,
}

impl Start<'_> {
    /// Opens the disk's content and leads.
    ///
    /// # Errors
    /// A sentence; without a disk that was told to fail there must be none.
    pub(crate) fn recover(&self, disk: &SimDisk) -> Result<Started, String> {
        // As the server's directory is opened: what a killed process left there only by name would be lost by a power cut.
        disk.sync_dir().map_err(text)?;
        let loaded = newest(disk)?;
        let config = LogConfig {
            segment_bytes: self.options.segment_bytes,
            create_if_missing: loaded.is_none(),
            seed: self.log_seed,
            ..LogConfig::default()
        };
        let (mut log, mut found) = Log::open(disk.clone(), config, &mut |_| {}).map_err(text)?;
        let kept = self.kept(loaded.as_ref(), &found)?;
        let newest = loaded.as_ref().map(LoadedImage::offered);
        let (machine, index, term) = self.state_machine(loaded, &kept);
        if kept != Kept::Alone {
            log.go_on_behind(&mut found, (index, term)).map_err(text)?;
        }
        reaches(&found, index)?;
        let mut sequencer = Sequencer::new(self.sequencer_config(log.payload_bytes_max()), machine, index, term);
        if let Some(ensemble) = self.options.ensemble.filter(|ensemble| ensemble.list.is_some()) {
            sequencer.configure(lines(&participants((0..ensemble.servers).map(server_id))).into());
        }
        let hard_state = hard_state(&found, Term(term));
        let mut authority = self.authority(sequencer);
        let is_alone = kept == Kept::Alone;
        let committed = if is_alone { found.last_index } else { hard_state.commit.0 };
        let applied = replay(&mut authority, &log, (index, term), committed)?;
        let cut = if is_alone { applied } else { log.reach_back(applied, self.log_cache_bytes()) };
        let restored = Restored {
            hard_state,
            cut_index: Index(cut.0),
            cut_term: Term(cut.1),
            entries: entries_after(&log, &found, cut.0)?,
            image: Index(index),
            applied: Index(applied.0),
        };
        if self.options.ensemble.is_some() {
            let started = self.join(kept, authority, restored, log)?;
            return Ok(Started { newest, ..started });
        }
        let raft = RaftNode::new(self.raft_config(log.payload_bytes_max()), restored).map_err(text)?;
        let replica = Replica::new(raft, authority, Index(applied.0));
        let mut started = Started { replica, log, image_index: index, newest, frozen: None, hard_state };
        self.lead(&mut started)?;
        let sequencer = &mut started.replica.machine_mut().sequencer;
        if sequencer.wants_snapshot_of_replay() {
            started.frozen = Some(sequencer.freeze(self.now, Vec::new()));
        }
        Ok(started)
    }

    /// As the server's `node/membership.rs`.
    fn kept(&self, loaded: Option<&LoadedImage>, found: &Recovered) -> Result<Kept, String> {
        let Some(ensemble) = &self.options.ensemble else { return Ok(Kept::Alone) };
        match loaded {
            Some(loaded) if self.options.bug == Some(Bug::RemovedCounts) => {
                Ok(Kept::Member(with_removed(members_of(&loaded.image)?, ensemble)))
            }
            Some(loaded) => Ok(Kept::Member(members_of(&loaded.image)?)),
            None if self.options.bug == Some(Bug::NewbornVotes) => Ok(Kept::Member(founders(ensemble))),
            None if found.last_index == 0 => Ok(Kept::Newborn),
            None => Err("a log without an image in an ensemble".to_owned()),
        }
    }

    fn join(
        &self,
        kept: Kept,
        mut authority: Authority,
        mut restored: Restored,
        log: Log<SimDisk>,
    ) -> Result<Started, String> {
        let (image, applied) = (restored.image, restored.applied);
        if self.options.bug == Some(Bug::VoteTwice) {
            restored.hard_state.vote = None;
        }
        let hard_state = restored.hard_state;
        let config = RaftConfig {
            election_ticks: ELECTION_TICKS,
            heartbeat_ticks: HEARTBEAT_TICKS,
            voters: self.file.iter().map(|id| NodeId(u64::from(*id))).collect(),
            ..self.raft_config(log.payload_bytes_max())
        };
        let raft = match kept {
            Kept::Member(membership) => RaftNode::with_membership(config, membership, restored),
            _ => RaftNode::newborn(config),
        };
        let raft = raft.map_err(text)?;
        if raft.is_newborn() || raft.is_pristine() {
            let voters = self.file.iter().copied().collect();
            let founders = Founders { own: self.server, voters, learners: Vec::new() };
            authority.born(founders, raft.is_pristine());
        }
        let replica = Replica::new(raft, authority, applied);
        Ok(Started { replica, log, image_index: image.0, newest: None, frozen: None, hard_state })
    }

    /// What Raft replicates, at the place of the image.
    fn authority(&self, sequencer: Sequencer) -> Authority {
        let mut member = match &self.options.ensemble {
            None => Member::alone(sequencer),
            Some(ensemble) => {
                let config = EnsembleConfig {
                    shards: self.options.shards,
                    hold_ms: ensemble.hold_ms,
                    lost_after_ms: u64::from(ELECTION_TICKS) * TICK / 1000,
                };
                Member::of_ensemble(sequencer, config)
            }
        };
        member.set_time(self.now, self.wall);
        Authority::new(member, self.options.bug, self.server)
    }

    fn lead(&self, started: &mut Started) -> Result<(), String> {
        let Started { replica, log, .. } = started;
        replica.campaign();
        while !replica.is_leading() {
            replica.machine_mut().set_time(self.now, self.wall);
            let mut effects = Effects::default();
            while replica.turn(Micros(0), &mut effects).map_err(|_| "a log entry is no batch".to_owned())? {}
            for append in effects.appends {
                write(log, &append).map_err(text)?;
                log.sync().map_err(text)?;
                replica.persisted(Micros(0), append.number);
            }
        }
        drop(replica.machine_mut().take_applied());
        Ok(())
    }

    fn state_machine(&self, loaded: Option<LoadedImage>, kept: &Kept) -> (StateMachine, u64, u64) {
        let Some(loaded) = loaded else {
            let begun = matches!(kept, Kept::Member(_));
            let (index, term) = if begun { (FORMED_INDEX.0, FORMED_TERM.0) } else { (0, 0) };
            return (StateMachine::of_image(Arc::new(initial_image(self.path_seed))), index, term);
        };
        (loaded.state(), loaded.index, loaded.term)
    }

    fn log_cache_bytes(&self) -> u64 {
        self.options.ensemble.map_or(0, |ensemble| ensemble.log_cache_bytes)
    }

    fn raft_config(&self, payload_bytes_max: usize) -> RaftConfig {
        let id = NodeId(u64::from(self.server));
        RaftConfig {
            id,
            voters: vec![id],
            learners: Vec::new(),
            election_ticks: 10,
            heartbeat_ticks: 1,
            max_inflight_entries: 4096,
            log_cache_bytes: self.log_cache_bytes(),
            max_entry_bytes: u32::try_from(payload_bytes_max).expect("segments are small here"),
            seed: self.incarnation,
        }
    }

    fn feature_bits(&self) -> u32 {
        let Switches { extended_types, enforce_quota, reconfig, keeper } = self.options.switches;
        let list = self.options.ensemble.and_then(|ensemble| ensemble.list);
        let switches = [
            (extended_types, features::EXTENDED_TYPES),
            (enforce_quota, features::ENFORCE_QUOTA),
            (reconfig, features::RECONFIG),
            (keeper, features::KEEPER),
            (list.is_some_and(|list| list.voters_min == 1), features::ONE_VOTER),
        ];
        switches.iter().filter(|(on, _)| *on).fold(0, |bits, (_, bit)| bits | bit)
    }

    fn sequencer_config(&self, entry_bytes_max: usize) -> SequencerConfig {
        let Options { session_tick_ms, batch_bytes_max, .. } = *self.options;
        SequencerConfig {
            server: self.server,
            incarnation: self.incarnation,
            tick_ms: session_tick_ms,
            features: self.feature_bits(),
            batch_bytes_max,
            entry_bytes_max,
            reap: ReapPolicy {
                check_interval_ms: REAP_INTERVAL_MS,
                deletes_per_minute_max: 10_000,
                never_used_max_ms: 0,
            },
            snapshot: SnapshotPolicy {
                floor_bytes: self.options.snapshot_floor_bytes,
                share_percent: 30,
                txns_max: self.options.snapshot_txns,
                log_bytes_max: 64 << 10,
                interval_min_ms: self.options.snapshot_interval_min_ms,
                interval_max_ms: 20_000,
                calm_ms: self.options.snapshot_calm_ms,
            },
        }
    }
}

/// What a server is by its disk.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kept {
    Alone,
    Newborn,
    Member(Membership),
}

/// Who forms the ensemble.
fn founders(ensemble: &EnsembleOptions) -> Membership {
    let ids: Vec<NodeId> = (1..=ensemble.servers as u64).map(NodeId).collect();
    Membership::simple(&ids, &[])
}

/// [`Bug::RemovedCounts`].
fn with_removed(mut members: Membership, ensemble: &EnsembleOptions) -> Membership {
    let removed = founders(ensemble).voters.into_iter().filter(|id| !members.contains(*id));
    let removed: Vec<NodeId> = removed.collect();
    members.voters.extend(removed);
    members.voters.sort_unstable();
    members
}

/// Whom an image keeps as members.
///
/// # Errors
/// When it says nonsense of that.
pub(crate) fn members_of(image: &Image) -> Result<Membership, String> {
    extra::decode(image.extra()).map(|(extra, _)| extra.members).map_err(str::to_owned)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Copies an append into the log. Not durable yet.
pub(crate) fn write(log: &mut Log<SimDisk>, append: &Append) -> Result<(), LogError> {
    let stored = append.stored();
    let records: Vec<Record<'_>> = stored.iter().map(record).collect();
    log.append(&records)
}

fn record<'a>(stored: &Stored<'a>) -> Record<'a> {
    match stored {
        Stored::HardState(state) => {
            let vote = state.vote.map_or(0, |node| node.0);
            Record::HardState(corral_storage::log::HardState { term: state.term.0, vote, commit: state.commit.0 })
        }
        Stored::Entry(entry) => Record::Entry(corral_storage::log::Entry {
            term: entry.term.0,
            index: entry.index.0,
            kind: kind(entry.kind),
            first_zxid: zxid(entry),
            payload: &entry.payload,
        }),
    }
}

fn kind(kind: EntryKind) -> corral_storage::EntryKind {
    match kind {
        EntryKind::Normal => corral_storage::EntryKind::Normal,
        EntryKind::ConfChange => corral_storage::EntryKind::Membership,
    }
}

/// The first zxid of an entry's batch; 0 for one that holds none.
fn zxid(entry: &Entry) -> u64 {
    match entry.kind {
        EntryKind::Normal => Batch::zxid_of(&entry.payload),
        EntryKind::ConfChange => 0,
    }
}

/// The newest image that is whole. One that is damaged is passed over, if the log reaches far enough back for that.
fn newest(disk: &SimDisk) -> Result<Option<LoadedImage>, String> {
    let names = list_images(disk).map_err(text)?;
    let mut passed_over = None;
    for name in &names {
        match load(disk, &name.file) {
            Ok(loaded) => return Ok(Some(loaded)),
            Err(error) if error.contains("damaged") => passed_over = Some(error),
            Err(error) => return Err(error),
        }
    }
    passed_over.map_or(Ok(None), Err)
}

/// Reads an image and checks every section.
pub(crate) fn load(disk: &SimDisk, name: &str) -> Result<LoadedImage, String> {
    let file = ImageFile::open(disk, name).map_err(text)?;
    let layout = layout(&file)?;
    let judge = OnDisk { disk: disk.clone(), file: name.to_owned() };
    let mut copy = AlignedVec::new();
    copy.extend_from_slice(file.bytes().as_slice());
    let bytes: Arc<dyn ImageBytes> = Arc::new(AlignedBytes::judged_by(copy, Arc::new(judge)));
    for section in 0..=layout.sections.len() {
        file.verify_section(section).map_err(text)?;
    }
    let sections = (0..layout.sections.len()).map(|at| CheckedSection::check(&bytes, &layout, at));
    let sections = sections.collect::<Result<Vec<_>, _>>().map_err(text)?;
    let meta = CheckedMeta::check(&bytes, &layout).map_err(text)?;
    let image = Image::assemble(meta, sections).map_err(text)?;
    let ImageHead { index, term, zxid, .. } = file.head();
    let whole = file.bytes().as_slice().to_vec();
    let given = Given { disk: disk.clone(), name: name.to_owned(), whole };
    Ok(LoadedImage { image: Arc::new(image), index, term, zxid, bytes: Arc::new(given) })
}

fn layout(file: &ImageFile) -> Result<ImageLayout, String> {
    let ranges: Option<Vec<_>> = (0..file.section_count()).map(|at| file.section_range(at)).collect();
    let mut sections = ranges.ok_or("a section without a place")?;
    let meta = sections.pop().ok_or("an image without sections")?;
    let head = file.head();
    Ok(ImageLayout { seed: head.seed, zxid: head.zxid, sections, meta })
}

/// As the server's `node/replay.rs`: the log goes on where the image ends.
fn reaches(found: &Recovered, image: u64) -> Result<(), String> {
    if found.first_index <= image + 1 && found.last_index >= image {
        return Ok(());
    }
    let (first, last) = (found.first_index, found.last_index);
    Err(format!("the log holds {first}..={last}, the newest image ends at {image}"))
}

/// As the server's: what is known to be committed is applied at once, up to a change of the membership.
fn replay(
    machine: &mut Authority,
    log: &Log<SimDisk>,
    image: (u64, u64),
    committed: u64,
) -> Result<(u64, u64), String> {
    let (mut place, mut next, mut going) = (image, image.0 + 1, true);
    while going && next <= committed {
        let mut failed = false;
        next = log
            .read(next, READ_BYTES, &mut |entry| {
                going &= entry.index <= committed && entry.kind == corral_storage::EntryKind::Normal;
                if going {
                    failed |= machine.commit(Index(entry.index), Term(entry.term), entry.payload, false).is_err();
                    place = (entry.index, entry.term);
                }
            })
            .map_err(text)?;
        if failed {
            return Err("a log entry is no batch".to_owned());
        }
    }
    drop(machine.take_applied());
    Ok(place)
}

fn entries_after(log: &Log<SimDisk>, found: &Recovered, index: u64) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    let mut next = index + 1;
    while next <= found.last_index {
        let mut keep = |entry: corral_storage::log::Entry<'_>| {
            entries.push(Entry {
                term: Term(entry.term),
                index: Index(entry.index),
                kind: match entry.kind {
                    corral_storage::EntryKind::Normal => EntryKind::Normal,
                    corral_storage::EntryKind::Membership => EntryKind::ConfChange,
                },
                payload: Bytes::copy_from_slice(entry.payload),
            });
        };
        next = log.read(next, READ_BYTES, &mut keep).map_err(text)?;
    }
    Ok(entries)
}

/// As the server's recovery has it.
fn hard_state(found: &Recovered, image: Term) -> HardState {
    let state = found.hard_state.map_or_else(HardState::default, |state| HardState {
        term: Term(state.term),
        vote: (state.vote != 0).then_some(NodeId(state.vote)),
        commit: Index(state.commit.min(found.last_index)),
    });
    if state.term < image { HardState { term: image, vote: None, ..state } } else { state }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Power goes behind an append that replaces entries and says that they are committed.
    #[test]
    fn what_a_crash_leaves_of_replaced_entries_is_not_taken_for_committed() {
        let entry = |term, index, bytes| {
            let payload = Bytes::from(vec![0; bytes]);
            Entry { term: Term(term), index: Index(index), kind: EntryKind::Normal, payload }
        };
        let append = |number, term, entries, commit| {
            let hard_state = Some(HardState { term: Term(term), vote: None, commit: Index(commit) });
            Append { number, entries, hard_state, must_sync: true }
        };
        let (mut old, mut new) = (0, 0);
        for seed in 0..400 {
            let disk = SimDisk::new();
            let config = LogConfig { segment_bytes: 64 << 10, seed: 5, ..LogConfig::default() };
            let (mut log, _) = Log::open(disk.clone(), config.clone(), &mut |_| {}).expect("the disk is new");
            let bytes = 300 + (seed % 200) as usize;
            let first = append(1, 2, (1..=12).map(|index| entry(2, index, bytes)).collect(), 7);
            write(&mut log, &first).expect("there is space");
            log.sync().expect("the disk is good");
            let second = append(2, 3, (8..=10).map(|index| entry(3, index, 300)).collect(), 10);
            write(&mut log, &second).expect("there is space");
            drop(log);
            disk.crash(seed);
            let (log, found) = Log::open(disk, config, &mut |_| {}).expect("a torn tail is cut off");
            let commit = found.hard_state.map_or(0, |state| state.commit.min(found.last_index));
            let wrong = (8..=commit).find(|index| log.term(*index) != Some(3));
            assert_eq!(wrong, None, "seed {seed}: committed up to {commit}");
            *(if log.term(8) == Some(3) { &mut new } else { &mut old }) += 1;
        }
        assert!(old > 40 && new > 40, "{old} cuts left the old entries, {new} brought new ones");
    }
}
