//! One segment file of the log with its name and header: stores records, marks and slots into it, and reads entries.
//!
//! The log thread owns it. It does not know which place in the file is free, nor which segments come before and after.

use corral_types::{EntryKind, Index, StoredEntry, Term};

use super::entry::entry_kind;
use super::error::LogError;
use super::index::EntryPlace;
use super::mark;
use super::record::{HEADER_BYTES, RecordHead, RecordKind, Stamp};
use super::segment::{self, DATA_START, SegmentHead, Slot, Start};
use crate::disk::Segment;
use crate::field::{Put, narrow};

/// A segment file that is part of the log, or will be the next part.
pub(crate) struct SegmentFile<S> {
    name: String,
    head: SegmentHead,
    file: S,
}

impl<S> SegmentFile<S> {
    /// A file with this header in its first page.
    pub(crate) fn new(name: String, head: SegmentHead, file: S) -> SegmentFile<S> {
        SegmentFile { name, head, file }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn head(&self) -> &SegmentHead {
        &self.head
    }

    pub(crate) fn stamp(&self) -> Stamp {
        self.head.stamp
    }

    /// Name and file, for a segment that leaves the log.
    pub(crate) fn into_parts(self) -> (String, S) {
        (self.name, self.file)
    }
}

impl<S: Segment> SegmentFile<S> {
    /// All bytes of the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.file.bytes()
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.file.bytes_mut()
    }

    /// Stores a record at `offset`, where it must fit. Returns the bytes that it takes.
    pub(crate) fn write_record(
        &mut self,
        offset: usize,
        kind: RecordKind,
        entry: &StoredEntry<'_>,
        watermark: u64,
    ) -> usize {
        let head = RecordHead {
            kind,
            term: entry.term.0,
            index: entry.index.0,
            first_zxid: entry.first_zxid,
            watermark,
            payload_bytes: u32::try_from(entry.payload.len()).expect("payloads were checked against their limit"),
            payload_crc: crc32c::crc32c(entry.payload),
        };
        let stamp = self.head.stamp;
        let room = self.file.bytes_mut().get_mut(offset..).expect("the caller checked that the record fits");
        let mut put = Put(room);
        put.bytes(&head.encode(stamp, offset));
        put.bytes(entry.payload);
        let stored = head.record_bytes();
        let padding = stored.saturating_sub(HEADER_BYTES).saturating_sub(entry.payload.len());
        put.bytes([0; 8].get(..padding).expect("padding is below 8 bytes"));
        stored
    }

    /// Stores the start record, with which every segment begins. Returns the offset of the next record.
    pub(crate) fn write_start(&mut self, start: Start, next_index: u64, watermark: u64) -> usize {
        let term = start.hard_state.unwrap_or_default().term;
        let payload = start.encode();
        let (index, kind) = (Index(next_index), EntryKind::Normal);
        let entry = StoredEntry { term, index, kind, first_zxid: 0, payload: &payload };
        DATA_START.saturating_add(self.write_record(DATA_START, RecordKind::Start, &entry, watermark))
    }

    /// Stores a mark at `offset`, the end of the records.
    pub(crate) fn write_mark(&mut self, offset: usize, watermark: u64) {
        mark::write_mark(self.file.bytes_mut(), offset, self.head.stamp, watermark);
    }

    /// Stores watermark slot 0 or 1.
    pub(crate) fn write_slot(&mut self, slot: usize, content: Slot) {
        segment::write_slot(self.file.bytes_mut(), self.head.stamp, slot, content);
    }

    /// Both watermark slots; `None` for a slot with a wrong checksum.
    pub(crate) fn slots(&self) -> [Option<Slot>; 2] {
        segment::read_slots(self.file.bytes(), self.head.stamp)
    }

    /// The entry at a place, if its checksums match and it is the entry `index` of the place's term.
    pub(crate) fn entry_at(&self, index: u64, place: EntryPlace) -> Option<StoredEntry<'_>> {
        let offset = place.offset as usize;
        let head = RecordHead::decode(self.file.bytes(), offset, self.head.stamp)?;
        let payload = head.payload(self.file.bytes(), offset)?;
        let kind = entry_kind(head.kind)?;
        let wanted = head.index == index && head.term == place.term;
        let (term, index) = (Term(head.term), Index(index));
        wanted.then_some(StoredEntry { term, index, kind, first_zxid: head.first_zxid, payload })
    }

    /// Makes `from..to` durable. Errors: `SyncFailed`.
    pub(crate) fn sync(&mut self, from: usize, to: usize) -> Result<(), LogError> {
        self.file.sync(from, to).map_err(|source| LogError::SyncFailed { file: self.name.clone(), source })
    }

    /// As [`SegmentFile::sync`], while the file has another name.
    pub(crate) fn sync_named(&mut self, name: &str, from: usize, to: usize) -> Result<(), LogError> {
        self.file.sync(from, to).map_err(|source| LogError::SyncFailed { file: name.to_owned(), source })
    }

    /// Brings `from..to` into memory; `what` is the text of the error.
    pub(crate) fn warm(&self, from: usize, to: usize, what: &'static str) -> Result<(), LogError> {
        self.file.warm(from, to).map_err(LogError::io(&self.name, what))
    }

    /// Gives the memory of `from..to` back.
    pub(crate) fn release(&self, from: usize, to: usize) -> Result<(), LogError> {
        self.file.release(from, to).map_err(LogError::io(&self.name, "cannot release the segment's memory"))
    }

    /// Gives the memory of the whole file back.
    pub(crate) fn release_all(&self) -> Result<(), LogError> {
        self.release(0, narrow(self.head.bytes))
    }
}
