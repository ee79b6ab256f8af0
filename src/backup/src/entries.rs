//! Entries of the log as the body of an envelope, in the order of their indices.
//!
//! Integers are little-endian. Each entry has index u64, term u64, kind u32, the CRC-32C of the payload u32, bytes of the payload
//! u32, and 4 bytes of zeros. The payload follows. The first entry only names the one before, and has no payload.

use crate::error::BackupError;

/// Bytes in front of a payload.
pub const FRONT_BYTES: usize = 32;
/// Entries in one body, without the one before.
pub const COUNT_MAX: usize = 16 << 10;
/// A body ends behind the entry with which the payloads have this many bytes.
pub const PAYLOAD_BYTES_MAX: usize = 16 << 20;
const BEFORE: u32 = 0;
const NORMAL: u32 = 1;
const MEMBERSHIP: u32 = 2;

/// Place of an entry in a log. Two entries with the same place are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index in the log.
    pub index: u64,
    /// Term of the leader that proposed it.
    pub term: u64,
    /// CRC-32C of the payload.
    pub crc: u32,
}

/// An entry with its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Where it is in the log.
    pub place: Place,
    /// Whether the payload is a change of the membership.
    pub is_membership: bool,
    /// As it is in the log.
    pub payload: &'a [u8],
}

/// The front of the entry before the first one.
#[must_use]
pub fn front_before(place: Place) -> [u8; FRONT_BYTES] {
    front(place, BEFORE, 0)
}

/// The front of an entry with this many bytes of payload.
#[must_use]
pub fn front_of(place: Place, is_membership: bool, bytes: u32) -> [u8; FRONT_BYTES] {
    front(place, if is_membership { MEMBERSHIP } else { NORMAL }, bytes)
}

fn front(Place { index, term, crc }: Place, kind: u32, bytes: u32) -> [u8; FRONT_BYTES] {
    let mut front = [0; FRONT_BYTES];
    front[..8].copy_from_slice(&index.to_le_bytes());
    front[8..16].copy_from_slice(&term.to_le_bytes());
    for (field, number) in front[16..28].chunks_mut(4).zip([kind, crc, bytes]) {
        field.copy_from_slice(&number.to_le_bytes());
    }
    front
}

/// Whether a body with these entries ended because it was full: the log may hold more.
#[must_use]
pub fn is_full(entries: &[Entry<'_>]) -> bool {
    let bytes: usize = entries.iter().map(|entry| entry.payload.len()).sum();
    entries.len() >= COUNT_MAX || bytes >= PAYLOAD_BYTES_MAX
}

/// Takes a body apart: the place before it, and its entries.
///
/// # Errors
/// If it is no body, or its entries do not follow each other.
pub fn decode(body: &[u8]) -> Result<(Place, Vec<Entry<'_>>), BackupError> {
    let damaged = || BackupError::Damaged("its entries are not as they were written".to_owned());
    let (before, kind, mut rest) = take(body).ok_or_else(damaged)?;
    let (mut last, mut entries) = (before.place, Vec::new());
    if kind != BEFORE || !before.payload.is_empty() {
        return Err(damaged());
    }
    while !rest.is_empty() {
        let (entry, kind, behind) = take(rest).ok_or_else(damaged)?;
        let is_next = last.index.checked_add(1) == Some(entry.place.index) && entry.place.term >= last.term;
        if !is_next || kind == BEFORE || crc32c::crc32c(entry.payload) != entry.place.crc {
            return Err(damaged());
        }
        (last, rest) = (entry.place, behind);
        entries.push(entry);
    }
    Ok((before.place, entries))
}

/// The first entry, its kind, and the bytes behind it.
fn take(bytes: &[u8]) -> Option<(Entry<'_>, u32, &[u8])> {
    let (front, rest) = bytes.split_first_chunk::<FRONT_BYTES>()?;
    let u64_at = |at: usize| Some(u64::from_le_bytes(front.get(at..)?.first_chunk().copied()?));
    let u32_at = |at: usize| Some(u32::from_le_bytes(front.get(at..)?.first_chunk().copied()?));
    let place = Place { index: u64_at(0)?, term: u64_at(8)?, crc: u32_at(20)? };
    let (kind, bytes) = (u32_at(16)?, usize::try_from(u32_at(24)?).ok()?);
    let (payload, rest) = rest.split_at_checked(bytes)?;
    let entry = Entry { place, is_membership: kind == MEMBERSHIP, payload };
    (matches!(kind, BEFORE | NORMAL | MEMBERSHIP) && u32_at(28)? == 0).then_some((entry, kind, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_and_damage_never_does() {
        let before = Place { index: 6, term: 2, crc: 9 };
        let payloads: [&[u8]; 3] = [b"one", b"", b"three"];
        let mut body = front_before(before).to_vec();
        let mut expected = Vec::new();
        for (index, payload) in (7..).zip(payloads) {
            let place = Place { index, term: 2 + index / 8, crc: crc32c::crc32c(payload) };
            let (is_membership, bytes) = (index == 8, u32::try_from(payload.len()).expect("it is short"));
            body.extend(front_of(place, is_membership, bytes));
            body.extend(payload);
            expected.push(Entry { place, is_membership, payload });
        }
        assert_eq!(decode(&body).expect("it is whole"), (before, expected.clone()));
        for end in 0..body.len() {
            let found = decode(&body[..end]);
            assert!(found.is_err() || found.is_ok_and(|(_, entries)| entries.len() < expected.len()), "cut at {end}");
        }
        for at in 0..body.len() {
            let mut damaged = body.clone();
            damaged[at] ^= 0xFF;
            let found = decode(&damaged).map(|(_, entries)| entries.iter().map(|entry| entry.payload).eq(payloads));
            assert!(found.unwrap_or(true), "at {at}");
        }
    }
}
