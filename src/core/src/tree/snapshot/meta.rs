//! The checked meta section of a snapshot: counts, ACL lists and sessions, in place.
//!
//! It holds pointers into the bytes, which it keeps alive as a section does. On any core, without a lock.
#![allow(unsafe_code, reason = "a meta section refers to the bytes that it keeps alive; each block says why it may")]

use super::annex::{self, shared_lists, texts};
use super::fault::SnapshotFault;
use super::format::{ArchivedAnnex, ArchivedMeta, FORMAT, FORMAT_WITH_ANNEXES};
use super::layout::{SECTION_ALIGN, SnapshotLayout};
use super::section::{SnapshotBytes, section_bits};
use crate::ids::Zxid;
use crate::shared::Text;
use crate::tree::acl::{self, AclList};
use crate::tree::digest;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ptr::NonNull;
use rkyv::rancor;

/// Proof that the meta section's bytes are a valid archive, with pointers to its parts.
pub struct CheckedMeta {
    bytes: Arc<dyn SnapshotBytes>,
    root: NonNull<ArchivedMeta>,
    annexes: Vec<NonNull<ArchivedAnnex>>,
    acls: Vec<Arc<AclList>>,
    without_rights: Arc<AclList>,
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
        let without_rights = Arc::new(AclList::from(vec![acl::without_rights()]));
        Ok(Self {
            bytes: Arc::clone(bytes),
            root: NonNull::from(root),
            annexes: annexes.into_iter().map(NonNull::from).collect(),
            acls,
            without_rights,
            length: part.len(),
            digest: digest::read_stored(part),
        })
    }

    /// Bytes that the writer of the snapshot added for its own use.
    pub fn extra(&self) -> &[u8] {
        &self.root().extra
    }

    /// The bytes that it lies in.
    pub(super) const fn bytes(&self) -> &Arc<dyn SnapshotBytes> {
        &self.bytes
    }

    /// Number of its own bytes.
    pub(super) const fn len(&self) -> usize {
        self.length
    }

    /// The digest of the tree that its writer stored, if it stored one.
    pub(super) const fn stored_digest(&self) -> Option<u64> {
        self.digest
    }

    /// The ACL list of an index above that of open znodes. An index out of range gives a list that grants nothing.
    #[inline]
    pub(super) fn acl(&self, index: u32) -> &Arc<AclList> {
        (index as usize).checked_sub(1).and_then(|at| self.acls.get(at)).unwrap_or(&self.without_rights)
    }

    /// Its archive.
    pub(super) fn root(&self) -> &ArchivedMeta {
        // SAFETY: taken from a checked archive inside `self.bytes`, which by the contract of `SnapshotBytes` neither
        // moves nor changes while this value holds it.
        unsafe { self.root.as_ref() }
    }

    /// The archives of its longest lists.
    pub(super) fn annexes(&self) -> impl Iterator<Item = &ArchivedAnnex> {
        // SAFETY: as in `root`.
        self.annexes.iter().map(|annex| unsafe { annex.as_ref() })
    }

    /// Paths of the ephemerals of the session at that place of the list that are not with it.
    pub(super) fn more_ephemerals(&self, session: usize) -> impl Iterator<Item = Text> + '_ {
        self.annexes().flat_map(move |annex| {
            let at = annex.ephemerals.binary_search_by_key(&session, |of| of.session.to_native() as usize);
            at.ok().into_iter().flat_map(|at| texts(&annex.ephemerals[at].paths))
        })
    }
}
