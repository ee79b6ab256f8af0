//! The part of the log the library may ask for: the newest entries, in memory.
//!
//! Holds every entry that is not applied, because the library and the pages of committed entries need them, and
//! applied ones up to a byte budget for followers that lag a little (none in a group of one). Older entries are in
//! storage only; a follower that needs them gets the image. It knows nothing of durability.

use std::cell::Cell;
use std::collections::VecDeque;

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Storage, StorageError};

use crate::convert;
use crate::limits;
use crate::types::{Index, Membership, NodeId, Term};

pub(crate) struct MemLog {
    initial: (HardState, ConfState),
    /// Entries from `cut_index + 1` on, without a gap.
    entries: VecDeque<Entry>,
    /// The entry before the first: its place and term are still known.
    cut_index: u64,
    cut_term: u64,
    applied: u64,
    unapplied_bytes: u64,
    applied_bytes: u64,
    budget: u64,
    image: Option<(Index, Term, Membership)>,
    image_wanted: Cell<bool>,
    /// Members without a vote, in force here.
    learners: Vec<NodeId>,
}

/// What an entry counts against a byte budget.
pub(crate) fn cost(entry: &Entry) -> u64 {
    entry.data.len() as u64 + limits::ENTRY_OVERHEAD_BYTES
}

impl MemLog {
    pub(crate) fn new(hard: HardState, conf: ConfState, cut: (Index, Term)) -> MemLog {
        MemLog {
            initial: (hard, conf),
            entries: VecDeque::new(),
            cut_index: cut.0.0,
            cut_term: cut.1.0,
            applied: cut.0.0,
            unapplied_bytes: 0,
            applied_bytes: 0,
            budget: 0,
            image: None,
            image_wanted: Cell::new(false),
            learners: Vec::new(),
        }
    }

    fn last(&self) -> u64 {
        self.cut_index + self.entries.len() as u64
    }

    /// Index of the newest entry that is no longer here.
    pub(crate) fn cut_index(&self) -> u64 {
        self.cut_index
    }

    /// Payload and overhead of everything not applied yet, in bytes.
    pub(crate) fn unapplied_bytes(&self) -> u64 {
        self.unapplied_bytes
    }

    /// Payload and overhead of everything held, in bytes.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.unapplied_bytes + self.applied_bytes
    }

    /// Puts entries at the end, replacing what conflicts. Applied entries never conflict.
    pub(crate) fn append(&mut self, new: Vec<Entry>) {
        let Some(first) = new.first() else { return };
        assert!(first.index > self.applied, "entry {} replaces an applied one ({})", first.index, self.applied);
        assert!(first.index <= self.last() + 1, "entry {} leaves a gap after {}", first.index, self.last());
        while self.last() >= first.index {
            let old = self.entries.pop_back().expect("last() is above the cut");
            self.unapplied_bytes -= cost(&old);
        }
        self.unapplied_bytes += new.iter().map(cost).sum::<u64>();
        self.entries.extend(new);
    }

    /// Everything up to `index` is applied: it may go once it is over the budget.
    pub(crate) fn set_applied(&mut self, index: u64) {
        while self.applied < index {
            self.applied += 1;
            if let Some(entry) = self.at(self.applied) {
                let bytes = cost(entry);
                self.unapplied_bytes -= bytes;
                self.applied_bytes += bytes;
            }
        }
        self.trim();
    }

    /// How much of the applied part to keep, in bytes.
    pub(crate) fn set_budget(&mut self, bytes: u64) {
        self.budget = bytes;
        self.trim();
    }

    fn trim(&mut self) {
        while self.applied_bytes > self.budget {
            let old = self.entries.pop_front().expect("applied bytes are those of entries held");
            assert!(old.index <= self.applied, "only applied entries are dropped");
            self.applied_bytes -= cost(&old);
            (self.cut_index, self.cut_term) = (old.index, old.term);
        }
    }

    /// An image took the place of everything.
    pub(crate) fn install(&mut self, index: Index, term: Term) {
        self.entries.clear();
        (self.cut_index, self.cut_term) = (index.0, term.0);
        (self.unapplied_bytes, self.applied_bytes) = (0, 0);
        self.applied = index.0;
    }

    /// The newest image a lagging follower can be given.
    pub(crate) fn set_image(&mut self, index: Index, term: Term, membership: Membership) {
        self.image = Some((index, term, membership));
    }

    /// Who learns without a vote.
    pub(crate) fn set_learners(&mut self, learners: Vec<NodeId>) {
        self.learners = learners;
    }

    /// Whether a member that takes this image knows from it that it is one. A learner that voted at that index has lost
    /// everything since, and must not take itself for a voter.
    fn suits(&self, membership: &Membership, to: NodeId) -> bool {
        membership.contains(to) && (!self.learners.contains(&to) || membership.learners.contains(&to))
    }

    /// Whether a follower needed a newer image since last asked.
    pub(crate) fn take_image_wanted(&self) -> bool {
        self.image_wanted.take()
    }

    fn at(&self, index: u64) -> Option<&Entry> {
        let offset = index.checked_sub(self.cut_index + 1)?;
        self.entries.get(usize::try_from(offset).ok()?)
    }

    /// Term of the entry at `index`, if known here.
    pub(crate) fn term_at(&self, index: u64) -> Option<u64> {
        if index == self.cut_index { Some(self.cut_term) } else { self.at(index).map(|entry| entry.term) }
    }
}

impl Storage for MemLog {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.initial.0.clone(), self.initial.1.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.cut_index {
            return Err(Error::Store(StorageError::Compacted));
        }
        if high > self.last() + 1 {
            return Err(Error::Store(StorageError::Unavailable));
        }
        let max = max_size.into().unwrap_or(u64::MAX);
        let (mut found, mut bytes) = (Vec::new(), 0u64);
        for index in low..high {
            let entry = self.at(index).expect("between cut and last");
            bytes += cost(entry);
            if bytes > max && !found.is_empty() {
                break;
            }
            found.push(entry.clone());
        }
        Ok(found)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        let missing = if index < self.cut_index { StorageError::Compacted } else { StorageError::Unavailable };
        self.term_at(index).ok_or(Error::Store(missing))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.cut_index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    /// The image is of use only if the entries after it are still here.
    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<Snapshot> {
        if let Some((index, term, membership)) = &self.image
            && index.0 >= self.cut_index.max(request_index)
            && self.suits(membership, NodeId(to))
        {
            return Ok(convert::snapshot_in(*index, *term, membership));
        }
        self.image_wanted.set(true);
        Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
    }
}
