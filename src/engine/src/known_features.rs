//! Which features of log entries the other members know, as each reported when its connection opened.

use std::collections::BTreeMap;

use corral_consensus::{Membership, RaftNode, ServerId};
use corral_core::features;
use corral_core::sequencer::Sequencer;

/// The reports on the connections that other servers dialled.
#[derive(Debug, Default)]
pub(crate) struct KnownFeatures {
    /// By stream: the server, and the bits that it knows. A later connection has a larger number.
    by_stream: BTreeMap<u64, (ServerId, u32)>,
    /// A connection, a report or the membership has changed since the sequencer was last told.
    changed: bool,
}

impl KnownFeatures {
    /// A connection from that server is open: it knows nothing that it does not report on this one.
    pub(crate) fn accepted(&mut self, stream: u64, peer: ServerId) {
        self.by_stream.insert(stream, (peer, 0));
        self.changed = true;
    }

    /// The server reported what it knows.
    pub(crate) fn reported(&mut self, stream: u64, features: u32) {
        if let Some((_, known)) = self.by_stream.get_mut(&stream) {
            *known = features;
            self.changed = true;
        }
    }

    /// The connection is closed.
    pub(crate) fn lost(&mut self, stream: u64) {
        self.changed |= self.by_stream.remove(&stream).is_some();
    }

    /// The membership may have changed.
    pub(crate) fn membership_changed(&mut self) {
        self.changed = true;
    }

    /// Reports to the sequencer which features all members know. Once a turn.
    pub(crate) fn report_to(&mut self, wanted: &Membership, raft: &RaftNode, sequencer: &mut Sequencer) {
        if std::mem::take(&mut self.changed) {
            let (own, members) = (raft.id(), raft.membership());
            let all_know = |bit: &u32| self.all_know(*bit, own, &[&members, wanted]);
            sequencer.all_members_know([features::ADMITTED, features::IDENTIFIED].into_iter().filter(all_know).sum());
        }
    }

    /// Whether all members other than `own` know the features: the members in force, and the wanted ones.
    fn all_know(&self, features: u32, own: ServerId, memberships: &[&Membership]) -> bool {
        let lists = |of: &Membership| [of.voters.clone(), of.voters_outgoing.clone(), of.learners.clone()].concat();
        memberships.iter().flat_map(|of| lists(of)).filter(|id| *id != own).all(|id| self.knows(id, features))
    }

    fn knows(&self, peer: ServerId, features: u32) -> bool {
        let newest = self.by_stream.values().rev().find(|(from, _)| *from == peer);
        newest.is_some_and(|(_, known)| known & features == features)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: ServerId = ServerId(1);

    fn all_know(known: &KnownFeatures, voters: &[u8], learners: &[u8], wanted: &[u8]) -> bool {
        let ids = |ids: &[u8]| ids.iter().map(|id| ServerId(*id)).collect::<Vec<_>>();
        let in_force = Membership::simple(&ids(voters), &ids(learners));
        known.all_know(4, OWN, &[&in_force, &Membership::simple(&ids(wanted), &[])])
    }

    #[test]
    fn every_member_has_to_report_it() {
        let mut known = KnownFeatures::default();
        assert!(all_know(&known, &[1], &[], &[1]), "a server that is alone");
        for peer in 2..=4 {
            let connection = u64::from(peer);
            known.accepted(connection, ServerId(peer));
            assert!(!all_know(&known, &[1, peer], &[], &[1]), "{peer} is connected, and has reported nothing");
            known.reported(connection, if peer == 4 { 8 } else { 12 });
        }
        assert!(all_know(&known, &[1, 2, 3], &[], &[1, 2, 3]));
        assert!(!all_know(&known, &[1, 2, 3], &[4], &[1]), "a learner does not know it");
        assert!(!all_know(&known, &[1, 2, 3], &[], &[1, 4]), "a server that is to join does not know it");
        assert!(!all_know(&known, &[1, 2, 3, 5], &[], &[1]), "a member is not connected");
        let joint =
            Membership { voters_outgoing: vec![OWN, ServerId(4)], ..Membership::simple(&[OWN, ServerId(2)], &[]) };
        assert!(!known.all_know(4, OWN, &[&joint]), "a member that leaves does not know it");
    }

    #[test]
    fn the_newest_connection_of_a_server_counts() {
        let mut known = KnownFeatures::default();
        let two = |known: &KnownFeatures| all_know(known, &[1, 2], &[], &[1]);
        known.accepted(7, ServerId(2));
        known.reported(7, 4);
        assert!(two(&known));
        known.accepted(9, ServerId(2));
        assert!(!two(&known), "another build may have started there");
        known.lost(7);
        known.reported(7, 4);
        assert!(!two(&known));
        known.reported(9, 4);
        assert!(two(&known));
        known.lost(9);
        assert!(!two(&known));
    }
}
