//! The voters as the log shows them, the acknowledgements and votes of the servers, and the membership change under way.

use std::collections::{BTreeMap, BTreeSet};

use corral_consensus::{ConfChange, MemberChange, Membership, ServerId, Transition};

use crate::model::LinkId;
use crate::reconfig::Seats;

/// The voters, in the middle of a change those of both sides.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Voters {
    pub(super) now: BTreeSet<u64>,
    pub(super) outgoing: BTreeSet<u64>,
}

impl Voters {
    pub(super) fn of(known: &Membership) -> Voters {
        let ids = |nodes: &[ServerId]| nodes.iter().map(|node| node.wide()).collect();
        Voters { now: ids(&known.voters), outgoing: ids(&known.voters_outgoing) }
    }

    pub(super) fn change(&mut self, change: &ConfChange) {
        if change.changes.is_empty() {
            self.outgoing.clear();
            return;
        }
        if change.transition != Transition::Auto || change.changes.len() > 1 {
            self.outgoing = self.now.clone();
        }
        for one in &change.changes {
            match one {
                MemberChange::AddVoter(id) => drop(self.now.insert(id.wide())),
                MemberChange::AddLearner(id) | MemberChange::Remove(id) => drop(self.now.remove(&id.wide())),
            }
        }
    }

    pub(super) fn agree(&self, has: impl Fn(u64) -> bool) -> bool {
        let majority = |of: &BTreeSet<u64>| of.is_empty() || of.iter().filter(|id| has(**id)).count() * 2 > of.len();
        majority(&self.now) && majority(&self.outgoing)
    }
}

/// A change of the list that a client asked for and that has no answer yet.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) link: LinkId,
    /// Its number among the commands of that connection.
    pub(super) number: usize,
    pub(super) next: Seats,
    pub(super) version: u64,
}

#[derive(Debug, Default)]
pub(super) struct Members {
    pub(super) voters: Voters,
    /// .. before the last change: a leader may not have applied that one yet.
    pub(super) before: Voters,
    /// .. and at any time.
    pub(super) had: BTreeSet<Voters>,
    /// Index of the last entry that was found committed.
    pub(super) upto: u64,
    /// The changes that entries with this index and term would make.
    pub(super) changes: BTreeMap<(u64, u64), ConfChange>,
    /// By term and server, the last index of the leader's log that the server acknowledged.
    pub(super) held: BTreeMap<u64, BTreeMap<u64, u64>>,
    pub(super) votes: BTreeMap<(u64, u64), BTreeSet<u64>>,
    pub(super) term: u64,
    pub(super) open: Vec<Open>,
    /// There was a change of the list in this term.
    pub(super) changed: bool,
    /// The new list during a change, and the entry that began it.
    pub(super) begun: Option<(LinkId, Seats, u64)>,
}

impl Members {
    pub(super) fn of_founders(servers: usize) -> Members {
        let voters = Voters { now: (1..=servers as u64).collect(), outgoing: BTreeSet::new() };
        Members { before: voters.clone(), had: BTreeSet::from([voters.clone()]), voters, ..Members::default() }
    }
}
