//! Membership changes: translation between the sequencer, which decides them, and Raft, which carries them out.
//!
//! In an ensemble only. Nothing is decided here, and no connection or address is known.

use corral_consensus::{ConfChange, MemberChange, Membership, RaftNode, Replica, ServerId, Transition};
use corral_core::ids::{Millis, WallMillis};
use corral_core::sequencer::{MembersSeen, Proposal, Seat, Sequencer};
use corral_core::servers::{Role, Servers};

use crate::machine::Replicated;

/// The next step of a membership change, if one is possible now. The caller proposes it at once, see [`propose_step`].
/// Called at every tick, and while a change is in progress at every turn.
#[must_use = "the sequencer waits until the step is proposed or has failed"]
pub(crate) fn next_step(
    replica: &Replica,
    machine: &mut impl Replicated,
    (now, wall): (Millis, WallMillis),
) -> Option<Proposal> {
    if !replica.is_leading() || !replica.raft().may_change_membership() {
        return None;
    }
    let seen = machine.members_seen(observe(replica.raft()));
    let step = machine.sequencer_mut().reconfigure(now, wall, &seen)?;
    Some(machine.membership_step(step))
}

/// A step for the log: each server with its place. A step without changes ends joint consensus.
fn described(changes: &[(ServerId, Seat)]) -> String {
    let place = |seat: &Seat| match seat {
        Seat::Voter => "voter",
        Seat::Learner => "learner",
        Seat::None => "removed",
    };
    let each: Vec<String> = changes.iter().map(|(server, seat)| format!("{server}={}", place(seat))).collect();
    if each.is_empty() { "leave joint consensus".to_owned() } else { each.join(" ") }
}

/// Proposes a step that [`next_step`] gave. If Raft rejects it, the sequencer is informed, and decides anew.
pub(crate) fn propose_step(replica: &mut Replica, sequencer: &mut Sequencer, proposal: Proposal) {
    tracing::info!(changes = described(&proposal.changes), "membership change proposed");
    if let Err(error) = replica.propose_conf_change(conf_change(proposal)) {
        tracing::warn!("membership change rejected: {error}");
        sequencer.reconfigure_failed();
    }
}

/// The members as Raft observes them: in force, active, keeping up. Of a leader.
#[must_use]
fn observe(raft: &RaftNode) -> MembersSeen {
    let membership = raft.membership();
    MembersSeen {
        voters: membership.voters.iter().copied().collect(),
        learners: membership.learners.iter().copied().collect(),
        joint: membership.is_joint(),
        reached: raft.followers().active().into_iter().collect(),
        in_step: raft.followers().synced().into_iter().collect(),
    }
}

fn conf_change(proposal: Proposal) -> ConfChange {
    let Proposal { changes, context } = proposal;
    let transition =
        if changes.is_empty() || context.is_empty() { Transition::Auto } else { Transition::JointExplicit };
    let change = |(id, seat): (ServerId, Seat)| match seat {
        Seat::Voter => MemberChange::AddVoter(id),
        Seat::Learner => MemberChange::AddLearner(id),
        Seat::None => MemberChange::Remove(id),
    };
    ConfChange { changes: changes.into_iter().map(change).collect(), transition, context: context.into() }
}

/// The membership that a list of servers asks for: participants vote, observers are learners.
#[must_use]
pub(crate) fn membership_of(wanted: &[(ServerId, Role)]) -> Membership {
    let of = |role| wanted.iter().filter(|(_, has)| *has == role).map(|(id, _)| *id).collect::<Vec<_>>();
    Membership::simple(&of(Role::Participant), &of(Role::Observer))
}

/// The leader that this server follows, if that list of servers does not allow it to lead. The caller reports it lost,
/// so that its silence is not waited for.
#[must_use]
pub(crate) fn leader_out_of(raft: &RaftNode, list: Option<&Servers>) -> Option<ServerId> {
    let leader = raft.leader()?;
    let entry = list.and_then(|list| list.0.get(&leader));
    let may_lead = entry.is_some_and(|server| server.role == Role::Participant);
    (list.is_some() && !may_lead).then_some(leader)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proposals_become_changes() {
        let of = |changes: Vec<(ServerId, Seat)>, context: Vec<u8>| conf_change(Proposal { changes, context });
        let [one, two, four] = [1, 2, 4].map(ServerId);
        assert_eq!(of(vec![], vec![1]).transition, Transition::Auto);
        assert_eq!(of(vec![(four, Seat::None)], vec![]).transition, Transition::Auto);
        let change = of(vec![(one, Seat::None), (two, Seat::Learner), (four, Seat::Voter)], vec![1]);
        assert_eq!(change.transition, Transition::JointExplicit);
        assert_eq!(
            change.changes,
            [MemberChange::Remove(one), MemberChange::AddLearner(two), MemberChange::AddVoter(four)]
        );
    }

    #[test]
    fn roles_become_voters_and_learners() {
        let [one, two, three] = [1, 2, 3].map(ServerId);
        let wanted = [(one, Role::Participant), (two, Role::Observer), (three, Role::Participant)];
        assert_eq!(membership_of(&wanted), Membership::simple(&[one, three], &[two]));
    }
}
