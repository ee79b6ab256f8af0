//! The state of which a snapshot is written.

use crate::ids::Zxid;
use crate::session::SessionTable;
use crate::tree::delta::Delta;
use crate::tree::snapshot::Snapshot;
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
