//! The log in memory: the newest entries, as the Raft library reads them.
//!
//! It holds every entry that is not applied. It also holds applied entries up to a byte budget, for followers that lag
//! a little (none in a group of one). Older entries are on disk only. Those behind the newest snapshot are read from
//! there, and those behind a snapshot that a follower receives. A follower that lags further is sent the snapshot. It
//! knows nothing of durability.
//!
//! Invariants: entries follow each other without a gap; applied entries are never replaced.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Storage, StorageError};

use crate::awaited::Awaited;
use crate::convert::{self, id_of};
use crate::limits;
use crate::membership::Membership;
use crate::types::{Index, ServerId, Term};

pub(crate) struct MemLog {
    initial: (HardState, ConfState),
    /// Entries from `cut_index + 1` on, without a gap.
    entries: VecDeque<Entry>,
    /// The entry before the first: its place and term are still known.
    cut_index: u64,
    cut_term: u64,
    /// Entries behind this index are here or on disk.
    floor: u64,
    /// The terms of the entries from `floor` to `cut_index`, each with the first index known to have it.
    terms: VecDeque<(u64, u64)>,
    /// Entries that followers need from disk.
    wanted: RefCell<Vec<Wanted>>,
    /// Entries read from disk, while they are being sent.
    read: Vec<Entry>,
    applied: u64,
    unapplied_bytes: u64,
    applied_bytes: u64,
    budget: u64,
    snapshot: Option<(Index, Term, Membership)>,
    snapshot_wanted: Cell<bool>,
    /// The state of this node is corrupt: no snapshot of it is sent.
    gives_none: bool,
    awaited: RefCell<Awaited>,
    /// Members without a vote, in force here.
    learners: Vec<ServerId>,
}

/// Entries that a follower needs from disk.
struct Wanted {
    low: u64,
    high: u64,
    /// The library's request.
    context: GetEntriesContext,
}

/// Entries that are dropped at once: to free all that was kept for a follower takes long.
const DROPPED_MAX: u64 = 1024;

/// The entries of the log that a snapshot replaced. Dropping them takes long, so another thread does that.
#[derive(Debug)]
pub struct ReplacedLog {
    _entries: VecDeque<Entry>,
}

/// The bytes that an entry counts against a byte budget.
pub(crate) fn cost(entry: &Entry) -> u64 {
    entry.data.len() as u64 + limits::ENTRY_OVERHEAD_BYTES
}

impl MemLog {
    /// `terms`: the terms of entries that are on disk, up to the cut, each with the first index that has it.
    pub(crate) fn new(hard: HardState, conf: ConfState, cut: (Index, Term), terms: &[(Index, Term)]) -> MemLog {
        let mut terms: VecDeque<_> = terms.iter().map(|(first, term)| (first.0, term.0)).collect();
        if terms.is_empty() {
            terms.push_back((cut.0.0, cut.1.0));
        }
        MemLog {
            initial: (hard, conf),
            entries: VecDeque::new(),
            cut_index: cut.0.0,
            cut_term: cut.1.0,
            floor: terms[0].0,
            terms,
            wanted: RefCell::new(Vec::new()),
            read: Vec::new(),
            applied: cut.0.0,
            unapplied_bytes: 0,
            applied_bytes: 0,
            budget: 0,
            snapshot: None,
            snapshot_wanted: Cell::new(false),
            gives_none: false,
            awaited: RefCell::new(Awaited::default()),
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
        let newly = index.saturating_sub(self.applied);
        while self.applied < index {
            self.applied += 1;
            if let Some(entry) = self.at(self.applied) {
                let bytes = cost(entry);
                self.unapplied_bytes -= bytes;
                self.applied_bytes += bytes;
            }
        }
        self.trim(newly + DROPPED_MAX);
    }

    /// How much of the applied part to keep, in bytes.
    pub(crate) fn set_budget(&mut self, bytes: u64) {
        self.budget = bytes;
        self.trim_some();
    }

    /// Goes on dropping what is kept beyond the budget.
    pub(crate) fn trim_some(&mut self) {
        self.trim(DROPPED_MAX);
    }

    /// At most so many entries.
    fn trim(&mut self, mut most: u64) {
        while most > 0 && self.applied_bytes > self.budget {
            most -= 1;
            let old = self.entries.pop_front().expect("applied bytes are those of entries held");
            assert!(old.index <= self.applied, "only applied entries are dropped");
            self.applied_bytes -= cost(&old);
            (self.cut_index, self.cut_term) = (old.index, old.term);
            if self.terms.back().is_none_or(|(_, term)| *term != old.term) {
                self.terms.push_back((old.index, old.term));
            }
        }
    }

    // ----- entries on disk -----

    /// Index of the first entry that is still needed on disk.
    pub(crate) fn needed_from(&self) -> Index {
        Index(self.floor + 1)
    }

    /// Entries that the newest snapshot holds, and that are kept for followers that receive an older one.
    pub(crate) fn kept_for_followers(&self) -> u64 {
        if self.awaited.borrow().is_empty() { 0 } else { self.newest_snapshot().saturating_sub(self.floor) }
    }

    /// Index of the newest snapshot, 0 without one.
    fn newest_snapshot(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |(index, ..)| index.0)
    }

    /// Entries up to the newest snapshot are not needed any more. A follower that receives an older snapshot keeps those
    /// behind it. So does a server that sends no snapshot.
    pub(crate) fn raise_floor(&mut self) {
        if self.gives_none {
            return;
        }
        let needed = self.awaited.get_mut().first().map_or(u64::MAX, |first| first.0);
        self.set_floor(self.newest_snapshot().min(needed));
    }

    /// Entries that memory does not hold cannot be read from disk.
    pub(crate) fn lose_disk(&mut self) {
        self.set_floor(self.cut_index);
    }

    fn set_floor(&mut self, index: u64) {
        self.floor = self.floor.max(index.min(self.cut_index));
        while self.terms.get(1).is_some_and(|(first, _)| *first <= self.floor) {
            self.terms.pop_front();
        }
    }

    /// The first and the last of the entries to read from disk next.
    pub(crate) fn wanted(&self) -> Option<(Index, Index)> {
        let wanted = self.wanted.borrow();
        wanted.first().map(|wanted| (Index(wanted.low), Index(wanted.high - 1)))
    }

    /// Entries from `low` on were read from disk, perhaps none. Gives the requests that they serve.
    pub(crate) fn read(&mut self, low: Index, entries: Vec<Entry>) -> Vec<GetEntriesContext> {
        self.read = entries;
        let wanted = self.wanted.get_mut();
        let (served, rest): (Vec<_>, Vec<_>) = wanted.drain(..).partition(|wanted| wanted.low == low.0);
        *wanted = rest;
        served.into_iter().map(|wanted| wanted.context).collect()
    }

    /// The entries that were read are sent.
    pub(crate) fn forget_read(&mut self) {
        self.read = Vec::new();
    }

    fn entries_read(&self, low: u64, high: u64, context: GetEntriesContext) -> raft::Result<&[Entry]> {
        let at = self.read.first().and_then(|first| usize::try_from(low.checked_sub(first.index)?).ok());
        if let Some(found) = at.and_then(|at| self.read.get(at..)).filter(|found| !found.is_empty()) {
            let count = usize::try_from(high - low).unwrap_or(usize::MAX).min(found.len());
            return Ok(&found[..count]);
        }
        let mut wanted = self.wanted.borrow_mut();
        if context.can_async() && wanted.len() < limits::MEMBERS_MAX {
            wanted.push(Wanted { low, high, context });
        }
        Err(Error::Store(StorageError::LogTemporarilyUnavailable))
    }

    /// A snapshot replaces everything. Gives the entries that were held.
    pub(crate) fn install(&mut self, index: Index, term: Term) -> ReplacedLog {
        let entries = std::mem::take(&mut self.entries);
        (self.cut_index, self.cut_term) = (index.0, term.0);
        (self.floor, self.terms) = (index.0, VecDeque::from([(index.0, term.0)]));
        self.wanted.get_mut().clear();
        (self.unapplied_bytes, self.applied_bytes) = (0, 0);
        self.applied = index.0;
        ReplacedLog { _entries: entries }
    }

    /// Sets the newest snapshot that a lagging follower can be sent.
    pub(crate) fn set_snapshot(&mut self, index: Index, term: Term, membership: Membership) {
        self.snapshot = Some((index, term, membership));
    }

    /// Sets whether lagging followers are sent snapshots.
    pub(crate) fn give_snapshots(&mut self, gives: bool) {
        self.gives_none = !gives;
    }

    /// Whether lagging followers are sent snapshots: the state of this node is intact.
    pub(crate) fn gives_snapshots(&self) -> bool {
        !self.gives_none
    }

    /// Sets the members without a vote.
    pub(crate) fn set_learners(&mut self, learners: Vec<ServerId>) {
        self.learners = learners;
    }

    /// Whether a member that installs this snapshot is a member in it. A learner that was a voter at that index has lost
    /// its data since, and must not become a voter by the snapshot.
    fn suits(&self, membership: &Membership, to: ServerId) -> bool {
        membership.contains(to) && (!self.learners.contains(&to) || membership.learners.contains(&to))
    }

    /// Whether a change of the membership is in the log and not applied.
    pub(crate) fn holds_conf_change(&self) -> bool {
        let mut unapplied = self.entries.iter().rev().take_while(|entry| entry.index > self.applied);
        unapplied.any(convert::is_conf_change)
    }

    /// The entries that followers will need behind the snapshot that they receive.
    pub(crate) fn awaited_mut(&mut self) -> &mut Awaited {
        self.awaited.get_mut()
    }

    /// Whether all entries behind `index` are here and fit in the budget, so that none of them is dropped soon.
    pub(crate) fn fits_behind(&self, index: u64) -> bool {
        if index < self.cut_index {
            return false;
        }
        let behind = self.entries.iter().rev().take_while(|entry| entry.index > index);
        let mut left = Some(self.budget);
        behind.map(cost).all(|bytes| {
            left = left.and_then(|left| left.checked_sub(bytes));
            left.is_some()
        })
    }

    /// The snapshot for a member that has a whole log and a corrupt state, if it ends at `least` or behind it. Otherwise a
    /// newer one is wanted.
    pub(crate) fn snapshot_from(&self, least: Index, to: ServerId) -> Option<(Index, Term, Membership)> {
        if self.gives_none {
            return None;
        }
        let found = self.snapshot.as_ref().filter(|(index, _, members)| *index >= least && self.suits(members, to));
        self.snapshot_wanted.set(self.snapshot_wanted.get() || found.is_none());
        found.cloned()
    }

    /// Whether a follower has needed a newer snapshot since the last call.
    pub(crate) fn take_snapshot_wanted(&self) -> bool {
        self.snapshot_wanted.take()
    }

    /// The entry at `index`, if it is here.
    pub(crate) fn at(&self, index: u64) -> Option<&Entry> {
        let offset = index.checked_sub(self.cut_index + 1)?;
        self.entries.get(usize::try_from(offset).ok()?)
    }

    /// Term of the entry at `index`, if known here.
    pub(crate) fn term_at(&self, index: u64) -> Option<u64> {
        if index > self.cut_index {
            return self.at(index).map(|entry| entry.term);
        }
        let known = self.terms.iter().rev().find(|(first, _)| *first <= index);
        known.filter(|_| index >= self.floor).map(|(_, term)| *term)
    }
}

/// The first entries, at least one, as many as cost `max` together.
fn up_to<'a>(max: u64, entries: impl Iterator<Item = &'a Entry>) -> Vec<Entry> {
    let (mut found, mut bytes) = (Vec::new(), 0u64);
    for entry in entries {
        bytes += cost(entry);
        if bytes > max && !found.is_empty() {
            break;
        }
        found.push(entry.clone());
    }
    found
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
        context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.floor {
            return Err(Error::Store(StorageError::Compacted));
        }
        if high > self.last() + 1 {
            return Err(Error::Store(StorageError::Unavailable));
        }
        let max = max_size.into().unwrap_or(u64::MAX);
        if low <= self.cut_index {
            return Ok(up_to(max, self.entries_read(low, high.min(self.cut_index + 1), context)?.iter()));
        }
        let held = |index| self.at(index).expect("between cut and last");
        Ok(up_to(max, (low..high).map(held)))
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        let missing = if index < self.floor { StorageError::Compacted } else { StorageError::Unavailable };
        self.term_at(index).ok_or(Error::Store(missing))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.floor + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    /// The snapshot is of use only if the entries after it are here or on disk.
    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<Snapshot> {
        if let Some((index, term, membership)) = &self.snapshot
            && !self.gives_none
            && index.0 >= self.floor.max(request_index)
            && self.suits(membership, id_of(to))
        {
            self.awaited.borrow_mut().given(id_of(to), *index);
            return Ok(convert::snapshot_in(*index, *term, membership));
        }
        self.snapshot_wanted.set(true);
        self.awaited.borrow_mut().wanted(id_of(to), Index(self.applied));
        Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: u64 = 10 * (limits::ENTRY_OVERHEAD_BYTES + 4);

    fn log() -> MemLog {
        let mut log = MemLog::new(HardState::default(), ConfState::default(), (Index(0), Term(0)), &[]);
        log.set_budget(BUDGET);
        log
    }

    /// Entries up to this index are appended and applied.
    fn go_on(log: &mut MemLog, upto: u64) {
        let entry = |index| Entry { index, term: 1, data: vec![7; 4].into(), ..Entry::default() };
        log.append((log.last() + 1..=upto).map(entry).collect());
        log.set_applied(upto);
    }

    fn members() -> Membership {
        Membership::simple(&[ServerId(1), ServerId(2), ServerId(3)], &[])
    }

    #[test]
    fn entries_written_during_a_snapshot_transfer_are_read_from_disk_for_its_receiver() {
        let mut log = log();
        go_on(&mut log, 100);
        assert_eq!(log.cut_index(), 90, "the budget holds ten");
        assert!(log.snapshot(0, 2).is_err() && log.take_snapshot_wanted());
        // Its snapshot is frozen a little later, and takes long to be written.
        go_on(&mut log, 200);
        log.set_snapshot(Index(105), Term(1), members());
        assert_eq!(log.snapshot(0, 2).expect("it is of use").get_metadata().index, 105);
        // It takes long to be sent and installed, too, and a newer one is written.
        go_on(&mut log, 300);
        log.set_snapshot(Index(280), Term(1), members());
        log.raise_floor();
        assert_eq!((log.needed_from(), log.term_at(106), log.kept_for_followers()), (Index(106), Some(1), 175));
        assert!(!log.fits_behind(250) && log.fits_behind(290) && !log.fits_behind(104));
        let read = |log: &MemLog| log.entries(106, 301, None, GetEntriesContext::empty(true));
        assert!(read(&log).is_err());
        assert_eq!(log.wanted(), Some((Index(106), Index(290))));
        let page = (106..=150).map(|index| Entry { index, term: 1, ..Entry::default() }).collect();
        assert_eq!(log.read(Index(106), page).len(), 1);
        assert_eq!(read(&log).expect("just read").len(), 45);
        log.forget_read();
        // Once the follower has them, entries up to the newest snapshot may go.
        log.awaited_mut().retain(|_, _| false);
        log.raise_floor();
        assert_eq!((log.needed_from(), log.term_at(279)), (Index(281), None));
        assert!(matches!(read(&log), Err(Error::Store(StorageError::Compacted))));
        log.lose_disk();
        assert_eq!(log.needed_from(), Index(291));
    }

    #[test]
    fn what_is_not_needed_any_more_is_dropped_piece_by_piece() {
        let mut log = log();
        log.set_budget(u64::MAX);
        go_on(&mut log, 10_000);
        log.set_budget(BUDGET);
        assert_eq!(log.cut_index(), DROPPED_MAX);
        go_on(&mut log, 10_001);
        assert_eq!(log.cut_index(), 2 * DROPPED_MAX + 1);
        (0..10).for_each(|_| log.trim_some());
        assert_eq!(log.cut_index(), 9_991, "the budget holds ten");
        assert_eq!(log.install(Index(20_000), Term(1))._entries.len(), 10);
        assert_eq!(log.held_bytes(), 0);
    }
}
