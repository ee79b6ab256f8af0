//! The role of a node, and the plain data of `corral-types`.

pub use corral_types::{Entry, EntryKind, HardState, Index, Micros, ServerId, Term};

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
