//! Reads snapshot files piece by piece, for a check in the background and for facts that the header alone states.
//!
//! On the scrubber's and the snapshot writer's threads. It maps nothing: no more than one piece is in memory, and the
//! disk is read no faster than the caller's pace. The bytes that are read here are also those of a mapping of the file,
//! because both share the page cache.

use super::error::{SnapshotError, fault};
use super::format::{Layout, SnapshotHead, check_crc, check_head, check_table, decode_head, table_bytes};
use super::names::SnapshotName;
use crate::disk::{Disk, PieceReader};
use crate::field::{narrow, wide};
use crate::limits::{PAGE_BYTES, PIECE_BYTES};

/// Compares all of a snapshot with its checksums, and returns which state of the data it holds.
///
/// `pace` is called before each piece is read, with its bytes, and may block. It holds one piece of 1 MiB in memory.
///
/// # Errors
/// Damage, naming the section, or why the file could not be read: see [`SnapshotError::is_damage`].
pub fn scrub_snapshot<D: Disk>(
    disk: &D,
    name: &str,
    pace: &mut dyn FnMut(usize),
) -> Result<SnapshotHead, SnapshotError> {
    let file = open(disk, name)?;
    let mut front = vec![0; PAGE_BYTES];
    let front = read(&*file, name, 0, &mut front, pace)?;
    let (head, layout) = check_head(name, front, file.length())?;
    let mut table = vec![0; table_bytes(&layout)];
    let rows = check_table(name, &layout, read(&*file, name, layout.table_offset, &mut table, pace)?)?;
    let mut piece = vec![0; PIECE_BYTES];
    for (section, row) in rows.iter().enumerate() {
        let (mut crc, mut done) = (0, 0);
        while done < row.bytes {
            let wanted = narrow(row.bytes.saturating_sub(done)).min(PIECE_BYTES);
            let into = piece.get_mut(..wanted).unwrap_or_default();
            let content = read(&*file, name, row.offset.saturating_add(done), into, pace)?;
            if content.len() < wanted {
                return Err(SnapshotError::DamagedSection { file: name.to_owned(), section, what: "it is cut off" });
            }
            crc = crc32c::crc32c_append(crc, content);
            done = done.saturating_add(wide(wanted));
        }
        check_crc(name, section, row, crc)?;
    }
    Ok(head)
}

/// The index of the last log entry in a snapshot: from its name, or from its header if the name does not state it.
///
/// # Errors
/// If the header is needed and cannot be read.
pub fn snapshot_index<D: Disk>(disk: &D, snapshot: &SnapshotName) -> Result<u64, SnapshotError> {
    if snapshot.index > 0 {
        return Ok(snapshot.index);
    }
    let (file, mut front) = (open(disk, &snapshot.file)?, vec![0; PAGE_BYTES]);
    let front = read(&*file, &snapshot.file, 0, &mut front, &mut |_| {})?;
    let (head, _): (_, Layout) = decode_head(&snapshot.file, front)?;
    Ok(head.index)
}

fn open<D: Disk>(disk: &D, name: &str) -> Result<Box<dyn PieceReader>, SnapshotError> {
    disk.open_pieces(name).map_err(fault(name, "cannot open the snapshot"))
}

fn read<'a>(
    file: &dyn PieceReader,
    name: &str,
    offset: u64,
    into: &'a mut [u8],
    pace: &mut dyn FnMut(usize),
) -> Result<&'a [u8], SnapshotError> {
    pace(into.len());
    let count = file.read(offset, into).map_err(fault(name, "cannot read the snapshot"))?;
    Ok(into.get(..count).unwrap_or_default())
}
