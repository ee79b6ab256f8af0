//! ClickHouse Keeper's writes in the model (protocol chapter 38), and the system znodes that no client may write.

use super::acl::{DELETE, READ, allows};
use super::rules::{
    BAD_ARGUMENTS, BAD_VERSION, Draft, NO_AUTH, NODE_EXISTS, NOT_EMPTY, expect, is_legal, is_removable, need, parent_of,
};
use super::{Caller, DATA_CHANGED, DELETED, Model, Node};
use crate::request::{AclItem, Body, NO_NODE, Write};

/// The server removes no more znodes in one transaction.
const REMOVED_MAX: usize = 1000;

pub(crate) fn is_system(path: &str) -> bool {
    path == "/keeper" || path.starts_with("/keeper/")
}

impl Model {
    /// The server makes its system znodes, or gives them other data.
    pub(crate) fn system_nodes(&mut self, zxid: u64, time: i64, nodes: &[(String, Vec<u8>)]) {
        self.change(zxid, |draft| {
            nodes.iter().for_each(|(path, data)| draft.make_system(time, path, data));
            true
        });
    }
}

impl Draft<'_> {
    fn make_system(&mut self, time: i64, path: &str, data: &[u8]) {
        if let Some(mut node) = self.node(path).cloned() {
            if path != "/keeper" && node.data.as_deref() != Some(data) {
                node.set_data(self.zxid, time, Some(data.to_vec()));
                self.step(DATA_CHANGED, path, &node, None);
                self.set(path, node);
            }
        } else if let Some(parent) = self.node(parent_of(path)).cloned() {
            let node = Node::made(self.zxid, time, Some(data.to_vec()), vec![AclItem::open()]);
            self.add(path, node, parent);
        }
    }

    /// No client writes or checks Keeper's system znodes.
    pub(super) fn guard(&self, path: &str) -> Result<(), i32> {
        need(!(self.model.switches.keeper && is_system(path)), BAD_ARGUMENTS)
    }

    pub(super) fn keeper(&mut self, caller: &Caller<'_>, write: &Write) -> Result<Body, i32> {
        match write {
            Write::CheckNotExists { path, version } => match self.legal(caller, path) {
                Err(NO_NODE) => {}
                Err(code) => return Err(code),
                Ok(node) if *version == -1 || *version == node.version => return Err(NODE_EXISTS),
                Ok(_) => {}
            },
            Write::CheckStat { path, version, children } => {
                let node = self.legal(caller, path)?;
                expect(node.version, *version)?;
                need(*children == -1 || *children == node.children, BAD_VERSION)?;
            }
            Write::TryRemove { path, version } => match self.delete(caller, path, *version) {
                Ok(_) | Err(NO_NODE | BAD_VERSION | NOT_EMPTY) => {}
                Err(code) => return Err(code),
            },
            Write::RemoveRecursive { path, limit } => self.remove_recursive(caller, path, *limit)?,
            other => unreachable!("{other:?} is none of Keeper's"),
        }
        Ok(Body::Done)
    }

    fn legal(&self, caller: &Caller<'_>, path: &str) -> Result<Node, i32> {
        need(is_legal(path), BAD_ARGUMENTS)?;
        self.existing(caller, path, READ)
    }

    fn remove_recursive(&mut self, caller: &Caller<'_>, path: &str, limit: u32) -> Result<(), i32> {
        need(is_removable(path), BAD_ARGUMENTS)?;
        self.guard(path)?;
        let Some(parent) = self.node(parent_of(path)) else { return Ok(()) };
        need(allows(&parent.acl, DELETE, caller.identities), NO_AUTH)?;
        if self.node(path).is_none() {
            return Ok(());
        }
        let subtree: Vec<(&str, &Node)> = self.subtree(path).collect();
        let removed = self.steps.iter().filter(|step| step.kind == DELETED).count();
        let limit = (limit as usize).min(REMOVED_MAX.saturating_sub(removed));
        need(subtree.len() <= limit, NOT_EMPTY)?;
        need(subtree.iter().all(|(_, node)| allows(&node.acl, DELETE, caller.identities)), NO_AUTH)?;
        let mut paths: Vec<String> = subtree.into_iter().map(|(path, _)| path.to_owned()).collect();
        paths.sort_unstable_by(|a, b| b.cmp(a));
        for path in paths {
            self.remove(&path);
        }
        Ok(())
    }
}
