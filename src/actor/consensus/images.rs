//! The images that the consensus actor has written of its own state.
//!
//! Part of the actor, on its core. It freezes the state and hands it to the image writer; of the log, what the kept images hold is let go
//! of. One image at a time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use corral_consensus::{Index, Term};
use corral_core::sequencer::Sequencer;
use corral_core::shard::Garbage;
use corral_members::Extra;
use glommio::timer::Timer;

use crate::actor::consensus::ConsensusActor;
use crate::actor::consensus::stopping::Stopping;
use crate::actor::messages::{ToConsensus, ToLog, ToShard, ToWriter, WrittenImage};
use crate::actor::transfer::Offered;
use crate::node::membership;

/// An image that could not be written is tried again after this time, and after twice the time whenever that fails as well.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// Twice the time so often at most.
const RETRY_DOUBLINGS_MAX: u32 = 3;

impl ConsensusActor {
    /// Freezes the state and hands it to the writer. Every batch so far has been sent to the shards, because this runs
    /// between turns.
    pub(super) fn snapshot_if(&mut self, wanted: impl FnOnce(&Sequencer) -> bool) {
        let now = self.clock.now();
        let Some(members) = self.members_to_keep() else { return };
        let sequencer = &mut self.replica.machine_mut().sequencer;
        if sequencer.snapshot_running() || !wanted(sequencer) {
            return;
        }
        let frozen = sequencer.freeze(now, members);
        tracing::debug!(zxid = %frozen.zxid, nodes = frozen.nodes, "writing an image");
        self.tell_shards(|| ToShard::Adopt(Arc::clone(&frozen.delta)));
        let _ = self.links.writer.send(ToWriter::Write(Box::new(frozen)));
    }

    /// What an image keeps of the ensemble. `None` where there is nothing to be kept: while another server's image takes the
    /// place of everything, and as long as there is no state at all.
    fn members_to_keep(&self) -> Option<Vec<u8>> {
        let Some((peers, _)) = &self.links.peers else { return Some(Vec::new()) };
        let restores = self.installing.is_some() || self.replica.is_distrusted() || self.replica.raft().is_restoring();
        let none = restores || self.replica.machine().sequencer.index() == 0;
        (!none).then(|| membership::to_image(&Extra::of(&self.replica), peers.generation()))
    }

    pub(super) fn image_written(&mut self, written: WrittenImage) {
        let WrittenImage { image, bytes, index, term, log_from } = written;
        if self.replica.is_distrusted()
            || index < self.installed
            || self.installing.is_some_and(|(_, installs)| index < installs.0)
        {
            // Of the state before another server's image took its place.
            return;
        }
        if self.replica.raft().is_newborn() {
            self.formed();
        }
        if let Some((peers, _)) = &mut self.links.peers {
            peers.offer.add(Offered { index, zxid: image.zxid().0, bytes });
        }
        self.links.gauges.served_image.store(index, Ordering::Relaxed);
        self.tell_shards(|| ToShard::Swap(Arc::clone(&image)));
        let by = Arc::downgrade(&image);
        let (image, frozen) = self.replica.machine_mut().sequencer.image_ready(image);
        let _ = self.links.writer.send(ToWriter::Replaced { image, by });
        if let Some(frozen) = frozen {
            let _ = self.links.writer.send(ToWriter::Drop(Garbage::Frozen(frozen)));
        }
        self.replica.compact(Index(index), Term(term));
        self.failures = 0;
        let drops_log = self.damaged_to.take_if(|upto| Index(index) >= *upto).is_some();
        let _ = self.links.log.send(ToLog::Trim(if drops_log { index + 1 } else { log_from }));
        self.replace_damaged_log();
    }

    /// The log still holds everything. The frozen delta stays where it is, and the same state is tried again.
    pub(super) fn image_failed(&mut self, index: u64, was_tried: bool) {
        if self.stopping != Stopping::No {
            self.stopping = Stopping::Done;
            return;
        }
        self.retrying = true;
        // Whether there is space is looked up again soon: that costs nothing.
        let pause = if was_tried { retry_pause(self.failures) } else { RETRY_AFTER };
        self.failures = self.failures.saturating_add(u32::from(was_tried));
        let own = self.links.own.clone();
        glommio::spawn_local(async move {
            Timer::new(pause).await;
            let _ = own.send(ToConsensus::RetryImage(index));
        })
        .detach();
    }

    pub(super) fn retry_image(&mut self, index: u64) {
        self.retrying = false;
        if let Some(again) = self.replica.machine().sequencer.frozen_again(index) {
            let _ = self.links.writer.send(ToWriter::Write(Box::new(again)));
        }
    }
}

/// Time until an image is tried again that could not be written so often before this time.
fn retry_pause(failures: u32) -> Duration {
    RETRY_AFTER * (1 << failures.min(RETRY_DOUBLINGS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_stay_short_enough_for_space_that_comes() {
        assert_eq!([0, 1, 2, 3, 4, u32::MAX].map(|failures| retry_pause(failures).as_secs()), [10, 20, 40, 80, 80, 80]);
    }
}
