//! Applied transactions, the only input of shards. Each has the changes of the tree, the change of a session, and the outcome
//! for the connection that asked.

use crate::ids::{Origin, SessionId, WallMillis, Zxid};
use crate::ops::OpResult;
use crate::servers::Servers;
use crate::session::Ephemerals;
use crate::shared::Data;
use crate::tree::change::Changes;
use alloc::boxed::Box;
use alloc::vec::Vec;
use corral_wire::error::ErrorCode;
use corral_wire::records::Stat;

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

/// The answer for the connection that proposed the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The result of a single operation. An error also answers a multi that could not be decoded or was refused.
    Op(OpResult),
    /// One result for each operation, in order. When one failed: code 0 before it, its code, then -2.
    Multi(Vec<OpResult>),
    /// The session was created.
    SessionCreated {
        /// Id of the new session.
        session: SessionId,
        /// Negotiated timeout, milliseconds.
        timeout_ms: i32,
        /// The client presents it to attach the session to another connection.
        password: [u8; 16],
    },
    /// The session belongs to the connection of the origin from now on.
    SessionAttached {
        /// Id of the session.
        session: SessionId,
        /// Negotiated timeout, milliseconds. It replaces the former timeout.
        timeout_ms: i32,
        /// Password of the session.
        password: [u8; 16],
        /// The ephemerals of the session at this zxid.
        ephemerals: Ephemerals,
    },
    /// Unknown session, wrong password or table full: the client is told that its session is expired.
    SessionRefused,
    /// The session was closed, or did not exist any more.
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
    /// Changes of the tree, in the order in which watches fire. Empty if nothing changed.
    pub changes: Changes,
    /// The change of a session; `None` if none changed.
    pub session: Option<SessionChange>,
    /// Where the command came from; `None` for the server's own (expiry).
    pub origin: Option<Origin>,
    /// The answer for the connection that `origin` names.
    pub outcome: Outcome,
}

/// All transactions of one committed log entry, shared unchanged by every shard.
#[derive(Clone, Debug, Default)]
pub struct AppliedBatch {
    /// Wall time of the leader that proposed it.
    pub time: WallMillis,
    /// Transactions, one for each command, in the order of the log. None if the zxids did not fit the term.
    pub txns: Vec<AppliedTxn>,
}

/// A committed log entry that was applied.
#[derive(Clone, Debug)]
pub struct AppliedEntry {
    /// Index of the entry in the log.
    pub index: u64,
    /// Term of the entry in the log.
    pub term: u64,
    /// This server proposed it in the present leadership.
    pub own: bool,
    /// ZooKeeper's digest of the tree behind it, if one is kept.
    pub digest: Option<u64>,
    /// Its transactions. None if the entry has no payload.
    pub batch: AppliedBatch,
}
