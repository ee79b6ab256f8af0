//! The archived form of a snapshot: its layout, and how small it is made.
//!
//! A znode that was created and never touched again takes 48 bytes plus path, data and 5.3 bytes of hash slot. Parts of
//! a Stat that differ from such a znode are in side records, which are absent otherwise. A change of anything here is a
//! change of [`FORMAT`].

use crate::ids::{Origin, SessionId, Zxid};
use crate::shared::Text;
use crate::tree::acl::AclEntry;
use crate::tree::znode::NodeStat;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem::size_of;
use rkyv::niche::niching::Null;
use rkyv::rancor::{self, Fallible, Source};
use rkyv::ser::{Allocator, Writer};
use rkyv::vec::{ArchivedVec, VecResolver};
use rkyv::with::{AsBox, InlineAsBox, Map, MapNiche, Unshare};
use rkyv::{Archive, Deserialize, Place, Serialize};

/// Version of the archives' shape; other versions are refused.
pub(crate) const FORMAT: u32 = 3;
/// That of a meta section with annexes.
pub(crate) const FORMAT_WITH_ANNEXES: u32 = 4;

/// The ACL index of an open znode; list `i` of the meta section has index `i + 1`.
pub(crate) const ACL_OPEN: u32 = 0;

/// One znode.
#[derive(Archive, Serialize)]
pub(crate) struct Node<'a> {
    pub(crate) czxid: u64,
    pub(crate) ctime: i64,
    #[rkyv(with = InlineAsBox)]
    pub(crate) path: &'a str,
    /// Absent is null data.
    #[rkyv(with = MapNiche<InlineAsBox, Null>)]
    pub(crate) data: Option<&'a [u8]>,
    pub(crate) acl: u32,
    #[rkyv(with = MapNiche<AsBox, Null>)]
    pub(crate) written: Option<Written>,
    #[rkyv(with = MapNiche<AsBox, Null>)]
    pub(crate) family: Option<Family<'a>>,
    #[rkyv(with = MapNiche<AsBox, Null>)]
    pub(crate) rare: Option<Rare>,
}

/// Side record of a znode with data that was set after its creation.
#[derive(Archive, Serialize)]
pub(crate) struct Written {
    pub(crate) mzxid: u64,
    pub(crate) mtime: i64,
    pub(crate) version: i32,
}

/// Of a znode that has, or had, children.
#[derive(Archive, Serialize)]
pub(crate) struct Family<'a> {
    pub(crate) pzxid: u64,
    pub(crate) cversion: i32,
    pub(crate) num_children: u32,
    /// The names, sorted: each its length as LEB128, then its bytes.
    #[rkyv(with = InlineAsBox)]
    pub(crate) names: &'a [u8],
}

/// Of a znode with an owner or a changed ACL.
#[derive(Archive, Serialize)]
pub(crate) struct Rare {
    pub(crate) owner: i64,
    pub(crate) aversion: i32,
}

impl<'a> Node<'a> {
    pub(crate) fn new(path: &'a str, stat: &NodeStat, acl: u32, data: Option<&'a [u8]>, names: &'a [u8]) -> Self {
        let created = (stat.czxid, stat.ctime, 0);
        let written = (stat.mzxid, stat.mtime, stat.version) != created;
        let family = (stat.pzxid, stat.cversion, stat.num_children) != (stat.czxid, 0, 0) || !names.is_empty();
        let rare = (stat.owner, stat.aversion) != (0, 0);
        Self {
            czxid: stat.czxid.0,
            ctime: stat.ctime,
            path,
            data,
            acl,
            written: written.then_some(Written { mzxid: stat.mzxid.0, mtime: stat.mtime, version: stat.version }),
            family: family.then_some(Family {
                pzxid: stat.pzxid.0,
                cversion: stat.cversion,
                num_children: stat.num_children,
                names,
            }),
            rare: rare.then_some(Rare { owner: stat.owner, aversion: stat.aversion }),
        }
    }

    /// At most so many bytes in a section, its hash slot and all padding included.
    pub(crate) fn bytes_max(path: usize, data: usize, names: usize) -> usize {
        const FIXED: usize = size_of::<ArchivedNode<'static>>()
            + size_of::<ArchivedWritten>()
            + size_of::<ArchivedFamily<'static>>()
            + size_of::<ArchivedRare>()
            + 3 * 8
            + 8;
        FIXED + path + data + names
    }
}

impl ArchivedNode<'_> {
    pub(crate) fn stat(&self) -> NodeStat {
        let czxid = Zxid(self.czxid.to_native());
        let ctime = self.ctime.to_native();
        let mut stat =
            NodeStat { czxid, mzxid: czxid, pzxid: czxid, ctime, mtime: ctime, version: 0, ..NodeStat::default() };
        if let Some(written) = self.written.as_deref() {
            stat.mzxid = Zxid(written.mzxid.to_native());
            stat.mtime = written.mtime.to_native();
            stat.version = written.version.to_native();
        }
        if let Some(family) = self.family.as_deref() {
            stat.pzxid = Zxid(family.pzxid.to_native());
            stat.cversion = family.cversion.to_native();
            stat.num_children = family.num_children.to_native();
            stat.names_bytes = family.names.len() as u64;
        }
        if let Some(rare) = self.rare.as_deref() {
            stat.owner = rare.owner.to_native();
            stat.aversion = rare.aversion.to_native();
        }
        stat
    }

    pub(crate) fn names(&self) -> &[u8] {
        self.family.as_deref().map_or(&[], |family| &family.names)
    }
}

/// How a section's hash slots are read. A slot holds a znode's index plus one in its low `index_bits` bits. Above them
/// it holds a tag, bits of the path hash from 32 up. 0 is a free slot. A path's first slot is the low half of its hash,
/// scaled to the number of slots. Others follow linearly and wrap, at most `probe_max` of them, which is [`PROBES_MAX`]
/// or less.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug)]
pub(crate) struct Probing {
    pub(crate) index_bits: u32,
    pub(crate) probe_max: u32,
}

/// Most probes of a search. A million znodes need some 25, with hashes that are not chosen to collide.
pub(crate) const PROBES_MAX: u32 = 1024;

/// The slot where the search for a path begins.
#[inline]
pub(crate) const fn first_slot(hash: u64, slots: usize) -> usize {
    ((hash & 0xffff_ffff) as usize * slots) >> 32
}

/// The bits of a slot that tell most other znodes from this one, in their place.
#[inline]
pub(crate) const fn slot_tag(hash: u64, index_bits: u32) -> u32 {
    ((hash >> 32) as u32) << index_bits
}

const _: () = assert!(usize::BITS == 64, "first_slot multiplies two 32-bit numbers");

/// A section's root.
#[derive(Archive, Serialize)]
pub(crate) struct Section<'a> {
    /// Which section this is, of `1 << bits`.
    pub(crate) index: u32,
    pub(crate) bits: u32,
    pub(crate) probing: Probing,
    pub(crate) slots: Vec<u32>,
    pub(crate) nodes: NodeList<'a>,
}

/// Znodes made one by one while they are written, archived as a vector of them.
#[derive(Clone, Copy)]
pub(crate) struct NodeList<'a> {
    pub(crate) count: usize,
    pub(crate) node: &'a dyn Fn(usize) -> Node<'a>,
}

impl<'a> Archive for NodeList<'a> {
    type Archived = ArchivedVec<ArchivedNode<'a>>;
    type Resolver = VecResolver;
    fn resolve(&self, resolver: Self::Resolver, out: Place<Self::Archived>) {
        ArchivedVec::resolve_from_len(self.count, resolver, out);
    }
}

impl<S: Fallible<Error: Source> + Allocator + Writer + ?Sized> Serialize<S> for NodeList<'_> {
    fn serialize(&self, serializer: &mut S) -> Result<Self::Resolver, S::Error> {
        ArchivedVec::serialize_from_iter((0..self.count).map(self.node), serializer)
    }
}

/// Checks a section's archive.
pub(crate) fn section_root(bytes: &[u8]) -> Result<&ArchivedSection<'static>, rancor::Error> {
    rkyv::access(bytes)
}

/// The content of a meta section. Lists are few, and sessions are copied out once, at start.
#[derive(Archive, Serialize)]
pub(crate) struct Meta {
    pub(crate) format: u32,
    pub(crate) section_bits: u32,
    pub(crate) seed: u64,
    pub(crate) zxid: u64,
    pub(crate) nodes: u64,
    pub(crate) data_bytes: u64,
    pub(crate) ephemerals: u64,
    #[rkyv(with = Map<Unshare>)]
    pub(crate) acls: Vec<Arc<Vec<AclEntry>>>,
    pub(crate) sessions: Vec<SnapshotSession>,
    /// Paths of containers and TTL nodes, sorted.
    pub(crate) reapable: Vec<Text>,
    pub(crate) extra: Vec<u8>,
}

/// A part of the lists of a meta section that is too long for one archive.
#[derive(Archive, Serialize, Default)]
pub(crate) struct Annex {
    #[rkyv(with = Map<Unshare>)]
    pub(crate) acls: Vec<Arc<Vec<AclEntry>>>,
    /// By session, in the order of the meta section's.
    pub(crate) ephemerals: Vec<Ephemerals>,
    pub(crate) reapable: Vec<Text>,
}

/// Paths of ephemerals of one session.
#[derive(Archive, Serialize)]
pub(crate) struct Ephemerals {
    /// Its place among the meta section's sessions.
    pub(crate) session: u32,
    pub(crate) paths: Vec<Text>,
}

/// A session as a snapshot keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize)]
pub struct SnapshotSession {
    /// Id of the session.
    pub id: SessionId,
    /// Negotiated, milliseconds.
    pub timeout_ms: i32,
    /// The secret with which a client attaches it to another connection.
    pub password: [u8; 16],
    /// The connection that last attached it: commands behind the snapshot are judged by it when they are replayed.
    pub owner: Option<Origin>,
    /// Paths of its ephemerals, sorted.
    pub ephemerals: Vec<Text>,
}

/// Appends one child's name to a blob of names.
pub(crate) fn push_name(blob: &mut Vec<u8>, name: &str) {
    let mut rest = name.len();
    while rest >= 0x80 {
        blob.push(rest.to_le_bytes()[0] | 0x80);
        rest >>= 7;
    }
    blob.push(rest.to_le_bytes()[0]);
    blob.extend_from_slice(name.as_bytes());
}

/// Takes the first name off a blob; `None` at its end and where it makes no sense, which an empty name does not either.
#[inline]
pub(crate) fn take_name<'a>(blob: &mut &'a [u8]) -> Option<&'a str> {
    let mut length = 0_usize;
    for at in 0..5_u32 {
        let (&byte, rest) = blob.split_first()?;
        *blob = rest;
        length |= ((byte & 0x7f) as usize) << (7 * at);
        if byte < 0x80 {
            let (name, rest) = blob.split_at_checked(length)?;
            *blob = rest;
            return core::str::from_utf8(name).ok().filter(|name| !name.is_empty());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    #[test]
    fn names_round_trip() {
        let names: Vec<String> = [1, 2, 127, 128, 300, 16_383, 16_384].map(|length| "n".repeat(length)).to_vec();
        let mut blob = Vec::new();
        for name in &names {
            push_name(&mut blob, name);
        }
        let mut rest = blob.as_slice();
        for name in &names {
            assert_eq!(take_name(&mut rest), Some(name.as_str()));
        }
        assert_eq!(take_name(&mut rest), None);
    }

    #[test]
    fn senseless_names_end() {
        for mut blob in
            [&[5, b'a'][..], &[0], &[0x80], &[0xff; 9], &[2, 0xc3, 0x28], &[0xff, 0xff, 0xff, 0xff, 0x7f, 1]]
        {
            assert_eq!(take_name(&mut blob), None);
        }
    }

    #[test]
    fn slots_are_in_range() {
        for hash in [0, 1, 0xffff_ffff, u64::MAX, 0x8000_0000] {
            for slots in [1, 2, 3, 1000, 0x7fff_ffff] {
                assert!(first_slot(hash, slots) < slots);
            }
        }
    }
}
