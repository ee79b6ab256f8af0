//! Values of requests and answers that own their text.

use corral_wire::consts::{CreateMode, perms};
use corral_wire::{records, vector::VectorBuf};

const LETTERS: [(char, i32); 5] =
    [('c', perms::CREATE), ('d', perms::DELETE), ('r', perms::READ), ('w', perms::WRITE), ('a', perms::ADMIN)];

/// One entry of an ACL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Acl {
    /// Sum of [`perms`].
    pub perms: i32,
    /// `world`, `auth`, `digest`, `ip`, `x509` or `sasl`.
    pub scheme: String,
    /// In the scheme's terms.
    pub id: String,
}

impl Acl {
    /// An entry.
    pub fn new(perms: i32, scheme: &str, id: &str) -> Acl {
        Acl { perms, scheme: scheme.to_owned(), id: id.to_owned() }
    }

    /// The permissions as letters, in zkCli's order.
    pub fn letters(&self) -> String {
        LETTERS.iter().filter(|(_, one)| self.perms & one != 0).map(|(letter, _)| letter).collect()
    }

    /// Permissions from their letters, `None` if one is unknown or there twice.
    pub fn perms_of(letters: &str) -> Option<i32> {
        letters.chars().try_fold(0, |all, letter| {
            let (_, one) = LETTERS.iter().find(|(known, one)| *known == letter && all & one == 0)?;
            Some(all | one)
        })
    }

    /// All permissions for `world:anyone`.
    pub fn open() -> Acl {
        Acl::new(perms::ALL, "world", "anyone")
    }

    /// All permissions for the identities of the session.
    pub fn creator() -> Acl {
        Acl::new(perms::ALL, "auth", "")
    }
}

impl From<records::Acl<'_>> for Acl {
    fn from(acl: records::Acl<'_>) -> Acl {
        Acl::new(acl.perms, acl.scheme.unwrap_or_default(), acl.id.unwrap_or_default())
    }
}

pub(crate) fn encoded(acl: &[Acl]) -> VectorBuf {
    VectorBuf::of(acl.iter().map(|one| records::Acl { perms: one.perms, scheme: Some(&one.scheme), id: Some(&one.id) }))
}

/// How a znode is created.
#[derive(Clone, Copy, Debug)]
pub struct Creation<'a> {
    /// `None` is null, which is not the same as empty.
    pub data: Option<&'a [u8]>,
    /// One entry at least.
    pub acl: &'a [Acl],
    /// Its kind.
    pub mode: CreateMode,
    /// Milliseconds, for the modes with a time to live.
    pub ttl_ms: i64,
}

/// One operation of a transaction.
#[derive(Clone, Copy, Debug)]
pub enum Write<'a> {
    /// Creates a znode.
    Create {
        /// Its path.
        path: &'a str,
        /// How.
        creation: Creation<'a>,
    },
    /// Replaces the data.
    SetData {
        /// The znode.
        path: &'a str,
        /// The new data, or null.
        data: Option<&'a [u8]>,
        /// The version that the znode must have.
        version: Option<i32>,
    },
    /// Deletes a znode.
    Delete {
        /// The znode.
        path: &'a str,
        /// The version that it must have.
        version: Option<i32>,
    },
    /// Fails if the znode has another version.
    Check {
        /// The znode.
        path: &'a str,
        /// The version that it must have, or any.
        version: Option<i32>,
    },
}

impl<'a> Write<'a> {
    pub(crate) fn path(&self) -> &'a str {
        match *self {
            Write::Create { path, .. }
            | Write::SetData { path, .. }
            | Write::Delete { path, .. }
            | Write::Check { path, .. } => path,
        }
    }

    pub(crate) fn acl(&self) -> &'a [Acl] {
        match *self {
            Write::Create { creation, .. } => creation.acl,
            _ => &[],
        }
    }
}
