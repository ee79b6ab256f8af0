//! ClickHouse Keeper's writes in the model (protocol chapter 38), and the system znodes that nobody may write.

use super::acl::{DELETE, READ, allows};
use super::rules::{
    BAD_ARGUMENTS, BAD_VERSION, Draft, NO_AUTH, NO_NODE, NODE_EXISTS, NOT_EMPTY, SPECIAL, expect, is_legal, parent_of,
};
use super::{Caller, Model, Node, Step};
use crate::request::{AclItem, Item, Write};

/// The server removes no more znodes in one transaction.
const REMOVED_MAX: usize = 1000;

impl Model {
    /// The server makes its system znodes, or gives them other data.
    pub(crate) fn system_nodes(&mut self, zxid: u64, time: i64, nodes: &[(String, Vec<u8>)]) {
        self.zxid = zxid;
        let mut draft = Draft::new(self, zxid);
        for (path, data) in nodes {
            draft.make_system(zxid, time, path, data);
        }
        let done = draft.finish();
        self.keep(zxid, done);
    }
}

impl Draft<'_> {
    fn make_system(&mut self, zxid: u64, time: i64, path: &str, data: &[u8]) {
        if let Some(mut node) = self.node(path).cloned() {
            if path != "/keeper" && node.data.as_deref() != Some(data) {
                node.data = Some(data.to_vec());
                node.version = node.version.wrapping_add(1);
                (node.mzxid, node.mtime) = (zxid, time);
                self.steps.push(Step::DataSet { path: path.to_owned(), acl: node.acl.clone() });
                self.set(path, node);
            }
            return;
        }
        let Some(mut parent) = self.node(parent_of(path)).cloned() else { return };
        parent.created = parent.created.wrapping_add(1);
        parent.children += 1;
        parent.pzxid = zxid;
        let acl = vec![AclItem::open()];
        self.steps.push(Step::Created { path: path.to_owned(), acl: acl.clone(), parent_acl: parent.acl.clone() });
        let node = Node::made(zxid, time, Some(data.to_vec()), acl);
        self.set(path, node);
        self.set(parent_of(path), parent);
    }

    /// Where Keeper's system znodes are, nobody writes or checks them.
    pub(super) fn guard(&self, path: &str) -> Result<(), i32> {
        let is_system = path == "/keeper" || path.starts_with("/keeper/");
        if self.model.switches.keeper && is_system { Err(BAD_ARGUMENTS) } else { Ok(()) }
    }

    pub(super) fn keeper(&mut self, caller: &Caller<'_>, write: &Write) -> Result<Item, i32> {
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
                if *children != -1 && *children != node.children {
                    return Err(BAD_VERSION);
                }
            }
            Write::TryRemove { path, version } => match self.delete(caller, path, *version) {
                Ok(_) | Err(NO_NODE | BAD_VERSION | NOT_EMPTY) => {}
                Err(code) => return Err(code),
            },
            Write::RemoveRecursive { path, limit } => self.remove_recursive(caller, path, *limit)?,
            other => unreachable!("{other:?} is none of Keeper's"),
        }
        Ok(Item::Done)
    }

    fn legal(&self, caller: &Caller<'_>, path: &str) -> Result<Node, i32> {
        if is_legal(path) { self.existing(caller, path, READ) } else { Err(BAD_ARGUMENTS) }
    }

    fn remove_recursive(&mut self, caller: &Caller<'_>, path: &str, limit: u32) -> Result<(), i32> {
        if !path.contains('/') || path.contains('\0') || SPECIAL.contains(&path) {
            return Err(BAD_ARGUMENTS);
        }
        self.guard(path)?;
        let Some(parent) = self.node(parent_of(path)) else { return Ok(()) };
        if !allows(&parent.acl, DELETE, caller.identities) {
            return Err(NO_AUTH);
        }
        if self.node(path).is_none() {
            return Ok(());
        }
        let below = format!("{path}/");
        let inside = |other: &str| other == path || other.starts_with(&below);
        let own = self.changed.iter().filter_map(|(path, node)| Some((path.as_str(), node.as_ref()?)));
        let others = self.model.nodes().filter(|(path, _)| !self.changed.contains_key(*path));
        let subtree: Vec<(&str, &Node)> = own.chain(others).filter(|(path, _)| inside(path)).collect();
        let removed = self.steps.iter().filter(|step| matches!(step, Step::Deleted { .. })).count();
        let limit = (limit as usize).min(REMOVED_MAX.saturating_sub(removed));
        if subtree.len() > limit {
            return Err(NOT_EMPTY);
        }
        if !subtree.iter().all(|(_, node)| allows(&node.acl, DELETE, caller.identities)) {
            return Err(NO_AUTH);
        }
        let mut paths: Vec<String> = subtree.into_iter().map(|(path, _)| path.to_owned()).collect();
        paths.sort_unstable_by(|a, b| b.cmp(a));
        for path in paths {
            self.remove(&path);
        }
        Ok(())
    }
}
