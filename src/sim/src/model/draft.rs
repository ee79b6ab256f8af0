//! The changes of one transaction, laid over the tree, and the checks that every write shares.

use std::collections::BTreeMap;

use super::acl::{DELETE, allows};
use super::caller::Caller;
use super::errors::{BAD_ARGUMENTS, NO_AUTH, NOT_EMPTY, expect, need};
use super::node::{CREATED, DELETED, Node, Step, length};
use super::paths::{is_below, is_removable, is_system, parent_of};
use super::quota;
use super::tree::Tree;
use crate::options::Switches;
use crate::request::{Body, NO_NODE};

/// The tree with the changes of one transaction laid over it.
pub(super) struct Draft<'m> {
    pub(super) tree: &'m Tree,
    pub(super) switches: &'m Switches,
    /// The ensemble keeps its membership in the tree.
    pub(super) has_list: bool,
    pub(super) zxid: u64,
    pub(super) changed: BTreeMap<String, Option<Node>>,
    pub(super) steps: Vec<Step>,
}

impl Draft<'_> {
    pub(super) fn node(&self, path: &str) -> Option<&Node> {
        match self.changed.get(path) {
            Some(changed) => changed.as_ref(),
            None => self.tree.node(path),
        }
    }

    /// The znode at a path and all below it.
    pub(super) fn subtree(&self, top: &str) -> impl Iterator<Item = (&str, &Node)> {
        let own = self.changed.iter().filter_map(|(path, node)| Some((path.as_str(), node.as_ref()?)));
        let others = self.tree.nodes().filter(|(path, _)| !self.changed.contains_key(*path));
        own.chain(others).filter(move |(path, _)| *path == top || is_below(path, top))
    }

    pub(super) fn set(&mut self, path: &str, node: Node) {
        self.changed.insert(path.to_owned(), Some(node));
    }

    pub(super) fn step(&mut self, kind: i32, path: &str, node: &Node, parent: Option<&Node>) {
        let parent_acl = parent.map(|parent| parent.acl.clone());
        self.steps.push(Step { kind, path: path.to_owned(), acl: node.acl.clone(), parent_acl });
    }

    /// A znode that was not there, below this parent.
    pub(super) fn add(&mut self, path: &str, node: Node, mut parent: Node) {
        parent.created = parent.created.wrapping_add(1);
        parent.children += 1;
        parent.pzxid = self.zxid;
        self.step(CREATED, path, &node, Some(&parent));
        self.set(path, node);
        self.set(parent_of(path), parent);
    }

    pub(super) fn remove(&mut self, path: &str) {
        let parent_path = parent_of(path);
        let (Some(node), Some(mut parent)) = (self.node(path).cloned(), self.node(parent_path).cloned()) else {
            return;
        };
        parent.children -= 1;
        parent.pzxid = parent.pzxid.max(self.zxid);
        self.step(DELETED, path, &node, Some(&parent));
        self.changed.insert(path.to_owned(), None);
        self.set(parent_path, parent);
        self.account(path, -1, -length(node.data.as_deref()));
    }

    /// Whether a hard limit refuses so much more, judged by the state before this transaction.
    pub(super) fn is_beyond_quota(&self, path: &str, znodes: i64, bytes: i64) -> bool {
        self.switches.enforce_quota && quota::is_beyond(path, znodes, bytes, |path| self.tree.node(path))
    }

    /// Keeps the usage of the subtree that a change belongs to.
    pub(super) fn account(&mut self, path: &str, znodes: i64, bytes: i64) {
        if let Some((stats, node)) = quota::accounted(path, znodes, bytes, |path| self.node(path)) {
            self.set(&stats, node);
        }
    }

    /// A usage znode that was just made counts what is there.
    pub(super) fn count_if_usage(&mut self, path: &str) {
        let Some(root) = quota::counted_by(path) else { return };
        let usage = quota::usage(self.subtree(root).map(|(_, node)| node));
        let mut node = self.node(path).cloned().expect("it was just made");
        node.data = Some(usage);
        self.set(path, node);
    }

    /// No client writes or checks Keeper's system znodes.
    pub(super) fn guard(&self, path: &str) -> Result<(), i32> {
        need(!(self.switches.keeper && is_system(path)), BAD_ARGUMENTS)
    }

    pub(super) fn delete(&mut self, caller: &Caller<'_>, path: &str, version: i32) -> Result<Body, i32> {
        need(is_removable(path), BAD_ARGUMENTS)?;
        self.guard(path)?;
        let parent = self.node(parent_of(path)).ok_or(NO_NODE)?;
        need(allows(&parent.acl, DELETE, caller.identities), NO_AUTH)?;
        let node = self.node(path).ok_or(NO_NODE)?;
        expect(node.version, version)?;
        need(node.children == 0, NOT_EMPTY)?;
        self.remove(path);
        Ok(Body::Deleted)
    }

    pub(super) fn existing(&self, caller: &Caller<'_>, path: &str, wanted: i32) -> Result<Node, i32> {
        self.guard(path)?;
        let node = self.node(path).ok_or(NO_NODE)?;
        need(allows(&node.acl, wanted, caller.identities), NO_AUTH)?;
        Ok(node.clone())
    }
}
