//! Comparing this server's digests of the tree with the others', at equal places in the log.
//!
//! Responsible for the choice of entries and for the verdict. Each server sends all others the digest behind an entry:
//! of the last one applied, once in [`DIGEST_REPORT_MS`], and of every [`DIGEST_POINT_ENTRIES`]th. A server that finds
//! a difference sends its own digest of the same entry, so that all servers can count. A server is wrong if a majority
//! of the voters agree on another digest of one entry. Without such a majority it is unknown which one is wrong. Memory
//! is bounded: see the constants.

use super::links::Links;
use crate::forwarding::peer::{Digest, PeerMessage};
use crate::ids::{Millis, ServerId};
use crate::limits::SERVERS_MAX;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

/// The digest behind every so many entries is compared, however busy the servers are.
pub const DIGEST_POINT_ENTRIES: u64 = 1024;
/// The digest of the last entry is told at most this often, milliseconds.
pub const DIGEST_REPORT_MS: u64 = 1000;
/// Entries with a digest that is kept.
const RECENT_MAX: usize = 1024;
/// Points with a digest that is kept.
const POINTS_MAX: usize = 64;
/// Reports of one server that are kept.
const REPORTS_MAX: usize = 8;

/// This server's digest differs from others'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// Place in the log of the last entry in both.
    pub index: u64,
    /// This server's digest behind that entry.
    pub own: u64,
    /// The digest of `peer` behind that entry.
    pub others: u64,
    /// One server that has the other digest.
    pub peer: ServerId,
    /// A majority of the voters has the other digest: this server is wrong.
    pub outvoted: bool,
    /// A majority has this server's digest: the other one is wrong, and finds that, too.
    pub confirmed: bool,
    /// How many voters told this server's digest of the entry, it among them.
    pub with_own: usize,
    /// How many voters told the other digest.
    pub with_other: usize,
}

/// Own digests, and those of the other servers, at equal places in the log.
#[derive(Debug, Default)]
pub(super) struct Digests {
    recent: VecDeque<(u64, u64)>,
    points: VecDeque<(u64, u64)>,
    reports: BTreeMap<ServerId, VecDeque<Digest>>,
    /// Told to all.
    told: u64,
    told_point: u64,
    told_at: Millis,
    /// The last difference that was answered.
    answered: u64,
    differing: BTreeSet<ServerId>,
    mismatches: u64,
}

impl Digests {
    /// An entry was applied.
    pub(super) fn applied(&mut self, index: u64, digest: Option<u64>) {
        let Some(digest) = digest else { return };
        push(&mut self.recent, RECENT_MAX, (index, digest));
        if index.is_multiple_of(DIGEST_POINT_ENTRIES) {
            push(&mut self.points, POINTS_MAX, (index, digest));
        }
    }

    /// Another server was connected: it was told nothing yet.
    pub(super) const fn peer_connected(&mut self) {
        (self.told, self.told_point, self.answered) = (0, 0, 0);
    }

    /// Another state took the place of this one.
    pub(super) fn reset(&mut self) {
        *self = Self { mismatches: self.mismatches, ..Self::default() };
    }

    pub(super) const fn take_mismatches(&mut self) -> u64 {
        core::mem::replace(&mut self.mismatches, 0)
    }

    /// Sends the digests that are due now.
    pub(super) fn tick(&mut self, now: Millis, links: &mut Links) {
        if now.since(self.told_at) < DIGEST_REPORT_MS {
            return;
        }
        self.told_at = now;
        if let Some((index, digest)) = self.points.back().copied().filter(|(index, _)| *index > self.told_point) {
            self.told_point = index;
            links.send_all(&PeerMessage::Digest(Digest { index, digest }));
        }
        if let Some((index, digest)) = self.recent.back().copied().filter(|(index, _)| *index > self.told) {
            self.told = index;
            links.send_all(&PeerMessage::Digest(Digest { index, digest }));
        }
    }

    pub(super) fn received(&mut self, peer: ServerId, report: Digest, links: &mut Links) {
        if self.reports.len() >= SERVERS_MAX && !self.reports.contains_key(&peer) {
            return;
        }
        push(self.reports.entry(peer).or_default(), REPORTS_MAX, report);
        match self.own(report.index) {
            Some(own) if own == report.digest => {
                // Its earlier digests were replaced since.
                self.differing.remove(&peer);
                if let Some(reports) = self.reports.get_mut(&peer) {
                    reports.retain(|one| one.index >= report.index);
                }
            }
            Some(own) if report.index > self.answered => {
                self.answered = report.index;
                links.send_all(&PeerMessage::Digest(Digest { index: report.index, digest: own }));
            }
            _ => {}
        }
    }

    /// Compares what was heard. To be called now and then.
    pub(super) fn divergence(&mut self, this: ServerId, voters: &[ServerId]) -> Option<Divergence> {
        let mut found: Option<Divergence> = None;
        let mut differing = Vec::new();
        for (peer, reports) in &self.reports {
            for report in reports {
                let Some(own) = self.own(report.index).filter(|own| *own != report.digest) else { continue };
                differing.push(*peer);
                let has = |id: ServerId, digest| {
                    let told = self.reports.get(&id).is_some_and(|all| all.contains(&Digest { digest, ..*report }));
                    told || id == this && digest == own
                };
                let count = |digest| voters.iter().filter(|id| has(**id, digest)).count();
                let (with_own, with_other) = (count(own), count(report.digest));
                let majority = |count: usize| count * 2 > voters.len();
                let (outvoted, confirmed) = (majority(with_other), majority(with_own));
                let decided = |found: Divergence| (found.outvoted, found.confirmed);
                if found.is_none_or(|found| (outvoted, confirmed) > decided(found)) {
                    let Digest { index, digest: others } = *report;
                    let peer = *peer;
                    found = Some(Divergence { index, own, others, peer, outvoted, confirmed, with_own, with_other });
                }
            }
        }
        for peer in differing {
            self.mismatches += u64::from(self.differing.insert(peer));
        }
        found
    }

    /// Whether the last digest that could be compared with a server's differed from it.
    pub(super) fn differ(&self) -> bool {
        !self.differing.is_empty()
    }

    fn own(&self, index: u64) -> Option<u64> {
        [&self.recent, &self.points].into_iter().find_map(|list| {
            list.binary_search_by_key(&index, |(at, _)| *at).ok().and_then(|place| list.get(place)).map(|(_, sum)| *sum)
        })
    }
}

fn push<T>(list: &mut VecDeque<T>, most: usize, one: T) {
    if list.len() == most {
        list.pop_front();
    }
    list.push_back(one);
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ServerId = ServerId(1);
    const TWO: ServerId = ServerId(2);
    const THREE: ServerId = ServerId(3);

    /// To two servers.
    fn links() -> Links {
        let mut links = Links::default();
        [TWO, THREE].into_iter().for_each(|peer| links.connected(peer, 1));
        links
    }

    fn server(digest: u64) -> Digests {
        let mut digests = Digests::default();
        (1..=2000).for_each(|index| digests.applied(index, Some(index * digest)));
        digests
    }

    #[test]
    fn a_server_whose_digest_a_majority_contradicts_is_wrong_and_the_others_are_not() {
        let mut links = links();
        let (mut wrong, mut right) = (server(7), server(5));
        let report = Digest { index: 2000, digest: 10_000 };
        wrong.received(TWO, report, &mut links);
        let own = PeerMessage::Digest(Digest { index: 2000, digest: 14_000 });
        assert_eq!(
            links.take().into_iter().map(|send| send.message).collect::<Vec<_>>(),
            [own.clone(), own],
            "others are asked to count"
        );
        assert!(wrong.divergence(ONE, &[ONE, TWO, THREE]).is_some_and(|found| !found.outvoted), "one against one");
        wrong.received(THREE, report, &mut links);
        let found = wrong.divergence(ONE, &[ONE, TWO, THREE]);
        assert_eq!(
            found,
            Some(Divergence {
                index: 2000,
                own: 14_000,
                others: 10_000,
                peer: TWO,
                outvoted: true,
                confirmed: false,
                with_own: 1,
                with_other: 2,
            })
        );
        assert_eq!((wrong.take_mismatches(), wrong.take_mismatches()), (2, 0));
        right.received(THREE, report, &mut links);
        right.received(TWO, Digest { index: 2000, digest: 14_000 }, &mut links);
        assert!(right.divergence(ONE, &[ONE, TWO, THREE]).is_some_and(|found| !found.outvoted));
        right.received(THREE, Digest { index: 2000, digest: 10_000 }, &mut links);
        assert!(right.divergence(ONE, &[ONE, TWO, THREE]).is_some_and(|found| !found.outvoted && found.confirmed));
        right.applied(2001, Some(1));
        right.received(TWO, Digest { index: 2001, digest: 1 }, &mut links);
        assert_eq!(right.divergence(ONE, &[ONE, TWO, THREE]), None, "it has healed");
        wrong.reset();
        assert_eq!(wrong.divergence(ONE, &[ONE, TWO, THREE]), None);
    }

    #[test]
    fn without_a_majority_no_server_is_wrong() {
        let mut links = links();
        let mut one = server(7);
        one.received(TWO, Digest { index: 2000, digest: 1 }, &mut links);
        assert!(one.divergence(ONE, &[ONE, TWO]).is_some_and(|found| !found.outvoted));
        one.received(TWO, Digest { index: 3000, digest: 1 }, &mut links);
        one.applied(3000, Some(2));
        assert!(one.divergence(ONE, &[ONE, TWO]).is_some_and(|found| !found.outvoted), "also of what comes later");
    }

    #[test]
    fn a_majority_that_agrees_with_this_server_stays_while_later_digests_are_on_their_way() {
        let mut links = links();
        let mut sound = server(5);
        for (peer, digest) in [(THREE, 10_000), (TWO, 1)] {
            sound.received(peer, Digest { index: 2000, digest }, &mut links);
        }
        sound.applied(2001, Some(2));
        for index in [1999, 2001] {
            sound.received(TWO, Digest { index, digest: 1 }, &mut links);
            let found = sound.divergence(ONE, &[ONE, TWO, THREE]).expect("server 2 differs");
            assert!(found.confirmed && (found.with_own, found.with_other) == (2, 1), "{found:?}");
        }
        assert!(sound.differ());
        sound.received(TWO, Digest { index: 2001, digest: 2 }, &mut links);
        assert!(!sound.differ());
    }

    #[test]
    fn points_outlast_recent_entries_and_each_is_told_once() {
        let mut links = links();
        let mut one = server(7);
        (2001..=9000).for_each(|index| one.applied(index, Some(index * 7)));
        assert_eq!((one.own(1024), one.own(1025), one.own(9000)), (Some(7168), None, Some(63_000)));
        one.tick(Millis(5000), &mut links);
        one.tick(Millis(6000), &mut links);
        assert_eq!(links.take().len(), 4, "the last point and the last entry, to two servers");
        one.peer_connected();
        one.tick(Millis(7000), &mut links);
        assert_eq!(links.take().len(), 4, "once more, to a server that may have heard nothing");
    }
}
