//! The tree as one actor sees it, always at exactly one zxid: a live delta, over perhaps a frozen one, over the
//! snapshot.
//!
//! Each shard and the state machine own a view; it lives on its owner's core and moves only by [`View::apply`]. Reads
//! take no lock and no atomic: snapshot, frozen delta and znodes are shared but immutable. A view knows no sessions, no
//! watches and no rules; what may change and how is decided before (`apply`).

mod compacted;
mod digested;
mod pieces;
mod warming;

use crate::ids::Zxid;
use crate::path;
use crate::shared::{HashedPath, Text};
use crate::tree::acl::{Acl, AclEntry, AclList, Identity};
use crate::tree::change::Change;
use crate::tree::delta::{Delta, Entry, KidNote, NodeState};
use crate::tree::digest::TreeDigest;
use crate::tree::kids::{Kids, Mark};
use crate::tree::overlay::Overlay;
use crate::tree::path_hash::PathHasher;
use crate::tree::snapshot::{Names, Snapshot, SnapshotNode, initial_snapshot};
use crate::tree::znode::{NodeStat, Owner, Znode};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use compacted::Compactions;
pub(crate) use compacted::marks_at_most;
use core::mem;
use corral_wire::records::Stat;
pub(crate) use pieces::{ChildrenSize, ListPosition};
use xxhash_rust::xxh3::Xxh3;

pub(crate) use warming::{WARM_MAX, Warming};

/// The tree at one zxid.
#[derive(Clone, Debug)]
pub struct View {
    live: Delta,
    frozen: Option<Arc<Delta>>,
    snapshot: Arc<Snapshot>,
    hasher: PathHasher,
    zxid: Zxid,
    // Sums start from the numbers of a snapshot, so they saturate: nonsense in its bytes must not stop the process.
    nodes: u64,
    data_bytes: u64,
    ephemerals: u64,
    /// Of the state machine's view alone.
    digest: TreeDigest,
    compactions: Compactions,
}

impl View {
    /// The tree of a snapshot.
    pub fn new(snapshot: Arc<Snapshot>) -> Self {
        let stats = snapshot.stats();
        Self {
            live: Delta::default(),
            frozen: None,
            hasher: PathHasher::new(snapshot.seed()),
            zxid: snapshot.zxid(),
            nodes: stats.nodes,
            data_bytes: stats.data_bytes,
            ephemerals: stats.ephemerals,
            digest: TreeDigest::default(),
            compactions: Compactions::default(),
            snapshot,
        }
    }

    /// The tree of a new data directory: `/`, `/zookeeper`, `/zookeeper/quota`, `/zookeeper/config`.
    pub fn empty(seed: u64) -> Self {
        Self::new(Arc::new(initial_snapshot(seed)))
    }

    /// The hasher of this view's paths.
    pub const fn hasher(&self) -> PathHasher {
        self.hasher
    }

    /// A path with its hashes, ready for a [`Change`].
    pub fn hashed(&self, path: Text) -> HashedPath {
        HashedPath::new(path, true, |path| self.hasher.hash(path))
    }

    /// The path with its own hash alone, ready for a [`Change`] of the znode's own state.
    pub(crate) fn hashed_alone(&self, path: Text) -> HashedPath {
        HashedPath::new(path, false, |path| self.hasher.hash(path))
    }

    /// The znode at this path; `None` if it does not exist.
    #[inline]
    pub fn get(&self, path: &str) -> Option<NodeRef<'_>> {
        self.get_hashed(path, self.hasher.hash(path))
    }

    /// As [`View::get`], with the hash of the path by this view's hasher.
    #[inline]
    pub fn get_hashed(&self, path: &str, hash: u64) -> Option<NodeRef<'_>> {
        match self.live.entry(path, hash) {
            Some(entry) => entry.state.node().map(NodeRef::Live),
            None => self.get_below(path, hash),
        }
    }

    fn get_below(&self, path: &str, hash: u64) -> Option<NodeRef<'_>> {
        if let Some(entry) = self.frozen.as_ref().and_then(|frozen| frozen.entry(path, hash)) {
            return entry.state.node().map(NodeRef::Live);
        }
        self.snapshot.find(path, hash).map(NodeRef::Snapshot)
    }

    /// The path's shared allocation, if a delta holds one: saves a new one for a change of an existing znode.
    pub fn key(&self, path: &str, hash: u64) -> Option<Text> {
        let entry = self.live.entry(path, hash).or_else(|| self.frozen.as_ref()?.entry(path, hash));
        entry.map(|entry| entry.path.clone())
    }

    /// Moves the tree by one change of the transaction of this zxid. The view's own zxid is set apart, once for a whole
    /// transaction.
    pub fn apply(&mut self, zxid: Zxid, change: &Change) {
        match change {
            Change::Created { at, node } => {
                debug_assert!(self.get_hashed(&at.path, at.hash).is_none(), "{:?} exists", at.path);
                self.nodes = self.nodes.saturating_add(1);
                self.data_bytes = self.data_bytes.saturating_add(size(&at.path, node.data_len()));
                self.ephemerals = self.ephemerals.saturating_add(is_ephemeral(&node.stat).into());
                let crc = self.crc_of(&at.path, node);
                self.live.create(&at.path, at.hash, node, crc);
                self.digest.moves(None, crc);
                self.note_child(at, KidNote::Set(at, Mark::Added), |stat| stat.add_child(zxid, at.name()));
            }
            Change::Deleted { at } => self.delete(zxid, at),
            Change::DataSet { at, node } | Change::Quiet { at, node } => {
                let crc = match change {
                    Change::Quiet { .. } => self.crc_of_quiet(&at.path, at.hash, node),
                    _ => self.crc_of(&at.path, node),
                };
                let here = self.live.set(&at.path, at.hash, node, crc);
                let data = |old: NodeRef<'_>| old.data().map_or(0, <[u8]>::len);
                let old = here.map(|old| old.data).or_else(|| self.get_below(&at.path, at.hash).map(data));
                debug_assert!(old.is_some(), "{:?} does not exist", at.path);
                if crc.is_some() {
                    let before = here.map_or_else(|| self.crc_below(&at.path, at.hash), |old| old.crc);
                    self.digest.moves(before, crc);
                }
                let old = old.unwrap_or(0) as u64;
                self.data_bytes = self.data_bytes.saturating_add(node.data_len() as u64).saturating_sub(old);
            }
        }
    }

    fn delete(&mut self, zxid: Zxid, at: &HashedPath) {
        let Some(old) = self.get_hashed(&at.path, at.hash) else {
            debug_assert!(false, "{:?} does not exist", at.path);
            return;
        };
        let (data, stat) = (old.data().map_or(0, <[u8]>::len), old.stat());
        debug_assert!(stat.num_children == 0, "{:?} has children", at.path);
        self.nodes = self.nodes.saturating_sub(1);
        self.data_bytes = self.data_bytes.saturating_sub(size(&at.path, data));
        self.ephemerals = self.ephemerals.saturating_sub(is_ephemeral(&stat).into());
        let exists_below = self.get_below(&at.path, at.hash).is_some();
        if self.counts(&at.path) {
            let here = self.live.entry(&at.path, at.hash).map(Entry::known_crc);
            let before = here.unwrap_or_else(|| self.crc_below(&at.path, at.hash));
            self.digest.moves(before, None);
        }
        self.live.delete(&at.path, at.hash, exists_below);
        if !self.compactions.copies.is_empty() {
            self.drop_copy(&at.path, at.hash);
        }
        let note = if exists_below { KidNote::Set(at, Mark::Removed) } else { KidNote::Forget(at.name()) };
        self.note_child(at, note, |stat| stat.remove_child(zxid, at.name()));
    }

    /// Notes a child in its parent.
    fn note_child(&mut self, at: &HashedPath, note: KidNote<'_>, change: impl FnOnce(&mut NodeStat)) {
        let (path, hash) = (at.parent(), at.parent_hash);
        debug_assert!(self.get_hashed(path, hash).is_some(), "{path:?} does not exist");
        let kept = self.counts(path);
        let Self { live, frozen, snapshot, .. } = self;
        let crc = || if kept { digested::crc_in(frozen.as_deref(), snapshot, path, hash) } else { None };
        let below = || match frozen.as_ref().and_then(|frozen| frozen.entry(path, hash)) {
            Some(entry) => Some((entry.path.clone(), Arc::clone(entry.state.node()?), crc())),
            None => Some((Text::from(path), Arc::new(snapshot.find(path, hash)?.to_znode()), crc())),
        };
        let noted = live.note_child(path, hash, note, kept, change, below);
        if let Some((before, after)) = noted.moved {
            self.digest.moves(Some(before), Some(after));
        }
        if !self.compactions.copies.is_empty() {
            self.compactions.copies.note(path, hash, note);
        }
        if noted.stepped {
            self.compact_children(path, hash);
        }
        if self.compactions.are_due() {
            self.compact_some();
        }
    }

    /// The names of a znode's children, sorted by their bytes; `None` if there is no such znode. Their number is the
    /// znode's `num_children`.
    pub fn children(&self, path: &str) -> Option<Children<'_>> {
        self.children_hashed(path, self.hasher.hash(path))
    }

    /// As [`View::children`], with the hash of the path.
    pub fn children_hashed(&self, path: &str, hash: u64) -> Option<Children<'_>> {
        self.children_and_size(path, hash).map(|(_, children)| children)
    }

    /// Visits a znode and all below it, parents before children and siblings in order, until `visit` gives `false`.
    /// Never more visits than there are znodes, even in a snapshot with inconsistent names. The present and deleted
    /// children of a znode are looked at after it was visited, and only if it has any.
    pub fn walk<'v>(&'v self, path: &str, mut visit: impl FnMut(&str, NodeRef<'v>) -> bool) {
        let mut levels: Vec<(String, Children<'v>)> = Vec::new();
        let (mut next, mut left) = (Some(String::from(path)), self.nodes);
        while let Some(path) = next.take() {
            let hash = self.hasher.hash(&path);
            if let Some(node) = self.get_hashed(&path, hash) {
                if left == 0 || !visit(&path, node) {
                    return;
                }
                left -= 1;
                if node.stat().num_children > 0 {
                    levels.extend(self.children_hashed(&path, hash).map(|children| (path, children)));
                }
            }
            while next.is_none()
                && let Some((parent, children)) = levels.last_mut()
            {
                match children.next() {
                    Some(name) => next = Some(path::child(parent, name)),
                    None => drop(levels.pop()),
                }
            }
        }
    }

    /// A hash over every znode: path, stat, ACL and data. The same for the same tree, however it is layered. Takes time
    /// and memory in proportion to the tree: for tests and comparisons.
    pub fn digest(&self) -> u64 {
        let mut digest = Xxh3::new();
        self.walk("/", |path, node| {
            digest_node(&mut digest, path, &node);
            true
        });
        digest.digest()
    }

    /// The last zxid applied.
    pub const fn zxid(&self) -> Zxid {
        self.zxid
    }

    /// Sets the last zxid that was applied. Panics in debug builds if it is less than the present one.
    pub fn set_zxid(&mut self, zxid: Zxid) {
        debug_assert!(zxid >= self.zxid, "zxids only grow");
        self.zxid = zxid;
    }

    /// Number of znodes, the root counted once.
    pub const fn node_count(&self) -> u64 {
        self.nodes
    }

    /// Bytes of all paths and all data. ZooKeeper's `approximateDataSize` is the same with paths in UTF-16 units.
    pub const fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Number of ephemeral znodes.
    pub const fn ephemerals_count(&self) -> u64 {
        self.ephemerals
    }

    /// Estimated heap bytes of the live delta.
    pub const fn delta_bytes(&self) -> usize {
        self.live.bytes()
    }

    /// Paths in the live delta.
    pub const fn delta_len(&self) -> usize {
        self.live.len()
    }

    /// The snapshot below all changes.
    pub const fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// The frozen delta that the next snapshot will contain; `None` if there is none.
    pub const fn frozen(&self) -> Option<&Arc<Delta>> {
        self.frozen.as_ref()
    }

    /// Starts a new live delta. The former one, up to the present zxid, is frozen. It is given to the snapshot writer
    /// and to the shards (see [`View::adopt_frozen`]).
    ///
    /// # Panics
    /// When one is frozen already.
    pub fn freeze(&mut self) -> Arc<Delta> {
        assert!(self.frozen.is_none(), "one delta is frozen at a time");
        let mut delta = mem::take(&mut self.live);
        delta.seal(self.zxid, self.digest.value());
        let frozen = Arc::new(delta);
        self.frozen = Some(Arc::clone(&frozen));
        frozen
    }

    /// Replaces the live delta by the equal delta of another view, frozen at the same zxid, and starts a new one. The
    /// former is given back, to be dropped where a long drop does no harm.
    ///
    /// # Panics
    /// When a delta is frozen already, or the zxids differ.
    pub fn adopt_frozen(&mut self, frozen: Arc<Delta>) -> Delta {
        assert!(self.frozen.is_none(), "one delta is frozen at a time");
        assert!(frozen.zxid() == self.zxid, "a delta is adopted at the zxid at which it was frozen");
        self.frozen = Some(frozen);
        mem::take(&mut self.live)
    }

    /// Takes the snapshot that contains the frozen delta into use. The former snapshot and the frozen delta are given
    /// back, to be dropped where a long drop does no harm.
    ///
    /// # Panics
    /// When the snapshot is not at the zxid of the frozen delta, or has another seed.
    pub fn swap_snapshot(&mut self, snapshot: Arc<Snapshot>) -> (Arc<Snapshot>, Option<Arc<Delta>>) {
        let frozen = self.frozen.take();
        let expected = frozen.as_ref().map_or(self.snapshot.zxid(), |frozen| frozen.zxid());
        assert!(snapshot.zxid() == expected, "the new snapshot contains the frozen delta and no more");
        assert!(snapshot.seed() == self.hasher.seed(), "the seed stays for ever");
        (mem::replace(&mut self.snapshot, snapshot), frozen)
    }
}

/// A znode as a view finds it.
#[derive(Clone, Copy)]
pub enum NodeRef<'a> {
    /// Of a delta: created or changed since the snapshot.
    Live(&'a Arc<Znode>),
    /// Not changed since the snapshot.
    Snapshot(SnapshotNode<'a>),
}

impl<'a> NodeRef<'a> {
    /// Whether the znode grants any of the `wanted` permissions. Most are open to all, which is asked first.
    #[inline]
    pub fn allows(&self, wanted: i32, identities: &[Identity]) -> bool {
        self.acl_list().is_none_or(|list| list.grants(wanted, identities))
    }

    /// The stored part of the Stat.
    #[inline]
    pub fn stat(&self) -> NodeStat {
        match self {
            Self::Live(node) => node.stat,
            Self::Snapshot(node) => node.stat(),
        }
    }

    /// The Stat a client sees.
    #[inline]
    pub fn wire_stat(&self) -> Stat {
        match self {
            Self::Live(node) => node.wire_stat(),
            Self::Snapshot(node) => node.wire_stat(),
        }
    }

    /// `None` is null data.
    #[inline]
    pub fn data(&self) -> Option<&'a [u8]> {
        match self {
            Self::Live(node) => node.data.as_deref(),
            Self::Snapshot(node) => node.data(),
        }
    }

    /// Bytes of its data.
    #[inline]
    pub fn data_len(&self) -> usize {
        self.data().map_or(0, <[u8]>::len)
    }

    /// The ACL, not copied.
    #[inline]
    pub fn acl(&self) -> AclRef<'a> {
        self.acl_list().map_or(AclRef::Open, |list| AclRef::List(list))
    }

    /// The ACL; `None` is `world:anyone` with all permissions.
    #[inline]
    pub fn acl_list(&self) -> Option<&'a AclList> {
        match self {
            Self::Live(node) => match &node.acl {
                Acl::Open => None,
                Acl::List(list) => Some(list),
            },
            Self::Snapshot(node) => node.acl_list(),
        }
    }

    /// The ACL as a value that outlives the view's next change.
    pub fn to_acl(&self) -> Acl {
        match self {
            Self::Live(node) => node.acl.clone(),
            Self::Snapshot(node) => node.to_acl(),
        }
    }

    /// Whether the ACL is `world:anyone` with all permissions.
    #[inline]
    pub fn is_open_acl(&self) -> bool {
        match self {
            Self::Live(node) => matches!(node.acl, Acl::Open),
            Self::Snapshot(node) => node.is_open(),
        }
    }

    /// The znode as a value, to make its next state from.
    pub fn to_znode(&self) -> Arc<Znode> {
        match self {
            Self::Live(node) => Arc::clone(node),
            Self::Snapshot(node) => Arc::new(node.to_znode()),
        }
    }
}

/// A znode's ACL in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclRef<'a> {
    /// Exactly `world:anyone` with all permissions (31).
    Open,
    /// An empty list grants nothing.
    List(&'a [AclEntry]),
}

impl<'a> AclRef<'a> {
    /// Entries.
    pub const fn len(self) -> usize {
        match self {
            Self::Open => 1,
            Self::List(list) => list.len(),
        }
    }

    /// Whether the ACL has no entry, and so grants nothing.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Permissions, scheme and id of each entry.
    pub fn iter(self) -> impl Iterator<Item = (i32, &'a str, &'a str)> {
        let (open, list) = match self {
            Self::Open => (Some((31, "world", "anyone")), &[][..]),
            Self::List(list) => (None, list),
        };
        open.into_iter().chain(list.iter().map(|entry| (entry.perms, &*entry.scheme, &*entry.id)))
    }
}

/// The children of a znode: live marks over frozen ones over the snapshot.
pub type Children<'v> = Overlay<'v, Overlay<'v, Names<'v>>>;

fn present_kids(entry: &Entry) -> Option<&Kids> {
    match entry.state {
        NodeState::Present(_) | NodeState::Recreated(_) => entry.kids.as_deref(),
        NodeState::Deleted => None,
    }
}

fn is_ephemeral(stat: &NodeStat) -> bool {
    Owner::from_bits(stat.owner).is_ephemeral()
}

const fn size(path: &str, data: usize) -> u64 {
    path.len() as u64 + data as u64
}

fn digest_node(digest: &mut Xxh3, path: &str, node: &NodeRef<'_>) {
    let stat = node.stat();
    for number in [
        stat.czxid.wire(),
        stat.mzxid.wire(),
        stat.pzxid.wire(),
        stat.ctime,
        stat.mtime,
        stat.version.into(),
        stat.cversion.into(),
        stat.aversion.into(),
        stat.owner,
        stat.num_children.into(),
        if node.data().is_some() { 1 } else { 0 },
    ] {
        digest.update(&number.to_le_bytes());
    }
    let mut text = |text: &[u8]| {
        digest.update(&(text.len() as u64).to_le_bytes());
        digest.update(text);
    };
    text(path.as_bytes());
    text(node.data().unwrap_or_default());
    for (perms, scheme, id) in node.acl().iter() {
        text(&perms.to_le_bytes());
        text(scheme.as_bytes());
        text(id.as_bytes());
    }
}
