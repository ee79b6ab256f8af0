//! A group of one: starts, commits nothing before it is durable, restarts in pages, keeps memory bounded.

use bytes::Bytes;
use corral_consensus::{
    Append, Config, ConsensusError, Entry, EntryKind, HardState, Index, Outputs, ProposeError, RaftNode, Restored,
    Role, ServerId, Term, limits,
};

use crate::setup::{config_alone, numbered};

fn entry(index: u64, term: u64, payload: Bytes) -> Entry {
    Entry { term: Term(term), index: Index(index), kind: EntryKind::Normal, payload }
}

/// Collects everything that is ready.
fn drain(node: &mut RaftNode) -> (Vec<Append>, Vec<Entry>) {
    let (mut appends, mut committed, mut out) = (Vec::new(), Vec::new(), Outputs::default());
    while node.ready(&mut out) {
        assert!(out.messages.is_empty(), "nobody to talk to");
        appends.extend(out.append.take());
        committed.append(&mut out.committed);
    }
    (appends, committed)
}

/// A leader that has applied its own first entry.
fn leader(config: Config) -> RaftNode {
    let mut node = RaftNode::new(config, Restored::default()).expect("valid");
    node.campaign();
    let (appends, _) = drain(&mut node);
    node.persisted(appends[0].number);
    drain(&mut node);
    node.applied(Index(1));
    node
}

#[test]
fn who_has_no_space_stands_for_no_election() {
    let voters = [1, 2, 3].map(numbered).to_vec();
    let mut node = RaftNode::new(Config { voters, ..config_alone() }, Restored::default()).expect("valid");
    let mut asks = |full: bool| {
        node.set_log_full(full);
        node.campaign();
        (0..100).for_each(|_| node.tick());
        let (mut said, mut out) = (0, Outputs::default());
        while node.ready(&mut out) {
            said += out.messages.len();
        }
        said
    };
    assert_eq!(asks(true), 0);
    assert!(asks(false) >= 2, "of both others");
}

#[test]
fn starts_empty_and_leads_at_once() {
    let mut node = RaftNode::new(config_alone(), Restored::default()).expect("valid");
    assert_eq!((node.role(), node.term(), node.leader()), (Role::Follower, Term(0), None));
    node.campaign();
    assert_eq!((node.role(), node.term(), node.leader()), (Role::Leader, Term(1), Some(ServerId(1))));
    let mut out = Outputs::default();
    assert!(node.ready(&mut out));
    let append = out.append.take().expect("its term, its vote and its first entry");
    assert!(append.must_sync);
    let hard_state = HardState { term: Term(1), vote: Some(ServerId(1)), commit: Index(0) };
    assert_eq!(append.hard_state, Some(hard_state));
    assert_eq!(append.entries, [entry(1, 1, Bytes::new())]);
    assert!(out.committed.is_empty() && out.role_change.is_some_and(|change| change.role == Role::Leader));
    assert!(!node.ready(&mut out), "nothing more before it is durable");
    node.persisted(append.number);
    assert!(node.ready(&mut out));
    assert_eq!(out.committed, [entry(1, 1, Bytes::new())]);
    assert!(out.append.as_ref().is_some_and(|append| !append.must_sync), "only the commit index moved");
    node.applied(Index(1));
    assert!(!node.ready(&mut out));
}

#[test]
fn commits_nothing_that_is_not_durable() {
    let mut node = leader(config_alone());
    let mut numbers = Vec::new();
    for batch in 0..10 {
        node.propose(Bytes::from(vec![batch; 10])).expect("room");
        let (appends, committed) = drain(&mut node);
        assert!(committed.is_empty());
        assert_eq!(appends.len(), 1);
        numbers.push(appends[0].number);
        assert_eq!(node.commit(), Index(1));
    }
    for (at, number) in numbers.iter().enumerate().skip(1).step_by(2) {
        node.persisted(*number);
        let last = Index(at as u64 + 2);
        assert_eq!(node.commit(), last, "all up to the one reported, and no further");
        let (_, committed) = drain(&mut node);
        assert_eq!(committed.last().map(|entry| entry.index), Some(last));
        node.applied(last);
    }
    node.persisted(numbers[0]);
    assert_eq!(node.commit(), Index(11), "an old report changes nothing");
}

#[test]
fn what_one_writer_was_told_is_committed_is_stored_with_its_next_entry() {
    let mut node = leader(config_alone());
    for index in 2..12 {
        node.propose(Bytes::from_static(b"one at a time")).expect("room");
        let (appends, _) = drain(&mut node);
        let stored: Vec<_> = appends.iter().map(|append| append.hard_state.map(|state| state.commit)).collect();
        assert_eq!(stored, [Some(Index(index - 1))]);
        node.persisted(appends[0].number);
        // Its appends state the commit index, which need not be synced.
        assert!(drain(&mut node).0.iter().all(|append| !append.must_sync));
        node.applied(Index(index));
    }
    node.propose(Bytes::from_static(b"first of two")).expect("room");
    drain(&mut node);
    node.propose(Bytes::from_static(b"second of two")).expect("room");
    assert_eq!(drain(&mut node).0[0].hard_state, None, "it is said already");
}

#[test]
fn ticks_disturb_nothing() {
    let mut node = leader(config_alone());
    node.propose(Bytes::from_static(b"not durable yet")).expect("room");
    for _ in 0..1000 {
        node.tick();
        let (_, committed) = drain(&mut node);
        assert!(committed.is_empty() && node.role() == Role::Leader && node.term() == Term(1));
    }
}

#[test]
fn restarts_in_pages_of_bounded_size() {
    let big = Bytes::from(vec![9; 100_000]);
    let entries: Vec<Entry> = (1..=100).map(|index| entry(10 + index, 3, big.clone())).collect();
    // The commit index was never synced.
    let hard_state = HardState { term: Term(3), vote: Some(ServerId(1)), commit: Index(0) };
    let (at, entries_here) = (Index(10), entries.clone());
    let restored = Restored {
        hard_state,
        cut_index: at,
        cut_term: Term(2),
        disk_terms: Vec::new(),
        entries: entries_here,
        snapshot: at,
        applied: at,
    };
    let mut node = RaftNode::new(config_alone(), restored).expect("valid");
    node.campaign();
    assert_eq!((node.role(), node.term()), (Role::Leader, Term(4)));
    assert_eq!(node.commit(), Index(10), "nothing is committed before its own entry is durable");
    let (appends, committed) = drain(&mut node);
    assert!(committed.is_empty());
    assert_eq!(appends.len(), 1);
    node.persisted(appends[0].number);
    let (mut delivered, mut pages, mut out) = (Vec::new(), 0, Outputs::default());
    while node.ready(&mut out) {
        let bytes: u64 = out.committed.iter().map(|entry| entry.payload.len() as u64).sum();
        assert!(bytes <= limits::COMMITTED_PAGE_BYTES, "page of {bytes}");
        pages += 1;
        delivered.append(&mut out.committed);
        let last = delivered.last().map(|entry: &Entry| entry.index);
        node.applied(last.expect("each page holds something"));
    }
    assert!(pages >= 10, "{pages} pages");
    assert_eq!(delivered[..100], entries);
    assert_eq!(delivered[100], entry(111, 4, Bytes::new()));
    assert_eq!(node.held_bytes(), 0);
    node.propose(Bytes::from_static(b"goes on")).expect("room");
}

#[test]
fn applied_entries_are_not_delivered_again() {
    let entries: Vec<Entry> = (1..=5).map(|index| entry(index, 1, Bytes::from_static(b"x"))).collect();
    let hard_state = HardState { term: Term(1), vote: Some(ServerId(1)), commit: Index(4) };
    let restored = Restored { hard_state, entries, applied: Index(3), ..Restored::default() };
    let mut node = RaftNode::new(config_alone(), restored).expect("valid");
    let (_, committed) = drain(&mut node);
    assert_eq!(committed.iter().map(|entry| entry.index.0).collect::<Vec<_>>(), [4]);
}

#[test]
fn memory_stays_bounded_and_payloads_are_shared() {
    let mut node = leader(Config { max_inflight_entries: 64, ..config_alone() });
    let payload = Bytes::from(vec![1; 4096]);
    let (mut taken, mut refused, mut highest) = (0u32, 0u32, 0);
    let (mut waiting, mut applied) = (std::collections::VecDeque::new(), 1);
    for round in 0..20_000 {
        match node.propose(payload.clone()) {
            Ok(()) => taken += 1,
            Err(error) => {
                assert_eq!(error, ProposeError::Full);
                refused += 1;
            }
        }
        let (appends, committed) = drain(&mut node);
        let shared = |entry: &Entry| entry.payload.as_ptr() == payload.as_ptr();
        assert!(appends.iter().flat_map(|append| &append.entries).all(shared));
        assert!(committed.iter().all(shared));
        waiting.extend(appends.iter().filter(|append| append.must_sync).map(|append| append.number));
        applied = committed.last().map_or(applied, |entry| entry.index.0);
        // The disk is slower than the clients.
        if round % 97 == 96 {
            let number = waiting.drain(..).next_back().expect("something was appended");
            node.persisted(number);
        }
        node.applied(Index(applied));
        highest = highest.max(node.held_bytes());
    }
    assert!(taken > 10_000 && refused > 1000, "{taken} taken, {refused} refused");
    assert!(highest <= 65 * (4096 + limits::ENTRY_OVERHEAD_BYTES), "held {highest} bytes");
    node.persisted(waiting.back().copied().unwrap_or(0));
    let (_, committed) = drain(&mut node);
    node.applied(committed.last().map_or(Index(applied), |entry| entry.index));
    assert_eq!(node.held_bytes(), 0, "everything applied is dropped");
    drop(committed);
    assert!(payload.is_unique(), "nobody holds the payload any more");
}

#[test]
fn refuses_what_it_cannot_take() {
    let mut node = RaftNode::new(config_alone(), Restored::default()).expect("valid");
    let payload = Bytes::from_static(b"x");
    assert_eq!(node.propose(payload.clone()), Err(ProposeError::NotLeader { leader: None }));
    node = leader(Config { max_inflight_entries: 2, max_entry_bytes: 8, ..config_alone() });
    assert_eq!(node.propose(Bytes::new()), Err(ProposeError::Empty));
    assert_eq!(node.propose(Bytes::from_static(b"123456789")), Err(ProposeError::TooLarge { bytes: 9, max: 8 }));
    assert_eq!(node.propose(payload.clone()), Ok(()));
    assert_eq!(node.propose(payload.clone()), Ok(()));
    assert_eq!(node.propose(payload.clone()), Err(ProposeError::Full));
    // By bytes.
    let most = limits::ENTRY_BYTES_MAX;
    node = leader(Config { max_entry_bytes: most, ..config_alone() });
    let payload = Bytes::from(vec![0; most as usize]);
    assert_eq!(node.propose(payload.clone()), Ok(()));
    drain(&mut node);
    assert_eq!(node.propose(payload), Err(ProposeError::Full));
}

#[test]
fn reads_wait_for_the_first_entry_of_the_term() {
    let mut node = RaftNode::new(config_alone(), Restored::default()).expect("valid");
    let mut out = Outputs::default();
    node.read_index(7);
    assert!(!node.ready(&mut out));
    node.campaign();
    node.read_index(8);
    assert!(node.ready(&mut out) && out.reads.is_empty());
    node.persisted(out.append.take().expect("the first entry").number);
    assert!(node.ready(&mut out));
    let answered: Vec<_> = out.reads.iter().map(|read| (read.token, read.index)).collect();
    assert_eq!(answered, [(7, Index(1)), (8, Index(1))]);
    node.read_index(9);
    assert!(node.ready(&mut out));
    assert_eq!(out.reads.len(), 1, "later ones are answered at once");
}

#[test]
fn reads_nobody_answers_are_refused() {
    let mut node = RaftNode::new(config_alone(), Restored::default()).expect("valid");
    let mut out = Outputs::default();
    node.read_index(7);
    let mut refused = Vec::new();
    for _ in 0..10 * limits::READ_TIMEOUT_ELECTIONS {
        // It would campaign, but its writes never become durable.
        node.tick();
        while node.ready(&mut out) {
            assert!(out.reads.is_empty());
            refused.append(&mut out.reads_refused);
        }
    }
    assert_eq!(refused, [7]);
    for token in 0..=limits::READS_PENDING_MAX as u64 {
        node.read_index(token);
    }
    assert!(node.ready(&mut out));
    assert_eq!(out.reads_refused, [limits::READS_PENDING_MAX as u64]);
}

#[test]
fn refuses_a_configuration_that_cannot_work() {
    let check = |config: Config, reason| {
        let found = RaftNode::new(config, Restored::default()).err();
        let is_it = |error: &ConsensusError| error.to_string().contains(reason);
        assert!(found.as_ref().is_some_and(is_it), "{found:?}, expected {reason}");
    };
    let of = |voters: &[u64], learners: &[u64]| {
        let ids = |list: &[u64]| list.iter().map(|id| numbered(*id)).collect::<Vec<_>>();
        Config { voters: ids(voters), learners: ids(learners), ..config_alone() }
    };
    check(Config { id: ServerId(0), ..config_alone() }, "id is 0");
    check(Config { heartbeat_ticks: 0, ..config_alone() }, "heartbeat_ticks");
    check(Config { election_ticks: 2, ..config_alone() }, "election_ticks");
    check(Config { election_ticks: u32::MAX, ..config_alone() }, "election_ticks");
    check(Config { max_inflight_entries: 0, ..config_alone() }, "max_inflight_entries");
    check(Config { max_entry_bytes: 0, ..config_alone() }, "max_entry_bytes");
    check(Config { max_entry_bytes: u32::MAX, ..config_alone() }, "max_entry_bytes");
    check(of(&[], &[]), "no voter");
    check(of(&[1, 1], &[]), "twice");
    check(of(&[1, 0], &[]), "id 0");
    check(of(&[1], &[1]), "both voter and learner");
    check(of(&(1..=65).collect::<Vec<_>>(), &[]), "too many");
}

#[test]
fn refuses_a_log_that_does_not_hold_together() {
    let x = Bytes::from_static(b"x");
    let good = Restored {
        hard_state: HardState { term: Term(5), vote: None, commit: Index(12) },
        cut_index: Index(10),
        cut_term: Term(2),
        disk_terms: vec![(Index(3), Term(1)), (Index(9), Term(2))],
        entries: vec![entry(11, 2, x.clone()), entry(12, 4, x.clone()), entry(13, 5, x.clone())],
        snapshot: Index(10),
        applied: Index(11),
    };
    RaftNode::new(config_alone(), good.clone()).expect("valid");
    let check = |change: &dyn Fn(&mut Restored), expect: &str| {
        let mut restored = good.clone();
        change(&mut restored);
        let found =
            RaftNode::new(config_alone(), restored).err().map_or("accepted".to_owned(), |error| error.to_string());
        assert!(found.contains(expect), "{found}, expected {expect}");
    };
    check(&|r| r.entries[0].index = Index(12), "gap");
    check(&|r| drop(r.entries.remove(1)), "gap");
    check(&|r| r.entries[1].term = Term(1), "after term");
    check(&|r| r.entries[2].term = Term(6), "hard state");
    check(&|r| r.entries[0].term = Term(0), "after term");
    check(&|r| r.cut_term = Term(0), "cannot have term");
    check(&|r| r.disk_terms[0].1 = Term(3), "cannot have term");
    check(&|r| r.disk_terms[1].1 = Term(1), "cannot have term");
    check(&|r| r.cut_index = Index(0), "cannot have term");
    check(&|r| r.hard_state.commit = Index(14), "acknowledged entries are missing");
    check(&|r| r.applied = Index(14), "acknowledged entries are missing");
    check(&|r| r.applied = Index(9), "applied");
    check(&|r| r.snapshot = Index(12), "applied");
    check(&|r| r.hard_state.term = Term(u64::MAX), "hard state");
    check(&|r| r.hard_state.vote = Some(ServerId(0)), "node 0");
    check(&|r| r.entries[1].kind = EntryKind::ConfChange, "membership change at index 12");
}

#[test]
#[should_panic(expected = "is the last")]
fn reporting_durable_what_was_never_written_is_a_bug() {
    leader(config_alone()).persisted(99);
}

#[test]
#[should_panic(expected = "was handed out")]
fn applying_what_was_not_committed_is_a_bug() {
    leader(config_alone()).applied(Index(2));
}

#[test]
#[should_panic(expected = "after 1")]
fn applying_backwards_is_a_bug() {
    leader(config_alone()).applied(Index(0));
}

#[test]
#[should_panic(expected = "is applied")]
fn a_snapshot_of_what_is_not_applied_is_a_bug() {
    leader(config_alone()).compact(Index(2), Term(1));
}
