//! The changes of one transaction while it is being checked: what it would do, seen over the committed tree.
//!
//! A single operation finishes its checks before its only change, so it looks straight at the tree; a multi and the
//! closing of a session read their own earlier changes first.

use crate::change::Change;
use crate::shared::{HashedPath, Text};
use crate::view::{NodeRef, View};
use crate::znode::Znode;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Bound;

/// Collects changes; dropped without trace when the transaction fails.
pub(crate) struct Draft<'v> {
    view: &'v View,
    /// Nodes as this transaction left them, `None` where it deleted one. Absent for a single operation.
    own: Option<BTreeMap<Text, Option<Arc<Znode>>>>,
    changes: Vec<Change>,
}

impl<'v> Draft<'v> {
    /// For one operation.
    pub(crate) const fn single(view: &'v View) -> Self {
        Self { view, own: None, changes: Vec::new() }
    }

    /// For several operations, each of which sees those before it.
    pub(crate) const fn chained(view: &'v View) -> Self {
        Self { view, own: Some(BTreeMap::new()), changes: Vec::new() }
    }

    /// Changes of this transaction so far.
    pub(crate) fn change_count(&self) -> usize {
        self.changes.len()
    }

    pub(crate) fn into_changes(self) -> Vec<Change> {
        self.changes
    }

    /// The tree without this transaction.
    pub(crate) const fn view(&self) -> &'v View {
        self.view
    }

    /// How many deletions there are so far.
    pub(crate) fn removed(&self) -> usize {
        self.changes.iter().filter(|change| matches!(change, Change::Deleted { .. })).count()
    }

    /// Whether this transaction changed or deleted the node.
    pub(crate) fn has_changed(&self, path: &str) -> bool {
        self.own.as_ref().is_some_and(|own| own.contains_key(path))
    }

    /// The node of this path and those below it that this transaction created or changed, as it left them.
    pub(crate) fn changed_below(&self, root: &str) -> impl Iterator<Item = (Text, &Arc<Znode>)> {
        let below =
            move |path: &str| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let range = self.own.iter().flat_map(move |own| own.range::<str, _>((Bound::Included(root), Bound::Unbounded)));
        range
            .take_while(move |(path, _)| path.starts_with(root))
            .filter(move |(path, _)| below(path))
            .filter_map(|(path, state)| Some((path.clone(), state.as_ref()?)))
    }

    /// The path with its hashes, reusing the tree's own allocation of it where there is one.
    pub(crate) fn hashed(&self, path: Text) -> HashedPath {
        self.view.hashed(path)
    }

    /// The node as this transaction sees it.
    pub(crate) fn node(&self, path: &str, hash: u64) -> Option<NodeRef<'_>> {
        if let Some(own) = &self.own
            && let Some(state) = own.get(path)
        {
            return state.as_ref().map(NodeRef::Live);
        }
        self.view.get_hashed(path, hash)
    }

    pub(crate) fn create(&mut self, at: HashedPath, node: Arc<Znode>, parent: Arc<Znode>) {
        self.note(&at, Some(&node), Some(&parent));
        self.changes.push(Change::Created { at, node, parent });
    }

    pub(crate) fn delete(&mut self, at: HashedPath, parent: Arc<Znode>) {
        self.note(&at, None, Some(&parent));
        self.changes.push(Change::Deleted { at, parent });
    }

    pub(crate) fn set_data(&mut self, at: HashedPath, node: Arc<Znode>) {
        self.note(&at, Some(&node), None);
        self.changes.push(Change::DataSet { at, node });
    }

    pub(crate) fn set_acl(&mut self, at: HashedPath, node: Arc<Znode>) {
        self.note(&at, Some(&node), None);
        self.changes.push(Change::Quiet { at, node });
    }

    fn note(&mut self, at: &HashedPath, node: Option<&Arc<Znode>>, parent: Option<&Arc<Znode>>) {
        let Some(own) = &mut self.own else { return };
        own.insert(at.path.clone(), node.cloned());
        if let Some(parent) = parent {
            own.insert(Text::from(at.parent()), Some(Arc::clone(parent)));
        }
    }
}
