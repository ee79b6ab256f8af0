//! The changes of the tree that one transaction makes: whole new znode states, children added or removed.

use crate::shared::HashedPath;
use crate::tree::znode::Znode;
use alloc::sync::Arc;
use smallvec::SmallVec;

/// One step of a transaction, in the order in which watches fire.
#[derive(Clone, Debug)]
pub enum Change {
    /// A znode appeared. The change of its parent's Stat follows from the zxid: each view makes it itself.
    Created {
        /// Path of the znode.
        at: HashedPath,
        /// The new znode.
        node: Arc<Znode>,
    },
    /// A znode without children went away. The parent's Stat follows as well.
    Deleted {
        /// Path of the znode.
        at: HashedPath,
    },
    /// New data.
    DataSet {
        /// Path of the znode.
        at: HashedPath,
        /// The whole znode with the new data.
        node: Arc<Znode>,
    },
    /// A new state of a znode that fires no watch: another ACL, or a quota's usage.
    Quiet {
        /// Path of the znode.
        at: HashedPath,
        /// The whole znode in its new state.
        node: Arc<Znode>,
    },
}

impl Change {
    /// The znode that changes, or that is created or deleted.
    pub const fn at(&self) -> &HashedPath {
        match self {
            Self::Created { at, .. } | Self::Deleted { at } | Self::DataSet { at, .. } | Self::Quiet { at, .. } => at,
        }
    }
}

/// The steps of one transaction in order; nearly always one.
pub type Changes = SmallVec<[Change; 1]>;
