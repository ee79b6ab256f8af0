//! Opens a snapshot file: maps it and checks header and table at once. Sections are checked one by one, so that threads can
//! share the work.
//!
//! No section is to be used before [`SnapshotFile::verify_section`] has passed for it.

use std::io;
use std::sync::Arc;

use super::error::SnapshotError;
use super::format::{Row, SnapshotHead, check_crc, check_head, check_table};
use crate::disk::{Bytes, Disk};
use crate::field::{narrow, wide};
use crate::limits::SNAPSHOT_ALIGN_BYTES;

/// A snapshot file, mapped for reading.
///
/// Cheap to clone, and shared by all threads. Verify a section before its first use.
///
/// # Examples
///
/// ```
/// use corral_storage::{SimDisk, SnapshotFile, SnapshotHead, SnapshotWriter, list_snapshots};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let disk = SimDisk::new();
/// let head = SnapshotHead { zxid: 0x1_0000_0005, term: 1, index: 7, seed: 42 };
/// let mut writer = SnapshotWriter::begin(&disk, head, None)?;
/// writer.section(1, b"some znodes")?;
/// writer.finish()?;
///
/// let newest = list_snapshots(&disk)?.remove(0);
/// let snapshot = SnapshotFile::open(&disk, &newest.file)?;
/// assert_eq!(snapshot.head(), head);
/// for section in 0..snapshot.section_count() {
///     snapshot.verify_section(section)?;
/// }
/// assert_eq!(snapshot.section_kind(0), Some(1));
/// assert_eq!(snapshot.section(0), Some(&b"some znodes"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SnapshotFile {
    name: String,
    head: SnapshotHead,
    rows: Arc<[Row]>,
    bytes: Arc<dyn Bytes>,
}

impl SnapshotFile {
    /// Maps the file and checks everything but the sections' content.
    ///
    /// It reads one page and 24 bytes a section, besides bringing the file into memory.
    ///
    /// # Errors
    /// Damage, another version, or an error of the disk: see [`SnapshotError::is_damage`].
    ///
    /// # Panics
    /// If the disk does not map the file at a multiple of 64 bytes in memory.
    pub fn open<D: Disk>(disk: &D, name: &str) -> Result<SnapshotFile, SnapshotError> {
        let bytes = disk.map(name).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => SnapshotError::Io { file: name.to_owned(), what: "no such snapshot", source },
            _ => SnapshotError::Io { file: name.to_owned(), what: "cannot map the snapshot", source },
        })?;
        let all = bytes.as_slice();
        assert_eq!(all.as_ptr().align_offset(SNAPSHOT_ALIGN_BYTES), 0, "a disk maps files aligned");
        let (head, layout) = check_head(name, all, wide(all.len()))?;
        let rows = check_table(name, &layout, all.get(narrow(layout.table_offset)..).unwrap_or_default())?;
        Ok(SnapshotFile { name: name.to_owned(), head, rows, bytes })
    }

    /// Name of the file.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which state of the data the snapshot holds.
    #[must_use]
    pub fn head(&self) -> SnapshotHead {
        self.head
    }

    /// Number of sections.
    #[must_use]
    pub fn section_count(&self) -> usize {
        self.rows.len()
    }

    /// The kind that the writer gave a section; `None` past the last.
    #[must_use]
    pub fn section_kind(&self, section: usize) -> Option<u32> {
        self.rows.get(section).map(|row| row.kind)
    }

    /// Content of a section, beginning at a multiple of 64 bytes in memory; `None` past the last.
    ///
    /// Call [`SnapshotFile::verify_section`] first.
    #[must_use]
    pub fn section(&self, section: usize) -> Option<&[u8]> {
        let row = self.rows.get(section)?;
        self.bytes.as_slice().get(narrow(row.offset)..)?.get(..narrow(row.bytes))
    }

    /// Place of a section in [`SnapshotFile::bytes`], for callers that keep the bytes alone; `None` past the last.
    #[must_use]
    pub fn section_range(&self, section: usize) -> Option<std::ops::Range<usize>> {
        let row = self.rows.get(section)?;
        let from = narrow(row.offset);
        Some(from..from.checked_add(narrow(row.bytes))?)
    }

    /// Compares the content of one section with its checksum; reads all of it.
    ///
    /// # Errors
    /// [`SnapshotError::ChangedSection`], or [`SnapshotError::DamagedSection`] past the last section.
    pub fn verify_section(&self, section: usize) -> Result<(), SnapshotError> {
        let content = self.section(section).unwrap_or_default();
        self.verify(section, content)
    }

    /// Compares bytes that were copied out of a section with its checksum.
    ///
    /// # Errors
    /// [`SnapshotError::ChangedSection`], or [`SnapshotError::DamagedSection`] if the length is another one.
    pub fn verify_copy(&self, section: usize, content: &[u8]) -> Result<(), SnapshotError> {
        self.verify(section, content)
    }

    fn verify(&self, section: usize, content: &[u8]) -> Result<(), SnapshotError> {
        let damaged = |what| SnapshotError::DamagedSection { file: self.name.clone(), section, what };
        let row = self.rows.get(section).ok_or_else(|| damaged("there is no such section"))?;
        if wide(content.len()) != row.bytes {
            return Err(damaged("it is cut off"));
        }
        check_crc(&self.name, section, row, crc32c::crc32c(content))
    }

    /// The whole file; it stays mapped for as long as a clone exists.
    #[must_use]
    pub fn bytes(&self) -> Arc<dyn Bytes> {
        Arc::clone(&self.bytes)
    }
}
