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

/// Lists `keep` snapshots, at least one, from the one at `newest` (zxid, index) on backwards; newest first. Newer ones do not
/// count: nothing says that they are whole.
///
/// # Errors
/// If the directory cannot be read.
pub fn kept_snapshots<D: Disk>(disk: &D, newest: (u64, u64), keep: usize) -> io::Result<Vec<SnapshotName>> {
    Ok(kept_and_old(disk, newest, keep)?.0)
}

fn kept_and_old<D: Disk>(
    disk: &D,
    newest: (u64, u64),
    keep: usize,
) -> io::Result<(Vec<SnapshotName>, Vec<SnapshotName>)> {
    let mut kept = list_snapshots(disk)?;
    kept.retain(|name| (name.zxid, name.index) <= newest);
    let old = kept.split_off(keep.max(1).min(kept.len()));
    Ok((kept, old))
}

/// Removes the snapshots that are older than all of [`kept_snapshots`], and returns those.
///
/// `newest` must have been verified. A removed snapshot that is still mapped stays readable until it is dropped.
///
/// # Errors
/// If the directory cannot be read or changed.
pub fn purge<D: Disk>(disk: &D, newest: (u64, u64), keep: usize) -> io::Result<Vec<SnapshotName>> {
    let (kept, old) = kept_and_old(disk, newest, keep)?;
    old.iter().try_for_each(|name| disk.remove(&name.file))?;
    if !old.is_empty() {
        disk.sync_dir()?;
    }
    Ok(kept)
}

/// Removes what an interrupted writer left. Call it before a writer begins.
///
/// # Errors
/// If the directory cannot be read or changed.
pub fn remove_unfinished<D: Disk>(disk: &D) -> io::Result<()> {
    let is_unfinished = |name: &String| name.strip_suffix(TEMPORARY_SUFFIX).and_then(place_in).is_some();
    let left: Vec<_> = disk.list()?.into_iter().filter(is_unfinished).collect();
    left.iter().try_for_each(|name| disk.remove(name))?;
    if left.is_empty() { Ok(()) } else { disk.sync_dir() }
}

/// File name of the snapshot at `zxid` that ends with the log entry `index`.
///
/// Both numbers are part of it, because entries that change no znode have no zxid of their own. A received snapshot and
/// a snapshot that the server wrote may be at the same zxid, and neither may replace the other.
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
