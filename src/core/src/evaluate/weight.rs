//! What evaluating a command costs at most, known before it is ordered.

use super::keeper::REMOVED_MAX;
use super::quota::{COUNT_COST, QUOTA_COST, QUOTA_DELETE_COST, counts};
use crate::acl;
use crate::command::{AclSpec, CommandKind, WriteOp};
use crate::cost::{self, ACL_ENTRY, CHANGE, COMMAND_MAX, NAME, OP, ZNODE};
use crate::path;
use crate::view::View;

/// What it costs at most to store an ACL.
const ACL_COST: u64 = cost::bytes(acl::BYTES_MAX) + acl::ENTRIES_MAX as u64 * NAME;

/// What a command costs at most depends on this besides, as far as it is known where the cost is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Circumstances {
    /// Identities of the connection.
    pub(crate) identities: usize,
    /// Ephemerals of the command's session; asked for when the session is to be closed.
    pub(crate) ephemerals: usize,
    /// Bytes of the paths of these.
    pub(crate) ephemerals_bytes: usize,
    /// Whether any subtree has a quota.
    pub(crate) quotas: bool,
    /// What it costs to hash the data of the znodes that it changes.
    pub(crate) data: u64,
}

/// Below so many bytes of a tree, what its data cost to be hashed once is not worth a look.
const DATA_WEIGHED: u64 = 32 << 20;

/// What it may cost to hash the data of the znodes that a command changes, and of their parents, for the digest.
#[inline]
pub(crate) fn cost_of_data(view: &View, kind: &CommandKind) -> u64 {
    if view.data_bytes() < DATA_WEIGHED { 0 } else { cost_of_found_data(view, kind) }
}

fn cost_of_found_data(view: &View, kind: &CommandKind) -> u64 {
    let of = |path: &str| view.get(path).map_or(0, |node| cost::bytes(node.data_len()));
    let of_op = |op: &WriteOp| match op {
        WriteOp::Create { path, .. } => of(path::parent(path)),
        WriteOp::Delete { path, .. } => of(path) + of(path::parent(path)),
        WriteOp::SetData { path, .. } | WriteOp::SetAcl { path, .. } => of(path),
        _ => 0,
    };
    match kind {
        CommandKind::Op(op) => of_op(op),
        CommandKind::Multi(ops) => ops.iter().map(of_op).sum(),
        _ => 0,
    }
}

/// What a command costs at most, in units of [`crate::cost`].
#[inline]
pub(crate) fn cost_at_most(kind: &CommandKind, at: Circumstances) -> u64 {
    let check = (at.identities * acl::ENTRIES_MAX) as u64 * ACL_ENTRY;
    let one = OP + CHANGE + 2 * check + if at.quotas { QUOTA_COST } else { 0 };
    match kind {
        CommandKind::Op(WriteOp::SetData { .. } | WriteOp::Delete { .. }) => (one + at.data).min(COMMAND_MAX),
        kind => cost_of_others(kind, at, one, check),
    }
}

/// `one` is what a single change costs, `check` that of one ACL.
#[inline(never)]
fn cost_of_others(kind: &CommandKind, at: Circumstances, one: u64, check: u64) -> u64 {
    let deletion = CHANGE + if at.quotas { QUOTA_DELETE_COST } else { 0 };
    let of_op = |op: &WriteOp| match op {
        WriteOp::RemoveRecursive { .. } => one + REMOVED_MAX as u64 * (ZNODE + deletion + check),
        WriteOp::Create { path, .. } if counts(path) => one + COUNT_COST + ACL_COST,
        WriteOp::Create { acl, .. } | WriteOp::SetAcl { acl, .. } if *acl != AclSpec::Open => one + ACL_COST,
        _ => one,
    };
    match kind {
        CommandKind::Op(op) => (of_op(op) + at.data).min(COMMAND_MAX),
        CommandKind::Multi(ops) => (ops.iter().map(of_op).sum::<u64>() + at.data).min(COMMAND_MAX),
        CommandKind::CloseSession => OP + deletion * at.ephemerals as u64 + 2 * at.ephemerals_bytes as u64,
        CommandKind::SystemNodes(nodes) => one * nodes.len() as u64,
        _ => one,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::Text;

    #[test]
    fn a_subtree_that_goes_weighs_more_where_there_are_quotas() {
        let removal = CommandKind::Op(WriteOp::RemoveRecursive { path: Text::from("/a"), limit: 1000 });
        let weight = |quotas| cost_at_most(&removal, Circumstances { quotas, ..Circumstances::default() });
        assert_eq!(weight(true) - weight(false), QUOTA_COST + REMOVED_MAX as u64 * QUOTA_DELETE_COST);
    }
}
