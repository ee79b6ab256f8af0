//! The end of the log: stores records into the active segment, syncs them, and continues in the next segment.
//!
//! The log thread owns it. Every step that a crash may interrupt leaves a directory that recovery understands. The next
//! segment exists before the seal is written, and the seal is durable before the next segment gets its first record.
//! The durable point is stored before a sync is reported. It knows neither the index of entries nor the hard state.

use std::ops::Range;

use corral_types::{EntryKind, HardState, Index, StoredEntry, Term};

use super::durable_file::DurableFile;
use super::error::LogError;
use super::mark::MARK_BYTES;
use super::record::{RecordKind, record_bytes};
use super::segment::{DATA_START, Start};
use super::segments::Segments;
use super::watermarks::Watermarks;
use crate::disk::Disk;
use crate::field::{align_up, narrow};
use crate::limits::{PAGE_BYTES, WARM_BYTES};

/// Stores at the end of the log.
pub(crate) struct Writer<D: Disk> {
    segments: Segments<D>,
    /// Offset in the active segment of the next record.
    tail: usize,
    /// The active segment is synced up to here.
    synced: usize,
    /// The part of the active segment that is in memory; before it only the fixed pages may be.
    warm: Range<usize>,
    watermarks: Watermarks<D::Segment>,
}

impl<D: Disk> Writer<D> {
    /// Continues at `tail` of the active segment; everything before it must be durable.
    pub(crate) fn new(segments: Segments<D>, tail: usize, file: DurableFile<D::Segment>) -> Writer<D> {
        let active = segments.active();
        let watermarks = Watermarks::new(file, active.head().position(tail), active.slots());
        Writer { segments, tail, synced: tail, warm: 0..0, watermarks }
    }

    /// The segment files, for reading.
    pub(crate) fn segments(&self) -> &Segments<D> {
        &self.segments
    }

    /// The segment files, to prepare one ahead or to take the oldest out.
    pub(crate) fn segments_mut(&mut self) -> &mut Segments<D> {
        &mut self.segments
    }

    /// Offset in the active segment of the next record.
    pub(crate) fn tail(&self) -> usize {
        self.tail
    }

    /// Log position up to which everything is synced.
    pub(crate) fn durable(&self) -> u64 {
        self.watermarks.durable()
    }

    /// Whether a record with a payload of `payload_bytes` fits into the active segment.
    pub(crate) fn has_room(&self, payload_bytes: usize) -> bool {
        self.tail.saturating_add(record_bytes(payload_bytes)) <= self.segments.active().head().records_end()
    }

    /// Stores one record, which must fit. Returns its offset and the number of its segment. Only the memory of the
    /// segment may be waited for.
    pub(crate) fn store(&mut self, kind: RecordKind, entry: &StoredEntry<'_>) -> Result<(u32, u32), LogError> {
        let offset = self.tail;
        let durable = self.watermarks.durable();
        self.warm_up_to(offset.saturating_add(record_bytes(entry.payload.len())))?;
        let stored = self.segments.active_mut().write_record(offset, kind, entry, durable);
        self.tail = offset.saturating_add(stored);
        Ok((u32::try_from(offset).expect("segments are at most 1 GiB"), self.segments.active_number()))
    }

    /// Makes everything stored durable, and states so in the file `DURABLE` and in a mark. Errors: `SyncFailed`, which
    /// poisons the log, and `Io`.
    pub(crate) fn sync(&mut self) -> Result<(), LogError> {
        if self.tail > self.synced {
            self.sync_tail()?;
            self.mark()?;
        }
        Ok(())
    }

    /// The sync alone, for behind a seal, where no mark has room and after which nothing is acknowledged.
    fn sync_tail(&mut self) -> Result<(), LogError> {
        let (from, to) = (self.synced, self.tail);
        self.segments.sync_active(from, to)?;
        self.synced = to;
        self.watermarks.advance(self.segments.active().head().position(to));
        self.release_behind()
    }

    /// Stores the durable point where a killed process leaves it. One place is the file `DURABLE`, with pages that hold
    /// no record. The other is behind the last record, in a page that the next record needs anyway. Either tells damage
    /// to acknowledged records from a torn tail. No disk is waited for.
    pub(crate) fn mark(&mut self) -> Result<(), LogError> {
        let (tail, durable) = (self.tail, self.watermarks.durable());
        self.store_in_file(self.segments.oldest());
        self.warm_up_to(tail.saturating_add(MARK_BYTES))?;
        self.segments.active_mut().write_mark(tail, durable);
        Ok(())
    }

    /// Stores the durable point in the file `DURABLE`, so that it never lags behind what a watermark states.
    fn store_in_file(&mut self, oldest: u64) {
        self.watermarks.store_in_file(self.segments.active().stamp(), oldest);
    }

    /// Whether a slot states the durable point, so that [`Writer::write_slot`] would add nothing.
    pub(crate) fn is_in_slot(&self) -> bool {
        self.watermarks.is_in_slot()
    }

    /// States durably, in a slot, how far the log is durable and which segment is the oldest still needed.
    pub(crate) fn write_slot(&mut self, oldest: u64) -> Result<(), LogError> {
        self.store_in_file(oldest);
        self.watermarks.store_in_slot(self.segments.active_mut(), oldest);
        self.segments.sync_active(PAGE_BYTES, DATA_START)?;
        self.watermarks.slot_synced();
        Ok(())
    }

    /// Seals the active segment and begins the next, with a first record that states `hard_state`. `next_index` is the
    /// index of the next entry. `reset` replaces it and voids all entries of the log. On an error nothing is stored in
    /// the next segment.
    pub(crate) fn roll(
        &mut self,
        next_index: u64,
        reset: Option<u64>,
        hard_state: Option<HardState>,
    ) -> Result<(), LogError> {
        if self.segments.ahead_count() == 0 {
            self.segments.make_ahead()?;
        }
        let (tail, durable) = (self.tail, self.watermarks.durable());
        let (term, index, kind) = (Term(0), Index(next_index), EntryKind::Normal);
        let seal = StoredEntry { term, index, kind, first_zxid: 0, payload: &[] };
        let sealed = self.segments.active_mut().write_record(tail, RecordKind::Seal, &seal, durable);
        self.tail = tail.saturating_add(sealed);
        // No mark behind a seal: nothing is acknowledged before the next segment has one.
        self.sync_tail()?;
        self.segments.active().release_all()?;
        self.warm = 0..0;
        let mut next = self.segments.take_ahead();
        self.watermarks.advance(next.head().base);
        // No record may state more than this file.
        self.watermarks.store_in_file(next.stamp(), self.segments.oldest());
        let start = Start { hard_state, reset: reset.is_some(), oldest: self.segments.oldest() };
        self.tail = next.write_start(start, reset.unwrap_or(next_index), self.watermarks.durable());
        self.synced = DATA_START;
        self.segments.activate(next);
        Ok(())
    }

    /// Stores the start record that a crash left out between the seal of the last segment and the begin of this one.
    pub(crate) fn complete_start(&mut self, next_index: u64, hard_state: Option<HardState>) -> Result<(), LogError> {
        let start = Start { hard_state, reset: false, oldest: self.segments.oldest() };
        let durable = self.watermarks.durable();
        self.tail = self.segments.active_mut().write_start(start, next_index, durable);
        self.sync()
    }

    /// Makes the file `DURABLE` durable.
    pub(crate) fn sync_durable_file(&mut self) -> Result<(), LogError> {
        self.watermarks.sync_file()
    }

    /// Gives the memory of all segments back; the end of the active one is brought in again when it is used.
    pub(crate) fn release_read(&mut self) -> Result<(), LogError> {
        self.segments.release_all()?;
        let begin = self.tail.saturating_sub(self.tail % WARM_BYTES);
        self.warm = begin..begin;
        Ok(())
    }

    /// Brings the active segment into memory up to `to`, so that the next stores there wait for no disk.
    fn warm_up_to(&mut self, to: usize) -> Result<(), LogError> {
        let active = self.segments.active();
        let end = narrow(active.head().bytes);
        if to <= self.warm.end || self.warm.end >= end {
            return Ok(());
        }
        let (from, to) = (self.warm.end, align_up(to, WARM_BYTES).min(end));
        active.warm(from, to, "cannot bring the segment into memory")?;
        self.warm.end = to;
        Ok(())
    }

    /// Gives back the memory of synced bytes: only a recovery reads them again, or the leader for a follower that lags.
    fn release_behind(&mut self) -> Result<(), LogError> {
        let done = self.synced.saturating_sub(self.synced % WARM_BYTES);
        if done > self.warm.start {
            self.segments.active().release(self.warm.start, done)?;
            self.warm.start = done;
        }
        Ok(())
    }
}
