//! The sender of a command.

use super::acl::Identity;

/// A simulated connection; also stands for the owner of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LinkId(pub(crate) usize);

/// The sender of a command and its time.
#[derive(Clone, Debug)]
pub(crate) struct Caller<'a> {
    pub(crate) zxid: u64,
    pub(crate) time: i64,
    pub(crate) session: i64,
    pub(crate) link: Option<LinkId>,
    pub(crate) identities: &'a [Identity],
}
