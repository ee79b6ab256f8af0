//! The start of a node: its configuration, and the state that storage restored. Both are checked here before the Raft
//! library sees them, because the library panics on contradictions.

use crate::error::ConsensusError;
use crate::limits;
use crate::types::{Entry, HardState, Index, ServerId, Term};

/// How a node is set up. Ticks are whatever the driver makes them; the usual one is 10 ms to 100 ms.
#[derive(Clone, Debug)]
pub struct Config {
    /// This server; never 0.
    pub id: ServerId,
    /// Voting members in force at `Restored::applied`; at least one.
    pub voters: Vec<ServerId>,
    /// Members without a vote in force at `Restored::applied`.
    pub learners: Vec<ServerId>,
    /// An election starts after this many to twice this many ticks without a leader; above `heartbeat_ticks`.
    pub election_ticks: u32,
    /// A leader sends a heartbeat every so many ticks; at least 1.
    pub heartbeat_ticks: u32,
    /// Entries proposed or committed but not applied yet; more is refused as full. At least 1.
    pub max_inflight_entries: u32,
    /// Largest payload of one proposal, in bytes. At least 1.
    pub max_entry_bytes: u32,
    /// Payload bytes of applied entries kept in memory, so that followers that lag a little need no snapshot. A group
    /// of one keeps none.
    pub log_cache_bytes: u64,
    /// Source of election timeouts and read tokens. Must differ between servers and between starts of one server;
    /// an equal seed with equal inputs replays exactly.
    pub seed: u64,
}

/// The log of a bootstrapped ensemble begins behind this index, so that a server without data is sent a snapshot, and
/// with it the membership.
pub const BOOTSTRAP_INDEX: Index = Index(1);
/// Term of the entry at [`BOOTSTRAP_INDEX`].
pub const BOOTSTRAP_TERM: Term = Term(1);

/// The state that storage restores at a start.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    /// Last durable hard state. A commit below `applied` is raised to it: a snapshot holds committed state only.
    pub hard_state: HardState,
    /// The last entry that is not among `entries`: that of the snapshot, or an earlier one; 0 without one.
    pub cut_index: Index,
    /// Term of the entry at that index, 0 without one.
    pub cut_term: Term,
    /// The terms of durable entries up to `cut_index` that followers may be sent from disk, each with the first index that
    /// has it. Empty if there are none.
    pub disk_terms: Vec<(Index, Term)>,
    /// All durable entries after `cut_index`, without a gap. Entries that the snapshot holds too are for followers that
    /// lag.
    pub entries: Vec<Entry>,
    /// Index of the snapshot the server starts from, 0 without one. It is what followers that lag are given.
    pub snapshot: Index,
    /// Index up to which everything is applied. It is the index of the snapshot, or a later one up to which entries are
    /// known to be committed. No entry in between changes the membership. Entries up to it are not delivered again.
    pub applied: Index,
}

impl Config {
    pub(crate) fn check(&self) -> Result<(), ConsensusError> {
        let bad = |reason| Err(ConsensusError::Config { reason });
        if self.id == ServerId(0) {
            return bad("id is 0");
        }
        if self.heartbeat_ticks == 0 {
            return bad("heartbeat_ticks is 0");
        }
        if self.election_ticks <= self.heartbeat_ticks {
            return bad("election_ticks must be above heartbeat_ticks");
        }
        if self.election_ticks > limits::TICKS_MAX {
            return bad("election_ticks is too large");
        }
        if self.max_inflight_entries == 0 || self.max_inflight_entries > limits::INFLIGHT_ENTRIES_MAX {
            return bad("max_inflight_entries is out of range");
        }
        if self.max_entry_bytes == 0 || self.max_entry_bytes > limits::ENTRY_BYTES_MAX {
            return bad("max_entry_bytes is out of range");
        }
        Ok(())
    }
}

impl Restored {
    pub(crate) fn last_index(&self) -> Index {
        self.entries.last().map_or(self.cut_index, |entry| entry.index)
    }

    /// Checks that entries follow each other and that commit and applied lie within them; raises the commit to the
    /// snapshot.
    pub(crate) fn check(&mut self) -> Result<(), ConsensusError> {
        if (self.cut_index == Index(0)) != (self.cut_term == Term(0)) {
            return Err(ConsensusError::SnapshotTerm { index: self.cut_index, term: self.cut_term });
        }
        if self.cut_index.0 > limits::RESTORED_INDEX_MAX {
            return Err(ConsensusError::TooFar { index: self.cut_index });
        }
        let grow = |pair: &[(Index, Term)]| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1;
        let ends =
            self.disk_terms.last().is_none_or(|(first, term)| *first <= self.cut_index && *term == self.cut_term);
        if !ends || !self.disk_terms.windows(2).all(grow) {
            return Err(ConsensusError::SnapshotTerm { index: self.cut_index, term: self.cut_term });
        }
        let (mut index, mut term) = (self.cut_index.0, self.cut_term);
        for entry in &self.entries {
            if entry.index.0 != index + 1 {
                return Err(ConsensusError::Gap { expected: Index(index + 1), found: entry.index });
            }
            if entry.term < term || entry.term == Term(0) {
                return Err(ConsensusError::TermOrder { index: entry.index, term: entry.term, before: term });
            }
            (index, term) = (entry.index.0, entry.term);
        }
        if index > limits::RESTORED_INDEX_MAX {
            return Err(ConsensusError::TooFar { index: Index(index) });
        }
        if self.hard_state.term < term || self.hard_state.term.0 > limits::TERM_MAX {
            return Err(ConsensusError::HardStateTerm { term: self.hard_state.term, last: term });
        }
        if self.hard_state.vote == Some(ServerId(0)) {
            return Err(ConsensusError::VoteForNodeZero);
        }
        self.hard_state.commit = self.hard_state.commit.max(self.applied);
        let last = self.last_index();
        if self.hard_state.commit > last {
            return Err(ConsensusError::CommitBeyondLog { commit: self.hard_state.commit, last });
        }
        if self.applied < self.cut_index || self.applied < self.snapshot {
            let (low, high) = (self.cut_index, self.hard_state.commit);
            return Err(ConsensusError::Applied { applied: self.applied, low, high });
        }
        Ok(())
    }
}
