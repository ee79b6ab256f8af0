//! The record: 64 bytes of header, the payload, padding to 8 bytes. Encoding, decoding, checking; no IO.
//!
//! Two checksums: the header's covers the header (and in it the payload's), the record's place and the segment's
//! generation and salt. So a header can be trusted for its length and watermark before its payload is checked. A record
//! moved to another place, or left over from an earlier use of the file, is not valid. A client cannot forge a record
//! inside its own data without knowing the salt.
//!
//! Layout, little endian: payload length u32, payload CRC32C u32, kind u32, salt u32, generation u64. Then: term u64,
//! index u64, first zxid u64, watermark u64, zero u32, header CRC32C u32.

use crate::field::{Put, align_up, wide};
use corral_types::Reader;

/// Bytes of a record header; also the room that is kept free at the end of a segment for the seal.
pub(crate) const HEADER_BYTES: usize = 64;
const CHECKED_BYTES: usize = 60;
pub(crate) const RECORD_ALIGN_BYTES: usize = 8;
/// Where the generation stands in a header; the search for records looks for it first.
pub(crate) const GENERATION_AT: usize = 16;
/// Where the salt stands, just before it.
const SALT_AT: usize = 12;

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordKind {
    /// First record of a segment: the hard state as it was, and the index of the next entry.
    Start,
    /// One Raft entry.
    Entry,
    /// One Raft entry that changes the membership.
    Membership,
    /// Raft's term, vote and commit index.
    HardState,
    /// Last record of a full segment: the log continues in the next one.
    Seal,
}

impl RecordKind {
    fn code(self) -> u32 {
        match self {
            RecordKind::Start => 1,
            RecordKind::Entry => 2,
            RecordKind::HardState => 3,
            RecordKind::Seal => 4,
            RecordKind::Membership => 5,
        }
    }

    fn from_code(code: u32) -> Option<RecordKind> {
        const ALL: [RecordKind; 5] =
            [RecordKind::Start, RecordKind::Entry, RecordKind::HardState, RecordKind::Seal, RecordKind::Membership];
        ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// Ties a record to one use of one segment file, because recycled files keep old records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) generation: u64,
    pub(crate) salt: u32,
}

/// A record header, without what only checking needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHead {
    pub(crate) kind: RecordKind,
    pub(crate) term: u64,
    pub(crate) index: u64,
    pub(crate) first_zxid: u64,
    pub(crate) watermark: u64,
    pub(crate) payload_bytes: u32,
    pub(crate) payload_crc: u32,
}

impl RecordHead {
    pub(crate) fn encode(&self, stamp: Stamp, offset: usize) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut put = Put(&mut bytes);
        put.u32(self.payload_bytes);
        put.u32(self.payload_crc);
        put.u32(self.kind.code());
        put.u32(stamp.salt);
        put.u64(stamp.generation);
        put.u64(self.term);
        put.u64(self.index);
        put.u64(self.first_zxid);
        put.u64(self.watermark);
        put.u32(0);
        let crc = header_crc(bytes.first_chunk().expect("a header is longer than its checked part"), offset);
        bytes.last_chunk_mut::<4>().expect("a header ends in its checksum").copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The header at `offset` of a segment, if it is valid there. The payload is not checked.
    pub(crate) fn decode(segment: &[u8], offset: usize, stamp: Stamp) -> Option<RecordHead> {
        RecordHead::decode_front(segment.get(offset..)?, offset, stamp)
    }

    /// The header that `rest` begins with, which lies at `offset` of its segment.
    pub(crate) fn decode_front(rest: &[u8], offset: usize, stamp: Stamp) -> Option<RecordHead> {
        let bytes: &[u8; HEADER_BYTES] = rest.first_chunk()?;
        let mut take = Reader::new(bytes);
        let payload_bytes = take.u32()?;
        let payload_crc = take.u32()?;
        let kind = take.u32()?;
        let found = Stamp { salt: take.u32()?, generation: take.u64()? };
        let (term, index) = (take.u64()?, take.u64()?);
        let (first_zxid, watermark) = (take.u64()?, take.u64()?);
        let (_zero, crc) = (take.u32()?, take.u32()?);
        if found != stamp || crc != header_crc(bytes.first_chunk()?, offset) {
            return None;
        }
        let kind = RecordKind::from_code(kind)?;
        Some(RecordHead { kind, term, index, first_zxid, watermark, payload_bytes, payload_crc })
    }

    /// Whether the bytes at `offset` bear this stamp, as a record with a damaged header may.
    pub(crate) fn is_stamped(segment: &[u8], offset: usize, stamp: Stamp) -> bool {
        let read = || {
            let mut take = Reader::new(segment.get(offset..)?.get(SALT_AT..)?);
            Some(Stamp { salt: take.u32()?, generation: take.u64()? })
        };
        read() == Some(stamp)
    }

    /// The payload of the record with its header at `offset`, if it matches its checksum.
    pub(crate) fn payload<'a>(&self, segment: &'a [u8], offset: usize) -> Option<&'a [u8]> {
        let from = offset.checked_add(HEADER_BYTES)?;
        let payload = segment.get(from..)?.get(..self.payload_bytes as usize)?;
        (crc32c::crc32c(payload) == self.payload_crc).then_some(payload)
    }

    /// Header, payload and padding.
    pub(crate) fn record_bytes(&self) -> usize {
        record_bytes(self.payload_bytes as usize)
    }
}

/// Bytes a record with this payload takes in a segment.
pub(crate) fn record_bytes(payload_bytes: usize) -> usize {
    align_up(payload_bytes.saturating_add(HEADER_BYTES), RECORD_ALIGN_BYTES)
}

fn header_crc(checked: &[u8; CHECKED_BYTES], offset: usize) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&wide(offset).to_le_bytes()), checked)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { generation: 7, salt: 0xABCD };

    fn segment_with_record(offset: usize) -> (Vec<u8>, RecordHead) {
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
        bytes[offset..offset + HEADER_BYTES].copy_from_slice(&head.encode(STAMP, offset));
        bytes[offset + HEADER_BYTES..offset + HEADER_BYTES + 7].copy_from_slice(payload);
        (bytes, head)
    }

    #[test]
    fn a_record_checks_only_where_and_when_it_was_written() {
        let (bytes, head) = segment_with_record(64);
        assert_eq!(RecordHead::decode(&bytes, 64, STAMP), Some(head));
        assert_eq!(head.payload(&bytes, 64), Some(&b"payload"[..]));
        assert_eq!(RecordHead::decode(&bytes, 64, Stamp { generation: 8, ..STAMP }), None);
        assert_eq!(RecordHead::decode(&bytes, 64, Stamp { salt: 1, ..STAMP }), None);
        assert_eq!(RecordHead::decode(&bytes[8..], 56, STAMP), None, "moved by 8 bytes");
        assert_eq!(RecordHead::decode(&bytes, 500, STAMP), None, "past the end");
        assert!(RecordHead::is_stamped(&bytes, 64, STAMP));
        assert!(!RecordHead::is_stamped(&bytes, 72, STAMP) && !RecordHead::is_stamped(&bytes, 500, STAMP));
    }

    #[test]
    fn every_flipped_bit_of_a_record_is_seen() {
        let (bytes, head) = segment_with_record(0);
        for bit in 0..(HEADER_BYTES + 7) * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let checks = RecordHead::decode(&damaged, 0, STAMP).is_some_and(|h| h.payload(&damaged, 0).is_some());
            assert!(!checks, "bit {bit}");
        }
        assert_eq!(head.record_bytes(), 72);
    }
}
