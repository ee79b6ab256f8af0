//! The words of Raft as our own types: identities, terms, indices, entries, configuration, what a restart brings.
//!
//! Plain data, no behaviour but checks. Lives wherever the node lives; knows neither the library nor any encoding.

use std::fmt;

use bytes::Bytes;

use crate::error::ConsensusError;
use crate::limits;

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
    /// So much later.
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

/// What a server must remember over a restart beside its entries.
///
/// `term` and `vote` must be durable before anybody hears of them. `commit` is a hint that saves work after a restart,
/// except where an append that must be synced brings it: that commit holds a membership change, and a restart must know
/// of it, or the server would count votes by a membership that is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// Latest term this server has seen.
    pub term: Term,
    /// Whom it voted for in that term.
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

/// What a node is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Accepts proposals.
    Leader,
    /// A voter that follows a leader, or waits for one.
    Follower,
    /// Asks whether an election could be won, without disturbing anybody.
    PreCandidate,
    /// Stands for election.
    Candidate,
    /// Receives the log but has no vote (a ZooKeeper observer), or is no member at all.
    Learner,
}

/// How a node is set up. Ticks are whatever the driver makes them; the usual one is 10 ms to 100 ms.
#[derive(Clone, Debug)]
pub struct Config {
    /// This server; never 0.
    pub id: NodeId,
    /// Voting members in force at `Restored::applied`; at least one.
    pub voters: Vec<NodeId>,
    /// Members without a vote in force at `Restored::applied`.
    pub learners: Vec<NodeId>,
    /// An election starts after this many to twice this many ticks without a leader; above `heartbeat_ticks`.
    pub election_ticks: u32,
    /// A leader sends a heartbeat every so many ticks; at least 1.
    pub heartbeat_ticks: u32,
    /// Entries proposed or committed but not applied yet; more is refused as full. At least 1.
    pub max_inflight_entries: u32,
    /// Largest payload of one proposal, in bytes. At least 1.
    pub max_entry_bytes: u32,
    /// Payload bytes of applied entries kept in memory, so that followers that lag a little need no image. A group of one
    /// keeps none.
    pub log_cache_bytes: u64,
    /// Source of election timeouts and read tokens. Must differ between servers and between starts of one server;
    /// an equal seed with equal inputs replays exactly.
    pub seed: u64,
}

/// What storage gives back at start.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    /// Last durable hard state. A commit below `applied` is raised to it: an image holds committed state only.
    pub hard_state: HardState,
    /// The last entry that is not among `entries`: that of the image, or an earlier one; 0 without one.
    pub cut_index: Index,
    /// Term of the entry at that index, 0 without one.
    pub cut_term: Term,
    /// All durable entries after `cut_index`, without a gap. Those that the image holds too are for followers that lag.
    pub entries: Vec<Entry>,
    /// Index of the image the server starts from, 0 without one. It is what followers that lag are given.
    pub image: Index,
    /// Index up to which everything is applied: that of the image, or a later one up to which entries are known to be committed,
    /// none of which changes the membership. Entries up to it are not delivered again.
    pub applied: Index,
}

/// Who belongs to the ensemble, also in the middle of a joint change. Lists are sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// Voters of the configuration in force or entered.
    pub voters: Vec<NodeId>,
    /// Members without a vote.
    pub learners: Vec<NodeId>,
    /// Voters of the configuration being left; empty outside a joint change.
    pub voters_outgoing: Vec<NodeId>,
    /// Outgoing voters that become learners when the joint change ends.
    pub learners_next: Vec<NodeId>,
    /// Whether the leader ends the joint change by itself.
    pub auto_leave: bool,
}

impl Membership {
    /// A plain configuration, not in the middle of a change.
    pub fn simple(voters: &[NodeId], learners: &[NodeId]) -> Membership {
        let mut made = Membership { voters: voters.to_vec(), learners: learners.to_vec(), ..Membership::default() };
        made.sort();
        made
    }

    /// Whether a joint change is under way.
    pub fn is_joint(&self) -> bool {
        !self.voters_outgoing.is_empty()
    }

    /// Whether `id` belongs to it in any way.
    pub fn contains(&self, id: NodeId) -> bool {
        [&self.voters, &self.learners, &self.voters_outgoing].iter().any(|list| list.contains(&id))
    }

    pub(crate) fn sort(&mut self) {
        for list in [&mut self.voters, &mut self.learners, &mut self.voters_outgoing, &mut self.learners_next] {
            list.sort_unstable();
        }
    }

    /// Says what is wrong with it, if anything: the rules the library would otherwise panic on.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let lists = [&self.voters, &self.learners, &self.voters_outgoing, &self.learners_next];
        for list in lists {
            if list.len() > limits::MEMBERS_MAX {
                return Err("too many members");
            }
            if list.contains(&NodeId(0)) {
                return Err("a member has id 0");
            }
            let mut sorted = list.clone();
            sorted.sort_unstable();
            if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
                return Err("a member is named twice");
            }
        }
        let shares = |a: &[NodeId], b: &[NodeId]| a.iter().any(|id| b.contains(id));
        if self.voters.is_empty() {
            return Err("no voter");
        }
        if shares(&self.learners, &self.voters) {
            return Err("a member is both voter and learner");
        }
        if shares(&self.learners, &self.voters_outgoing) {
            return Err("a member is both outgoing voter and learner");
        }
        if !self.learners_next.iter().all(|id| self.voters_outgoing.contains(id)) {
            return Err("a staged learner is no outgoing voter");
        }
        if shares(&self.learners_next, &self.voters) {
            return Err("a staged learner is still a voter");
        }
        if !self.is_joint() && self.auto_leave {
            return Err("automatic leave outside a joint change");
        }
        Ok(())
    }
}

impl Config {
    pub(crate) fn check(&self) -> Result<(), ConsensusError> {
        let bad = |reason| Err(ConsensusError::Config { reason });
        if self.id == NodeId(0) {
            return bad("id is 0");
        }
        if self.heartbeat_ticks == 0 {
            return bad("heartbeat_ticks is 0");
        }
        if self.election_ticks <= self.heartbeat_ticks {
            return bad("election_ticks must be above heartbeat_ticks");
        }
        if self.election_ticks > limits::TICKS_MAX {
            return bad("election_ticks is too large");
        }
        if self.max_inflight_entries == 0 || self.max_inflight_entries > limits::INFLIGHT_ENTRIES_MAX {
            return bad("max_inflight_entries is out of range");
        }
        if self.max_entry_bytes == 0 || self.max_entry_bytes > limits::ENTRY_BYTES_MAX {
            return bad("max_entry_bytes is out of range");
        }
        Ok(())
    }
}

impl Restored {
    pub(crate) fn last_index(&self) -> Index {
        self.entries.last().map_or(self.cut_index, |entry| entry.index)
    }

    /// Checks that entries follow each other and that commit and applied lie within them; raises the commit to the
    /// image.
    pub(crate) fn check(&mut self) -> Result<(), ConsensusError> {
        if (self.cut_index == Index(0)) != (self.cut_term == Term(0)) {
            return Err(ConsensusError::SnapshotTerm { index: self.cut_index, term: self.cut_term });
        }
        if self.cut_index.0 > limits::RESTORED_INDEX_MAX {
            return Err(ConsensusError::TooFar { index: self.cut_index });
        }
        let (mut index, mut term) = (self.cut_index.0, self.cut_term);
        for entry in &self.entries {
            if entry.index.0 != index + 1 {
                return Err(ConsensusError::Gap { expected: Index(index + 1), found: entry.index });
            }
            if entry.term < term || entry.term == Term(0) {
                return Err(ConsensusError::TermOrder { index: entry.index, term: entry.term, before: term });
            }
            (index, term) = (entry.index.0, entry.term);
        }
        if index > limits::RESTORED_INDEX_MAX {
            return Err(ConsensusError::TooFar { index: Index(index) });
        }
        if self.hard_state.term < term || self.hard_state.term.0 > limits::TERM_MAX {
            return Err(ConsensusError::HardStateTerm { term: self.hard_state.term, last: term });
        }
        if self.hard_state.vote == Some(NodeId(0)) {
            return Err(ConsensusError::VoteForNobody);
        }
        self.hard_state.commit = self.hard_state.commit.max(self.applied);
        let last = self.last_index();
        if self.hard_state.commit > last {
            return Err(ConsensusError::CommitBeyondLog { commit: self.hard_state.commit, last });
        }
        if self.applied < self.cut_index || self.applied < self.image {
            let (low, high) = (self.cut_index, self.hard_state.commit);
            return Err(ConsensusError::Applied { applied: self.applied, low, high });
        }
        Ok(())
    }
}
