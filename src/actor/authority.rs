//! The sequencer as the machine that Raft replicates: batches to bytes, bytes to applied batches.
//!
//! On the consensus actor's core. Holds the time of the turn, because the sequencer may not ask for it.

use bytes::Bytes;
use corral_consensus::{Index, Machine, Term};
use corral_core::change::AppliedBatch;
use corral_core::ids::{Millis, WallMillis};
use corral_core::sequencer::{NotABatch, Sequencer};

/// See the module.
pub(crate) struct Authority {
    pub(crate) sequencer: Sequencer,
    /// The time of this turn.
    pub(crate) now: Millis,
    pub(crate) wall: WallMillis,
    /// Whether anybody is to be shown what is applied; nobody is during a recovery.
    pub(crate) shows: bool,
    /// What this turn applied, for the shards.
    pub(crate) applied: Vec<AppliedBatch>,
}

impl Authority {
    pub(crate) fn new(sequencer: Sequencer) -> Authority {
        Authority { sequencer, now: Millis(0), wall: WallMillis(0), shows: true, applied: Vec::new() }
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
        if self.shows && !batch.txns.is_empty() {
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
