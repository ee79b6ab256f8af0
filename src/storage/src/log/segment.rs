//! A segment file's fixed parts: the header page, the watermark page, the start payload. Layout only; no IO.
//!
//! Page 0 is the header, written once per use of the file, before the file gets its name. Page 1 holds two watermark
//! slots in sectors of their own, written in turn when the log goes idle. A watermark in the same page as its records
//! would be lost with them. Records begin at page 2.

use corral_types::{HardState, Reader};

use super::entry::{HARD_STATE_BYTES, decode_hard_state, encode_hard_state};
use super::record::{HEADER_BYTES, Stamp};
use crate::field::{Put, narrow, wide};
use crate::limits::{PAGE_BYTES, SECTOR_BYTES, SEGMENT_BYTES_MAX};

/// Where records begin.
pub(crate) const DATA_START: usize = 2 * PAGE_BYTES;
/// Bytes of the start record, the first in every segment.
pub(crate) const START_RECORD_BYTES: usize = HEADER_BYTES + START_PAYLOAD_BYTES;
/// Newest format this program writes and reads.
pub(crate) const FORMAT_VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"corralSG";
const HEAD_CHECKED_BYTES: usize = 40;
const SLOT_CHECKED_BYTES: usize = 28;
const START_PAYLOAD_BYTES: usize = 40;
const FLAG_HARD_STATE: u64 = 1;
const FLAG_RESET: u64 = 2;

const _: () = assert!(START_RECORD_BYTES.is_multiple_of(8));

/// The header of a segment file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHead {
    pub(crate) stamp: Stamp,
    /// Log position of the file's first byte.
    pub(crate) base: u64,
    /// Length of the file.
    pub(crate) bytes: u64,
}

/// Why a header page was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadFault {
    TooShort,
    WrongMagic,
    WrongVersion(u32),
    WrongChecksum,
    WrongLength,
}

impl HeadFault {
    pub(crate) fn text(self) -> &'static str {
        match self {
            HeadFault::TooShort => "the file is too short for a log segment",
            HeadFault::WrongMagic => "the header does not begin as a log segment's does",
            HeadFault::WrongVersion(_) => "the header names an unknown format version",
            HeadFault::WrongChecksum => "the header does not match its checksum",
            HeadFault::WrongLength => "the file's length is not the one in its header",
        }
    }
}

impl SegmentHead {
    /// Writes the header page and clears the watermark page.
    pub(crate) fn write(&self, segment: &mut [u8]) {
        let pages = segment.get_mut(..DATA_START).expect("a segment is never shorter than its fixed pages");
        pages.fill(0);
        let mut put = Put(pages);
        put.bytes(&MAGIC);
        put.u32(FORMAT_VERSION);
        put.u32(self.stamp.salt);
        put.u64(self.stamp.generation);
        put.u64(self.base);
        put.u64(self.bytes);
        let crc = crc32c::crc32c(segment.get(..HEAD_CHECKED_BYTES).expect("a page is longer than its header"));
        Put(segment.get_mut(HEAD_CHECKED_BYTES..).expect("a page is longer than its header")).u32(crc);
    }

    pub(crate) fn read(segment: &[u8]) -> Result<SegmentHead, HeadFault> {
        SegmentHead::read_front(segment, segment.len())
    }

    /// From the first pages of a segment of that many bytes.
    pub(crate) fn read_front(front: &[u8], bytes: usize) -> Result<SegmentHead, HeadFault> {
        if front.len() < DATA_START {
            return Err(HeadFault::TooShort);
        }
        let fields = || {
            let mut take = Reader::new(front);
            let magic = take.bytes(MAGIC.len())?;
            let version = take.u32()?;
            let salt = take.u32()?;
            let stamp = Stamp { salt, generation: take.u64()? };
            let head = SegmentHead { stamp, base: take.u64()?, bytes: take.u64()? };
            let crc_matches = take.u32()? == crc32c::crc32c(front.get(..HEAD_CHECKED_BYTES)?);
            Some((magic, version, head, crc_matches))
        };
        let (magic, version, head, crc_matches) = fields().ok_or(HeadFault::TooShort)?;
        // The checksum comes before the version: a flipped bit is damage, not a newer program's file.
        match (magic == MAGIC, crc_matches, version == FORMAT_VERSION) {
            (false, ..) => Err(HeadFault::WrongMagic),
            (_, false, _) => Err(HeadFault::WrongChecksum),
            (.., false) => Err(HeadFault::WrongVersion(version)),
            _ if head.bytes != wide(bytes) || bytes > SEGMENT_BYTES_MAX => Err(HeadFault::WrongLength),
            _ => Ok(head),
        }
    }

    /// Log position of the byte at `offset`. Saturates, as only a damaged base can come near the limit.
    pub(crate) fn position(&self, offset: usize) -> u64 {
        self.base.saturating_add(wide(offset))
    }

    /// Log position of the next segment's first byte.
    pub(crate) fn end(&self) -> u64 {
        self.base.saturating_add(self.bytes)
    }

    /// Offset up to which records may reach; the seal fits behind it.
    pub(crate) fn records_end(&self) -> usize {
        narrow(self.bytes).saturating_sub(HEADER_BYTES)
    }

    /// Largest record (header and padding included) that fits into an otherwise empty segment of `bytes` bytes.
    pub(crate) fn record_bytes_max(bytes: usize) -> usize {
        bytes.saturating_sub(DATA_START.saturating_add(START_RECORD_BYTES).saturating_add(HEADER_BYTES))
    }
}

/// Offset of watermark slot 0 or 1.
pub(crate) fn slot_offset(slot: usize) -> usize {
    PAGE_BYTES.saturating_add(slot.saturating_mul(2).saturating_mul(SECTOR_BYTES))
}

/// Content of a watermark slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    /// The log was durable up to this position.
    pub(crate) watermark: u64,
    /// Generation of the oldest segment that was still needed.
    pub(crate) oldest: u64,
}

/// Writes slot number `slot`.
pub(crate) fn write_slot(segment: &mut [u8], stamp: Stamp, slot: usize, content: Slot) {
    let offset = slot_offset(slot);
    let mut bytes = [0; SLOT_CHECKED_BYTES];
    let mut put = Put(&mut bytes);
    put.u32(stamp.salt);
    put.u64(stamp.generation);
    put.u64(content.watermark);
    put.u64(content.oldest);
    let crc = slot_crc(offset, &bytes);
    let mut put = Put(segment.get_mut(offset..).expect("both slots lie in the watermark page"));
    put.bytes(&bytes);
    put.u32(crc);
}

/// Both slots; `None` for a slot with a wrong checksum.
pub(crate) fn read_slots(segment: &[u8], stamp: Stamp) -> [Option<Slot>; 2] {
    [0, 1].map(|slot| read_slot(segment, stamp, slot))
}

fn read_slot(segment: &[u8], stamp: Stamp, slot: usize) -> Option<Slot> {
    let offset = slot_offset(slot);
    let mut take = Reader::new(segment.get(offset..)?);
    let checked = take.bytes(SLOT_CHECKED_BYTES)?;
    let crc = take.u32()?;
    let mut fields = Reader::new(checked);
    let found = Stamp { salt: fields.u32()?, generation: fields.u64()? };
    let content = Slot { watermark: fields.u64()?, oldest: fields.u64()? };
    (found == stamp && crc == slot_crc(offset, checked)).then_some(content)
}

fn slot_crc(offset: usize, checked: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&wide(offset).to_le_bytes()), checked)
}

/// Payload of a start record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) hard_state: Option<HardState>,
    /// The log before this segment is void: it was replaced by a snapshot.
    pub(crate) reset: bool,
    /// Generation of the oldest segment still needed when this one began.
    pub(crate) oldest: u64,
}

impl Start {
    pub(crate) fn encode(&self) -> [u8; START_PAYLOAD_BYTES] {
        let mut bytes = [0; START_PAYLOAD_BYTES];
        let mut put = Put(&mut bytes);
        let hard_state = self.hard_state.unwrap_or_default();
        let mut flags = 0;
        flags |= if self.hard_state.is_some() { FLAG_HARD_STATE } else { 0 };
        flags |= if self.reset { FLAG_RESET } else { 0 };
        put.u64(flags);
        put.bytes(&encode_hard_state(hard_state));
        put.u64(self.oldest);
        bytes
    }

    pub(crate) fn decode(payload: &[u8]) -> Option<Start> {
        let mut take = Reader::new(payload);
        let flags = take.u64()?;
        let hard_state = decode_hard_state(take.bytes(HARD_STATE_BYTES)?)?;
        Some(Start {
            hard_state: (flags & FLAG_HARD_STATE != 0).then_some(hard_state),
            reset: flags & FLAG_RESET != 0,
            oldest: take.u64()?,
        })
    }
}

/// File name of a segment.
pub(crate) fn segment_name(generation: u64) -> String {
    format!("log-{generation:016x}.seg")
}

/// File name of a spare.
pub(crate) fn spare_name(number: u64) -> String {
    format!("spare-{number:016x}.seg")
}

/// The number in a name that [`segment_name`] or [`spare_name`] made with this prefix.
pub(crate) fn number_in(name: &str, prefix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?.strip_suffix(".seg")?;
    let canonical = digits.len() == 16 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if canonical { u64::from_str_radix(digits, 16).ok() } else { None }
}

/// The salt of a segment, derived from the log's seed, so that a simulation is reproducible.
pub(crate) fn salt(seed: u64, generation: u64) -> u32 {
    let mixed = crc32c::crc32c_append(crc32c::crc32c(&seed.to_le_bytes()), &generation.to_le_bytes());
    let high = u32::try_from(seed >> 32).unwrap_or(0);
    mixed ^ high.rotate_left(13)
}

const _: () = assert!(record_size_holds());

const fn record_size_holds() -> bool {
    // The smallest segment holds a start record, one small record and a seal.
    crate::limits::SEGMENT_BYTES_MIN > DATA_START + START_RECORD_BYTES + 2 * HEADER_BYTES
}
