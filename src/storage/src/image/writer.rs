//! Writes an image file, section after section, in whole blocks, under a temporary name until it is whole.
//!
//! Runs on the image writer thread. Each block is on its way to the disk before the next is written, so that the log's
//! syncs on the same disk never wait behind a backlog, and the caller's pace hook may sleep between blocks. A block is a
//! huge page at its own place in the file: a kernel with large folios then holds it as one, and the mapping needs no small
//! pages.

use super::{ImageError, ImageHead, ImageName, Layout, Row, encode_head, encode_row, fault, image_name};
use crate::disk::{Disk, NewFile};
use crate::field::{align_up, narrow, wide};
use crate::limits::{IMAGE_ALIGN_BYTES, IMAGE_BLOCK_BYTES, IMAGE_SECTIONS_MAX, PAGE_BYTES};

/// Called between two blocks with the bytes just written; may block to slow the writer down.
pub type Pace = Box<dyn FnMut(usize) + Send>;

/// An image being written. Dropped before [`ImageWriter::finish`] it leaves nothing behind.
pub struct ImageWriter<D: Disk> {
    file: D::NewFile,
    name: String,
    head: ImageHead,
    rows: Vec<Row>,
    /// The block being filled.
    block: Vec<u8>,
    /// Where it goes.
    block_offset: u64,
    pace: Option<Pace>,
}

impl<D: Disk> ImageWriter<D> {
    pub fn begin(disk: &D, head: ImageHead, pace: Option<Pace>) -> Result<ImageWriter<D>, ImageError> {
        let name = image_name(head.zxid, head.index);
        let file = disk.create_file(&name).map_err(fault(&name, "cannot make the file"))?;
        let mut block = Vec::with_capacity(IMAGE_BLOCK_BYTES);
        // Room for the header, which is known last.
        block.resize(PAGE_BYTES, 0);
        Ok(ImageWriter { file, name, head, rows: Vec::new(), block, block_offset: 0, pace })
    }

    /// Appends a section; it will begin at a multiple of 64 bytes. `kind` is the caller's.
    pub fn section(&mut self, kind: u32, content: &[u8]) -> Result<(), ImageError> {
        if self.rows.len() >= IMAGE_SECTIONS_MAX {
            let found = self.rows.len().saturating_add(1);
            return Err(ImageError::TooManySections { file: self.name.clone(), found, max: IMAGE_SECTIONS_MAX });
        }
        self.align()?;
        let offset = self.bytes();
        self.add(content)?;
        self.rows.push(Row { offset, bytes: wide(content.len()), kind, crc: crc32c::crc32c(content) });
        Ok(())
    }

    /// Bytes of the file so far.
    pub fn bytes(&self) -> u64 {
        self.block_offset.saturating_add(wide(self.block.len()))
    }

    /// Writes table and header, syncs, and gives the file its name. After this the image is durable.
    pub fn finish(mut self) -> Result<ImageName, ImageError> {
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
        self.file.commit().map_err(fault(&self.name, "cannot make the image durable"))?;
        Ok(ImageName { zxid: self.head.zxid, index: self.head.index, file: self.name })
    }

    fn align(&mut self) -> Result<(), ImageError> {
        let at = narrow(self.bytes());
        let gap = align_up(at, IMAGE_ALIGN_BYTES).saturating_sub(at);
        let zeros = [0; IMAGE_ALIGN_BYTES];
        self.add(zeros.get(..gap).unwrap_or(&zeros))
    }

    fn add(&mut self, mut bytes: &[u8]) -> Result<(), ImageError> {
        while !bytes.is_empty() {
            let room = IMAGE_BLOCK_BYTES.saturating_sub(self.block.len());
            let (now, later) = bytes.split_at(bytes.len().min(room));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == IMAGE_BLOCK_BYTES {
                self.write_block()?;
            }
        }
        Ok(())
    }

    fn write_block(&mut self) -> Result<(), ImageError> {
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
