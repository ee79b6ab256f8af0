//! Reads a log without opening it: for `corral log dump`, also on a damaged directory. Changes nothing, takes no lock.
//!
//! It reports every record it finds, also behind damage. The content of a file is never an error: the only errors are
//! those of reading files. A segment is read piece by piece: the memory needed does not depend on its size.
//!
//! A server may write the log meanwhile. Then the bytes read of a file are from several moments. A place may have been
//! read before its record was stored, and a later page after. [`confirm_damage`] reads such a place once more:
//! everything below a watermark that was read is stored by then.

use corral_types::Reader;
use std::collections::VecDeque;
use std::io;

use super::durable_file::{DURABLE_NAME, DurablePoint};
use super::mark::{MARK_BYTES, read_mark};
use super::record::{HEADER_BYTES, RecordHead, RecordKind, Stamp};
use super::segment::{DATA_START, SegmentHead, number_in, read_slots, segment_name};
use super::window::{Pace, Window};
use crate::disk::{Disk, PieceReader, is_lost};
use crate::field::{narrow, wide};
use crate::limits::PIECE_BYTES;

/// The fixed pages of a segment and the header of its first record.
const FRONT_BYTES: usize = DATA_START + HEADER_BYTES;

/// One line of a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DumpItem {
    /// The file `DURABLE`: the log was durable up to the position `watermark`, which lies in the segment `file`.
    Durable {
        /// Name of the segment that was active.
        file: String,
        /// Log position, in bytes, up to which the log was durable.
        watermark: u64,
        /// That segment or a later one is there.
        is_held: bool,
    },
    /// A segment file; its records follow.
    Segment {
        /// Name of the file.
        file: String,
        /// Bytes of the file.
        bytes: u64,
        /// Number of the segment in the log, as the file name has it.
        generation: u64,
        /// Chosen at random when the segment was begun. A guess if the header is damaged.
        salt: u32,
        /// Log position of the first byte; `None` if the header is damaged.
        base: Option<u64>,
        /// The fault of the header; `None` for a valid one.
        fault: Option<&'static str>,
        /// Highest watermark in the file's slots; `None` if none is valid.
        watermark: Option<u64>,
    },
    /// A record.
    Record(DumpRecord),
    /// Stored by a sync behind the last record: the log was durable up to the position `watermark`.
    Mark {
        /// Name of the segment file.
        file: String,
        /// Offset in the file, in bytes.
        offset: u64,
        /// Log position, in bytes, up to which the log was durable.
        watermark: u64,
    },
    /// Bytes that hold no valid record: free space, an earlier use of the file, or damage.
    Gap {
        /// Name of the segment file.
        file: String,
        /// Offset in the file, in bytes.
        offset: u64,
        /// Length in bytes.
        bytes: u64,
        /// Whether all of them are zero, as free space is.
        zero: bool,
    },
    /// A file that could not be read, or not to its end.
    Unreadable {
        /// Name of the file.
        file: String,
        /// Why.
        error: String,
        /// Whether the disk lost what the file held. If not, the file may be whole.
        is_lost: bool,
    },
}

/// One record, as its header states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpRecord {
    /// Name of the segment file.
    pub file: String,
    /// Offset of the header in the file, in bytes.
    pub offset: u64,
    /// The kind of the record.
    pub kind: RecordKind,
    /// Term of the entry; 0 for a seal.
    pub term: u64,
    /// Index of the entry; of a start or a seal that of the next entry, of a hard state the commit index.
    pub index: u64,
    /// First zxid of the batch in the payload.
    pub first_zxid: u64,
    /// Log position, in bytes, up to which the log was durable when the record was stored.
    pub watermark: u64,
    /// Bytes of the payload.
    pub payload_bytes: u64,
    /// Checksum (CRC-32C) of the payload, as the header states it.
    pub payload_crc: u32,
    /// Whether the payload matches its checksum. The header does.
    pub payload_checks: bool,
}

/// Iterates over all segments of a directory and their records, oldest first.
pub struct Dump<'p, D: Disk> {
    disk: D,
    pace: Box<dyn FnMut(usize) + 'p>,
    durable: Option<DumpItem>,
    files: VecDeque<String>,
    current: Option<Current>,
    /// The file of the last payload that was read.
    read: Option<(String, Box<dyn PieceReader>)>,
}

struct Current {
    file: String,
    window: Window,
    stamp: Stamp,
    offset: usize,
    sealed: bool,
}

impl<D: Disk> Dump<'static, D> {
    /// Begins at the oldest segment, and reads as fast as the disk can.
    ///
    /// # Errors
    /// If the directory cannot be listed.
    pub fn new(disk: D) -> io::Result<Dump<'static, D>> {
        Dump::paced(disk, |_| {})
    }
}

impl<'p, D: Disk> Dump<'p, D> {
    /// Begins at the oldest segment, and calls `pace` before each piece is read, with its bytes. `pace` may block.
    ///
    /// # Errors
    /// If the directory cannot be listed.
    pub fn paced(disk: D, pace: impl FnMut(usize) + 'p) -> io::Result<Dump<'p, D>> {
        // First: what it states is stored before anything else is read.
        let point = match disk.map(DURABLE_NAME) {
            Ok(content) => DurablePoint::read(content.as_slice()).ok().flatten(),
            Err(_) => None,
        };
        let mut files: Vec<_> = disk.list()?.into_iter().filter(|name| number_in(name, "log-").is_some()).collect();
        files.sort_unstable();
        let durable = point.map(|point| {
            let is_held = files.last().and_then(|name| number_in(name, "log-")) >= Some(point.stamp.generation);
            DumpItem::Durable { file: segment_name(point.stamp.generation), watermark: point.watermark, is_held }
        });
        Ok(Dump { disk, pace: Box::new(pace), durable, files: files.into(), current: None, read: None })
    }

    /// Leaves out the segments that were full before the entry with this index was written for the last time.
    pub fn skip_to(&mut self, index: u64) {
        let begins_later = |file: &&String| {
            let opened = open(&self.disk, file, &mut self.pace);
            let first = opened.ok().and_then(|(mut segment, _)| segment.next(&mut self.pace).ok().flatten());
            !matches!(first, Some(DumpItem::Record(start)) if start.kind == RecordKind::Start && start.index <= index)
        };
        let later = self.files.iter().rev().take_while(begins_later).count();
        self.files.drain(..self.files.len().saturating_sub(later).saturating_sub(1));
    }

    /// The payload of a record that this dump gave.
    ///
    /// # Errors
    /// If the file cannot be read, or does not hold it any more: a running server has recycled it.
    pub fn payload(&mut self, record: &DumpRecord) -> io::Result<Vec<u8>> {
        if self.read.as_ref().is_none_or(|(name, _)| *name != record.file) {
            self.read = Some((record.file.clone(), self.disk.open_pieces(&record.file)?));
        }
        let Some((_, file)) = &self.read else { return Err(io::ErrorKind::NotFound.into()) };
        let at = record.offset.saturating_add(wide(HEADER_BYTES));
        if at.saturating_add(record.payload_bytes) > file.length() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut payload = vec![0; narrow(record.payload_bytes)];
        for (piece, offset) in payload.chunks_mut(PIECE_BYTES).zip((at..).step_by(PIECE_BYTES)) {
            (self.pace)(piece.len());
            file.read(offset, piece)?;
        }
        let is_held = crc32c::crc32c(&payload) == record.payload_crc;
        if is_held { Ok(payload) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// `None` for a file that is gone: a running server has dropped it since the directory was listed.
    fn begin(&mut self, file: String) -> Option<DumpItem> {
        match open(&self.disk, &file, &mut self.pace) {
            Ok((current, item)) => {
                self.current = Some(current);
                Some(item)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(unreadable(file, &error)),
        }
    }
}

fn open<D: Disk>(disk: &D, file: &str, pace: &mut Pace<'_>) -> io::Result<(Current, DumpItem)> {
    let mut window = Window::of(disk.open_pieces(file)?);
    let length = window.length();
    let front = window.at(0, FRONT_BYTES, pace)?;
    let generation = number_in(file, "log-").unwrap_or(0);
    let head = SegmentHead::read_front(front, length);
    let guess = Stamp { generation, salt: salt_of_first_record(front) };
    let stamp = head.map_or(guess, |head| head.stamp);
    let item = DumpItem::Segment {
        file: file.to_owned(),
        bytes: wide(length),
        generation,
        salt: stamp.salt,
        base: head.ok().map(|head| head.base),
        fault: head.err().map(super::segment::HeadFault::text),
        watermark: read_slots(front, stamp).into_iter().flatten().map(|slot| slot.watermark).max(),
    };
    Ok((Current { file: file.to_owned(), window, stamp, offset: DATA_START, sealed: false }, item))
}

fn unreadable(file: String, error: &io::Error) -> DumpItem {
    DumpItem::Unreadable { file, error: error.to_string(), is_lost: is_lost(error) }
}

impl Current {
    fn next(&mut self, pace: &mut Pace<'_>) -> io::Result<Option<DumpItem>> {
        let (offset, stamp) = (self.offset, self.stamp);
        if self.sealed || offset >= self.window.length() {
            return Ok(None);
        }
        let front = self.window.at(offset, HEADER_BYTES, pace)?;
        if let Some(head) = RecordHead::decode_front(front, offset, stamp) {
            let payload_checks = self.window.payload_checks(&head, offset, pace)?;
            // A record with a damaged payload still has a length to trust.
            self.offset = offset.saturating_add(head.record_bytes());
            self.sealed = head.kind == RecordKind::Seal;
            return Ok(Some(DumpItem::Record(DumpRecord {
                file: self.file.clone(),
                offset: wide(offset),
                kind: head.kind,
                term: head.term,
                index: head.index,
                first_zxid: head.first_zxid,
                watermark: head.watermark,
                payload_bytes: u64::from(head.payload_bytes),
                payload_crc: head.payload_crc,
                payload_checks,
            })));
        }
        if let Some(watermark) = read_mark(front, offset, stamp) {
            self.offset = offset.saturating_add(MARK_BYTES);
            return Ok(Some(DumpItem::Mark { file: self.file.clone(), offset: wide(offset), watermark }));
        }
        let (end, zero) = self.window.find_trace(offset, stamp, pace)?;
        self.offset = end;
        let bytes = wide(end.saturating_sub(offset));
        Ok(Some(DumpItem::Gap { file: self.file.clone(), offset: wide(offset), bytes, zero }))
    }
}

impl<D: Disk> Iterator for Dump<'_, D> {
    type Item = DumpItem;

    fn next(&mut self) -> Option<DumpItem> {
        if let Some(durable) = self.durable.take() {
            return Some(durable);
        }
        if let Some(current) = &mut self.current {
            match current.next(&mut self.pace) {
                Ok(Some(item)) => return Some(item),
                Ok(None) => self.current = None,
                Err(error) => {
                    let file = std::mem::take(&mut current.file);
                    self.current = None;
                    return Some(unreadable(file, &error));
                }
            }
        }
        while let Some(file) = self.files.pop_front() {
            if let Some(item) = self.begin(file) {
                return Some(item);
            }
        }
        None
    }
}

/// Reads a segment once more, to tell damage from a record that a server was storing while it was read.
///
/// `offset` is a place in the file where no valid record was found although a record ends before it. It is `None` for a
/// segment with a damaged header. `durable` is a log position in bytes that was read from the log before. `pace` is as
/// in [`Dump::paced`].
///
/// Returns the first offset below `durable` that holds no valid record. Returns `None` if all records are valid now, or if
/// the segment is gone because a server has dropped it.
///
/// # Errors
/// If the directory or the file cannot be read.
pub fn confirm_damage<D: Disk>(
    disk: &D,
    file: &str,
    offset: Option<u64>,
    durable: u64,
    pace: &mut dyn FnMut(usize),
) -> io::Result<Option<u64>> {
    let pieces = match disk.open_pieces(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        pieces => pieces?,
    };
    let bad = first_bad(Window::of(pieces), file, offset.map(narrow), durable, pace)?;
    // No later segment gets this name: if it is there, it was there all the time.
    let is_there = bad.is_some() && disk.list()?.iter().any(|name| name == file);
    Ok(bad.filter(|_| is_there).map(wide))
}

fn first_bad(
    mut segment: Window,
    file: &str,
    offset: Option<usize>,
    durable: u64,
    pace: &mut Pace<'_>,
) -> io::Result<Option<usize>> {
    let length = segment.length();
    let head = SegmentHead::read_front(segment.at(0, FRONT_BYTES, pace)?, length).ok();
    let head = head.filter(|head| number_in(file, "log-") == Some(head.stamp.generation));
    let Some(head) = head else { return Ok(Some(0)) };
    let mut at = offset.unwrap_or(DATA_START);
    while let Some(record) = RecordHead::decode_front(segment.at(at, HEADER_BYTES, pace)?, at, head.stamp) {
        if !segment.payload_checks(&record, at, pace)? {
            break;
        }
        if record.kind == RecordKind::Seal {
            return Ok(None);
        }
        at = at.saturating_add(record.record_bytes());
    }
    Ok((head.position(at) < durable).then_some(at))
}

/// The salt in the first record, for a segment with a damaged header.
fn salt_of_first_record(front: &[u8]) -> u32 {
    const SALT_AT: u64 = 12;
    let at = DATA_START.saturating_add(narrow(SALT_AT));
    front.get(at..).and_then(|rest| Reader::new(rest).u32()).unwrap_or(0)
}
