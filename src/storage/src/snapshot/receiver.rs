//! Stores a snapshot that another server sends, piece by piece. It becomes a snapshot once all its checksums match.
//!
//! Runs on the thread that receives. Until [`SnapshotReceiver::finish`] the file has a name that is never opened and that
//! the next start removes. It knows neither the sender nor how pieces travel. An interrupted transfer continues at
//! [`SnapshotReceiver::received`].

use super::error::{SnapshotError, fault};
use super::names::{SnapshotName, snapshot_name};
use super::reader::SnapshotFile;
use crate::disk::{Disk, NewFile};
use crate::field::{narrow, wide};
use crate::limits::{PAGE_BYTES, SNAPSHOT_BLOCK_BYTES, SNAPSHOT_BYTES_MAX};

/// Begins the name of a snapshot that has not been checked yet.
const INCOMING: &str = "incoming-";

/// A snapshot being received. If dropped before [`SnapshotReceiver::finish`], it leaves nothing behind.
#[must_use = "a snapshot exists only once it is finished"]
pub struct SnapshotReceiver<D: Disk> {
    disk: D,
    file: D::NewFile,
    zxid: u64,
    bytes: u64,
    received: u64,
    /// Pushed to the disk up to here.
    pushed: u64,
}

impl<D: Disk> SnapshotReceiver<D> {
    /// Begins a file of `bytes` bytes for the snapshot at `zxid`, both as the sender states them.
    ///
    /// # Errors
    /// [`SnapshotError::Damaged`] if no snapshot has that size, [`SnapshotError::NoSpace`] and [`SnapshotError::Io`].
    pub fn begin(disk: &D, zxid: u64, bytes: u64) -> Result<SnapshotReceiver<D>, SnapshotError> {
        let name = incoming_name(zxid);
        if !(wide(PAGE_BYTES)..=SNAPSHOT_BYTES_MAX).contains(&bytes) {
            return Err(SnapshotError::Damaged { file: name, what: "no snapshot has the size that is announced" });
        }
        let file = disk.create_file(&name).map_err(fault(&name, "cannot make the file"))?;
        Ok(SnapshotReceiver { disk: disk.clone(), file, zxid, bytes, received: 0, pushed: 0 })
    }

    /// Bytes received so far, from the beginning: the offset of the next piece.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Whether all bytes were received.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.received == self.bytes
    }

    /// Stores the next piece. It waits for the disk after each block of 2 MiB.
    ///
    /// # Errors
    /// [`SnapshotError::Damaged`] if there are more bytes than announced, [`SnapshotError::NoSpace`] and
    /// [`SnapshotError::Io`]. Drop the receiver then.
    pub fn take(&mut self, piece: &[u8]) -> Result<(), SnapshotError> {
        let name = incoming_name(self.zxid);
        let end = self.received.saturating_add(wide(piece.len()));
        if end > self.bytes {
            return Err(SnapshotError::Damaged { file: name, what: "more bytes than were announced" });
        }
        self.file.write_at(self.received, piece).map_err(fault(&name, "cannot write"))?;
        self.received = end;
        let waiting = end.saturating_sub(self.pushed);
        if waiting >= wide(SNAPSHOT_BLOCK_BYTES) || self.is_whole() {
            self.file.push(self.pushed, narrow(waiting)).map_err(fault(&name, "cannot write back"))?;
            self.pushed = end;
        }
        Ok(())
    }

    /// Makes the file durable, checks header, table and every section, and gives it its name.
    ///
    /// It reads the whole file.
    ///
    /// # Errors
    /// [`SnapshotError::Damaged`] and others for a mismatch; the file is removed then.
    pub fn finish(self) -> Result<SnapshotName, SnapshotError> {
        let incoming = incoming_name(self.zxid);
        if !self.is_whole() {
            return Err(SnapshotError::Damaged { file: incoming, what: "bytes are missing" });
        }
        let SnapshotReceiver { disk, file, zxid, .. } = self;
        file.commit().map_err(fault(&incoming, "cannot make the snapshot durable"))?;
        let index = match check(&disk, &incoming, zxid) {
            Ok(index) => index,
            Err(error) => {
                disk.remove(&incoming).map_err(fault(&incoming, "cannot remove a damaged snapshot"))?;
                return Err(error);
            }
        };
        let file = snapshot_name(zxid, index);
        let named = disk.rename(&incoming, &file).and_then(|()| disk.sync_dir());
        named.map_err(fault(&incoming, "cannot name the snapshot"))?;
        Ok(SnapshotName { file, zxid, index })
    }
}

fn incoming_name(zxid: u64) -> String {
    format!("{INCOMING}image-{zxid:016x}.img")
}

/// The index at which the snapshot ends.
fn check<D: Disk>(disk: &D, name: &str, zxid: u64) -> Result<u64, SnapshotError> {
    let snapshot = SnapshotFile::open(disk, name)?;
    if snapshot.head().zxid != zxid {
        return Err(SnapshotError::Damaged {
            file: name.to_owned(),
            what: "the header's zxid is not the announced one",
        });
    }
    (0..snapshot.section_count()).try_for_each(|section| snapshot.verify_section(section))?;
    Ok(snapshot.head().index)
}

/// Removes what transfers left that a crash interrupted. Returns how many files. To be called at a start.
///
/// # Errors
/// If the directory cannot be read or changed.
pub fn remove_incoming<D: Disk>(disk: &D) -> std::io::Result<usize> {
    let left: Vec<_> = disk.list()?.into_iter().filter(|name| name.starts_with(INCOMING)).collect();
    for name in &left {
        disk.remove(name)?;
    }
    if !left.is_empty() {
        disk.sync_dir()?;
    }
    Ok(left.len())
}
