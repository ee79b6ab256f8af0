//! A committed log entry as the checkers want it.

/// A committed log entry as the checkers want it.
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
