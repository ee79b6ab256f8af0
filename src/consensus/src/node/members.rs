//! Membership: changes proposed, by whom it may concern or because what is differs from what is wanted, applied with their
//! entries, and joint changes ended.

use std::collections::BTreeSet;

use raft::{Raft, StateRole};

use super::RaftNode;
use crate::conf_change::{ConfChange, MemberChange};
use crate::convert;
use crate::error::{ConfChangeError, ProposeError};
use crate::limits;
use crate::log::MemLog;
use crate::reconcile::{self, Seen};
use crate::types::{Index, Membership, NodeId};

impl RaftNode {
    /// Appends a membership change. It takes effect on each member when that member reports its entry applied.
    ///
    /// # Errors
    /// See `ConfChangeError`.
    pub fn propose_conf_change(&mut self, change: ConfChange) -> Result<(), ConfChangeError> {
        change.check().map_err(|reason| ConfChangeError::Invalid { reason })?;
        self.check_proposal(limits::ENTRY_OVERHEAD_BYTES + change.context.len() as u64)?;
        let raft = &mut self.raw.raft;
        if raft.has_pending_conf() {
            return Err(ConfChangeError::Pending);
        }
        dry_run(raft, &change)?;
        raft.pending_conf_index = raft.raft_log.last_index() + 1;
        let mut entry = [convert::conf_change_entry(&change)];
        if !raft.append_entry(&mut entry) {
            raft.pending_conf_index = 0;
            return Err(ConfChangeError::Propose(ProposeError::Full));
        }
        raft.bcast_append();
        self.settle();
        Ok(())
    }

    /// The membership in force here, that is as of the applied index.
    pub fn membership(&self) -> Membership {
        convert::membership_out(&self.raw.raft.prs().conf().to_conf_state())
    }

    /// Whether an image of the leader is on its way into the outputs: the membership is that image's already, the rest is not.
    pub fn is_restoring(&self) -> bool {
        self.raw.raft.raft_log.unstable.snapshot.is_some()
    }

    /// The voter that would take over soonest: the one with the longest log known here, of those heard from lately.
    /// `None` when nobody else votes, or this node does not lead.
    pub fn successor(&self) -> Option<NodeId> {
        let raft = &self.raw.raft;
        if raft.state != StateRole::Leader {
            return None;
        }
        let may = |id: &u64| *id != self.id.0 && raft.prs().conf().voters().contains(*id);
        let others = raft.prs().iter().filter(|(id, progress)| may(id) && progress.recent_active);
        let best = others.max_by_key(|(id, progress)| (progress.matched, u64::MAX - **id));
        best.map(|(id, _)| NodeId(*id))
    }

    /// Up to where that member's log is known here to be durable; 0 for one that is none, or when this node does not lead.
    pub(crate) fn matched(&self, id: NodeId) -> Index {
        let raft = &self.raw.raft;
        let progress = raft.prs().get(id.0).filter(|_| raft.state == StateRole::Leader);
        Index(progress.map_or(0, |progress| progress.matched))
    }

    /// Whether another voter's log is known to be durable up to there.
    pub(crate) fn others_have(&self, index: Index) -> bool {
        let voters = self.raw.raft.prs().conf().voters();
        let has = |id: &u64| *id != self.id.0 && voters.contains(*id) && self.matched(NodeId(*id)) >= index;
        self.raw.raft.prs().iter().any(|(id, _)| has(id))
    }

    /// A joint change whose leader stepped down before ending it is ended by the next one.
    pub(super) fn leave_joint_if_due(&mut self) {
        let raft = &self.raw.raft;
        if raft.state == StateRole::Leader && raft.prs().conf().to_conf_state().auto_leave && !raft.has_pending_conf() {
            // Refused while full or transferring: the next tick tries again.
            let _ = self.propose_conf_change(ConfChange::leave_joint());
        }
    }

    /// Each member does the same with the same change on the same membership, also when it does not fit.
    pub(super) fn apply_conf_change(&mut self, at: u64, change: &ConfChange) {
        match self.raw.apply_conf_change(&convert::conf_change_in(change)) {
            Ok(conf) => self.conf_history.push_back((at, convert::membership_out(&conf))),
            Err(error) => tracing::warn!("membership change at index {at} has no effect: {error}"),
        }
        let raft = &mut self.raw.raft;
        // The library panics on a leader that is no member, and cannot count a leader without a vote.
        if raft.state == StateRole::Leader && !raft.promotable() {
            let term = raft.term;
            raft.become_follower(term, 0);
        }
        self.fit_log();
    }

    /// Applied entries are kept for followers only, and images are given to those who know themselves in them.
    pub(super) fn fit_log(&mut self) {
        let alone = self.raw.raft.prs().iter().all(|(id, _)| *id == self.id.0);
        let learners = self.membership().learners;
        let store = self.raw.mut_store();
        store.set_budget(if alone { 0 } else { self.log_cache_bytes });
        store.set_learners(learners);
    }

    /// Of a leader: begins the next change, if any, that brings the membership closer to `wanted`, a plain one. To be
    /// called every tick; looks twice in an election timeout.
    pub fn reconcile(&mut self, wanted: &Membership) {
        if self.raw.raft.state != StateRole::Leader {
            return;
        }
        if let Some(left) = self.look_in.checked_sub(1) {
            self.look_in = left;
            return;
        }
        self.look_in = u32::try_from(self.raw.raft.election_timeout() / 2).unwrap_or(0);
        let others = self.look();
        let now = self.membership();
        let Some(change) = reconcile::next_change(wanted, &now, &others) else { return };
        let proposed = ConfChange { changes: vec![change], ..ConfChange::default() };
        match (self.propose_conf_change(proposed), change) {
            (Ok(()), MemberChange::Remove(id)) => {
                tracing::warn!("server {id} lost its data: removed, and added again as a learner");
            }
            (Ok(()), MemberChange::AddLearner(id)) => {
                tracing::info!("server {id} is added as a learner and receives all data")
            }
            (Ok(()), MemberChange::AddVoter(id)) => tracing::info!("server {id} has caught up and becomes a voter"),
            // An earlier change is under way, or there is no room: the next look tries again.
            (Err(error), _) => tracing::debug!("a membership change has to wait: {error}"),
        }
    }

    fn look(&mut self) -> Vec<Seen> {
        let raft = &self.raw.raft;
        let near = |matched: u64| matched > 0 && matched + limits::KEEPS_UP_ENTRIES >= raft.raft_log.committed;
        let (mut others, mut keeping_up) = (Vec::new(), BTreeSet::new());
        for (id, progress) in raft.prs().iter().filter(|(id, _)| **id != self.id.0) {
            let id = NodeId(*id);
            let now = self.replied.contains(&id) && near(progress.matched);
            if now {
                keeping_up.insert(id);
            }
            let keeps_up = now && self.keeping_up.contains(&id);
            let newborn = self.newborns.contains(&id);
            others.push(Seen { id, newborn, matched: Index(progress.matched), keeps_up });
        }
        self.keeping_up = keeping_up;
        self.replied.clear();
        others.sort_unstable_by_key(|seen| seen.id);
        others
    }
}

/// Whether the change fits the membership in force, which is the applied one.
fn dry_run(raft: &Raft<MemLog>, change: &ConfChange) -> Result<(), ConfChangeError> {
    let invalid = |reason| Err(ConfChangeError::Invalid { reason });
    let joint = !raft.prs().conf().to_conf_state().voters_outgoing.is_empty();
    match (joint, change.changes.is_empty()) {
        (true, false) => return invalid("a joint change must end first"),
        (false, true) => return invalid("no joint change to end"),
        _ => {}
    }
    if raft.prs().iter().len() + change.changes.len() > limits::MEMBERS_MAX {
        return invalid("too many members");
    }
    let inner = convert::conf_change_in(change);
    let mut changer = raft::Changer::new(raft.prs());
    let outcome = if inner.leave_joint() {
        changer.leave_joint()
    } else if let Some(auto_leave) = inner.enter_joint() {
        changer.enter_joint(auto_leave, &inner.changes)
    } else {
        changer.simple(&inner.changes)
    };
    if outcome.is_err() { invalid("it does not fit the membership in force") } else { Ok(()) }
}
