//! A znode's state as one immutable value. A write replaces the whole value; readers on other cores keep the old one
//! for as long as they need it. Children are not in here: a view keeps them, sorted, beside the node (`view`).

use crate::ids::{SessionId, Zxid};
use crate::shared::Data;
use crate::tree::acl::Acl;
use corral_wire::records::Stat;

/// The stored owner of a container node.
pub const OWNER_CONTAINER: i64 = i64::MIN;
const OWNER_TTL_TOP: u8 = 0xff;
const TTL_MASK: i64 = 0xff_ffff_ffff;

/// The kind of a znode's lifetime, read from the stored `ephemeralOwner` bits (ZooKeeper's `EphemeralType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// It exists until it is deleted.
    Persistent,
    /// An ephemeral: it is deleted with this session.
    Session(SessionId),
    /// A container: it may be deleted once it has lost its last child.
    Container,
    /// Time to live in milliseconds.
    Ttl(i64),
}

impl Owner {
    /// Reads the stored bits. Each value has a meaning: 0 is persistent.
    pub const fn from_bits(bits: i64) -> Self {
        if bits == 0 {
            Self::Persistent
        } else if bits == OWNER_CONTAINER {
            Self::Container
        } else if bits.to_be_bytes()[0] == OWNER_TTL_TOP {
            Self::Ttl(bits & TTL_MASK)
        } else {
            Self::Session(SessionId(bits))
        }
    }

    /// The bits that are stored. Of a time to live the lower 40 are kept.
    pub const fn bits(self) -> i64 {
        match self {
            Self::Persistent => 0,
            Self::Session(id) => id.0,
            Self::Container => OWNER_CONTAINER,
            Self::Ttl(ms) => i64::from_be_bytes([OWNER_TTL_TOP, 0, 0, 0, 0, 0, 0, 0]) | (ms & TTL_MASK),
        }
    }

    /// Whether the end of a session deletes the znode.
    pub const fn is_ephemeral(self) -> bool {
        matches!(self, Self::Session(_))
    }
}

/// The stored part of a Stat. `cversion` counts child creations (not what clients see, protocol chapter 10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeStat {
    /// Zxid of the transaction that created the znode.
    pub czxid: Zxid,
    /// Zxid of the last change of the data; before the first, of the creation.
    pub mzxid: Zxid,
    /// Zxid of the last creation or deletion of a child; before the first, of the creation.
    pub pzxid: Zxid,
    /// Wall clock, milliseconds since 1970.
    pub ctime: i64,
    /// Wall clock of the last change of the data, milliseconds since 1970.
    pub mtime: i64,
    /// Version of the data: 0 at first, one more after each setData.
    pub version: i32,
    /// Number of children that were ever created.
    pub cversion: i32,
    /// Version of the ACL: 0 at first, one more after each setACL.
    pub aversion: i32,
    /// Raw owner bits, see [`Owner`].
    pub owner: i64,
    /// Number of children.
    pub num_children: u32,
    /// Bytes of all children's names, each with its length, as a snapshot keeps them. No part of a client's Stat.
    pub names_bytes: u64,
}

/// Bytes that a child's name counts for in [`NodeStat::names_bytes`].
pub fn name_bytes(name: &str) -> u64 {
    const BITS_A_BYTE: u32 = 7;
    let length = name.len() as u64;
    length + u64::from((u64::BITS - length.leading_zeros()).div_ceil(BITS_A_BYTE).max(1))
}

impl NodeStat {
    /// A child was created by the transaction of this zxid.
    pub fn add_child(&mut self, zxid: Zxid, name: &str) {
        self.cversion = self.cversion.wrapping_add(1);
        self.pzxid = zxid;
        self.num_children = self.num_children.saturating_add(1);
        self.names_bytes = self.names_bytes.saturating_add(name_bytes(name));
    }

    /// A child was deleted by the transaction of this zxid.
    pub fn remove_child(&mut self, zxid: Zxid, name: &str) {
        self.num_children = self.num_children.saturating_sub(1);
        self.names_bytes = self.names_bytes.saturating_sub(name_bytes(name));
        self.pzxid = self.pzxid.max(zxid);
    }

    /// Children deleted since the znode was created, unless so many were created that their number began anew.
    pub const fn deletions(&self) -> u32 {
        self.cversion.cast_unsigned().saturating_sub(self.num_children)
    }

    /// The Stat a client sees.
    pub fn wire(&self, data_length: usize) -> Stat {
        let children = i32::try_from(self.num_children).unwrap_or(i32::MAX);
        Stat {
            czxid: self.czxid.wire(),
            mzxid: self.mzxid.wire(),
            ctime: self.ctime,
            mtime: self.mtime,
            version: self.version,
            cversion: self.cversion.wrapping_mul(2).wrapping_sub(children),
            aversion: self.aversion,
            ephemeral_owner: if Owner::from_bits(self.owner).is_ephemeral() { self.owner } else { 0 },
            data_length: i32::try_from(data_length).unwrap_or(i32::MAX),
            num_children: children,
            pzxid: self.pzxid.wire(),
        }
    }
}

/// The state of one znode at one zxid, immutable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Znode {
    /// Times, versions and numbers of the znode.
    pub stat: NodeStat,
    /// Access control of the znode.
    pub acl: Acl,
    /// `None` is null data, which is not the same as empty data.
    pub data: Option<Data>,
}

impl Znode {
    /// Bytes of the data; 0 of null data.
    pub fn data_len(&self) -> usize {
        self.data.as_ref().map_or(0, |data| data.len())
    }

    /// The Stat a client sees.
    pub fn wire_stat(&self) -> Stat {
        self.stat.wire(self.data_len())
    }
}
