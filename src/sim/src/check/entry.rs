//! A committed log entry, and the place of one of its commands in the log.

use corral_core::ids::Millis;

/// A committed log entry as the checkers need it.
#[derive(Clone, Debug)]
pub(crate) struct CommittedEntry {
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) payload: Vec<u8>,
    /// ZooKeeper's digest of the tree behind it.
    pub(crate) digest: Option<u64>,
    /// Ids of the sessions it began, in order: the server's choice, which no model can foresee.
    pub(crate) begun: Vec<i64>,
}

/// Where a command stands in the log.
pub(super) struct EntryPosition {
    pub(super) index: u64,
    pub(super) term: u64,
    pub(super) zxid: u64,
    pub(super) time: i64,
    /// The leader says that it has a membership change in hand.
    pub(super) changing: bool,
    /// The session that the command began, or 0, and when that became known.
    pub(super) begun: i64,
    pub(super) now: Millis,
}
