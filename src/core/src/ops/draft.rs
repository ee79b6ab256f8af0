//! The changes of one transaction while it is being checked: what it would do, seen over the committed tree.
//!
//! A single operation finishes its checks before its only change, so it looks straight at the tree. A multi and the
//! closing of a session read their own earlier changes first.

use crate::ids::Zxid;
use crate::shared::{HashedPath, Text};
use crate::tree::change::{Change, Changes};
use crate::tree::view::{NodeRef, View};
use crate::tree::znode::{NodeStat, Znode};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::ops::Bound;

/// Collects changes; dropped without trace when the transaction fails.
pub(crate) struct Draft<'v> {
    view: &'v View,
    zxid: Zxid,
    /// Nodes as this transaction left them, `None` where it deleted one. Absent for a single operation.
    own: Option<BTreeMap<Text, Option<Arc<Znode>>>>,
    changes: Changes,
    removed: usize,
    quotas: usize,
}

fn is_below(root: &str, path: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'))
}

impl<'v> Draft<'v> {
    /// For one change, or for several none of which depends on another.
    pub(crate) fn single(view: &'v View, zxid: Zxid) -> Self {
        Self { view, zxid, own: None, changes: Changes::new(), removed: 0, quotas: 0 }
    }

    /// For several operations, each of which sees those before it.
    pub(crate) fn chained(view: &'v View, zxid: Zxid) -> Self {
        Self { view, zxid, own: Some(BTreeMap::new()), changes: Changes::new(), removed: 0, quotas: 0 }
    }

    /// Changes of this transaction so far.
    pub(crate) fn change_count(&self) -> usize {
        self.changes.len()
    }

    /// Quotas that this transaction begins.
    pub(crate) const fn quotas(&self) -> usize {
        self.quotas
    }

    /// The last znode created begins a quota.
    pub(crate) fn note_quota(&mut self) {
        self.quotas += 1;
    }

    pub(crate) fn into_changes(self) -> Changes {
        self.changes
    }

    /// The tree without this transaction.
    pub(crate) const fn view(&self) -> &'v View {
        self.view
    }

    /// How many deletions there are so far.
    pub(crate) const fn removed(&self) -> usize {
        self.removed
    }

    /// Whether it is made of several operations.
    pub(crate) const fn is_chained(&self) -> bool {
        self.own.is_some()
    }

    /// Whether this transaction changed or deleted the node.
    pub(crate) fn has_changed(&self, path: &str) -> bool {
        self.own.as_ref().is_some_and(|own| own.contains_key(path))
    }

    /// The node of this path and those below it that this transaction created or changed, as it left them.
    pub(crate) fn changed_below(&self, root: &str) -> impl Iterator<Item = (Text, &Arc<Znode>)> {
        let first = alloc::format!("{root}/");
        let below = self.own.iter().flat_map(move |own| {
            let from = (Bound::Included(&*first), Bound::Unbounded);
            let at_root = own.get_key_value(root).into_iter();
            at_root.chain(own.range::<str, _>(from).take_while(move |(path, _)| is_below(root, path)))
        });
        below.filter_map(|(path, state)| Some((path.clone(), state.as_ref()?)))
    }

    /// The path with its hashes, reusing the tree's own allocation of it where there is one.
    pub(crate) fn hashed(&self, path: Text) -> HashedPath {
        self.view.hashed(path)
    }

    /// As [`Draft::hashed`], for operations that do not concern the parent.
    pub(crate) fn hashed_alone(&self, path: Text) -> HashedPath {
        self.view.hashed_alone(path)
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

    pub(crate) fn create(&mut self, at: HashedPath, node: Arc<Znode>) {
        self.note(&at, Some(&node));
        self.note_parent(&at, NodeStat::add_child);
        self.changes.push(Change::Created { at, node });
    }

    pub(crate) fn delete(&mut self, at: HashedPath) {
        self.note(&at, None);
        self.note_parent(&at, NodeStat::remove_child);
        self.changes.push(Change::Deleted { at });
        self.removed += 1;
    }

    pub(crate) fn set_data(&mut self, at: HashedPath, node: Arc<Znode>) {
        self.note(&at, Some(&node));
        self.changes.push(Change::DataSet { at, node });
    }

    pub(crate) fn set_acl(&mut self, at: HashedPath, node: Arc<Znode>) {
        self.note(&at, Some(&node));
        self.changes.push(Change::Quiet { at, node });
    }

    fn note(&mut self, at: &HashedPath, node: Option<&Arc<Znode>>) {
        if let Some(own) = &mut self.own {
            own.insert(at.path.clone(), node.cloned());
        }
    }

    fn note_parent(&mut self, at: &HashedPath, change: impl FnOnce(&mut NodeStat, Zxid, &str)) {
        if self.own.is_none() {
            return;
        }
        let Some(mut parent) = self.node(at.parent(), at.parent_hash).map(|node| node.to_znode()) else { return };
        change(&mut Arc::make_mut(&mut parent).stat, self.zxid, at.name());
        if let Some(own) = &mut self.own {
            own.insert(Text::from(at.parent()), Some(parent));
        }
    }
}
