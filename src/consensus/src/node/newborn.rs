//! A server that remembers nothing: it may have promised anything in a former life, so it says nothing.
//!
//! It gives no vote, stands for nothing and acknowledges nothing, whatever others take it for. It begins to be a member in
//! one of two ways: all founders of a new group are newborn at once and form it, or the leader of a group, who was told,
//! has made it a learner and gives it an image that says so. What the leader does for that is in `reconcile.rs`.

use raft::{ProgressState, StateRole};

use super::RaftNode;
use crate::error::{ConsensusError, PeerError};
use crate::message::{PeerBody, PeerMessage};
use crate::types::{Config, HardState, Index, Membership, NodeId, Restored, Term};

/// The log of a group that formed begins behind this index, so that whoever has nothing is given an image, and with it the
/// membership.
pub const FORMED_INDEX: Index = Index(1);
/// Term of what stands before that log.
pub const FORMED_TERM: Term = Term(1);

impl RaftNode {
    /// A server whose disk holds neither image nor log. `config.voters` and `config.learners` are the founders.
    ///
    /// # Errors
    /// As for [`RaftNode::new`].
    pub fn newborn(config: Config) -> Result<RaftNode, ConsensusError> {
        let founders = Membership::simple(&config.voters, &config.learners);
        founders.check().map_err(|reason| ConsensusError::Membership { reason })?;
        let mut node = RaftNode::build(config.clone(), Membership::default(), Restored::default())?;
        node.newborn = Some(Box::new(config));
        Ok(node)
    }

    /// Whether it remembers nothing and is no member of anything yet.
    pub fn is_newborn(&self) -> bool {
        self.newborn.is_some()
    }

    /// Whether it has formed a group and done nothing since: it has given no vote and has no entry.
    pub fn is_pristine(&self) -> bool {
        let raft = &self.raw.raft;
        let begun = !self.is_newborn() && raft.raft_log.last_index() == FORMED_INDEX.0;
        begun && raft.term == FORMED_TERM.0 && raft.vote == 0
    }

    /// Who would form a group, as a newborn was configured.
    pub fn founders(&self) -> Option<Membership> {
        self.newborn.as_deref().map(|config| Membership::simple(&config.voters, &config.learners))
    }

    /// All founders are newborn: the group begins, behind [`FORMED_INDEX`]. An image that ends there with
    /// [`RaftNode::founders`] as its membership must be durable here, and the log begin behind it.
    ///
    /// # Panics
    /// If this node is not newborn.
    pub fn form(&mut self) {
        let config = *self.newborn.take().expect("only a newborn forms a group");
        let founders = Membership::simple(&config.voters, &config.learners);
        let restored = Restored {
            hard_state: HardState { term: FORMED_TERM, vote: None, commit: FORMED_INDEX },
            cut_index: FORMED_INDEX,
            cut_term: FORMED_TERM,
            entries: Vec::new(),
            image: FORMED_INDEX,
            applied: FORMED_INDEX,
        };
        *self = RaftNode::build(config, founders, restored).expect("it was checked when it was born");
    }

    /// A member tells that it is newborn. The leader takes note, and gives the image to one that is a learner already.
    pub fn heard_newborn(&mut self, from: NodeId) {
        if self.raw.raft.state != StateRole::Leader || from == self.id {
            return;
        }
        self.newborns.insert(from);
        let learns = self.membership().learners.contains(&from);
        let raft = &mut self.raw.raft;
        let Some(progress) = raft.mut_prs().get_mut(from.0).filter(|progress| learns && progress.matched == 0) else {
            return;
        };
        // It answers no append, so the library would never find out that it needs an image.
        progress.recent_active = true;
        if progress.state != ProgressState::Snapshot {
            progress.become_probe();
            raft.send_append(from.0);
        }
    }

    /// Only an image in which it learns makes a member of a newborn: one in which it votes is of its former life.
    ///
    /// # Errors
    /// [`PeerError::Newborn`] for anything else, if this node is newborn.
    pub fn check_newborn(&self, message: &PeerMessage) -> Result<(), PeerError> {
        match &message.body {
            PeerBody::Snapshot { membership, .. } if membership.learners.contains(&self.id) => Ok(()),
            _ if self.is_newborn() => Err(PeerError::Newborn),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::AppendReply;
    use crate::outputs::Outputs;

    fn newborn() -> RaftNode {
        let voters = [1, 2, 3].map(NodeId).to_vec();
        let config = Config {
            id: NodeId(1),
            voters,
            learners: vec![NodeId(4)],
            election_ticks: 5,
            heartbeat_ticks: 1,
            max_inflight_entries: 16,
            log_cache_bytes: 32 << 20,
            max_entry_bytes: 1024,
            seed: 7,
        };
        RaftNode::newborn(config).expect("a good configuration")
    }

    fn message(term: u64, body: PeerBody) -> PeerMessage {
        PeerMessage { from: NodeId(2), to: NodeId(1), term: Term(term), body }
    }

    fn image(voters: &[u64], learners: &[u64]) -> PeerBody {
        let ids = |list: &[u64]| list.iter().map(|id| NodeId(*id)).collect::<Vec<_>>();
        let membership = Membership::simple(&ids(voters), &ids(learners));
        PeerBody::Snapshot { index: Index(9), term: Term(3), membership }
    }

    /// Everything it says or wants.
    fn outputs(node: &mut RaftNode) -> Vec<Outputs> {
        let mut all = Vec::new();
        let mut out = Outputs::default();
        while node.ready(&mut out) {
            all.push(std::mem::take(&mut out));
        }
        all
    }

    #[test]
    fn it_says_nothing_whatever_it_is_asked() {
        let mut node = newborn();
        let nowhere = (Index(0), Term(0));
        let vote = |pre| PeerBody::Vote {
            pre,
            transfer: true,
            last_index: Index(9),
            last_term: Term(3),
            commit: nowhere.0,
            commit_term: nowhere.1,
        };
        let append =
            PeerBody::Append { prev_index: nowhere.0, prev_term: nowhere.1, commit: Index(0), entries: vec![] };
        let asked = [
            vote(true),
            vote(false),
            append,
            PeerBody::Heartbeat { commit: Index(0), context: None },
            PeerBody::TimeoutNow,
            PeerBody::AppendReply(AppendReply::Accepted { index: Index(1), commit: Index(1) }),
            image(&[1, 2, 3], &[]),
            image(&[2, 3], &[]),
        ];
        for body in asked {
            assert_eq!(node.step(message(3, body)), Err(PeerError::Newborn));
        }
        for _ in 0..100 {
            node.tick();
            node.campaign();
        }
        assert!(outputs(&mut node).is_empty());
        assert!(node.is_newborn());
    }

    #[test]
    fn an_image_in_which_it_learns_makes_it_a_member() {
        let mut node = newborn();
        assert_eq!(node.step(message(3, image(&[2, 3], &[1]))), Ok(()));
        let outputs = outputs(&mut node);
        let install = outputs[0].install.as_ref().expect("it takes the image");
        assert_eq!((install.index, install.term), (Index(9), Term(3)));
        assert!(!node.is_newborn());
        assert!(outputs.iter().all(|out| out.messages.is_empty()), "nothing is said before that is durable");
        assert_eq!(node.step(message(3, PeerBody::Heartbeat { commit: Index(9), context: None })), Ok(()));
    }

    #[test]
    fn founders_begin_behind_the_first_index() {
        let mut node = newborn();
        node.form();
        assert!(!node.is_newborn() && node.is_pristine());
        assert_eq!((node.applied_index(), node.last_index(), node.term()), (Index(1), Index(1), Term(1)));
        let ids = |list: &[u64]| list.iter().map(|id| NodeId(*id)).collect::<Vec<_>>();
        assert_eq!(node.membership(), Membership::simple(&ids(&[1, 2, 3]), &ids(&[4])));
        node.campaign();
        assert!(outputs(&mut node).iter().any(|out| !out.messages.is_empty()), "it asks whether it could win");
        assert!(node.is_pristine(), "which binds nobody");
        let nowhere = (FORMED_INDEX, FORMED_TERM);
        let (last_index, last_term, commit, commit_term) = (nowhere.0, nowhere.1, nowhere.0, nowhere.1);
        let vote = PeerBody::Vote { pre: false, transfer: false, last_index, last_term, commit, commit_term };
        assert_eq!(node.step(message(2, vote)), Ok(()));
        assert!(!node.is_pristine());
    }
}
