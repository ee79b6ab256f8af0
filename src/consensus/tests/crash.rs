//! What a node knows after a crash because it had acknowledged something.

#[allow(dead_code)]
mod net;

use corral_consensus::{
    ConfChange, Entry, EntryKind, Index, MemberChange, Membership, NodeId, PeerBody, PeerMessage, Term, Transition,
};
use net::{Disk, Server};

fn append(prev: u64, commit: u64, entries: Vec<Entry>) -> PeerMessage {
    let body =
        PeerBody::Append { prev_index: Index(prev), prev_term: Term(prev.min(1)), commit: Index(commit), entries };
    PeerMessage { from: NodeId(1), to: NodeId(2), term: Term(1), body }
}

fn change(at: u64, change: &ConfChange) -> Entry {
    Entry { index: Index(at), term: Term(1), kind: EntryKind::ConfChange, payload: change.encode() }
}

/// Else it could be elected by the membership before both, beside a leader of the last one.
#[test]
fn who_acknowledges_a_second_change_of_the_members_remembers_that_the_first_is_in_force() {
    let disk = Disk::new(Membership::simple(&[1, 2, 3].map(NodeId), &[]));
    let mut server = Server::start(1, &disk, 1);
    let first = ConfChange {
        changes: vec![MemberChange::Remove(NodeId(3))],
        transition: Transition::JointExplicit,
        ..ConfChange::default()
    };
    let messages = [
        append(0, 0, vec![change(1, &first)]),
        // The others had it before it was durable here.
        append(1, 1, vec![]),
        append(1, 1, vec![change(2, &ConfChange::leave_joint())]),
    ];
    let mut known = Vec::new();
    for message in messages {
        server.node.step(message).expect("it is in order");
        assert!(server.node.ready(&mut server.out));
        let synced = server.out.append.take().filter(|append| append.must_sync);
        known.push(synced.map(|append| append.hard_state.expect("it belongs to this one").commit));
    }
    assert_eq!(known, [Some(Index(0)), None, Some(Index(1))]);
}
