//! Shared code of the tests of the log: a small random generator, entries made from numbers, a model to compare with.

#![allow(clippy::cast_possible_truncation, reason = "test sizes are small")]
#![allow(unreachable_pub, reason = "each test binary has a copy of its own")]
#![allow(dead_code, reason = "each module uses its part")]

use corral_storage::{Disk, Log, LogConfig, LogError, Recovered};
use corral_types::{EntryKind, HardState, Index, Record, ServerId, SplitMix64, StoredEntry, Term};

/// An entry that owns its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedEntry {
    pub term: u64,
    pub index: u64,
    pub kind: EntryKind,
    pub first_zxid: u64,
    pub payload: Vec<u8>,
}

impl OwnedEntry {
    pub fn made(term: u64, index: u64, bytes: usize) -> OwnedEntry {
        let mut rng = SplitMix64::new(term << 32 | index);
        let payload = (0..bytes).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
        // Every seventh changes the membership: a log that forgets the kind does not pass.
        let kind = if index % 7 == 3 { EntryKind::ConfChange } else { EntryKind::Normal };
        OwnedEntry { term, index, kind, first_zxid: term << 32 | index, payload }
    }

    pub fn record(&self) -> Record<'_> {
        let OwnedEntry { term, index, kind, first_zxid, ref payload } = *self;
        Record::Entry(StoredEntry { term: Term(term), index: Index(index), kind, first_zxid, payload })
    }
}

/// A hard state. A vote of 0 is none.
pub fn hard_state(term: u64, vote: u64, commit: u64) -> HardState {
    HardState { term: Term(term), vote: ServerId::from_wide(vote), commit: Index(commit) }
}

pub fn config() -> LogConfig {
    LogConfig { segment_bytes: 16 << 10, spares_max: 1, seed: 0x5EED_0000_1234, ..LogConfig::default() }
}

pub fn open<D: Disk>(disk: &D) -> Result<(Log<D>, Recovered), LogError> {
    Log::open(disk.clone(), config(), &mut |_| {})
}

/// All entries the log holds.
pub fn entries<D: Disk>(log: &Log<D>) -> Result<Vec<OwnedEntry>, LogError> {
    let mut found = Vec::new();
    log.read(log.first_index(), usize::MAX, &mut |entry| {
        found.push(OwnedEntry {
            term: entry.term.0,
            index: entry.index.0,
            kind: entry.kind,
            first_zxid: entry.first_zxid,
            payload: entry.payload.to_vec(),
        });
    })?;
    Ok(found)
}

/// One thing done to the log that changes what it holds.
#[derive(Debug, Clone)]
pub enum Done {
    Entry(OwnedEntry),
    HardState(HardState),
    Reset(u64),
}

/// The content of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    pub first: u64,
    pub entries: Vec<OwnedEntry>,
    pub hard_state: Option<HardState>,
}

impl Model {
    pub fn new() -> Model {
        Model { first: 1, entries: Vec::new(), hard_state: None }
    }

    pub fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    pub fn apply(&mut self, done: &Done) {
        match done {
            Done::Entry(entry) => {
                if entry.index < self.first {
                    self.first = entry.index;
                    self.entries.clear();
                }
                self.entries.truncate((entry.index - self.first) as usize);
                self.entries.push(entry.clone());
            }
            Done::HardState(state) => self.hard_state = Some(*state),
            Done::Reset(index) => {
                self.first = *index;
                self.entries.clear();
            }
        }
    }

    /// Forgets entries before `first`.
    pub fn trim(&mut self, first: u64) {
        while self.first < first && !self.entries.is_empty() {
            self.entries.remove(0);
            self.first += 1;
        }
    }
}
