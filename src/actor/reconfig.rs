//! Changes of the list of servers: between the sequencer, which decides, Raft, which carries them out, and the links, which
//! follow.
//!
//! On the consensus actor's core, in an ensemble alone. Translates and decides nothing.

use std::net::IpAddr;

use corral_consensus::{ConfChange, MemberChange, Membership, NodeId, Replica, Transition};
use corral_core::ids::{Millis, WallMillis};
use corral_core::sequencer::{MembersSeen, Proposal, Seat};
use corral_core::servers::{Role, Server, Servers};

use crate::actor::authority::Authority;
use crate::net::peers::PeerAddress;

/// The next step of a change of the list of servers, if one can be done now.
pub(crate) fn reconfigure(replica: &mut Replica<Authority>, now: Millis, wall: WallMillis) {
    if !replica.is_leading() || !replica.raft().may_change_membership() {
        return;
    }
    let seen = seen(replica);
    let Some(proposal) = replica.machine_mut().sequencer.reconfigure(now, wall, &seen) else { return };
    tracing::info!(changes = ?proposal.changes, "the membership changes");
    if let Err(error) = replica.propose_conf_change(conf_change(proposal)) {
        tracing::warn!("the membership stays as it is: {error}");
        replica.machine_mut().sequencer.reconfigure_failed();
    }
}

fn seen(replica: &Replica<Authority>) -> MembersSeen {
    let raft = replica.raft();
    let membership = raft.membership();
    let servers = |nodes: &[NodeId]| nodes.iter().filter_map(|node| u8::try_from(node.0).ok()).collect();
    MembersSeen {
        voters: servers(&membership.voters),
        learners: servers(&membership.learners),
        joint: membership.is_joint(),
        reached: servers(&raft.reached()),
        in_step: servers(&raft.in_step()),
    }
}

fn conf_change(proposal: Proposal) -> ConfChange {
    let Proposal { changes, context } = proposal;
    let transition =
        if changes.is_empty() || context.is_empty() { Transition::Auto } else { Transition::JointExplicit };
    let change = |(id, seat): (u8, Seat)| {
        let id = NodeId(u64::from(id));
        match seat {
            Seat::Voter => MemberChange::AddVoter(id),
            Seat::Learner => MemberChange::AddLearner(id),
            Seat::None => MemberChange::Remove(id),
        }
    };
    ConfChange { changes: changes.into_iter().map(change).collect(), transition, context: context.into() }
}

/// Who ought to be a member.
pub(crate) fn membership_of(wanted: &[(u8, Role)]) -> Membership {
    let of = |role: Role| {
        let ids = wanted.iter().filter(move |(_, has)| *has == role);
        ids.map(|(id, _)| NodeId(u64::from(*id))).collect::<Vec<_>>()
    };
    Membership::simple(&of(Role::Participant), &of(Role::Observer))
}

/// Where this server finds the others: as the list says, and as it is configured for those who are not in it: what this
/// server has of the list may be old, and a leader of today not in there. A server that is listed with any address of its
/// host is found where it is configured, too.
pub(crate) fn addresses(known: Option<Servers>, configured: &[PeerAddress]) -> Vec<PeerAddress> {
    let known = known.unwrap_or_default();
    let of = |(id, server): (&u8, &Server)| {
        let id = NodeId(u64::from(*id));
        let is_any = server.host.parse::<IpAddr>().is_ok_and(|host| host.is_unspecified());
        let found = configured.iter().find(|peer| is_any && peer.id == id).cloned();
        found.unwrap_or_else(|| PeerAddress { id, host: server.host.to_string(), port: server.peer_port })
    };
    let mut all: Vec<PeerAddress> = known.0.iter().map(of).collect();
    let more = configured.iter().filter(|peer| !known.0.keys().any(|id| u64::from(*id) == peer.id.0));
    all.extend(more.cloned());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_others_are_found() {
        let peer = |id: u64, host: &str, port: u16| PeerAddress { id: NodeId(id), host: host.to_owned(), port };
        let configured = [peer(1, "old", 1), peer(2, "b", 1), peer(3, "c", 1)];
        let list = |text: &str| Servers::parse(text).map(|(servers, _)| servers);
        assert_eq!(addresses(None, &configured), configured);
        let known = list("server.1=a:1:2\nserver.2=0.0.0.0:7:2\nserver.4=d:1:2");
        let all = [peer(1, "a", 1), peer(2, "b", 1), peer(4, "d", 1), peer(3, "c", 1)];
        assert_eq!(addresses(known, &configured), all);
    }

    #[test]
    fn proposals_become_changes() {
        let of = |changes: Vec<(u8, Seat)>, context: Vec<u8>| conf_change(Proposal { changes, context });
        assert_eq!(of(vec![], vec![1]).transition, Transition::Auto);
        assert_eq!(of(vec![(4, Seat::None)], vec![]).transition, Transition::Auto);
        let change = of(vec![(1, Seat::None), (2, Seat::Learner), (4, Seat::Voter)], vec![1]);
        assert_eq!(change.transition, Transition::JointExplicit);
        let [one, two, four] = [1, 2, 4].map(NodeId);
        assert_eq!(
            change.changes,
            [MemberChange::Remove(one), MemberChange::AddLearner(two), MemberChange::AddVoter(four)]
        );
    }
}
