//! Changes of the list of servers: between the sequencer, which decides, and Raft, which carries them out; and what images
//! keep of both.
//!
//! On the consensus actor's core, in an ensemble alone; the server's driver and the simulator's call the same functions.
//! Translates and decides nothing. It knows no links: where the others are found is the server's own.

mod extra;

pub use extra::Extra;

use std::ops::DerefMut;

use corral_consensus::{ConfChange, Machine, MemberChange, Membership, NodeId, Replica, Transition};
use corral_core::ids::{Millis, WallMillis};
use corral_core::member::Member;
use corral_core::sequencer::{MembersSeen, Proposal, Seat};
use corral_core::servers::{Role, Servers};

/// The next step of a change of the list of servers, if one can be done now. What is given has to be proposed at once,
/// see [`carry_out`]. `look` says what Raft sees of the members: [`seen`].
pub fn next_step<M: Machine + DerefMut<Target = Member>>(
    replica: &mut Replica<M>,
    (now, wall): (Millis, WallMillis),
    look: impl FnOnce(&Replica<M>) -> MembersSeen,
) -> Option<Proposal> {
    if !replica.is_leading() || !replica.raft().may_change_membership() {
        return None;
    }
    let seen = look(replica);
    replica.machine_mut().sequencer.reconfigure(now, wall, &seen)
}

/// Proposes the step. Should Raft refuse it, the sequencer hears of that.
pub fn carry_out<M: Machine + DerefMut<Target = Member>>(replica: &mut Replica<M>, proposal: Proposal) {
    tracing::info!(changes = ?proposal.changes, "the membership changes");
    if let Err(error) = replica.propose_conf_change(conf_change(proposal)) {
        tracing::warn!("the membership stays as it is: {error}");
        replica.machine_mut().sequencer.reconfigure_failed();
    }
}

/// What Raft sees of the members.
pub fn seen<M: Machine>(replica: &Replica<M>) -> MembersSeen {
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
pub fn membership_of(wanted: &[(u8, Role)]) -> Membership {
    let of = |role: Role| {
        let ids = wanted.iter().filter(move |(_, has)| *has == role);
        ids.map(|(id, _)| NodeId(u64::from(*id))).collect::<Vec<_>>()
    };
    Membership::simple(&of(Role::Participant), &of(Role::Observer))
}

/// The leader that this server follows, if by that list it can be none: it is not waited for.
pub fn leader_out_of<M: Machine>(replica: &Replica<M>, list: Option<&Servers>) -> Option<NodeId> {
    let leader = replica.raft().leader()?;
    let entry = u8::try_from(leader.0).ok().and_then(|id| list?.0.get(&id));
    let may_lead = entry.is_some_and(|server| server.role == Role::Participant);
    (list.is_some() && !may_lead).then_some(leader)
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn roles_become_places() {
        let wanted = [(1, Role::Participant), (2, Role::Observer), (3, Role::Participant)];
        assert_eq!(membership_of(&wanted), Membership::simple(&[NodeId(1), NodeId(3)], &[NodeId(2)]));
    }
}
