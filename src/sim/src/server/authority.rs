//! The member as the machine that Raft replicates, as in the server, with each committed entry kept for the checkers.

use std::ops::{Deref, DerefMut};

use bytes::Bytes;
use corral_consensus::{Index, Machine, NodeId, Term};
use corral_core::change::SessionChange;
use corral_core::command::Batch;
use corral_core::member::Member;
use corral_core::sequencer::NotABatch;

/// How many entries lie between those that [`Bug::Diverge`] changes.
const DIVERGE_EVERY: u64 = 16;

/// A committed log entry as the checkers want it.
#[derive(Clone, Debug)]
pub(crate) struct CommittedEntry {
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) payload: Vec<u8>,
    /// ZooKeeper's digest of the tree behind it.
    pub(crate) digest: Option<u64>,
    /// Ids of the sessions it began, in order: the server's choice, which no model can foresee.
    pub(crate) begun: Vec<i64>,
}

/// See the module.
pub(crate) struct Authority {
    member: Member,
    /// With [`Bug::Diverge`]: some entries are applied with another time.
    diverges: bool,
    pub(crate) committed: Vec<CommittedEntry>,
}

impl Authority {
    pub(crate) fn new(member: Member, diverges: bool) -> Authority {
        Authority { member, diverges, committed: Vec::new() }
    }

    /// The entry as this server applies it. A leader compares its own with what it proposed, so that those stay.
    fn applied_as(&self, index: Index, payload: &[u8], own: bool) -> Vec<u8> {
        match Batch::decode(payload) {
            Ok(mut batch) if self.diverges && !own && index.0.is_multiple_of(DIVERGE_EVERY) => {
                batch.time.0 += 1;
                batch.encode()
            }
            _ => payload.to_vec(),
        }
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

    fn prepare(&mut self, index: Index, term: Term, payload: &[u8]) -> Result<(), NotABatch> {
        self.sequencer.prepare(index.0, term.0, payload)
    }

    fn commit(&mut self, index: Index, term: Term, payload: &[u8], own: bool) -> Result<(), NotABatch> {
        let before = self.member.applied().len();
        let applied = self.applied_as(index, payload, own);
        self.member.commit(index.0, term.0, &applied, own)?;
        let txns = self.member.applied()[before..].iter().flat_map(|batch| &batch.txns);
        let begun = txns.filter_map(|txn| match txn.session {
            Some(SessionChange::Created(id)) => Some(id.0),
            _ => None,
        });
        let (begun, digest) = (begun.collect(), self.sequencer.machine().view().tree_digest());
        let (index, term) = (index.0, term.0);
        self.committed.push(CommittedEntry { index, term, payload: payload.to_vec(), digest, begun });
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
