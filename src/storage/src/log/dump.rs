//! Looks at a log without opening it: for `corral log dump`, also on a damaged directory. Changes nothing, takes no lock.
//!
//! It reports every record it finds, also behind damage, and never fails on what a file says: the only errors are those
//! of reading files. A segment is read piece by piece: the memory needed does not depend on its size.
//!
//! A server may write the log meanwhile. Then what is read of a file is from several moments: a place may have been read before
//! its record was stored, and a later page after. Such a place is judged by [`confirm`], which reads it once more: everything
//! below a watermark that was read is stored by then.

use std::collections::VecDeque;
use std::io;

use super::durable_file::{DURABLE_NAME, DurablePoint};
use super::mark::{MARK_BYTES, read_mark};
use super::record::{HEADER_BYTES, RecordHead, RecordKind, Stamp};
use super::segment::{DATA_START, SegmentHead, number_in, read_slots, segment_name};
use super::window::{Pace, Window};
use crate::disk::Disk;
use crate::field::{Take, narrow, wide};
use crate::image::is_lost;

/// The fixed pages of a segment and the header of its first record.
const FRONT_BYTES: usize = DATA_START + HEADER_BYTES;

/// One line of a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DumpItem {
    /// The file `DURABLE`: the log was durable up to the position `watermark`, which lies in the segment `file`.
    Durable {
        file: String,
        watermark: u64,
        /// That segment or a later one is there.
        is_held: bool,
    },
    /// A segment file; its records follow.
    Segment {
        file: String,
        bytes: u64,
        generation: u64,
        /// Log position of the first byte, if the header checks.
        base: Option<u64>,
        /// What is wrong with the header.
        fault: Option<&'static str>,
        /// Highest watermark in the file's slots.
        watermark: Option<u64>,
    },
    Record(DumpRecord),
    /// What a sync left behind the last record: the log was durable up to the position `watermark`.
    Mark {
        file: String,
        offset: u64,
        watermark: u64,
    },
    /// Bytes that hold no valid record: free space (`zero`), an earlier life of the file, or damage.
    Gap {
        file: String,
        offset: u64,
        bytes: u64,
        zero: bool,
    },
    /// A file that could not be read, or not to its end.
    Unreadable {
        file: String,
        error: String,
        /// The disk cannot give back what it held; if not, nothing says that the file is damaged.
        is_lost: bool,
    },
}

/// One record, as its header has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpRecord {
    pub file: String,
    pub offset: u64,
    pub kind: RecordKind,
    pub term: u64,
    pub index: u64,
    pub first_zxid: u64,
    pub watermark: u64,
    pub payload_bytes: u64,
    /// The header checks (or it would not be here); whether the payload does.
    pub payload_checks: bool,
}

/// Walks through all segments of a directory, oldest first.
pub struct Dump<'p, D: Disk> {
    disk: D,
    pace: Box<dyn FnMut(usize) + 'p>,
    durable: Option<DumpItem>,
    files: VecDeque<String>,
    current: Option<Current>,
}

struct Current {
    file: String,
    window: Window,
    stamp: Stamp,
    offset: usize,
    sealed: bool,
}

impl<D: Disk> Dump<'static, D> {
    pub fn new(disk: D) -> io::Result<Dump<'static, D>> {
        Dump::paced(disk, |_| {})
    }
}

impl<'p, D: Disk> Dump<'p, D> {
    /// `pace` is called before each piece is read, with its bytes, and may block.
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
        Ok(Dump { disk, pace: Box::new(pace), durable, files: files.into(), current: None })
    }

    /// `None` for a file that is gone: a server that runs has let go of it since the directory was listed.
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
            // A record whose payload is damaged still has a length to trust.
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

/// Reads a segment once more from a place on where no valid record was found. Answers the first offset below the log position
/// `durable` that holds none, or `None` if all of them are valid now, or the segment is gone because a server has let go of it.
/// `durable` must have been read from the log before. `offset` is where a record ends, or `None` for the whole segment, whose header was
/// damaged.
///
/// `pace` as in [`Dump::paced`].
///
/// # Errors
/// When the directory or the file cannot be read.
pub fn confirm<D: Disk>(
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

/// The salt as the first record has it, for a segment whose header is damaged.
fn salt_of_first_record(front: &[u8]) -> u32 {
    const SALT_AT: u64 = 12;
    let at = DATA_START.saturating_add(narrow(SALT_AT));
    front.get(at..).and_then(|rest| Take(rest).u32()).unwrap_or(0)
}
