//! Crashes of a node after an acknowledgement, and the amount that it accepts while its log is stalled.

use crate::net::{Disk, Server};
use crate::setup::numbered;
#[allow(dead_code)]
use bytes::Bytes;
use corral_consensus::{
    ConfChange, Entry, EntryKind, Index, MemberChange, Membership, PeerBody, PeerError, PeerMessage, ServerId, Term,
    Transition, limits,
};

fn append(prev: u64, commit: u64, entries: Vec<Entry>) -> PeerMessage {
    let body =
        PeerBody::Append { prev_index: Index(prev), prev_term: Term(prev.min(1)), commit: Index(commit), entries };
    PeerMessage { from: ServerId(1), to: ServerId(2), term: Term(1), body }
}

fn change(at: u64, change: &ConfChange) -> Entry {
    Entry { index: Index(at), term: Term(1), kind: EntryKind::ConfChange, payload: change.encode() }
}

/// Else it could be elected by the membership before both, beside a leader of the last one.
#[test]
fn who_acknowledges_a_second_change_of_the_members_remembers_that_the_first_is_in_force() {
    let disk = Disk::new(Membership::simple(&[1, 2, 3].map(numbered), &[]));
    let mut server = Server::start(1, &disk, 1);
    let first = ConfChange {
        changes: vec![MemberChange::Remove(ServerId(3))],
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

#[test]
fn a_follower_takes_no_more_than_it_may_while_its_log_is_stalled() {
    fill_a_follower(false);
}

#[test]
fn a_follower_takes_no_more_than_it_may_while_nothing_is_applied() {
    fill_a_follower(true);
}

fn fill_a_follower(stores: bool) {
    const BYTES: usize = 1 << 20;
    let disk = Disk::new(Membership::simple(&[1, 2, 3].map(numbered), &[]));
    let mut server = Server::start(1, &disk, 1);
    let payload = Bytes::from(vec![7; BYTES]);
    let entry = |at| Entry { index: Index(at), term: Term(1), kind: EntryKind::Normal, payload: payload.clone() };
    let most = limits::UNSTORED_BYTES_MAX / BYTES as u64 + 1;
    let (mut taken, mut last) = (0, 0);
    let refusal = loop {
        // Stored entries are committed, too: otherwise there is nothing to be applied.
        let commit = if stores { taken } else { 0 };
        match server.node.step(append(taken, commit, vec![entry(taken + 1)])) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
        assert!(taken <= most, "there is no end of it");
        while server.node.ready(&mut server.out) {
            last = server.out.append.take().map_or(last, |append| append.number);
        }
        if stores {
            server.node.persisted(last);
        }
    };
    assert!(matches!(refusal, PeerError::Busy(_)) && taken > most * 9 / 10, "{refusal} after {taken}");
    // Its leader is heard as before, and when it goes on so does this.
    server.node.step(append(taken, taken, vec![])).expect("it brings nothing to store");
    server.node.persisted(last);
    while server.node.ready(&mut server.out) {
        if let Some(entry) = server.out.committed.last() {
            server.node.applied(entry.index);
        }
    }
    server.node.step(append(taken, taken, vec![entry(taken + 1)])).expect("everything is stored and applied");
}

#[test]
fn a_follower_whose_log_holds_more_than_it_may_without_a_commit_takes_what_commits_it() {
    const BYTES: usize = 1 << 20;
    let payload = Bytes::from(vec![7; BYTES]);
    let entry = |at| Entry { index: Index(at), term: Term(1), kind: EntryKind::Normal, payload: payload.clone() };
    let last = limits::UNSTORED_BYTES_MAX / BYTES as u64 + 2;
    let mut disk = Disk::new(Membership::simple(&[1, 2, 3].map(numbered), &[]));
    disk.entries = (1..=last).map(entry).collect();
    disk.hard.term = Term(1);
    let mut server = Server::start(1, &disk, 1);
    server.node.step(append(last, 0, vec![entry(last + 1)])).expect("only this commits what is before it");
    let early = server.node.step(append(last + 1, 0, vec![entry(last + 2)]));
    assert!(matches!(early, Err(PeerError::Busy(_))), "the log has to get on first: {early:?}");
    assert!(server.node.ready(&mut server.out));
    server.node.persisted(server.out.append.take().expect("an entry").number);
    server.node.step(append(last + 1, last + 1, vec![entry(last + 2)])).expect("all is stored");
    assert!(server.node.ready(&mut server.out));
    server.node.persisted(server.out.append.take().expect("an entry").number);
    let early = server.node.step(append(last + 2, last + 1, vec![entry(last + 3)]));
    assert!(matches!(early, Err(PeerError::Busy(_))), "what is committed has to be applied first: {early:?}");
}
