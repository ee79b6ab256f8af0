//! The layers of a view's tree, and a znode's list of children in all of them.
//!
//! A look-up of one znode goes through the layers by itself (`view.rs`). On the core of its view.

use crate::tree::delta::{Delta, Entry, NodeState};
use crate::tree::digest;
use crate::tree::kids::Kids;
use crate::tree::overlay::{Overlay, overlay};
use crate::tree::snapshot::{Names, Snapshot};

/// All layers.
#[derive(Clone, Copy)]
pub(crate) struct Layers<'v> {
    pub(super) live: &'v Delta,
    pub(super) below: Below<'v>,
}

/// The layers below the live delta.
#[derive(Clone, Copy)]
pub(super) struct Below<'v> {
    pub(super) frozen: Option<&'v Delta>,
    pub(super) snapshot: &'v Snapshot,
}

impl<'v> Below<'v> {
    /// All layers, with this one on top.
    pub(super) const fn under(self, live: &'v Delta) -> Layers<'v> {
        Layers { live, below: self }
    }

    /// The CRC that the digest of the tree has for a znode.
    pub(super) fn crc(self, path: &str, hash: u64) -> Option<u32> {
        if let Some(entry) = self.frozen.and_then(|frozen| frozen.entry(path, hash)) {
            let node = entry.state.node()?;
            return Some(entry.crc.unwrap_or_else(|| digest::crc_of(path, node.data.as_deref(), &node.stat)));
        }
        self.snapshot.find(path, hash).map(|node| node.crc())
    }
}

/// The children of a znode: live marks over frozen ones over the snapshot.
pub type Children<'v> = Overlay<'v, Overlay<'v, Names<'v>>>;

/// Most cost of reading a list of children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChildrenSize {
    /// Names and marks in all layers.
    pub(crate) entries: usize,
    /// Bytes of them.
    pub(crate) bytes: usize,
}

/// One list of children, from the top layer down to the first that hides all below it.
#[derive(Default)]
pub(super) struct List<'v> {
    pub(super) live: Option<&'v Kids>,
    pub(super) frozen: Option<&'v Kids>,
    pub(super) names: Names<'v>,
    count: usize,
}

impl List<'_> {
    fn size(&self) -> ChildrenSize {
        let kids = [self.live, self.frozen].into_iter().flatten();
        let (marks, bytes) = kids.fold((0, 0), |(len, bytes), kids| (len + kids.len(), bytes + kids.bytes()));
        ChildrenSize { entries: self.count + marks, bytes: self.names.bytes() + bytes }
    }
}

impl<'v> Layers<'v> {
    /// The list of a znode's children. `None` if there is no such znode.
    pub(super) fn list(self, path: &str, hash: u64) -> Option<List<'v>> {
        let live = self.live.entry(path, hash);
        let frozen = self.below.frozen.and_then(|frozen| frozen.entry(path, hash));
        let top = live.or(frozen);
        if let Some(entry) = top {
            entry.state.node()?;
        }
        let hidden = |entry: Option<&Entry>| entry.is_some_and(|entry| !entry.state.shows_below());
        let frozen_kids = if hidden(live) { None } else { frozen.and_then(present_kids) };
        let snapshot = if hidden(live) || hidden(frozen) { None } else { self.below.snapshot.find(path, hash) };
        if top.is_none() && snapshot.is_none() {
            return None;
        }
        let names = snapshot.map_or_else(Names::default, |node| node.names());
        let count = snapshot.map_or(0, |node| node.stat().num_children as usize);
        Some(List { live: live.and_then(present_kids), frozen: frozen_kids, names, count })
    }

    /// Returns the most cost of reading the children of a znode, without reading any.
    pub(super) fn children_size(self, path: &str, hash: u64) -> Option<ChildrenSize> {
        Some(self.list(path, hash)?.size())
    }

    /// The names of a znode's children, sorted by their bytes, and how many names and marks they are made of.
    pub(super) fn children_and_size(self, path: &str, hash: u64) -> Option<(ChildrenSize, Children<'v>)> {
        let list = self.list(path, hash)?;
        let size = list.size();
        let List { live, frozen, names, .. } = list;
        Some((size, overlay(overlay(names, frozen), live)))
    }
}

fn present_kids(entry: &Entry) -> Option<&Kids> {
    match entry.state {
        NodeState::Present(_) | NodeState::Recreated(_) => entry.kids.as_deref(),
        NodeState::Deleted => None,
    }
}
