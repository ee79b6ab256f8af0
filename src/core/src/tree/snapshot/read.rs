//! Reading a snapshot in place, on any core, without a lock.
//!
//! Sections are checked once, from as many threads as one likes, then served through remembered pointers. This is the
//! one module of the crate with `unsafe`: the pointers into the bytes, which the snapshot itself keeps alive.
#![allow(unsafe_code, reason = "a snapshot refers to the bytes it owns; each block says why it may")]

use super::annex::{self, shared_lists, texts};
use super::format::{
    ArchivedAnnex, ArchivedMeta, ArchivedNode, FORMAT, FORMAT_WITH_ANNEXES, PROBES_MAX, Probing, first_slot,
    section_root, slot_tag,
};
use super::node::{LENT_BYTES_MIN, SnapshotNode};
use super::{SECTION_ALIGN, SECTION_BYTES_MAX, SnapshotFault, SnapshotLayout, SnapshotSession, SnapshotStats};
use crate::ids::{ArchivedOrigin, ConnId, Origin, ShardId, Zxid};
use crate::shared::{Data, Text};
use crate::tree::acl::{self, AclList};
use crate::tree::digest;
use crate::tree::path_hash::{SECTION_BITS_MAX, section_of};
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use core::ptr::NonNull;
use rkyv::rancor;
use rkyv::rend::u32_le;
use rkyv::util::AlignedVec;

/// Bytes that hold a snapshot, such as a read-only mapping of its file.
///
/// # Safety
/// For as long as the value lives, `as_ref` must give the same slice each time and its bytes must not change. The
/// holder of a mapping must therefore ensure that no process writes to the file (snapshots are never rewritten).
pub unsafe trait SnapshotBytes: AsRef<[u8]> + Send + Sync {
    /// Returns the checksums of the sections, if the bytes can change all the same: a process may write into a mapped
    /// file. `None` if no process can.
    fn checksums(&self) -> Option<&dyn SectionChecksums> {
        None
    }
}

/// Compares sections with their bytes at the time of writing.
pub trait SectionChecksums {
    /// Whether these bytes are those of the section, counted from 0. Reads all of them.
    ///
    /// # Errors
    /// The damage and its place, as the first part of a sentence.
    fn verify(&self, section: usize, bytes: &[u8]) -> Result<(), String>;
}

/// A snapshot's bytes on the heap.
pub struct AlignedBytes {
    bytes: AlignedVec,
    checksums: Option<Arc<dyn SectionChecksums + Send + Sync>>,
}

impl AlignedBytes {
    /// Bytes that no process can change: they have no checksums to be compared with.
    pub const fn new(bytes: AlignedVec) -> Self {
        Self { bytes, checksums: None }
    }

    /// Bytes that are judged like those of a mapping: for tests and the simulator.
    pub fn judged_by(bytes: AlignedVec, checksums: Arc<dyn SectionChecksums + Send + Sync>) -> Self {
        Self { bytes, checksums: Some(checksums) }
    }
}

impl AsRef<[u8]> for AlignedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

// SAFETY: the vector is private and never touched again, so its buffer neither moves nor changes.
unsafe impl SnapshotBytes for AlignedBytes {
    fn checksums(&self) -> Option<&dyn SectionChecksums> {
        self.checksums.as_deref().map(|checksums| checksums as &dyn SectionChecksums)
    }
}

pub(super) type Record = ArchivedNode<'static>;

/// Proof that a section's bytes are a valid archive, and the way into it.
#[derive(Clone)]
pub struct CheckedSection {
    bytes: Arc<dyn SnapshotBytes>,
    index: usize,
    bits: u32,
    length: usize,
    start: usize,
    /// Of its first byte in memory.
    address: usize,
    probing: Probing,
    slots: NonNull<[u32_le]>,
    nodes: NonNull<[Record]>,
    /// Of its znodes; 0 of a copy that is only merged.
    digest: u64,
    /// CRCs of the digest for znodes with [`LENT_BYTES_MIN`] of data and more, each with its place in `nodes`, in
    /// order. Without them, a session's end would read all data of its ephemerals. None in a copy that is only merged.
    large: Arc<[(u32, u32)]>,
}

// SAFETY: the pointers lead into `bytes`, which is `Send + Sync`, immutable, and kept alive by this very value.
unsafe impl Send for CheckedSection {}
// SAFETY: as for `Send`; nothing is ever written through the pointers.
unsafe impl Sync for CheckedSection {}

impl CheckedSection {
    /// Checks one section: that it is an archive, that all references stay inside it, and that its text is UTF-8.
    ///
    /// # Errors
    /// When the layout names no such section, or its bytes are not one.
    pub fn check(bytes: &Arc<dyn SnapshotBytes>, layout: &SnapshotLayout, index: usize) -> Result<Self, SnapshotFault> {
        let bits = section_bits(layout)?;
        let range = layout.sections.get(index).ok_or(SnapshotFault::Layout("no such section"))?;
        let mut section = Self::within(bytes, range, index, bits)?;
        let (mut sum, mut large) = (0_u64, Vec::new());
        for (at, node) in (0..).zip(section.nodes()).filter(|(_, node)| digest::counts(&node.path)) {
            let crc = digest::crc_of(&node.path, node.data.as_deref(), &node.stat());
            sum = sum.wrapping_add(crc.into());
            if node.data.as_ref().is_some_and(|data| data.len() >= LENT_BYTES_MIN) {
                large.push((at, crc));
            }
        }
        section.digest = sum;
        section.large = large.into();
        Ok(section)
    }

    /// The section of `1 << bits` at that place in the bytes.
    fn within(
        bytes: &Arc<dyn SnapshotBytes>,
        range: &Range<usize>,
        index: usize,
        bits: u32,
    ) -> Result<Self, SnapshotFault> {
        let part = slice((**bytes).as_ref(), range)?;
        let root = section_root(part).map_err(|reason| SnapshotFault::section(index, &reason))?;
        let probing =
            Probing { index_bits: root.probing.index_bits.to_native(), probe_max: root.probing.probe_max.to_native() };
        let place = (root.index.to_native() as usize, root.bits.to_native());
        if place != (index, bits) || probing.index_bits >= u32::BITS {
            return Err(SnapshotFault::Section { index, reason: String::from("belongs to another place") });
        }
        if probing.probe_max > PROBES_MAX {
            return Err(SnapshotFault::too_many_probes(index, probing.probe_max));
        }
        let (slots, nodes) = (root.slots.as_slice(), root.nodes.as_slice());
        Ok(Self {
            bytes: Arc::clone(bytes),
            index,
            bits,
            length: part.len(),
            start: range.start,
            address: part.as_ptr().addr(),
            probing,
            slots: NonNull::from(slots),
            nodes: NonNull::from(nodes),
            digest: 0,
            large: Arc::default(),
        })
    }

    /// The CRC that the digest has for a record of large data.
    pub(super) fn crc_of_large(&self, record: &Record) -> Option<u32> {
        let at = (core::ptr::from_ref(record).addr() - self.nodes().as_ptr().addr()) / size_of::<Record>();
        let place = self.large.binary_search_by_key(&at, |(at, _)| *at as usize).ok()?;
        Some(self.large[place].1)
    }

    /// This section for a copy into the next snapshot. Where its bytes may have changed since the check, they are
    /// copied to the heap first, and the copy is compared with its checksum. So exactly the compared bytes are read.
    ///
    /// # Errors
    /// [`SnapshotFault::Damaged`].
    pub(crate) fn sound(&self) -> Result<Self, SnapshotFault> {
        let Some(checksums) = self.bytes.checksums() else { return Ok(self.clone()) };
        let mut copy = AlignedVec::<SECTION_ALIGN>::with_capacity(self.length);
        copy.extend_from_slice(slice((*self.bytes).as_ref(), &(self.start..self.start + self.length))?);
        checksums.verify(self.index, &copy).map_err(SnapshotFault::Damaged)?;
        let bytes: Arc<dyn SnapshotBytes> = Arc::new(AlignedBytes::new(copy));
        Self::within(&bytes, &(0..self.length), self.index, self.bits)
    }

    #[inline]
    fn slots(&self) -> &[u32_le] {
        // SAFETY: taken from a checked archive inside `self.bytes`, which by the contract of `SnapshotBytes` neither
        // moves nor changes while this value holds it.
        unsafe { self.slots.as_ref() }
    }

    #[inline]
    pub(crate) fn nodes(&self) -> &[Record] {
        // SAFETY: as in `slots`.
        unsafe { self.nodes.as_ref() }
    }

    #[inline]
    pub(crate) fn find(&self, path: &str, hash: u64) -> Option<&Record> {
        self.probe(hash, |node| *self.inside(&*node.path) == *path)
    }

    /// Returns the target of a reference of a record. The archive was checked when it was loaded, but a process may
    /// have written into the file since. A reference that leads out of the section now must not be followed.
    ///
    /// # Panics
    /// When it does. The process ends then, and the next start checks everything.
    #[inline]
    pub(super) fn inside<'v, T: ?Sized>(&self, value: &'v T) -> &'v T {
        let from = core::ptr::from_ref(value).cast::<u8>().addr();
        let (start, end) = (self.address, self.address + self.length);
        if from < start || from > end || size_of_val(value) > end - from {
            astray(self.index);
        }
        value
    }

    /// A part of the section as data that outlive the snapshot.
    pub(super) fn lend(&self, part: &[u8]) -> Data {
        let bytes = (*self.bytes).as_ref();
        let from = part.as_ptr().addr() - bytes.as_ptr().addr();
        Data::lent(Arc::<dyn SnapshotBytes>::clone(&self.bytes), from..from + part.len())
    }

    /// Returns the first record with a slot tag that fits the hash. The record itself is not read.
    #[inline]
    pub(crate) fn likely(&self, hash: u64) -> Option<&Record> {
        self.probe(hash, |_| true)
    }

    #[inline]
    fn probe(&self, hash: u64, is_it: impl Fn(&Record) -> bool) -> Option<&Record> {
        let slots = self.slots();
        let nodes = self.nodes();
        let tag = slot_tag(hash, self.probing.index_bits);
        let index_mask = (1_u32 << self.probing.index_bits) - 1;
        let mut at = first_slot(hash, slots.len());
        for _ in 0..(self.probing.probe_max as usize).min(slots.len()) {
            let slot = slots.get(at)?.to_native();
            if slot == 0 {
                return None;
            }
            if slot & !index_mask == tag
                && let Some(node) = nodes.get(((slot & index_mask) as usize).wrapping_sub(1))
                && is_it(node)
            {
                return Some(node);
            }
            at += 1;
            if at == slots.len() {
                at = 0;
            }
        }
        None
    }
}

/// The bytes of a snapshot that may have been replaced, for as long as data of it are lent to znodes that have changed.
pub struct Lender {
    bytes: Weak<dyn SnapshotBytes>,
    sections: Vec<Range<usize>>,
}

impl Lender {
    /// Whether data of it may still be in use.
    pub fn is_needed(&self) -> bool {
        self.bytes.strong_count() > 0
    }

    /// Compares all sections with their checksums, as [`Snapshot::verify`]; `pace` is told of each one's bytes before
    /// it is read. None when the bytes are gone.
    pub fn verify(&self, pace: &mut dyn FnMut(usize)) -> Option<Result<(), SnapshotFault>> {
        Some(verify(&*self.bytes.upgrade()?, &self.sections, pace))
    }
}

fn verify(
    bytes: &dyn SnapshotBytes,
    sections: &[Range<usize>],
    pace: &mut dyn FnMut(usize),
) -> Result<(), SnapshotFault> {
    let Some(checksums) = bytes.checksums() else { return Ok(()) };
    for (index, place) in sections.iter().enumerate() {
        pace(place.len());
        checksums.verify(index, slice(bytes.as_ref(), place)?).map_err(SnapshotFault::Damaged)?;
    }
    Ok(())
}

/// Proof that the meta section's bytes are a valid archive, with pointers to its parts.
pub struct CheckedMeta {
    bytes: Arc<dyn SnapshotBytes>,
    root: NonNull<ArchivedMeta>,
    annexes: Vec<NonNull<ArchivedAnnex>>,
    acls: Vec<Arc<AclList>>,
    nobody: Arc<AclList>,
    length: usize,
    /// That its writer stored.
    digest: Option<u64>,
}

// SAFETY: `root` leads into `bytes`, which is `Send + Sync`, immutable, and kept alive by this very value.
unsafe impl Send for CheckedMeta {}
// SAFETY: as for `Send`; nothing is ever written through the pointer.
unsafe impl Sync for CheckedMeta {}

impl CheckedMeta {
    /// Checks the meta section and that it fits the layout.
    ///
    /// # Errors
    /// When the bytes are no meta section, or one of another format, seed, zxid or number of sections.
    pub fn check(bytes: &Arc<dyn SnapshotBytes>, layout: &SnapshotLayout) -> Result<Self, SnapshotFault> {
        if !layout.meta.start.is_multiple_of(SECTION_ALIGN) {
            return Err(SnapshotFault::Layout("the meta section does not begin where one may"));
        }
        let outside = SnapshotFault::Layout("the meta section lies outside the bytes");
        let part = (**bytes).as_ref().get(layout.meta.clone()).ok_or(outside)?;
        let root = rkyv::access::<ArchivedMeta, rancor::Error>(part).map_err(|reason| SnapshotFault::meta(&reason))?;
        let places = match root.format.to_native() {
            FORMAT => Vec::new(),
            FORMAT_WITH_ANNEXES => annex::places(part)?,
            _ => return Err(SnapshotFault::Layout("unknown snapshot format")),
        };
        if root.seed.to_native() != layout.seed || root.zxid.to_native() != layout.zxid {
            return Err(SnapshotFault::Layout("seed or zxid is not that of the meta section"));
        }
        if Zxid(layout.zxid).epoch() >= Zxid::EPOCH_MAX {
            return Err(SnapshotFault::Layout("no epoch can follow that of its zxid"));
        }
        if root.section_bits.to_native() != section_bits(layout)? {
            return Err(SnapshotFault::Layout("number of sections is not that of the meta section"));
        }
        let annexes = places.into_iter().map(|place| annex::annex_root(&part[place])).collect::<Result<Vec<_>, _>>()?;
        let lists = root.acls.iter().chain(annexes.iter().flat_map(|annex| annex.acls.iter()));
        let acls = shared_lists(lists);
        let nobody = Arc::new(AclList::from(vec![acl::nobody()]));
        Ok(Self {
            bytes: Arc::clone(bytes),
            root: NonNull::from(root),
            annexes: annexes.into_iter().map(NonNull::from).collect(),
            acls,
            nobody,
            length: part.len(),
            digest: digest::read_stored(part),
        })
    }

    /// Bytes that the writer of the snapshot added for its own use.
    pub fn extra(&self) -> &[u8] {
        &self.root().extra
    }

    fn root(&self) -> &ArchivedMeta {
        // SAFETY: taken from a checked archive inside `self.bytes`, which by the contract of `SnapshotBytes` neither
        // moves nor changes while this value holds it.
        unsafe { self.root.as_ref() }
    }

    fn annexes(&self) -> impl Iterator<Item = &ArchivedAnnex> {
        // SAFETY: as in `root`.
        self.annexes.iter().map(|annex| unsafe { annex.as_ref() })
    }

    /// Paths of the ephemerals of the session at that place of the list that are not with it.
    fn more_ephemerals(&self, session: usize) -> impl Iterator<Item = Text> + '_ {
        self.annexes().flat_map(move |annex| {
            let at = annex.ephemerals.binary_search_by_key(&session, |of| of.session.to_native() as usize);
            at.ok().into_iter().flat_map(|at| texts(&annex.ephemerals[at].paths))
        })
    }
}

/// The whole state at one zxid, immutable, shared by all cores.
pub struct Snapshot {
    sections: Vec<CheckedSection>,
    bits: u32,
    meta: CheckedMeta,
    digest: u64,
}

impl Snapshot {
    /// Checks everything in turn. Use [`CheckedSection::check`] and [`Snapshot::assemble`] to do so in parallel.
    ///
    /// # Errors
    /// When a section does not check, or the layout does not fit the bytes.
    pub fn open(bytes: Arc<dyn SnapshotBytes>, layout: &SnapshotLayout) -> Result<Self, SnapshotFault> {
        let meta = CheckedMeta::check(&bytes, layout)?;
        let check = |index| CheckedSection::check(&bytes, layout, index);
        let sections = (0..layout.sections.len()).map(check).collect::<Result<Vec<_>, _>>()?;
        Self::assemble(meta, sections)
    }

    /// A snapshot of sections already checked, given in order.
    ///
    /// # Errors
    /// When they are not all the sections, in order, of the same bytes as the meta section. Also when their digest
    /// differs from the stored digest.
    pub fn assemble(meta: CheckedMeta, sections: Vec<CheckedSection>) -> Result<Self, SnapshotFault> {
        let bits = meta.root().section_bits.to_native();
        if bits > SECTION_BITS_MAX || sections.len() != 1 << bits {
            return Err(SnapshotFault::Layout("sections are missing"));
        }
        for (index, section) in sections.iter().enumerate() {
            if section.index != index || section.bits != bits || !Arc::ptr_eq(&section.bytes, &meta.bytes) {
                return Err(SnapshotFault::Layout("a section is out of place"));
            }
        }
        let found = sections.iter().map(|section| section.digest).fold(0, u64::wrapping_add);
        if let Some(stored) = meta.digest.filter(|stored| *stored != found) {
            return Err(SnapshotFault::Digest { stored, found });
        }
        Ok(Self { sections, bits, meta, digest: found })
    }

    /// Compares all sections with their checksums, where their bytes could have changed. Reads all of them.
    ///
    /// # Errors
    /// [`SnapshotFault::Damaged`].
    pub fn verify(&self) -> Result<(), SnapshotFault> {
        verify(&*self.meta.bytes, &self.places(), &mut |_| {})
    }

    /// Returns the means to lend data of this snapshot.
    pub fn lender(&self) -> Lender {
        Lender { bytes: Arc::downgrade(&self.meta.bytes), sections: self.places() }
    }

    /// Where the sections lie, in order.
    fn places(&self) -> Vec<Range<usize>> {
        self.sections.iter().map(|section| section.start..section.start + section.length).collect()
    }

    /// Seed of the path hash, the same for a data directory for ever.
    pub fn seed(&self) -> u64 {
        self.meta.root().seed.to_native()
    }

    /// The last zxid contained.
    pub fn zxid(&self) -> Zxid {
        Zxid(self.meta.root().zxid.to_native())
    }

    /// Counts of the tree, as the writer stored them.
    pub fn stats(&self) -> SnapshotStats {
        let root = self.meta.root();
        SnapshotStats {
            nodes: root.nodes.to_native(),
            data_bytes: root.data_bytes.to_native(),
            ephemerals: root.ephemerals.to_native(),
        }
    }

    /// Bytes of all sections.
    pub fn bytes(&self) -> usize {
        self.sections.iter().map(|section| section.length).sum::<usize>() + self.meta.length
    }

    /// There are `1 << section_bits` sections.
    pub const fn section_bits(&self) -> u32 {
        self.bits
    }

    /// The sessions, each copied out of the snapshot when asked for.
    pub fn sessions(&self) -> impl Iterator<Item = SnapshotSession> + '_ {
        self.meta.root().sessions.iter().enumerate().map(|(at, session)| SnapshotSession {
            id: crate::ids::SessionId(session.id.0.to_native()),
            timeout_ms: session.timeout_ms.to_native(),
            password: session.password,
            owner: session.owner.as_ref().map(origin),
            ephemerals: texts(&session.ephemerals).chain(self.meta.more_ephemerals(at)).collect(),
        })
    }

    /// Paths of all containers and TTL nodes, sorted; copied out of the snapshot when asked for.
    pub fn reapable(&self) -> impl Iterator<Item = Text> + '_ {
        let annexed = self.meta.annexes().flat_map(|annex| texts(&annex.reapable));
        texts(&self.meta.root().reapable).chain(annexed)
    }

    /// ZooKeeper's digest of the tree, version 2.
    pub const fn digest(&self) -> u64 {
        self.digest
    }

    /// Bytes that the writer of the snapshot added for its own use.
    pub fn extra(&self) -> &[u8] {
        self.meta.extra()
    }

    #[inline]
    pub(crate) fn find(&self, path: &str, hash: u64) -> Option<SnapshotNode<'_>> {
        let section = &self.sections[section_of(hash, self.bits)];
        section.find(path, hash).map(|record| SnapshotNode { record, section, snapshot: self })
    }

    /// Returns a znode with a path that may have this hash. The record is not read.
    #[inline]
    pub(crate) fn likely_node(&self, hash: u64) -> Option<SnapshotNode<'_>> {
        let section = &self.sections[section_of(hash, self.bits)];
        section.likely(hash).map(|record| SnapshotNode { record, section, snapshot: self })
    }

    pub(crate) fn section(&self, index: usize) -> &CheckedSection {
        &self.sections[index]
    }

    /// The ACL list of an index above that of open znodes. An index out of range gives a list that grants nothing.
    #[inline]
    pub(crate) fn acl(&self, index: u32) -> &Arc<AclList> {
        (index as usize).checked_sub(1).and_then(|at| self.meta.acls.get(at)).unwrap_or(&self.meta.nobody)
    }
}

impl core::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Snapshot").field("zxid", &self.zxid()).field("stats", &self.stats()).finish_non_exhaustive()
    }
}

#[cold]
#[inline(never)]
fn astray(section: usize) -> ! {
    panic!(
        "a reference in section {section} of the snapshot leads out of it: the file was changed under the running server; \
         start again, the start checks everything"
    );
}

fn section_bits(layout: &SnapshotLayout) -> Result<u32, SnapshotFault> {
    let count = layout.sections.len();
    if !count.is_power_of_two() || count.trailing_zeros() > SECTION_BITS_MAX {
        return Err(SnapshotFault::Layout("the number of sections is no power of two within the limit"));
    }
    Ok(count.trailing_zeros())
}

fn slice<'a>(bytes: &'a [u8], range: &Range<usize>) -> Result<&'a [u8], SnapshotFault> {
    let part = bytes.get(range.clone()).ok_or(SnapshotFault::Layout("a section lies outside the bytes"))?;
    if part.len() > SECTION_BYTES_MAX {
        return Err(SnapshotFault::Layout("a section is too long"));
    }
    Ok(part)
}

/// An origin as a value.
fn origin(archived: &ArchivedOrigin) -> Origin {
    Origin {
        server: archived.server,
        shard: ShardId(archived.shard.0.to_native()),
        conn: ConnId { slot: archived.conn.slot.to_native(), generation: archived.conn.generation.to_native() },
        incarnation: archived.incarnation.to_native(),
    }
}
