//! Opening a log: check what is there, take what checks, cut a torn tail, refuse damage. Runs once, on the log thread.
//!
//! The rule: reading stops at the first record that does not check. If a watermark states that the log was durable beyond that
//! place, acknowledged data is damaged: the open is refused and nothing is changed. The watermark may stand in the file
//! `DURABLE`, or anywhere later in a record, a mark or a slot. Otherwise the rest is taken for the torn tail of a group that was
//! never acknowledged: it is cut and zeroed.
//!
//! A killed process leaves `DURABLE` exactly as it was when it last acknowledged something, in pages of its own: then the rule
//! holds for every damage that leaves a copy there or a watermark in the log. A power cut within milliseconds of an
//! acknowledgement may leave older ones. What is cut then may have been acknowledged if the disk is damaged as well, and
//! [`CutInfo`] says so.
//!
//! One exception: a checked image holds all entries up to [`LogConfig::held`], and the first whole record behind the damage
//! shows that no later one was hit. Then the log begins with that record, and [`SteppedOver`] says so. A lost hard state is not
//! noticed: this is for a server whose vote no other server counts.

mod step_over;

use std::collections::VecDeque;
use std::hint::black_box;
use std::iter;

use super::durable_file::{DURABLE_NAME, DurableFile, DurablePoint};
use super::index::{EntryIndex, EntryPlace};
use super::mark::{Trace, find_trace};
use super::record::{HEADER_BYTES, RecordHead, RecordKind, Stamp};
use super::roll::{Spare, name_segment, take_spare};
use super::segment::{
    DATA_START, FORMAT_VERSION, HeadFault, SegmentHead, Slot, Start, is_whole_pages, number_in, read_slots, salt,
    segment_name,
};
use super::{HardState, Live, Log, LogConfig, LogError, write_start};
use crate::disk::{Disk, Segment, TEMPORARY_SUFFIX};
use crate::field::{is_zero, narrow, wide};
use crate::limits::{PAGE_BYTES, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, SEGMENTS_MAX, WARM_BYTES};

use step_over::Unusable;

pub use step_over::SteppedOver;

/// Told after each segment, for the start-up log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub segments_done: usize,
    pub segments: usize,
    pub bytes_done: u64,
    pub entries: u64,
}

/// What was found. The entries themselves are read with [`Log::read`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    pub hard_state: Option<HardState>,
    /// First entry held, or the one to come if none is held.
    pub first_index: u64,
    /// Last entry held; one less than `first_index` if none is.
    pub last_index: u64,
    pub last_term: Option<u64>,
    /// What was cut off the end: as a rule a torn tail that was never acknowledged.
    pub tail_cut: Option<CutInfo>,
    /// Damage to entries that an image holds.
    pub stepped_over: Option<SteppedOver>,
    /// There is a log, and nothing that an earlier process stored of how far it was durable.
    pub durable_point_lost: bool,
    /// Segments that are no part of the log any more, oldest first: of a damaged file, and those before it. To be put aside.
    pub put_aside: Vec<String>,
}

/// Where the end was cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutInfo {
    pub file: String,
    pub offset: u64,
    /// Bytes that were zeroed.
    pub bytes: u64,
    /// The durable point at the end of the last process is known, and what was cut lies behind it. Otherwise power was lost,
    /// or the file `DURABLE` was: as a rule nothing of the cut was acknowledged either, but damage would look the same.
    pub never_acknowledged: bool,
}

impl<D: Disk> Log<D> {
    /// Opens the log in `disk`, or begins one. The result is durable up to its end. Errors leave damaged files as they
    /// are. Memory: the mappings and 16 bytes an entry.
    pub fn open(
        disk: D,
        config: LogConfig,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(Log<D>, Recovered), LogError> {
        check_config(&config)?;
        let Found { generations, mut spares, mut spare_number_next, has_durable_file } = survey(&disk)?;
        let point = DurableFile::read(&disk, has_durable_file)?;
        let durable_point_lost = point.is_none() && !generations.is_empty();
        let (mut segments, mut unusable) = (VecDeque::new(), Unusable::default());
        let newest = generations.last().copied();
        if generations.is_empty() {
            if !config.create_if_missing {
                return Err(LogError::NoLog);
            }
            point.map_or(Ok(false), |point| point.fits(iter::empty()))?;
            segments.push_back(begin(&disk, &config, &mut spares, &mut spare_number_next)?);
        }
        for generation in generations {
            let after = segments.back().map(|live: &Live<D::Segment>| live.head);
            match open_one(&disk, generation, after) {
                Ok(live) => segments.push_back(live),
                Err(error) if config.held > 0 && newest > Some(generation) => {
                    unusable.add(error, generation, &mut segments)?;
                    if after.is_some_and(|before| before.stamp.generation.saturating_add(1) != generation) {
                        // What is missing lies before this one.
                        segments.push_back(open_one(&disk, generation, None)?);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        let replay = Replay::run(&segments, point, disk.boot(), config.held, progress);
        let (replay, put_aside) = unusable.judge(replay)?;
        let durable_file = DurableFile::open(&disk, has_durable_file)?;
        let ahead = segments.split_off(replay.active.saturating_add(1));
        let mut log = Log {
            generation_base: segments.front().map_or(0, |live| live.head.stamp.generation),
            tail: replay.tail,
            synced: replay.tail,
            warm: 0..0,
            index: replay.index,
            hard_state: replay.hard_state,
            disk,
            config,
            segments,
            ahead,
            spares,
            spare_number_next,
            durable: 0,
            covered: 0,
            slot_next: 0,
            durable_file,
            failed: false,
        };
        let tail_cut = log.cut(replay.cut_to, replay.never_acknowledged)?;
        log.drop_misfits_ahead()?;
        log.settle(replay.watermark)?;
        log.release_read()?;
        log.mark()?;
        log.durable_file.sync()?;
        let recovered = Recovered {
            hard_state: log.hard_state,
            first_index: log.index.first(),
            last_index: log.index.last(),
            last_term: log.index.last_term(),
            tail_cut,
            stepped_over: replay.stepped_over,
            durable_point_lost,
            put_aside,
        };
        Ok((log, recovered))
    }

    /// Goes on behind an image that ends with this entry. Another server's may have come just before a crash, and its install not to
    /// an end: where the log ends before it, or holds another entry in its place, all that it holds is void. Durable when it returns.
    ///
    /// # Errors
    /// As [`Log::reset_to`].
    pub fn go_on_behind(&mut self, found: &mut Recovered, (index, term): (u64, u64)) -> Result<(), LogError> {
        let ends_before = found.last_index < index;
        if ends_before || self.term(index).is_some_and(|held| held != term) {
            self.reset_to(index.saturating_add(1))?;
            (found.first_index, found.last_index) = (index.saturating_add(1), index);
        }
        Ok(())
    }

    /// To be called when much of the log has been read, as by a recovery: from here on only its end is needed, and the
    /// memory of the rest goes back. What is read again is mapped again.
    pub fn release_read(&mut self) -> Result<(), LogError> {
        for live in self.segments.iter().chain(&self.ahead) {
            let released = live.file.release(0, narrow(live.head.bytes));
            released.map_err(LogError::io(&live.name, "cannot release the segment's memory"))?;
        }
        let begin = self.tail.saturating_sub(self.tail % WARM_BYTES);
        self.warm = begin..begin;
        Ok(())
    }

    /// Zeroes what lies between the tail and `cut_to` in the active segment, durably, so that no record of the torn
    /// tail can ever follow a new one.
    fn cut(&mut self, cut_to: usize, never_acknowledged: bool) -> Result<Option<CutInfo>, LogError> {
        let from = self.tail;
        if cut_to <= from {
            return Ok(None);
        }
        let active = self.active_mut();
        if let Some(torn) = active.file.bytes_mut().get_mut(from..cut_to) {
            torn.fill(0);
        }
        let file = active.name.clone();
        self.sync_active(from, cut_to)?;
        Ok(Some(CutInfo { file, offset: wide(from), bytes: wide(cut_to.saturating_sub(from)), never_acknowledged }))
    }

    /// Removes empty segments ahead that have another size than configured now, newest first.
    fn drop_misfits_ahead(&mut self) -> Result<(), LogError> {
        let size = wide(self.config.segment_bytes);
        while self.ahead.iter().any(|live| live.head.bytes != size) {
            let Some(live) = self.ahead.pop_back() else { break };
            let done = self.disk.remove(&live.name).and_then(|()| self.disk.sync_dir());
            done.map_err(LogError::io(&live.name, "cannot remove an unused segment"))?;
        }
        Ok(())
    }

    /// Makes what was found durable. Records beyond the highest watermark may never have reached the disk: an earlier
    /// process may have died of a failed sync, after which the kernel holds those pages to be clean. So they are stored
    /// once more, which makes the pages dirty, and then synced.
    fn settle(&mut self, watermark: u64) -> Result<(), LogError> {
        let last = self.segments.len().saturating_sub(1);
        let tail = self.tail;
        for (nth, live) in self.segments.iter_mut().enumerate() {
            let to = if nth == last { tail } else { narrow(live.head.bytes) };
            let from = narrow(watermark.saturating_sub(live.head.base)).max(DATA_START);
            if from >= to {
                continue;
            }
            store_again(live.file.bytes_mut(), from, to);
            let done = live.file.sync(from, to);
            done.map_err(|source| LogError::SyncFailed { file: live.name.clone(), source })?;
        }
        self.durable = self.active().head.position(tail);
        let active = self.active();
        let [zero, one] = read_slots(active.file.bytes(), active.head.stamp);
        // Keep the newer one: the other is written next.
        let age = |slot: Option<Slot>| slot.map(|slot| (slot.watermark, slot.oldest));
        self.slot_next = usize::from(age(zero) > age(one));
        if tail == DATA_START {
            // The crash came between the seal of the last segment and the start of this one.
            let start = Start { hard_state: self.hard_state, reset: false, oldest: self.oldest() };
            let (next_index, durable) = (self.index.next(), self.durable);
            self.tail = write_start(self.active_mut(), start, next_index, durable);
            self.sync()?;
        }
        Ok(())
    }
}

struct Found<D: Disk> {
    generations: Vec<u64>,
    spares: Vec<Spare<D>>,
    spare_number_next: u64,
    has_durable_file: bool,
}

/// Sorts the directory's files; removes what a crash left under construction. Other files are not the log's.
fn survey<D: Disk>(disk: &D) -> Result<Found<D>, LogError> {
    let mut found =
        Found { generations: Vec::new(), spares: Vec::new(), spare_number_next: 0, has_durable_file: false };
    for name in disk.list().map_err(LogError::io("data directory", "cannot list it"))? {
        found.has_durable_file |= name == DURABLE_NAME;
        let ours = name.starts_with("log-") || name.starts_with("spare-");
        if !ours {
            continue;
        }
        if name.ends_with(TEMPORARY_SUFFIX) {
            disk.remove(&name).map_err(LogError::io(&name, "cannot remove an unfinished file"))?;
        } else if let Some(generation) = number_in(&name, "log-") {
            found.generations.push(generation);
        } else if let Some(number) = number_in(&name, "spare-") {
            found.spare_number_next = found.spare_number_next.max(number.saturating_add(1));
            found.spares.push(Spare { name, file: None });
        } else if name.ends_with(".seg") {
            return Err(LogError::StrayFile { file: name });
        }
    }
    found.generations.sort_unstable();
    if found.generations.len() > SEGMENTS_MAX {
        return Err(LogError::TooManySegments { found: found.generations.len(), max: SEGMENTS_MAX });
    }
    Ok(found)
}

fn begin<D: Disk>(
    disk: &D,
    config: &LogConfig,
    spares: &mut Vec<Spare<D>>,
    spare_number_next: &mut u64,
) -> Result<Live<D::Segment>, LogError> {
    let spare = take_spare(disk, spares, spare_number_next, config.segment_bytes)?;
    let stamp = Stamp { generation: 1, salt: salt(config.seed, 1) };
    let head = SegmentHead { stamp, base: 0, bytes: wide(config.segment_bytes) };
    name_segment(disk, spare, head, Some(config.first_index))
}

/// Opens and checks one segment; `after` is the head of the one before it.
fn open_one<D: Disk>(disk: &D, generation: u64, after: Option<SegmentHead>) -> Result<Live<D::Segment>, LogError> {
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
    Ok(Live { name, head, file })
}

fn check_config(config: &LogConfig) -> Result<(), LogError> {
    if !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&config.segment_bytes) || !is_whole_pages(config.segment_bytes)
    {
        return Err(LogError::Config { what: "the segment size must be whole pages between 16 KiB and 1 GiB" });
    }
    Ok(())
}

/// What reading all segments gives.
struct Replay {
    index: EntryIndex,
    hard_state: Option<HardState>,
    /// Highest watermark seen in what checks of the segments.
    watermark: u64,
    /// The watermark in the file `DURABLE`; 0 without one.
    stated: u64,
    /// That file is as the last process left it.
    stated_last: bool,
    /// Highest generation said to be the oldest still needed.
    oldest: u64,
    /// Which segment the log goes on in, and where.
    active: usize,
    tail: usize,
    /// End of the torn tail in the active segment; at or before `tail` if there is none.
    cut_to: usize,
    /// See [`CutInfo`].
    never_acknowledged: bool,
    stepped_over: Option<SteppedOver>,
}

impl Replay {
    fn run<S: Segment>(
        segments: &VecDeque<Live<S>>,
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
            && point.fits(segments.iter().map(|live| live.head.stamp))?
        {
            (replay.stated, replay.oldest) = (point.watermark, point.oldest);
            replay.stated_last = boot != 0 && point.boot == boot;
        }
        let (mut nth, mut from) = (0_usize, DATA_START);
        while let Some(live) = segments.get(nth) {
            let sealed = replay.segment(nth, live, from)?;
            let segments_done = nth.saturating_add(1);
            let bytes_done =
                segments.iter().take(segments_done).fold(0_u64, |sum, live| sum.saturating_add(live.head.bytes));
            let entries = replay.index.next().saturating_sub(replay.index.first());
            progress(Progress { segments_done, segments: segments.len(), bytes_done, entries });
            if sealed {
                (nth, from) = (segments_done, DATA_START);
            } else if let Err(damage) = replay.stop(segments) {
                replay.step_over(segments, damage, held)?;
                (nth, from) = (replay.active, replay.tail);
            } else {
                let front = segments.front().map_or(0, |live| live.head.stamp.generation);
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
        let after = segments.back().map_or(0, |live| live.head.stamp.generation).saturating_add(1);
        Err(LogError::MissingSegment { file: segment_name(after) })
    }

    /// Takes the records of one segment; `true` if it is sealed. Leaves `active` and `tail` at the stop.
    fn segment<S: Segment>(&mut self, nth: usize, live: &Live<S>, from: usize) -> Result<bool, LogError> {
        let all = (0, narrow(live.head.bytes));
        live.file.warm(all.0, all.1).map_err(LogError::io(&live.name, "cannot read the segment"))?;
        let sealed = self.records(nth, live, from)?;
        if sealed {
            let released = live.file.release(all.0, all.1);
            released.map_err(LogError::io(&live.name, "cannot release the segment's memory"))?;
        }
        Ok(sealed)
    }

    fn records<S: Segment>(&mut self, nth: usize, live: &Live<S>, from: usize) -> Result<bool, LogError> {
        let bytes = live.file.bytes();
        self.active = nth;
        self.tail = from;
        for slot in read_slots(bytes, live.head.stamp).into_iter().flatten() {
            self.watermark = self.watermark.max(slot.watermark);
            self.oldest = self.oldest.max(slot.oldest);
        }
        while let Some((head, payload)) = RecordHead::decode(bytes, self.tail, live.head.stamp)
            .and_then(|head| head.payload(bytes, self.tail).map(|payload| (head, payload)))
        {
            let first = self.tail == DATA_START;
            let position = live.head.position(self.tail);
            let fits = (head.kind == RecordKind::Start) == first && head.watermark <= position;
            let taken = if fits { self.take(nth, &head, payload) } else { None };
            taken.ok_or_else(|| LogError::Damaged {
                file: live.name.clone(),
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
            RecordKind::HardState => self.hard_state = Some(HardState::decode(payload)?),
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

    /// Decides what the first record that does not check is: the end, a torn tail, or damage.
    fn stop<S: Segment>(&mut self, segments: &VecDeque<Live<S>>) -> Result<(), LogError> {
        let Some(live) = segments.get(self.active) else { return Ok(()) };
        let position = live.head.position(self.tail);
        let damaged = |what: String| LogError::Damaged { file: live.name.clone(), offset: wide(self.tail), what };
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
            let warmed = later.file.warm(0, narrow(later.head.bytes));
            warmed.map_err(LogError::io(&later.name, "cannot read the segment"))?;
            let (bytes, stamp) = (later.file.bytes(), later.head.stamp);
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
                        later.name
                    );
                    return Err(damaged(what));
                }
                self.watermark = self.watermark.max(watermark);
                cut_to = cut_to.max(end.min(bytes.len()));
                from = at.saturating_add(8);
            }
            let slots = read_slots(bytes, stamp).into_iter().flatten();
            if let Some(watermark) = slots.map(|slot| slot.watermark).find(|&watermark| watermark > position) {
                let what = format!("no valid record here, but the log was durable up to position {watermark}");
                return Err(damaged(what));
            }
        }
        self.cut_to = cut_to;
        let (bytes, stamp) = (live.file.bytes(), live.head.stamp);
        if RecordHead::decode(bytes, self.tail, stamp).is_none() && RecordHead::is_stamped(bytes, self.tail, stamp) {
            self.cut_to = cut_to.max(self.tail.saturating_add(HEADER_BYTES).min(bytes.len()));
        }
        // An older program stores its watermarks in the log alone.
        self.never_acknowledged = self.stated_last && self.stated >= self.watermark;
        Ok(())
    }
}

/// Stores a range over itself, page by page, so that the kernel takes its pages for dirty.
fn store_again(bytes: &mut [u8], from: usize, to: usize) {
    let Some(range) = bytes.get_mut(from..to) else { return };
    for piece in range.chunks_mut(PAGE_BYTES) {
        if is_zero(piece) {
            continue;
        }
        let copy = black_box(piece.to_vec());
        black_box(&mut *piece).copy_from_slice(&copy);
    }
}
