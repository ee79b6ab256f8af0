//! The snapshots of this server's own state, and the snapshot of another server that replaces it.
//!
//! The state is frozen and handed to the driver to be written. Then the log is trimmed as far as the kept snapshots
//! allow.
//!
//! Invariants:
//! - One snapshot is in progress at a time. The driver reports the end of each, in the order of the requests.
//! - A snapshot of a state that another server's snapshot has replaced does not count.
//! - While a snapshot of another server is installed, and while the state is corrupt, none is written.

use std::sync::Arc;

use corral_consensus::{Index, Micros};
use corral_core::ids::Zxid;
use corral_core::sequencer::Sequencer;
use corral_core::shard::ShardMessage;

use super::context::Context;
use crate::effect::{Effect, Outbox, ToLog};
use crate::extra::Extra;

/// A snapshot that could not be written is retried after this time, and after twice the time for each further failure.
const RETRY_AFTER: Micros = Micros(10_000_000);
/// How often the time doubles at most.
const RETRY_DOUBLINGS_MAX: u32 = 3;

/// Whether a snapshot that is requested would differ from the last one. Of the empty state there may be none yet.
pub(super) fn differs_from_last(sequencer: &Sequencer) -> bool {
    sequencer.has_changes() || sequencer.view().zxid() == Zxid(0)
}

/// Snapshots in progress, and the part of the log that they make superfluous.
pub(super) struct Snapshots {
    writes: Writes,
    /// Number of snapshots that stay on the disk.
    retained: usize,
    /// A snapshot that could not be written, and when it is retried.
    retry: Option<Retry>,
    /// Failures since the last snapshot that was written.
    failures: u32,
    /// A snapshot of another server replaces everything when the append of that number is durable.
    installing: Option<(u64, Index)>,
    /// Index of the last snapshot installed.
    installed: u64,
    /// Number of snapshots installed.
    installs: u64,
    /// The first entry that a kept snapshot needs.
    log_from: u64,
    /// The log is damaged somewhere up to this entry: a snapshot that holds it replaces all of the log before.
    damaged_to: Option<Index>,
}

struct Retry {
    index: u64,
    at: Micros,
}

impl Snapshots {
    /// `in_progress`: recovery has requested a snapshot. `retained`: number of snapshots that stay on the disk.
    pub(super) fn new(in_progress: bool, retained: usize) -> Snapshots {
        Snapshots {
            writes: Writes::new(in_progress),
            retained,
            retry: None,
            failures: 0,
            installing: None,
            installed: 0,
            installs: 0,
            log_from: 0,
            damaged_to: None,
        }
    }

    /// A write is in progress, and an install has replaced its state.
    #[cfg(test)]
    pub(super) fn replaced_during_write() -> Snapshots {
        let mut snapshots = Snapshots::new(true, 2);
        snapshots.writes.void();
        snapshots.installs = 1;
        snapshots
    }

    /// Freezes the state and requests that it is written, if `wanted`. Every batch so far has been sent to the shards,
    /// because this is called between turns.
    pub(super) fn write_if(&mut self, context: &mut Context<'_>, wanted: impl FnOnce(&Sequencer) -> bool) {
        let Some(members) = self.members_to_keep(context) else { return };
        let sequencer = &mut *context.sequencer;
        if sequencer.snapshot_running() || !wanted(sequencer) {
            return;
        }
        let frozen = sequencer.freeze(context.now.millis(), members);
        tracing::debug!(zxid = %frozen.zxid, nodes = frozen.nodes, "writing a snapshot");
        context.out.shards(ShardMessage::Adopt(Arc::clone(&frozen.delta)));
        self.writes.begin();
        context.out.push(Effect::WriteSnapshot(Box::new(frozen)));
    }

    /// The members, for a snapshot. `None` while no snapshot is written: another server's snapshot replaces everything,
    /// the state is corrupt, or there is no state yet.
    fn members_to_keep(&self, context: &Context<'_>) -> Option<Vec<u8>> {
        let Some(generation) = context.generation else { return Some(Vec::new()) };
        let replica = &*context.replica;
        let is_replaced = self.installing.is_some() || replica.is_state_corrupt() || replica.raft().is_restoring();
        let has_none = is_replaced || context.sequencer.index() == 0;
        (!has_none).then(|| Extra::of(replica.raft(), context.sequencer.machine(), generation).encode())
    }

    // ----- the end of a write -----

    /// The snapshot that ends at `index` was written. Whether it counts: its state was not replaced meanwhile.
    pub(super) fn written(&mut self, index: u64, context: &Context<'_>) -> bool {
        if !self.writes.end() {
            return false;
        }
        let is_void = context.replica.is_state_corrupt()
            || index < self.installed
            || self.installing.is_some_and(|(_, installs)| index < installs.0);
        if !is_void {
            self.failures = 0;
        }
        !is_void
    }

    /// Trims the log behind a snapshot that counts and ends at `index`. `kept`: indices of the snapshots on the disk.
    pub(super) fn trim_log(&mut self, index: u64, kept: &[u64], context: &mut Context<'_>) {
        let drops_log = self.damaged_to.take_if(|upto| Index(index) >= *upto).is_some();
        self.log_from = log_needed_from(kept, self.retained);
        let raft = context.replica.raft();
        let (needed, entries) = (raft.log_needed_from().0, raft.followers().log_entries_kept());
        if entries > 0 {
            tracing::info!(entries, "log entries are kept for a server that receives an older snapshot");
        }
        context.out.log(ToLog::Trim(if drops_log { index + 1 } else { self.log_from.min(needed) }));
        self.replace_damaged_log(context);
    }

    /// If the log has no space, entries that are kept for followers alone are given up.
    pub(super) fn give_up_log_if(&self, full: bool, context: &mut Context<'_>) {
        if full && context.replica.give_up_log() {
            tracing::warn!(
                "the log has no space: entries that followers need behind a snapshot are given up, and those followers receive \
                 another snapshot"
            );
            context.out.log(ToLog::Trim(self.log_from));
        }
    }

    /// A snapshot could not be written. Whether it counts: its state was not replaced meanwhile.
    pub(super) fn failed(&mut self) -> bool {
        self.writes.end()
    }

    /// Schedules the retry of a snapshot that failed and counts. The log still holds everything, and the frozen delta
    /// stays where it is. `was_tried`: writing had begun.
    pub(super) fn retry_later(&mut self, now: Micros, index: u64, was_tried: bool) {
        // Whether there is space is checked again soon: that costs nothing.
        let pause = if was_tried { retry_pause(self.failures) } else { RETRY_AFTER };
        self.failures = self.failures.saturating_add(u32::from(was_tried));
        self.retry = Some(Retry { index, at: now.plus(pause) });
    }

    /// Number of snapshots of other servers installed so far.
    pub(super) fn installs(&self) -> u64 {
        self.installs
    }

    /// Whether a snapshot failed and waits for its retry.
    pub(super) fn is_to_retry(&self) -> bool {
        self.retry.is_some()
    }

    /// One tick: retries a snapshot that failed.
    pub(super) fn tick(&mut self, context: &mut Context<'_>) {
        let now = context.now.micros;
        if !context.replica.is_state_corrupt()
            && let Some(Retry { index, .. }) = self.retry.take_if(|retry| now >= retry.at)
            && let Some(again) = context.sequencer.frozen_again(index)
        {
            self.writes.begin();
            context.out.push(Effect::WriteSnapshot(Box::new(again)));
        }
    }

    // ----- another server's snapshot -----

    /// The snapshot that ends at `index` replaces everything when append `number` is durable.
    pub(super) fn begin_install(&mut self, number: u64, index: Index, out: &mut Outbox) {
        out.log(ToLog::Reset(index.0 + 1));
        self.damaged_to = None;
        self.installing = Some((number, index));
    }

    /// The snapshot that replaces everything just now.
    pub(super) fn installing(&self) -> Option<Index> {
        self.installing.map(|(_, index)| index)
    }

    /// Appends up to `number` are durable. Gives the snapshot that is to be installed now.
    pub(super) fn next_install(&mut self, number: u64) -> Option<Index> {
        let (_, index) = self.installing.take_if(|(wanted, _)| *wanted <= number)?;
        self.state_replaced(index);
        Some(index)
    }

    /// The state is that of another server's snapshot from here on: writes in progress do not count.
    pub(super) fn state_replaced(&mut self, index: Index) {
        self.writes.void();
        self.installed = index.0;
        self.installs += 1;
        // The write that waits for its retry is of the replaced state.
        (self.retry, self.failures) = (None, 0);
    }

    /// Whether a snapshot of the present state is being written.
    pub(super) fn is_writing(&self) -> bool {
        self.writes.in_progress
    }

    // ----- a damaged log -----

    /// Whether a part of the log is damaged and not replaced yet.
    pub(super) fn is_log_damaged(&self) -> bool {
        self.damaged_to.is_some()
    }

    /// The log is damaged. All its entries are in the state, or will be. Behind a snapshot of that state the log before
    /// is not needed. Followers are sent entries from memory, or the snapshot.
    pub(super) fn log_damaged(&mut self, what: &str, context: &mut Context<'_>) {
        tracing::error!(
            "{what}; the state in memory is whole: a snapshot of it takes the place of the log; look at the disk"
        );
        context.out.log(ToLog::Seal);
        self.damaged_to = Some(context.replica.raft().last_index());
        self.replace_damaged_log(context);
    }

    /// Begins a snapshot that holds all of the damaged log, as soon as that is possible. A snapshot in progress was
    /// begun before the damage was found, and must end first. The log must be applied to its end.
    pub(super) fn replace_damaged_log(&mut self, context: &mut Context<'_>) {
        let last = context.replica.raft().last_index();
        let Some(upto) = &mut self.damaged_to else { return };
        // Entries that were truncated since are in no snapshot.
        *upto = last.min(*upto);
        let upto = upto.0;
        self.write_if(context, |sequencer| sequencer.index() >= upto);
    }
}

/// Writes in progress, of the present state and of states that were replaced.
#[derive(Clone, Copy, Debug, Default)]
struct Writes {
    /// One of the present state is in progress.
    in_progress: bool,
    /// So many in progress are of a state that was replaced: their ends do not count.
    void: u32,
}

impl Writes {
    fn new(in_progress: bool) -> Writes {
        Writes { in_progress, ..Writes::default() }
    }

    fn begin(&mut self) {
        self.in_progress = true;
    }

    /// The state is replaced.
    fn void(&mut self) {
        self.void += u32::from(std::mem::take(&mut self.in_progress));
    }

    /// One has ended. Whether it is of the present state.
    fn end(&mut self) -> bool {
        let counts = self.void == 0;
        self.void = self.void.saturating_sub(1);
        self.in_progress &= !counts;
        counts
    }
}

/// The first log entry that a start from the oldest kept snapshot needs: a damaged newest snapshot can then be done without.
/// Until there is a second snapshot the whole log stands in for it.
fn log_needed_from(kept: &[u64], retained: usize) -> u64 {
    if kept.len() < 2 && retained > 1 { 1 } else { kept.iter().min().map_or(1, |oldest| oldest + 1) }
}

/// Time until a snapshot is retried that has failed so often before.
fn retry_pause(failures: u32) -> Micros {
    Micros(RETRY_AFTER.0 << failures.min(RETRY_DOUBLINGS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_stands_in_for_a_second_snapshot() {
        assert_eq!(log_needed_from(&[40], 1), 41, "one snapshot is enough here");
        assert_eq!(log_needed_from(&[40], 3), 1);
        assert_eq!(log_needed_from(&[40, 20], 3), 21);
        assert_eq!(log_needed_from(&[], 1), 1);
    }

    #[test]
    fn pauses_grow_and_stay_short_enough_for_space_that_comes() {
        assert_eq!(
            [0, 1, 2, 3, 4, u32::MAX].map(|failures| retry_pause(failures).0 / 1_000_000),
            [10, 20, 40, 80, 80, 80]
        );
    }
}
