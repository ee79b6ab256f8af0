//! The thread that writes a snapshot which another server sends, checks it and maps it.
//!
//! Everything here may block. One snapshot at a time: a new one ends the one before. It knows neither Raft nor links.

use std::sync::atomic::AtomicU64;

use corral_engine::{Event, Incoming, Receive};
use corral_storage::{Disk as _, MmapDisk, SnapshotReceiver, remove_incoming, snapshot_name};

use crate::data::quarantine::{clear_marks, mark_distrusted};
use crate::data::snapshots::load;
use crate::messages::{ToConsensus, ToSnapshotReceiver};
use crate::runtime::mailbox::Post;

/// The snapshot that comes in.
struct Taking {
    index: u64,
    receiver: SnapshotReceiver<MmapDisk>,
}

/// Runs until every sender is gone. First it removes the unfinished file of an earlier process. `mismatches` counts the
/// snapshots with znodes that do not have the stored digest.
pub(crate) fn run(
    disk: &MmapDisk,
    inbox: &flume::Receiver<ToSnapshotReceiver>,
    consensus: &Post<ToConsensus>,
    mismatches: &AtomicU64,
) {
    if let Err(error) = remove_incoming(disk) {
        tracing::warn!("cannot remove the rest of an earlier snapshot transfer: {error}");
    }
    let mut taking: Option<Taking> = None;
    for message in inbox {
        let (index, told) = match message {
            ToSnapshotReceiver::Note(Some(reason)) => {
                noted(mark_distrusted(disk.path(), &reason));
                continue;
            }
            ToSnapshotReceiver::Note(None) => {
                noted(clear_marks(disk.path()));
                continue;
            }
            ToSnapshotReceiver::Receive(Receive::Forget { index, zxid }) => {
                forget(disk, &snapshot_name(zxid, index));
                continue;
            }
            ToSnapshotReceiver::Receive(Receive::Begin { index, zxid, bytes }) => {
                // Its file goes before another of the same name may come.
                drop(taking.take());
                let begun = SnapshotReceiver::begin(disk, zxid, bytes).map_err(|error| error.to_string());
                (index, begun.map(|receiver| taking = Some(Taking { index, receiver })).map(|()| None))
            }
            ToSnapshotReceiver::Receive(Receive::Piece { index, bytes }) => {
                if taking.as_ref().is_none_or(|one| one.index != index) {
                    continue;
                }
                (index, piece(disk, &mut taking, &bytes, mismatches).map(Some))
            }
        };
        let told = match told {
            Ok(None) => continue,
            Ok(Some(told)) => told,
            Err(reason) => {
                taking = None;
                Incoming::Failed { index, reason }
            }
        };
        if consensus.send(Event::Incoming(told).into()).is_err() {
            return;
        }
    }
}

fn noted(done: std::io::Result<()>) {
    if let Err(error) = done {
        tracing::error!("cannot record in the data directory whether the state is trusted: {error}");
    }
}

/// Writes a piece; after the last one the snapshot is durable, checked and mapped.
fn piece(
    disk: &MmapDisk,
    taking: &mut Option<Taking>,
    bytes: &[u8],
    mismatches: &AtomicU64,
) -> Result<Incoming, String> {
    let Some(mut one) = taking.take() else { return Err("no snapshot has begun".to_owned()) };
    one.receiver.take(bytes).map_err(|error| error.to_string())?;
    let index = one.index;
    if !one.receiver.is_whole() {
        let upto = one.receiver.received();
        *taking = Some(one);
        return Ok(Incoming::Written { index, upto });
    }
    let name = one.receiver.finish().map_err(|error| error.to_string())?;
    let loaded = load(disk, &name.file, 1, mismatches).map_err(|unusable| unusable.to_string());
    // A damaged file would count as one of the kept snapshots as long as it exists.
    loaded.inspect_err(|_| forget(disk, &name.file)).map(|loaded| Incoming::Whole { index, snapshot: loaded.into() })
}

fn forget(disk: &MmapDisk, file: &str) {
    if let Err(error) = disk.remove(file).and_then(|()| disk.sync_dir()) {
        tracing::warn!(file, "an unusable snapshot cannot be removed: {error}; remove it by hand");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use corral_core::sequencer::FrozenState;
    use corral_core::session::SessionTable;
    use corral_core::tree::view::View;
    use corral_storage::{SyncRecipe, list_snapshots};
    use std::sync::Arc;

    use crate::actor::snapshot_writer::{SnapshotSettings, write};
    use crate::gauges::Stopwatch;
    use crate::runtime::mailbox::{Bell, mailbox};

    fn disk(directory: &tempfile::TempDir) -> MmapDisk {
        MmapDisk::open(directory.path(), SyncRecipe::default()).expect("it opens")
    }

    /// The bytes of a snapshot that ends at entry 5.
    fn snapshot() -> Vec<u8> {
        let directory = tempfile::tempdir().expect("a directory");
        let mut view = View::empty(7);
        let (delta, sessions) = (view.freeze(), SessionTable::default());
        let (snapshot, zxid, nodes) = (Arc::clone(view.snapshot()), view.zxid(), view.node_count());
        let state = FrozenState { snapshot, delta, sessions, zxid, index: 5, term: 1, nodes, extra: Vec::new() };
        let settings = SnapshotSettings { retained: 2, purge: true, paced: true };
        write(&disk(&directory), &settings, &Stopwatch::default(), state).expect("it is written");
        let name = &list_snapshots(&disk(&directory)).expect("a list")[0].file;
        std::fs::read(directory.path().join(name)).expect("it is read")
    }

    /// The events for these bytes, and the snapshots on the disk then.
    fn receive(bytes: Vec<u8>) -> (Vec<Event>, usize) {
        let directory = tempfile::tempdir().expect("a directory");
        let (sender, inbox) = flume::unbounded();
        let (consensus, told) = mailbox(&Bell::new().expect("a bell"));
        let begin = Receive::Begin { index: 5, zxid: 0, bytes: bytes.len() as u64 };
        for receive in [begin, Receive::Piece { index: 5, bytes: Bytes::from(bytes) }] {
            sender.send(ToSnapshotReceiver::Receive(receive)).expect("it is taken");
        }
        drop(sender);
        run(&disk(&directory), &inbox, &consensus, &AtomicU64::new(0));
        let event = |told| if let ToConsensus::Event(event) = told { Some(event) } else { None };
        let left = list_snapshots(&disk(&directory)).expect("a list").len();
        (told.try_iter().filter_map(event).collect(), left)
    }

    #[test]
    fn a_snapshot_that_cannot_be_used_is_not_kept() {
        let whole = snapshot();
        let (told, left) = receive(whole.clone());
        assert!(matches!(&told[..], [Event::Incoming(Incoming::Whole { index: 5, .. })]) && left == 1);
        let mut damaged = whole;
        damaged[4096 + 20] ^= 1;
        let (told, left) = receive(damaged);
        assert!(matches!(&told[..], [Event::Incoming(Incoming::Failed { index: 5, .. })]));
        assert_eq!(left, 0, "it would count as one of the snapshots that are kept");
    }
}
