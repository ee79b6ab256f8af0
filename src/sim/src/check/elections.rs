//! Elections: each server gives one vote a term, also over its restarts, and a term has one leader at most (Raft, section
//! 5.2).
//!
//! Votes are those that were said: what a server decides and forgets in a crash before anybody hears of it does not count.

use std::collections::BTreeMap;

use corral_consensus::{HardState, NodeId};

use super::Checkers;
use crate::violation::{Checked, require};

/// Who voted for whom, and who led, by term. Servers by their place.
#[derive(Debug, Default)]
pub(super) struct Elections {
    votes: BTreeMap<(u64, usize), usize>,
    leaders: BTreeMap<u64, usize>,
}

impl Checkers {
    /// A server says that it votes for `whom`; a candidate says so of itself.
    pub(crate) fn voted(&mut self, term: u64, server: usize, whom: usize) -> Checked {
        let known = *self.elections.votes.entry((term, server)).or_insert(whom);
        require(known == whom, "elections", || {
            format!("server {} votes for {} and {} in term {term}", server + 1, known + 1, whom + 1)
        })
    }

    /// A server starts with this hard state: it must hold the last vote that it said.
    pub(super) fn remembers(&self, server: usize, state: &HardState) -> Checked {
        let last = self.elections.votes.iter().rev().find(|((_, voter), _)| *voter == server);
        let Some(((term, _), whom)) = last else { return Ok(()) };
        let right = state.term.0 > *term || state.term.0 == *term && state.vote == Some(NodeId(*whom as u64 + 1));
        require(right, "elections", || {
            format!("server {} voted for {} in term {term} and remembers {state:?}", server + 1, whom + 1)
        })
    }

    /// A server takes itself for the leader of a term.
    pub(crate) fn elected(&mut self, term: u64, server: usize) -> Checked {
        let known = *self.elections.leaders.entry(term).or_insert(server);
        require(known == server, "elections", || format!("servers {} and {} lead term {term}", known + 1, server + 1))
    }
}
