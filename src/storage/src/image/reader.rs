//! Opens an image file: maps it, checks header and table at once, sections when asked, so that threads can share that work.
//!
//! No section is to be used before [`ImageFile::verify_section`] has passed for it. Cheap to clone; shared by all cores.

use std::io;
use std::sync::Arc;

use super::{ImageError, ImageHead, Layout, Row, TABLE_ROW_BYTES, decode_head, decode_row, place_in};
use crate::disk::{Bytes, Disk};
use crate::field::{narrow, wide};
use crate::limits::{IMAGE_ALIGN_BYTES, IMAGE_BYTES_MAX, IMAGE_SECTIONS_MAX, PAGE_BYTES};

/// An image, mapped for reading.
#[derive(Clone)]
pub struct ImageFile {
    name: String,
    head: ImageHead,
    rows: Arc<[Row]>,
    bytes: Arc<dyn Bytes>,
}

impl ImageFile {
    /// Maps the file and checks everything but the sections' content. Work: one page and 24 bytes a section, besides
    /// bringing the file into memory.
    pub fn open<D: Disk>(disk: &D, name: &str) -> Result<ImageFile, ImageError> {
        let bytes = disk.map(name).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => ImageError::Io { file: name.to_owned(), what: "no such image", source },
            _ => ImageError::Io { file: name.to_owned(), what: "cannot map the image", source },
        })?;
        let all = bytes.as_slice();
        assert_eq!(all.as_ptr().align_offset(IMAGE_ALIGN_BYTES), 0, "a disk maps files aligned");
        let (head, layout) = check_head(name, all, wide(all.len()))?;
        let rows = check_table(name, &layout, all.get(narrow(layout.table_offset)..).unwrap_or_default())?;
        Ok(ImageFile { name: name.to_owned(), head, rows, bytes })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn head(&self) -> ImageHead {
        self.head
    }

    pub fn section_count(&self) -> usize {
        self.rows.len()
    }

    /// The writer's kind of a section; `None` past the last.
    pub fn section_kind(&self, section: usize) -> Option<u32> {
        self.rows.get(section).map(|row| row.kind)
    }

    /// Content of a section, beginning at a multiple of 64 bytes in memory; `None` past the last. Verify it first.
    pub fn section(&self, section: usize) -> Option<&[u8]> {
        let row = self.rows.get(section)?;
        self.bytes.as_slice().get(narrow(row.offset)..)?.get(..narrow(row.bytes))
    }

    /// Where a section lies in [`ImageFile::bytes`], for those who keep the bytes alone.
    pub fn section_range(&self, section: usize) -> Option<std::ops::Range<usize>> {
        let row = self.rows.get(section)?;
        let from = narrow(row.offset);
        Some(from..from.checked_add(narrow(row.bytes))?)
    }

    /// Checks the content of one section against its checksum; reads all of it.
    pub fn verify_section(&self, section: usize) -> Result<(), ImageError> {
        let content = self.section(section).unwrap_or_default();
        self.verify(section, content)
    }

    /// Compares bytes that were copied out of a section with its checksum.
    pub fn verify_copy(&self, section: usize, content: &[u8]) -> Result<(), ImageError> {
        self.verify(section, content)
    }

    fn verify(&self, section: usize, content: &[u8]) -> Result<(), ImageError> {
        let damaged = |what| ImageError::DamagedSection { file: self.name.clone(), section, what };
        let row = self.rows.get(section).ok_or_else(|| damaged("there is no such section"))?;
        if wide(content.len()) != row.bytes {
            return Err(damaged("it is cut off"));
        }
        check_crc(&self.name, section, row, crc32c::crc32c(content))
    }

    /// The whole file; keeps the mapping alive.
    pub fn bytes(&self) -> Arc<dyn Bytes> {
        Arc::clone(&self.bytes)
    }
}

/// The header of a file of that many bytes, of which at least the first page must be given.
pub(super) fn check_head(name: &str, front: &[u8], bytes: u64) -> Result<(ImageHead, Layout), ImageError> {
    let (head, layout) = decode_head(name, front)?;
    let damaged = |what| ImageError::Damaged { file: name.to_owned(), what };
    if layout.file_bytes != bytes || layout.file_bytes > IMAGE_BYTES_MAX {
        return Err(damaged("the file's length is not the one in its header"));
    }
    let other = |(zxid, index)| zxid != head.zxid || index > 0 && index != head.index;
    if place_in(name).is_some_and(other) {
        return Err(damaged("the header's zxid and index are not those in the file name"));
    }
    let found = layout.sections as usize;
    if found > IMAGE_SECTIONS_MAX {
        return Err(ImageError::TooManySections { file: name.to_owned(), found, max: IMAGE_SECTIONS_MAX });
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
pub(super) fn check_table(name: &str, layout: &Layout, table: &[u8]) -> Result<Arc<[Row]>, ImageError> {
    let damaged = |what| ImageError::Damaged { file: name.to_owned(), what };
    if table.len() != table_bytes(layout) || crc32c::crc32c(table) != layout.table_crc {
        return Err(damaged("the section table does not match its checksum"));
    }
    let rows: Option<Arc<[Row]>> = table.chunks_exact(TABLE_ROW_BYTES).map(decode_row).collect();
    let rows = rows.ok_or_else(|| damaged("the section table is too short"))?;
    check_bounds(&rows, layout.table_offset).map_err(|(section, what)| ImageError::DamagedSection {
        file: name.to_owned(),
        section,
        what,
    })?;
    Ok(rows)
}

/// Whether a section with this checksum is the one that was written.
pub(super) fn check_crc(name: &str, section: usize, row: &Row, crc: u32) -> Result<(), ImageError> {
    let (file, offset, bytes) = (name.to_owned(), row.offset, row.bytes);
    if crc == row.crc { Ok(()) } else { Err(ImageError::ChangedSection { file, section, offset, bytes }) }
}

/// Sections lie between header and table, aligned, in order, without overlap.
fn check_bounds(rows: &[Row], table_offset: u64) -> Result<(), (usize, &'static str)> {
    let mut free = wide(PAGE_BYTES);
    for (section, row) in rows.iter().enumerate() {
        if row.offset < free || !row.offset.is_multiple_of(wide(IMAGE_ALIGN_BYTES)) {
            return Err((section, "it overlaps another section or is not aligned"));
        }
        free = match row.offset.checked_add(row.bytes) {
            Some(end) if end <= table_offset => end,
            _ => return Err((section, "it reaches beyond the sections' part of the file")),
        };
    }
    Ok(())
}
