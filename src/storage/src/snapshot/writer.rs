//! Writes a snapshot file, section after section, in whole blocks, under a temporary name until it is whole.
//!
//! Runs on the snapshot writer thread. Each block is on its way to the disk before the next is written. So the log's
//! syncs on the same disk never wait behind a backlog. The caller's pace hook may sleep between blocks. A block is a
//! huge page at its own place in the file. A kernel with large folios then holds it as one, and the mapping needs no
//! small pages.

use super::error::{SnapshotError, fault};
use super::format::{Layout, Row, SnapshotHead, encode_head, encode_row};
use super::names::{SnapshotName, snapshot_name};
use crate::disk::{Disk, NewFile};
use crate::field::{align_up, narrow, wide};
use crate::limits::{PAGE_BYTES, SNAPSHOT_ALIGN_BYTES, SNAPSHOT_BLOCK_BYTES, SNAPSHOT_SECTIONS_MAX};

/// Called between two blocks with the number of bytes just written. It may block, to slow the writer down.
pub type Pace = Box<dyn FnMut(usize) + Send>;

/// A snapshot being written. If dropped before [`SnapshotWriter::finish`], it leaves nothing behind.
///
/// # Examples
///
/// ```
/// use corral_storage::{SimDisk, SnapshotHead, SnapshotWriter};
///
/// # fn main() -> Result<(), corral_storage::SnapshotError> {
/// let disk = SimDisk::new();
/// let head = SnapshotHead { zxid: 0x1_0000_0005, term: 1, index: 7, seed: 42 };
/// // The server's pace hook sleeps here, so that the log has the disk first.
/// let mut writer = SnapshotWriter::begin(&disk, head, Some(Box::new(|_bytes_written| {})))?;
/// writer.section(1, b"some znodes")?;
/// writer.section(2, b"the sessions")?;
/// let name = writer.finish()?;
/// assert_eq!(name.file, "image-0000000100000005-0000000000000007.img");
/// # Ok(())
/// # }
/// ```
#[must_use = "a snapshot exists only once it is finished"]
pub struct SnapshotWriter<D: Disk> {
    file: D::NewFile,
    name: String,
    head: SnapshotHead,
    rows: Vec<Row>,
    /// The block being filled.
    block: Vec<u8>,
    /// Where it goes.
    block_offset: u64,
    pace: Option<Pace>,
}

impl<D: Disk> SnapshotWriter<D> {
    /// Begins the snapshot of the state that `head` states, under a temporary name. It holds one block of 2 MiB in memory.
    ///
    /// # Errors
    /// [`SnapshotError::NoSpace`] and [`SnapshotError::Io`].
    pub fn begin(disk: &D, head: SnapshotHead, pace: Option<Pace>) -> Result<SnapshotWriter<D>, SnapshotError> {
        let name = snapshot_name(head.zxid, head.index);
        let file = disk.create_file(&name).map_err(fault(&name, "cannot make the file"))?;
        let mut block = Vec::with_capacity(SNAPSHOT_BLOCK_BYTES);
        // Room for the header, which is known last.
        block.resize(PAGE_BYTES, 0);
        Ok(SnapshotWriter { file, name, head, rows: Vec::new(), block, block_offset: 0, pace })
    }

    /// Appends a section. It will begin at a multiple of 64 bytes. The meaning of `kind` is the caller's.
    ///
    /// It waits for the disk after each block.
    ///
    /// # Errors
    /// [`SnapshotError::TooManySections`], [`SnapshotError::NoSpace`] and [`SnapshotError::Io`]. Drop the writer then.
    pub fn section(&mut self, kind: u32, content: &[u8]) -> Result<(), SnapshotError> {
        if self.rows.len() >= SNAPSHOT_SECTIONS_MAX {
            let found = self.rows.len().saturating_add(1);
            return Err(SnapshotError::TooManySections { file: self.name.clone(), found, max: SNAPSHOT_SECTIONS_MAX });
        }
        self.align()?;
        let offset = self.bytes();
        self.add(content)?;
        self.rows.push(Row { offset, bytes: wide(content.len()), kind, crc: crc32c::crc32c(content) });
        Ok(())
    }

    /// Bytes of the file so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.block_offset.saturating_add(wide(self.block.len()))
    }

    /// Writes table and header, syncs, and gives the file its name. The snapshot is durable when this returns.
    ///
    /// # Errors
    /// [`SnapshotError::NoSpace`] and [`SnapshotError::Io`]; then there is no snapshot.
    pub fn finish(mut self) -> Result<SnapshotName, SnapshotError> {
        self.align()?;
        let table_offset = self.bytes();
        let table: Vec<u8> = self.rows.iter().flat_map(encode_row).collect();
        self.add(&table)?;
        self.write_block()?;
        let layout = Layout {
            sections: u32::try_from(self.rows.len()).expect("the number of sections is limited"),
            file_bytes: self.bytes(),
            table_offset,
            table_crc: crc32c::crc32c(&table),
        };
        let page = encode_head(&self.head, &layout);
        self.file.write_at(0, &page).map_err(fault(&self.name, "cannot write the header"))?;
        self.file.commit().map_err(fault(&self.name, "cannot make the snapshot durable"))?;
        Ok(SnapshotName { zxid: self.head.zxid, index: self.head.index, file: self.name })
    }

    fn align(&mut self) -> Result<(), SnapshotError> {
        let at = narrow(self.bytes());
        let gap = align_up(at, SNAPSHOT_ALIGN_BYTES).saturating_sub(at);
        let zeros = [0; SNAPSHOT_ALIGN_BYTES];
        self.add(zeros.get(..gap).unwrap_or(&zeros))
    }

    fn add(&mut self, mut bytes: &[u8]) -> Result<(), SnapshotError> {
        while !bytes.is_empty() {
            let room = SNAPSHOT_BLOCK_BYTES.saturating_sub(self.block.len());
            let (now, later) = bytes.split_at(bytes.len().min(room));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == SNAPSHOT_BLOCK_BYTES {
                self.write_block()?;
            }
        }
        Ok(())
    }

    fn write_block(&mut self) -> Result<(), SnapshotError> {
        let written = self.block.len();
        self.file.write_at(self.block_offset, &self.block).map_err(fault(&self.name, "cannot write"))?;
        self.file.push(self.block_offset, written).map_err(fault(&self.name, "cannot write back"))?;
        self.block_offset = self.block_offset.saturating_add(wide(written));
        self.block.clear();
        if let Some(pace) = &mut self.pace {
            pace(written);
        }
        Ok(())
    }
}
