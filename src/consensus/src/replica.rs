//! A Raft node and the machine it replicates, turned together: proposals in, appends and committed entries out.
//!
//! Pure like the rest of this crate. It owns the order in which things happen: a machine leads only after everything of
//! former terms is applied, an entry of our own is recognised as such, and no more appends are under way than keep the
//! log busy, so that what arrives meanwhile shares the next one.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::outputs::{Append, Outputs, ReadReady};
use crate::types::{Entry, Index, Role, Term};
use crate::{EntryKind, RaftNode};

/// Appends handed out and not yet durable before the next proposal waits: one being synced, one queued behind it.
pub const APPENDS_MAX: usize = 2;

/// What is replicated. Implemented outside; called in log order.
pub trait Machine {
    /// Why a committed entry cannot be applied.
    type Fault;

    /// The next payload for the log; never empty. `None` when nothing waits.
    fn propose(&mut self) -> Option<Bytes>;

    /// Applies a committed entry; an empty payload changes nothing but the index. `own`: this very machine made the
    /// payload, by the oldest [`Machine::propose`] not yet given back.
    ///
    /// # Errors
    /// When the payload is not understood; the replica must stop then.
    fn commit(&mut self, index: Index, term: Term, payload: &[u8], own: bool) -> Result<(), Self::Fault>;

    /// This node leads, and everything before its term is applied.
    fn lead(&mut self, term: Term);

    /// This node leads no more: what it proposed and was not committed may or may not come.
    fn follow(&mut self);
}

/// What one turn asks of the driver.
#[derive(Debug, Default)]
pub struct Effects {
    /// To be written to the log in this order, then reported with [`Replica::persisted`].
    pub appends: Vec<Append>,
    /// Tokens of [`Replica::read_index`] whose reads may be served now: their index is applied.
    pub reads: Vec<u64>,
    /// Tokens that will not be answered.
    pub reads_refused: Vec<u64>,
}

/// See the module.
pub struct Replica<M: Machine> {
    raft: RaftNode,
    machine: M,
    out: Outputs,
    /// Numbers of the appends with entries that were handed out and are not yet durable.
    under_way: VecDeque<u64>,
    /// Indices of our own proposals, oldest first.
    own: VecDeque<Index>,
    leading: bool,
    applied: Index,
    waiting_reads: Vec<ReadReady>,
}

impl<M: Machine> Replica<M> {
    /// `applied` is the index that `machine` contains already.
    pub fn new(raft: RaftNode, machine: M, applied: Index) -> Replica<M> {
        Replica {
            raft,
            machine,
            out: Outputs::default(),
            under_way: VecDeque::new(),
            own: VecDeque::new(),
            leading: false,
            applied,
            waiting_reads: Vec::new(),
        }
    }

    /// The replicated machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// The replicated machine, for inputs that do not pass through the log.
    pub fn machine_mut(&mut self) -> &mut M {
        &mut self.machine
    }

    /// The Raft node, to be looked at.
    pub fn raft(&self) -> &RaftNode {
        &self.raft
    }

    /// Whether this node leads and has applied everything of former terms.
    pub fn is_leading(&self) -> bool {
        self.leading
    }

    /// Index of the last entry applied.
    pub fn applied(&self) -> Index {
        self.applied
    }

    /// Stands for election; a group of one does so at its start.
    pub fn campaign(&mut self) {
        self.raft.campaign();
    }

    /// One tick of time passed.
    pub fn tick(&mut self) {
        self.raft.tick();
    }

    /// Asks for an index that makes a read linearizable; answered in [`Effects::reads`].
    pub fn read_index(&mut self, token: u64) {
        self.raft.read_index(token);
    }

    /// The append of this number, and all before it, are durable.
    pub fn persisted(&mut self, number: u64) {
        while self.under_way.front().is_some_and(|first| *first <= number) {
            self.under_way.pop_front();
        }
        self.raft.persisted(number);
    }

    /// A durable image holds everything up to `upto`.
    pub fn compact(&mut self, upto: Index, term: Term) {
        self.raft.compact(upto, term);
    }

    /// Does all that can be done now: proposes, collects appends, applies what is committed. Adds to `effects`.
    ///
    /// # Errors
    /// The machine's, when an entry is not understood. Nothing may be done with the replica after that.
    pub fn turn(&mut self, effects: &mut Effects) -> Result<(), M::Fault> {
        loop {
            self.propose();
            let mut out = std::mem::take(&mut self.out);
            let more = self.raft.ready(&mut out);
            let done = self.take(&mut out, effects);
            self.out = out;
            done?;
            if !more {
                return Ok(());
            }
        }
    }

    /// At most one batch: the append that holds it is handed out before the next is made.
    fn propose(&mut self) {
        if !self.leading || self.under_way.len() >= APPENDS_MAX || self.raft.role() != Role::Leader {
            return;
        }
        let Some(payload) = self.machine.propose() else { return };
        let before = self.raft.last_index();
        self.raft.propose(payload).expect("a leader with few appends under way takes a batch within its limits");
        self.own.push_back(Index(before.0 + 1));
    }

    fn take(&mut self, out: &mut Outputs, effects: &mut Effects) -> Result<(), M::Fault> {
        if let Some(append) = out.append.take() {
            // What need not be synced is the commit index alone, which a restart finds out again.
            if append.must_sync {
                if !append.entries.is_empty() {
                    self.under_way.push_back(append.number);
                }
                effects.appends.push(append);
            }
        }
        if let Some(change) = out.role_change
            && change.role != Role::Leader
            && self.leading
        {
            self.leading = false;
            self.own.clear();
            self.machine.follow();
        }
        for entry in out.committed.drain(..) {
            self.commit(&entry)?;
        }
        self.waiting_reads.append(&mut out.reads);
        let applied = self.applied;
        self.waiting_reads.retain(|read| {
            let ready = read.index <= applied;
            if ready {
                effects.reads.push(read.token);
            }
            !ready
        });
        effects.reads_refused.append(&mut out.reads_refused);
        Ok(())
    }

    fn commit(&mut self, entry: &Entry) -> Result<(), M::Fault> {
        let own = self.own.front() == Some(&entry.index);
        if own {
            self.own.pop_front();
        }
        let payload: &[u8] = if entry.kind == EntryKind::Normal { &entry.payload } else { &[] };
        self.machine.commit(entry.index, entry.term, payload, own)?;
        self.applied = entry.index;
        self.raft.applied(entry.index);
        let first_of_our_term =
            payload.is_empty() && entry.term == self.raft.term() && self.raft.role() == Role::Leader;
        if first_of_our_term && !self.leading {
            self.leading = true;
            self.machine.lead(entry.term);
        }
        Ok(())
    }
}
