//! What a node wants done, filled by `RaftNode::ready`.
//!
//! The fields are independent of each other; nothing in here has to wait for anything else in the same value,
//! except that `Append` must be written before a later one and `install` before entries of the same append.

use crate::message::PeerMessage;
use crate::types::{Entry, HardState, Index, Membership, NodeId, Role, Term};

/// Reused by the caller from turn to turn; `ready` clears it first.
#[derive(Debug, Default)]
pub struct Outputs {
    /// To be written to the log.
    pub append: Option<Append>,
    /// May go out now: whatever must not be said before an append is durable is held back inside the node.
    pub messages: Vec<PeerMessage>,
    /// Committed and durable here, in order, without a gap: to be applied. At most one page
    /// (`limits::COMMITTED_PAGE_BYTES`); call `ready` again for more.
    pub committed: Vec<Entry>,
    /// Answers to `read_index`.
    pub reads: Vec<ReadReady>,
    /// Tokens of `read_index` that will not be answered: no leader for too long, or too many waiting.
    pub reads_refused: Vec<u64>,
    /// Set when role, term or leader changed since last told.
    pub role_change: Option<RoleChange>,
    /// A leader's image replaces log and state. Part of the append of the same output.
    pub install: Option<InstallSnapshot>,
    /// A follower lags behind what is kept in memory and the last image reported by `compact` is too old for it: a
    /// newer image is wanted.
    pub image_wanted: bool,
}

/// One write to the log. Writes are done in the order of `number`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Append {
    /// Grows by at least one from append to append; reported back with `RaftNode::persisted`.
    pub number: u64,
    /// May begin before the end of the log: then what the log holds from there on is replaced.
    pub entries: Vec<Entry>,
    /// To be written if present.
    pub hard_state: Option<HardState>,
    /// False: only the commit index moved. It need not be synced nor reported, and may be left unwritten.
    pub must_sync: bool,
}

/// A read that began with `read_index(token)` sees everything acknowledged before once `index` is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadReady {
    /// The caller's token.
    pub token: u64,
    /// To be applied before the read is served.
    pub index: Index,
}

/// Where the node stands now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoleChange {
    /// What it is.
    pub role: Role,
    /// In which term.
    pub term: Term,
    /// Who leads, if known.
    pub leader: Option<NodeId>,
}

/// The image at `index`, which the transport brought along, takes the place of everything here.
///
/// Install it durably, report the append's number with `persisted`, then `applied(index)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallSnapshot {
    /// Last index in the image.
    pub index: Index,
    /// Term of that entry.
    pub term: Term,
    /// Membership at that index.
    pub membership: Membership,
    /// The leader it came from.
    pub from: Option<NodeId>,
}

impl Outputs {
    /// Empties it, keeping the buffers.
    pub fn clear(&mut self) {
        self.append = None;
        self.messages.clear();
        self.committed.clear();
        self.reads.clear();
        self.reads_refused.clear();
        self.role_change = None;
        self.install = None;
        self.image_wanted = false;
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.append.is_none()
            && self.messages.is_empty()
            && self.committed.is_empty()
            && self.reads.is_empty()
            && self.reads_refused.is_empty()
            && self.role_change.is_none()
            && self.install.is_none()
            && !self.image_wanted
    }
}
