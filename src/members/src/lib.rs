//! Membership changes: translation between the sequencer, which decides them, and Raft, which carries them out. Besides: their
//! form in snapshots.
//!
//! The engine calls these functions, in an ensemble only. They decide nothing, and know no connections and addresses.

#![warn(missing_docs)]

mod extra;

pub use extra::{DecodeExtraError, Extra};

use std::ops::DerefMut;

use corral_consensus::{ConfChange, Machine, MemberChange, Membership, NodeId, Replica, Transition};
use corral_core::coordinator::Coordinator;
use corral_core::ids::{Millis, WallMillis};
use corral_core::sequencer::{MembersSeen, Proposal, Seat};
use corral_core::servers::{Role, Servers};

/// The next step of a membership change, if one is possible now. The caller proposes it at once, see [`propose_step`].
/// `members_seen` gives what Raft observes of the members: [`observe`]. Called at every tick, and while a change is in
/// progress at every turn.
#[must_use = "the sequencer waits until the step is proposed or has failed"]
pub fn next_step<M: Machine + DerefMut<Target = Coordinator>>(
    replica: &mut Replica<M>,
    (now, wall): (Millis, WallMillis),
    members_seen: impl FnOnce(&Replica<M>) -> MembersSeen,
) -> Option<Proposal> {
    if !replica.is_leading() || !replica.raft().may_change_membership() {
        return None;
    }
    let seen = members_seen(replica);
    replica.machine_mut().sequencer.reconfigure(now, wall, &seen)
}

/// A step for the log: each server with its place. A step without changes ends joint consensus.
fn described(changes: &[(u8, Seat)]) -> String {
    let place = |seat: &Seat| match seat {
        Seat::Voter => "voter",
        Seat::Learner => "learner",
        Seat::None => "removed",
    };
    let each: Vec<String> = changes.iter().map(|(server, seat)| format!("{server}={}", place(seat))).collect();
    if each.is_empty() { "leave joint consensus".to_owned() } else { each.join(" ") }
}

/// Proposes a step that [`next_step`] gave. If Raft rejects it, the sequencer is informed, and decides anew.
pub fn propose_step<M: Machine + DerefMut<Target = Coordinator>>(replica: &mut Replica<M>, proposal: Proposal) {
    tracing::info!(changes = described(&proposal.changes), "membership change proposed");
    if let Err(error) = replica.propose_conf_change(conf_change(proposal)) {
        tracing::warn!("membership change rejected: {error}");
        replica.machine_mut().sequencer.reconfigure_failed();
    }
}

/// What Raft observes of the members: those in force, those that are active, those that keep up. Of a leader.
#[must_use]
pub fn observe<M: Machine>(replica: &Replica<M>) -> MembersSeen {
    let raft = replica.raft();
    let membership = raft.membership();
    let servers = |nodes: &[NodeId]| nodes.iter().filter_map(|node| u8::try_from(node.0).ok()).collect();
    MembersSeen {
        voters: servers(&membership.voters),
        learners: servers(&membership.learners),
        joint: membership.is_joint(),
        reached: servers(&raft.followers().active()),
        in_step: servers(&raft.followers().synced()),
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

/// The membership that a list of servers asks for: participants vote, observers are learners.
#[must_use]
pub fn membership_of(wanted: &[(u8, Role)]) -> Membership {
    let of = |role: Role| {
        let ids = wanted.iter().filter(move |(_, has)| *has == role);
        ids.map(|(id, _)| NodeId(u64::from(*id))).collect::<Vec<_>>()
    };
    Membership::simple(&of(Role::Participant), &of(Role::Observer))
}

/// The leader that this server follows, if that list of servers does not allow it to lead. The caller reports it lost,
/// so that its silence is not waited for.
#[must_use]
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
    fn roles_become_voters_and_learners() {
        let wanted = [(1, Role::Participant), (2, Role::Observer), (3, Role::Participant)];
        assert_eq!(membership_of(&wanted), Membership::simple(&[NodeId(1), NodeId(3)], &[NodeId(2)]));
    }
}
