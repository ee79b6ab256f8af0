//! The changes of a committed transaction: the only input of shards. Whole new znode states, children added or removed,
//! sessions begun, moved or ended, and the outcome for the connection that asked.

use crate::command::Origin;
use crate::ids::{SessionId, WallMillis, Zxid};
use crate::servers::Servers;
use crate::session::Ephemerals;
use crate::shared::{Data, HashedPath, Text};
use crate::znode::Znode;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use corral_wire::error::ErrorCode;
use corral_wire::records::Stat;
use smallvec::SmallVec;

/// One step of a transaction, in the order in which watches fire.
#[derive(Clone, Debug)]
pub enum Change {
    /// A znode appeared. The change of its parent's Stat follows from the zxid: each view makes it itself.
    Created { at: HashedPath, node: Arc<Znode> },
    /// A znode without children went away. The parent's Stat follows as well.
    Deleted { at: HashedPath },
    /// New data.
    DataSet { at: HashedPath, node: Arc<Znode> },
    /// A new state of a znode that fires no watch: another ACL, or a quota's usage.
    Quiet { at: HashedPath, node: Arc<Znode> },
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

/// A change of a session, for the shards' tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionChange {
    /// Begun, owned by the origin of the transaction.
    Created(SessionId),
    /// The origin of the transaction owns it from now on; any other connection of the session is closed.
    Attached(SessionId),
    /// Ended by its client or by expiry; its connections are closed.
    Closed(SessionId),
}

/// Those of ClickHouse Keeper's operations that answer with nothing but success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeeperOp {
    CheckNotExists,
    CheckStat,
    RemoveRecursive,
    TryRemove,
}

/// The result of one operation, as values; the origin's shard turns it into bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpResult {
    Created {
        path: Text,
    },
    CreatedStat {
        path: Text,
        stat: Stat,
    },
    Stat(Stat),
    Deleted,
    Checked,
    /// Of createIfNotExists.
    Ensured {
        path: Text,
    },
    /// Success of an operation without another result.
    Done(KeeperOp),
    Error(ErrorCode),
}

/// The answer for the connection that proposed the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Op(OpResult),
    /// One result for each operation, in order. When one failed: code 0 before it, its code, then -2.
    Multi(Vec<OpResult>),
    SessionCreated {
        session: SessionId,
        timeout_ms: i32,
        password: [u8; 16],
    },
    SessionAttached {
        session: SessionId,
        timeout_ms: i32,
        password: [u8; 16],
        /// The ephemerals of the session at this zxid.
        ephemerals: Ephemerals,
    },
    /// Unknown session, wrong password or table full: the client is told that its session is expired.
    SessionRefused,
    SessionClosed,
    /// Of reconfig: the new membership and its znode's Stat.
    Configured(Box<(Data, Stat)>),
    /// Of reconfig: the leader has to change the membership to this list first, which takes the place of the one with
    /// this version. Not an answer yet.
    Underway(Box<(Servers, u64)>),
    /// The answer to an operation that was under way.
    Later(Box<Self>),
}

impl Outcome {
    /// An operation's error.
    pub const fn refused(code: ErrorCode) -> Self {
        Self::Op(OpResult::Error(code))
    }
}

/// One transaction as applied: shards replay it in this order, see `Shard`.
#[derive(Clone, Debug)]
pub struct AppliedTxn {
    /// The zxid of this transaction. A transaction without a zxid of its own (attach) has the last one before it.
    pub zxid: Zxid,
    pub changes: Changes,
    pub session: Option<SessionChange>,
    /// Where the command came from; `None` for the server's own (expiry).
    pub origin: Option<Origin>,
    pub outcome: Outcome,
}

/// All transactions of one committed log entry, shared unchanged by every shard.
#[derive(Clone, Debug, Default)]
pub struct AppliedBatch {
    /// Wall time of the leader that proposed it.
    pub time: WallMillis,
    pub txns: Vec<AppliedTxn>,
}

/// A committed log entry that was applied.
#[derive(Clone, Debug)]
pub struct AppliedEntry {
    pub index: u64,
    pub term: u64,
    /// This server proposed it in the present leadership.
    pub own: bool,
    /// ZooKeeper's digest of the tree behind it, if one is kept.
    pub digest: Option<u64>,
    /// Its transactions. None if the entry has no payload.
    pub batch: AppliedBatch,
}
