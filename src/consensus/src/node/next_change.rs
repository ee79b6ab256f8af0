//! The next membership change that brings the membership in force closer to the wanted one. Pure; for the leader.
//!
//! One change at a time, and none during joint consensus:
//!
//! 1. A member that lost its data is removed (an uninitialised server, see `RaftNode::uninitialised`). That change is
//!    committed without it, so no vote that it gave before the loss can count together with one that it gives later: a
//!    candidate that it voted for before lacks this entry and cannot be elected any more. The change needs a majority of
//!    the remaining voters that have their data. If two members lost theirs, the second one may be needed for a
//!    majority.
//! 2. A wanted server that is not a member becomes a learner, and receives all data.
//! 3. A learner that is wanted as a voter and has caught up becomes a voter.
//!
//! A member that is not wanted is not removed: that takes a command of an operator.

use crate::conf_change::MemberChange;
use crate::membership::Membership;
use crate::types::{Index, ServerId};

/// Another member as the leader knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemberState {
    pub(super) id: ServerId,
    /// It reported that it is uninitialised, and has acknowledged nothing since.
    pub(super) uninitialised: bool,
    /// The index that it has acknowledged, before it lost its data or since.
    pub(super) matched: Index,
    /// It has been close behind the commit index for some time.
    pub(super) keeps_up: bool,
}

/// The next change; `others` are all members except the leader, in any order.
pub(super) fn next_change(wanted: &Membership, now: &Membership, others: &[MemberState]) -> Option<MemberChange> {
    if now.is_joint() {
        return None;
    }
    let lost_data =
        |state: &&MemberState| state.uninitialised && (now.voters.contains(&state.id) || state.matched > Index(0));
    if let Some(state) = others.iter().find(lost_data) {
        return can_remove(now, others, state.id).then_some(MemberChange::Remove(state.id));
    }
    let mut all = wanted.voters.iter().chain(&wanted.learners);
    if let Some(missing) = all.find(|id| !now.contains(**id)) {
        return Some(MemberChange::AddLearner(*missing));
    }
    let may_vote = |state: &&MemberState| {
        let is_to_vote = wanted.voters.contains(&state.id) && now.learners.contains(&state.id);
        is_to_vote && state.keeps_up && !state.uninitialised
    };
    others.iter().find(may_vote).map(|state| MemberChange::AddVoter(state.id))
}

/// Whether the remaining voters that have their data and keep up, this leader among them, are a majority.
fn can_remove(now: &Membership, others: &[MemberState], removed: ServerId) -> bool {
    let remaining: Vec<ServerId> = now.voters.iter().copied().filter(|id| *id != removed).collect();
    let lacks = |id: &ServerId| others.iter().any(|state| state.id == *id && (state.uninitialised || !state.keeps_up));
    let sound = remaining.iter().filter(|id| !lacks(id)).count();
    sound > remaining.len() / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::id_of;

    fn membership(voters: &[u64], learners: &[u64]) -> Membership {
        let ids = |list: &[u64]| list.iter().map(|id| id_of(*id)).collect::<Vec<_>>();
        Membership::simple(&ids(voters), &ids(learners))
    }

    fn fine(id: u64) -> MemberState {
        MemberState { id: id_of(id), uninitialised: false, matched: Index(70), keeps_up: true }
    }

    fn check(wanted: &Membership, now: &Membership, others: &[MemberState], expect: Option<MemberChange>) {
        assert_eq!(next_change(wanted, now, others), expect, "{wanted:?} {now:?} {others:?}");
    }

    #[test]
    fn what_is_as_wanted_stays() {
        let wanted = membership(&[1, 2, 3], &[4]);
        check(&wanted, &wanted, &[fine(2), fine(3), fine(4)], None);
        // A member that is not wanted any more stays until an operator removes it.
        check(&wanted, &membership(&[1, 2, 3, 5], &[4, 6]), &[fine(2), fine(3), fine(4), fine(5), fine(6)], None);
    }

    #[test]
    fn an_emptied_voter_leaves_comes_back_to_learn_and_votes_again() {
        let wanted = membership(&[1, 2, 3], &[]);
        let uninitialised = MemberState { uninitialised: true, keeps_up: false, ..fine(3) };
        check(&wanted, &wanted, &[fine(2), uninitialised], Some(MemberChange::Remove(ServerId(3))));
        // Also where this leader has heard nothing of its former life.
        let unknown = MemberState { matched: Index(0), ..uninitialised };
        check(&wanted, &wanted, &[fine(2), unknown], Some(MemberChange::Remove(ServerId(3))));
        check(&wanted, &membership(&[1, 2], &[]), &[fine(2)], Some(MemberChange::AddLearner(ServerId(3))));
        let learns = membership(&[1, 2], &[3]);
        check(&wanted, &learns, &[fine(2), unknown], None);
        check(&wanted, &learns, &[fine(2), MemberState { keeps_up: false, ..fine(3) }], None);
        check(&wanted, &learns, &[fine(2), fine(3)], Some(MemberChange::AddVoter(ServerId(3))));
    }

    #[test]
    fn no_member_is_removed_where_the_rest_would_have_no_majority() {
        let wanted = membership(&[1, 2, 3], &[]);
        let uninitialised = |id| MemberState { uninitialised: true, keeps_up: false, ..fine(id) };
        check(&wanted, &wanted, &[uninitialised(2), uninitialised(3)], None);
        check(&wanted, &wanted, &[MemberState { keeps_up: false, ..fine(2) }, uninitialised(3)], None);
        let five = membership(&[1, 2, 3, 4, 5], &[]);
        check(
            &five,
            &five,
            &[uninitialised(2), uninitialised(3), fine(4), fine(5)],
            Some(MemberChange::Remove(ServerId(2))),
        );
        check(&five, &five, &[uninitialised(2), uninitialised(3), uninitialised(4), fine(5)], None);
        // The removal of a learner changes no majority.
        let learns = membership(&[1, 2], &[3]);
        check(&wanted, &learns, &[fine(2), uninitialised(3)], Some(MemberChange::Remove(ServerId(3))));
    }

    #[test]
    fn a_learner_that_is_emptied_again_begins_again() {
        let wanted = membership(&[1, 2, 3], &[4]);
        let uninitialised = |id| MemberState { uninitialised: true, ..fine(id) };
        check(
            &wanted,
            &membership(&[1, 2], &[3, 4]),
            &[fine(2), uninitialised(3)],
            Some(MemberChange::Remove(ServerId(3))),
        );
        check(&wanted, &wanted, &[fine(2), fine(3), uninitialised(4)], Some(MemberChange::Remove(ServerId(4))));
        let learns = membership(&[1, 2, 3], &[]);
        check(&wanted, &learns, &[fine(2), fine(3)], Some(MemberChange::AddLearner(ServerId(4))));
    }

    #[test]
    fn nothing_is_begun_in_the_middle_of_a_change() {
        let joint = Membership { voters_outgoing: vec![ServerId(1), ServerId(9)], ..membership(&[1, 2], &[]) };
        let uninitialised = MemberState { uninitialised: true, ..fine(2) };
        check(&membership(&[1, 2, 3], &[]), &joint, &[uninitialised], None);
    }
}
