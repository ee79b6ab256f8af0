//! The log: records appended to mapped segments, made durable by a sync, found again by recovery.
//!
//! One plain thread, the log thread, owns a [`Log`] and calls it; a core never does, because a store into the mapping may
//! take a page fault or wait for write-back. Nothing here assumes that thread, though: `append` only stores into memory
//! (but for a roll to the next segment), `sync` alone waits for the disk.
//!
//! Positions are bytes since the log began and only grow. `durable` is the position up to which everything was synced;
//! each record carries it as its watermark, and so proves that all before it had been acknowledged at most up to there.
//! After each sync it is stored in the file `DURABLE` and in a mark behind the last record as well, before anything is
//! acknowledged. The log knows nothing of what an entry says.

pub mod dump;
mod durable_file;
mod error;
mod index;
pub(crate) mod mark;
pub(crate) mod record;
mod recovery;
mod roll;
pub(crate) mod segment;
mod window;

use std::collections::VecDeque;
use std::ops::Range;

pub(crate) use durable_file::DURABLE_NAME;
pub use error::ADVICE;
pub use error::LogError;
pub use record::RecordKind;
pub use recovery::{CutInfo, Progress, Recovered, SteppedOver};
pub use roll::{Spare, SpareJob};

use crate::disk::{Disk, Segment};
use crate::field::{Put, Take, align_up, narrow, wide};
use crate::limits;
use durable_file::DurableFile;
use index::{EntryIndex, EntryPlace};
use record::{HEADER_BYTES, RecordHead, record_bytes};
use segment::{DATA_START, SegmentHead, Slot, Start};

/// How a log is opened.
#[derive(Debug, Clone)]
pub struct LogConfig {
    /// Size of new segments: whole pages, within the limits of this crate.
    pub segment_bytes: usize,
    /// Spare segments kept for recycling.
    pub spares_max: usize,
    /// Begin a new log if there is none. Say no when the directory holds images: then a missing log is a loss.
    pub create_if_missing: bool,
    /// Index of the first entry of a new log; Raft begins at 1.
    pub first_index: u64,
    /// A checked image holds every entry up to this index: damage that can have hit no later one is stepped over. 0: none is.
    pub held: u64,
    /// Goes into the salt of new segments. Random on a server, so that nobody can forge records; fixed in a simulation.
    pub seed: u64,
}

impl Default for LogConfig {
    fn default() -> LogConfig {
        LogConfig {
            segment_bytes: limits::SEGMENT_BYTES_DEFAULT,
            spares_max: limits::SPARES_MAX_DEFAULT,
            create_if_missing: true,
            first_index: 1,
            held: 0,
            seed: 0,
        }
    }
}

/// What Raft must never forget besides its entries. Opaque numbers here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HardState {
    pub term: u64,
    pub vote: u64,
    pub commit: u64,
}

pub(crate) const HARD_STATE_BYTES: usize = 24;

impl HardState {
    pub(crate) fn encode(self) -> [u8; HARD_STATE_BYTES] {
        let mut bytes = [0; HARD_STATE_BYTES];
        let mut put = Put(&mut bytes);
        put.u64(self.term);
        put.u64(self.vote);
        put.u64(self.commit);
        bytes
    }

    pub(crate) fn decode(payload: &[u8]) -> Option<HardState> {
        let mut take = Take(payload);
        Some(HardState { term: take.u64()?, vote: take.u64()?, commit: take.u64()? })
    }
}

/// What an entry's payload is to Raft; a number to this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EntryKind {
    #[default]
    Normal,
    Membership,
}

impl EntryKind {
    fn record(self) -> RecordKind {
        match self {
            EntryKind::Normal => RecordKind::Entry,
            EntryKind::Membership => RecordKind::Membership,
        }
    }

    /// `None` for records that are no entries.
    fn of(kind: RecordKind) -> Option<EntryKind> {
        [EntryKind::Normal, EntryKind::Membership].into_iter().find(|entry| entry.record() == kind)
    }
}

/// One entry: to append, or read back (then the payload lies in the mapping).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    pub term: u64,
    pub index: u64,
    pub kind: EntryKind,
    /// First zxid of the batch in the payload; stored, not understood.
    pub first_zxid: u64,
    pub payload: &'a [u8],
}

/// One thing to append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record<'a> {
    /// An index at or before the last one supersedes that entry and all after it, as a Raft follower needs.
    Entry(Entry<'a>),
    HardState(HardState),
}

/// What is safe on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Durable {
    /// Log position, in bytes, up to which everything is durable.
    pub position: u64,
    /// Last entry of the log; durable with all before it.
    pub last_index: u64,
}

/// A segment in use.
pub(crate) struct Live<S> {
    pub(crate) name: String,
    pub(crate) head: SegmentHead,
    pub(crate) file: S,
}

/// The log of one server. Not cloneable, movable between threads.
pub struct Log<D: Disk> {
    disk: D,
    config: LogConfig,
    /// Oldest to active; never empty.
    segments: VecDeque<Live<D::Segment>>,
    /// Prepared under their final names, empty, in order.
    ahead: VecDeque<Live<D::Segment>>,
    spares: Vec<Spare<D>>,
    spare_number_next: u64,
    /// Generation that counts as segment 0 in the index.
    generation_base: u64,
    index: EntryIndex,
    hard_state: Option<HardState>,
    /// Where the next record goes in the active segment.
    tail: usize,
    /// The active segment is synced up to here.
    synced: usize,
    /// What of the active segment is in memory; before it only the fixed pages may be.
    warm: Range<usize>,
    durable: u64,
    /// Highest durable position that a watermark slot proves.
    covered: u64,
    slot_next: usize,
    durable_file: DurableFile<D::Segment>,
    failed: bool,
}

impl<D: Disk> Log<D> {
    /// Appends all records or, on an error before the first store, none: `OutOfOrder`, `TooLarge` and `NoSpace` leave the
    /// log as it was. Nothing is durable before [`Log::sync`].
    pub fn append(&mut self, records: &[Record<'_>]) -> Result<(), LogError> {
        self.check_alive()?;
        let rolls = self.plan(records)?;
        while self.ahead.len() < rolls {
            self.make_ahead()?;
        }
        for record in records {
            match record {
                Record::Entry(entry) => {
                    let (offset, segment) = self.store(entry.kind.record(), entry)?;
                    self.index.put(entry.index, EntryPlace { term: entry.term, segment, offset });
                }
                Record::HardState(state) => {
                    let payload = state.encode();
                    let (term, index, kind) = (state.term, state.commit, EntryKind::Normal);
                    let entry = Entry { term, index, kind, first_zxid: 0, payload: &payload };
                    self.store(RecordKind::HardState, &entry)?;
                    self.hard_state = Some(*state);
                }
            }
        }
        Ok(())
    }

    /// Makes everything appended durable. An error poisons the log: stop the process without acknowledging anything.
    pub fn sync(&mut self) -> Result<Durable, LogError> {
        self.check_alive()?;
        if self.tail > self.synced {
            self.sync_tail()?;
            self.mark()?;
        }
        Ok(self.durable())
    }

    /// The sync alone, for behind a seal, where no mark has room and after which nothing is acknowledged.
    fn sync_tail(&mut self) -> Result<(), LogError> {
        let (from, to) = (self.synced, self.tail);
        self.sync_active(from, to)?;
        self.synced = to;
        self.durable = self.active().head.position(to);
        self.release_behind()
    }

    /// Stores the durable point where a killed process leaves it: in the file `DURABLE`, whose pages hold no record, and
    /// behind the last record, in a page that the next record needs anyway. Damage to acknowledged records is told from a
    /// torn tail by either. Nothing waits for a disk.
    fn mark(&mut self) -> Result<(), LogError> {
        let (tail, durable) = (self.tail, self.durable);
        self.store_durable(self.oldest());
        self.warm_up_to(tail.saturating_add(mark::MARK_BYTES))?;
        let active = self.active_mut();
        mark::write_mark(active.file.bytes_mut(), tail, active.head.stamp, durable);
        Ok(())
    }

    /// Stores the durable point in the file `DURABLE`, so that it never lags behind what a watermark states.
    fn store_durable(&mut self, oldest: u64) {
        let (stamp, durable) = (self.active().head.stamp, self.durable);
        self.durable_file.store(stamp, durable, oldest);
    }

    /// Generation of the oldest segment in use.
    fn oldest(&self) -> u64 {
        self.segments.front().map_or(0, |live| live.head.stamp.generation)
    }

    /// To be called when nothing has been appended for some milliseconds: writes down, away from the records, how far the
    /// log is durable, so that damage to the last acknowledged records is told from a torn tail also after a power cut, or
    /// if it took their page and the mark with them. `false` if it was written already. An error poisons the log.
    pub fn watermark_when_idle(&mut self) -> Result<bool, LogError> {
        self.check_alive()?;
        if self.covered >= self.durable {
            return Ok(false);
        }
        self.write_slot(self.oldest())?;
        Ok(true)
    }

    /// Shows the entries from `from` on, at least one (if there is one) and then until their payloads reach `max_bytes`.
    /// Answers the index after the last one shown. Every checksum is checked again. Errors: `NotHeld`, `Damaged`.
    pub fn read(&self, from: u64, max_bytes: usize, show: &mut dyn FnMut(Entry<'_>)) -> Result<u64, LogError> {
        self.check_alive()?;
        let (first, next) = (self.index.first(), self.index.next());
        if from < first || from > next {
            return Err(LogError::NotHeld { index: from, first, next });
        }
        let (mut index, mut shown_bytes) = (from, 0_usize);
        while let Some(place) = self.index.place(index) {
            let live = self.segment_of(place);
            let entry = entry_at(live, index, place).ok_or_else(|| LogError::Damaged {
                file: live.name.clone(),
                offset: u64::from(place.offset),
                what: format!("entry {index} does not match its checksum any more"),
            })?;
            shown_bytes = shown_bytes.saturating_add(entry.payload.len());
            if index != from && shown_bytes > max_bytes {
                break;
            }
            show(entry);
            index = index.saturating_add(1);
        }
        Ok(index)
    }

    /// The last entry, as (index, term), to leave out so that what is read behind it includes `bytes` of records up to `at`, an
    /// entry that is applied, or as many as are held. Where `at` is not held with this term, what is held before it may never
    /// have been committed: then it is `at` itself.
    pub fn reach_back(&self, at: (u64, u64), bytes: u64) -> (u64, u64) {
        let (mut cut, mut left) = (at, bytes);
        while let Some(place) = self.index.place(cut.0).filter(|place| place.term == cut.1)
            && let Some(entry) = entry_at(self.segment_of(place), cut.0, place)
            && let Some(rest) = left.checked_sub(wide(record_bytes(entry.payload.len())))
            && let Some(before) = cut.0.checked_sub(1)
            && let Some(term) = self.term(before)
        {
            (cut, left) = ((before, term), rest);
        }
        cut
    }

    /// Term of a held entry.
    pub fn term(&self, index: u64) -> Option<u64> {
        self.index.place(index).map(|place| place.term)
    }

    /// Index of the first held entry, or of the next one if none is held.
    pub fn first_index(&self) -> u64 {
        self.index.first()
    }

    /// Index of the last entry; one less than the first if none is held.
    pub fn last_index(&self) -> u64 {
        self.index.last()
    }

    pub fn hard_state(&self) -> Option<HardState> {
        self.hard_state
    }

    /// Bytes of all segments in use, for deciding when to trim.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().fold(0, |sum, live| sum.saturating_add(live.head.bytes))
    }

    pub fn durable(&self) -> Durable {
        Durable { position: self.durable, last_index: self.index.last() }
    }

    /// Largest payload one record may have with this configuration.
    pub fn payload_bytes_max(&self) -> usize {
        let room = SegmentHead::record_bytes_max(self.config.segment_bytes);
        room.saturating_sub(HEADER_BYTES).min(limits::RECORD_PAYLOAD_BYTES_MAX)
    }

    /// Checks a batch and answers how many times it will roll to a new segment.
    fn plan(&self, records: &[Record<'_>]) -> Result<usize, LogError> {
        let (first, mut next) = (self.index.first(), self.index.next());
        let max = self.payload_bytes_max();
        let (mut tail, mut end, mut rolls) = (self.tail, self.active().head.records_end(), 0_usize);
        for record in records {
            let bytes = match record {
                Record::HardState(_) => HARD_STATE_BYTES,
                Record::Entry(entry) => {
                    if entry.index < first || entry.index > next || entry.index == u64::MAX {
                        return Err(LogError::OutOfOrder { index: entry.index, first, next });
                    }
                    next = entry.index.saturating_add(1);
                    entry.payload.len()
                }
            };
            if bytes > max {
                return Err(LogError::TooLarge { bytes, max });
            }
            if tail.saturating_add(record_bytes(bytes)) > end {
                // Recovery left no segment of another size ahead.
                end = self.config.segment_bytes.saturating_sub(HEADER_BYTES);
                rolls = rolls.saturating_add(1);
                tail = DATA_START.saturating_add(segment::START_RECORD_BYTES);
            }
            tail = tail.saturating_add(record_bytes(bytes));
        }
        Ok(rolls)
    }

    /// Stores one record at the tail, rolling first if it does not fit. Answers its place.
    fn store(&mut self, kind: RecordKind, entry: &Entry<'_>) -> Result<(u32, u32), LogError> {
        if self.tail.saturating_add(record_bytes(entry.payload.len())) > self.active().head.records_end() {
            self.roll(None)?;
        }
        let offset = self.tail;
        let durable = self.durable;
        self.warm_up_to(offset.saturating_add(record_bytes(entry.payload.len())))?;
        let active = self.active_mut();
        let stored = write_record(active, offset, kind, entry, durable);
        self.tail = offset.saturating_add(stored);
        let segment = self.active().head.stamp.generation.saturating_sub(self.generation_base);
        let offset = u32::try_from(offset).expect("segments are at most 1 GiB");
        Ok((offset, u32::try_from(segment).expect("a process does not see 2^32 segments")))
    }

    /// Sees to it that the next stores up to `to` in the active segment wait for no disk.
    fn warm_up_to(&mut self, to: usize) -> Result<(), LogError> {
        let active = self.active();
        let end = narrow(active.head.bytes);
        if to <= self.warm.end || self.warm.end >= end {
            return Ok(());
        }
        let (from, to) = (self.warm.end, align_up(to, limits::WARM_BYTES).min(end));
        active.file.warm(from, to).map_err(LogError::io(&active.name, "cannot bring the segment into memory"))?;
        self.warm.end = to;
        Ok(())
    }

    /// What is synced is not looked at again, but by a recovery or a server that lags.
    fn release_behind(&mut self) -> Result<(), LogError> {
        let done = self.synced.saturating_sub(self.synced % limits::WARM_BYTES);
        if done > self.warm.start {
            let active = self.active();
            let released = active.file.release(self.warm.start, done);
            released.map_err(LogError::io(&active.name, "cannot release the segment's memory"))?;
            self.warm.start = done;
        }
        Ok(())
    }

    fn segment_of(&self, place: EntryPlace) -> &Live<D::Segment> {
        let oldest = self.segments.front().expect("a log always has an active segment").head.stamp.generation;
        let nth = self.generation_base.saturating_add(u64::from(place.segment)).saturating_sub(oldest);
        self.segments.get(narrow(nth)).expect("entries of dropped segments leave the index first")
    }

    fn active(&self) -> &Live<D::Segment> {
        self.segments.back().expect("a log always has an active segment")
    }

    fn active_mut(&mut self) -> &mut Live<D::Segment> {
        self.segments.back_mut().expect("a log always has an active segment")
    }

    fn sync_active(&mut self, from: usize, to: usize) -> Result<(), LogError> {
        let active = self.active_mut();
        let done = active.file.sync(from, to);
        done.map_err(|source| {
            let file = self.active().name.clone();
            self.failed = true;
            LogError::SyncFailed { file, source }
        })
    }

    /// Writes down how far the log is durable and which segment is the oldest still needed.
    fn write_slot(&mut self, oldest: u64) -> Result<(), LogError> {
        let (watermark, slot) = (self.durable, self.slot_next);
        self.store_durable(oldest);
        let active = self.active_mut();
        segment::write_slot(active.file.bytes_mut(), active.head.stamp, slot, Slot { watermark, oldest });
        self.sync_active(limits::PAGE_BYTES, DATA_START)?;
        self.covered = watermark;
        self.slot_next = slot ^ 1;
        Ok(())
    }

    fn check_alive(&self) -> Result<(), LogError> {
        if self.failed { Err(LogError::Poisoned) } else { Ok(()) }
    }
}

/// Stores a record into a segment; answers the bytes it took.
pub(crate) fn write_record<S: Segment>(
    live: &mut Live<S>,
    offset: usize,
    kind: RecordKind,
    entry: &Entry<'_>,
    watermark: u64,
) -> usize {
    let head = RecordHead {
        kind,
        term: entry.term,
        index: entry.index,
        first_zxid: entry.first_zxid,
        watermark,
        payload_bytes: u32::try_from(entry.payload.len()).expect("payloads were checked against their limit"),
        payload_crc: crc32c::crc32c(entry.payload),
    };
    let room = live.file.bytes_mut().get_mut(offset..).expect("the caller checked that the record fits");
    let mut put = Put(room);
    put.bytes(&head.encode(live.head.stamp, offset));
    put.bytes(entry.payload);
    let stored = head.record_bytes();
    let padding = stored.saturating_sub(HEADER_BYTES).saturating_sub(entry.payload.len());
    put.bytes([0; 8].get(..padding).expect("padding is below 8 bytes"));
    stored
}

/// Stores the start record every segment begins with; answers where the next record goes.
pub(crate) fn write_start<S: Segment>(live: &mut Live<S>, start: Start, next_index: u64, watermark: u64) -> usize {
    let term = start.hard_state.unwrap_or_default().term;
    let payload = start.encode();
    let entry = Entry { term, index: next_index, kind: EntryKind::Normal, first_zxid: 0, payload: &payload };
    DATA_START.saturating_add(write_record(live, DATA_START, RecordKind::Start, &entry, watermark))
}

/// The entry at a place, if it checks and is the one wanted.
fn entry_at<S: Segment>(live: &Live<S>, index: u64, place: EntryPlace) -> Option<Entry<'_>> {
    let offset = place.offset as usize;
    let head = RecordHead::decode(live.file.bytes(), offset, live.head.stamp)?;
    let payload = head.payload(live.file.bytes(), offset)?;
    let kind = EntryKind::of(head.kind)?;
    let wanted = head.index == index && head.term == place.term;
    wanted.then_some(Entry { term: head.term, index, kind, first_zxid: head.first_zxid, payload })
}
