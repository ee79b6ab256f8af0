//! How a new ensemble begins: servers whose disks are empty find out that all of them are, and only then promise anything.
//!
//! Beside the member, on the consensus actor's core, as long as this server remembers nothing. A server with an empty disk
//! may be a new one, or one that was emptied and has forgotten what it promised; by itself it cannot know which. So it says to
//! everybody that it is newborn, with the start of the other that it has heard the same from. Once all founders with a
//! vote have answered this very start of it, none of them remembers anything: there is no promise that could be broken.
//!
//! One that has formed the ensemble goes on saying so until it makes its first promise: founders that were interrupted, before
//! there were enough for an election, begin again with those that were not. It knows neither Raft nor disks.

use super::{Send, Sender};
use crate::ids::Millis;
use crate::limits::NEWBORN_EVERY_MS;
use crate::peer::{Newborn, PeerMessage};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Who forms a new ensemble, as configured; the same on all of its servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Founders {
    /// This server.
    pub own: u8,
    /// With a vote, this server too if it has one.
    pub voters: Vec<u8>,
    /// Without.
    pub learners: Vec<u8>,
}

impl Founders {
    /// Two servers with the same digest were told of the same founders.
    fn digest(&self) -> u64 {
        const PRIME: u64 = 0x0100_0000_01b3;
        let mut ids: Vec<u16> = self.voters.iter().map(|id| u16::from(*id)).collect();
        ids.extend(self.learners.iter().map(|id| 0x100 | u16::from(*id)));
        ids.sort_unstable();
        let bytes = ids.iter().flat_map(|id| id.to_le_bytes());
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
    }
}

/// What another newborn said last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Heard {
    incarnation: u64,
    /// It knows the same founders.
    agrees: bool,
    /// It has heard this start of this server.
    heard_us: bool,
}

/// Why a founder is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// It has not said that it is newborn: it does not run, cannot be reached, or is not newborn.
    Silent(u8),
    /// It was told of other founders.
    Disagrees(u8),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Formation {
    founders: Founders,
    incarnation: u64,
    digest: u64,
    heard: BTreeMap<u8, Heard>,
    /// When all were told last.
    said: Millis,
    /// It was told that it may form.
    pub(super) begun: bool,
    /// It has.
    pub(super) formed: bool,
}

impl Formation {
    pub(super) fn new(founders: Founders, formed: bool, incarnation: u64) -> Self {
        let digest = founders.digest();
        Self { founders, incarnation, digest, heard: BTreeMap::new(), said: Millis(0), begun: formed, formed }
    }

    /// What is said to that server.
    pub(super) fn greeting(&self, peer: u8, link: u64) -> Send {
        let heard = self.heard.get(&peer).map_or(0, |heard| heard.incarnation);
        let newborn = Newborn { founders: self.digest, heard, formed: self.formed };
        Send { peer, link, message: PeerMessage::Newborn(newborn) }
    }

    /// Another says that it is newborn. Whether it is to be answered at once.
    pub(super) fn received(&mut self, from: Sender, newborn: Newborn) -> bool {
        let now = Heard {
            incarnation: from.incarnation,
            agrees: newborn.founders == self.digest,
            heard_us: newborn.heard == self.incarnation,
        };
        let before = self.heard.insert(from.peer, now);
        before.is_none_or(|before| before.incarnation != now.incarnation) || !now.heard_us
    }

    /// Whether it is time to tell everybody again.
    pub(super) fn is_due(&mut self, now: Millis) -> bool {
        let due = now.since(self.said) >= NEWBORN_EVERY_MS;
        if due {
            self.said = now;
        }
        due
    }

    /// Founders that keep the ensemble from beginning.
    pub(super) fn awaited(&self) -> Vec<Awaited> {
        let others = self.founders.voters.iter().filter(|id| **id != self.founders.own);
        let missing = |id: &u8| match self.heard.get(id) {
            Some(heard) if !heard.agrees => Some(Awaited::Disagrees(*id)),
            Some(heard) if heard.heard_us => None,
            _ => Some(Awaited::Silent(*id)),
        };
        others.filter_map(missing).collect()
    }

    /// Whether all founders are newborn, and this server is to vote with them.
    pub(super) fn is_complete(&self) -> bool {
        self.founders.voters.contains(&self.founders.own) && self.awaited().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn formation(own: u8, incarnation: u64) -> Formation {
        Formation::new(Founders { own, voters: vec![1, 2, 3], learners: vec![4] }, false, incarnation)
    }

    /// One says it to another.
    fn say(from: &Formation, to: &mut Formation) -> bool {
        let (peer, incarnation) = (from.founders.own, from.incarnation);
        let PeerMessage::Newborn(newborn) = from.greeting(to.founders.own, 1).message else {
            unreachable!("a newborn says that it is one");
        };
        to.received(Sender { peer, incarnation, link: 1 }, newborn)
    }

    #[test]
    fn all_founders_have_to_be_newborn_in_this_start() {
        let (mut one, mut two, mut three) = (formation(1, 11), formation(2, 12), formation(3, 13));
        assert!(say(&two, &mut one), "answered at once");
        assert!(say(&one, &mut two) && say(&two, &mut one) == say(&two, &mut one));
        assert_eq!(one.awaited(), [Awaited::Silent(3)]);
        say(&three, &mut one);
        assert!(!one.is_complete(), "that server has not heard of this one");
        say(&one, &mut three);
        say(&three, &mut one);
        assert!(one.is_complete() && !two.is_complete() && !three.is_complete());
        // What was said to a former start does not count.
        let mut again = formation(1, 21);
        say(&two, &mut again);
        say(&three, &mut again);
        assert_eq!(again.awaited(), [Awaited::Silent(2), Awaited::Silent(3)]);
    }

    #[test]
    fn one_that_has_promised_nothing_yet_is_as_good_as_newborn() {
        let (mut one, mut two) = (formation(1, 11), formation(2, 12));
        let mut three = Formation::new(Founders { own: 3, voters: vec![1, 2, 3], learners: vec![4] }, true, 13);
        say(&one, &mut two);
        say(&one, &mut three);
        say(&two, &mut one);
        say(&three, &mut one);
        assert!(one.is_complete());
    }

    #[test]
    fn other_founders_form_another_ensemble() {
        let mut one = formation(1, 11);
        let mut two = Formation::new(Founders { own: 2, voters: vec![1, 2, 3, 4], learners: vec![] }, false, 12);
        say(&one, &mut two);
        say(&two, &mut one);
        assert_eq!(one.awaited(), [Awaited::Disagrees(2), Awaited::Silent(3)]);
    }

    #[test]
    fn one_without_a_vote_forms_nothing() {
        let mut learner = formation(4, 14);
        for (id, incarnation) in [(1, 11), (2, 12), (3, 13)] {
            let mut voter = formation(id, incarnation);
            say(&learner, &mut voter);
            say(&voter, &mut learner);
        }
        assert!(learner.awaited().is_empty() && !learner.is_complete());
    }

    #[test]
    fn a_single_voter_waits_for_nobody() {
        let one = Formation::new(Founders { own: 1, voters: vec![1], learners: vec![2] }, false, 11);
        assert!(one.is_complete());
    }

    #[test]
    fn everybody_is_told_again_and_again() {
        let mut one = formation(1, 11);
        assert!(one.is_due(Millis(NEWBORN_EVERY_MS)) && !one.is_due(Millis(NEWBORN_EVERY_MS + 1)));
        assert!(one.is_due(Millis(2 * NEWBORN_EVERY_MS)));
    }
}
