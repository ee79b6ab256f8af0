//! A znode where it lies in a snapshot, and the names of its children.

use super::format::{ACL_OPEN, take_name};
use super::meta::CheckedMeta;
use super::section::{CheckedSection, LENT_BYTES_MIN, Record};
use crate::shared::Data;
use crate::tree::acl::{Acl, AclList};
use crate::tree::digest;
use crate::tree::znode::{NodeStat, Znode};
use alloc::sync::Arc;
use corral_wire::records::Stat;

/// A znode in a snapshot.
#[derive(Clone, Copy)]
pub struct SnapshotNode<'a> {
    pub(super) record: &'a Record,
    pub(super) section: &'a CheckedSection,
    pub(super) meta: &'a CheckedMeta,
}

impl<'a> SnapshotNode<'a> {
    #[inline]
    pub(crate) fn path(&self) -> &'a str {
        self.section.inside(&*self.record.path)
    }

    #[inline]
    pub(crate) fn stat(&self) -> NodeStat {
        if let Some(written) = self.record.written.as_deref() {
            self.section.inside(written);
        }
        if let Some(family) = self.record.family.as_deref() {
            self.section.inside(family);
        }
        if let Some(rare) = self.record.rare.as_deref() {
            self.section.inside(rare);
        }
        self.record.stat()
    }

    /// The Stat a client sees.
    #[inline]
    pub fn wire_stat(&self) -> Stat {
        self.stat().wire(self.data().map_or(0, <[u8]>::len))
    }

    #[inline]
    pub(crate) fn data(&self) -> Option<&'a [u8]> {
        self.record.data.as_deref().map(|data| self.section.inside(data))
    }

    /// The CRC that the digest has for it. Large data are not read.
    pub(crate) fn crc(&self) -> u32 {
        let large = self.record.data.as_ref().is_some_and(|data| data.len() >= LENT_BYTES_MIN);
        let kept = if large { self.section.crc_of_large(self.record) } else { None };
        kept.unwrap_or_else(|| digest::crc_of(self.path(), self.data(), &self.stat()))
    }

    /// Whether the ACL is `world:anyone` with all permissions.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.record.acl.to_native() == ACL_OPEN
    }

    /// The ACL; `None` if the znode is open. An index the snapshot does not know gives a list that grants nothing.
    #[inline]
    pub fn acl_list(&self) -> Option<&'a AclList> {
        if self.is_open() { None } else { Some(self.meta.acl(self.record.acl.to_native())) }
    }

    /// The children's names, sorted.
    #[inline]
    pub fn names(&self) -> Names<'a> {
        let names = self.record.family.as_deref().map(|family| &*self.section.inside(family).names);
        Names { rest: names.map_or(&[], |names| self.section.inside(names)) }
    }

    /// The ACL as a value.
    pub fn to_acl(&self) -> Acl {
        let index = self.record.acl.to_native();
        if self.is_open() { Acl::Open } else { Acl::List(Arc::clone(self.meta.acl(index))) }
    }

    /// Its state as a value. Small data are copied to the heap; large ones stay where they are, and keep the snapshot's
    /// bytes with them.
    pub fn to_znode(&self) -> Znode {
        let data = |data: &[u8]| if data.len() < LENT_BYTES_MIN { Data::from(data) } else { self.section.lend(data) };
        Znode { stat: self.stat(), acl: self.to_acl(), data: self.data().map(data) }
    }
}

/// Children's names in a snapshot, sorted.
#[derive(Clone, Debug, Default)]
pub struct Names<'a> {
    rest: &'a [u8],
}

impl<'a> Names<'a> {
    pub(crate) const fn of(blob: &'a [u8]) -> Self {
        Self { rest: blob }
    }

    /// Bytes of the names that are left, each with its length.
    pub(crate) const fn bytes(&self) -> usize {
        self.rest.len()
    }

    /// Leaves out so many bytes, which must be those of whole names.
    pub(crate) fn skip_bytes(&mut self, count: usize) {
        self.rest = self.rest.get(count..).unwrap_or_default();
    }
}

impl<'a> Iterator for Names<'a> {
    type Item = &'a str;

    #[inline]
    fn next(&mut self) -> Option<&'a str> {
        let name = take_name(&mut self.rest);
        if name.is_none() {
            self.rest = &[];
        }
        name
    }
}
