//! One server of the test ensemble: a node, a disk that is written late, a state machine that lags.

use std::collections::VecDeque;

use corral_consensus::{
    Append, Entry, EntryKind, HardState, Index, InstallSnapshot, Membership, Outputs, RaftNode, Restored, Term,
};
use corral_types::SplitMix64;

use crate::setup::config;
use crate::setup::id_of;

/// The state that survives a crash.
#[derive(Clone)]
pub(crate) struct Disk {
    pub(crate) hard: HardState,
    pub(crate) snapshot: (Index, Term),
    pub(crate) membership: Membership,
    pub(crate) entries: Vec<Entry>,
}

impl Disk {
    pub(crate) fn new(membership: Membership) -> Disk {
        Disk { hard: HardState::default(), snapshot: (Index(0), Term(0)), membership, entries: Vec::new() }
    }

    pub(crate) fn holds(&self, index: Index, term: Term) -> bool {
        index <= self.snapshot.0 || self.entries.iter().rev().any(|entry| entry.index == index && entry.term == term)
    }

    fn write(&mut self, append: &Append, install: Option<&InstallSnapshot>) {
        if let Some(install) = install {
            self.snapshot = (install.index, install.term);
            self.membership = install.membership.clone();
            self.entries.clear();
        }
        if let Some(first) = append.entries.first() {
            self.entries.retain(|entry| entry.index < first.index);
            self.entries.extend_from_slice(&append.entries);
        }
        if let Some(hard) = append.hard_state {
            self.hard = hard;
        }
    }
}

struct Pending {
    due: u64,
    append: Append,
    install: Option<InstallSnapshot>,
}

pub(crate) struct Server {
    pub(crate) node: RaftNode,
    pub(crate) out: Outputs,
    pub(crate) to_apply: VecDeque<Entry>,
    pub(crate) applied: u64,
    applied_term: Term,
    pending: VecDeque<Pending>,
}

impl Server {
    pub(crate) fn start(at: usize, disk: &Disk, seed: u64) -> Server {
        let config = config(id_of(at), 500, seed);
        let restored = Restored {
            hard_state: disk.hard,
            cut_index: disk.snapshot.0,
            cut_term: disk.snapshot.1,
            disk_terms: Vec::new(),
            entries: disk.entries.iter().filter(|entry| entry.index > disk.snapshot.0).cloned().collect(),
            snapshot: disk.snapshot.0,
            applied: disk.snapshot.0,
        };
        let node = RaftNode::with_membership(config, disk.membership.clone(), restored).expect("a disk is consistent");
        Server {
            node,
            out: Outputs::default(),
            to_apply: VecDeque::new(),
            applied: disk.snapshot.0.0,
            applied_term: disk.snapshot.1,
            pending: VecDeque::new(),
        }
    }

    /// Of the writes under way some made it to the disk, in order, the rest are lost.
    pub(crate) fn crash(self, disk: &mut Disk, random: &mut SplitMix64) {
        let survive = random.index(self.pending.len() + 1);
        for write in self.pending.iter().take(survive) {
            disk.write(&write.append, write.install.as_ref());
        }
    }

    pub(crate) fn persist_due(&mut self, now: u64, disk: &mut Disk) {
        while self.pending.front().is_some_and(|write| write.due <= now) {
            let write = self.pending.pop_front().expect("just seen");
            disk.write(&write.append, write.install.as_ref());
            if write.append.must_sync {
                self.node.persisted(write.append.number);
            }
            if let Some(install) = write.install {
                self.to_apply.retain(|entry| entry.index > install.index);
                self.applied = install.index.0;
                self.applied_term = install.term;
                self.node.applied(install.index);
            }
        }
    }

    pub(crate) fn take_append(&mut self, now: u64, random: &mut SplitMix64, delay: u64) {
        let install = self.out.install.take();
        let Some(append) = self.out.append.take() else {
            assert!(install.is_none(), "a snapshot comes with an append");
            return;
        };
        if !append.must_sync {
            assert!(append.entries.is_empty() && install.is_none(), "only the commit index may stay unsynced");
            if random.chance(50) {
                return;
            }
        }
        if install.is_some() {
            // Entries that were committed before are in the snapshot.
            self.to_apply.clear();
        }
        let due = now + random.below(delay);
        let due = self.pending.back().map_or(due, |last| due.max(last.due));
        self.pending.push_back(Pending { due, append, install });
    }

    pub(crate) fn apply_some(&mut self, random: &mut SplitMix64, conf_applied: &mut usize) {
        if self.pending.iter().any(|write| write.install.is_some()) {
            return;
        }
        let some = random.index(20);
        for entry in self.to_apply.drain(..some.min(self.to_apply.len())) {
            assert_eq!(entry.index.0, self.applied + 1, "applied in order");
            self.applied = entry.index.0;
            self.applied_term = entry.term;
            *conf_applied += usize::from(entry.kind == EntryKind::ConfChange);
        }
        self.node.applied(Index(self.applied));
    }

    /// Makes a durable snapshot of the applied state, and drops the log before it.
    pub(crate) fn make_snapshot(&mut self, disk: &mut Disk) {
        if self.applied <= disk.snapshot.0.0 || self.pending.iter().any(|write| write.install.is_some()) {
            return;
        }
        disk.snapshot = (Index(self.applied), self.applied_term);
        disk.membership = self.node.membership();
        self.node.compact(disk.snapshot.0, disk.snapshot.1);
        let needed = self.node.log_needed_from();
        disk.entries.retain(|entry| entry.index >= needed);
    }

    /// Reads what followers need from the disk: one entry at a time.
    pub(crate) fn read_for_followers(&mut self, disk: &Disk) {
        while let Some((from, _)) = self.node.begin_to_read() {
            let found = disk.entries.iter().find(|entry| entry.index == from);
            self.node.log_read(found.map_or(&[], std::slice::from_ref));
        }
    }
}
