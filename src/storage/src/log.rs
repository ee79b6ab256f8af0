//! The log: records appended to mapped segments, made durable by a sync, found again by recovery.
//!
//! One plain thread, the log thread, owns a [`Log`] and calls it. A core never does, because a store into the mapping
//! may take a page fault or wait for write-back. Nothing here assumes that thread, though: `append` only stores into
//! memory (but for a roll to the next segment), `sync` alone waits for the disk.
//!
//! Positions are bytes since the log began and only grow. The durable point is the position up to which everything was
//! synced. Each record carries it as its watermark, and so proves that all before it had been acknowledged at most up
//! to there. After each sync the durable point is also stored in the file `DURABLE` and in a mark behind the last
//! record. Both stores precede every acknowledgement. The log does not interpret the payload of an entry.
//!
//! [`Log`] holds an index of the entries and a writer. Each part below it owns its state, and uses only the parts that come
//! after it in this list:
//!
//! | file | its data, or its work |
//! |---|---|
//! | `recovery` | opens a log: cuts the torn tail, makes the rest durable |
//! | `replay`, `unusable` | read all records once, and find the end of the log and the damage |
//! | `survey` | lists the log's files, opens and checks one segment |
//! | `writer` | the end of the log: the place of the next record, the sync, the roll to the next segment |
//! | `watermarks`, `durable_file` | the durable point, and where it is stored |
//! | `segments` | the segment files in order, those prepared ahead, and whether the disk has failed |
//! | `segment_file` | one segment file: records, marks and slots in it |
//! | `spares` | files to recycle |
//! | `index` | the place of each entry, in memory |
//! | `segment`, `mark`, `record` | layouts: header and slots of a segment, the mark, the record |
//!
//! `dump` and `window` read a log of any state without opening it.

mod config;
pub mod dump;
mod durable_file;
mod entry;
mod error;
mod index;
mod mark;
mod record;
mod recovered;
mod recovery;
mod replay;
mod segment;
mod segment_file;
mod segments;
mod spares;
mod survey;
mod unusable;
mod watermarks;
mod window;
mod writer;

pub use config::LogConfig;
pub use durable_file::DURABLE_NAME;
pub use entry::Durable;
pub use error::{ADVICE, LogError};
pub(crate) use error::{SPACE, shortage};
pub use record::RecordKind;
pub use recovered::{CutInfo, Progress, Recovered, SteppedOver};
pub use spares::{Spare, SpareJob};

use std::ops::ControlFlow;

use crate::disk::Disk;
use crate::field::wide;
use crate::limits;
use bytes::Bytes;
use corral_types::{Entry, EntryKind, HardState, Record, StoredEntry};
use entry::{HARD_STATE_BYTES, encode_hard_state, record_kind};
use index::{EntryIndex, EntryPlace};
use record::{HEADER_BYTES, record_bytes};
use recovery::Opened;
use segment::{DATA_START, START_RECORD_BYTES, SegmentHead};
use writer::Writer;

/// The log of one server.
///
/// It is not cloneable. It may move between threads, but one thread at a time calls it. After a failed sync every call
/// fails with [`LogError::Poisoned`].
///
/// # Examples
///
/// Append an entry, sync it, and find it again after a restart:
///
/// ```
/// use corral_storage::{Log, LogConfig, SimDisk};
/// use corral_types::{EntryKind, Index, Record, StoredEntry, Term};
///
/// # fn main() -> Result<(), corral_storage::LogError> {
/// // A directory in memory. A server has a `MmapDisk`.
/// let disk = SimDisk::new();
/// let (mut log, found) = Log::open(disk.clone(), LogConfig::default(), &mut |_progress| {})?;
/// assert_eq!(found.last_index, 0, "the log is new");
///
/// let (term, index, kind) = (Term(1), Index(1), EntryKind::Normal);
/// let entry = StoredEntry { term, index, kind, first_zxid: 1, payload: b"a batch" };
/// log.append(&[Record::Entry(entry)])?;
/// // Only what `sync` has returned for may be acknowledged.
/// assert_eq!(log.sync()?.last_index, 1);
/// drop(log);
///
/// disk.crash(42);
/// let (log, found) = Log::open(disk, LogConfig::default(), &mut |_progress| {})?;
/// assert_eq!(found.last_index, 1);
/// let mut payloads = Vec::new();
/// log.read(1, usize::MAX, &mut |entry| payloads.push(entry.payload.to_vec()))?;
/// assert_eq!(payloads, [b"a batch"]);
/// # Ok(())
/// # }
/// ```
pub struct Log<D: Disk> {
    config: LogConfig,
    writer: Writer<D>,
    /// Where each entry lies.
    index: EntryIndex,
    /// The last one stored.
    hard_state: Option<HardState>,
}

impl<D: Disk> Log<D> {
    /// Opens the log in `disk`, or begins one.
    ///
    /// `progress` is called after each segment that was read. The log is durable up to its end when this returns. It reads
    /// every segment, and then holds 16 bytes of memory an entry besides the mappings.
    ///
    /// # Errors
    /// Damage to acknowledged data: [`LogError::Damaged`], [`LogError::MissingSegment`], [`LogError::OtherLog`] and
    /// [`LogError::NotASegment`]. A directory that this program does not read: [`LogError::WrongVersion`],
    /// [`LogError::StrayFile`] and [`LogError::TooManySegments`]. A missing log ([`LogError::NoLog`]), a wrong
    /// configuration, and errors of the disk. Damaged files are left as they are.
    pub fn open(
        disk: D,
        config: LogConfig,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(Log<D>, Recovered), LogError> {
        let Opened { writer, index, hard_state, recovered } = recovery::open(disk, &config, progress)?;
        Ok((Log { config, writer, index, hard_state }, recovered))
    }

    /// Discards what the log holds if it does not continue the snapshot that ends with entry `index` of `term`.
    ///
    /// A snapshot of another server may have been stored just before a crash that came before its installation. If the log
    /// ends before that entry, or holds an entry of another term in its place, nothing in the log follows from the
    /// snapshot. Then the log is reset as by [`Log::reset_to`], and `found` is corrected. Durable when it returns.
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

    /// Appends all records, or none of them.
    ///
    /// It stores into memory only, but for a roll to the next segment. A roll waits for one sync, or for two and the
    /// making of a file if no segment is prepared ahead. Nothing is durable before [`Log::sync`].
    ///
    /// # Errors
    /// [`LogError::OutOfOrder`], [`LogError::TooLarge`] and [`LogError::NoSpace`] come before the first store and leave the
    /// log as it was. After [`LogError::SyncFailed`] the log is poisoned.
    pub fn append(&mut self, records: &[Record<'_>]) -> Result<(), LogError> {
        self.check_alive()?;
        let rolls = self.plan(records)?;
        while self.writer.segments().ahead_count() < rolls {
            self.writer.segments_mut().make_ahead()?;
        }
        for record in records {
            match record {
                Record::Entry(entry) => {
                    let (offset, segment) = self.store(record_kind(entry.kind), entry)?;
                    self.index.put(entry.index.0, EntryPlace { term: entry.term.0, segment, offset });
                }
                Record::HardState(state) => {
                    let payload = encode_hard_state(*state);
                    let (term, index, kind) = (state.term, state.commit, EntryKind::Normal);
                    let entry = StoredEntry { term, index, kind, first_zxid: 0, payload: &payload };
                    self.store(RecordKind::HardState, &entry)?;
                    self.hard_state = Some(*state);
                }
            }
        }
        Ok(())
    }

    /// Makes everything appended durable, and returns how far the log is durable now.
    ///
    /// It waits for the disk, unless nothing was appended since the last call.
    ///
    /// # Errors
    /// [`LogError::SyncFailed`] poisons the log: stop the process without acknowledging anything.
    pub fn sync(&mut self) -> Result<Durable, LogError> {
        self.check_alive()?;
        self.writer.sync()?;
        Ok(self.durable())
    }

    /// Stores the durable point away from the records. To be called when nothing was appended for some milliseconds.
    ///
    /// It tells damage to the last acknowledged records from a torn tail also after a power cut. The same holds if the
    /// damage took their page and the mark with it. Returns `false` if it was stored already. It waits for the disk.
    ///
    /// # Errors
    /// [`LogError::SyncFailed`] poisons the log.
    pub fn watermark_when_idle(&mut self) -> Result<bool, LogError> {
        self.check_alive()?;
        if self.writer.is_in_slot() {
            return Ok(false);
        }
        let oldest = self.writer.segments().oldest();
        self.writer.write_slot(oldest)?;
        Ok(true)
    }

    /// Shows the entries from index `from` on: at least one, if there is one, and then until their payloads reach
    /// `max_bytes`. Returns the index after the last one shown.
    ///
    /// Every checksum is compared again. It may wait for the disk where the segment is not in memory.
    ///
    /// # Errors
    /// [`LogError::NotHeld`] if the log does not hold entry `from`, [`LogError::Damaged`] if an entry does not match its
    /// checksum. Entries before it were shown.
    pub fn read(&self, from: u64, max_bytes: usize, show: &mut dyn FnMut(StoredEntry<'_>)) -> Result<u64, LogError> {
        self.check_alive()?;
        let (first, next) = (self.index.first(), self.index.next());
        if from < first || from > next {
            return Err(LogError::NotHeld { index: from, first, next });
        }
        let (mut index, mut shown_bytes) = (from, 0_usize);
        while let Some(place) = self.index.place(index) {
            let segment = self.writer.segments().of_place(place);
            let entry = segment.entry_at(index, place).ok_or_else(|| LogError::Damaged {
                file: segment.name().to_owned(),
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

    /// Calls `visit` with each entry from index `from` to `upto`, both included, until it breaks. Entries are read some
    /// MiB at a time. Returns the break, if there was one.
    ///
    /// # Errors
    /// As [`Log::read`].
    pub fn visit<B>(
        &self,
        (from, upto): (u64, u64),
        mut visit: impl FnMut(StoredEntry<'_>) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>, LogError> {
        let (mut next, mut last) = (from, ControlFlow::Continue(()));
        while last.is_continue() && next <= upto {
            next = self.read(next, limits::VISIT_BYTES, &mut |entry| {
                if last.is_continue() && entry.index.0 <= upto {
                    last = visit(entry);
                }
            })?;
        }
        Ok(last)
    }

    /// Reads a page of entries from index `from` to `upto`, both included: at least one. None if the log does not hold the
    /// first one, or it is damaged.
    #[must_use]
    pub fn read_page(&self, (from, upto): (u64, u64)) -> Vec<Entry> {
        let mut entries = Vec::new();
        // Entries before a damaged one are of use. The scrubber reports damage.
        let _ = self.read(from, limits::READ_PAGE_BYTES, &mut |entry| {
            let StoredEntry { term, index, kind, payload, .. } = entry;
            if index.0 <= upto {
                entries.push(Entry { term, index, kind, payload: Bytes::copy_from_slice(payload) });
            }
        });
        entries
    }

    /// Index and term of the last entry to leave out, so that the entries behind it up to `at` include `bytes` of records.
    ///
    /// `at` is index and term of an applied entry. If fewer bytes are held, all that are held are included. If the log does
    /// not hold `at` with this term, what it holds before it may never have been committed: then it returns `at` itself. It
    /// reads the entries that it goes back over.
    #[must_use]
    pub fn reach_back(&self, at: (u64, u64), bytes: u64) -> (u64, u64) {
        let (mut cut, mut left) = (at, bytes);
        while let Some(place) = self.index.place(cut.0).filter(|place| place.term == cut.1)
            && let Some(entry) = self.writer.segments().of_place(place).entry_at(cut.0, place)
            && let Some(rest) = left.checked_sub(wide(record_bytes(entry.payload.len())))
            && let Some(before) = cut.0.checked_sub(1)
            && let Some(term) = self.term(before)
        {
            (cut, left) = ((before, term), rest);
        }
        cut
    }

    /// Term of the entry `index`; `None` if the log does not hold it.
    #[must_use]
    pub fn term(&self, index: u64) -> Option<u64> {
        self.index.place(index).map(|place| place.term)
    }

    /// Index of the first held entry, or of the next one if none is held.
    #[must_use]
    pub fn first_index(&self) -> u64 {
        self.index.first()
    }

    /// Index of the last entry; one less than the first if none is held.
    #[must_use]
    pub fn last_index(&self) -> u64 {
        self.index.last()
    }

    /// The hard state that was appended last; `None` if none ever was.
    #[must_use]
    pub fn hard_state(&self) -> Option<HardState> {
        self.hard_state
    }

    /// Bytes of all segments in use, for deciding when to trim.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.writer.segments().bytes()
    }

    /// How far the log is durable, without a sync.
    #[must_use]
    pub fn durable(&self) -> Durable {
        Durable { position: self.writer.durable(), last_index: self.index.last() }
    }

    /// Largest payload, in bytes, that one record may have with this configuration.
    #[must_use]
    pub fn payload_bytes_max(&self) -> usize {
        let room = SegmentHead::record_bytes_max(self.config.segment_bytes);
        room.saturating_sub(HEADER_BYTES).min(limits::RECORD_PAYLOAD_BYTES_MAX)
    }

    /// Prepares the next segment, so that a roll waits for one sync only. Returns `true` if it made one.
    ///
    /// The log thread calls it when idle, or once the active segment is half full. It takes a spare, or else writes a file
    /// of zeros.
    ///
    /// # Errors
    /// [`LogError::NoSpace`]: nothing is lost, and the call may be repeated. Other errors of the disk poison the log.
    pub fn prepare_ahead(&mut self) -> Result<bool, LogError> {
        self.check_alive()?;
        if self.writer.segments().ahead_count() > 0 {
            return Ok(false);
        }
        self.writer.segments_mut().make_ahead()?;
        Ok(true)
    }

    /// Work that would save [`Log::prepare_ahead`] the zero-filling; `None` while there is a spare.
    ///
    /// Run it on another thread, and give the result to [`Log::accept_spare`].
    #[must_use = "the job does nothing until it is run"]
    pub fn spare_job(&mut self) -> Option<SpareJob<D>> {
        self.writer.segments_mut().spare_job()
    }

    /// Takes the result of a [`SpareJob`] of this log.
    pub fn accept_spare(&mut self, spare: Spare<D>) {
        self.writer.segments_mut().add_spare(spare);
    }

    /// Bytes left in the active segment, and whether the next segment is prepared.
    #[must_use]
    pub fn room(&self) -> (usize, bool) {
        let segments = self.writer.segments();
        let left = segments.active().head().records_end().saturating_sub(self.writer.tail());
        (left, segments.ahead_count() > 0)
    }

    /// Drops entries before `index`: whole segments, oldest first, never the active one. Returns how many segments.
    ///
    /// The segments become spares or are removed. The hard state is never lost, because each segment begins with it. It
    /// waits for the disk, once for each segment.
    ///
    /// # Errors
    /// Those of [`Log::sync`], and [`LogError::Io`], which poisons the log.
    pub fn trim_before(&mut self, index: u64) -> Result<usize, LogError> {
        // The records that make the old segments superfluous have to be durable before those go.
        self.sync()?;
        let segments = self.writer.segments();
        let keep = self
            .index
            .place(index.max(self.index.first()))
            .map_or_else(|| segments.active().stamp().generation, |place| segments.generation_of(place.segment));
        self.drop_segments_before(keep)
    }

    /// Discards the whole log: the next entry has `next_index`. For a server that received a snapshot beyond its log.
    ///
    /// Durable when it returns. The hard state stays.
    ///
    /// # Errors
    /// [`LogError::NoSpace`] leaves the log as it was. Others as [`Log::trim_before`].
    pub fn reset_to(&mut self, next_index: u64) -> Result<(), LogError> {
        self.check_alive()?;
        self.roll(Some(next_index))?;
        self.sync()?;
        let active = self.writer.segments().active().stamp().generation;
        self.drop_segments_before(active)?;
        Ok(())
    }

    /// Ends the active segment, so that [`Log::trim_before`] can drop it, and begins the next. Durable when it returns.
    ///
    /// # Errors
    /// [`LogError::NoSpace`] leaves the log as it was. [`LogError::SyncFailed`] poisons it.
    pub fn seal(&mut self) -> Result<(), LogError> {
        self.check_alive()?;
        self.roll(None)?;
        self.sync().map(drop)
    }

    /// Gives back the memory of all segments but the end. To be called when much of the log has been read.
    ///
    /// Bytes that are read again are brought into memory again.
    ///
    /// # Errors
    /// [`LogError::Io`] if the kernel refuses.
    pub fn release_read(&mut self) -> Result<(), LogError> {
        self.writer.release_read()
    }

    fn check_alive(&self) -> Result<(), LogError> {
        self.writer.segments().check_alive()
    }

    /// Checks a batch and returns how many times it will roll to a new segment.
    fn plan(&self, records: &[Record<'_>]) -> Result<usize, LogError> {
        let (first, mut next) = (self.index.first(), self.index.next());
        let max = self.payload_bytes_max();
        let (mut tail, mut end) = (self.writer.tail(), self.writer.segments().active().head().records_end());
        let mut rolls = 0_usize;
        for record in records {
            let bytes = match record {
                Record::HardState(_) => HARD_STATE_BYTES,
                Record::Entry(entry) => {
                    let index = entry.index.0;
                    if index < first || index > next || index == u64::MAX {
                        return Err(LogError::OutOfOrder { index, first, next });
                    }
                    next = index.saturating_add(1);
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
                tail = DATA_START.saturating_add(START_RECORD_BYTES);
            }
            tail = tail.saturating_add(record_bytes(bytes));
        }
        Ok(rolls)
    }

    /// Stores one record at the end, rolling first if it does not fit. Returns offset and segment number.
    fn store(&mut self, kind: RecordKind, entry: &StoredEntry<'_>) -> Result<(u32, u32), LogError> {
        if !self.writer.has_room(entry.payload.len()) {
            self.roll(None)?;
        }
        self.writer.store(kind, entry)
    }

    /// Ends the active segment and begins the next; `reset` voids all entries before the index it gives.
    fn roll(&mut self, reset: Option<u64>) -> Result<(), LogError> {
        self.writer.roll(self.index.next(), reset, self.hard_state)?;
        if let Some(next_index) = reset {
            self.index = EntryIndex::new(next_index);
        }
        Ok(())
    }

    /// Recycles or removes the segments before this generation, oldest first.
    fn drop_segments_before(&mut self, generation: u64) -> Result<usize, LogError> {
        if self.writer.segments().has_before(generation) {
            // Stored first, so that a segment missing from the front is a loss unless it was dropped.
            self.writer.write_slot(generation)?;
        }
        let mut dropped = 0_usize;
        while let Some(segment) = self.writer.segments_mut().pop_before(generation) {
            let segments = self.writer.segments_mut();
            self.index.drop_segments_before(segments.number_behind(&segment));
            segments.recycle(segment)?;
            dropped = dropped.saturating_add(1);
        }
        Ok(dropped)
    }
}
