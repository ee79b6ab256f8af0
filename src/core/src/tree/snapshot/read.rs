//! A whole snapshot: its checked sections and its meta section, and the look-up of a znode.
//!
//! Read in place, on any core, without a lock.

use super::annex::texts;
use super::fault::SnapshotFault;
use super::format::SnapshotSession;
use super::layout::{SnapshotLayout, SnapshotStats};
use super::meta::CheckedMeta;
use super::node::SnapshotNode;
use super::section::{CheckedSection, SnapshotBytes, slice};
use crate::ids::{ArchivedOrigin, ConnId, Origin, ServerId, SessionId, ShardId, Zxid};
use crate::shared::Text;
use crate::tree::acl::AclList;
use crate::tree::path_hash::{SECTION_BITS_MAX, section_of};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::ops::Range;

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
            if !section.is_at(index, bits, meta.bytes()) {
                return Err(SnapshotFault::Layout("a section is out of place"));
            }
        }
        let found = sections.iter().map(|section| section.digest()).fold(0, u64::wrapping_add);
        if let Some(stored) = meta.stored_digest().filter(|stored| *stored != found) {
            return Err(SnapshotFault::Digest { stored, found });
        }
        Ok(Self { sections, bits, meta, digest: found })
    }

    /// Compares all sections with their checksums, where their bytes could have changed. Reads all of them.
    ///
    /// # Errors
    /// [`SnapshotFault::Damaged`].
    pub fn verify(&self) -> Result<(), SnapshotFault> {
        verify(&**self.meta.bytes(), &self.places(), &mut |_| {})
    }

    /// Returns the means to lend data of this snapshot.
    pub fn lender(&self) -> Lender {
        Lender { bytes: Arc::downgrade(self.meta.bytes()), sections: self.places() }
    }

    /// Where the sections lie, in order.
    fn places(&self) -> Vec<Range<usize>> {
        self.sections.iter().map(CheckedSection::place).collect()
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
        self.sections.iter().map(|section| section.place().len()).sum::<usize>() + self.meta.len()
    }

    /// There are `1 << section_bits` sections.
    pub const fn section_bits(&self) -> u32 {
        self.bits
    }

    /// The sessions, each copied out of the snapshot when asked for.
    pub fn sessions(&self) -> impl Iterator<Item = SnapshotSession> + '_ {
        self.meta.root().sessions.iter().enumerate().map(|(at, session)| SnapshotSession {
            id: SessionId(session.id.0.to_native()),
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
        section.find(path, hash).map(|record| SnapshotNode { record, section, meta: &self.meta })
    }

    /// Returns a znode with a path that may have this hash. The record is not read.
    #[inline]
    pub(crate) fn likely_node(&self, hash: u64) -> Option<SnapshotNode<'_>> {
        let section = &self.sections[section_of(hash, self.bits)];
        section.likely(hash).map(|record| SnapshotNode { record, section, meta: &self.meta })
    }

    pub(crate) fn section(&self, index: usize) -> &CheckedSection {
        &self.sections[index]
    }

    /// The ACL list of an index above that of open znodes. An index out of range gives a list that grants nothing.
    #[inline]
    pub(crate) fn acl(&self, index: u32) -> &Arc<AclList> {
        self.meta.acl(index)
    }
}

impl core::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Snapshot").field("zxid", &self.zxid()).field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// An origin as a value.
fn origin(archived: &ArchivedOrigin) -> Origin {
    Origin {
        server: ServerId(archived.server.0),
        shard: ShardId(archived.shard.0.to_native()),
        conn: ConnId { slot: archived.conn.slot.to_native(), generation: archived.conn.generation.to_native() },
        incarnation: archived.incarnation.to_native(),
    }
}
