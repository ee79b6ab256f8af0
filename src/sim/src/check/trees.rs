//! Trees: every view of the server holds the model's tree, znode by znode, whenever all is at rest. That is after a
//! restart, on every shard, after the last crash (architecture, "What must always hold" 1, 6 and 7).

use corral_core::session::SessionTable;
use corral_core::tree::view::View;

use crate::check::checkers::Checkers;
use crate::model::Node;
use crate::request::AclItem;
use crate::violation::{Checked, require};

/// Compares a view with the model, znode by znode.
pub(crate) fn same_tree(checkers: &Checkers, whose: &str, view: &View) -> Checked {
    let (at, right) = (view.zxid().0, checkers.model.zxid);
    require(at == right, "trees", || format!("{whose} is at {at:#x}, the model at {right:#x}"))?;
    let mut first_wrong = None;
    let mut count = 0_u64;
    view.walk("/", |path, node| {
        count += 1;
        let acl: Vec<AclItem> = node.acl().iter().map(|(perms, scheme, id)| AclItem::new(perms, scheme, id)).collect();
        let same =
            |right: &Node| right.stat() == node.wire_stat() && right.data.as_deref() == node.data() && right.acl == acl;
        if !checkers.model.tree.node(path).is_some_and(same) {
            let got = (node.wire_stat(), node.data().map(<[u8]>::to_vec), acl);
            first_wrong = Some(format!("{whose}: {path}: {got:?}, the model has {:?}", checkers.model.tree.node(path)));
        }
        first_wrong.is_none()
    });
    require(first_wrong.is_none(), "trees", || first_wrong.unwrap_or_default())?;
    let missing = checkers.model.tree.nodes().find(|(path, _)| view.get(path).is_none()).map(|(path, _)| path);
    require(missing.is_none(), "trees", || format!("{whose} lacks {missing:?}"))?;
    let counted = view.node_count();
    require(counted == count, "trees", || format!("{whose} counts {counted} znodes and has {count}"))
}

/// Compares the session table with the model; each ephemeral is known by its session.
pub(crate) fn same_sessions(checkers: &Checkers, table: &SessionTable) -> Checked {
    let got: Vec<_> = table.iter().map(|(id, session)| (id.0, session.timeout_ms, session.password)).collect();
    let right: Vec<_> =
        checkers.model.sessions.iter().map(|(id, session)| (*id, session.timeout_ms, session.password)).collect();
    require(got == right, "sessions", || format!("the table holds {got:x?}, right is {right:x?}"))?;
    for (id, session) in table.iter() {
        let owned = checkers.model.tree.nodes().filter(|(_, node)| node.owner == id.0).map(|(path, _)| path);
        let listed = session.ephemerals.iter().map(|path| &**path);
        require(listed.eq(owned), "sessions", || format!("session {id} lists {:?}", session.ephemerals))?;
    }
    let orphan = checkers
        .model
        .tree
        .nodes()
        .find(|(_, node)| node.owner != 0 && !checkers.model.sessions.contains_key(&node.owner));
    require(orphan.is_none(), "sessions", || format!("{orphan:?} has no living session"))
}
