//! The file `DURABLE`: the durable point of the log, in two copies, outside of the pages that it speaks of.
//!
//! The log thread stores both copies after each sync, before the sync is reported. The file is never synced for that. A
//! process that is killed leaves the stores in the page cache. No other sync writes the file back, because it is a file
//! of its own. After a power cut the copies may be older than the log. They are never wrong: what they state was
//! durable when they were stored, and stays so.
//!
//! Each copy is a page of its own. A lost page of the log leaves both. A lost page of this file, or a store that a kill
//! interrupted, leaves the other one. Both are the same bytes, little endian: magic, format version u32, salt u32,
//! generation u64, watermark u64, oldest u64, boot u128, CRC32C u32.

use super::error::LogError;
use super::record::Stamp;
use super::segment::segment_name;
use crate::disk::{Disk, Segment};
use crate::field::Put;
use crate::limits::PAGE_BYTES;
use corral_types::Reader;

/// Name of the file.
pub const DURABLE_NAME: &str = "DURABLE";
/// Length of the file: one page a copy.
const FILE_BYTES: usize = 2 * PAGE_BYTES;
const MAGIC: [u8; 8] = *b"corralDP";
const FORMAT_VERSION: u32 = 1;
const CHECKED_BYTES: usize = 56;
const COPY_BYTES: usize = CHECKED_BYTES + 4;

/// How far a log was durable, and which log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DurablePoint {
    /// The segment that was active.
    pub(crate) stamp: Stamp,
    /// Log position up to which everything was durable.
    pub(crate) watermark: u64,
    /// Generation of the oldest segment that was still needed.
    pub(crate) oldest: u64,
    /// [`Disk::boot`] when it was stored.
    pub(crate) boot: u128,
}

impl DurablePoint {
    fn encode(&self) -> [u8; COPY_BYTES] {
        let mut bytes = [0; COPY_BYTES];
        let mut put = Put(&mut bytes);
        put.bytes(&MAGIC);
        put.u32(FORMAT_VERSION);
        put.u32(self.stamp.salt);
        put.u64(self.stamp.generation);
        put.u64(self.watermark);
        put.u64(self.oldest);
        put.bytes(&self.boot.to_le_bytes());
        let (checked, crc) = bytes.split_at_mut(CHECKED_BYTES);
        crc.copy_from_slice(&crc32c::crc32c(checked).to_le_bytes());
        bytes
    }

    /// The copy in a page. `Err` with the version if a newer program stored it.
    fn decode(page: &[u8]) -> Option<Result<DurablePoint, u32>> {
        let mut take = Reader::new(page);
        let checked = take.bytes(CHECKED_BYTES)?;
        let crc = take.u32()?;
        let mut fields = Reader::new(checked);
        let magic = fields.bytes(MAGIC.len())?;
        let (version, salt) = (fields.u32()?, fields.u32()?);
        let (generation, watermark, oldest) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let boot = u128::from_le_bytes(fields.bytes(16)?.try_into().ok()?);
        if magic != MAGIC || crc != crc32c::crc32c(checked) {
            return None;
        }
        let point = DurablePoint { stamp: Stamp { generation, salt }, watermark, oldest, boot };
        Some(if version == FORMAT_VERSION { Ok(point) } else { Err(version) })
    }

    /// The newest copy in a file's content. Both are the same but for a store that was interrupted, or damage.
    pub(crate) fn read(content: &[u8]) -> Result<Option<DurablePoint>, LogError> {
        let mut newest: Option<DurablePoint> = None;
        for found in content.chunks(PAGE_BYTES).take(FILE_BYTES / PAGE_BYTES).filter_map(DurablePoint::decode) {
            let point = found.map_err(|version| LogError::WrongVersion {
                file: DURABLE_NAME.to_owned(),
                found: version,
                expected: FORMAT_VERSION,
            })?;
            let age = |point: &DurablePoint| (point.stamp.generation, point.watermark);
            if newest.is_none_or(|newest| age(&point) > age(&newest)) {
                newest = Some(point);
            }
        }
        Ok(newest)
    }

    /// Whether the log that these segments are is the one it speaks of, and nothing at its end is missing. `Ok(false)`
    /// if it is older than all of them, as a power cut may leave it.
    pub(crate) fn fits(&self, segments: impl Iterator<Item = Stamp>) -> Result<bool, LogError> {
        let (mut newest, file) = (None, segment_name(self.stamp.generation));
        for stamp in segments {
            if stamp == self.stamp {
                return Ok(true);
            }
            if stamp.generation == self.stamp.generation {
                return Err(LogError::OtherLog { what: format!("{file} is not the segment that it was stored for") });
            }
            newest = newest.max(Some(stamp.generation));
        }
        if newest.is_none_or(|newest| newest < self.stamp.generation) {
            let what = format!("the log was durable up to position {} in {file}, which is missing", self.watermark);
            return Err(LogError::OtherLog { what });
        }
        Ok(false)
    }
}

/// The file of an open log.
pub(crate) struct DurableFile<S> {
    file: S,
    boot: u128,
}

impl<S: Segment> DurableFile<S> {
    /// The durable point that an earlier process stored; `None` without the file, or if no copy is valid.
    pub(crate) fn read<D: Disk<Segment = S>>(disk: &D, exists: bool) -> Result<Option<DurablePoint>, LogError> {
        if !exists {
            return Ok(None);
        }
        // A file that cannot be read is as useless as one without a valid copy. It is made anew.
        disk.map(DURABLE_NAME).map_or(Ok(None), |content| DurablePoint::read(content.as_slice()))
    }

    /// Opens the file for storing, or makes it anew where it is missing or is not what this program makes.
    pub(crate) fn open<D: Disk<Segment = S>>(disk: &D, exists: bool) -> Result<DurableFile<S>, LogError> {
        let boot = disk.boot();
        if exists {
            if let Ok(file) = disk.open_segment(DURABLE_NAME)
                && file.bytes().len() == FILE_BYTES
                && file.warm(0, FILE_BYTES).is_ok()
            {
                return Ok(DurableFile { file, boot });
            }
            disk.remove(DURABLE_NAME)
                .map_err(LogError::io(DURABLE_NAME, "cannot remove the file, which is damaged"))?;
        }
        let made = disk.create_segment(DURABLE_NAME, FILE_BYTES);
        let file = made.map_err(LogError::no_segment(DURABLE_NAME, "cannot make the file", FILE_BYTES))?;
        Ok(DurableFile { file, boot })
    }

    /// Stores both copies, one after the other. Waits for no disk.
    pub(crate) fn store(&mut self, stamp: Stamp, watermark: u64, oldest: u64) {
        let copy = DurablePoint { stamp, watermark, oldest, boot: self.boot }.encode();
        for page in self.file.bytes_mut().chunks_mut(PAGE_BYTES) {
            Put(page).bytes(&copy);
        }
    }

    /// Makes what was stored durable, once a start.
    pub(crate) fn sync(&mut self) -> Result<(), LogError> {
        let done = self.file.sync(0, FILE_BYTES);
        done.map_err(|source| LogError::SyncFailed { file: DURABLE_NAME.to_owned(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(generation: u64, watermark: u64) -> DurablePoint {
        DurablePoint { stamp: Stamp { generation, salt: 7 }, watermark, oldest: 2, boot: 1 << 90 | 5 }
    }

    fn file(first: DurablePoint, second: DurablePoint) -> Vec<u8> {
        let mut content = vec![0; FILE_BYTES];
        content[..COPY_BYTES].copy_from_slice(&first.encode());
        content[PAGE_BYTES..PAGE_BYTES + COPY_BYTES].copy_from_slice(&second.encode());
        content
    }

    #[test]
    fn one_copy_that_checks_is_enough_and_the_newer_one_counts() {
        let read = |content: &[u8]| DurablePoint::read(content).expect("a known version");
        for (first, second) in [(point(3, 900), point(3, 950)), (point(4, 0), point(3, 950))] {
            let content = file(first, second);
            let newest = if first.stamp.generation > 3 { first } else { second };
            assert_eq!(read(&content), Some(newest));
            for bit in 0..COPY_BYTES * 8 {
                for page in [0, PAGE_BYTES] {
                    let mut damaged = content.clone();
                    damaged[page + bit / 8] ^= 1 << (bit % 8);
                    assert_eq!(read(&damaged), Some(if page == 0 { second } else { first }), "bit {bit} at {page}");
                }
            }
            assert_eq!(read(&content[..PAGE_BYTES]), Some(first));
        }
        for content in [vec![], vec![0; FILE_BYTES], vec![0xFF; FILE_BYTES], vec![0; 3]] {
            assert_eq!(read(&content), None);
        }
    }

    #[test]
    fn a_point_fits_the_log_that_it_was_stored_for() {
        let stamps = |generations: &[u64]| {
            generations.iter().map(|&generation| Stamp { generation, salt: 7 }).collect::<Vec<_>>().into_iter()
        };
        assert!(point(5, 0).fits(stamps(&[4, 5, 6])).expect("the same log"));
        assert!(!point(5, 0).fits(stamps(&[6, 7])).expect("an older point"));
        assert!(point(5, 0).fits(stamps(&[3, 4])).is_err(), "the end is missing");
        assert!(point(5, 0).fits(stamps(&[])).is_err(), "all is missing");
        let other = Stamp { generation: 5, salt: 8 };
        assert!(point(5, 0).fits([other].into_iter()).is_err(), "another log's segment");
    }
}
