//! Bounds on a peer's claims about terms and logs.
//!
//! The term is bounded by the elections that can have been held since this node started. A forged term must not bring
//! it near its maximum, also not in steps. A leader was started with an old copy of its data if its log ends before the
//! entries committed here.

use raft::Raft;

use crate::limits;
use crate::log::MemLog;
use crate::message::{PeerBody, PeerMessage};
use crate::types::Term;

/// Bound of the terms, and facts about the present leader's log from its appends.
pub(super) struct Plausibility {
    /// The term that this node started with.
    first_term: Term,
    /// Ticks since then.
    ticks: u64,
    /// Appends of the present leader in a row that end before what is committed here.
    short_appends: u32,
}

impl Plausibility {
    pub(super) fn new(first_term: Term) -> Plausibility {
        Plausibility { first_term, ticks: 0, short_appends: 0 }
    }

    pub(super) fn tick(&mut self) {
        self.ticks += 1;
    }

    /// Term, role or leader changed.
    pub(super) fn leader_changed(&mut self) {
        self.short_appends = 0;
    }

    /// The largest term that is taken from a peer now. It does not depend on the terms that peers send.
    pub(super) fn term_max(&self, election_ticks: u32) -> Term {
        let elections = self.ticks / u64::from(election_ticks).max(1);
        let held = elections.saturating_mul(limits::TERMS_PER_ELECTION);
        let most = self.first_term.0.saturating_add(limits::TERM_AHEAD_MAX).saturating_add(held);
        Term(most.min(limits::TERM_MAX))
    }

    /// Whether the present leader's log ends before what is committed here, as far as its appends tell. Each reply
    /// requests more, and it has nothing more.
    pub(super) fn leader_lacks_committed(&self) -> bool {
        self.short_appends >= limits::SHORT_APPENDS_MAX
    }

    /// An uninitialised node becomes a member in that term.
    pub(super) fn becomes_member(&mut self, term: Term) {
        self.first_term = term;
    }

    /// Notes a message that passed the checks and has not been stepped. `replies_wait`: replies of this node wait for its disk.
    /// The leader repeats an append until it has the reply.
    pub(super) fn note(&mut self, message: &PeerMessage, raft: &Raft<MemLog>, replies_wait: bool) {
        let PeerBody::Append { prev_index, entries, .. } = &message.body else { return };
        if message.term.0 == raft.term && message.from.wide() == raft.leader_id {
            let is_short = prev_index.0 + (entries.len() as u64) < raft.raft_log.committed;
            self.short_appends = match (is_short, replies_wait) {
                (false, _) => 0,
                (true, true) => self.short_appends,
                (true, false) => self.short_appends.saturating_add(1),
            };
        }
    }
}
