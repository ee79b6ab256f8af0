//! The snapshots of this server's state: when the next one is due, and the state of which one is written.

use crate::apply::StateMachine;
use crate::ids::{Millis, Zxid};
use crate::sequencer::snapshot_policy::{SCARCE_SNAPSHOT_MS, SinceSnapshot, SnapshotPolicy, StateSizes};
use crate::session::SessionTable;
use crate::tree::delta::Delta;
use crate::tree::snapshot::Snapshot;
use crate::tree::view::View;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// All that a snapshot writer needs: one zxid's state, immutable.
#[derive(Clone, Debug)]
pub struct FrozenState {
    /// The snapshot below the changes.
    pub snapshot: Arc<Snapshot>,
    /// Changes of the tree since that snapshot.
    pub delta: Arc<Delta>,
    /// Live sessions with their ephemerals.
    pub sessions: SessionTable,
    /// The last zxid that is part of the state.
    pub zxid: Zxid,
    /// Place in the log of the last entry that is part of the state.
    pub index: u64,
    /// Term of that entry.
    pub term: u64,
    /// Znodes of the tree.
    pub nodes: u64,
    /// The driver's own, kept in the snapshot as it is.
    pub extra: Vec<u8>,
}

/// The writes since the last snapshot, and the snapshot in progress.
pub(super) struct Snapshots {
    policy: SnapshotPolicy,
    since: SinceSnapshot,
    /// The state that is being written, to be written again should that fail.
    frozen: Option<FrozenState>,
}

impl Snapshots {
    pub(super) fn new(policy: SnapshotPolicy) -> Self {
        Self { policy, since: SinceSnapshot::default(), frozen: None }
    }

    pub(super) const fn is_running(&self) -> bool {
        self.frozen.is_some()
    }

    pub(super) const fn has_changes(&self) -> bool {
        self.since.is_some()
    }

    /// An entry was applied: so many transactions, and bytes of the log. It took so many units of [`crate::cost`].
    pub(super) fn applied(&mut self, now: Millis, txns: usize, log_bytes: usize, units: u64) {
        self.since.note(&self.policy, now, txns as u64, log_bytes as u64);
        self.since.spent(units);
    }

    /// Whether it is time for the next one. While space is scarce that is sooner.
    pub(super) fn wants_next(&self, now: Millis, view: &View, is_scarce: bool) -> bool {
        !self.is_running()
            && self.has_changes()
            && (self.since.wants_snapshot(&self.policy, now, sizes(view))
                || (is_scarce && self.since.age_ms(now) >= SCARCE_SNAPSHOT_MS))
    }

    pub(super) fn wants_one_of_replay(&self, view: &View) -> bool {
        !self.is_running() && self.since.wants_snapshot_of_replay(&self.policy, sizes(view))
    }

    /// Freezes the state of `machine`, which contains the log up to that index and its term.
    pub(super) fn freeze(
        &mut self,
        now: Millis,
        machine: &mut StateMachine,
        (index, term): (u64, u64),
        extra: Vec<u8>,
    ) -> FrozenState {
        assert!(!self.is_running(), "one snapshot at a time");
        self.since.begin(now);
        let delta = machine.view_mut().freeze();
        let (view, sessions) = (machine.view(), machine.sessions().clone());
        let (snapshot, zxid, nodes) = (Arc::clone(view.snapshot()), view.zxid(), view.node_count());
        let frozen = FrozenState { snapshot, delta, sessions, zxid, index, term, nodes, extra };
        self.frozen = Some(frozen.clone());
        frozen
    }

    pub(super) fn frozen_again(&self, index: u64) -> Option<FrozenState> {
        self.frozen.clone().filter(|frozen| frozen.index == index)
    }

    pub(super) fn ready(
        &mut self,
        machine: &mut StateMachine,
        snapshot: Arc<Snapshot>,
    ) -> (Arc<Snapshot>, Option<FrozenState>) {
        let (former, delta) = machine.view_mut().swap_snapshot(snapshot);
        let frozen = self.frozen.take();
        debug_assert!(
            delta.is_none_or(|delta| frozen.as_ref().is_some_and(|frozen| Arc::ptr_eq(&frozen.delta, &delta))),
            "the delta is that of the frozen state"
        );
        (former, frozen)
    }

    /// The snapshot of another server took the place of the state. Returns the state that was being written.
    pub(super) fn installed(&mut self) -> Option<FrozenState> {
        self.since = SinceSnapshot::default();
        self.frozen.take()
    }
}

fn sizes(view: &View) -> StateSizes {
    StateSizes { delta: view.delta_bytes(), snapshot: view.snapshot().bytes() }
}
