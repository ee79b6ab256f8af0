//! The changes of one span of zxids, as an index by path over shared immutable znodes.
//!
//! A delta lives on the core of its view while it grows; frozen (behind an `Arc`) every core and the snapshot writer
//! read it. Its content is relative to the layers below it, which it does not know: `view` and `snapshot` combine them.
//!
//! The index is cut into 4,096 tables by the top bits of the path hash. So growing never rehashes more than one table's
//! entries at once. The snapshot writer finds the entries of one section without a full pass.

use crate::ids::Zxid;
use crate::shared::{HashedPath, Text};
use crate::tree::acl::Acl;
use crate::tree::digest;
use crate::tree::kids::{KID_BYTES, Kids, Mark};
use crate::tree::znode::{NodeStat, Znode};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use core::mem::size_of;
use hashbrown::HashTable;
use hashbrown::hash_table::{self, AbsentEntry, OccupiedEntry};

/// Power of two by which the index is cut. The measure is the worst insert into memory used before, while growing to
/// two million entries. It took 81 us with 8 bits, 25 us with 10 and 8 us with 12. Lookups cost the same. An empty
/// delta takes 128 KiB.
const TABLE_BITS: u32 = 12;
const TABLES: usize = 1 << TABLE_BITS;

/// Estimated heap bytes of one entry without its znode: its slot at the usual load, and the path's allocation header.
const ENTRY_BYTES: usize = size_of::<Entry>() * 3 / 2 + 16;
/// Estimated heap bytes of one znode without its data: the value and the headers of two allocations.
const ZNODE_BYTES: usize = size_of::<Znode>() + 32;

/// A list of more entries is not dropped on the core of a view: 1 ms.
const DROPPED_MAX: usize = 32 << 10;

/// The state of one znode in a delta.
#[derive(Clone, Debug)]
pub(crate) enum NodeState {
    /// This is its state; children come from this layer's marks over the layers below.
    Present(Arc<Znode>),
    /// Deleted in this layer and created anew, or its list of children was made anew: no child of the layers below shines
    /// through.
    Recreated(Arc<Znode>),
    /// Deleted in this layer; it exists below.
    Deleted,
}

impl NodeState {
    pub(crate) const fn node(&self) -> Option<&Arc<Znode>> {
        match self {
            Self::Present(node) | Self::Recreated(node) => Some(node),
            Self::Deleted => None,
        }
    }

    const fn node_mut(&mut self) -> Option<&mut Arc<Znode>> {
        match self {
            Self::Present(node) | Self::Recreated(node) => Some(node),
            Self::Deleted => None,
        }
    }

    /// Whether children known to the layers below still count.
    pub(crate) const fn shows_below(&self) -> bool {
        matches!(self, Self::Present(_))
    }
}

/// The entry of one path in a delta.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) path: Text,
    pub(crate) hash: u64,
    pub(crate) state: NodeState,
    pub(crate) kids: Option<Box<Kids>>,
    /// The CRC-32 of the znode's digest, where the digest is kept and the znode counts.
    pub(crate) crc: Option<u32>,
}

impl Entry {
    /// A znode without children of this layer.
    fn new(path: Text, hash: u64, node: Arc<Znode>, crc: Option<u32>) -> Self {
        Self { path, hash, state: NodeState::Present(node), kids: None, crc }
    }

    /// The CRC-32, computed if it is not kept here; `None` of a deleted znode.
    pub(crate) fn known_crc(&self) -> Option<u32> {
        let node = self.state.node()?;
        Some(self.crc.unwrap_or_else(|| digest::crc_of(&self.path, node.data.as_deref(), &node.stat)))
    }
}

/// The content of an entry before it was given another state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    /// Length of the data.
    pub(crate) data: usize,
    /// See [`Entry::crc`].
    pub(crate) crc: Option<u32>,
}

/// A note about a child in its parent's entry.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KidNote<'a> {
    Set(&'a HashedPath, Mark),
    /// Neither this layer nor those below know the name any more.
    Forget(&'a str),
}

/// The changes that a note of a child has made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Noted {
    /// The CRC of the parent before and after, where a digest is kept.
    pub(crate) moved: Option<(u32, u32)>,
    /// The parent's marks, or its children, have become more or fewer by another step.
    pub(crate) stepped: bool,
}

/// A step: so many marks, or bytes of their names.
pub(crate) const MARKS_STEP: u64 = if cfg!(test) { 4 } else { 256 };
pub(crate) const MARKS_STEP_BYTES: u64 = if cfg!(test) { 64 } else { 64 << 10 };

/// Changes relative to a lower layer, see the module's header.
#[derive(Clone)]
pub struct Delta {
    tables: Box<[HashTable<Entry>]>,
    len: usize,
    bytes: usize,
    /// Lists that were replaced and are too long to be dropped at once, on the core of a view. Dropped with the delta.
    replaced: Vec<Kids>,
    /// The last zxid inside; set when frozen.
    zxid: Zxid,
    /// ZooKeeper's digest of the tree with these changes, where it was kept; set when frozen.
    digest: Option<u64>,
}

impl Default for Delta {
    fn default() -> Self {
        Self {
            tables: (0..TABLES).map(|_| HashTable::new()).collect(),
            len: 0,
            bytes: 0,
            replaced: Vec::new(),
            zxid: Zxid::default(),
            digest: None,
        }
    }
}

impl Delta {
    /// Paths with an entry, deleted ones included.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether no path has an entry.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Estimated heap bytes, shared znodes and paths counted in full.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The last zxid a frozen delta contains; 0 while it is live.
    pub const fn zxid(&self) -> Zxid {
        self.zxid
    }

    pub(crate) const fn seal(&mut self, zxid: Zxid, digest: Option<u64>) {
        self.zxid = zxid;
        self.digest = digest;
    }

    /// The digest that the tree with these changes must have.
    pub(crate) const fn digest(&self) -> Option<u64> {
        self.digest
    }

    #[inline]
    pub(crate) fn entry(&self, path: &str, hash: u64) -> Option<&Entry> {
        self.tables[table_of(hash)].find(spread(hash), |entry| is_at(entry, path, hash))
    }

    /// An entry with this hash of its path, most likely the only one.
    #[inline]
    pub(crate) fn likely_entry(&self, hash: u64) -> Option<&Entry> {
        self.tables[table_of(hash)].find(spread(hash), |entry| entry.hash == hash)
    }

    /// Adds a created znode, with the CRC for its digest where that is kept. No layer has it, except as a deleted one.
    pub(crate) fn create(&mut self, path: &Text, hash: u64, node: &Arc<Znode>, crc: Option<u32>) {
        let table = &mut self.tables[table_of(hash)];
        match table.entry(spread(hash), |entry| is_at(entry, path, hash), |entry| spread(entry.hash)) {
            hash_table::Entry::Vacant(place) => {
                self.len += 1;
                let new = Entry::new(path.clone(), hash, Arc::clone(node), crc);
                self.bytes += ENTRY_BYTES + path.len() + node_cost(&new.state);
                place.insert(new);
            }
            hash_table::Entry::Occupied(_) => {
                self.set(path, hash, node, crc);
            }
        }
    }

    /// Gives a znode its new state, with the CRC for its digest where that is kept. Answers what it was in this layer,
    /// if it was here.
    pub(crate) fn set(&mut self, path: &Text, hash: u64, node: &Arc<Znode>, crc: Option<u32>) -> Option<Before> {
        let entry = match find(&mut self.tables, path, hash) {
            Ok(found) => found.into_mut(),
            Err(absent) => {
                let new = Entry::new(path.clone(), hash, Arc::clone(node), crc);
                self.len += 1;
                self.bytes += cost(&new);
                insert(absent, new);
                return None;
            }
        };
        let before = node_cost(&entry.state);
        let crc_before = if crc.is_some() { entry.known_crc() } else { None };
        let here = entry.state.node().map(|node| Before { data: node.data_len(), crc: crc_before });
        entry.crc = crc;
        entry.state = match entry.state {
            NodeState::Present(_) => NodeState::Present(Arc::clone(node)),
            NodeState::Recreated(_) | NodeState::Deleted => NodeState::Recreated(Arc::clone(node)),
        };
        let after = node_cost(&entry.state);
        self.bytes = self.bytes + after - before;
        here
    }

    /// Notes a created or deleted child of a znode that exists, and changes the Stat of that znode. `below` gives the
    /// znode as the layers below have it; it is asked if this layer does not have it yet. A state without other
    /// holders, which is the usual case, is changed in place.
    pub(crate) fn note_child(
        &mut self,
        path: &str,
        hash: u64,
        note: KidNote<'_>,
        kept: bool,
        change: impl FnOnce(&mut NodeStat),
        below: impl FnOnce() -> Option<(Text, Arc<Znode>, Option<u32>)>,
    ) -> Noted {
        let entry = match find(&mut self.tables, path, hash) {
            Ok(found) => found.into_mut(),
            Err(absent) => {
                let Some((path, node, crc)) = below() else { return Noted::default() };
                let new = Entry::new(path, hash, node, crc);
                self.len += 1;
                self.bytes += cost(&new);
                insert(absent, new)
            }
        };
        let (sums_before, cost_before) = (sums(entry), kids_cost(entry));
        let crc = if kept { entry.known_crc() } else { None };
        entry.crc = None;
        let mut moved = None;
        if let Some(node) = entry.state.node_mut() {
            let stat = &mut Arc::make_mut(node).stat;
            let before = crc.map(|crc| (crc, *stat));
            change(stat);
            moved = before.map(|(crc, before)| (crc, digest::crc_restated(crc, &before, stat)));
            entry.crc = moved.map(|(_, after)| after);
        }
        note_kid(entry, note);
        let stepped = have_stepped(sums_before, sums(entry));
        self.bytes = self.bytes + kids_cost(entry) - cost_before;
        Noted { moved, stepped }
    }

    /// Gives a znode all of its children in this layer: from now on none of the layers below counts.
    pub(crate) fn replace_kids(&mut self, path: &str, hash: u64, kids: Kids) {
        let Some(entry) = self.entry_mut(path, hash) else { return };
        let before = kids_cost(entry);
        if let NodeState::Present(node) = &entry.state {
            entry.state = NodeState::Recreated(Arc::clone(node));
        }
        let kids = if kids.is_empty() { None } else { Some(Box::new(kids)) };
        let replaced = mem::replace(&mut entry.kids, kids);
        let after = kids_cost(entry);
        self.bytes = self.bytes + after - before;
        if let Some(replaced) = replaced {
            self.drop_later(*replaced);
        }
    }

    /// Drops a list that is no part of this delta, with it if the list is long.
    pub(crate) fn drop_later(&mut self, kids: Kids) {
        if kids.len() > DROPPED_MAX {
            self.bytes += kids.len() * KID_BYTES;
            self.replaced.push(kids);
        }
    }

    #[inline]
    fn entry_mut(&mut self, path: &str, hash: u64) -> Option<&mut Entry> {
        self.tables[table_of(hash)].find_mut(spread(hash), |entry| is_at(entry, path, hash))
    }

    /// Marks a znode as deleted; where the layers below do not have it, no trace is left.
    pub(crate) fn delete(&mut self, path: &Text, hash: u64, exists_below: bool) {
        match find(&mut self.tables, path, hash) {
            Ok(found) if !exists_below => {
                let (entry, _) = found.remove();
                self.len -= 1;
                self.bytes -= cost(&entry);
            }
            Ok(found) => {
                let entry = found.into_mut();
                let before = cost(entry);
                entry.state = NodeState::Deleted;
                entry.kids = None;
                entry.crc = None;
                self.bytes = self.bytes + cost(entry) - before;
            }
            Err(absent) if exists_below => {
                let entry = Entry { path: path.clone(), hash, state: NodeState::Deleted, kids: None, crc: None };
                self.len += 1;
                self.bytes += cost(&entry);
                insert(absent, entry);
            }
            Err(_) => {}
        }
    }

    /// Returns the entries with a hash in section `index` of `1 << bits`, in the order of sections (see `snapshot`).
    pub(crate) fn section(&self, index: usize, bits: u32) -> Vec<&Entry> {
        let tables = if bits <= TABLE_BITS {
            let width = TABLES >> bits;
            index * width..(index + 1) * width
        } else {
            let table = index >> (bits - TABLE_BITS);
            table..table + 1
        };
        let all = self.tables[tables].iter().flat_map(HashTable::iter);
        all.filter(|entry| crate::tree::path_hash::section_of(entry.hash, bits) == index).collect()
    }
}

impl core::fmt::Debug for Delta {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Delta").field("len", &self.len).field("bytes", &self.bytes).field("zxid", &self.zxid).finish()
    }
}

/// Marks and children of a znode, in number and in bytes.
fn sums(entry: &Entry) -> [u64; 4] {
    let (marks, bytes) = entry.kids.as_ref().map_or((0, 0), |kids| (kids.len() as u64, kids.bytes() as u64));
    let (children, names) =
        entry.state.node().map_or((0, 0), |node| (node.stat.num_children.into(), node.stat.names_bytes));
    [marks, children, bytes, names]
}

/// Whether any of the sums has come to another step.
const fn have_stepped(before: [u64; 4], after: [u64; 4]) -> bool {
    const {
        assert!(MARKS_STEP.is_power_of_two() && MARKS_STEP_BYTES.is_power_of_two(), "steps are told by their high bits")
    };
    let numbers = (before[0] ^ after[0]) | (before[1] ^ after[1]);
    let bytes = (before[2] ^ after[2]) | (before[3] ^ after[3]);
    numbers >= MARKS_STEP || bytes >= MARKS_STEP_BYTES
}

fn note_kid(entry: &mut Entry, note: KidNote<'_>) {
    match note {
        // There is nothing below that this would hide.
        KidNote::Set(child, Mark::Removed) if !entry.state.shows_below() => {
            note_kid(entry, KidNote::Forget(child.name()))
        }
        KidNote::Set(child, mark) => {
            entry.kids.get_or_insert_default().set(child, mark);
        }
        KidNote::Forget(name) => {
            if let Some(kids) = &mut entry.kids {
                kids.remove(name);
                if kids.is_empty() {
                    entry.kids = None;
                }
            }
        }
    }
}

/// The entry of a path, or its absence.
#[inline]
fn find<'t>(
    tables: &'t mut [HashTable<Entry>],
    path: &str,
    hash: u64,
) -> Result<OccupiedEntry<'t, Entry>, AbsentEntry<'t, Entry>> {
    tables[table_of(hash)].find_entry(spread(hash), |entry| is_at(entry, path, hash))
}

#[inline]
fn insert<'t>(absent: AbsentEntry<'t, Entry>, entry: Entry) -> &'t mut Entry {
    absent.into_table().insert_unique(spread(entry.hash), entry, |entry| spread(entry.hash)).into_mut()
}

fn cost(entry: &Entry) -> usize {
    ENTRY_BYTES + entry.path.len() + node_cost(&entry.state) + kids_cost(entry)
}

fn node_cost(state: &NodeState) -> usize {
    state.node().map_or(0, |node| ZNODE_BYTES + node.data_len() + acl_cost(&node.acl))
}

fn kids_cost(entry: &Entry) -> usize {
    let names = |kids: &Kids| if entry.state.shows_below() { 0 } else { kids.bytes() };
    entry.kids.as_ref().map_or(0, |kids| kids.len() * KID_BYTES + names(kids))
}

/// A list is usually shared by many znodes; a pointer's worth for each.
const fn acl_cost(acl: &Acl) -> usize {
    match acl {
        Acl::Open => 0,
        Acl::List(_) => size_of::<usize>(),
    }
}

#[inline]
fn is_at(entry: &Entry, path: &str, hash: u64) -> bool {
    entry.hash == hash && *entry.path == *path
}

#[inline]
const fn table_of(hash: u64) -> usize {
    (hash >> (u64::BITS - TABLE_BITS)) as usize
}

/// The hash inside a table. The choice of the table used the top bits, by which hashbrown tells neighbours apart. Other
/// bits are put there, which do not choose the bucket either.
#[inline]
const fn spread(hash: u64) -> u64 {
    (hash << TABLE_BITS >> TABLE_BITS) | ((hash >> 32) << (u64::BITS - TABLE_BITS))
}
