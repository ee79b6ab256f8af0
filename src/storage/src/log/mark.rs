//! The mark: states behind the last record, where the next one will be stored, that the log was durable up to there. Layout
//! and the search behind the end of a log; no IO.
//!
//! A mark is stored after each sync and is not synced itself. A killed process leaves it in the page cache. A power cut
//! keeps, loses or tears it. So it may be missing, but it always states the truth. It lies in the page that the next
//! record needs, and costs no write of its own. The next record overwrites it and states the same in its watermark. A
//! mark has no stamp where a record has one: a program that does not know marks takes it for free space.
//!
//! Layout, little endian, from byte 40 of that place: generation u64, watermark u64, salt u32, CRC32C u32.

use super::record::{GENERATION_AT, HEADER_BYTES, RECORD_ALIGN_BYTES, RecordHead, Stamp};
use crate::field::{Put, wide};
use corral_types::Reader;

/// Room a mark takes: that of a header, which is free behind every record but a seal.
pub(crate) const MARK_BYTES: usize = HEADER_BYTES;
/// Where in this room the mark begins: it ends where a header does, so that no record leaves a part of it.
const CONTENT_AT: usize = 40;
const CHECKED_BYTES: usize = 20;

const _: () = assert!(CONTENT_AT + CHECKED_BYTES + 4 == MARK_BYTES);
const _: () = assert!(CONTENT_AT > GENERATION_AT + 8, "no mark lies where a record's stamp is looked for");

/// A valid record or mark, which states how far the log was durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trace {
    Record(RecordHead),
    /// A mark with its watermark.
    Mark(u64),
}

/// Stores a mark at `offset`, the end of the records, where room for a header must be left.
pub(crate) fn write_mark(segment: &mut [u8], offset: usize, stamp: Stamp, watermark: u64) {
    let mut checked = [0; CHECKED_BYTES];
    let mut put = Put(&mut checked);
    put.u64(stamp.generation);
    put.u64(watermark);
    put.u32(stamp.salt);
    let crc = mark_crc(offset, &checked);
    let room = segment.get_mut(offset.saturating_add(CONTENT_AT)..).expect("a header fits behind all but a seal");
    let mut put = Put(room);
    put.bytes(&checked);
    put.u32(crc);
}

/// The watermark of the mark that `rest` begins with, which lies at `offset` of its segment, if one checks there.
pub(crate) fn read_mark(rest: &[u8], offset: usize, stamp: Stamp) -> Option<u64> {
    let mut take = Reader::new(rest.get(CONTENT_AT..)?);
    let checked = take.bytes(CHECKED_BYTES)?;
    let crc = take.u32()?;
    let mut fields = Reader::new(checked);
    let (generation, watermark, salt) = (fields.u64()?, fields.u64()?, fields.u32()?);
    (Stamp { generation, salt } == stamp && crc == mark_crc(offset, checked)).then_some(watermark)
}

/// The first place at or after `from` (a multiple of 8) with a valid header of a record, or a valid mark, of this stamp.
pub(crate) fn find_trace(segment: &[u8], from: usize, stamp: Stamp) -> Option<(usize, Trace)> {
    find_trace_in(segment.get(from..)?, from, stamp)
}

/// The same in a part of a segment that begins at its offset `from`, and of traces that lie in it whole.
pub(crate) fn find_trace_in(part: &[u8], from: usize, stamp: Stamp) -> Option<(usize, Trace)> {
    let wanted = stamp.generation.to_le_bytes();
    let mut at: usize = 0;
    for word in part.get(GENERATION_AT..)?.chunks_exact(RECORD_ALIGN_BYTES) {
        if word == wanted {
            let offset = from.checked_add(at)?;
            if let Some(head) = part.get(at..).and_then(|rest| RecordHead::decode_front(rest, offset, stamp)) {
                return Some((offset, Trace::Record(head)));
            }
            // The generation stands later in a mark than in a header.
            let before = CONTENT_AT.saturating_sub(GENERATION_AT);
            let mark = at.checked_sub(before).and_then(|at| {
                let offset = from.checked_add(at)?;
                Some((offset, Trace::Mark(read_mark(part.get(at..)?, offset, stamp)?)))
            });
            if mark.is_some() {
                return mark;
            }
        }
        at = at.checked_add(RECORD_ALIGN_BYTES)?;
    }
    None
}

fn mark_crc(offset: usize, checked: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&wide(offset).to_le_bytes()), checked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::record::RecordKind;

    const STAMP: Stamp = Stamp { generation: 7, salt: 0xABCD };

    #[test]
    fn a_mark_checks_only_where_and_when_it_was_written() {
        let mut bytes = vec![0; 512];
        write_mark(&mut bytes, 64, STAMP, 1064);
        let read = |offset: usize| read_mark(&bytes[offset..], offset, STAMP);
        assert_eq!(read(64), Some(1064));
        assert_eq!(read_mark(&bytes[64..], 64, Stamp { generation: 8, ..STAMP }), None);
        assert_eq!(read_mark(&bytes[64..], 64, Stamp { salt: 1, ..STAMP }), None);
        assert_eq!(read_mark(&bytes[64..], 56, STAMP), None, "moved by 8 bytes");
        assert_eq!(read(500), None, "past the end");
        for from in [0, 8, 64] {
            assert_eq!(find_trace(&bytes, from, STAMP), Some((64, Trace::Mark(1064))), "from {from}");
        }
        assert_eq!(find_trace(&bytes, 72, STAMP), None);
        for bit in (64 + CONTENT_AT) * 8..(64 + MARK_BYTES) * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read_mark(&bytes[64..], 64, STAMP), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_record_is_a_trace() {
        let payload = b"payload";
        let head = RecordHead {
            kind: RecordKind::Entry,
            term: 3,
            index: 9,
            first_zxid: 0x3_0000_0001,
            watermark: 64,
            payload_bytes: 7,
            payload_crc: crc32c::crc32c(payload),
        };
        let mut bytes = vec![0; 512];
        bytes[64..64 + HEADER_BYTES].copy_from_slice(&head.encode(STAMP, 64));
        bytes[64 + HEADER_BYTES..64 + HEADER_BYTES + 7].copy_from_slice(payload);
        assert_eq!(find_trace(&bytes, 0, STAMP), Some((64, Trace::Record(head))));
        assert_eq!(find_trace(&bytes, 72, STAMP), None);
    }

    #[test]
    fn to_a_program_without_marks_it_is_free_space() {
        let mut bytes = vec![0; 512];
        write_mark(&mut bytes, 64, STAMP, 1064);
        assert!((0..448).step_by(8).all(|at| RecordHead::decode(&bytes, at, STAMP).is_none()));
        assert!((0..448).step_by(8).all(|at| !RecordHead::is_stamped(&bytes, at, STAMP)));
    }
}
