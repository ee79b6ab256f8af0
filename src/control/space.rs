//! Free space of the directories, and how much the server needs next.
//!
//! For a thread that may block: it asks the file system.

use std::fs;
use std::path::{Path, PathBuf};

use corral_core::report::SpaceFacts;
use corral_storage::{MmapDisk, SnapshotName, list_snapshots};

/// Segments of the log and snapshots for which there should be room.
const SEGMENTS: u64 = 4;
const SNAPSHOTS: u64 = 2;

/// The directories of a server.
#[derive(Clone)]
pub(crate) struct Space {
    data_dir: PathBuf,
    log_dir: PathBuf,
    segment_bytes: u64,
}

impl Space {
    pub(crate) fn new(data_dir: &Path, log_dir: &Path, segment_bytes: u64) -> Space {
        Space { data_dir: data_dir.to_owned(), log_dir: log_dir.to_owned(), segment_bytes }
    }

    /// Of the directory of the log, and of that of the snapshots if it is another one.
    pub(crate) fn look(&self) -> Vec<SpaceFacts> {
        let snapshot_bytes = newest_snapshot(&self.data_dir).map_or(0, |(_, meta)| meta.len());
        let (log, snapshots) = (SEGMENTS * self.segment_bytes, SNAPSHOTS * snapshot_bytes);
        if self.data_dir == self.log_dir {
            return vec![facts(&self.data_dir, log.saturating_add(snapshots))];
        }
        vec![facts(&self.log_dir, log), facts(&self.data_dir, snapshots)]
    }
}

fn facts(directory: &Path, needed_bytes: u64) -> SpaceFacts {
    // Without an answer nothing is said.
    let free = rustix::fs::statvfs(directory).map_or(u64::MAX, |of| of.f_bavail.saturating_mul(of.f_frsize));
    SpaceFacts { directory: directory.display().to_string(), free_bytes: free, needed_bytes }
}

/// The newest snapshot file of a directory.
pub(super) fn newest_snapshot(data_dir: &Path) -> Option<(SnapshotName, fs::Metadata)> {
    let newest = list_snapshots(&MmapDisk::open_read_only(data_dir).ok()?).ok()?.into_iter().next()?;
    let meta = fs::metadata(data_dir.join(&newest.file)).ok()?;
    Some((newest, meta))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_directory_counts_once() {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let other = tempfile::tempdir().expect("a temporary directory can be made");
        let one = Space::new(dir.path(), dir.path(), 100).look();
        assert_eq!(one.iter().map(|one| one.needed_bytes).collect::<Vec<_>>(), [400]);
        assert!(one[0].free_bytes > 0 && one[0].free_bytes < u64::MAX);
        let both = Space::new(dir.path(), other.path(), 100).look();
        assert_eq!(both.iter().map(|one| one.needed_bytes).collect::<Vec<_>>(), [400, 0]);
        let missing = Space::new(Path::new("/nowhere"), Path::new("/nowhere"), 1).look();
        assert!(!missing[0].is_low());
    }
}
