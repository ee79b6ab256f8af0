//! The snapshot writer: a plain thread of low priority that merges a frozen state into the next snapshot file. It also
//! drops large values.
//!
//! It works in memory bounded by one section and never holds up a core: what it needs is immutable and shared.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use corral_core::sequencer::FrozenState;
use corral_core::tree::snapshot::{Snapshot, SnapshotFault, SnapshotMerger, section_bits_for};
use corral_engine::{CorruptState, Event, Finding, WrittenSnapshot};
use corral_storage::snapshot::Pace;
use corral_storage::{
    MmapDisk, SnapshotError, SnapshotHead, SnapshotWriter, kept_snapshots, purge, remove_unfinished, snapshot_index,
    snapshot_name,
};

use crate::data::lenders::Lenders;
use crate::data::snapshots::{SECTION_META, SECTION_NODES, load};
use crate::gauges::Stopwatch;
use crate::messages::{ToConsensus, ToWriter};
use crate::runtime::clock::whole_ms;
use crate::runtime::complaint::Complaint;
use crate::runtime::mailbox::Post;
use crate::runtime::memory;
use crate::runtime::threads::lower_priority;

/// A snapshot is written no faster than this: a million znodes of 100 bytes take 1.4 s.
const SNAPSHOT_BYTES_PER_S: u64 = 128 << 20;
/// Quiet time after which the memory of dropped values goes back to the kernel.
const GIVE_BACK_AFTER: Duration = Duration::from_millis(200);
/// How often free memory goes back while no snapshot is written.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(10);
/// How soon again after clients have fallen silent.
const GIVE_BACK_CALM: Duration = Duration::from_secs(1);

/// The settings of the writer.
pub(crate) struct SnapshotSettings {
    /// Snapshots kept, the newest included.
    pub(crate) retained: usize,
    /// Whether older ones are removed at all.
    pub(crate) purge: bool,
    /// Whether the disk is left to others in between.
    pub(crate) paced: bool,
}

/// Zxid and log index of a snapshot.
type SnapshotPosition = (u64, u64);

/// Runs until every sender is gone. `served` is the snapshot that the server has started from, if that is to be trusted.
pub(crate) fn run(
    disk: &MmapDisk,
    settings: &SnapshotSettings,
    served: Option<SnapshotPosition>,
    snapshots: &Stopwatch,
    inbox: &flume::Receiver<ToWriter>,
    consensus: &Post<ToConsensus>,
    lenders: &Lenders,
) {
    lower_priority();
    if let Err(error) = remove_unfinished(disk) {
        tracing::warn!("cannot remove a snapshot that an earlier process left unfinished: {error}");
    }
    let mut kept = Kept { newest: served, spoilt: None, shortage: Shortage::default() };
    kept.remove_old(disk, settings);
    let mut asked = false;
    let (mut given_back, mut due) = (Instant::now(), Instant::now() + GIVE_BACK_EVERY);
    loop {
        // First what is waiting, then the memory that it left behind; later what others left, in long steps.
        let message = match inbox.recv_deadline(due) {
            Ok(message) => message,
            Err(flume::RecvTimeoutError::Timeout) => {
                let now = Instant::now();
                if asked {
                    memory::give_back();
                    (given_back, due) = (now, now + GIVE_BACK_EVERY);
                } else {
                    memory::ask_executors();
                    due = now + GIVE_BACK_AFTER;
                }
                asked = !asked;
                continue;
            }
            Err(flume::RecvTimeoutError::Disconnected) => return,
        };
        match message {
            ToWriter::Calm if asked => continue,
            ToWriter::Calm => {
                due = due.min(given_back + GIVE_BACK_CALM);
                continue;
            }
            ToWriter::Drop(garbage) => drop(garbage),
            ToWriter::Installed { zxid, index } => {
                kept.newest = kept.newest.max(Some((zxid, index)));
                kept.remove_old(disk, settings);
            }
            ToWriter::Replaced { snapshot, by, installs } => {
                if let Err(found) = look_again(&snapshot) {
                    kept.spoilt = Some((by, found.clone()));
                    let _ = consensus.send(Event::CopiedDamage { found, installs }.into());
                }
                // Znodes that were changed meanwhile have their data there still.
                lenders.add(snapshot.lender());
            }
            ToWriter::Write(state) => {
                let _ = consensus.send(kept.write(disk, settings, snapshots, *state).into());
            }
        }
        (asked, due) = (false, Instant::now() + GIVE_BACK_AFTER);
    }
}

/// The snapshots on the disk, as far as they concern the writer.
struct Kept {
    /// The newest snapshot that is known to be whole.
    newest: Option<SnapshotPosition>,
    /// A snapshot with changes that are not to be trusted, and the reason. Nothing is written of a state above it.
    spoilt: Option<(Weak<Snapshot>, CorruptState)>,
    shortage: Shortage,
}

impl Kept {
    /// Removes the snapshots that are too old to be kept beside the newest one, if that is wanted.
    fn remove_old(&self, disk: &MmapDisk, settings: &SnapshotSettings) {
        let Some(newest) = self.newest.filter(|_| settings.purge) else { return };
        if let Err(error) = purge(disk, newest, settings.retained) {
            tracing::warn!("cannot remove old snapshots: {error}");
        }
    }

    /// Writes a snapshot of this state, if that is possible. Returns the event for the engine.
    fn write(
        &mut self,
        disk: &MmapDisk,
        settings: &SnapshotSettings,
        snapshots: &Stopwatch,
        state: FrozenState,
    ) -> Event {
        let (index, zxid, below) = (state.index, state.zxid.0, Arc::downgrade(&state.snapshot));
        // Their space may be needed.
        self.remove_old(disk, settings);
        let known = self.spoilt.as_ref().filter(|(snapshot, _)| snapshot.ptr_eq(&below));
        let written = match known {
            Some((_, distrust)) => Err(NotWritten::Damaged(distrust.clone())),
            None => self.shortage.check(disk, index).and_then(|()| write(disk, settings, snapshots, state)),
        };
        let failure = match written {
            Ok(written) => {
                self.newest = self.newest.max(Some((zxid, index)));
                return Event::SnapshotWritten(written);
            }
            Err(failure) => failure,
        };
        let (was_tried, mut found) = (!matches!(failure, NotWritten::Waits(_)), None);
        match failure {
            NotWritten::Damaged(distrust) => {
                self.spoilt = Some((below, distrust.clone()));
                found = Some(distrust);
            }
            NotWritten::NoSpace(bytes, reason) => {
                self.shortage = Shortage { index, bytes, told: Complaint::default() };
                not_written(&reason);
            }
            NotWritten::Waits(reason) => {
                self.shortage.told.again(Instant::now()).into_iter().for_each(|_| not_written(&reason));
            }
            NotWritten::Failed(reason) => not_written(&reason),
        }
        Event::SnapshotFailed { index, was_tried, found }
    }
}

fn not_written(reason: &str) {
    tracing::error!("the snapshot was not written, the log keeps everything: {reason}");
}

/// A snapshot found no space. It is not begun again before there is more than it had taken then: each attempt would
/// leave the log, too, without space.
#[derive(Default)]
struct Shortage {
    index: u64,
    /// The snapshot is larger than that.
    bytes: u64,
    told: Complaint,
}

impl Shortage {
    fn check(&self, disk: &MmapDisk, index: u64) -> Result<(), NotWritten> {
        let free = disk.free_bytes().unwrap_or(u64::MAX);
        if index != self.index || free > self.bytes {
            return Ok(());
        }
        let (path, bytes) = (disk.path().display(), self.bytes);
        let reason =
            format!("no space for the snapshot: {path} has {free} bytes left, and {bytes} were not enough; free space");
        Err(NotWritten::Waits(reason))
    }
}

/// While changes were evaluated above a snapshot, they copied from it, such as the data of a znode when its ACL was
/// set. It is compared with its checksums once more, before any snapshot of these changes is begun. So no copy of a
/// damaged place gets into one. A start then evaluates them anew.
fn look_again(snapshot: &Snapshot) -> Result<(), CorruptState> {
    snapshot.verify().map_err(|fault| CorruptState { finding: Finding::DamagedSnapshot, what: fault.to_string() })
}

/// Why there is no new snapshot.
#[derive(Debug)]
pub(crate) enum NotWritten {
    /// The snapshot below does not match its checksums any more: nothing of it was copied. Or the znodes do not have
    /// the digest that was kept with the changes. Where, or which.
    Damaged(CorruptState),
    /// So many bytes found no space. In a sentence.
    NoSpace(u64, String),
    /// It was not begun, because there is too little space still. In a sentence.
    Waits(String),
    /// In a sentence.
    Failed(String),
}

impl NotWritten {
    fn merge(fault: SnapshotFault) -> NotWritten {
        match fault {
            SnapshotFault::Damaged(what) => {
                NotWritten::Damaged(CorruptState { finding: Finding::DamagedSnapshot, what })
            }
            fault @ SnapshotFault::Diverged { .. } => {
                NotWritten::Damaged(CorruptState { finding: Finding::DivergedDigest, what: fault.to_string() })
            }
            other => NotWritten::Failed(other.to_string()),
        }
    }

    fn failed(error: impl std::fmt::Display) -> NotWritten {
        NotWritten::Failed(error.to_string())
    }

    /// When the file had so many bytes.
    fn at(bytes: u64, error: &SnapshotError) -> NotWritten {
        match error {
            SnapshotError::NoSpace { .. } => NotWritten::NoSpace(bytes, error.to_string()),
            _ => NotWritten::failed(error),
        }
    }

    /// As a sentence.
    pub(crate) fn text(self) -> String {
        match self {
            NotWritten::Damaged(CorruptState { what: text, .. })
            | NotWritten::NoSpace(_, text)
            | NotWritten::Waits(text)
            | NotWritten::Failed(text) => text,
        }
    }
}

/// Writes a snapshot where no server runs, as fast as the disk can, and removes none. Gives its file name.
///
/// # Errors
/// As [`write()`].
pub(crate) fn write_alone(disk: &MmapDisk, state: FrozenState) -> Result<String, NotWritten> {
    let name = snapshot_name(state.zxid.0, state.index);
    let settings = SnapshotSettings { retained: 1, purge: false, paced: false };
    write(disk, &settings, &Stopwatch::default(), state).map(|_| name)
}

/// Writes a snapshot, maps and checks it, and removes snapshots that are not kept.
///
/// # Errors
/// [`NotWritten`]; the snapshots that were there stay.
pub(crate) fn write(
    disk: &MmapDisk,
    settings: &SnapshotSettings,
    snapshots: &Stopwatch,
    state: FrozenState,
) -> Result<WrittenSnapshot, NotWritten> {
    let started = Instant::now();
    let FrozenState { snapshot: below, delta, sessions, zxid, index, term, extra, .. } = state;
    let head = SnapshotHead { zxid: zxid.0, term, index, seed: below.seed() };
    let mut file =
        SnapshotWriter::begin(disk, head, settings.paced.then(pace)).map_err(|error| NotWritten::at(0, &error))?;
    let mut merger = SnapshotMerger::new(&below, &delta, section_bits_for(&below, &delta));
    while let Some(section) = merger.next_section().map_err(NotWritten::merge)? {
        let written = file.section(SECTION_NODES, &section);
        written.map_err(|error| NotWritten::at(file.bytes(), &error))?;
    }
    let stats = merger.stats();
    let meta = merger.finish(zxid, sessions.to_snapshot(), extra).map_err(NotWritten::merge)?;
    let written = file.section(SECTION_META, &meta);
    let bytes = file.bytes();
    let name = written.and_then(|()| file.finish()).map_err(|error| NotWritten::at(bytes, &error))?;
    let snapshot =
        load(disk, &name.file, 1, &AtomicU64::new(0)).map_err(|unusable| NotWritten::Failed(unusable.to_string()))?;
    let kept = retire(disk, settings, (zxid.0, index)).map_err(NotWritten::failed)?;
    let took = started.elapsed();
    snapshots.note(took);
    let took_ms = whole_ms(took);
    tracing::info!(file = %name.file, %zxid, nodes = stats.nodes, bytes, took_ms, "snapshot written");
    Ok(WrittenSnapshot { snapshot: snapshot.snapshot, bytes: snapshot.bytes, index, term, kept })
}

/// Keeps a snapshot from taking all of the disk. The log shares it, and each of the log's syncs waits for earlier
/// writes.
fn pace() -> Pace {
    let mut before = Instant::now();
    Box::new(move |bytes| {
        let due = before + Duration::from_nanos(bytes as u64 * 1_000_000_000 / SNAPSHOT_BYTES_PER_S);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        // A slow piece is not made up for.
        before = Instant::now();
    })
}

/// Removes old snapshots if that is wanted. Gives the log indices of the snapshots that stay and can be read.
fn retire(disk: &MmapDisk, settings: &SnapshotSettings, newest: SnapshotPosition) -> std::io::Result<Vec<u64>> {
    let names = if settings.purge { purge } else { kept_snapshots }(disk, newest, settings.retained)?;
    let readable = |name| match snapshot_index(disk, &name) {
        Ok(index) => Some(index),
        Err(error) => {
            tracing::warn!("an older snapshot cannot be read and does not count: {error}");
            None
        }
    };
    Ok(names.into_iter().filter_map(readable).collect())
}

#[cfg(test)]
mod tests {
    use corral_core::ops;
    use corral_core::ops::{CreateOp, WriteOp};
    use corral_core::tree::acl::{Acl, AclSpec};
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;

    use corral_core::apply::StateMachine;
    use corral_core::command::{Batch, Command, CommandKind};
    use corral_core::ids::{SessionId, WallMillis};
    use corral_core::session::{Ephemerals, Session, SessionTable};
    use corral_core::shared::Data;
    use corral_core::tree::change::Change;
    use corral_core::tree::view::View;
    use corral_core::tree::znode::{NodeStat, Znode};
    use corral_storage::{SyncRecipe, list_snapshots};

    use super::*;
    use crate::runtime::mailbox::{Bell, mailbox};

    const SESSION: SessionId = SessionId(1);
    const SETTINGS: SnapshotSettings = SnapshotSettings { retained: 10, purge: true, paced: true };

    /// A state with this snapshot as its tree.
    fn above(snapshot: Arc<Snapshot>, index: u64) -> FrozenState {
        let mut view = View::new(snapshot);
        let (delta, sessions) = (view.freeze(), SessionTable::default());
        let (snapshot, zxid, nodes) = (Arc::clone(view.snapshot()), view.zxid(), view.node_count());
        FrozenState { snapshot, delta, sessions, zxid, index, term: 1, nodes, extra: Vec::new() }
    }

    fn first() -> Arc<Snapshot> {
        Arc::clone(View::empty(7).snapshot())
    }

    /// Runs the writer with these messages. Gives the events for the consensus actor, and the snapshots with bytes that
    /// may be lent.
    fn run_with(disk: &MmapDisk, messages: impl IntoIterator<Item = ToWriter>) -> (Vec<Event>, Lenders) {
        let (to_writer, inbox) = flume::unbounded();
        let lenders = Lenders::default();
        let (consensus, told) = mailbox(&Bell::new().expect("a bell"));
        messages.into_iter().for_each(|message| to_writer.send(message).expect("it is taken"));
        drop(to_writer);
        run(disk, &SETTINGS, None, &Stopwatch::default(), &inbox, &consensus, &lenders);
        let event = |told| if let ToConsensus::Event(event) = told { Some(event) } else { None };
        (told.try_iter().filter_map(event).collect(), lenders)
    }

    #[test]
    fn old_snapshots_go_at_the_start_and_after_an_install() {
        let directory = tempfile::tempdir().expect("a directory");
        let disk = MmapDisk::open(directory.path(), SyncRecipe::default()).expect("it opens");
        for index in 1..=5 {
            write(&disk, &SETTINGS, &Stopwatch::default(), above(first(), index)).expect("written");
        }
        let left_by = |served, installed: Option<u64>| {
            let (settings, (to_writer, inbox)) =
                (SnapshotSettings { retained: 2, purge: true, paced: true }, flume::unbounded());
            let (consensus, _told) = mailbox(&Bell::new().expect("a bell"));
            let message = installed.map(|index| ToWriter::Installed { zxid: 0, index });
            message.into_iter().for_each(|message| to_writer.send(message).expect("it is taken"));
            drop(to_writer);
            run(&disk, &settings, served, &Stopwatch::default(), &inbox, &consensus, &Lenders::default());
            list_snapshots(&disk).expect("a list").iter().map(|name| name.index).collect::<Vec<_>>()
        };
        assert_eq!(left_by(None, None), [5, 4, 3, 2, 1], "none is known to be whole");
        assert_eq!(left_by(Some((0, 3)), None), [5, 4, 3, 2], "newer ones were passed over");
        assert_eq!(left_by(Some((0, 3)), Some(5)), [5, 4]);
    }

    #[test]
    fn nothing_is_written_above_changes_that_may_have_copied_damage() {
        let directory = tempfile::tempdir().expect("a directory");
        let disk = MmapDisk::open(directory.path(), SyncRecipe::default()).expect("it opens");
        let write =
            |snapshot, index| write(&disk, &SETTINGS, &Stopwatch::default(), above(snapshot, index)).expect("written");
        let before = write(first(), 1).snapshot;
        let after = write(Arc::clone(&before), 2).snapshot;
        let oldest = &list_snapshots(&disk).expect("a list")[1].file;
        let file = File::options().write(true).open(directory.path().join(oldest)).expect("it opens");
        file.write_all_at(b"DAMAGE", 4096 + 20).expect("it is written");
        let write = |snapshot, index| ToWriter::Write(Box::new(above(snapshot, index)));
        let by = Arc::downgrade(&after);
        let installed = first();
        let messages = [
            ToWriter::Replaced { snapshot: before, by, installs: 0 },
            write(Arc::clone(&after), 3),
            write(after, 3),
            // Another server's snapshot took the place of everything.
            write(installed, 4),
        ];
        let (told, _) = run_with(&disk, messages);
        let distrusts = told.iter().filter_map(|told| match told {
            Event::CopiedDamage { found, .. } | Event::SnapshotFailed { found: Some(found), .. } => Some(found.finding),
            _ => None,
        });
        assert_eq!(distrusts.collect::<Vec<_>>(), [Finding::DamagedSnapshot; 3]);
        let failed = told.iter().filter(|told| matches!(told, Event::SnapshotFailed { index: 3, .. })).count();
        let written = told.iter().filter(|told| matches!(told, Event::SnapshotWritten(it) if it.index == 4)).count();
        assert_eq!((failed, written, told.len()), (2, 1, 4));
        assert!(list_snapshots(&disk).expect("a list").iter().all(|snapshot| snapshot.index != 3));
    }

    #[test]
    fn what_znodes_have_of_a_replaced_snapshot_is_looked_at_as_long_as_they_have_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let disk = MmapDisk::open(directory.path(), SyncRecipe::default()).expect("it opens");
        let data = vec![7; 8192];
        let mut view = View::empty(7);
        let (at, zxid) = (view.hashed("/large".into()), view.zxid());
        let large = Znode { stat: NodeStat::default(), acl: Acl::Open, data: Some(Data::from(&data[..])) };
        view.apply(zxid, &Change::Created { at, node: Arc::new(large) });
        let (delta, sessions) = (view.freeze(), SessionTable::default());
        let (snapshot, zxid, nodes) = (Arc::clone(view.snapshot()), view.zxid(), view.node_count());
        let state = FrozenState { snapshot, delta, sessions, zxid, index: 1, term: 1, nodes, extra: Vec::new() };
        let snapshot = write(&disk, &SETTINGS, &Stopwatch::default(), state).expect("written").snapshot;
        let changed = View::new(Arc::clone(&snapshot)).get("/large").expect("it is there").to_znode();

        let by = Arc::downgrade(&first());
        let (told, lenders) = run_with(&disk, [ToWriter::Replaced { snapshot, by, installs: 0 }]);
        assert!(told.is_empty() && lenders.verify(|_| {}).is_empty(), "all is sound");
        let file = directory.path().join(&list_snapshots(&disk).expect("a list")[0].file);
        let bytes = std::fs::read(&file).expect("it is read");
        let place = bytes.windows(data.len()).position(|part| part == data).expect("the data are there");
        // Nothing finds the file by its name any more.
        let open = File::options().write(true).open(&file).expect("it opens");
        std::fs::remove_file(&file).expect("removed");
        open.write_all_at(b"DAMAGE", place as u64).expect("it is written");
        assert!(matches!(lenders.verify(|_| {})[..], [SnapshotFault::Damaged(_)]));
        drop(changed);
        assert!(lenders.verify(|_| {}).is_empty(), "nobody has its data");
    }

    /// A machine applies one more transaction, of one operation.
    fn apply(machine: &mut StateMachine, op: WriteOp) {
        let first_zxid = machine.view().zxid().0.max(1 << 32) + 1;
        let command = Command { origin: None, session: SESSION, identities: 0, kind: CommandKind::Op(op) };
        let identities = vec![Arc::new(Vec::new())];
        let batch = Batch { time: WallMillis(1), first_zxid, features: 0, identities, commands: vec![command] };
        assert!(!machine.apply(batch, 1).txns[0].changes.is_empty(), "it is done");
    }

    fn create(path: &str, data: &[u8]) -> WriteOp {
        let (path, data) = (path.into(), Some(Data::from(data)));
        WriteOp::Create(ops::Create { op: CreateOp::Create, path, data, acl: AclSpec::Open, flags: 0, ttl_ms: -1 })
    }

    #[test]
    fn a_set_acl_does_not_make_damaged_data_sound() {
        let directory = tempfile::tempdir().expect("a directory");
        let disk = MmapDisk::open(directory.path(), SyncRecipe::default()).expect("it opens");
        let frozen = |machine: &mut StateMachine, index| {
            let (delta, sessions, view) = (machine.view_mut().freeze(), SessionTable::default(), machine.view());
            let (snapshot, zxid, nodes) = (Arc::clone(view.snapshot()), view.zxid(), view.node_count());
            FrozenState { snapshot, delta, sessions, zxid, index, term: 1, nodes, extra: Vec::new() }
        };
        let write = |state| write(&disk, &SETTINGS, &Stopwatch::default(), state);
        let data = vec![7; 8192];
        let mut sessions = SessionTable::default();
        let ephemerals = Ephemerals::default();
        sessions.insert(SESSION, Session { timeout_ms: 10_000, password: [1; 16], owner: None, ephemerals });
        let mut machine = StateMachine::new(View::empty(7), sessions);
        apply(&mut machine, create("/large", &data));
        let state = frozen(&mut machine, 1);
        machine.view_mut().swap_snapshot(write(state).expect("written").snapshot);
        // While the second snapshot is written a child comes, so the znode has its data in the first one from then on.
        let state = frozen(&mut machine, 2);
        apply(&mut machine, create("/large/child", b""));
        machine.view_mut().swap_snapshot(write(state).expect("written").snapshot);
        let file = directory.path().join(&list_snapshots(&disk).expect("a list")[1].file);
        let bytes = std::fs::read(&file).expect("it is read");
        let place = bytes.windows(data.len()).position(|part| part == data).expect("the data are there");
        let open = File::options().write(true).open(&file).expect("it opens");
        open.write_all_at(b"DAMAGE", place as u64).expect("it is written");

        apply(&mut machine, WriteOp::SetAcl(ops::SetAcl { path: "/large".into(), acl: AclSpec::Open, version: -1 }));
        let state = frozen(&mut machine, 3);
        assert!(matches!(write(state), Err(NotWritten::Damaged(_))));
    }

    #[test]
    fn a_snapshot_that_found_no_space_is_begun_again_when_there_is_more() {
        let directory = tempfile::tempdir().expect("a directory");
        let disk = MmapDisk::open(directory.path(), SyncRecipe::default()).expect("it opens");
        let short = |index, bytes| Shortage { index, bytes, told: Complaint::default() }.check(&disk, 5);
        assert!(matches!(short(5, u64::MAX), Err(NotWritten::Waits(_))));
        assert!(short(4, u64::MAX).is_ok(), "of another state");
        assert!(short(5, 0).is_ok() && Shortage::default().check(&disk, 5).is_ok());
    }
}
