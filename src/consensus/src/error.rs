//! The crate's typed errors, one enum per thing a caller can ask for.
//!
//! All of them are values: nothing was changed when one is returned.

use crate::types::{Index, ServerId, Term};

/// Why a node cannot start: configuration and restored data do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConsensusError {
    /// A value of the configuration is out of its range.
    #[error("consensus configuration: {reason}")]
    Config {
        /// Which one and how.
        reason: &'static str,
    },
    /// The membership is not one Raft could have reached.
    #[error("membership: {reason}")]
    Membership {
        /// Which rule it breaks.
        reason: &'static str,
    },
    /// Index and term of the snapshot must both be 0 or both not.
    #[error("snapshot at index {index} cannot have term {term}")]
    SnapshotTerm {
        /// Index given.
        index: Index,
        /// Term given.
        term: Term,
    },
    /// The restored entries do not follow each other.
    #[error("gap in the log: entry {expected} expected, {found} found")]
    Gap {
        /// Index that should have come.
        expected: Index,
        /// Index that came.
        found: Index,
    },
    /// Terms may only grow along the log.
    #[error("entry {index} has term {term} after term {before}")]
    TermOrder {
        /// The entry.
        index: Index,
        /// Its term.
        term: Term,
        /// Term of the entry before it.
        before: Term,
    },
    /// An index beyond `limits::RESTORED_INDEX_MAX`.
    #[error("index {index} is beyond the limit")]
    TooFar {
        /// The index.
        index: Index,
    },
    /// The hard state is older than the log, or its term is beyond `limits::TERM_MAX`.
    #[error("hard state has term {term}, the log ends in term {last}")]
    HardStateTerm {
        /// Term of the hard state.
        term: Term,
        /// Term of the last entry.
        last: Term,
    },
    /// A vote for node 0, which does not exist.
    #[error("hard state holds a vote for node 0")]
    VoteForNodeZero,
    /// The log ends before what was committed: acknowledged entries are missing.
    #[error("commit index {commit} is beyond the last entry {last}: acknowledged entries are missing")]
    CommitBeyondLog {
        /// Commit index of the hard state.
        commit: Index,
        /// Last entry restored.
        last: Index,
    },
    /// Applied must lie between snapshot and commit.
    #[error("applied index {applied} is outside {low}..={high}")]
    Applied {
        /// Index given.
        applied: Index,
        /// Snapshot index.
        low: Index,
        /// Commit index.
        high: Index,
    },
    /// A restored membership change cannot be read.
    #[error("membership change at index {index}: {reason}")]
    ConfChange {
        /// The entry.
        index: Index,
        /// The fault, in a few words.
        reason: &'static str,
    },
    /// The library refused for a reason not listed above.
    #[error("raft: {0}")]
    Library(String),
}

/// Why a proposal was not taken. It will never be committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Only the leader takes proposals.
    #[error("not the leader (leader: {leader:?})")]
    NotLeader {
        /// The leader, if one is known.
        leader: Option<ServerId>,
    },
    /// Too many entries or bytes are not applied yet; try again after `applied` moved.
    #[error("too much is waiting to be applied")]
    Full,
    /// The payload is larger than `Config::max_entry_bytes`.
    #[error("entry of {bytes} bytes exceeds {max}")]
    TooLarge {
        /// Size offered.
        bytes: usize,
        /// Largest size.
        max: u32,
    },
    /// An empty payload marks the no-op entry of a new leader, and cannot be proposed.
    #[error("an entry needs a payload")]
    Empty,
    /// Leadership is being transferred.
    #[error("leadership is moving to {to}")]
    Transferring {
        /// The next leader.
        to: ServerId,
    },
}

/// Why a membership change was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConfChangeError {
    /// As for any proposal.
    #[error(transparent)]
    Propose(#[from] ProposeError),
    /// An earlier change is not applied yet.
    #[error("an earlier membership change is not applied yet")]
    Pending,
    /// It does not fit the membership in force.
    #[error("membership change: {reason}")]
    Invalid {
        /// Which rule it breaks.
        reason: &'static str,
    },
}

/// Why a transfer of leadership was not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    /// Only the leader can transfer leadership.
    #[error("not the leader (leader: {leader:?})")]
    NotLeader {
        /// The leader, if one is known.
        leader: Option<ServerId>,
    },
    /// The target is no voter, or is the leader itself.
    #[error("node {to} cannot take over")]
    NotEligible {
        /// The target.
        to: ServerId,
    },
}

/// Why a peer's message was dropped. The node is unchanged.
///
/// [`PeerError::is_harmless`] is true for late or surplus messages, which a healthy network produces.
/// [`PeerError::breaks_connection`] is true for messages that no server sends: the connection is closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The bytes are not a message.
    #[error("malformed peer message: {0}")]
    Malformed(&'static str),
    /// Another version of the encoding.
    #[error("peer message version {0} is not supported")]
    Version(u8),
    /// The message is for another server.
    #[error("message for node {0}")]
    WrongTarget(ServerId),
    /// The sender is 0, this node itself, or not known where it must be.
    #[error("unexpected sender {0}")]
    Sender(ServerId),
    /// Term 0 or beyond `limits::TERM_MAX`.
    #[error("term {0} is out of range")]
    Term(Term),
    /// More elections than can have been held since this node started.
    #[error("term {term} is implausible, {most} is the largest that can have been reached")]
    TermJump {
        /// Term claimed.
        term: Term,
        /// Largest term taken now.
        most: Term,
    },
    /// An index beyond `limits::INDEX_MAX`.
    #[error("index {0} is out of range")]
    Index(Index),
    /// Entries with a gap, falling terms, or too many or too large ones.
    #[error("bad entries: {0}")]
    Entries(&'static str),
    /// A leader's log differs from the entries committed here: it lacks some, or this node's log is another's.
    #[error("the leader's entry {0} differs from the committed one")]
    Conflict(Index),
    /// A leader has committed entries that this node acknowledged and does not have: its log was lost, or the message is
    /// forged.
    #[error("commit {commit} is beyond the last entry {last}")]
    CommitBeyondLog {
        /// Index claimed.
        commit: Index,
        /// Last entry here.
        last: Index,
    },
    /// A follower claims entries the leader does not have.
    #[error("acknowledged index {index} is beyond the last entry {last}")]
    AckBeyondLog {
        /// Index claimed.
        index: Index,
        /// Last entry here.
        last: Index,
    },
    /// Two leaders in one term, which Raft excludes.
    #[error("node {claims} claims to lead term {term}, which {known} leads")]
    SecondLeader {
        /// Sender.
        claims: ServerId,
        /// Leader known here.
        known: ServerId,
        /// The term.
        term: Term,
    },
    /// A membership Raft could not have reached.
    #[error("bad membership: {0}")]
    Membership(&'static str),
    /// This node has no data and is not a member yet: it accepts only a snapshot in which it is a learner.
    #[error("this server has no data yet")]
    Uninitialised,
    /// The message is too old to matter.
    #[error("stale message: {0}")]
    Stale(&'static str),
    /// Cannot be handled now; the sender will try again.
    #[error("busy: {0}")]
    Busy(&'static str),
}

impl PeerError {
    /// Whether a healthy peer over a healthy network can cause it.
    #[must_use]
    pub fn is_harmless(&self) -> bool {
        matches!(self, PeerError::Stale(_) | PeerError::Busy(_) | PeerError::Uninitialised)
    }

    /// Whether no server sends this, whatever happened to its data: the connection is to be closed.
    #[must_use]
    pub fn breaks_connection(&self) -> bool {
        use PeerError::{Entries, Index, Malformed, Membership, Term, TermJump, Version, WrongTarget};
        matches!(
            self,
            Malformed(_)
                | Version(_)
                | WrongTarget(_)
                | Term(_)
                | TermJump { .. }
                | Index(_)
                | Entries(_)
                | Membership(_)
        )
    }

    /// Whether the sender or this node has an old copy of its data: committed entries are missing.
    #[must_use]
    pub fn contradicts(&self) -> bool {
        use PeerError::{AckBeyondLog, CommitBeyondLog, Conflict, SecondLeader};
        matches!(self, Conflict(_) | CommitBeyondLog { .. } | AckBeyondLog { .. } | SecondLeader { .. })
    }
}
