//! The entries of an ACL, as stored and as sent, and the identities that they are compared with.

use crate::shared::Text;
use alloc::vec::Vec;
use rkyv::{Archive, Deserialize, Serialize};

/// A proven identity of a connection, such as (`ip`, `10.0.0.7`) or (`digest`, `user:hash`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// Authentication scheme: `ip`, `digest`, `sasl`, `x509` or `super`.
    pub scheme: Text,
    /// Id within the scheme, in the form of an ACL's id.
    pub id: Text,
}

/// An ACL as a client sent it, before it is checked and expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AclSpec {
    /// Exactly one entry, `world:anyone` with all permissions.
    Open,
    /// Null or empty: refused by evaluation, in its place among the checks.
    Missing,
    /// The entries as sent, with `auth` entries that evaluation expands.
    List(Vec<AclEntry>),
    /// Holds a null scheme: refused by evaluation.
    Malformed,
    /// The entries before one with a null id, at which the check of the list breaks off.
    BrokenOff(Vec<AclEntry>),
}

/// One entry of an ACL list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Archive, Serialize, Deserialize)]
pub struct AclEntry {
    /// Permissions that the entry grants, as bits of [`crate::tree::acl`].
    pub perms: i32,
    /// Scheme of the identity: `world`, `ip`, `digest`, `sasl` or `x509`.
    pub scheme: Text,
    /// Id within the scheme, such as `anyone` or an address range.
    pub id: Text,
}
