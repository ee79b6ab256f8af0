//! Looks at a log without opening it: for `corral log dump`, also on a damaged directory. Changes nothing, takes no lock.
//!
//! It reports every record it finds, also behind damage, and never fails on what a file says: the only errors are those
//! of reading files.
//!
//! A server may write the log meanwhile. Then what is read of a file is from several moments: a place may have been read before
//! its record was stored, and a later page after. Such a place is judged by [`confirm`], which reads it once more: everything
//! below a watermark that was read is stored by then.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::durable_file::{DURABLE_NAME, DurablePoint};
use super::mark::{MARK_BYTES, find_trace, read_mark};
use super::record::{RecordHead, RecordKind, Stamp};
use super::segment::{DATA_START, SegmentHead, number_in, read_slots, segment_name};
use crate::disk::{Bytes, Disk};
use crate::field::{Take, is_zero, narrow, wide};

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
    /// A file that could not be read.
    Unreadable {
        file: String,
        error: String,
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
pub struct Dump<D: Disk> {
    disk: D,
    durable: Option<DumpItem>,
    files: VecDeque<String>,
    current: Option<Current>,
}

struct Current {
    file: String,
    bytes: Arc<dyn Bytes>,
    stamp: Stamp,
    offset: usize,
    sealed: bool,
}

impl<D: Disk> Dump<D> {
    pub fn new(disk: D) -> io::Result<Dump<D>> {
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
        Ok(Dump { disk, durable, files: files.into(), current: None })
    }

    /// `None` for a file that is gone: a server that runs has let go of it since the directory was listed.
    fn begin(&mut self, file: String) -> Option<DumpItem> {
        let bytes = match self.disk.map(&file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => return Some(DumpItem::Unreadable { file, error: error.to_string() }),
        };
        let all = bytes.as_slice();
        let generation = number_in(&file, "log-").unwrap_or(0);
        let head = SegmentHead::read(all);
        let guess = Stamp { generation, salt: salt_of_first_record(all) };
        let stamp = head.map_or(guess, |head| head.stamp);
        let item = DumpItem::Segment {
            file: file.clone(),
            bytes: wide(all.len()),
            generation,
            base: head.ok().map(|head| head.base),
            fault: head.err().map(super::segment::HeadFault::text),
            watermark: read_slots(all, stamp).into_iter().flatten().map(|slot| slot.watermark).max(),
        };
        self.current = Some(Current { file, bytes, stamp, offset: DATA_START, sealed: false });
        Some(item)
    }
}

impl Current {
    fn next(&mut self) -> Option<DumpItem> {
        let all = self.bytes.as_slice();
        if self.sealed || self.offset >= all.len() {
            return None;
        }
        if let Some(head) = RecordHead::decode(all, self.offset, self.stamp) {
            let offset = self.offset;
            let payload_checks = head.payload(all, offset).is_some();
            // A record whose payload is damaged still has a length to trust.
            self.offset = offset.saturating_add(head.record_bytes());
            self.sealed = head.kind == RecordKind::Seal;
            return Some(DumpItem::Record(DumpRecord {
                file: self.file.clone(),
                offset: wide(offset),
                kind: head.kind,
                term: head.term,
                index: head.index,
                first_zxid: head.first_zxid,
                watermark: head.watermark,
                payload_bytes: u64::from(head.payload_bytes),
                payload_checks,
            }));
        }
        let from = self.offset;
        if let Some(watermark) = read_mark(all, from, self.stamp) {
            self.offset = from.saturating_add(MARK_BYTES);
            return Some(DumpItem::Mark { file: self.file.clone(), offset: wide(from), watermark });
        }
        self.offset = find_trace(all, from, self.stamp).map_or(all.len(), |(at, _)| at);
        let gap = all.get(from..self.offset).unwrap_or_default();
        Some(DumpItem::Gap { file: self.file.clone(), offset: wide(from), bytes: wide(gap.len()), zero: is_zero(gap) })
    }
}

impl<D: Disk> Iterator for Dump<D> {
    type Item = DumpItem;

    fn next(&mut self) -> Option<DumpItem> {
        if let Some(durable) = self.durable.take() {
            return Some(durable);
        }
        if let Some(current) = &mut self.current {
            if let Some(item) = current.next() {
                return Some(item);
            }
            self.current = None;
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
/// # Errors
/// When the directory or the file cannot be read.
pub fn confirm<D: Disk>(disk: &D, file: &str, offset: Option<u64>, durable: u64) -> io::Result<Option<u64>> {
    let bytes = match disk.map(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes?,
    };
    let bad = first_bad(bytes.as_slice(), file, offset.map(narrow), durable);
    // No later segment gets this name: if it is there, it was there all the time.
    let is_there = bad.is_some() && disk.list()?.iter().any(|name| name == file);
    Ok(bad.filter(|_| is_there).map(wide))
}

fn first_bad(segment: &[u8], file: &str, offset: Option<usize>, durable: u64) -> Option<usize> {
    let head = SegmentHead::read(segment).ok().filter(|head| number_in(file, "log-") == Some(head.stamp.generation));
    let Some(head) = head else { return Some(0) };
    let mut at = offset.unwrap_or(DATA_START);
    while let Some(record) = RecordHead::decode(segment, at, head.stamp).filter(|it| it.payload(segment, at).is_some())
    {
        if record.kind == RecordKind::Seal {
            return None;
        }
        at = at.saturating_add(record.record_bytes());
    }
    (head.position(at) < durable).then_some(at)
}

/// The salt as the first record has it, for a segment whose header is damaged.
fn salt_of_first_record(segment: &[u8]) -> u32 {
    const SALT_AT: u64 = 12;
    let at = DATA_START.saturating_add(narrow(SALT_AT));
    segment.get(at..).and_then(|rest| Take(rest).u32()).unwrap_or(0)
}
