//! Going from segment to segment: preparing ahead, rolling, trimming, recycling. Part of the log, on its thread.
//!
//! Every step that a crash may interrupt leaves a directory that recovery understands: a segment gets its name only after
//! its header is durable, the next segment is there before the seal is written, the seal is durable before the next
//! segment gets its first record, and the oldest segment goes first, one durable rename at a time.

use super::segment::{DATA_START, SegmentHead, Start, salt, segment_name, spare_name};
use super::{Entry, Live, Log, LogError, write_record, write_start};
use crate::disk::{Disk, Segment};
use crate::field::{narrow, wide};
use crate::log::EntryKind;
use crate::log::index::EntryIndex;
use crate::log::record::{HEADER_BYTES, RecordKind, Stamp};

/// A segment file without a life: made ahead or trimmed. Its content does not matter.
pub struct Spare<D: Disk> {
    pub(crate) name: String,
    /// `None` if found at start and not needed yet.
    pub(crate) file: Option<D::Segment>,
}

/// The slow part of making a segment, for any thread that may block: allocating and zero-filling a file.
pub struct SpareJob<D: Disk> {
    disk: D,
    name: String,
    bytes: usize,
}

impl<D: Disk> SpareJob<D> {
    /// Makes the file. Errors: `StorageFull` and whatever the disk says; the log is none the worse.
    pub fn run(self) -> std::io::Result<Spare<D>> {
        let file = self.disk.create_segment(&self.name, self.bytes)?;
        Ok(Spare { name: self.name, file: Some(file) })
    }
}

impl<D: Disk> Log<D> {
    /// Has the next segment ready, so that a roll waits for one sync only. The log thread calls it when idle, or once
    /// the active segment is half full. `true` if it made one. Errors: `NoSpace` (nothing lost, call again later).
    pub fn prepare_ahead(&mut self) -> Result<bool, LogError> {
        self.check_alive()?;
        if !self.ahead.is_empty() {
            return Ok(false);
        }
        self.make_ahead()?;
        Ok(true)
    }

    /// Work that would save `prepare_ahead` the zero-filling, to be run on another thread and handed to
    /// [`Log::accept_spare`]. `None` while there is a spare already.
    pub fn spare_job(&mut self) -> Option<SpareJob<D>> {
        if !self.spares.is_empty() {
            return None;
        }
        let (disk, bytes) = (self.disk.clone(), self.config.segment_bytes);
        Some(SpareJob { disk, name: self.spare_name_next(), bytes })
    }

    pub fn accept_spare(&mut self, spare: Spare<D>) {
        self.spares.push(spare);
    }

    /// Bytes left in the active segment and whether the next one is ready.
    pub fn room(&self) -> (usize, bool) {
        (self.active().head.records_end().saturating_sub(self.tail), !self.ahead.is_empty())
    }

    /// Lets go of entries before `index`: whole segments, oldest first, never the active one. They become spares or are
    /// removed. The hard state is never lost, each segment begins with it. Answers the segments let go.
    pub fn trim_before(&mut self, index: u64) -> Result<usize, LogError> {
        // What makes the old segments superfluous has to be durable before they go.
        self.sync()?;
        let keep = self.index.place(index.max(self.index.first())).map_or_else(
            || self.active().head.stamp.generation,
            |place| self.generation_base.saturating_add(u64::from(place.segment)),
        );
        self.drop_segments_before(keep)
    }

    /// Voids the whole log: the next entry has `next_index`. For a server that received an image beyond its log. Durable
    /// when it returns.
    pub fn reset_to(&mut self, next_index: u64) -> Result<(), LogError> {
        self.check_alive()?;
        if self.ahead.is_empty() {
            self.make_ahead()?;
        }
        self.roll(Some(next_index))?;
        self.sync()?;
        let active = self.active().head.stamp.generation;
        self.drop_segments_before(active)?;
        Ok(())
    }

    /// Ends the active segment, so that [`Log::trim_before`] can let it go, and begins the next. Durable when it returns.
    pub fn seal(&mut self) -> Result<(), LogError> {
        self.check_alive()?;
        self.roll(None)?;
        self.sync().map(drop)
    }

    /// Ends the active segment and begins the next; `reset` voids all entries before the index it gives.
    pub(crate) fn roll(&mut self, reset: Option<u64>) -> Result<(), LogError> {
        if self.ahead.is_empty() {
            self.make_ahead()?;
        }
        let (tail, durable) = (self.tail, self.durable);
        let seal = Entry { term: 0, index: self.index.next(), kind: EntryKind::Normal, first_zxid: 0, payload: &[] };
        let sealed = write_record(self.active_mut(), tail, RecordKind::Seal, &seal, durable);
        self.tail = tail.saturating_add(sealed);
        // No mark behind a seal: nothing is acknowledged before the next segment has one.
        self.sync_tail()?;
        let sealed = self.active();
        let released = sealed.file.release(0, narrow(sealed.head.bytes));
        released.map_err(LogError::io(&sealed.name, "cannot release the segment's memory"))?;
        self.warm = 0..0;
        let mut next = self.ahead.pop_front().expect("prepared above");
        self.durable = next.head.base;
        // No record may state more than this file.
        self.durable_file.store(next.head.stamp, self.durable, self.oldest());
        if let Some(next_index) = reset {
            self.index = EntryIndex::new(next_index);
        }
        let start = Start { hard_state: self.hard_state, reset: reset.is_some(), oldest: self.oldest() };
        self.tail = write_start(&mut next, start, self.index.next(), self.durable);
        self.synced = DATA_START;
        self.segments.push_back(next);
        Ok(())
    }

    /// Gives a spare (or a new file) the next generation and its name.
    pub(crate) fn make_ahead(&mut self) -> Result<(), LogError> {
        let last = &self.ahead.back().unwrap_or_else(|| self.active()).head;
        let generation = last.stamp.generation.saturating_add(1);
        let base = last.end();
        let spare = take_spare(&self.disk, &mut self.spares, &mut self.spare_number_next, self.config.segment_bytes)?;
        let bytes = wide(self.config.segment_bytes);
        let stamp = Stamp { generation, salt: salt(self.config.seed, generation) };
        let made = name_segment(&self.disk, spare, SegmentHead { stamp, base, bytes }, None);
        // From here on it is unknown what the directory holds; a log that goes on could contradict it.
        self.failed = made.is_err();
        self.ahead.push_back(made?);
        Ok(())
    }

    /// Recycles or removes the segments before this generation, oldest first.
    pub(crate) fn drop_segments_before(&mut self, generation: u64) -> Result<usize, LogError> {
        let mut dropped = 0_usize;
        if self.segments.front().is_some_and(|live| live.head.stamp.generation < generation) {
            // Said first, so that a segment missing from the front is a loss unless it was let go.
            self.write_slot(generation)?;
        }
        while self.segments.front().is_some_and(|live| live.head.stamp.generation < generation) {
            let Some(live) = self.segments.pop_front() else { break };
            let segment = live.head.stamp.generation.saturating_add(1).saturating_sub(self.generation_base);
            self.index.drop_segments_before(u32::try_from(segment).unwrap_or(u32::MAX));
            let fits = live.head.bytes == wide(self.config.segment_bytes);
            let recycle = fits && self.spares.len() < self.config.spares_max;
            let done = if recycle {
                let spare = self.spare_name_next();
                let done = self.disk.rename(&live.name, &spare);
                self.spares.push(Spare { name: spare, file: Some(live.file) });
                done
            } else {
                self.disk.remove(&live.name)
            };
            let done = done.and_then(|()| self.disk.sync_dir());
            self.failed = done.is_err();
            done.map_err(LogError::io(&live.name, "cannot let go of a trimmed segment"))?;
            dropped = dropped.saturating_add(1);
        }
        Ok(dropped)
    }

    fn spare_name_next(&mut self) -> String {
        let number = self.spare_number_next;
        self.spare_number_next = number.saturating_add(1);
        spare_name(number)
    }
}

/// A spare, opened; made now if there is none.
pub(crate) fn take_spare<D: Disk>(
    disk: &D,
    spares: &mut Vec<Spare<D>>,
    number_next: &mut u64,
    bytes: usize,
) -> Result<(String, D::Segment), LogError> {
    while let Some(spare) = spares.pop() {
        let file = match spare.file {
            Some(file) => file,
            None => disk.open_segment(&spare.name).map_err(LogError::io(&spare.name, "cannot open a spare segment"))?,
        };
        if file.bytes().len() == bytes {
            return Ok((spare.name, file));
        }
        // Left from another configuration.
        drop(file);
        disk.remove(&spare.name).map_err(LogError::io(&spare.name, "cannot remove a spare segment"))?;
    }
    let name = spare_name(*number_next);
    *number_next = number_next.saturating_add(1);
    match disk.create_segment(&name, bytes) {
        Ok(file) => Ok((name, file)),
        Err(source) if matches!(source.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded) => {
            Err(LogError::NoSpace { bytes, source })
        }
        Err(source) => Err(LogError::Io { file: name, what: "cannot make a segment", source }),
    }
}

/// Writes the header into a spare, makes it durable and only then gives the file its name. The first segment of a log
/// also gets its start record here (with the index of the log's first entry): without one no first segment is taken.
pub(crate) fn name_segment<D: Disk>(
    disk: &D,
    (spare, file): (String, D::Segment),
    head: SegmentHead,
    first_index: Option<u64>,
) -> Result<Live<D::Segment>, LogError> {
    let name = segment_name(head.stamp.generation);
    let mut live = Live { name, head, file };
    head.write(live.file.bytes_mut());
    let mut written = DATA_START.saturating_add(HEADER_BYTES);
    if let Some(first_index) = first_index {
        written = write_start(
            &mut live,
            Start { hard_state: None, reset: false, oldest: head.stamp.generation },
            first_index,
            0,
        );
    }
    let synced = live.file.sync(0, written);
    synced.map_err(|source| LogError::SyncFailed { file: spare.clone(), source })?;
    disk.rename(&spare, &live.name).map_err(LogError::io(&spare, "cannot name a segment"))?;
    disk.sync_dir().map_err(LogError::io(&live.name, "cannot sync the data directory"))?;
    Ok(live)
}
