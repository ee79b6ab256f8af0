//! The images of this server's own state.
//!
//! The state is frozen and handed to the driver to be written; of the log, what the kept images hold is let go of. One image at a time.

use std::sync::Arc;

use corral_consensus::{Index, Micros, Term};
use corral_core::sequencer::Sequencer;
use corral_core::shard::Garbage;
use corral_members::Extra;

use super::Engine;
use super::stopping::Stopping;
use crate::effect::{Effect, ToLog, ToShards};
use crate::event::{Now, WrittenImage};
use crate::extra;
use crate::machine::Replicated;
use crate::transfer::Offered;

/// An image that could not be written is tried again after this time, and after twice the time whenever that fails as well.
const RETRY_AFTER: Micros = Micros(10_000_000);
/// Twice the time so often at most.
const RETRY_DOUBLINGS_MAX: u32 = 3;

/// An image that is to be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Retry {
    pub(super) index: u64,
    pub(super) at: Micros,
}

/// Images that are being written. The driver reports the end of each, in the order in which they were ordered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Writes {
    /// One of the present state is under way.
    under_way: bool,
    /// So many are of a state whose place another server's image has taken: their ends do not count.
    void: u32,
    /// One of those was written, perhaps over the file of the image that took its place.
    has_void_file: bool,
}

impl Writes {
    /// `under_way`: recovery has ordered one.
    pub(super) fn new(under_way: bool) -> Writes {
        Writes { under_way, ..Writes::default() }
    }

    fn begin(&mut self) {
        self.under_way = true;
    }

    /// The state is another one from now on.
    pub(super) fn void(&mut self) {
        self.void += u32::from(std::mem::take(&mut self.under_way));
    }

    /// One has ended. Whether it is of the present state.
    fn end(&mut self, is_written: bool) -> bool {
        if self.void == 0 {
            self.under_way = false;
            return true;
        }
        self.void -= 1;
        self.has_void_file |= is_written;
        false
    }
}

impl<M: Replicated> Engine<M> {
    /// Freezes the state and has it written. Every batch so far has been given to the shards, because this runs between turns.
    pub(super) fn write_image_if(&mut self, now: Now, wanted: impl FnOnce(&Sequencer) -> bool) {
        let Some(members) = self.members_to_keep() else { return };
        let sequencer = &mut self.replica.machine_mut().sequencer;
        if sequencer.snapshot_running() || !wanted(sequencer) {
            return;
        }
        let frozen = sequencer.freeze(now.millis(), members);
        tracing::debug!(zxid = %frozen.zxid, nodes = frozen.nodes, "writing an image");
        self.out.shards(ToShards::Adopt(Arc::clone(&frozen.delta)));
        self.writes.begin();
        self.out.push(Effect::WriteImage(Box::new(frozen)));
    }

    /// An image of a state that is no more was written: one of the present state takes its place, in whose file it may be.
    pub(super) fn replace_void_image(&mut self, now: Now) {
        let sequencer = &self.replica.machine().sequencer;
        if self.writes.has_void_file && !sequencer.snapshot_running() {
            self.write_image_if(now, |_| true);
            self.writes.has_void_file = !self.replica.machine().sequencer.snapshot_running();
        }
    }

    /// What an image keeps of the ensemble. `None` where there is nothing to be kept: while another server's image takes the
    /// place of everything, and as long as there is no state at all.
    fn members_to_keep(&self) -> Option<Vec<u8>> {
        let Some(peers) = &self.peers else { return Some(Vec::new()) };
        let restores = self.installing.is_some() || self.replica.is_distrusted() || self.replica.raft().is_restoring();
        let none = restores || self.replica.machine().sequencer.index() == 0;
        (!none).then(|| extra::encode(&Extra::of(&self.replica), peers.generation()))
    }

    pub(super) fn image_written(&mut self, now: Now, written: WrittenImage) {
        if !self.writes.end(true) {
            return;
        }
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
        if let Some(peers) = &mut self.peers {
            peers.offer.add(Offered { index, zxid: image.zxid().0, bytes });
        }
        self.out.status.served_image = index;
        self.out.shards(ToShards::Swap(Arc::clone(&image)));
        let by = Arc::downgrade(&image);
        let (image, frozen) = self.replica.machine_mut().sequencer.image_ready(image);
        self.out.push(Effect::Replaced { image, by });
        self.out.effects.extend(frozen.map(|frozen| Effect::Drop(Garbage::Frozen(frozen))));
        self.replica.compact(Index(index), Term(term));
        self.failures = 0;
        let drops_log = self.damaged_to.take_if(|upto| Index(index) >= *upto).is_some();
        self.out.log(ToLog::Trim(if drops_log { index + 1 } else { log_from }));
        self.replace_damaged_log(now);
    }

    /// The log still holds everything. The frozen delta stays where it is, and the same state is tried again.
    pub(super) fn image_failed(&mut self, now: Now, index: u64, was_tried: bool) {
        if !self.writes.end(false) {
            return;
        }
        if self.stopping != Stopping::No {
            self.stopping = Stopping::Done;
            return;
        }
        // Whether there is space is looked up again soon: that costs nothing.
        let pause = if was_tried { retry_pause(self.failures) } else { RETRY_AFTER };
        self.failures = self.failures.saturating_add(u32::from(was_tried));
        self.retry = Some(Retry { index, at: now.micros.plus(pause) });
    }

    pub(super) fn retry_image(&mut self, now: Now) {
        let Some(Retry { index, .. }) = self.retry.take_if(|retry| now.micros >= retry.at) else { return };
        if let Some(again) = self.replica.machine().sequencer.frozen_again(index) {
            self.writes.begin();
            self.out.push(Effect::WriteImage(Box::new(again)));
        }
    }
}

/// Time until an image is tried again that could not be written so often before this time.
fn retry_pause(failures: u32) -> Micros {
    Micros(RETRY_AFTER.0 << failures.min(RETRY_DOUBLINGS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_stay_short_enough_for_space_that_comes() {
        assert_eq!(
            [0, 1, 2, 3, 4, u32::MAX].map(|failures| retry_pause(failures).0 / 1_000_000),
            [10, 20, 40, 80, 80, 80]
        );
    }
}
