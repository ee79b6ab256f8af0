//! The snapshot container: one immutable file with a checked header and opaque, checksummed, aligned sections.
//!
//! Written by the snapshot writer thread, mapped and verified by the thread that starts the server, then shared by all cores
//! as plain bytes. It stores zxid, term and index of the snapshot as numbers and the sections as bytes, and interprets
//! neither.

mod error;
mod format;
mod names;
mod reader;
mod receiver;
mod scrub;
mod writer;

pub use error::SnapshotError;
pub use format::SnapshotHead;
pub use names::{SnapshotName, kept_snapshots, list_snapshots, purge, remove_unfinished, snapshot_name};
pub use reader::SnapshotFile;
pub use receiver::{SnapshotReceiver, remove_incoming};
pub use scrub::{scrub_snapshot, snapshot_index};
pub use writer::{Pace, SnapshotWriter};
