//! Snapshot files as backups, and back. On the main thread, and on the thread of the admin command.

use std::io::{self, Read, Write};

use corral_backup::BackupError;
use corral_backup::entries::{COUNT_MAX, FRONT_BYTES, PAYLOAD_BYTES_MAX};
use corral_backup::envelope::{self, Content, Head};
use corral_backup::pack::{Keys, unpack};
use corral_storage::limits::RECORD_PAYLOAD_BYTES_MAX;
use corral_storage::{MmapDisk, SnapshotFile, SnapshotReceiver};

use crate::exit::{ExitCode, Fault};

/// Bytes of a body of entries. The last entry may be the largest that a log takes.
pub(crate) const ENTRIES_BYTES_MAX: u64 =
    ((COUNT_MAX + 2) * FRONT_BYTES + PAYLOAD_BYTES_MAX + RECORD_PAYLOAD_BYTES_MAX) as u64;

/// The head of the backup of this snapshot, of this server and time.
pub(crate) fn head(file: &SnapshotFile, server: u8, time_ms: i64) -> Head {
    let snapshot = file.head();
    let bytes = file.bytes().as_slice().len() as u64;
    Head {
        content: Content::Snapshot,
        server,
        index: snapshot.index,
        term: snapshot.term,
        crc: 0,
        salt: 0,
        zxid: snapshot.zxid,
        time_ms,
        bytes,
    }
}

/// Writes the envelope.
///
/// # Errors
/// Those of the writer.
pub(crate) fn write(head: &Head, file: &SnapshotFile, to: impl Write) -> io::Result<()> {
    envelope::write(head, file.bytes().as_slice(), to)
}

/// Stores the snapshot in a packed backup, and gives its file name. All checksums of both match then. `progress` is told bytes so far.
///
/// # Errors
/// If the backup is damaged, or the snapshot cannot be stored.
pub(crate) fn receive(
    disk: &MmapDisk,
    from: impl Read,
    keys: &Keys,
    progress: &mut dyn FnMut(&Head, u64),
) -> Result<(Head, String), Fault> {
    let mut receiver = None;
    let head = envelope::read(unpack(from, keys).map_err(fault)?, &mut |head, piece| {
        let mut received = match receiver.take() {
            Some(begun) => begun,
            None => begin(disk, head)?,
        };
        received.take(piece).map_err(Untaken::from)?;
        progress(head, received.received());
        receiver = Some(received);
        Ok::<_, Untaken>(())
    });
    let head = head.map_err(|Untaken(fault)| fault)?;
    let Some(receiver) = receiver else {
        return Err(fault(BackupError::Damaged("it is empty".to_owned())));
    };
    let name = receiver.finish()?;
    if name.index != head.index {
        return Err(fault(BackupError::Damaged("head and snapshot have different log indices".to_owned())));
    }
    Ok((head, name.file))
}

fn begin(disk: &MmapDisk, head: &Head) -> Result<SnapshotReceiver<MmapDisk>, Untaken> {
    if head.content != Content::Snapshot {
        let sentence = "it holds entries of the log, not a state: give the directory of the whole archive";
        return Err(Untaken(Fault::new(ExitCode::DataDirForeign, sentence.to_owned())));
    }
    let receiver = SnapshotReceiver::begin(disk, head.zxid, head.bytes)?;
    // A small file may hold a large snapshot, and the disk may have other users.
    match disk.free_bytes() {
        Ok(free) if free < head.bytes => {
            let (path, bytes) = (disk.path().display(), head.bytes);
            let sentence = format!("{path}: the snapshot has {bytes} bytes, and the disk has {free} free: make space");
            Err(Untaken(Fault::new(ExitCode::StorageUnavailable, sentence)))
        }
        _ => Ok(receiver),
    }
}

/// Reads packed entries of the log, the body of an envelope.
///
/// # Errors
/// If they are damaged, or something else.
pub(crate) fn read_entries(from: impl Read, keys: &Keys) -> Result<(Head, Vec<u8>), Fault> {
    let mut body = Vec::new();
    let head = envelope::read(unpack(from, keys).map_err(fault)?, &mut |head, piece| {
        if head.content == Content::Snapshot {
            let sentence = "it holds a state, and no entries of the log";
            return Err(Untaken(Fault::new(ExitCode::DataDirForeign, sentence)));
        }
        if head.bytes > ENTRIES_BYTES_MAX {
            return Err(Untaken(fault(BackupError::Foreign)));
        }
        body.extend_from_slice(piece);
        Ok(())
    });
    head.map_err(|Untaken(fault)| fault).map(|head| (head, body))
}

/// Why the body of an envelope was not taken.
pub(crate) struct Untaken(pub(crate) Fault);

impl From<BackupError> for Untaken {
    fn from(error: BackupError) -> Self {
        Self(fault(error))
    }
}

impl From<corral_storage::SnapshotError> for Untaken {
    fn from(error: corral_storage::SnapshotError) -> Self {
        Self(error.into())
    }
}

/// The fault of a backup.
pub(crate) fn fault(error: BackupError) -> Fault {
    let code = match error {
        BackupError::Foreign | BackupError::Version(_) => ExitCode::DataDirForeign,
        BackupError::Damaged(_) => ExitCode::DataDamaged,
        BackupError::Encrypted | BackupError::OtherKey(_) => ExitCode::Config,
        BackupError::Io(_) => ExitCode::StorageUnavailable,
    };
    Fault::new(code, error.to_string())
}
