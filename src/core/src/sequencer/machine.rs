//! The sequencer as the machine that Raft replicates.

use super::Sequencer;
use super::prepared::NotABatch;
use crate::apply::outcome::AppliedEntry;
use alloc::vec::Vec;
use corral_types::{Index, Machine, ServerId, Term};

impl Machine for Sequencer {
    type Fault = NotABatch;

    fn commands_queued(&self) -> usize {
        self.backlog.commands()
    }

    fn next_batch(&mut self) -> Option<Vec<u8>> {
        let batch = self.take_batch(self.turn.wall())?;
        let payload = batch.encode();
        self.turn.proposed(self.config.server, &batch.commands, payload.len());
        self.proposed(batch);
        Some(payload)
    }

    fn servers_waiting(&self) -> Vec<ServerId> {
        self.turn.servers_waiting().to_vec()
    }

    fn prepare(&mut self, index: Index, term: Term, payload: &[u8]) -> Result<(), NotABatch> {
        self.prepared.prepare(index.0, term.0, payload)
    }

    /// [`Sequencer::take_applied`] gives what was applied.
    fn commit(&mut self, index: Index, term: Term, payload: &[u8], own: bool) -> Result<(), NotABatch> {
        let batch = self.apply_entry(self.turn.now(), index.0, term.0, payload, own)?;
        let digest = self.view().tree_digest();
        self.turn.applied(AppliedEntry { index: index.0, term: term.0, own, digest, batch });
        Ok(())
    }

    fn work(&self) -> u64 {
        self.machine.units_spent()
    }

    fn lead(&mut self, term: Term) {
        self.begin_leadership(self.turn.now(), term.0);
    }

    fn follow(&mut self) {
        self.end_leadership();
    }
}
