//! The most that the evaluation of a command costs, known before it is ordered.

use super::reconfig::RECONFIG_COST;
use crate::command::CommandKind;
use crate::cost::{self, ACL_ENTRY, CHANGE, COMMAND_MAX, OP, ZNODE};
use crate::ops::caller::{WIDE, wide_cost};
use crate::ops::{Affected, Costs, WriteOp};
use crate::path;
use crate::quota::{QUOTA_COST, QUOTA_DELETE_COST};
use crate::tree::acl;
use crate::tree::view::{NodeRef, View};

/// Further inputs for the most that a command costs, as far as the caller of [`cost_at_most`] knows them.
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
    /// Cost of the znodes that it changes.
    pub(crate) znodes: u64,
}

/// Below so many bytes of a tree, the cost of hashing its data once is not counted.
const DATA_WEIGHED: u64 = 32 << 20;

/// Returns the most cost of the znodes that a command changes, and of their parents. Their data are hashed for the
/// digest, and the place of a child is found among all others. In a tree of few znodes no parent is wide.
#[inline]
pub(crate) fn cost_of_znodes(view: &View, kind: &CommandKind) -> u64 {
    let (has_much_data, may_be_wide) = (view.data_bytes() >= DATA_WEIGHED, view.node_count() > u64::from(WIDE));
    let changes_data = || matches!(kind, CommandKind::Op(op) if op.affected() == Affected::Own);
    let is_weighed = has_much_data || (may_be_wide && !changes_data());
    if is_weighed { cost_of_found(view, kind, has_much_data) } else { 0 }
}

fn cost_of_found(view: &View, kind: &CommandKind, weighs_data: bool) -> u64 {
    let data = |node: &NodeRef<'_>| if weighs_data { cost::bytes(node.data_len()) } else { 0 };
    let of = |path: &str| if weighs_data { view.get(path).map_or(0, |node| data(&node)) } else { 0 };
    let of_parent = |path: &str| {
        let parent = view.get(path::parent(path));
        parent.map_or(0, |parent| data(&parent) + wide_cost(parent.stat().num_children))
    };
    let of_op = |op: &WriteOp| match op.affected() {
        Affected::None => 0,
        Affected::Parent => of_parent(op.path()),
        Affected::Both => of(op.path()) + of_parent(op.path()),
        Affected::Own => of(op.path()),
    };
    match kind {
        CommandKind::Op(op) => of_op(op),
        // So many cost the most that a command may, whatever the data.
        CommandKind::Multi(ops) if ops.len() as u64 * (OP + CHANGE) >= COMMAND_MAX => 0,
        CommandKind::Multi(ops) => ops.iter().map(of_op).sum(),
        _ => 0,
    }
}

/// Returns the most that a command costs, in units of [`crate::cost`].
#[inline]
pub(crate) fn cost_at_most(kind: &CommandKind, at: Circumstances) -> u64 {
    let check = (at.identities * acl::ENTRIES_MAX) as u64 * ACL_ENTRY;
    let one = OP + CHANGE + 2 * check + if at.quotas { QUOTA_COST } else { 0 };
    match kind {
        CommandKind::Op(WriteOp::SetData(_) | WriteOp::Delete(_)) => (one + at.znodes).min(COMMAND_MAX),
        kind => cost_of_others(kind, at, one, check),
    }
}

/// `one` is what a single change costs, `check` that of one ACL.
#[inline(never)]
fn cost_of_others(kind: &CommandKind, at: Circumstances, one: u64, check: u64) -> u64 {
    let deletion = CHANGE + if at.quotas { QUOTA_DELETE_COST } else { 0 };
    let costs = Costs { one, check, deletion };
    // Among many operations each parent that was not changed before counts.
    let parent = |op: &WriteOp| match op.affected() {
        Affected::Parent | Affected::Both => ZNODE + CHANGE,
        Affected::None | Affected::Own => 0,
    };
    match kind {
        CommandKind::Op(op) => op.cost_at_most(&costs).saturating_add(at.znodes).min(COMMAND_MAX),
        CommandKind::Multi(ops) => ops
            .iter()
            .map(|op| op.cost_at_most(&costs) + parent(op))
            .fold(at.znodes, u64::saturating_add)
            .min(COMMAND_MAX),
        CommandKind::CloseSession => OP + deletion * at.ephemerals as u64 + 2 * at.ephemerals_bytes as u64,
        CommandKind::Reconfig(_) => one + RECONFIG_COST,
        CommandKind::SystemNodes(nodes) => one * nodes.len() as u64,
        _ => one,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::ENTRY_MAX;
    use crate::ids::Zxid;
    use crate::ops;
    use crate::ops::CreateOp;
    use crate::shared::Text;
    use crate::tree::acl::Acl;
    use crate::tree::acl::AclSpec;
    use crate::tree::change::Change;
    use crate::tree::znode::{NodeStat, Znode};
    use alloc::format;
    use alloc::sync::Arc;

    #[test]
    fn a_subtree_that_goes_has_an_entry_of_its_own() {
        let removal =
            CommandKind::Op(WriteOp::RemoveRecursive(ops::RemoveRecursive { path: Text::from("/a"), limit: 1000 }));
        let weight = |identities| cost_at_most(&removal, Circumstances { identities, ..Circumstances::default() });
        assert_eq!((weight(0), weight(50)), (ENTRY_MAX, 14_026_900));
    }

    #[test]
    fn a_child_of_a_wide_parent_weighs_more() {
        let mut view = View::empty(7);
        let stat = NodeStat { num_children: 5 << 17, ..NodeStat::default() };
        let (at, node) = (view.hashed(Text::from("/a")), Arc::new(Znode { stat, acl: Acl::Open, data: None }));
        view.apply(Zxid(1), &Change::Created { at, node });
        let path = || Text::from("/a/b");
        let delete = || WriteOp::Delete(ops::Delete { path: path(), version: -1 });
        let try_remove = || WriteOp::TryRemove(ops::TryRemove { path: path(), version: -1 });
        let set = || WriteOp::SetData(ops::SetData { path: path(), data: None, version: -1 });
        let found = [delete(), try_remove(), set()].map(|op| cost_of_found(&view, &CommandKind::Op(op), true));
        assert_eq!(found, [6000, 6000, 0]);
        let multi = CommandKind::Multi(alloc::vec![delete(), set(), try_remove()]);
        assert_eq!(cost_of_found(&view, &multi, true), 12_000);
    }

    #[test]
    fn single_creates_below_a_wide_parent_weigh_more_in_a_tree_of_its_size() {
        let mut view = View::empty(7);
        let mut put = |path: &str| {
            let (at, zxid) = (view.hashed(Text::from(path)), view.zxid());
            let node = Arc::new(Znode { stat: NodeStat::default(), acl: Acl::Open, data: None });
            view.apply(zxid, &Change::Created { at, node });
        };
        put("/narrow");
        put("/wide");
        (0..=WIDE).for_each(|number| put(&format!("/wide/{number}")));
        let create = |path: &str| {
            let (op, acl, path) = (CreateOp::Create, AclSpec::Open, Text::from(path));
            CommandKind::Op(WriteOp::Create(ops::Create { op, path, data: None, acl, flags: 0, ttl_ms: -1 }))
        };
        let weight = |path| cost_of_znodes(&view, &create(path));
        assert_eq!([weight("/narrow/a"), weight("/wide/a"), weight("/a")], [0, 3000, 0]);
    }

    #[test]
    fn operations_of_a_multi_weigh_with_their_parents() {
        let path = || Text::from("/a/b");
        let delete = || WriteOp::Delete(ops::Delete { path: path(), version: -1 });
        let set = || WriteOp::SetData(ops::SetData { path: path(), data: None, version: -1 });
        let weight = |ops| cost_at_most(&CommandKind::Multi(ops), Circumstances::default());
        assert_eq!(weight(alloc::vec![delete(), set()]) - weight(alloc::vec![set(), set()]), ZNODE + CHANGE);
    }
}
