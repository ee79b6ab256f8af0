//! The segment files of the log in order: those in use, those prepared ahead, and the spares.
//!
//! The log thread owns it. Its invariants: a segment gets its name only after its header is durable. The generations of
//! the segments in use and ahead follow each other without a gap. The oldest segment leaves first, one durable rename
//! at a time. After a failure that leaves unknown what the disk holds, [`Segments::check_alive`] fails for ever. It
//! does not know where in the active segment the log ends.

use std::collections::VecDeque;

use super::config::LogConfig;
use super::error::LogError;
use super::index::EntryPlace;
use super::record::{HEADER_BYTES, Stamp};
use super::segment::{DATA_START, SegmentHead, Start, salt, segment_name};
use super::segment_file::SegmentFile;
use super::spares::{Spare, SpareJob, SparePool};
use crate::disk::{Disk, Segment as _};
use crate::field::{narrow, wide};

/// The segment files of a log.
pub(crate) struct Segments<D: Disk> {
    disk: D,
    /// Bytes of a new segment.
    segment_bytes: usize,
    /// Input of the salt of new segments.
    seed: u64,
    /// Oldest to active; never empty.
    in_use: VecDeque<SegmentFile<D::Segment>>,
    /// Prepared under their final names, without records, in order.
    ahead: VecDeque<SegmentFile<D::Segment>>,
    spares: SparePool<D>,
    /// Generation that counts as segment 0 in the index.
    generation_base: u64,
    /// It is unknown what the disk holds.
    failed: bool,
}

impl<D: Disk> Segments<D> {
    /// The segments as recovery found them. `in_use` must not be empty; what follows `active` in it is ahead.
    pub(crate) fn new(
        disk: D,
        config: &LogConfig,
        mut in_use: VecDeque<SegmentFile<D::Segment>>,
        active: usize,
        spares: SparePool<D>,
    ) -> Segments<D> {
        let ahead = in_use.split_off(active.saturating_add(1));
        let generation_base = in_use.front().map_or(0, |oldest| oldest.stamp().generation);
        let (segment_bytes, seed) = (config.segment_bytes, config.seed);
        Segments { disk, segment_bytes, seed, in_use, ahead, spares, generation_base, failed: false }
    }

    /// Errors: `Poisoned` after a failure that leaves unknown what the disk holds.
    pub(crate) fn check_alive(&self) -> Result<(), LogError> {
        if self.failed { Err(LogError::Poisoned) } else { Ok(()) }
    }

    pub(crate) fn active(&self) -> &SegmentFile<D::Segment> {
        self.in_use.back().expect("a log always has an active segment")
    }

    pub(crate) fn active_mut(&mut self) -> &mut SegmentFile<D::Segment> {
        self.in_use.back_mut().expect("a log always has an active segment")
    }

    /// Number of the active segment in the index.
    pub(crate) fn active_number(&self) -> u32 {
        let number = self.active().stamp().generation.saturating_sub(self.generation_base);
        u32::try_from(number).expect("a process does not see 2^32 segments")
    }

    /// Generation of the oldest segment in use.
    pub(crate) fn oldest(&self) -> u64 {
        self.in_use.front().map_or(0, |oldest| oldest.stamp().generation)
    }

    /// The generation of the segment with this number in the index.
    pub(crate) fn generation_of(&self, number: u32) -> u64 {
        self.generation_base.saturating_add(u64::from(number))
    }

    /// The segment in which an entry of the index lies.
    pub(crate) fn of_place(&self, place: EntryPlace) -> &SegmentFile<D::Segment> {
        let oldest = self.in_use.front().expect("a log always has an active segment").stamp().generation;
        let nth = self.generation_of(place.segment).saturating_sub(oldest);
        self.in_use.get(narrow(nth)).expect("entries of dropped segments leave the index first")
    }

    /// Bytes of all segments in use.
    pub(crate) fn bytes(&self) -> u64 {
        self.in_use.iter().fold(0, |sum, segment| sum.saturating_add(segment.head().bytes))
    }

    /// How many segments are prepared ahead.
    pub(crate) fn ahead_count(&self) -> usize {
        self.ahead.len()
    }

    pub(crate) fn in_use_mut(&mut self) -> impl ExactSizeIterator<Item = &mut SegmentFile<D::Segment>> {
        self.in_use.iter_mut()
    }

    /// Makes a range of the active segment durable. Errors: `SyncFailed`, which poisons the log.
    pub(crate) fn sync_active(&mut self, from: usize, to: usize) -> Result<(), LogError> {
        let done = self.active_mut().sync(from, to);
        self.failed |= done.is_err();
        done
    }

    /// Gives the memory of all segments back, in use and ahead.
    pub(crate) fn release_all(&self) -> Result<(), LogError> {
        self.in_use.iter().chain(&self.ahead).try_for_each(SegmentFile::release_all)
    }

    /// Gives a spare, or a new file, the next generation and its name. Errors: `NoSpace`, which leaves the log as it was,
    /// and those of the disk.
    pub(crate) fn make_ahead(&mut self) -> Result<(), LogError> {
        let last = self.ahead.back().unwrap_or_else(|| self.active()).head();
        let generation = last.stamp.generation.saturating_add(1);
        let base = last.end();
        let spare = self.spares.take()?;
        let stamp = Stamp { generation, salt: salt(self.seed, generation) };
        let made = name_segment(&self.disk, spare, SegmentHead { stamp, base, bytes: wide(self.segment_bytes) }, None);
        // A log that continues after a failure could contradict what the directory holds.
        self.failed = made.is_err();
        self.ahead.push_back(made?);
        Ok(())
    }

    /// The first segment ahead, which the caller has prepared, leaves the segments ahead.
    pub(crate) fn take_ahead(&mut self) -> SegmentFile<D::Segment> {
        self.ahead.pop_front().expect("the caller has prepared it")
    }

    /// Makes a segment that was ahead the active one.
    pub(crate) fn activate(&mut self, segment: SegmentFile<D::Segment>) {
        self.in_use.push_back(segment);
    }

    /// Removes segments ahead that have another size than configured now, newest first.
    pub(crate) fn drop_misfits_ahead(&mut self) -> Result<(), LogError> {
        let size = wide(self.segment_bytes);
        while self.ahead.iter().any(|segment| segment.head().bytes != size) {
            let Some(segment) = self.ahead.pop_back() else { break };
            let done = self.disk.remove(segment.name()).and_then(|()| self.disk.sync_dir());
            done.map_err(LogError::io(segment.name(), "cannot remove an unused segment"))?;
        }
        Ok(())
    }

    /// Whether a segment in use is older than this generation.
    pub(crate) fn has_before(&self, generation: u64) -> bool {
        self.in_use.front().is_some_and(|oldest| oldest.stamp().generation < generation)
    }

    /// Takes the oldest segment out of those in use if it is older than this generation.
    pub(crate) fn pop_before(&mut self, generation: u64) -> Option<SegmentFile<D::Segment>> {
        if self.has_before(generation) { self.in_use.pop_front() } else { None }
    }

    /// Number in the index of the first segment behind this one.
    pub(crate) fn number_behind(&self, segment: &SegmentFile<D::Segment>) -> u32 {
        let number = segment.stamp().generation.saturating_add(1).saturating_sub(self.generation_base);
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    /// Recycles or removes a segment that is not in use any more. Durable when it returns.
    pub(crate) fn recycle(&mut self, segment: SegmentFile<D::Segment>) -> Result<(), LogError> {
        let bytes = segment.head().bytes;
        let (name, file) = segment.into_parts();
        let done = self.spares.recycle(&name, file, bytes).and_then(|()| self.disk.sync_dir());
        self.failed = done.is_err();
        done.map_err(LogError::io(&name, "cannot recycle or remove a trimmed segment"))
    }

    pub(crate) fn spare_job(&mut self) -> Option<SpareJob<D>> {
        self.spares.job()
    }

    pub(crate) fn add_spare(&mut self, spare: Spare<D>) {
        self.spares.add(spare);
    }
}

/// Writes the header into a spare, makes it durable and only then gives the file its name. The first segment of a log
/// also gets its start record here, with the index of the log's first entry. No first segment is valid without one.
pub(crate) fn name_segment<D: Disk>(
    disk: &D,
    (spare, mut file): (String, D::Segment),
    head: SegmentHead,
    first_index: Option<u64>,
) -> Result<SegmentFile<D::Segment>, LogError> {
    head.write(file.bytes_mut());
    let mut segment = SegmentFile::new(segment_name(head.stamp.generation), head, file);
    let mut written = DATA_START.saturating_add(HEADER_BYTES);
    if let Some(first_index) = first_index {
        let start = Start { hard_state: None, reset: false, oldest: head.stamp.generation };
        written = segment.write_start(start, first_index, 0);
    }
    segment.sync_named(&spare, 0, written)?;
    disk.rename(&spare, segment.name()).map_err(LogError::io(&spare, "cannot name a segment"))?;
    disk.sync_dir().map_err(LogError::io(segment.name(), "cannot sync the data directory"))?;
    Ok(segment)
}
