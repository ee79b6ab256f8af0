//! The tree as one actor sees it, always at exactly one zxid: a live delta, over perhaps a frozen one, over the
//! snapshot.
//!
//! Each shard and the state machine own a view; it lives on its owner's core and moves only by [`View::apply`]. Reads
//! take no lock and no atomic: snapshot, frozen delta and znodes are shared but immutable. A view knows no sessions, no
//! watches and no rules; what may change and how is decided before (`apply`).
//!
//! The view of the state machine keeps ZooKeeper's digest of the tree, see [`crate::tree::digest`]. The live delta holds the
//! CRC of each of its znodes. So a change hashes the new state alone.

mod compacted;
mod layers;
mod node;
mod pieces;
mod warming;

use crate::ids::Zxid;
use crate::path;
use crate::shared::{HashedPath, Text};
use crate::tree::change::Change;
use crate::tree::delta::{Delta, Entry, KidNote};
use crate::tree::digest::{self, TreeDigest};
use crate::tree::kids::Mark;
use crate::tree::path_hash::PathHasher;
use crate::tree::snapshot::{Snapshot, initial_snapshot};
use crate::tree::znode::{NodeStat, Owner, Znode};
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use compacted::Compactions;
use core::mem;
use layers::Below;
use pieces::Steps;
use warming::LARGE_NODES;
use xxhash_rust::xxh3::Xxh3;

pub(crate) use compacted::marks_at_most;
pub use layers::Children;
pub(crate) use layers::{ChildrenSize, Layers};
pub use node::{AclRef, NodeRef};
pub(crate) use pieces::ListPosition;
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
            self.compactions.drop_copy(&mut self.live, &at.path, at.hash);
        }
        let note = if exists_below { KidNote::Set(at, Mark::Removed) } else { KidNote::Forget(at.name()) };
        self.note_child(at, note, |stat| stat.remove_child(zxid, at.name()));
    }

    /// Notes a child in its parent.
    fn note_child(&mut self, at: &HashedPath, note: KidNote<'_>, change: impl FnOnce(&mut NodeStat)) {
        let (path, hash) = (at.parent(), at.parent_hash);
        debug_assert!(self.get_hashed(path, hash).is_some(), "{path:?} does not exist");
        let kept = self.counts(path);
        let Self { live, frozen, snapshot, compactions, .. } = self;
        let layers = Below { frozen: frozen.as_deref(), snapshot };
        let crc = || if kept { layers.crc(path, hash) } else { None };
        let below = || match frozen.as_ref().and_then(|frozen| frozen.entry(path, hash)) {
            Some(entry) => Some((entry.path.clone(), Arc::clone(entry.state.node()?), crc())),
            None => Some((Text::from(path), Arc::new(snapshot.find(path, hash)?.to_znode()), crc())),
        };
        let noted = live.note_child(path, hash, note, kept, change, below);
        if let Some((before, after)) = noted.moved {
            self.digest.moves(Some(before), Some(after));
        }
        if !compactions.copies.is_empty() {
            compactions.copies.note(path, hash, note);
        }
        if noted.stepped {
            compactions.compact_children(live, layers, path, hash);
        }
        if compactions.are_due() {
            compactions.compact_some(live, layers);
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

    /// Returns the most cost of reading the children of a znode, without reading any.
    pub(crate) fn children_size(&self, path: &str, hash: u64) -> Option<ChildrenSize> {
        self.layers().children_size(path, hash)
    }

    /// As [`View::children`], with how many names and marks the list is made of.
    pub(crate) fn children_and_size(&self, path: &str, hash: u64) -> Option<(ChildrenSize, Children<'_>)> {
        self.layers().children_and_size(path, hash)
    }

    /// Returns the children behind `place`; none if there is no such znode. `None` when the snapshot was replaced, and
    /// `names_left` is used up before the place is found in the new snapshot. The next call goes on from there. A long
    /// name counts for several.
    pub(crate) fn children_behind(
        &self,
        path: &str,
        hash: u64,
        place: &mut ListPosition,
        names_left: &mut u32,
    ) -> Option<Steps<'_>> {
        pieces::children_behind(self.layers(), path, hash, place, names_left)
    }

    /// All layers, for look-ups of many znodes.
    #[inline]
    pub(crate) fn layers(&self) -> Layers<'_> {
        self.below().under(&self.live)
    }

    #[inline]
    fn below(&self) -> Below<'_> {
        Below { frozen: self.frozen.as_deref(), snapshot: &self.snapshot }
    }

    /// Whether the tree is beyond the caches.
    #[inline]
    pub(crate) const fn is_large(&self) -> bool {
        self.nodes >= LARGE_NODES
    }

    /// Touches the znodes of the first [`WARM_MAX`] hashes, if the tree is large; the rest are left.
    pub(crate) fn warm(&self, hashes: impl Iterator<Item = u64>) {
        if self.is_large() {
            let mut warming = Warming::new(self.layers());
            hashes.take(WARM_MAX).for_each(|hash| warming.add(hash));
            warming.prefetch();
        }
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

    /// The CRC of a znode's new state, where the digest is kept and the znode counts.
    #[inline]
    fn crc_of(&self, path: &str, node: &Znode) -> Option<u32> {
        self.counts(path).then(|| digest::crc_of(path, node.data.as_deref(), &node.stat))
    }

    /// The CRC of a znode that was changed without an event. Where its data are at the same place as before, they are
    /// not read again. They may be lent from a snapshot with a file that is damaged by now. The kept CRC then shows the
    /// damage when the next snapshot is written.
    fn crc_of_quiet(&self, path: &str, hash: u64, node: &Znode) -> Option<u32> {
        let place = |data: Option<&[u8]>| data.map(|data| (data.as_ptr(), data.len()));
        let kept = self.get_hashed(path, hash).filter(|old| place(old.data()) == place(node.data.as_deref()));
        let before = || {
            let here = self.live.entry(path, hash).map(Entry::known_crc);
            here.unwrap_or_else(|| self.crc_below(path, hash))
        };
        match kept.and_then(|old| Some((before()?, old.stat()))) {
            Some((crc, stat)) if self.counts(path) => Some(digest::crc_restated(crc, &stat, &node.stat)),
            _ => self.crc_of(path, node),
        }
    }

    /// Whether the digest is kept and the znode counts.
    #[inline]
    fn counts(&self, path: &str) -> bool {
        self.digest.is_kept() && digest::counts(path)
    }

    /// The CRC of a znode as the layers below the live delta have it.
    fn crc_below(&self, path: &str, hash: u64) -> Option<u32> {
        self.below().crc(path, hash)
    }

    /// Keeps ZooKeeper's digest of the tree from here on. Copies of this view do not.
    pub(crate) fn keep_digest(&mut self) {
        let mut value = self.snapshot.digest();
        if self.frozen.is_some() || !self.live.is_empty() {
            value = 0;
            self.walk("/", |path, node| {
                value = value.wrapping_add(digest::of_znode(path, node.data(), &node.stat()));
                true
            });
        }
        self.digest = TreeDigest::kept(value);
    }

    /// ZooKeeper's digest of the tree (version 2). `None` where it is not kept.
    pub const fn tree_digest(&self) -> Option<u64> {
        self.digest.value()
    }

    /// Stores the digest of every 128th zxid, for `hash`. To be called once for each transaction.
    #[inline]
    pub(crate) fn log_digest(&mut self) {
        if self.zxid.0.is_multiple_of(digest::LOG_EVERY) {
            self.digest.log(self.zxid);
        }
    }

    /// The digests of the last 1,024 zxids that are multiples of 128, oldest first, as ZooKeeper keeps them.
    pub fn digest_log(&self) -> &VecDeque<(Zxid, u64)> {
        self.digest.logged()
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
