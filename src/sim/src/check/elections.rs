//! Elections: each server gives one vote a term, also over its restarts, and a term has one leader at most (Raft, section
//! 5.2).
//!
//! Only votes that were sent count. A decision that a server loses in a crash before it sends anything does not.

use corral_consensus::{HardState, Membership};

use crate::check::checkers::Checkers;
use crate::check::members;
use crate::servers::server_id;
use crate::violation::{Checked, require};

/// A server says that it votes for `whom`; a candidate says so of itself.
pub(crate) fn voted(checkers: &mut Checkers, term: u64, server: usize, whom: usize) -> Checked {
    members::note_vote(checkers, term, server, whom);
    let known = *checkers.elections.votes.entry((term, server)).or_insert(whom);
    require(known == whom, "elections", || {
        format!("server {} votes for {} and {} in term {term}", server + 1, known + 1, whom + 1)
    })
}

/// A server starts with this hard state: it must hold the last vote that it said.
pub(super) fn keeps_its_vote(checkers: &Checkers, server: usize, state: &HardState) -> Checked {
    let last = checkers.elections.votes.iter().rev().find(|((_, voter), _)| *voter == server);
    let Some(((term, _), whom)) = last else { return Ok(()) };
    if checkers.elections.emptied.get(&server).is_some_and(|upto| term <= upto) {
        return Ok(());
    }
    let right = state.term.0 > *term || state.term.0 == *term && state.vote == Some(server_id(*whom));
    require(right, "elections", || {
        format!("server {} voted for {} in term {term} and remembers {state:?}", server + 1, whom + 1)
    })
}

/// A server's disk was emptied, and its votes with it: it must not vote again in those terms before it is [`healed`].
pub(crate) fn emptied(checkers: &mut Checkers, server: usize) {
    let last = checkers.elections.votes.keys().rev().find(|(_, voter)| *voter == server).map_or(0, |(term, _)| *term);
    checkers.elections.emptied.insert(server, last);
}

/// It votes again with everything that was committed, which is nothing for a founder. A candidate that it voted for
/// before cannot win by that vote any more.
pub(crate) fn healed(checkers: &mut Checkers, server: usize) {
    let upto = checkers.elections.emptied.get(&server).copied().unwrap_or(0);
    checkers.elections.votes.retain(|(term, voter), _| *voter != server || *term > upto);
}

pub(crate) fn is_without_leader(checkers: &Checkers, term: u64) -> bool {
    !checkers.elections.leaders.contains_key(&term)
}

/// A server takes itself for the leader of a term, elected by the members that it knows.
pub(crate) fn elected(checkers: &mut Checkers, term: u64, server: usize, known: &Membership) -> Checked {
    members::won_by(checkers, term, server, known)?;
    let known = *checkers.elections.leaders.entry(term).or_insert(server);
    require(known == server, "elections", || format!("servers {} and {} lead term {term}", known + 1, server + 1))
}
