//! The server's [`Member`] as the machine that Raft replicates.
//!
//! On the consensus actor's core. Holds nothing of its own: only here may both be named, the core's struct and the
//! consensus crate's trait. The simulator has the same few lines for its own sake.

use std::ops::{Deref, DerefMut};

use bytes::Bytes;
use corral_consensus::{Index, Machine, NodeId, Term};
use corral_core::member::Member;
use corral_core::sequencer::NotABatch;

/// See the module.
pub(crate) struct Authority(pub(crate) Member);

impl Deref for Authority {
    type Target = Member;

    fn deref(&self) -> &Member {
        &self.0
    }
}

impl DerefMut for Authority {
    fn deref_mut(&mut self) -> &mut Member {
        &mut self.0
    }
}

impl Machine for Authority {
    type Fault = NotABatch;

    fn waiting(&self) -> usize {
        self.sequencer.commands_waiting()
    }

    fn propose(&mut self) -> Option<Bytes> {
        self.0.propose().map(Bytes::from)
    }

    fn waiting_elsewhere(&self) -> Vec<NodeId> {
        self.elsewhere().iter().map(|server| NodeId(u64::from(*server))).collect()
    }

    fn prepare(&mut self, index: Index, term: Term, payload: &[u8]) -> Result<(), NotABatch> {
        self.sequencer.prepare(index.0, term.0, payload)
    }

    fn commit(&mut self, index: Index, term: Term, payload: &[u8], own: bool) -> Result<(), NotABatch> {
        self.0.commit(index.0, term.0, payload, own)
    }

    fn work(&self) -> u64 {
        self.sequencer.machine().units_spent()
    }

    fn lead(&mut self, term: Term) {
        self.0.lead(term.0);
    }

    fn follow(&mut self) {
        self.0.follow();
    }
}
