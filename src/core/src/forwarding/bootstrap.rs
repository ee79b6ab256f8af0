//! How a new ensemble begins: servers with empty disks find out that all disks are empty, and only then vote.
//!
//! Runs beside the member, on the consensus actor's core, as long as this server has no data. A server with an empty
//! disk may be new, or may have lost its data with its votes. By itself it cannot know which. So it reports to all
//! servers that it is uninitialised, each time with the start of the other that reported the same. Once all founders
//! with a vote have answered this very start of it, none of them has data, and there is no vote to break.
//!
//! A founder is absent if its name has never resolved since the start, and it had no connection with this server. The
//! others begin without absent founders if they are a majority. An ensemble with acknowledged writes has a member in
//! that majority, and that member would have data.
//!
//! A server that has bootstrapped the ensemble goes on reporting so until its first vote. Founders that were
//! interrupted before there were enough for an election begin again with the others. It knows neither Raft nor disks.

use super::links::Sender;
use crate::forwarding::peer::{PeerMessage, Uninitialised};
use crate::ids::{Millis, ServerId};
use crate::limits::{ABSENT_AFTER_MS, UNINITIALISED_EVERY_MS};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The servers that bootstrap a new ensemble, as configured: the same on all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Founders {
    /// This server.
    pub own: ServerId,
    /// With a vote, this server too if it has one.
    pub voters: Vec<ServerId>,
    /// Without.
    pub learners: Vec<ServerId>,
}

impl Founders {
    /// Two servers with the same digest were told of the same founders.
    fn digest(&self) -> u64 {
        const PRIME: u64 = 0x0100_0000_01b3;
        let mut ids: Vec<u16> = self.voters.iter().map(|id| u16::from(id.0)).collect();
        ids.extend(self.learners.iter().map(|id| 0x100 | u16::from(id.0)));
        ids.sort_unstable();
        let bytes = ids.iter().flat_map(|id| id.to_le_bytes());
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
    }
}

/// The last report of another uninitialised server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Report {
    incarnation: u64,
    /// It knows the same founders.
    agrees: bool,
    /// It has heard this start of this server.
    names_us: bool,
}

/// Why a founder is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// It has not said that it is uninitialised: it does not run, cannot be reached, or is not uninitialised.
    Silent(ServerId),
    /// It was told of other founders.
    Disagrees(ServerId),
}

/// The reports of uninitialised servers, until this server has bootstrapped the ensemble.
#[derive(Debug)]
pub(super) struct Bootstrap {
    founders: Founders,
    incarnation: u64,
    digest: u64,
    reports: BTreeMap<ServerId, Report>,
    /// By founder, the time since which its name has not resolved. `None` if the founder is known to exist.
    unresolved: BTreeMap<ServerId, Option<Millis>>,
    /// The last tick.
    now: Millis,
    /// When all were told last.
    said: Millis,
    /// It was told that it may bootstrap.
    pub(super) begun: bool,
    /// It has.
    pub(super) bootstrapped: bool,
}

impl Bootstrap {
    pub(super) fn new(founders: Founders, bootstrapped: bool, incarnation: u64) -> Self {
        let digest = founders.digest();
        Self {
            founders,
            incarnation,
            digest,
            reports: BTreeMap::new(),
            unresolved: BTreeMap::new(),
            now: Millis(0),
            said: Millis(0),
            begun: bootstrapped,
            bootstrapped,
        }
    }

    /// Returns the report of this server to that server.
    pub(super) fn greeting(&self, peer: ServerId) -> PeerMessage {
        let acknowledged = self.reports.get(&peer).map_or(0, |report| report.incarnation);
        let uninitialised = Uninitialised { founders: self.digest, acknowledged, bootstrapped: self.bootstrapped };
        PeerMessage::Uninitialised(uninitialised)
    }

    /// Another says that it is uninitialised. Whether it is to be answered at once.
    pub(super) fn received(&mut self, from: Sender, uninitialised: Uninitialised) -> bool {
        let now = Report {
            incarnation: from.incarnation,
            agrees: uninitialised.founders == self.digest,
            names_us: uninitialised.acknowledged == self.incarnation,
        };
        let before = self.reports.insert(from.peer, now);
        before.is_none_or(|before| before.incarnation != now.incarnation) || !now.names_us
    }

    /// The connection to that server is gone: what it said may not hold any more.
    pub(super) fn forget(&mut self, peer: ServerId) {
        self.reports.remove(&peer);
    }

    /// The name of that server has not resolved since the start.
    pub(super) fn unresolved(&mut self, now: Millis, peer: ServerId) {
        self.unresolved.entry(peer).or_insert(Some(now));
    }

    /// The name of that server resolves, or there is a connection with it. This holds for the whole run of this server.
    pub(super) fn exists(&mut self, peer: ServerId) {
        self.unresolved.insert(peer, None);
    }

    /// Founders with a vote that are not waited for. None if the rest is no majority.
    pub(super) fn absent(&self) -> Vec<ServerId> {
        let is_absent = |id: &ServerId| {
            let since = self.unresolved.get(id).copied().flatten();
            since.is_some_and(|since| self.now.since(since) >= ABSENT_AFTER_MS)
        };
        let voters = &self.founders.voters;
        let absent: Vec<_> = voters.iter().copied().filter(|id| *id != self.founders.own && is_absent(id)).collect();
        if absent.len() * 2 < voters.len() { absent } else { Vec::new() }
    }

    /// Whether the other servers are to be told again. Called at each tick.
    pub(super) fn is_due(&mut self, now: Millis) -> bool {
        self.now = now;
        let due = now.since(self.said) >= UNINITIALISED_EVERY_MS;
        if due {
            self.said = now;
        }
        due
    }

    /// Founders that keep the ensemble from beginning.
    pub(super) fn awaited(&self) -> Vec<Awaited> {
        let absent = self.absent();
        let others = self.founders.voters.iter().filter(|id| **id != self.founders.own && !absent.contains(id));
        let missing = |id: &ServerId| match self.reports.get(id) {
            Some(report) if !report.agrees => Some(Awaited::Disagrees(*id)),
            Some(report) if report.names_us => None,
            _ => Some(Awaited::Silent(*id)),
        };
        others.filter_map(missing).collect()
    }

    /// Whether all founders but the absent ones are uninitialised, and this server is to vote with them.
    pub(super) fn is_complete(&self) -> bool {
        self.founders.voters.contains(&self.founders.own) && self.awaited().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn founders(own: u8, voters: &[u8], learners: &[u8]) -> Founders {
        let ids = |ids: &[u8]| ids.iter().copied().map(ServerId).collect();
        Founders { own: ServerId(own), voters: ids(voters), learners: ids(learners) }
    }

    fn bootstrap(own: u8, incarnation: u64) -> Bootstrap {
        Bootstrap::new(founders(own, &[1, 2, 3], &[4]), false, incarnation)
    }

    /// One says it to another.
    fn say(from: &Bootstrap, to: &mut Bootstrap) -> bool {
        let (peer, incarnation) = (from.founders.own, from.incarnation);
        let PeerMessage::Uninitialised(uninitialised) = from.greeting(to.founders.own) else {
            unreachable!("an uninitialised server says that it is one");
        };
        to.received(Sender { peer, incarnation, connection: 1 }, uninitialised)
    }

    #[test]
    fn all_founders_have_to_be_uninitialised_in_this_start() {
        let (mut one, mut two, mut three) = (bootstrap(1, 11), bootstrap(2, 12), bootstrap(3, 13));
        assert!(say(&two, &mut one), "answered at once");
        assert!(say(&one, &mut two) && say(&two, &mut one) == say(&two, &mut one));
        assert_eq!(one.awaited(), [Awaited::Silent(ServerId(3))]);
        say(&three, &mut one);
        assert!(!one.is_complete(), "that server has not heard of this one");
        say(&one, &mut three);
        say(&three, &mut one);
        assert!(one.is_complete() && !two.is_complete() && !three.is_complete());
        // A report to a former start does not count.
        let mut again = bootstrap(1, 21);
        say(&two, &mut again);
        say(&three, &mut again);
        assert_eq!(again.awaited(), [Awaited::Silent(ServerId(2)), Awaited::Silent(ServerId(3))]);
    }

    #[test]
    fn one_that_has_promised_nothing_yet_is_as_good_as_uninitialised() {
        let (mut one, mut two) = (bootstrap(1, 11), bootstrap(2, 12));
        let mut three = Bootstrap::new(founders(3, &[1, 2, 3], &[4]), true, 13);
        say(&one, &mut two);
        say(&one, &mut three);
        say(&two, &mut one);
        say(&three, &mut one);
        assert!(one.is_complete());
    }

    #[test]
    fn other_founders_form_another_ensemble() {
        let mut one = bootstrap(1, 11);
        let mut two = Bootstrap::new(founders(2, &[1, 2, 3, 4], &[]), false, 12);
        say(&one, &mut two);
        say(&two, &mut one);
        assert_eq!(one.awaited(), [Awaited::Disagrees(ServerId(2)), Awaited::Silent(ServerId(3))]);
    }

    #[test]
    fn a_majority_begins_without_absent_founders() {
        let (mut one, mut two) = (bootstrap(1, 11), bootstrap(2, 12));
        one.unresolved(Millis(5), ServerId(3));
        say(&one, &mut two);
        say(&two, &mut one);
        one.is_due(Millis(4 + ABSENT_AFTER_MS));
        assert_eq!((one.awaited(), one.is_complete()), (vec![Awaited::Silent(ServerId(3))], false));
        one.is_due(Millis(5 + ABSENT_AFTER_MS));
        assert_eq!((one.absent(), one.is_complete()), (vec![ServerId(3)], true));
        // A majority is needed, and each of it must have answered.
        one.unresolved(Millis(5), ServerId(2));
        assert_eq!((one.absent(), one.awaited()), (vec![], vec![Awaited::Silent(ServerId(3))]));
        one.exists(ServerId(2));
        one.forget(ServerId(2));
        assert_eq!((one.absent(), one.awaited()), (vec![ServerId(3)], vec![Awaited::Silent(ServerId(2))]));
        // A founder with a connection, or with a name that resolved once, may have data.
        one.exists(ServerId(3));
        one.unresolved(Millis(5), ServerId(3));
        assert_eq!(one.awaited(), [Awaited::Silent(ServerId(2)), Awaited::Silent(ServerId(3))]);
    }

    #[test]
    fn one_without_a_vote_forms_nothing() {
        let mut learner = bootstrap(4, 14);
        for (id, incarnation) in [(1, 11), (2, 12), (3, 13)] {
            let mut voter = bootstrap(id, incarnation);
            say(&learner, &mut voter);
            say(&voter, &mut learner);
        }
        assert!(learner.awaited().is_empty() && !learner.is_complete());
    }

    #[test]
    fn a_single_voter_waits_for_no_server() {
        let one = Bootstrap::new(founders(1, &[1], &[2]), false, 11);
        assert!(one.is_complete());
    }

    #[test]
    fn everybody_is_told_again_and_again() {
        let mut one = bootstrap(1, 11);
        assert!(one.is_due(Millis(UNINITIALISED_EVERY_MS)) && !one.is_due(Millis(UNINITIALISED_EVERY_MS + 1)));
        assert!(one.is_due(Millis(2 * UNINITIALISED_EVERY_MS)));
    }
}
