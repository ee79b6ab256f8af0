//! The bytes of a snapshot and its checked sections, on any core, without a lock.
//!
//! A section is checked once, on any thread, and then read through the pointers that the check found. A section keeps its
//! bytes alive, so it may hold pointers into them. Knows neither the meta section nor which sections make a snapshot.
#![allow(unsafe_code, reason = "a section refers to the bytes that it keeps alive; each block says why it may")]

use super::fault::SnapshotFault;
use super::format::{ArchivedNode, PROBES_MAX, Probing, first_slot, section_root, slot_tag};
use super::layout::{SECTION_ALIGN, SECTION_BYTES_MAX, SnapshotLayout};
use crate::shared::Data;
use crate::tree::digest;
use crate::tree::path_hash::SECTION_BITS_MAX;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::ptr::NonNull;
use rkyv::rend::u32_le;
use rkyv::util::AlignedVec;

/// Data of fewer bytes are copied when a znode of the snapshot changes. The bytes of the snapshot stay for as long as
/// data of it are lent, which is until the next snapshot but one.
pub(super) const LENT_BYTES_MIN: usize = 4096;

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

    /// Whether this is the section of `1 << bits` at that index of a snapshot in these bytes.
    pub(super) fn is_at(&self, index: usize, bits: u32, bytes: &Arc<dyn SnapshotBytes>) -> bool {
        self.index == index && self.bits == bits && Arc::ptr_eq(&self.bytes, bytes)
    }

    /// Where it lies within the bytes.
    pub(super) const fn place(&self) -> Range<usize> {
        self.start..self.start + self.length
    }

    /// The digest of its znodes.
    pub(super) const fn digest(&self) -> u64 {
        self.digest
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
        copy.extend_from_slice(slice((*self.bytes).as_ref(), &self.place())?);
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

#[cold]
#[inline(never)]
fn astray(section: usize) -> ! {
    panic!(
        "a reference in section {section} of the snapshot leads out of it: the file was changed under the running server; \
         start again, the start checks everything"
    );
}

/// The number of sections of a layout, as a power of two.
pub(super) fn section_bits(layout: &SnapshotLayout) -> Result<u32, SnapshotFault> {
    let count = layout.sections.len();
    if !count.is_power_of_two() || count.trailing_zeros() > SECTION_BITS_MAX {
        return Err(SnapshotFault::Layout("the number of sections is no power of two within the limit"));
    }
    Ok(count.trailing_zeros())
}

/// The bytes of a section.
pub(super) fn slice<'a>(bytes: &'a [u8], range: &Range<usize>) -> Result<&'a [u8], SnapshotFault> {
    let part = bytes.get(range.clone()).ok_or(SnapshotFault::Layout("a section lies outside the bytes"))?;
    if part.len() > SECTION_BYTES_MAX {
        return Err(SnapshotFault::Layout("a section is too long"));
    }
    Ok(part)
}
