//! The log as Raft and the engine use it: appends become records of `corral-storage`, records become entries.
//!
//! Works on every [`Disk`]. The server's log thread and its recovery use it, and so does the simulator. Every function
//! blocks as long as the disk does.

#![warn(missing_docs)]

use bytes::Bytes;
use corral_consensus::{Append, Entry as RaftEntry, EntryKind, HardState, Index, ServerId, Stored, Term};
use corral_core::command::Batch;
use corral_engine::recovery::{StoredEntry, StoredLog, Walk};
use corral_storage::log::{Entry, HardState as StoredState, Log, LogError, Record, Recovered};
use corral_storage::{Disk, EntryKind as RecordKind};

/// Bytes of entries that are read in one go.
const READ_BYTES: usize = 8 << 20;
/// Bytes of entries that are read for [`corral_engine::ToLog::Read`]: writes wait meanwhile.
const PAGE_BYTES: usize = 1 << 20;

/// Copies an append into the log. It is durable after the next [`Log::sync`].
///
/// # Errors
/// Those of [`Log::append`]. If the log has no space, nothing was written.
pub fn write<D: Disk>(log: &mut Log<D>, append: &Append) -> Result<(), LogError> {
    let stored = append.stored();
    let records: Vec<Record<'_>> = stored.iter().map(record).collect();
    log.append(&records)
}

/// Calls `visit` with each entry from index `from` to `upto`, both included, until it stops or fails. Entries are read
/// some MiB at a time.
///
/// # Errors
/// Those of the log, and those of `visit`.
pub fn each_entry<D: Disk, E: From<LogError>>(
    log: &Log<D>,
    (from, upto): (u64, u64),
    mut visit: impl FnMut(Entry<'_>) -> Result<Walk, E>,
) -> Result<(), E> {
    let (mut next, mut last) = (from, Ok(Walk::Continue));
    while matches!(last, Ok(Walk::Continue)) && next <= upto {
        next = log.read(next, READ_BYTES, &mut |entry| {
            if matches!(last, Ok(Walk::Continue)) && entry.index <= upto {
                last = visit(entry);
            }
        })?;
    }
    last.map(drop)
}

/// Reads a page of entries from index `from` to `upto`, both included: at least one. None if the log does not hold the
/// first one, or it is damaged.
pub fn read_page<D: Disk>(log: &Log<D>, (from, upto): (u64, u64)) -> Vec<RaftEntry> {
    let mut entries = Vec::new();
    // Entries before a damaged one are of use. The scrubber reports damage.
    let _ = log.read(from, PAGE_BYTES, &mut |entry| {
        if entry.index <= upto {
            let StoredEntry { index, term, kind, payload } = stored_entry(entry);
            entries.push(RaftEntry { index, term, kind, payload: Bytes::copy_from_slice(payload) });
        }
    });
    entries
}

fn stored_entry(entry: Entry<'_>) -> StoredEntry<'_> {
    let kind = match entry.kind {
        RecordKind::Normal => EntryKind::Normal,
        RecordKind::Membership => EntryKind::ConfChange,
    };
    StoredEntry { index: Index(entry.index), term: Term(entry.term), kind, payload: entry.payload }
}

/// A log that was just opened, for [`corral_engine::recovery::recover`].
pub struct Opened<'a, D: Disk> {
    /// The log.
    pub log: &'a mut Log<D>,
    /// The findings of its recovery.
    pub found: &'a mut Recovered,
}

impl<D: Disk> StoredLog for Opened<'_, D> {
    type Error = LogError;

    fn held(&self) -> (u64, u64) {
        (self.found.first_index, self.found.last_index)
    }

    fn hard_state(&self) -> Option<HardState> {
        let StoredState { term, vote, commit } = self.found.hard_state?;
        Some(HardState { term: Term(term), vote: ServerId::from_wide(vote), commit: Index(commit) })
    }

    fn stepped_over(&self) -> Option<Term> {
        self.found.stepped_over.as_ref().and(self.found.last_term).map(Term)
    }

    fn go_on_behind(&mut self, position: (u64, u64)) -> Result<(), LogError> {
        self.log.go_on_behind(self.found, position)
    }

    fn reach_back(&self, position: (u64, u64), bytes: u64) -> (u64, u64) {
        self.log.reach_back(position, bytes)
    }

    fn term(&self, index: u64) -> Option<u64> {
        self.log.term(index)
    }

    fn visit(&self, range: (u64, u64), visit: &mut dyn FnMut(StoredEntry<'_>) -> Walk) -> Result<(), LogError> {
        each_entry(self.log, range, |entry| Ok(visit(stored_entry(entry))))
    }

    fn write(&mut self, append: &Append) -> Result<(), LogError> {
        write(self.log, append)?;
        self.log.sync().map(drop)
    }
}

fn record<'a>(stored: &Stored<'a>) -> Record<'a> {
    match stored {
        Stored::HardState(state) => {
            let vote = state.vote.map_or(0, ServerId::wide);
            Record::HardState(StoredState { term: state.term.0, vote, commit: state.commit.0 })
        }
        Stored::Entry(entry) => {
            // The first zxid of an entry's batch; 0 if there is none.
            let (kind, first_zxid) = match entry.kind {
                EntryKind::Normal => (RecordKind::Normal, Batch::zxid_of(&entry.payload)),
                EntryKind::ConfChange => (RecordKind::Membership, 0),
            };
            let (term, index) = (entry.term.0, entry.index.0);
            Record::Entry(Entry { term, index, kind, first_zxid, payload: &entry.payload })
        }
    }
}
