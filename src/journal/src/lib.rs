//! The log as Raft and the engine see it: appends become records, records become entries.
//!
//! For every kind of disk; the server's log thread and recovery use it, and so does the simulator. Blocks as the log does, and
//! decides nothing.

use corral_consensus::{Append, EntryKind, HardState, Index, NodeId, Stored, Term};
use corral_core::command::Batch;
use corral_engine::recovery::{Go, StoredEntry, StoredLog};
use corral_storage::log::{Entry, HardState as StoredState, Log, LogError, Record, Recovered};
use corral_storage::{Disk, EntryKind as RecordKind};

/// Bytes of entries that are read in one go.
const READ_BYTES: usize = 8 << 20;

/// Copies an append into the log. Not durable yet.
///
/// # Errors
/// The log's; what has no space has done nothing.
pub fn write<D: Disk>(log: &mut Log<D>, append: &Append) -> Result<(), LogError> {
    let stored = append.stored();
    let records: Vec<Record<'_>> = stored.iter().map(record).collect();
    log.append(&records)
}

/// Shows each entry from one index to another, both included, until `show` has enough or fails.
///
/// # Errors
/// The log's, or those of `show`.
pub fn each_entry<D: Disk, E: From<LogError>>(
    log: &Log<D>,
    (from, upto): (u64, u64),
    mut show: impl FnMut(Entry<'_>) -> Result<Go, E>,
) -> Result<(), E> {
    let (mut next, mut last) = (from, Ok(Go::On));
    while matches!(last, Ok(Go::On)) && next <= upto {
        next = log.read(next, READ_BYTES, &mut |entry| {
            if matches!(last, Ok(Go::On)) && entry.index <= upto {
                last = show(entry);
            }
        })?;
    }
    last.map(drop)
}

/// A log that was just opened, with what was found in it.
pub struct Opened<'a, D: Disk> {
    pub log: &'a mut Log<D>,
    pub found: &'a mut Recovered,
}

impl<D: Disk> StoredLog for Opened<'_, D> {
    type Error = LogError;

    fn held(&self) -> (u64, u64) {
        (self.found.first_index, self.found.last_index)
    }

    fn hard_state(&self) -> Option<HardState> {
        let StoredState { term, vote, commit } = self.found.hard_state?;
        Some(HardState { term: Term(term), vote: (vote != 0).then_some(NodeId(vote)), commit: Index(commit) })
    }

    fn stepped_over(&self) -> Option<Term> {
        self.found.stepped_over.as_ref().and(self.found.last_term).map(Term)
    }

    fn go_on_behind(&mut self, place: (u64, u64)) -> Result<(), LogError> {
        self.log.go_on_behind(self.found, place)
    }

    fn reach_back(&self, place: (u64, u64), bytes: u64) -> (u64, u64) {
        self.log.reach_back(place, bytes)
    }

    fn show(&self, range: (u64, u64), show: &mut dyn FnMut(StoredEntry<'_>) -> Go) -> Result<(), LogError> {
        each_entry(self.log, range, |entry| {
            let kind = match entry.kind {
                RecordKind::Normal => EntryKind::Normal,
                RecordKind::Membership => EntryKind::ConfChange,
            };
            Ok(show(StoredEntry { index: Index(entry.index), term: Term(entry.term), kind, payload: entry.payload }))
        })
    }

    fn write(&mut self, append: &Append) -> Result<(), LogError> {
        write(self.log, append)?;
        self.log.sync().map(drop)
    }
}

fn record<'a>(stored: &Stored<'a>) -> Record<'a> {
    match stored {
        Stored::HardState(state) => {
            let vote = state.vote.map_or(0, |node| node.0);
            Record::HardState(StoredState { term: state.term.0, vote, commit: state.commit.0 })
        }
        Stored::Entry(entry) => {
            // The first zxid of an entry's batch; 0 for one that holds none.
            let (kind, first_zxid) = match entry.kind {
                EntryKind::Normal => (RecordKind::Normal, Batch::zxid_of(&entry.payload)),
                EntryKind::ConfChange => (RecordKind::Membership, 0),
            };
            let (term, index) = (entry.term.0, entry.index.0);
            Record::Entry(Entry { term, index, kind, first_zxid, payload: &entry.payload })
        }
    }
}
