//! Entries of the replicated log, and the hard state that a server stores beside them.

use bytes::Bytes;

use crate::ids::{Index, ServerId, Term};

/// The state that a server must store for a restart, beside its entries.
///
/// `term` and `vote` must be durable before a message with them is sent. `commit` is a hint that saves work after a
/// restart. An append that must be synced is the exception: its commit holds a membership change. A server that lost it
/// in a restart would count votes by the former membership.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// Latest term this server has seen.
    pub term: Term,
    /// The candidate that it voted for in that term.
    pub vote: Option<ServerId>,
    /// Highest index known committed; after a restart at least that of the last append that was synced, and at most the
    /// last entry.
    pub commit: Index,
}

/// The kind of an entry's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A payload of the application. An empty payload is a new leader's own no-op entry.
    Normal,
    /// A membership change; the payload is an encoded `ConfChange` of `corral-consensus`.
    ConfChange,
}

/// One log entry. Cloning shares the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Term of the leader that made it.
    pub term: Term,
    /// Position in the log.
    pub index: Index,
    /// The kind of the payload.
    pub kind: EntryKind,
    /// At most `Config::max_entry_bytes` bytes for entries proposed here.
    pub payload: Bytes,
}
