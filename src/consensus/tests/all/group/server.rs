//! One server of the test group: a replica, a disk that is written late, snapshots.

use std::collections::VecDeque;

use corral_consensus::{
    Append, Config, Effects, Entry, HardState, Index, Install, Membership, Micros, RaftNode, Replica, Restored, Term,
};
use corral_types::SplitMix64;

use super::Bug;
use super::ledger::{Ledger, Line};
use crate::setup::config;
use crate::setup::id_of;

/// A whole state at an index; it travels beside the message that announces it.
#[derive(Clone)]
pub(crate) struct Snapshot {
    pub(crate) index: Index,
    pub(crate) term: Term,
    pub(crate) membership: Membership,
    pub(crate) lines: Vec<Line>,
}

/// A few entries: followers that lag further are sent entries from disk.
const CACHE_BYTES: u64 = 500;

/// The state that survives a crash.
#[derive(Clone)]
pub(crate) struct Disk {
    pub(crate) hard: HardState,
    pub(crate) snapshot: Snapshot,
    pub(crate) entries: Vec<Entry>,
}

impl Disk {
    pub(crate) fn new(membership: Membership) -> Disk {
        let snapshot = Snapshot { index: Index(0), term: Term(0), membership, lines: Vec::new() };
        Disk { hard: HardState::default(), snapshot, entries: Vec::new() }
    }

    pub(crate) fn last(&self) -> Index {
        self.entries.last().map_or(self.snapshot.index, |entry| entry.index)
    }

    pub(crate) fn holds(&self, index: Index, term: Term) -> bool {
        index <= self.snapshot.index
            || self.entries.iter().rev().any(|entry| entry.index == index && entry.term == term)
    }

    fn write(&mut self, pending: &Pending) {
        if let Some(snapshot) = &pending.snapshot {
            self.snapshot = snapshot.clone();
            self.entries.clear();
        }
        if let Some(first) = pending.append.entries.first() {
            self.entries.retain(|entry| entry.index < first.index);
            self.entries.extend_from_slice(&pending.append.entries);
        }
        if let Some(hard) = pending.append.hard_state {
            self.hard = hard;
        }
    }
}

struct Pending {
    due: u64,
    append: Append,
    snapshot: Option<Snapshot>,
    told: bool,
}

pub(crate) struct Server {
    pub(crate) replica: Replica,
    pub(crate) ledger: Ledger,
    /// Lines compared with the others' already.
    pub(crate) checked: usize,
    /// Came from the leader, whole.
    pub(crate) arrived: Option<Snapshot>,
    pending: VecDeque<Pending>,
}

impl Server {
    pub(crate) fn start(at: usize, disk: &mut Disk, seed: u64, bug: Option<Bug>) -> Server {
        if bug == Some(Bug::ForgetVote) {
            disk.hard.vote = None;
        }
        let config = Config { log_cache_bytes: CACHE_BYTES, ..config(id_of(at), 50, seed) };
        let restored = Restored {
            hard_state: disk.hard,
            cut_index: disk.snapshot.index,
            cut_term: disk.snapshot.term,
            disk_terms: Vec::new(),
            entries: disk.entries.iter().filter(|entry| entry.index > disk.snapshot.index).cloned().collect(),
            snapshot: disk.snapshot.index,
            applied: disk.snapshot.index,
        };
        let membership = disk.snapshot.membership.clone();
        let raft = RaftNode::with_membership(config, membership, restored).expect("a disk is consistent");
        let ledger = Ledger::holding(disk.snapshot.lines.clone());
        let checked = ledger.lines.len();
        let replica = Replica::new(raft, disk.snapshot.index);
        Server { replica, ledger, checked, arrived: None, pending: VecDeque::new() }
    }

    /// Of the writes under way some made it to the disk, in order, the rest are lost.
    pub(crate) fn crash(self, disk: &mut Disk, random: &mut SplitMix64) {
        let survive = random.index(self.pending.len() + 1);
        for write in self.pending.iter().take(survive) {
            disk.write(write);
        }
    }

    pub(crate) fn persist_due(&mut self, now: u64, disk: &mut Disk) {
        while self.pending.front().is_some_and(|write| write.due <= now) {
            let write = self.pending.pop_front().expect("just seen");
            disk.write(&write);
            if write.append.must_sync && !write.told {
                self.replica.persisted(&self.ledger, Micros(now), write.append.number);
            }
            if let Some(snapshot) = write.snapshot {
                self.ledger.lines.clone_from(&snapshot.lines);
                self.checked = snapshot.lines.len();
                self.replica.installed(snapshot.index);
                if self.replica.applied() == snapshot.index {
                    self.replica.compact(snapshot.index, snapshot.term);
                }
            }
        }
    }

    /// Takes what is to be written; `bug` may tell the replica too early that it is.
    pub(crate) fn write(&mut self, effects: &mut Effects, due: u64, bug: Option<Bug>) {
        let due = self.pending.back().map_or(due, |last| due.max(last.due));
        for append in effects.appends.drain(..) {
            let this = |install: &Install| install.number == append.number;
            let install = effects.installs.iter().find(|install| this(install));
            let snapshot = install.map(|install| {
                let arrived = self.arrived.take().expect("the snapshot came before its announcement");
                assert_eq!((arrived.index, arrived.term), (install.snapshot.index, install.snapshot.term));
                assert_eq!(arrived.membership, install.snapshot.membership);
                arrived
            });
            let told = bug == Some(Bug::AckBeforeSync) && snapshot.is_none();
            if told {
                self.replica.persisted(&self.ledger, Micros(due), append.number);
            }
            self.pending.push_back(Pending { due, append, snapshot, told });
        }
        effects.installs.clear();
    }

    /// The newest of the snapshots that came.
    pub(crate) fn receive(&mut self, snapshot: Option<Snapshot>) {
        let before = self.arrived.take();
        self.arrived = snapshot.into_iter().chain(before).max_by_key(|snapshot| snapshot.index);
    }

    /// A snapshot takes the place of a corrupt state, if the log reaches it.
    pub(crate) fn replace_state(&mut self, disk: &mut Disk) {
        let Some(least) = self.replica.awaits_state() else { return };
        let upto = self.replica.raft().applied_index();
        let Some(snapshot) = self.arrived.take_if(|arrived| (least..=upto).contains(&arrived.index)) else { return };
        self.ledger.lines.clone_from(&snapshot.lines);
        self.checked = snapshot.lines.len();
        let last = disk.last();
        self.replica.state_replaced(snapshot.index);
        self.replica.compact(snapshot.index, snapshot.term);
        disk.snapshot = snapshot;
        assert_eq!(disk.last(), last, "the log is as long as before");
    }

    /// Makes a durable snapshot of the applied state, and drops the log before it.
    pub(crate) fn make_snapshot(&mut self, disk: &mut Disk) {
        let index = self.replica.applied();
        let installing = self.pending.iter().any(|write| write.snapshot.is_some());
        // The disk writes in order: a snapshot of entries that it does not hold yet would be ahead of its log.
        if installing || self.replica.is_state_corrupt() || index <= disk.snapshot.index || index > disk.last() {
            return;
        }
        let lines = self.ledger.lines.clone();
        let term = lines.last().expect("something is applied").0;
        disk.snapshot = Snapshot { index, term, membership: self.replica.raft().membership(), lines };
        self.replica.compact(index, term);
        let needed = self.replica.raft().log_needed_from();
        disk.entries.retain(|entry| entry.index >= needed);
    }
}
