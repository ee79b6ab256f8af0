//! Writing the next snapshot: frozen delta over old snapshot, one section at a time, in memory bounded by one section.
//!
//! Runs on the snapshot writer's thread. Paths, data and names are copied once, from where they are straight into the
//! new section. The result depends on the tree alone, not on the order of any hash map. Knows no files.

use super::annex;
use super::fault::SnapshotFault;
use super::format::{
    ACL_OPEN, ArchivedNode, FORMAT, Meta, Node, NodeList, PROBES_MAX, Probing, Section, SnapshotSession, first_slot,
    push_name, slot_tag,
};
use super::layout::{SECTION_ALIGN, SECTION_BYTES_MAX, SECTION_BYTES_TARGET, SnapshotLayout, SnapshotStats};
use super::node::Names;
use super::read::Snapshot;
use super::section::{AlignedBytes, CheckedSection, SnapshotBytes};
use crate::ids::Zxid;
use crate::path;
use crate::shared::{Data, HashedPath, Text};
use crate::tree::acl::{Acl, AclEntry, AclList};
use crate::tree::delta::{Delta, Entry, KidNote};
use crate::tree::digest;
use crate::tree::kids::{Kids, Mark};
use crate::tree::path_hash::{PathHasher, SECTION_BITS_MAX, section_of};
use crate::tree::znode::{NodeStat, Owner, Znode, name_bytes};
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use rkyv::rancor;
use rkyv::util::AlignedVec;

/// Merges a frozen delta and the snapshot below it into the next snapshot, part by part: call
/// [`SnapshotMerger::next_section`] until it gives `None`, then [`SnapshotMerger::finish`].
pub struct SnapshotMerger<'a> {
    below: Option<&'a Snapshot>,
    delta: &'a Delta,
    hasher: PathHasher,
    bits: u32,
    next: usize,
    acls: AclTable,
    stats: SnapshotStats,
    digest: u64,
    reapable: Vec<Text>,
    archive_bytes: usize,
    /// The section of the snapshot below that is being merged, compared with its checksum.
    sound: Option<(usize, CheckedSection)>,
}

impl<'a> SnapshotMerger<'a> {
    /// A merge into `1 << bits` sections; see [`section_bits_for`].
    ///
    /// # Panics
    /// When `bits` is less than that of the snapshot below or more than [`SECTION_BITS_MAX`].
    pub fn new(below: &'a Snapshot, delta: &'a Delta, bits: u32) -> Self {
        assert!(bits >= below.section_bits(), "sections never become fewer");
        Self::over(Some(below), delta, PathHasher::new(below.seed()), bits)
    }

    fn over(below: Option<&'a Snapshot>, delta: &'a Delta, hasher: PathHasher, bits: u32) -> Self {
        assert!(bits <= SECTION_BITS_MAX, "number of sections is limited");
        Self {
            below,
            delta,
            hasher,
            bits,
            next: 0,
            acls: AclTable::default(),
            stats: SnapshotStats::default(),
            digest: 0,
            reapable: Vec::new(),
            archive_bytes: annex::ARCHIVE_BYTES,
            sound: None,
        }
    }

    /// Archives of the meta section hold lists of so many bytes instead of 256 MiB: for tests.
    pub const fn with_archive_bytes(mut self, bytes: usize) -> Self {
        self.archive_bytes = bytes;
        self
    }

    /// The bytes of the next section, to be placed at a multiple of [`SECTION_ALIGN`]; `None` after the last.
    ///
    /// # Errors
    /// When a section grows too large, or the snapshot below does not match its checksums or contradicts itself. The
    /// merge cannot go on then.
    pub fn next_section(&mut self) -> Result<Option<AlignedVec>, SnapshotFault> {
        if self.next == 1 << self.bits {
            return Ok(None);
        }
        let bytes = self.section(self.next)?;
        self.next += 1;
        Ok(Some(bytes))
    }

    /// The bytes of the meta section.
    ///
    /// # Errors
    /// When it grows too large, or the znodes do not have the digest that was kept with the changes.
    ///
    /// # Panics
    /// When sections are still to be written.
    pub fn finish(
        mut self,
        zxid: Zxid,
        sessions: Vec<SnapshotSession>,
        extra: Vec<u8>,
    ) -> Result<AlignedVec, SnapshotFault> {
        assert!(self.next == 1 << self.bits, "the meta section comes last");
        if let Some(kept) = self.delta.digest().filter(|kept| *kept != self.digest) {
            return Err(SnapshotFault::Diverged { kept, found: self.digest });
        }
        self.reapable.sort_unstable();
        let meta = Meta {
            format: FORMAT,
            section_bits: self.bits,
            seed: self.hasher.seed(),
            zxid: zxid.0,
            nodes: self.stats.nodes,
            data_bytes: self.stats.data_bytes,
            ephemerals: self.stats.ephemerals,
            acls: self.acls.lists,
            sessions,
            reapable: self.reapable,
            extra,
        };
        annex::meta_bytes(meta, self.digest, self.archive_bytes)
    }

    /// Sums over the sections written so far.
    pub const fn stats(&self) -> SnapshotStats {
        self.stats
    }

    fn section(&mut self, index: usize) -> Result<AlignedVec, SnapshotFault> {
        let below = self.sound(index)?;
        let mut fresh = self.fresh(index, below.as_ref())?;
        fresh.sort_unstable_by(|a, b| {
            order(a.entry.hash).cmp(&order(b.entry.hash)).then(a.entry.path.cmp(&b.entry.path))
        });
        let sources = self.sources(index, below.as_ref(), &fresh);
        let mut estimate = 0;
        for source in &sources {
            let (path, data, names, stat) = source.parts();
            let owner = Owner::from_bits(stat.owner);
            if matches!(owner, Owner::Container | Owner::Ttl(_)) {
                self.reapable.push(Text::from(path));
            }
            self.digest = self.digest.wrapping_add(digest::of_znode(path, data, &stat));
            self.stats.add(path.len(), data.map_or(0, <[u8]>::len), owner.is_ephemeral());
            estimate += Node::bytes_max(path.len(), data.map_or(0, <[u8]>::len), names.len());
        }
        check_size(index, estimate)?;
        let acls = self.acls.indices(self.below, &sources);
        let node = |at: usize| {
            let (path, data, names, stat) = sources[at].parts();
            Node::new(path, &stat, acls[at], data, names)
        };
        let (probing, slots) = slots_of(&sources);
        if probing.probe_max > PROBES_MAX {
            return Err(SnapshotFault::too_many_probes(index, probing.probe_max));
        }
        let section = Section {
            index: u32::try_from(index).expect("sections are few"),
            bits: self.bits,
            probing,
            slots,
            nodes: NodeList { count: sources.len(), node: &node },
        };
        let bytes = AlignedVec::<SECTION_ALIGN>::with_capacity(estimate);
        rkyv::api::high::to_bytes_in::<_, rancor::Error>(&section, bytes).map_err(|e| SnapshotFault::encode(&e))
    }

    /// The section below that holds what becomes section `index`, compared with its checksum. Everything that is copied
    /// from below comes out of it.
    fn sound(&mut self, index: usize) -> Result<Option<CheckedSection>, SnapshotFault> {
        let Some(snapshot) = self.below else { return Ok(None) };
        let at = index >> self.splits();
        if self.sound.as_ref().is_none_or(|(held, _)| *held != at) {
            self.sound = None;
            self.sound = Some((at, snapshot.section(at).sound()?));
        }
        Ok(self.sound.as_ref().map(|(_, section)| section.clone()))
    }

    /// The znodes of a section that the delta holds, with their children merged.
    fn fresh<'s>(&self, index: usize, section: Option<&'s CheckedSection>) -> Result<Vec<Fresh<'s>>, SnapshotFault>
    where
        'a: 's,
    {
        let mut fresh = Vec::new();
        for entry in self.delta.section(index, self.bits) {
            let Some(node) = entry.state.node() else { continue };
            let below = if entry.state.shows_below() {
                section.and_then(|section| section.find(&entry.path, entry.hash))
            } else {
                None
            };
            let blob = below.map_or(&[][..], |node| node.names());
            let names = match entry.kids.as_deref() {
                None => Cow::Borrowed(blob),
                Some(kids) => Cow::Owned(merge_names(blob, kids, &entry.path, node.stat.num_children)?),
            };
            fresh.push(Fresh { entry, node, names });
        }
        Ok(fresh)
    }

    /// All znodes of a section, in order.
    fn sources<'f>(
        &self,
        index: usize,
        section: Option<&'f CheckedSection>,
        fresh: &'f [Fresh<'f>],
    ) -> Vec<Source<'f>> {
        let kept = section.map_or(&[][..], CheckedSection::nodes);
        let mut sources = Vec::with_capacity(fresh.len() + (kept.len() >> self.splits()));
        for node in kept {
            let hash = self.hasher.hash(&node.path);
            if section_of(hash, self.bits) == index && self.delta.entry(&node.path, hash).is_none() {
                sources.push(Source { hash, from: From::Kept(node) });
            }
        }
        sources.extend(fresh.iter().map(|fresh| Source { hash: fresh.entry.hash, from: From::Fresh(fresh) }));
        // Two sorted runs, which this sort merges in one pass.
        sources.sort_by(|a, b| order(a.hash).cmp(&order(b.hash)).then_with(|| a.path().cmp(b.path())));
        sources
    }

    fn splits(&self) -> u32 {
        self.below.map_or(0, |snapshot| self.bits - snapshot.section_bits())
    }
}

/// How many sections, as a power of two, the merge of a delta into a snapshot should have.
pub fn section_bits_for(below: &Snapshot, delta: &Delta) -> u32 {
    let bytes = below.bytes() + delta.bytes();
    let mut bits = below.section_bits();
    while bits < SECTION_BITS_MAX && bytes >> bits > SECTION_BYTES_TARGET {
        bits += 1;
    }
    bits
}

/// A whole merge on the heap: for tests, the simulator and small trees.
///
/// # Errors
/// As [`SnapshotMerger::next_section`].
pub fn merge_in_memory(
    below: &Snapshot,
    delta: &Delta,
    bits: u32,
    sessions: Vec<SnapshotSession>,
    extra: Vec<u8>,
) -> Result<Snapshot, SnapshotFault> {
    let zxid = delta.zxid();
    run(SnapshotMerger::new(below, delta, bits), zxid, sessions, extra)
}

/// The tree of a new data directory, with all zxids and times 0 (protocol chapter 10).
pub fn initial_snapshot(seed: u64) -> Snapshot {
    let hasher = PathHasher::new(seed);
    let mut tree = TreeBuilder::new(seed);
    initial_nodes().for_each(|(path, node)| tree.add(path, node));
    let delta = tree.finish(Zxid::default(), None);
    let merger = SnapshotMerger::over(None, &delta, hasher, 0);
    run(merger, Zxid::default(), Vec::new(), Vec::new()).expect("four small znodes make a snapshot")
}

/// Takes znodes in any order. Their numbers of children are counted here.
pub struct TreeBuilder {
    delta: Delta,
    hasher: PathHasher,
    paths: Vec<Text>,
}

impl TreeBuilder {
    /// `seed` is that of the snapshot below.
    pub fn new(seed: u64) -> Self {
        Self { delta: Delta::default(), hasher: PathHasher::new(seed), paths: Vec::new() }
    }

    /// Adds a znode. No path may come twice, and each parent must come at some time.
    pub fn add(&mut self, path: Text, mut node: Znode) {
        (node.stat.num_children, node.stat.names_bytes) = (0, 0);
        self.delta.set(&path, self.hasher.hash(&path), &Arc::new(node), None);
        self.paths.push(path);
    }

    /// The changes up to `zxid`. If there is a digest of the tree, the snapshot that is made must have it.
    ///
    /// # Panics
    /// If a znode has no parent.
    pub fn finish(mut self, zxid: Zxid, digest: Option<u64>) -> Delta {
        // Children are appended in order.
        self.paths.sort_unstable();
        let hasher = self.hasher;
        for path in self.paths.into_iter().filter(|path| &**path != path::ROOT) {
            let child = HashedPath::new(path, true, |path| hasher.hash(path));
            let (parent, name) = (child.parent(), path::name(&child.path));
            assert!(self.delta.entry(parent, child.parent_hash).is_some(), "{} has no parent", &*child.path);
            let counted = |stat: &mut NodeStat| {
                stat.num_children += 1;
                stat.names_bytes += name_bytes(name);
            };
            let note = KidNote::Set(&child, Mark::Added);
            self.delta.note_child(parent, child.parent_hash, note, false, counted, || None);
        }
        self.delta.seal(zxid, digest);
        self.delta
    }
}

/// The znodes of an empty server. Their zxids and times are 0 (protocol chapter 10).
pub fn initial_nodes() -> impl Iterator<Item = (Text, Znode)> {
    let read_only = AclEntry { perms: 1, scheme: Text::from("world"), id: Text::from("anyone") };
    let read_only = Acl::List(Arc::new(AclList::from(Vec::from([read_only]))));
    let nodes = [
        ("/", Acl::Open, 0),
        ("/zookeeper", Acl::Open, 0),
        ("/zookeeper/config", read_only, -1),
        ("/zookeeper/quota", Acl::Open, 0),
    ];
    let empty = Data::from(&[][..]);
    nodes.into_iter().map(move |(path, acl, aversion)| {
        let stat = NodeStat { aversion, ..NodeStat::default() };
        (Text::from(path), Znode { stat, acl, data: Some(empty.clone()) })
    })
}

fn run(
    mut merger: SnapshotMerger<'_>,
    zxid: Zxid,
    sessions: Vec<SnapshotSession>,
    extra: Vec<u8>,
) -> Result<Snapshot, SnapshotFault> {
    let seed = merger.hasher.seed();
    let mut bytes = AlignedVec::new();
    let mut sections = Vec::new();
    let mut place = |part: &AlignedVec| {
        bytes.resize(bytes.len().next_multiple_of(SECTION_ALIGN), 0);
        let start = bytes.len();
        bytes.extend_from_slice(part);
        start..bytes.len()
    };
    while let Some(section) = merger.next_section()? {
        sections.push(place(&section));
    }
    let meta = place(&merger.finish(zxid, sessions, extra)?);
    let bytes: Arc<dyn SnapshotBytes> = Arc::new(AlignedBytes::new(bytes));
    Snapshot::open(bytes, &SnapshotLayout { seed, zxid: zxid.0, sections, meta })
}

/// A znode that the delta holds.
struct Fresh<'a> {
    entry: &'a Entry,
    node: &'a Znode,
    names: Cow<'a, [u8]>,
}

/// A znode of the new section.
struct Source<'f> {
    hash: u64,
    from: From<'f>,
}

enum From<'f> {
    /// Unchanged from the snapshot below.
    Kept(&'f ArchivedNode<'static>),
    Fresh(&'f Fresh<'f>),
}

impl<'f> Source<'f> {
    fn path(&self) -> &'f str {
        match self.from {
            From::Kept(node) => &node.path,
            From::Fresh(fresh) => &fresh.entry.path,
        }
    }

    /// Path, data, blob of children's names, stat.
    fn parts(&self) -> (&'f str, Option<&'f [u8]>, &'f [u8], NodeStat) {
        match self.from {
            From::Kept(node) => (&node.path, node.data.as_deref(), node.names(), node.stat()),
            From::Fresh(fresh) => (&fresh.entry.path, fresh.node.data.as_deref(), &fresh.names, fresh.node.stat),
        }
    }
}

/// The distinct ACL lists of a snapshot being written. Unused lists of the snapshot below drop out.
#[derive(Default)]
struct AclTable {
    lists: Vec<Arc<Vec<AclEntry>>>,
    by_list: BTreeMap<Arc<Vec<AclEntry>>, u32>,
    /// New index of each index of the snapshot below that was met so far.
    from_below: BTreeMap<u32, u32>,
}

impl AclTable {
    /// The index of each znode's ACL.
    fn indices(&mut self, below: Option<&Snapshot>, sources: &[Source<'_>]) -> Vec<u32> {
        let index = |source: &Source<'_>| match (&source.from, below) {
            (From::Fresh(fresh), _) => match &fresh.node.acl {
                Acl::Open => ACL_OPEN,
                Acl::List(list) => self.index(list.entries()),
            },
            (From::Kept(node), Some(snapshot)) => self.renumber(snapshot, node.acl.to_native()),
            (From::Kept(_), None) => unreachable!("kept znodes come from the snapshot below"),
        };
        sources.iter().map(index).collect()
    }

    fn index(&mut self, list: &Arc<Vec<AclEntry>>) -> u32 {
        if let Some(&index) = self.by_list.get(list) {
            return index;
        }
        self.lists.push(Arc::clone(list));
        let index = u32::try_from(self.lists.len()).expect("there are fewer lists than znodes of a section");
        self.by_list.insert(Arc::clone(list), index);
        index
    }

    fn renumber(&mut self, below: &Snapshot, old: u32) -> u32 {
        if old == ACL_OPEN {
            return ACL_OPEN;
        }
        if let Some(&index) = self.from_below.get(&old) {
            return index;
        }
        let index = self.index(below.acl(old).entries());
        self.from_below.insert(old, index);
        index
    }
}

/// Znodes of a section lie in the order of their first slots.
#[inline]
const fn order(hash: u64) -> u64 {
    hash.rotate_left(32)
}

fn slots_of(sources: &[Source<'_>]) -> (Probing, Vec<u32>) {
    let count = u32::try_from(sources.len()).expect("a section's bytes are limited");
    let index_bits = u32::BITS - count.leading_zeros();
    let mut slots = vec![0_u32; sources.len() + sources.len() / 3 + 1];
    let mut probe_max = 0;
    for (source, index) in sources.iter().zip(1_u32..) {
        let mut at = first_slot(source.hash, slots.len());
        let mut probes = 1;
        while slots[at] != 0 {
            at = if at + 1 == slots.len() { 0 } else { at + 1 };
            probes += 1;
        }
        slots[at] = slot_tag(source.hash, index_bits) | index;
        probe_max = probe_max.max(probes);
    }
    (Probing { index_bits, probe_max }, slots)
}

/// Lays a layer's marks over a blob of names.
fn merge_names(blob: &[u8], kids: &Kids, path: &str, expected: u32) -> Result<Vec<u8>, SnapshotFault> {
    let mut merged = Vec::with_capacity(blob.len() + kids.len() * 16);
    let mut names = 0_u32;
    for name in crate::tree::overlay::overlay(Names::of(blob), Some(kids)) {
        push_name(&mut merged, name);
        names += 1;
    }
    if names != expected {
        return Err(SnapshotFault::ChildCount { path: String::from(path), stat: expected, names });
    }
    Ok(merged)
}

fn check_size(index: usize, bytes: usize) -> Result<(), SnapshotFault> {
    if bytes > SECTION_BYTES_MAX { Err(SnapshotFault::SectionTooLarge { index, bytes }) } else { Ok(()) }
}
