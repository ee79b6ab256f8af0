//! Who ought to be a member and who is: the next change that brings the second closer to the first. The leader's; pure.
//!
//! One change at a time, and none while a joint change is under way:
//!
//! 1. A member that has forgotten what it promised (a newborn, see `node/newborn.rs`) leaves. That change is committed
//!    without it, so that no promise it made can count together with one that it makes later: a candidate that it voted
//!    for in its former life lacks this entry and cannot be elected any more. It is not begun unless those that remember
//!    make up a majority without it: where two have forgotten, the second may yet turn out to have begun with the others,
//!    and then it is he whom the rest needs.
//! 2. Whoever is wanted and no member becomes a learner, and is given everything.
//! 3. A learner that ought to vote and has kept up becomes a voter.
//!
//! Nobody leaves because he is not wanted: that takes a word of an operator.

use crate::conf_change::MemberChange;
use crate::types::{Index, Membership, NodeId};

/// What the leader knows of another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) id: NodeId,
    /// It said so, and has acknowledged nothing since.
    pub(crate) newborn: bool,
    /// What it has acknowledged, in this life or, if it is newborn, in a former one.
    pub(crate) matched: Index,
    /// It was close behind for some time.
    pub(crate) keeps_up: bool,
}

/// The next change; `others` are all members but the leader, in any order.
pub(crate) fn next_change(wanted: &Membership, now: &Membership, others: &[Seen]) -> Option<MemberChange> {
    if now.is_joint() {
        return None;
    }
    let forgot = |seen: &&Seen| seen.newborn && (now.voters.contains(&seen.id) || seen.matched > Index(0));
    if let Some(seen) = others.iter().find(forgot) {
        return go_on_without(now, others, seen.id).then_some(MemberChange::Remove(seen.id));
    }
    let mut all = wanted.voters.iter().chain(&wanted.learners);
    if let Some(missing) = all.find(|id| !now.contains(**id)) {
        return Some(MemberChange::AddLearner(*missing));
    }
    let may_vote = |seen: &&Seen| {
        let ought = wanted.voters.contains(&seen.id) && now.learners.contains(&seen.id);
        ought && seen.keeps_up && !seen.newborn
    };
    others.iter().find(may_vote).map(|seen| MemberChange::AddVoter(seen.id))
}

/// Whether those that remember and follow closely, this leader among them, are a majority of the voters that are left.
fn go_on_without(now: &Membership, others: &[Seen], leaves: NodeId) -> bool {
    let left: Vec<NodeId> = now.voters.iter().copied().filter(|id| *id != leaves).collect();
    let missing = |id: &NodeId| others.iter().any(|seen| seen.id == *id && (seen.newborn || !seen.keeps_up));
    let there = left.iter().filter(|id| !missing(id)).count();
    there > left.len() / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn membership(voters: &[u64], learners: &[u64]) -> Membership {
        let ids = |list: &[u64]| list.iter().map(|id| NodeId(*id)).collect::<Vec<_>>();
        Membership::simple(&ids(voters), &ids(learners))
    }

    fn fine(id: u64) -> Seen {
        Seen { id: NodeId(id), newborn: false, matched: Index(70), keeps_up: true }
    }

    fn check(wanted: &Membership, now: &Membership, others: &[Seen], expect: Option<MemberChange>) {
        assert_eq!(next_change(wanted, now, others), expect, "{wanted:?} {now:?} {others:?}");
    }

    #[test]
    fn what_is_as_wanted_stays() {
        let wanted = membership(&[1, 2, 3], &[4]);
        check(&wanted, &wanted, &[fine(2), fine(3), fine(4)], None);
        // One who is not wanted any more stays until somebody says so.
        check(&wanted, &membership(&[1, 2, 3, 5], &[4, 6]), &[fine(2), fine(3), fine(4), fine(5), fine(6)], None);
    }

    #[test]
    fn an_emptied_voter_leaves_comes_back_to_learn_and_votes_again() {
        let wanted = membership(&[1, 2, 3], &[]);
        let newborn = Seen { newborn: true, keeps_up: false, ..fine(3) };
        check(&wanted, &wanted, &[fine(2), newborn], Some(MemberChange::Remove(NodeId(3))));
        // Also where this leader has heard nothing of its former life.
        let unknown = Seen { matched: Index(0), ..newborn };
        check(&wanted, &wanted, &[fine(2), unknown], Some(MemberChange::Remove(NodeId(3))));
        check(&wanted, &membership(&[1, 2], &[]), &[fine(2)], Some(MemberChange::AddLearner(NodeId(3))));
        let learns = membership(&[1, 2], &[3]);
        check(&wanted, &learns, &[fine(2), unknown], None);
        check(&wanted, &learns, &[fine(2), Seen { keeps_up: false, ..fine(3) }], None);
        check(&wanted, &learns, &[fine(2), fine(3)], Some(MemberChange::AddVoter(NodeId(3))));
    }

    #[test]
    fn nobody_leaves_where_the_rest_could_not_go_on() {
        let wanted = membership(&[1, 2, 3], &[]);
        let newborn = |id| Seen { newborn: true, keeps_up: false, ..fine(id) };
        check(&wanted, &wanted, &[newborn(2), newborn(3)], None);
        check(&wanted, &wanted, &[Seen { keeps_up: false, ..fine(2) }, newborn(3)], None);
        let five = membership(&[1, 2, 3, 4, 5], &[]);
        check(&five, &five, &[newborn(2), newborn(3), fine(4), fine(5)], Some(MemberChange::Remove(NodeId(2))));
        check(&five, &five, &[newborn(2), newborn(3), newborn(4), fine(5)], None);
        // A learner's leaving takes nobody's majority.
        let learns = membership(&[1, 2], &[3]);
        check(&wanted, &learns, &[fine(2), newborn(3)], Some(MemberChange::Remove(NodeId(3))));
    }

    #[test]
    fn a_learner_that_is_emptied_again_begins_again() {
        let wanted = membership(&[1, 2, 3], &[4]);
        let newborn = |id| Seen { newborn: true, ..fine(id) };
        check(&wanted, &membership(&[1, 2], &[3, 4]), &[fine(2), newborn(3)], Some(MemberChange::Remove(NodeId(3))));
        check(&wanted, &wanted, &[fine(2), fine(3), newborn(4)], Some(MemberChange::Remove(NodeId(4))));
        let learns = membership(&[1, 2, 3], &[]);
        check(&wanted, &learns, &[fine(2), fine(3)], Some(MemberChange::AddLearner(NodeId(4))));
    }

    #[test]
    fn nothing_is_begun_in_the_middle_of_a_change() {
        let joint = Membership { voters_outgoing: vec![NodeId(1), NodeId(9)], ..membership(&[1, 2], &[]) };
        let newborn = Seen { newborn: true, ..fine(2) };
        check(&membership(&[1, 2, 3], &[]), &joint, &[newborn], None);
    }
}
