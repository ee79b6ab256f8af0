//! The layout of a snapshot file: header, section table, and the checks of both. No IO.
//!
//! Little endian: a header page, then the sections, each beginning at a multiple of 64. The section table at the end
//! has offset u64, length u64, kind u32 and CRC32C u32 of each. The header names the table's place and checksum and the
//! length of the file, so nothing can be cut off or added unseen.

use std::sync::Arc;

use super::error::SnapshotError;
use super::names::place_in;
use crate::field::{Put, wide};
use crate::limits::{PAGE_BYTES, SNAPSHOT_ALIGN_BYTES, SNAPSHOT_BYTES_MAX, SNAPSHOT_SECTIONS_MAX};
use corral_types::Reader;

const MAGIC: [u8; 8] = *b"corralIM";
const FORMAT_VERSION: u32 = 1;
const HEAD_CHECKED_BYTES: usize = 68;
const TABLE_ROW_BYTES: usize = 24;

/// Which state of the data a snapshot holds. Numbers to this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotHead {
    /// Last zxid contained.
    pub zxid: u64,
    /// Raft term of the last entry contained.
    pub term: u64,
    /// Raft index of the last entry contained.
    pub index: u64,
    /// Seed of the path hash that spreads the state over the sections.
    pub seed: u64,
}

/// One row of the section table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) kind: u32,
    pub(crate) crc: u32,
}

/// The header's fields besides [`SnapshotHead`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) sections: u32,
    pub(crate) file_bytes: u64,
    pub(crate) table_offset: u64,
    pub(crate) table_crc: u32,
}

pub(crate) fn encode_head(head: &SnapshotHead, layout: &Layout) -> [u8; PAGE_BYTES] {
    let mut page = [0; PAGE_BYTES];
    let mut put = Put(&mut page);
    put.bytes(&MAGIC);
    put.u32(FORMAT_VERSION);
    put.u32(layout.sections);
    put.u64(head.zxid);
    put.u64(head.term);
    put.u64(head.index);
    put.u64(head.seed);
    put.u64(layout.file_bytes);
    put.u64(layout.table_offset);
    put.u32(layout.table_crc);
    let (checked, rest) = page.split_at_mut_checked(HEAD_CHECKED_BYTES).expect("a page is longer than its header");
    Put(rest).u32(crc32c::crc32c(checked));
    page
}

pub(crate) fn decode_head(file: &str, bytes: &[u8]) -> Result<(SnapshotHead, Layout), SnapshotError> {
    let damaged = |what| SnapshotError::Damaged { file: file.to_owned(), what };
    let page = bytes.get(..PAGE_BYTES).ok_or_else(|| damaged("the file is too short"))?;
    let fields = || {
        let mut take = Reader::new(page);
        let magic = take.bytes(MAGIC.len())?;
        let version = take.u32()?;
        let sections = take.u32()?;
        let head = SnapshotHead { zxid: take.u64()?, term: take.u64()?, index: take.u64()?, seed: take.u64()? };
        let (file_bytes, table_offset, table_crc) = (take.u64()?, take.u64()?, take.u32()?);
        let crc_matches = take.u32()? == crc32c::crc32c(page.get(..HEAD_CHECKED_BYTES)?);
        Some((magic, version, crc_matches, head, Layout { sections, file_bytes, table_offset, table_crc }))
    };
    let (magic, version, crc_matches, head, layout) = fields().ok_or_else(|| damaged("the file is too short"))?;
    if magic != MAGIC {
        return Err(SnapshotError::NotASnapshot { file: file.to_owned() });
    }
    if !crc_matches {
        return Err(damaged("the header does not match its checksum"));
    }
    if version != FORMAT_VERSION {
        return Err(SnapshotError::WrongVersion { file: file.to_owned(), found: version, expected: FORMAT_VERSION });
    }
    Ok((head, layout))
}

pub(crate) fn encode_row(row: &Row) -> [u8; TABLE_ROW_BYTES] {
    let mut bytes = [0; TABLE_ROW_BYTES];
    let mut put = Put(&mut bytes);
    put.u64(row.offset);
    put.u64(row.bytes);
    put.u32(row.kind);
    put.u32(row.crc);
    bytes
}

pub(crate) fn decode_row(bytes: &[u8]) -> Option<Row> {
    let mut take = Reader::new(bytes);
    Some(Row { offset: take.u64()?, bytes: take.u64()?, kind: take.u32()?, crc: take.u32()? })
}

/// The header of a file of that many bytes, of which at least the first page must be given.
pub(super) fn check_head(name: &str, front: &[u8], bytes: u64) -> Result<(SnapshotHead, Layout), SnapshotError> {
    let (head, layout) = decode_head(name, front)?;
    let damaged = |what| SnapshotError::Damaged { file: name.to_owned(), what };
    if layout.file_bytes != bytes || layout.file_bytes > SNAPSHOT_BYTES_MAX {
        return Err(damaged("the file's length is not the one in its header"));
    }
    let other = |(zxid, index)| zxid != head.zxid || index > 0 && index != head.index;
    if place_in(name).is_some_and(other) {
        return Err(damaged("the header's zxid and index are not those in the file name"));
    }
    let found = layout.sections as usize;
    if found > SNAPSHOT_SECTIONS_MAX {
        return Err(SnapshotError::TooManySections { file: name.to_owned(), found, max: SNAPSHOT_SECTIONS_MAX });
    }
    if layout.file_bytes.checked_sub(layout.table_offset) != Some(wide(table_bytes(&layout))) {
        return Err(damaged("the section table does not match its checksum"));
    }
    Ok((head, layout))
}

/// Length of the section table.
pub(super) fn table_bytes(layout: &Layout) -> usize {
    (layout.sections as usize).saturating_mul(TABLE_ROW_BYTES)
}

/// The rows of the section table.
pub(super) fn check_table(name: &str, layout: &Layout, table: &[u8]) -> Result<Arc<[Row]>, SnapshotError> {
    let damaged = |what| SnapshotError::Damaged { file: name.to_owned(), what };
    if table.len() != table_bytes(layout) || crc32c::crc32c(table) != layout.table_crc {
        return Err(damaged("the section table does not match its checksum"));
    }
    let rows: Option<Arc<[Row]>> = table.chunks_exact(TABLE_ROW_BYTES).map(decode_row).collect();
    let rows = rows.ok_or_else(|| damaged("the section table is too short"))?;
    check_bounds(&rows, layout.table_offset).map_err(|(section, what)| SnapshotError::DamagedSection {
        file: name.to_owned(),
        section,
        what,
    })?;
    Ok(rows)
}

/// Whether a section with this checksum is the section that was written.
pub(super) fn check_crc(name: &str, section: usize, row: &Row, crc: u32) -> Result<(), SnapshotError> {
    let (file, offset, bytes) = (name.to_owned(), row.offset, row.bytes);
    if crc == row.crc { Ok(()) } else { Err(SnapshotError::ChangedSection { file, section, offset, bytes }) }
}

/// Sections lie between header and table, aligned, in order, without overlap.
fn check_bounds(rows: &[Row], table_offset: u64) -> Result<(), (usize, &'static str)> {
    let mut free = wide(PAGE_BYTES);
    for (section, row) in rows.iter().enumerate() {
        if row.offset < free || !row.offset.is_multiple_of(wide(SNAPSHOT_ALIGN_BYTES)) {
            return Err((section, "it overlaps another section or is not aligned"));
        }
        free = match row.offset.checked_add(row.bytes) {
            Some(end) if end <= table_offset => end,
            _ => return Err((section, "it reaches beyond the sections' part of the file")),
        };
    }
    Ok(())
}
