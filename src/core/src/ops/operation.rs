//! The contract of an operation, with defaults for the parts that most do not have.

use super::caller::Caller;
use super::decode::Refused;
use super::draft::Draft;
use super::result::OpResult;
use crate::encoding::Take;
use crate::shared::{Data, Text};
use crate::tree::acl::AclSpec;
use alloc::vec::Vec;
use corral_wire::{ErrorCode, OpCode, Reader};

/// The znodes that an operation changes, for the estimate of its cost.
///
/// `WriteOp::adds_data` is true for each operation with `Own`: a leader short of space or memory refuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Affected {
    /// None: it checks, or its estimate has its changes.
    None,
    /// The parent alone: the znode is new.
    Parent,
    /// The znode and its parent.
    Both,
    /// The znode alone.
    Own,
}

/// Costs of which the estimate for an operation is made, in units of [`crate::cost`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    /// One change with its checks.
    pub(crate) one: u64,
    /// The check of one ACL.
    pub(crate) check: u64,
    /// One deletion.
    pub(crate) deletion: u64,
}

/// An operation that writes, or checks inside a multi. Its field `path` is that of the znode, as sent.
pub(crate) trait Operation: Sized {
    /// The znodes that it changes.
    const AFFECTED: Affected;

    /// Decodes the record of a request outside a multi.
    ///
    /// # Errors
    /// When the record cannot be decoded.
    fn decode(op: OpCode, reader: &mut Reader<'_>) -> Result<Self, Refused>;

    /// The data that it brings.
    fn data(&self) -> Option<&Data> {
        None
    }

    /// The ACL that it brings, as sent.
    fn acl(&self) -> Option<&AclSpec> {
        None
    }

    /// The same, to change it.
    fn acl_mut(&mut self) -> Option<&mut AclSpec> {
        None
    }

    /// The most that its evaluation costs, but for the znodes that it changes.
    fn cost_at_most(&self, costs: &Costs) -> u64 {
        costs.one
    }

    /// Checks and carries it out. Checks stand in ZooKeeper's order, those of Keeper's operations in Keeper's.
    ///
    /// # Errors
    /// The code that the client is answered with.
    fn evaluate(self, caller: &Caller<'_>, draft: &mut Draft<'_>) -> Result<OpResult, ErrorCode>;

    /// Appends its fields behind the path, as they stand in the log.
    fn put(&self, out: &mut Vec<u8>);

    /// Reads what [`Operation::put`] wrote.
    fn take(path: Text, take: &mut Take<'_>) -> Option<Self>;
}
