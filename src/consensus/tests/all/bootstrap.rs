//! Servers without data: what an uninitialised node refuses, and the two ways in which it becomes a member.

use crate::setup::numbered;
use corral_consensus::{
    AppendReply, BOOTSTRAP_INDEX, BOOTSTRAP_TERM, Config, Index, Membership, Outputs, PeerBody, PeerError, PeerMessage,
    RaftNode, ServerId, Term,
};

fn uninitialised() -> RaftNode {
    let voters = [1, 2, 3].map(numbered).to_vec();
    let config = Config {
        id: ServerId(1),
        voters,
        learners: vec![ServerId(4)],
        election_ticks: 5,
        heartbeat_ticks: 1,
        max_inflight_entries: 16,
        log_cache_bytes: 32 << 20,
        max_entry_bytes: 1024,
        seed: 7,
    };
    RaftNode::uninitialised(config).expect("a good configuration")
}

fn message(term: u64, body: PeerBody) -> PeerMessage {
    PeerMessage { from: ServerId(2), to: ServerId(1), term: Term(term), body }
}

fn snapshot(voters: &[u64], learners: &[u64]) -> PeerBody {
    let ids = |list: &[u64]| list.iter().map(|id| numbered(*id)).collect::<Vec<_>>();
    let membership = Membership::simple(&ids(voters), &ids(learners));
    PeerBody::Snapshot { index: Index(9), term: Term(3), membership }
}

/// Everything the node asks for.
fn outputs(node: &mut RaftNode) -> Vec<Outputs> {
    let mut all = Vec::new();
    let mut out = Outputs::default();
    while node.ready(&mut out) {
        all.push(std::mem::take(&mut out));
    }
    all
}

#[test]
fn an_uninitialised_server_replies_to_nothing() {
    let mut node = uninitialised();
    let nowhere = (Index(0), Term(0));
    let vote = |pre| PeerBody::Vote {
        pre,
        transfer: true,
        last_index: Index(9),
        last_term: Term(3),
        commit: nowhere.0,
        commit_term: nowhere.1,
    };
    let append = PeerBody::Append { prev_index: nowhere.0, prev_term: nowhere.1, commit: Index(0), entries: vec![] };
    let requests = [
        vote(true),
        vote(false),
        append,
        PeerBody::Heartbeat { commit: Index(0), context: None },
        PeerBody::TimeoutNow,
        PeerBody::AppendReply(AppendReply::Accepted { index: Index(1), commit: Index(1) }),
        snapshot(&[1, 2, 3], &[]),
        snapshot(&[2, 3], &[]),
    ];
    for body in requests {
        assert_eq!(node.step(message(3, body)), Err(PeerError::Uninitialised));
    }
    for _ in 0..100 {
        node.tick();
        node.campaign();
    }
    assert!(outputs(&mut node).is_empty());
    assert!(node.is_uninitialised());
}

#[test]
fn a_snapshot_in_which_it_is_a_learner_makes_it_a_member() {
    let mut node = uninitialised();
    assert_eq!(node.step(message(3, snapshot(&[2, 3], &[1]))), Ok(()));
    let outputs = outputs(&mut node);
    let install = outputs[0].install.as_ref().expect("the snapshot is installed");
    assert_eq!((install.index, install.term), (Index(9), Term(3)));
    assert!(!node.is_uninitialised());
    assert!(outputs.iter().all(|out| out.messages.is_empty()), "no message leaves before the snapshot is durable");
    assert_eq!(node.step(message(3, PeerBody::Heartbeat { commit: Index(9), context: None })), Ok(()));
}

#[test]
fn a_bootstrapped_log_begins_behind_the_first_index() {
    let mut node = uninitialised();
    node.bootstrap();
    assert!(!node.is_uninitialised() && node.is_pristine());
    assert_eq!((node.applied_index(), node.last_index(), node.term()), (Index(1), Index(1), Term(1)));
    let ids = |list: &[u64]| list.iter().map(|id| numbered(*id)).collect::<Vec<_>>();
    assert_eq!(node.membership(), Membership::simple(&ids(&[1, 2, 3]), &ids(&[4])));
    node.campaign();
    assert!(outputs(&mut node).iter().any(|out| !out.messages.is_empty()), "it sends pre-votes");
    assert!(node.is_pristine(), "a pre-vote is no promise");
    let nowhere = (BOOTSTRAP_INDEX, BOOTSTRAP_TERM);
    let (last_index, last_term, commit, commit_term) = (nowhere.0, nowhere.1, nowhere.0, nowhere.1);
    let vote = PeerBody::Vote { pre: false, transfer: false, last_index, last_term, commit, commit_term };
    assert_eq!(node.step(message(2, vote)), Ok(()));
    assert!(!node.is_pristine());
}
