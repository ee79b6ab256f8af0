//! The sequencer as the machine that Raft replicates, as in the server, with each committed entry kept for the checkers.

use bytes::Bytes;
use corral_consensus::{Index, Machine, Term};
use corral_core::change::{AppliedBatch, SessionChange};
use corral_core::ids::{Millis, WallMillis};
use corral_core::sequencer::{NotABatch, Sequencer};

/// A committed log entry as the checkers want it.
#[derive(Clone, Debug)]
pub(crate) struct CommittedEntry {
    pub(crate) index: u64,
    pub(crate) payload: Vec<u8>,
    /// Ids of the sessions it began, in order: the server's choice, which no model can foresee.
    pub(crate) begun: Vec<i64>,
}

/// See the module.
pub(crate) struct Authority {
    pub(crate) sequencer: Sequencer,
    pub(crate) now: Millis,
    pub(crate) wall: WallMillis,
    pub(crate) applied: Vec<AppliedBatch>,
    pub(crate) committed: Vec<CommittedEntry>,
}

impl Authority {
    pub(crate) fn new(sequencer: Sequencer) -> Authority {
        Authority { sequencer, now: Millis(0), wall: WallMillis(0), applied: Vec::new(), committed: Vec::new() }
    }
}

impl Machine for Authority {
    type Fault = NotABatch;

    fn waiting(&self) -> usize {
        self.sequencer.commands_waiting()
    }

    fn propose(&mut self) -> Option<Bytes> {
        let batch = self.sequencer.next_batch(self.wall)?;
        let payload = batch.encode();
        self.sequencer.proposed(batch);
        Some(Bytes::from(payload))
    }

    fn commit(&mut self, index: Index, term: Term, payload: &[u8], own: bool) -> Result<(), NotABatch> {
        let batch = self.sequencer.commit(self.now, index.0, term.0, payload, own)?;
        let begun = batch.txns.iter().filter_map(|txn| match txn.session {
            Some(SessionChange::Created(id)) => Some(id.0),
            _ => None,
        });
        self.committed.push(CommittedEntry { index: index.0, payload: payload.to_vec(), begun: begun.collect() });
        if !batch.txns.is_empty() {
            self.applied.push(batch);
        }
        Ok(())
    }

    fn lead(&mut self, term: Term) {
        self.sequencer.lead(self.now, term.0);
    }

    fn follow(&mut self) {
        self.sequencer.follow();
    }
}
