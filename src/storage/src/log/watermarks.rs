//! How far the log is durable, and the places that state it: the file `DURABLE`, the mark and the slots.
//!
//! The log thread owns it. Its invariant: no place states more than the durable point, and the file `DURABLE` never
//! states less than a watermark in the log.

use super::durable_file::DurableFile;
use super::error::LogError;
use super::record::Stamp;
use super::segment::Slot;
use super::segment_file::SegmentFile;
use crate::disk::Segment;

/// The durable point of an open log.
pub(crate) struct Watermarks<S> {
    /// Log position up to which everything is synced.
    durable: u64,
    /// Highest durable point that a slot states.
    in_slot: u64,
    /// Slot that is written next: the older one.
    slot_next: usize,
    file: DurableFile<S>,
}

impl<S: Segment> Watermarks<S> {
    /// At the begin of a process, with the slots of the active segment.
    pub(crate) fn new(file: DurableFile<S>, durable: u64, [zero, one]: [Option<Slot>; 2]) -> Watermarks<S> {
        // The newer one stays: the other is written next.
        let age = |slot: Option<Slot>| slot.map(|slot| (slot.watermark, slot.oldest));
        Watermarks { durable, in_slot: 0, slot_next: usize::from(age(zero) > age(one)), file }
    }

    /// The durable point.
    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }

    /// Notes that a sync has succeeded up to this log position.
    pub(crate) fn advance(&mut self, durable: u64) {
        self.durable = durable;
    }

    /// Whether a slot states the durable point.
    pub(crate) fn is_in_slot(&self) -> bool {
        self.in_slot >= self.durable
    }

    /// Stores the durable point in the file `DURABLE`. Waits for no disk.
    pub(crate) fn store_in_file(&mut self, active: Stamp, oldest: u64) {
        self.file.store(active, self.durable, oldest);
    }

    /// Stores the durable point in a slot of the active segment; the caller syncs it and then calls
    /// [`Watermarks::slot_synced`].
    pub(crate) fn store_in_slot(&self, active: &mut SegmentFile<S>, oldest: u64) {
        active.write_slot(self.slot_next, Slot { watermark: self.durable, oldest });
    }

    /// Notes that the slot is durable.
    pub(crate) fn slot_synced(&mut self) {
        self.in_slot = self.durable;
        self.slot_next ^= 1;
    }

    /// Makes the file `DURABLE` durable.
    pub(crate) fn sync_file(&mut self) -> Result<(), LogError> {
        self.file.sync()
    }
}
