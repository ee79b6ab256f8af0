//! ClickHouse Keeper's writes in the model (protocol chapter 38), and the system znodes that no client may write.

use super::acl::{DELETE, READ, allows};
use super::caller::Caller;
use super::draft::Draft;
use super::errors::{BAD_ARGUMENTS, BAD_VERSION, NO_AUTH, NODE_EXISTS, NOT_EMPTY, expect, need};
use super::node::{DATA_CHANGED, DELETED, Node};
use super::paths::{is_legal, is_removable, parent_of};
use crate::request::{AclItem, Body, NO_NODE, Write};

/// The server removes no more znodes in one transaction.
const REMOVED_MAX: usize = 1000;

/// Makes a system znode, or gives it other data.
pub(super) fn make_system(draft: &mut Draft<'_>, time: i64, path: &str, data: &[u8]) {
    if let Some(mut node) = draft.node(path).cloned() {
        if path != "/keeper" && node.data.as_deref() != Some(data) {
            node.set_data(draft.zxid, time, Some(data.to_vec()));
            draft.step(DATA_CHANGED, path, &node, None);
            draft.set(path, node);
        }
    } else if let Some(parent) = draft.node(parent_of(path)).cloned() {
        let node = Node::made(draft.zxid, time, Some(data.to_vec()), vec![AclItem::open()]);
        draft.add(path, node, parent);
    }
}

/// One of Keeper's writes.
pub(super) fn perform(draft: &mut Draft<'_>, caller: &Caller<'_>, write: &Write) -> Result<Body, i32> {
    match write {
        Write::CheckNotExists { path, version } => match legal(draft, caller, path) {
            Err(NO_NODE) => {}
            Err(code) => return Err(code),
            Ok(node) if *version == -1 || *version == node.version => return Err(NODE_EXISTS),
            Ok(_) => {}
        },
        Write::CheckStat { path, version, children } => {
            let node = legal(draft, caller, path)?;
            expect(node.version, *version)?;
            need(*children == -1 || *children == node.children, BAD_VERSION)?;
        }
        Write::TryRemove { path, version } => match draft.delete(caller, path, *version) {
            Ok(_) | Err(NO_NODE | BAD_VERSION | NOT_EMPTY) => {}
            Err(code) => return Err(code),
        },
        Write::RemoveRecursive { path, limit } => remove_recursive(draft, caller, path, *limit)?,
        other => unreachable!("{other:?} is none of Keeper's"),
    }
    Ok(Body::Done)
}

fn legal(draft: &Draft<'_>, caller: &Caller<'_>, path: &str) -> Result<Node, i32> {
    need(is_legal(path), BAD_ARGUMENTS)?;
    draft.existing(caller, path, READ)
}

fn remove_recursive(draft: &mut Draft<'_>, caller: &Caller<'_>, path: &str, limit: u32) -> Result<(), i32> {
    need(is_removable(path), BAD_ARGUMENTS)?;
    draft.guard(path)?;
    let Some(parent) = draft.node(parent_of(path)) else { return Ok(()) };
    need(allows(&parent.acl, DELETE, caller.identities), NO_AUTH)?;
    if draft.node(path).is_none() {
        return Ok(());
    }
    let subtree: Vec<(&str, &Node)> = draft.subtree(path).collect();
    let removed = draft.steps.iter().filter(|step| step.kind == DELETED).count();
    let limit = (limit as usize).min(REMOVED_MAX.saturating_sub(removed));
    need(subtree.len() <= limit, NOT_EMPTY)?;
    need(subtree.iter().all(|(_, node)| allows(&node.acl, DELETE, caller.identities)), NO_AUTH)?;
    let mut paths: Vec<String> = subtree.into_iter().map(|(path, _)| path.to_owned()).collect();
    paths.sort_unstable_by(|a, b| b.cmp(a));
    for path in paths {
        draft.remove(&path);
    }
    Ok(())
}
