//! A znode as a view finds it, in a delta or in the snapshot, and its ACL in place.

use crate::tree::acl::{Acl, AclEntry, AclList, Identity};
use crate::tree::snapshot::SnapshotNode;
use crate::tree::znode::{NodeStat, Znode};
use alloc::sync::Arc;
use corral_wire::records::Stat;

/// A znode as a view finds it.
#[derive(Clone, Copy)]
pub enum NodeRef<'a> {
    /// Of a delta: created or changed since the snapshot.
    Live(&'a Arc<Znode>),
    /// Not changed since the snapshot.
    Snapshot(SnapshotNode<'a>),
}

impl<'a> NodeRef<'a> {
    /// Whether the znode grants any of the `wanted` permissions. Most are open to all, which is asked first.
    #[inline]
    pub fn allows(&self, wanted: i32, identities: &[Identity]) -> bool {
        self.acl_list().is_none_or(|list| list.grants(wanted, identities))
    }

    /// The stored part of the Stat.
    #[inline]
    pub fn stat(&self) -> NodeStat {
        match self {
            Self::Live(node) => node.stat,
            Self::Snapshot(node) => node.stat(),
        }
    }

    /// The Stat a client sees.
    #[inline]
    pub fn wire_stat(&self) -> Stat {
        match self {
            Self::Live(node) => node.wire_stat(),
            Self::Snapshot(node) => node.wire_stat(),
        }
    }

    /// `None` is null data.
    #[inline]
    pub fn data(&self) -> Option<&'a [u8]> {
        match self {
            Self::Live(node) => node.data.as_deref(),
            Self::Snapshot(node) => node.data(),
        }
    }

    /// Bytes of its data.
    #[inline]
    pub fn data_len(&self) -> usize {
        self.data().map_or(0, <[u8]>::len)
    }

    /// The ACL, not copied.
    #[inline]
    pub fn acl(&self) -> AclRef<'a> {
        self.acl_list().map_or(AclRef::Open, |list| AclRef::List(list))
    }

    /// The ACL; `None` is `world:anyone` with all permissions.
    #[inline]
    pub fn acl_list(&self) -> Option<&'a AclList> {
        match self {
            Self::Live(node) => match &node.acl {
                Acl::Open => None,
                Acl::List(list) => Some(list),
            },
            Self::Snapshot(node) => node.acl_list(),
        }
    }

    /// The ACL as a value that outlives the view's next change.
    pub fn to_acl(&self) -> Acl {
        match self {
            Self::Live(node) => node.acl.clone(),
            Self::Snapshot(node) => node.to_acl(),
        }
    }

    /// Whether the ACL is `world:anyone` with all permissions.
    #[inline]
    pub fn is_open_acl(&self) -> bool {
        match self {
            Self::Live(node) => matches!(node.acl, Acl::Open),
            Self::Snapshot(node) => node.is_open(),
        }
    }

    /// The znode as a value, to make its next state from.
    pub fn to_znode(&self) -> Arc<Znode> {
        match self {
            Self::Live(node) => Arc::clone(node),
            Self::Snapshot(node) => Arc::new(node.to_znode()),
        }
    }
}

/// A znode's ACL in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclRef<'a> {
    /// Exactly `world:anyone` with all permissions (31).
    Open,
    /// An empty list grants nothing.
    List(&'a [AclEntry]),
}

impl<'a> AclRef<'a> {
    /// Entries.
    pub const fn len(self) -> usize {
        match self {
            Self::Open => 1,
            Self::List(list) => list.len(),
        }
    }

    /// Whether the ACL has no entry, and so grants nothing.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Permissions, scheme and id of each entry.
    pub fn iter(self) -> impl Iterator<Item = (i32, &'a str, &'a str)> {
        let (open, list) = match self {
            Self::Open => (Some((31, "world", "anyone")), &[][..]),
            Self::List(list) => (None, list),
        };
        open.into_iter().chain(list.iter().map(|entry| (entry.perms, &*entry.scheme, &*entry.id)))
    }
}
