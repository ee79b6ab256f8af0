//! Names of snapshot files: what a directory holds by its names alone, and which of it may go.
//!
//! It opens no file.

use std::io;

use crate::disk::{Disk, TEMPORARY_SUFFIX};

/// Name and place of a snapshot file in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotName {
    /// Name of the file.
    pub file: String,
    /// Last zxid contained.
    pub zxid: u64,
    /// Index of the last log entry contained; 0 if the name does not state it, as names of earlier versions.
    pub index: u64,
}

/// Lists the snapshots in a directory by their names alone, newest first.
///
/// # Errors
/// If the directory cannot be read.
pub fn list_snapshots<D: Disk>(disk: &D) -> io::Result<Vec<SnapshotName>> {
    let mut snapshots: Vec<_> = disk
        .list()?
        .into_iter()
        .filter_map(|file| place_in(&file).map(|(zxid, index)| SnapshotName { file, zxid, index }))
        .collect();
    snapshots.sort_unstable_by_key(|snapshot| std::cmp::Reverse((snapshot.zxid, snapshot.index)));
    Ok(snapshots)
}

/// Removes all but the `keep` newest snapshots, and what an interrupted writer left. Returns how many snapshots it removed.
///
/// At least one snapshot stays. Call it on the writer's thread, after the newest has been verified. A removed snapshot that
/// is still mapped stays readable until it is dropped.
///
/// # Errors
/// If the directory cannot be read or changed.
pub fn purge<D: Disk>(disk: &D, keep: usize) -> io::Result<usize> {
    let old: Vec<_> = list_snapshots(disk)?.into_iter().skip(keep.max(1)).collect();
    for snapshot in &old {
        disk.remove(&snapshot.file)?;
    }
    for name in disk.list()? {
        if name.strip_suffix(TEMPORARY_SUFFIX).and_then(place_in).is_some() {
            disk.remove(&name)?;
        }
    }
    disk.sync_dir()?;
    Ok(old.len())
}

/// File name of the snapshot at `zxid` that ends with the log entry `index`.
///
/// Both numbers are part of it, because entries that change no znode have no zxid of their own. A snapshot received and one
/// that the server wrote may be at the same zxid, and neither may replace the other.
#[must_use]
pub fn snapshot_name(zxid: u64, index: u64) -> String {
    format!("image-{zxid:016x}-{index:016x}.img")
}

/// Zxid and index in the name of a snapshot; the index is 0 in names of earlier versions.
pub(super) fn place_in(name: &str) -> Option<(u64, u64)> {
    let number = |digits: &str| {
        let canonical = digits.len() == 16 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if canonical { u64::from_str_radix(digits, 16).ok() } else { None }
    };
    let place = name.strip_prefix("image-")?.strip_suffix(".img")?;
    match place.split_once('-') {
        Some((zxid, index)) => Some((number(zxid)?, number(index)?)),
        None => Some((number(place)?, 0)),
    }
}
