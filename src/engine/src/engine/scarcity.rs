//! Scarce disk space or memory of a leader.
//!
//! A leader first transfers leadership to another server, which may have room. If it still leads, it refuses writes that add data.
//! Transfers are rare: the others may have no more room.

use corral_consensus::{Micros, Replica};

use crate::machine::Replicated;

/// Least time between two transfers.
const TRANSFER_PAUSE: Micros = Micros(300_000_000);

/// Whether disk space or memory is scarce.
#[derive(Default)]
pub(super) struct Scarcity {
    present: bool,
    transferred: Option<Micros>,
}

impl Scarcity {
    pub(super) fn set(&mut self, present: bool) {
        self.present = present;
    }

    /// One tick: transfers leadership, or decides whether writes that add data are refused.
    pub(super) fn tick<M: Replicated>(&mut self, now: Micros, replica: &mut Replica<M>) {
        let waits = self.present && (replica.raft().is_transferring() || self.transfer(now, replica));
        replica.machine_mut().sequencer.refuse_growth(self.present && !waits);
    }

    /// Whether a transfer to another server begins.
    fn transfer<M: Replicated>(&mut self, now: Micros, replica: &mut Replica<M>) -> bool {
        if self.transferred.is_some_and(|at| now.since(at) < TRANSFER_PAUSE) {
            return false;
        }
        let Some(successor) = replica.raft().followers().successor() else { return false };
        let begins = replica.transfer(successor).is_ok();
        if begins {
            self.transferred = Some(now);
            tracing::warn!(to = successor.0, "disk space or memory is scarce: transferring leadership");
        }
        begins
    }
}
