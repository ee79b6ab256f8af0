//! Reads all segments of a log once, and decides where the log ends. Part of an open; changes nothing.
//!
//! The rule: reading stops at the first record with checksums that do not match. If a watermark states that the log was
//! durable beyond that place, acknowledged data is damaged: that is an error. The watermark may be in the file
//! `DURABLE`, or anywhere later in a record, a mark or a slot. Otherwise the rest is the torn tail of a group of
//! records that was never acknowledged.

use std::collections::VecDeque;

use corral_types::HardState;

use super::durable_file::{DURABLE_NAME, DurablePoint};
use super::entry::decode_hard_state;
use super::error::LogError;
use super::index::{EntryIndex, EntryPlace};
use super::mark::{Trace, find_trace};
use super::record::{HEADER_BYTES, RecordHead, RecordKind};
use super::recovered::{Progress, SteppedOver};
use super::segment::{DATA_START, Start, segment_name};
use super::segment_file::SegmentFile;
use crate::disk::Segment;
use crate::field::{narrow, wide};

const CANNOT_READ: &str = "cannot read the segment";

/// The result of reading all segments.
pub(crate) struct Replay {
    pub(crate) index: EntryIndex,
    pub(crate) hard_state: Option<HardState>,
    /// Highest watermark in the valid parts of the segments.
    pub(crate) watermark: u64,
    /// The watermark in the file `DURABLE`; 0 without one.
    stated: u64,
    /// That file is as the last process left it.
    stated_last: bool,
    /// Highest generation that is stated to be the oldest still needed.
    oldest: u64,
    /// Number of the segment in which the log ends, and the offset of its end.
    pub(crate) active: usize,
    pub(crate) tail: usize,
    /// End of the torn tail in the active segment; at or before `tail` if there is none.
    pub(crate) cut_to: usize,
    /// See [`CutInfo`].
    pub(crate) never_acknowledged: bool,
    pub(crate) stepped_over: Option<SteppedOver>,
}

impl Replay {
    /// Reads all segments, oldest first. `point` is what the file `DURABLE` states, `boot` is [`Disk::boot`] now, `held` as in
    /// [`LogConfig::held`]. Errors: `Damaged`, `MissingSegment`, `OtherLog`, `Io`.
    pub(crate) fn run<S: Segment>(
        segments: &VecDeque<SegmentFile<S>>,
        point: Option<DurablePoint>,
        boot: u128,
        held: u64,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Replay, LogError> {
        let mut replay = Replay {
            index: EntryIndex::new(0),
            hard_state: None,
            watermark: 0,
            stated: 0,
            stated_last: false,
            oldest: 0,
            active: 0,
            tail: 0,
            cut_to: 0,
            never_acknowledged: false,
            stepped_over: None,
        };
        if let Some(point) = point
            && point.fits(segments.iter().map(|live| live.stamp()))?
        {
            (replay.stated, replay.oldest) = (point.watermark, point.oldest);
            replay.stated_last = boot != 0 && point.boot == boot;
        }
        let (mut nth, mut from) = (0_usize, DATA_START);
        while let Some(live) = segments.get(nth) {
            let sealed = replay.segment(nth, live, from)?;
            let segments_done = nth.saturating_add(1);
            let bytes_done =
                segments.iter().take(segments_done).fold(0_u64, |sum, live| sum.saturating_add(live.head().bytes));
            let entries = replay.index.next().saturating_sub(replay.index.first());
            progress(Progress { segments_done, segments: segments.len(), bytes_done, entries });
            if sealed {
                (nth, from) = (segments_done, DATA_START);
            } else if let Err(damage) = replay.stop(segments) {
                replay.step_over(segments, damage, held)?;
                (nth, from) = (replay.active, replay.tail);
            } else {
                let front = segments.front().map_or(0, |live| live.stamp().generation);
                let next_max = if held == 0 { 0 } else { held.saturating_add(1) };
                if front > replay.oldest && replay.index.first() > next_max {
                    return Err(LogError::MissingSegment { file: segment_name(front.saturating_sub(1)) });
                }
                if front > replay.oldest && replay.stepped_over.is_none() {
                    let file = segment_name(front.saturating_sub(1));
                    // Counted where it is known what the files before are.
                    replay.stepped_over = Some(SteppedOver { file, offset: 0, places: 0 });
                }
                return Ok(replay);
            }
        }
        // The next segment is there before a seal is written.
        let after = segments.back().map_or(0, |live| live.stamp().generation).saturating_add(1);
        Err(LogError::MissingSegment { file: segment_name(after) })
    }

    /// Takes the records of one segment; `true` if it is sealed. Leaves `active` and `tail` at the stop.
    fn segment<S: Segment>(&mut self, nth: usize, live: &SegmentFile<S>, from: usize) -> Result<bool, LogError> {
        live.warm(0, narrow(live.head().bytes), CANNOT_READ)?;
        let sealed = self.records(nth, live, from)?;
        if sealed {
            live.release_all()?;
        }
        Ok(sealed)
    }

    fn records<S: Segment>(&mut self, nth: usize, live: &SegmentFile<S>, from: usize) -> Result<bool, LogError> {
        let bytes = live.bytes();
        self.active = nth;
        self.tail = from;
        for slot in live.slots().into_iter().flatten() {
            self.watermark = self.watermark.max(slot.watermark);
            self.oldest = self.oldest.max(slot.oldest);
        }
        while let Some((head, payload)) = RecordHead::decode(bytes, self.tail, live.stamp())
            .and_then(|head| head.payload(bytes, self.tail).map(|payload| (head, payload)))
        {
            let first = self.tail == DATA_START;
            let position = live.head().position(self.tail);
            let fits = (head.kind == RecordKind::Start) == first && head.watermark <= position;
            let taken = if fits { self.take(nth, &head, payload) } else { None };
            taken.ok_or_else(|| LogError::Damaged {
                file: live.name().to_owned(),
                offset: wide(self.tail),
                what: "a record that checks contradicts the ones before it".to_owned(),
            })?;
            self.watermark = self.watermark.max(head.watermark);
            self.tail = self.tail.saturating_add(head.record_bytes());
            if head.kind == RecordKind::Seal {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn take(&mut self, nth: usize, head: &RecordHead, payload: &[u8]) -> Option<()> {
        match head.kind {
            RecordKind::Entry | RecordKind::Membership => {
                if head.index > self.index.next() || head.index == u64::MAX {
                    return None;
                }
                let segment = u32::try_from(nth).ok()?;
                let offset = u32::try_from(self.tail).ok()?;
                self.index.put(head.index, EntryPlace { term: head.term, segment, offset });
            }
            RecordKind::HardState => self.hard_state = Some(decode_hard_state(payload)?),
            RecordKind::Start => {
                let start = Start::decode(payload)?;
                if nth == 0 || start.reset {
                    self.index = EntryIndex::new(head.index);
                } else if head.index != self.index.next() {
                    return None;
                }
                self.hard_state = start.hard_state;
                self.oldest = self.oldest.max(start.oldest);
            }
            RecordKind::Seal => {}
        }
        Some(())
    }

    /// Decides what the first record that is not valid is: the end, a torn tail, or damage.
    fn stop<S: Segment>(&mut self, segments: &VecDeque<SegmentFile<S>>) -> Result<(), LogError> {
        let Some(live) = segments.get(self.active) else { return Ok(()) };
        let position = live.head().position(self.tail);
        let damaged = |what: String| LogError::Damaged { file: live.name().to_owned(), offset: wide(self.tail), what };
        if self.active == 0 && self.tail == DATA_START {
            return Err(damaged("the oldest segment has no valid first record".to_owned()));
        }
        if self.watermark > position {
            let what = format!("no valid record here, but the log was durable up to position {}", self.watermark);
            return Err(damaged(what));
        }
        if self.stated > position {
            let what = format!(
                "no valid record here, but the file {DURABLE_NAME} states that the log was durable up to position {}; if the \
                 files were copied while a server wrote them, or are an older copy on purpose, and this server runs alone, \
                 remove that file; otherwise records are lost",
                self.stated
            );
            return Err(damaged(what));
        }
        let mut cut_to = self.tail;
        for (nth, later) in segments.iter().enumerate().skip(self.active) {
            later.warm(0, narrow(later.head().bytes), CANNOT_READ)?;
            let (bytes, stamp) = (later.bytes(), later.stamp());
            let mut from = if nth == self.active { self.tail } else { DATA_START };
            while let Some((at, trace)) = find_trace(bytes, from, stamp) {
                let (what, watermark, end) = match trace {
                    Trace::Record(head) => ("a record", head.watermark, at.saturating_add(head.record_bytes())),
                    Trace::Mark(watermark) => ("a mark", watermark, at),
                };
                if watermark > position || nth != self.active {
                    let what = format!(
                        "no valid record here, but {} has {what} at offset {at} from when the log was durable up to \
                         position {watermark}",
                        later.name()
                    );
                    return Err(damaged(what));
                }
                self.watermark = self.watermark.max(watermark);
                cut_to = cut_to.max(end.min(bytes.len()));
                from = at.saturating_add(8);
            }
            let slots = later.slots().into_iter().flatten();
            if let Some(watermark) = slots.map(|slot| slot.watermark).find(|&watermark| watermark > position) {
                let what = format!("no valid record here, but the log was durable up to position {watermark}");
                return Err(damaged(what));
            }
        }
        self.cut_to = cut_to;
        let (bytes, stamp) = (live.bytes(), live.stamp());
        if RecordHead::decode(bytes, self.tail, stamp).is_none() && RecordHead::is_stamped(bytes, self.tail, stamp) {
            self.cut_to = cut_to.max(self.tail.saturating_add(HEADER_BYTES).min(bytes.len()));
        }
        // An older program stores its watermarks in the log alone.
        self.never_acknowledged = self.stated_last && self.stated >= self.watermark;
        Ok(())
    }

    /// Continues behind damage at the first valid record that shows how many entries the log had before it. No entry
    /// behind `held` may be among them. Hard states before it count. If there is no such record, the damage is the
    /// error.
    fn step_over<S: Segment>(
        &mut self,
        segments: &VecDeque<SegmentFile<S>>,
        damage: LogError,
        held: u64,
    ) -> Result<(), LogError> {
        let LogError::Damaged { file, offset, what } = damage else { return Err(damage) };
        let next_max = if held == 0 { 0 } else { held.saturating_add(1) };
        for (nth, live) in segments.iter().enumerate().skip(self.active) {
            let (bytes, stamp) = (live.bytes(), live.stamp());
            let mut from = if nth == self.active { self.tail.saturating_add(8) } else { DATA_START };
            while let Some((at, trace)) = find_trace(bytes, from, stamp) {
                from = at.saturating_add(8);
                let Trace::Record(head) = trace else { continue };
                let Some(payload) = head.payload(bytes, at) else { continue };
                if head.kind == RecordKind::HardState {
                    self.hard_state = decode_hard_state(payload).or(self.hard_state);
                    continue;
                }
                if head.index > next_max {
                    return Err(LogError::Damaged { file, offset, what });
                }
                self.index = EntryIndex::new(head.index);
                (self.active, self.tail) = (nth, at);
                let first = self.stepped_over.get_or_insert(SteppedOver { file, offset, places: 0 });
                first.places = first.places.saturating_add(1);
                return Ok(());
            }
        }
        Err(LogError::Damaged { file, offset, what })
    }
}
