//! Identities, terms, indices, entries and roles: the plain data of Raft, in types of this crate.
//!
//! A leaf: it names neither the Raft library nor an encoding, and checks nothing.

use std::fmt;

use bytes::Bytes;

/// Identity of one server of the ensemble; never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// Raft term; 0 only before the first election.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

/// Raft log index; the first entry has index 1, 0 means "before the first entry".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Index(pub u64);

/// Microseconds on the driver's monotonic clock: for how long something took, never for what is replicated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Micros(pub u64);

impl Micros {
    /// `time` later, saturating.
    #[must_use]
    pub const fn plus(self, time: Micros) -> Micros {
        Micros(self.0.saturating_add(time.0))
    }

    /// The time since `earlier`, 0 if that is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Micros) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }
}

macro_rules! display_inner {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}
display_inner!(NodeId, Term, Index);

/// What a server must store for a restart beside its entries.
///
/// `term` and `vote` must be durable before a message with them is sent. `commit` is a hint that saves work after a restart,
/// except where an append that must be synced brings it: that commit holds a membership change, and a restart must know
/// of it, or the server would count votes by a membership that is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// Latest term this server has seen.
    pub term: Term,
    /// The candidate that it voted for in that term.
    pub vote: Option<NodeId>,
    /// Highest index known committed; after a restart at least that of the last append that was synced, and at most the
    /// last entry.
    pub commit: Index,
}

/// What an entry carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A payload of the application. An empty payload is a new leader's own no-op entry.
    Normal,
    /// A membership change; the payload is read with [`crate::ConfChange::decode`].
    ConfChange,
}

/// One log entry. Cloning shares the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Term of the leader that made it.
    pub term: Term,
    /// Position in the log.
    pub index: Index,
    /// What the payload is.
    pub kind: EntryKind,
    /// At most `Config::max_entry_bytes` bytes for entries proposed here.
    pub payload: Bytes,
}

/// The role of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Accepts proposals.
    Leader,
    /// A voter that follows a leader, or waits for one.
    Follower,
    /// Asks whether it would win an election, without a new term.
    PreCandidate,
    /// Is a candidate in an election.
    Candidate,
    /// Receives the log but has no vote (a ZooKeeper observer), or is no member at all.
    Learner,
}
