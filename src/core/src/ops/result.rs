//! The result of one operation, as values. The origin's shard turns it into bytes.

use crate::shared::Text;
use corral_wire::records::Stat;
use corral_wire::{ErrorCode, OpCode};

/// The result of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpResult {
    /// Of create.
    Created {
        /// Path of the new znode, with its sequence number.
        path: Text,
    },
    /// Of create2, createContainer and createTTL.
    CreatedStat {
        /// Path of the new znode, with its sequence number.
        path: Text,
        /// Stat of the new znode.
        stat: Stat,
    },
    /// Of setData and setACL: the new Stat.
    Stat(Stat),
    /// Of createIfNotExists.
    Ensured {
        /// Path of the znode, new or not.
        path: Text,
    },
    /// Success of an operation without another result: in a multi its op code is the type of the result.
    Done(OpCode),
    /// The operation failed and changed nothing.
    Error(ErrorCode),
}

impl OpResult {
    /// Success of the server's own commands.
    pub const CHECKED: Self = Self::Done(OpCode::Check);
}
