//! Replacing the state of a machine that is corrupt, while the log is intact.
//!
//! The node goes on voting, storing and acknowledging: that needs the log alone. Committed entries are reported applied to
//! Raft and dropped, because the log on disk holds them. A snapshot of another server becomes the state. The entries
//! behind it are applied from this server's own log: from memory as far as that holds them, else from disk.
//!
//! Invariant: a repair never replaces nor shortens the log.

use std::collections::VecDeque;

use crate::types::{Entry, Index};

/// How far the repair of a state is.
#[derive(Debug, Default)]
pub(crate) enum StateRepair {
    /// The state is intact.
    #[default]
    None,
    /// A snapshot is awaited that ends at this entry or behind it.
    AwaitsState {
        /// Snapshots of the corrupt state end here at most, so that the awaited one replaces all of them.
        least: Index,
    },
    /// The state is that of a snapshot, and the entries behind it are being applied.
    Replays {
        /// Entries read from disk.
        read: VecDeque<Entry>,
    },
}

impl StateRepair {
    pub(crate) fn is_active(&self) -> bool {
        !matches!(self, StateRepair::None)
    }

    /// The state is corrupt, and `applied` is its last entry.
    pub(crate) fn begin(&mut self, applied: Index) {
        *self = StateRepair::AwaitsState { least: applied.max(Index(1)) };
    }

    /// Where the awaited snapshot ends at least; `None` if none is awaited.
    pub(crate) fn awaits(&self) -> Option<Index> {
        if let StateRepair::AwaitsState { least } = self { Some(*least) } else { None }
    }

    /// A snapshot became the state.
    pub(crate) fn replay(&mut self) {
        *self = StateRepair::Replays { read: VecDeque::new() };
    }

    /// Entries were read from disk.
    pub(crate) fn add(&mut self, entries: Vec<Entry>) {
        if let StateRepair::Replays { read } = self {
            *read = entries.into();
        }
    }

    /// The entry `next`, if it was read.
    pub(crate) fn take(&mut self, next: Index) -> Option<Entry> {
        let StateRepair::Replays { read } = self else { return None };
        while read.front().is_some_and(|entry| entry.index < next) {
            read.pop_front();
        }
        let is_next = read.front().is_some_and(|entry| entry.index == next);
        if is_next { read.pop_front() } else { None }
    }

    /// Whether the entry `next` was read.
    pub(crate) fn has(&self, next: Index) -> bool {
        let StateRepair::Replays { read } = self else { return false };
        read.back().is_some_and(|last| next <= last.index)
    }

    /// Whether entries behind a snapshot are being applied.
    pub(crate) fn replays(&self) -> bool {
        matches!(self, StateRepair::Replays { .. })
    }
}
