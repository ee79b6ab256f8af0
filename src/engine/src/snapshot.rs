//! Snapshots as the engine handles them: loaded from disk, received from another server, offered to other servers.
//!
//! A leaf: nothing is sent or installed here.

use std::sync::Arc;

use bytes::Bytes;
use corral_core::apply::StateMachine;
use corral_core::tree::snapshot::Snapshot;
use corral_peer::Generation;

use crate::extra::Extra;

/// The whole file of a snapshot, for other servers.
pub trait SnapshotContent: Send + Sync {
    /// Length of the file in bytes.
    fn size(&self) -> u64;

    /// A copy of `bytes` bytes from `offset` on.
    ///
    /// # Panics
    /// If the range is not within the file.
    fn copy(&self, offset: u64, bytes: usize) -> Bytes;
}

/// A verified snapshot with its position in the log.
pub struct LoadedSnapshot {
    /// The snapshot.
    pub snapshot: Arc<Snapshot>,
    /// Index of the last entry that it contains.
    pub index: u64,
    /// Term of that entry.
    pub term: u64,
    /// Zxid of its state.
    pub zxid: u64,
    /// The whole file.
    pub bytes: Arc<dyn SnapshotContent>,
}

impl LoadedSnapshot {
    /// Generation of its data; the first for a snapshot of a standalone server.
    #[must_use]
    pub fn generation(&self) -> Generation {
        Extra::decode(self.snapshot.extra()).map_or(Generation::FIRST, |extra| extra.generation)
    }

    /// Its state, with the membership change that it was taken in, if any. Takes time in proportion to the sessions.
    #[must_use]
    pub fn state(&self) -> StateMachine {
        let state = StateMachine::of_snapshot(Arc::clone(&self.snapshot));
        let Ok(Extra { begun, has_admitted, ensemble_id, .. }) = Extra::decode(self.snapshot.extra()) else {
            return state;
        };
        state.in_the_middle_of(begun).after_admitted(has_admitted).of_ensemble(ensemble_id)
    }

    /// The snapshot as it is offered to other servers.
    #[must_use]
    pub fn offered(&self) -> Offered {
        Offered { index: self.index, zxid: self.zxid, bytes: Arc::clone(&self.bytes) }
    }
}

/// A snapshot received from another server, with its state. To make the state takes long, so the thread that wrote the
/// snapshot makes it.
pub struct Arrived {
    /// The snapshot.
    pub loaded: LoadedSnapshot,
    /// Its state.
    pub state: StateMachine,
}

impl From<LoadedSnapshot> for Box<Arrived> {
    fn from(loaded: LoadedSnapshot) -> Self {
        Box::new(Arrived { state: loaded.state(), loaded })
    }
}

/// A durable snapshot that is offered to other servers.
#[derive(Clone)]
pub struct Offered {
    /// Index of the last entry that it contains.
    pub index: u64,
    /// Zxid of its state.
    pub zxid: u64,
    /// The whole file.
    pub bytes: Arc<dyn SnapshotContent>,
}
