//! A znode of the model, and the steps of a transaction on znodes.

use corral_wire::records::Stat;

use super::paths::is_below;
use crate::request::AclItem;

/// Kinds of watch events.
pub(crate) const CREATED: i32 = 1;
pub(crate) const DELETED: i32 = 2;
pub(crate) const DATA_CHANGED: i32 = 3;
pub(crate) const CHILDREN_CHANGED: i32 = 4;

/// A znode. `created` counts children ever created, see protocol chapter 10.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) data: Option<Vec<u8>>,
    pub(crate) acl: Vec<AclItem>,
    pub(crate) czxid: u64,
    pub(crate) mzxid: u64,
    pub(crate) pzxid: u64,
    pub(crate) ctime: i64,
    pub(crate) mtime: i64,
    pub(crate) version: i32,
    pub(crate) created: i32,
    pub(crate) aversion: i32,
    /// The session of an ephemeral, else 0.
    pub(crate) owner: i64,
    pub(crate) children: i32,
    pub(crate) life: Life,
}

/// How a znode ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Life {
    #[default]
    /// Deleted by a client, or with its session.
    Plain,
    Container,
    Ttl(i64),
}

impl Node {
    pub(super) fn made(zxid: u64, time: i64, data: Option<Vec<u8>>, acl: Vec<AclItem>) -> Node {
        Node { data, acl, czxid: zxid, mzxid: zxid, pzxid: zxid, ctime: time, mtime: time, ..Node::default() }
    }

    /// As a transaction gives it other data.
    pub(super) fn set_data(&mut self, zxid: u64, time: i64, data: Option<Vec<u8>>) {
        (self.data, self.version) = (data, self.version.wrapping_add(1));
        (self.mzxid, self.mtime) = (zxid, time);
    }

    pub(crate) fn stat(&self) -> Stat {
        let data_length = self.data.as_ref().map_or(0, Vec::len);
        Stat {
            czxid: self.czxid.cast_signed(),
            mzxid: self.mzxid.cast_signed(),
            ctime: self.ctime,
            mtime: self.mtime,
            version: self.version,
            cversion: self.created.wrapping_mul(2).wrapping_sub(self.children),
            aversion: self.aversion,
            ephemeral_owner: self.owner,
            data_length: i32::try_from(data_length).unwrap_or(i32::MAX),
            num_children: self.children,
            pzxid: self.pzxid.cast_signed(),
        }
    }
}

/// One step of a transaction, with the ACL that decides which clients may see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// [`CREATED`], [`DELETED`] or [`DATA_CHANGED`].
    pub(crate) kind: i32,
    pub(crate) path: String,
    pub(crate) acl: Vec<AclItem>,
    /// ACL of the parent, if its children changed.
    pub(crate) parent_acl: Option<Vec<AclItem>>,
}

impl Step {
    /// Whether there is another number of znodes below this one.
    pub(crate) fn changes_below(&self, top: &str) -> bool {
        self.parent_acl.is_some() && (top == "/" || is_below(&self.path, top))
    }
}

/// Bytes of data.
pub(super) fn length(data: Option<&[u8]>) -> i64 {
    i64::try_from(data.map_or(0, <[u8]>::len)).expect("data is small")
}
