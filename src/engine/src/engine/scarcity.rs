//! Scarce disk space or memory of a leader.
//!
//! A leader first transfers leadership to another server, which may have room. A successor without room transfers it on in the same
//! way. A leader that has tried all others refuses writes that add data. It tries them again after a while.

use corral_consensus::{Micros, Replica, ServerId};
use corral_core::sequencer::Sequencer;
use corral_core::shard::ShardMessage;

use crate::effect::Outbox;

/// Time after which a server may be tried again.
const TRY_AGAIN: Micros = Micros(60_000_000);

/// Whether disk space or memory is scarce.
#[derive(Default)]
pub(super) struct Scarcity {
    present: bool,
    /// Servers to which leadership was transferred, and when the first was.
    tried: Vec<ServerId>,
    since: Micros,
    /// Whether writes were refused at the last tick.
    refused: bool,
}

impl Scarcity {
    pub(super) fn set(&mut self, present: bool) {
        if present != self.present {
            self.tried.clear();
        }
        self.present = present;
    }

    /// One tick: transfers leadership, or decides whether writes that add data are refused.
    pub(super) fn tick(&mut self, now: Micros, replica: &mut Replica, sequencer: &mut Sequencer, out: &mut Outbox) {
        let waits = self.present && (replica.raft().is_transferring() || self.transfer(now, replica));
        sequencer.refuse_growth(self.present && !waits);
        let refuses = sequencer.refuses_growth();
        if refuses != self.refused {
            self.refused = refuses;
            // Shards answer their clients without an entry in the log.
            out.shards(ShardMessage::Growth(refuses));
            if refuses {
                tracing::error!(
                    "this leader refuses writes that add data: its disk space or memory is scarce, and no other server took over"
                );
            } else {
                tracing::info!("this server refuses no writes any more");
            }
        }
    }

    /// Whether a transfer to another server begins.
    fn transfer(&mut self, now: Micros, replica: &mut Replica) -> bool {
        if now.since(self.since) >= TRY_AGAIN {
            self.tried.clear();
        }
        let Some(successor) = replica.raft().followers().successor_except(&self.tried) else { return false };
        if replica.transfer(successor).is_err() {
            return false;
        }
        if self.tried.is_empty() {
            self.since = now;
        }
        self.tried.push(successor);
        tracing::warn!(to = successor.0, "disk space or memory is scarce: transferring leadership");
        true
    }
}
