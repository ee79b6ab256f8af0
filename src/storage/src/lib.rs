//! corral-storage: log segments and snapshot files on disk, and the interface to the disk below them.
//!
//! It stores bytes: a zxid is a `u64`, a payload is a slice. It knows nothing of znodes, sessions or the rules of Raft.
//! It is synchronous and has no thread of its own. The log thread owns a [`Log`], the snapshot writer thread owns a
//! [`SnapshotWriter`], and both hold a clone of the same [`Disk`]. Nothing here is called on a core.
//!
//! Invariant: damage is never served, and it is always reported. Synced and acknowledged data are found again, or the
//! open fails. Its error has the file, the offset and the remedy. The tests corrupt every byte to prove it.
//!
//! | begin with | for |
//! |---|---|
//! | [`Log`] | appending, syncing and recovering records |
//! | [`SnapshotWriter`], [`SnapshotFile`] | writing and reading snapshot files |
//! | [`Disk`] | the operations on a directory that both need: [`MmapDisk`], [`SimDisk`] |
//! | [`Dump`] | reading a log of any state without opening it |

#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

pub mod disk;
mod field;
pub mod limits;
pub mod log;
mod mapping;
mod mmap_disk;
mod recovered_log;
pub mod sim_disk;
pub mod snapshot;

pub use disk::{Bytes, Disk, NewFile, PieceReader, Segment};
pub use log::dump::{Dump, DumpItem, DumpRecord, confirm_damage};
pub use log::{CutInfo, Durable, Log, LogConfig, LogError, Progress, RecordKind, Recovered, Spare, SpareJob};
pub use mapping::end_on_lost_page;
pub use mmap_disk::{Access, DATA_PREFIXES, DIRECTORY_MODE, DiskError, MmapDisk, SyncRecipe};
pub use recovered_log::RecoveredLog;
pub use sim_disk::SimDisk;
pub use snapshot::{
    SnapshotError, SnapshotFile, SnapshotHead, SnapshotName, SnapshotReceiver, SnapshotWriter, kept_snapshots,
    list_snapshots, purge, remove_incoming, remove_unfinished, scrub_snapshot, snapshot_index, snapshot_name,
};

const _: () = assert!(usize::BITS == 64, "segment and snapshot offsets are held in usize");
