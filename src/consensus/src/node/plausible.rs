//! What a peer's message says about term and log, measured against what can be true.
//!
//! A term is bounded by the elections that can have been held since this node started: a forged one must not move it near its
//! end, also not in steps. A leader that lacks what is committed here was given an old copy of its data.

use raft::StateRole;

use super::RaftNode;
use crate::limits;
use crate::message::{PeerBody, PeerMessage};
use crate::types::Term;

impl RaftNode {
    /// The largest term that is taken from a peer now. It does not move with the terms that peers tell.
    pub fn plausible_term(&self) -> Term {
        let elections = self.ticks / (self.raw.raft.election_timeout() as u64).max(1);
        let held = elections.saturating_mul(limits::TERMS_PER_ELECTION);
        let most = self.first_term.saturating_add(limits::TERM_AHEAD_MAX).saturating_add(held);
        Term(most.min(limits::TERM_MAX))
    }

    /// Whether the present leader's log ends before what is committed here, as far as its appends tell. It is asked for more
    /// after each answer, and has nothing more.
    pub fn leader_lacks_committed(&self) -> bool {
        self.raw.raft.state != StateRole::Leader && self.short_appends >= limits::SHORT_APPENDS_MAX
    }

    /// Takes note of a message that passed the checks and has not been stepped.
    pub(super) fn measure(&mut self, message: &PeerMessage) {
        if self.is_newborn() {
            // It becomes a member in that term.
            self.first_term = message.term.0;
        }
        let PeerBody::Append { prev_index, entries, .. } = &message.body else { return };
        let raft = &self.raw.raft;
        if message.term.0 == raft.term && message.from.0 == raft.leader_id {
            let is_short = prev_index.0 + (entries.len() as u64) < raft.raft_log.committed;
            self.short_appends = if is_short { self.short_appends.saturating_add(1) } else { 0 };
        }
    }
}
