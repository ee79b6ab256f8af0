//! The files of the log in a data directory, as recovery finds them: lists them, and opens and checks segments one by one.
//!
//! It reads names and headers, no records. It removes what a crash left under construction and changes nothing else.

use super::config::LogConfig;
use super::durable_file::DURABLE_NAME;
use super::error::LogError;
use super::record::Stamp;
use super::segment::{FORMAT_VERSION, HeadFault, SegmentHead, number_in, salt, segment_name};
use super::segment_file::SegmentFile;
use super::segments::name_segment;
use super::spares::SparePool;
use crate::disk::{Disk, Segment as _, TEMPORARY_SUFFIX};
use crate::field::wide;
use crate::limits::SEGMENTS_MAX;

/// The log's files in a directory.
pub(crate) struct Survey<D: Disk> {
    /// Of all segment files, ascending.
    pub(crate) generations: Vec<u64>,
    pub(crate) spares: SparePool<D>,
    pub(crate) has_durable_file: bool,
}

impl<D: Disk> Survey<D> {
    /// Sorts the directory's files and removes what a crash left under construction. Other files are not the log's.
    pub(crate) fn of(disk: &D, config: &LogConfig) -> Result<Survey<D>, LogError> {
        let mut generations = Vec::new();
        let mut spares = SparePool::new(disk.clone(), config.segment_bytes, config.spares_max);
        let mut has_durable_file = false;
        for name in disk.list().map_err(LogError::io("data directory", "cannot list it"))? {
            has_durable_file |= name == DURABLE_NAME;
            let ours = name.starts_with("log-") || name.starts_with("spare-");
            if !ours {
                continue;
            }
            if name.ends_with(TEMPORARY_SUFFIX) {
                disk.remove(&name).map_err(LogError::io(&name, "cannot remove an unfinished file"))?;
            } else if let Some(generation) = number_in(&name, "log-") {
                generations.push(generation);
            } else if let Some(number) = number_in(&name, "spare-") {
                spares.add_found(name, number);
            } else if name.ends_with(".seg") {
                return Err(LogError::StrayFile { file: name });
            }
        }
        generations.sort_unstable();
        if generations.len() > SEGMENTS_MAX {
            return Err(LogError::TooManySegments { found: generations.len(), max: SEGMENTS_MAX });
        }
        Ok(Survey { generations, spares, has_durable_file })
    }
}

/// Makes the first segment of a new log.
pub(crate) fn begin<D: Disk>(
    disk: &D,
    config: &LogConfig,
    spares: &mut SparePool<D>,
) -> Result<SegmentFile<D::Segment>, LogError> {
    let spare = spares.take()?;
    let stamp = Stamp { generation: 1, salt: salt(config.seed, 1) };
    let head = SegmentHead { stamp, base: 0, bytes: wide(config.segment_bytes) };
    name_segment(disk, spare, head, Some(config.first_index))
}

/// Opens and checks one segment; `after` is the head of the one before it.
pub(crate) fn open_one<D: Disk>(
    disk: &D,
    generation: u64,
    after: Option<SegmentHead>,
) -> Result<SegmentFile<D::Segment>, LogError> {
    let name = segment_name(generation);
    if let Some(before) = after {
        let expected = before.stamp.generation.saturating_add(1);
        if generation != expected {
            return Err(LogError::MissingSegment { file: segment_name(expected) });
        }
    }
    let file = disk.open_segment(&name).map_err(LogError::io(&name, "cannot open the segment"))?;
    let head = SegmentHead::read(file.bytes()).map_err(|fault| match fault {
        HeadFault::WrongVersion(found) => {
            LogError::WrongVersion { file: name.clone(), found, expected: FORMAT_VERSION }
        }
        HeadFault::WrongMagic => LogError::NotASegment { file: name.clone(), what: fault.text() },
        _ => LogError::Damaged { file: name.clone(), offset: 0, what: fault.text().to_owned() },
    })?;
    if head.stamp.generation != generation {
        let what = "its header belongs to another segment".to_owned();
        return Err(LogError::Damaged { file: name, offset: 0, what });
    }
    if after.is_some_and(|before| before.end() != head.base) {
        let what = "it does not begin where the segment before it ends".to_owned();
        return Err(LogError::Damaged { file: name, offset: 0, what });
    }
    Ok(SegmentFile::new(name, head, file))
}
