//! Every version of every znode, and the steps of each transaction.

use std::collections::BTreeMap;

use super::node::{Node, Step};
use crate::limits::{COUNTED_MAX, DELETED_MAX};

#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    versions: BTreeMap<String, Vec<(u64, Option<Node>)>>,
    steps: BTreeMap<u64, Vec<Step>>,
}

impl Tree {
    /// A tree of these znodes, from the beginning on.
    pub(super) fn of<'n>(nodes: impl IntoIterator<Item = (&'n str, Node)>) -> Tree {
        let versions = nodes.into_iter().map(|(path, node)| (path.to_owned(), vec![(0, Some(node))])).collect();
        Tree { versions, steps: BTreeMap::new() }
    }

    /// Keeps the changes of a transaction.
    pub(super) fn commit(&mut self, zxid: u64, changed: BTreeMap<String, Option<Node>>, steps: Vec<Step>) {
        for (path, node) in changed {
            self.versions.entry(path).or_default().push((zxid, node));
        }
        if !steps.is_empty() {
            self.steps.insert(zxid, steps);
        }
    }

    pub(crate) fn node(&self, path: &str) -> Option<&Node> {
        self.versions.get(path)?.last()?.1.as_ref()
    }

    /// The znode as it was right after the transaction `zxid`.
    pub(crate) fn node_at(&self, path: &str, zxid: u64) -> Option<&Node> {
        let versions = self.versions.get(path)?;
        let after = versions.partition_point(|(at, _)| *at <= zxid);
        versions.get(after.checked_sub(1)?)?.1.as_ref()
    }

    /// The names of the children right after the transaction `zxid`, sorted.
    pub(crate) fn children_at(&self, path: &str, zxid: u64) -> Vec<String> {
        let below = self.below_at(path, zxid);
        below.filter(|name| !name.contains('/')).map(str::to_owned).collect()
    }

    /// The rest of the path of every znode below this one right after the transaction `zxid`, sorted.
    pub(crate) fn below_at(&self, path: &str, zxid: u64) -> impl Iterator<Item = &str> {
        let prefix = if path == "/" { "/".to_owned() } else { format!("{path}/") };
        let paths = self.versions.range(prefix.clone()..).map(|(path, _)| path);
        let names = paths.map_while(move |path| Some((path, path.strip_prefix(&prefix)?)));
        names.filter(move |(path, name)| !name.is_empty() && self.node_at(path, zxid).is_some()).map(|(_, name)| name)
    }

    /// The ephemerals of a session right after the transaction `zxid` with paths that begin with the text, sorted.
    pub(crate) fn owned_at(&self, session: i64, prefix: &str, zxid: u64) -> Vec<String> {
        let owned = |path: &str| self.node_at(path, zxid).is_some_and(|node| node.owner == session);
        self.versions.keys().filter(|path| path.starts_with(prefix) && owned(path)).cloned().collect()
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.versions.iter().filter_map(|(path, list)| Some((path.as_str(), list.last()?.1.as_ref()?)))
    }

    /// Whether a server would count the whole tree at once, even a little later.
    pub(crate) fn is_counted_at_once(&self) -> bool {
        let (mut znodes, mut deletions) = (0, 0);
        for (_, node) in self.nodes() {
            znodes += 1;
            deletions += node.created.saturating_sub(node.children).max(0);
        }
        znodes <= COUNTED_MAX && deletions <= DELETED_MAX
    }

    /// The steps of the transactions after `from` up to `to`, in order.
    pub(crate) fn steps(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, &Step)> {
        let range = (std::ops::Bound::Excluded(from), std::ops::Bound::Included(to.max(from)));
        let range = if to > from { Some(self.steps.range::<u64, _>(range)) } else { None };
        range.into_iter().flatten().flat_map(|(zxid, steps)| steps.iter().map(|step| (*zxid, step)))
    }
}
