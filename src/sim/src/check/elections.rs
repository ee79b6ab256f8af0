//! Elections: each server gives one vote a term, also over its restarts, and a term has one leader at most (Raft, section
//! 5.2).
//!
//! Only votes that were sent count. A decision that a server loses in a crash before it sends anything does not.

use std::collections::BTreeMap;

use corral_consensus::{HardState, Membership, ServerId};

use super::Checkers;
use crate::violation::{Checked, require};

/// Votes and leaders by term. Servers by their place.
#[derive(Debug, Default)]
pub(super) struct Elections {
    votes: BTreeMap<(u64, usize), usize>,
    leaders: BTreeMap<u64, usize>,
    /// Servers with emptied disks, and the last term that each had voted in by then.
    emptied: BTreeMap<usize, u64>,
}

impl Checkers {
    /// A server says that it votes for `whom`; a candidate says so of itself.
    pub(crate) fn voted(&mut self, term: u64, server: usize, whom: usize) -> Checked {
        self.vote_said(term, server, whom);
        let known = *self.elections.votes.entry((term, server)).or_insert(whom);
        require(known == whom, "elections", || {
            format!("server {} votes for {} and {} in term {term}", server + 1, known + 1, whom + 1)
        })
    }

    /// A server starts with this hard state: it must hold the last vote that it said.
    pub(super) fn remembers(&self, server: usize, state: &HardState) -> Checked {
        let last = self.elections.votes.iter().rev().find(|((_, voter), _)| *voter == server);
        let Some(((term, _), whom)) = last else { return Ok(()) };
        if self.elections.emptied.get(&server).is_some_and(|upto| term <= upto) {
            return Ok(());
        }
        let right = state.term.0 > *term
            || state.term.0 == *term && state.vote == Some(ServerId(crate::servers::server_id(*whom)));
        require(right, "elections", || {
            format!("server {} voted for {} in term {term} and remembers {state:?}", server + 1, whom + 1)
        })
    }

    /// A server's disk was emptied: it cannot remember, and must not vote again in those terms before it is [healed].
    ///
    /// [healed]: Checkers::healed
    pub(crate) fn emptied(&mut self, server: usize) {
        let last = self.elections.votes.keys().rev().find(|(_, voter)| *voter == server).map_or(0, |(term, _)| *term);
        self.elections.emptied.insert(server, last);
    }

    /// It votes again with everything that was committed, which is nothing for a founder. A candidate that it voted for
    /// before cannot win by that vote any more.
    pub(crate) fn healed(&mut self, server: usize) {
        let upto = self.elections.emptied.get(&server).copied().unwrap_or(0);
        self.elections.votes.retain(|(term, voter), _| *voter != server || *term > upto);
    }

    pub(super) fn leaders_since(&self, term: u64) -> impl Iterator<Item = (u64, usize)> {
        self.elections.leaders.range(term..).map(|(term, leader)| (*term, *leader))
    }

    pub(crate) fn is_without_leader(&self, term: u64) -> bool {
        !self.elections.leaders.contains_key(&term)
    }

    /// A server takes itself for the leader of a term, elected by the members that it knows.
    pub(crate) fn elected(&mut self, term: u64, server: usize, known: &Membership) -> Checked {
        self.won_by(term, server, known)?;
        let known = *self.elections.leaders.entry(term).or_insert(server);
        require(known == server, "elections", || format!("servers {} and {} lead term {term}", known + 1, server + 1))
    }
}
