//! What evaluating a command costs at most, known before it is ordered.

use super::keeper::REMOVED_MAX;
use super::quota::{COUNT_COST, QUOTA_COST, counts};
use crate::acl;
use crate::command::{AclSpec, CommandKind, WriteOp};
use crate::cost::{self, ACL_ENTRY, CHANGE, COMMAND_MAX, NAME, OP, ZNODE};

/// What it costs at most to store an ACL.
const ACL_COST: u64 = cost::bytes(acl::BYTES_MAX) + acl::ENTRIES_MAX as u64 * NAME;

/// What a command costs at most depends on this besides, as far as it is known where the cost is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances {
    /// Identities of the connection.
    pub(crate) identities: usize,
    /// Ephemerals of the command's session; asked for when the session is to be closed.
    pub(crate) ephemerals: usize,
    /// Whether any subtree has a quota.
    pub(crate) quotas: bool,
}

/// What a command costs at most, in units of [`crate::cost`].
pub(crate) fn cost_at_most(kind: &CommandKind, at: Circumstances) -> u64 {
    let check = (at.identities * acl::ENTRIES_MAX) as u64 * ACL_ENTRY;
    let one = OP + CHANGE + 2 * check + if at.quotas { QUOTA_COST } else { 0 };
    let of_op = |op: &WriteOp| match op {
        WriteOp::RemoveRecursive { .. } => one + REMOVED_MAX as u64 * (ZNODE + CHANGE + check),
        WriteOp::Create { path, .. } if counts(path) => one + COUNT_COST + ACL_COST,
        WriteOp::Create { acl, .. } | WriteOp::SetAcl { acl, .. } if *acl != AclSpec::Open => one + ACL_COST,
        _ => one,
    };
    match kind {
        CommandKind::Op(op) => of_op(op).min(COMMAND_MAX),
        CommandKind::Multi(ops) => ops.iter().map(of_op).sum::<u64>().min(COMMAND_MAX),
        CommandKind::CloseSession => OP + CHANGE * at.ephemerals as u64,
        CommandKind::SystemNodes(nodes) => one * nodes.len() as u64,
        _ => one,
    }
}
