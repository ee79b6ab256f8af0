//! The member as the machine that Raft replicates, as in the server, with each committed entry kept for the checkers.

use std::ops::{Deref, DerefMut};

use bytes::Bytes;
use corral_consensus::{Index, Machine, NodeId, Term};
use corral_core::change::SessionChange;
use corral_core::member::Member;
use corral_core::sequencer::NotABatch;

/// A committed log entry as the checkers want it.
#[derive(Clone, Debug)]
pub(crate) struct CommittedEntry {
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) payload: Vec<u8>,
    /// Ids of the sessions it began, in order: the server's choice, which no model can foresee.
    pub(crate) begun: Vec<i64>,
}

/// See the module.
pub(crate) struct Authority {
    member: Member,
    pub(crate) committed: Vec<CommittedEntry>,
}

impl Authority {
    pub(crate) fn new(member: Member) -> Authority {
        Authority { member, committed: Vec::new() }
    }
}

impl Deref for Authority {
    type Target = Member;

    fn deref(&self) -> &Member {
        &self.member
    }
}

impl DerefMut for Authority {
    fn deref_mut(&mut self) -> &mut Member {
        &mut self.member
    }
}

impl Machine for Authority {
    type Fault = NotABatch;

    fn waiting(&self) -> usize {
        self.sequencer.commands_waiting()
    }

    fn propose(&mut self) -> Option<Bytes> {
        self.member.propose().map(Bytes::from)
    }

    fn waiting_elsewhere(&self) -> Vec<NodeId> {
        self.elsewhere().iter().map(|server| NodeId(u64::from(*server))).collect()
    }

    fn commit(&mut self, index: Index, term: Term, payload: &[u8], own: bool) -> Result<(), NotABatch> {
        let before = self.member.applied().len();
        self.member.commit(index.0, term.0, payload, own)?;
        let txns = self.member.applied()[before..].iter().flat_map(|batch| &batch.txns);
        let begun = txns.filter_map(|txn| match txn.session {
            Some(SessionChange::Created(id)) => Some(id.0),
            _ => None,
        });
        let (index, term) = (index.0, term.0);
        self.committed.push(CommittedEntry { index, term, payload: payload.to_vec(), begun: begun.collect() });
        Ok(())
    }

    fn work(&self) -> u64 {
        self.sequencer.machine().units_spent()
    }

    fn lead(&mut self, term: Term) {
        self.member.lead(term.0);
    }

    fn follow(&mut self) {
        self.member.follow();
    }
}
