//! Peers that lie: whatever arrives, a node neither panics nor hands out nonsense, and bytes never panic the decoder.
//!
//! A lying peer can break agreement, and no check of a single message can prevent that. These tests check that the node
//! keeps working: entries come in order, and the driver's reports keep being accepted.

use crate::net::{self, Disk, Server};
use crate::setup::numbered;
#[allow(dead_code)]
use bytes::{BufMut, Bytes, BytesMut};
use corral_consensus::{
    AppendReply, ConfChange, Entry, EntryKind, Index, MemberChange, Membership, PeerBody, PeerError, PeerMessage,
    ReadContext, Role, ServerId, Term, Transition, limits,
};
use corral_types::SplitMix64;

const SEEDS: u64 = 500;
const INPUTS: u64 = 1500;

/// A number near `around`, or an edge; edges end a victim's useful life soon, so they are rare.
fn near(random: &mut SplitMix64, around: u64) -> u64 {
    match random.below(400) {
        0 => 0,
        1 => u64::MAX - random.below(3),
        2 => limits::INDEX_MAX - random.below(2),
        3 => limits::TERM_MAX + 1 - random.below(3),
        _ => around.saturating_add(random.below(5)).saturating_sub(2),
    }
}

fn sane(random: &mut SplitMix64, around: u64) -> u64 {
    around.saturating_add(random.below(4)).saturating_sub(1)
}

/// The facts about the victim that the liar knows.
struct Known {
    term: u64,
    last: u64,
    commit: u64,
    leader: Option<ServerId>,
}

fn entries(random: &mut SplitMix64, prev: u64, term: u64) -> Vec<Entry> {
    let mut last_term = term.saturating_sub(random.below(3));
    let count = random.below(5);
    let made = (1..=count).map(|step| {
        last_term = last_term.saturating_add(random.below(2)).min(term.max(1));
        let index = if random.below(50) == 0 { near(random, prev) } else { prev.wrapping_add(step) };
        let (kind, payload) = match random.below(12) {
            0 => (EntryKind::ConfChange, change(random).encode()),
            1 => (EntryKind::ConfChange, Bytes::from_static(b"no change")),
            _ => (EntryKind::Normal, Bytes::from_static(b"payload")),
        };
        Entry { term: Term(last_term.max(1)), index: Index(index), kind, payload }
    });
    made.collect()
}

fn change(random: &mut SplitMix64) -> ConfChange {
    let changes = (0..random.below(3)).map(|_| {
        let id = numbered(1 + random.below(5));
        match random.below(3) {
            0 => MemberChange::AddVoter(id),
            1 => MemberChange::AddLearner(id),
            _ => MemberChange::Remove(id),
        }
    });
    ConfChange { changes: changes.collect(), transition: Transition::Auto, context: Bytes::new() }
}

fn membership(random: &mut SplitMix64) -> Membership {
    let mut list = |percent| (1..=5).filter(|_| random.chance(percent)).map(numbered).collect::<Vec<_>>();
    let (voters, mut learners, outgoing, next) = (list(60), list(30), list(20), list(10));
    if !outgoing.is_empty() || !voters.is_empty() {
        learners.retain(|id| !voters.contains(id) && !outgoing.contains(id));
    }
    let auto_leave = !outgoing.is_empty();
    Membership { voters, learners, voters_outgoing: outgoing, learners_next: next, auto_leave }
}

fn body(random: &mut SplitMix64, known: &Known, term: u64) -> PeerBody {
    let index = |random: &mut SplitMix64| {
        let around = if random.chance(50) { known.last } else { known.commit };
        Index(if random.chance(80) { sane(random, around) } else { near(random, around) })
    };
    let other_term = |random: &mut SplitMix64| Term(if random.chance(80) { term } else { near(random, known.term) });
    let context = ReadContext([u8::try_from(random.below(4)).expect("small"); 24]);
    let maybe = random.chance(50).then_some(context);
    match random.below(12) {
        0..3 => {
            let prev_index = index(random);
            let entries = entries(random, prev_index.0, term);
            PeerBody::Append { prev_index, prev_term: other_term(random), commit: index(random), entries }
        }
        3 => PeerBody::AppendReply(AppendReply::Accepted { index: index(random), commit: index(random) }),
        4 => PeerBody::AppendReply(AppendReply::Rejected {
            index: index(random),
            hint: index(random),
            hint_term: other_term(random),
            commit: index(random),
        }),
        5 => PeerBody::Vote {
            pre: random.chance(50),
            transfer: random.chance(20),
            last_index: index(random),
            last_term: other_term(random),
            commit: index(random),
            commit_term: other_term(random),
        },
        6 => PeerBody::VoteReply {
            pre: random.chance(50),
            granted: random.chance(80),
            commit: index(random),
            commit_term: other_term(random),
        },
        7 => PeerBody::Heartbeat { commit: index(random), context: maybe },
        8 => PeerBody::HeartbeatReply { commit: index(random), context: maybe },
        9 if random.chance(70) => PeerBody::TimeoutNow,
        9 => PeerBody::Snapshot { index: index(random), term: other_term(random), membership: membership(random) },
        10 => PeerBody::AppendReply(AppendReply::Accepted { index: Index(known.last), commit: Index(known.commit) }),
        _ if random.chance(50) => PeerBody::ReadIndex { context },
        _ => PeerBody::ReadIndexReply { index: index(random), context },
    }
}

fn lie(random: &mut SplitMix64, known: &Known) -> PeerMessage {
    let term = match random.below(20) {
        0 => near(random, known.term),
        1..3 => known.term.saturating_add(1),
        _ => known.term,
    };
    let from = match random.below(20) {
        0 => numbered(random.below(8)),
        1..12 => known.leader.unwrap_or(ServerId(2)),
        _ => numbered(2 + random.below(3)),
    };
    let to = ServerId(if random.chance(98) { 1 } else { 2 });
    let body = body(random, known, term);
    PeerMessage { from, to, term: Term(term), body }
}

/// The results of the lies, over all seeds.
#[derive(Default, Debug)]
struct Tally {
    taken: u64,
    refused: u64,
    led: u64,
    installed: u64,
    delivered: u64,
    changes: usize,
}

fn torment(seed: u64, voters: u64, tally: &mut Tally) {
    let mut random = net::random(seed);
    let members: Vec<ServerId> = (1..=voters).map(numbered).collect();
    let mut disk = Disk::new(Membership::simple(&members, &[ServerId(4)]));
    let mut server = Server::start(0, &disk, seed);
    for now in 0..INPUTS {
        match random.below(10) {
            0 | 1 => server.node.tick(),
            2 => drop(server.node.propose(Bytes::from_static(b"own"))),
            3 if random.chance(20) => drop(server.node.propose_conf_change(change(&mut random))),
            3 if random.chance(20) => drop(server.node.transfer_leader(numbered(1 + random.below(5)))),
            3 if random.chance(20) => server.node.report_snapshot(numbered(random.below(5)), random.chance(50)),
            3 if random.chance(20) => server.node.report_unreachable(numbered(random.below(5))),
            3 => server.node.read_index(now),
            4 if random.chance(10) => server.node.campaign(),
            4 if random.chance(10) => server.make_snapshot(&mut disk),
            4 if random.chance(5) => {
                server.crash(&mut disk, &mut random);
                server = Server::start(0, &disk, random.next_u64());
            }
            _ => {
                let node = &server.node;
                let leader = node.leader().filter(|id| *id != node.id());
                let (term, last, commit) = (node.term().0, node.last_index().0, node.commit().0);
                let known = Known { term, last, commit, leader };
                let message = lie(&mut random, &known);
                match server.node.step(message) {
                    Ok(()) => tally.taken += 1,
                    Err(_) => tally.refused += 1,
                }
            }
        }
        if random.chance(60) {
            drive(&mut server, &mut disk, &mut random, now, tally);
        }
    }
}

fn drive(server: &mut Server, disk: &mut Disk, random: &mut SplitMix64, now: u64, tally: &mut Tally) {
    server.persist_due(now, disk);
    while server.node.ready(&mut server.out) {
        tally.led += u64::from(server.out.role_change.is_some_and(|change| change.role == Role::Leader));
        tally.installed += u64::from(server.out.install.is_some());
        tally.delivered += server.out.committed.len() as u64;
        let committed = std::mem::take(&mut server.out.committed);
        server.take_append(now, random, 20);
        server.to_apply.extend(committed);
    }
    server.apply_some(random, &mut tally.changes);
}

#[test]
fn lies_never_panic() {
    let mut tally = Tally::default();
    for seed in net::seeds(SEEDS) {
        for voters in [1, 3] {
            let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let mut one = Tally::default();
                torment(seed, voters, &mut one);
                one
            }));
            let Ok(one) = told else { panic!("seed {seed} with {voters} voters") };
            tally.taken += one.taken;
            tally.refused += one.refused;
            tally.led += one.led;
            tally.installed += one.installed;
            tally.delivered += one.delivered;
            tally.changes += one.changes;
        }
    }
    println!("{tally:?}");
    assert!(tally.taken > 10_000 && tally.refused > 10_000, "the lies were too easy or too hard: {tally:?}");
    assert!(tally.led > 100 && tally.installed > 100 && tally.delivered > 1000, "nothing happened: {tally:?}");
}

#[test]
fn bytes_never_panic_the_decoder() {
    let mut random = net::random(1);
    let (mut good, mut bad) = (0, 0);
    let known = Known { term: 5, last: 20, commit: 15, leader: None };
    for _ in 0..20_000 {
        let message = lie(&mut random, &known);
        let mut bytes = BytesMut::new();
        message.encode(&mut bytes);
        if let Ok(read) = PeerMessage::decode(&bytes.clone().freeze()) {
            assert_eq!(read, message);
            good += 1;
        }
        let at = usize::try_from(random.below(bytes.len() as u64)).expect("small");
        match random.below(4) {
            0 => bytes.truncate(at),
            1 => bytes.put_u8(0),
            2 => bytes[at] = 0xff,
            _ => bytes[at] ^= 1 << random.below(8),
        }
        bad += u64::from(PeerMessage::decode(&bytes.freeze()).is_err());
    }
    assert!(good > 2000 && bad > 2000, "{good} good, {bad} bad");
}

#[test]
fn claims_do_not_make_room() {
    // An append that claims as many entries as a count can say, and has none.
    let mut bytes = BytesMut::new();
    bytes.put_slice(&[1, 1]);
    for value in [2u64, 1, 5, 10, 5, 10] {
        bytes.put_u64_le(value);
    }
    bytes.put_u32_le(u32::MAX);
    let found = PeerMessage::decode(&bytes.freeze());
    assert_eq!(found, Err(PeerError::Malformed("more entries than bytes")));
    assert_eq!(PeerMessage::decode(&Bytes::new()), Err(PeerError::Malformed("too short")));
    assert_eq!(PeerMessage::decode(&Bytes::from_static(&[9])), Err(PeerError::Version(9)));
}

#[test]
fn a_membership_is_read_back_or_refused() {
    let ids = |list: &[u64]| list.iter().copied().map(numbered).collect::<Vec<_>>();
    let joint = Membership {
        voters: ids(&[1, 2, 3]),
        learners: ids(&[9]),
        voters_outgoing: ids(&[2, 3, 4]),
        learners_next: ids(&[4]),
        auto_leave: true,
    };
    for membership in [Membership::simple(&ids(&[1]), &[]), joint] {
        let bytes = membership.encode();
        assert_eq!(whole_membership(&bytes).as_ref(), Ok(&membership));
        for cut in 0..bytes.len() {
            assert!(whole_membership(&bytes.slice(..cut)).is_err(), "cut at {cut}");
        }
        for at in 0..bytes.len() {
            let mut bad = bytes.to_vec();
            bad[at] ^= 0x80;
            assert_ne!(whole_membership(&bad).as_ref(), Ok(&membership), "flipped at {at}");
        }
    }
    let nobody = Membership::default().encode();
    assert_eq!(whole_membership(&nobody), Err("no voter"));
}

fn whole_membership(bytes: &[u8]) -> Result<Membership, &'static str> {
    let (membership, rest) = Membership::decode_first(bytes)?;
    if rest.is_empty() { Ok(membership) } else { Err("bytes after the end") }
}

/// The only voter, leading, its first entry durable, with learner 4 not heard of yet.
fn leader_with_learner() -> (Server, Disk) {
    let mut disk = Disk::new(Membership::simple(&[ServerId(1)], &[ServerId(4)]));
    let mut server = Server::start(0, &disk, 1);
    server.node.campaign();
    assert!(server.node.ready(&mut server.out));
    assert!(server.out.messages.is_empty(), "nothing is said in a term that a crash could lead again");
    server.take_append(0, &mut net::random(1), 1);
    assert!(!server.node.ready(&mut server.out), "still nothing");
    server.persist_due(1, &mut disk);
    assert!(server.node.ready(&mut server.out));
    assert!(server.out.messages.iter().all(|message| message.to == ServerId(4) && message.term == Term(1)));
    assert!(!server.out.messages.is_empty());
    (server, disk)
}

#[test]
fn who_has_no_vote_forgets_a_silent_leader() {
    let disk = Disk::new(Membership::simple(&[ServerId(1)], &[ServerId(4)]));
    let mut server = Server::start(3, &disk, 1);
    let body = PeerBody::Heartbeat { commit: Index(0), context: None };
    let heartbeat = PeerMessage { from: ServerId(1), to: ServerId(4), term: Term(1), body };
    for _ in 0..2 {
        assert_eq!(server.node.step(heartbeat.clone()), Ok(()));
        assert_eq!((server.node.role(), server.node.leader()), (Role::Learner, Some(ServerId(1))));
        for _ in 0..100 {
            server.node.tick();
        }
        assert_eq!((server.node.role(), server.node.leader()), (Role::Learner, None));
        assert_eq!(server.node.term(), Term(1), "without an election");
    }
}

#[test]
fn says_nothing_before_its_term_is_durable() {
    let (mut server, _) = leader_with_learner();
    server.node.propose(Bytes::from_static(b"x")).expect("room");
    assert!(server.node.ready(&mut server.out));
    assert_eq!(server.out.append.as_ref().map(|append| append.entries.len()), Some(1));
    // Once its term is durable a leader sends entries while it writes them itself.
    assert_eq!(server.node.commit(), Index(1));
}

#[test]
fn one_turn_sends_a_probed_member_its_entries_once() {
    let (mut server, _) = leader_with_learner();
    let body = PeerBody::HeartbeatReply { commit: Index(0), context: None };
    let reply = PeerMessage { from: ServerId(4), to: ServerId(1), term: Term(1), body };
    for _ in 0..3 {
        for _ in 0..400 {
            assert_eq!(server.node.step(reply.clone()), Ok(()));
        }
        let mut appends = 0;
        while server.node.ready(&mut server.out) {
            let is_append = |message: &&PeerMessage| matches!(message.body, PeerBody::Append { .. });
            appends += server.out.messages.iter().filter(is_append).count();
        }
        assert_eq!(appends, 1);
    }
}

#[test]
fn names_what_is_wrong() {
    let check = |from: u64, term: u64, body: PeerBody, expect: PeerError| {
        let (mut server, _disk) = leader_with_learner();
        let message = PeerMessage { from: numbered(from), to: ServerId(1), term: Term(term), body };
        assert_eq!(server.node.step(message), Err(expect));
        assert_eq!((server.node.role(), server.node.term()), (Role::Leader, Term(1)), "unchanged");
    };
    let accepted = |index| PeerBody::AppendReply(AppendReply::Accepted { index: Index(index), commit: Index(0) });
    let heartbeat = |commit| PeerBody::Heartbeat { commit: Index(commit), context: None };
    let append = |entries| PeerBody::Append { prev_index: Index(0), prev_term: Term(0), commit: Index(0), entries };
    let entry = |index, term| Entry {
        term: Term(term),
        index: Index(index),
        kind: EntryKind::Normal,
        payload: Bytes::from_static(b"x"),
    };
    check(4, 1, accepted(2), PeerError::AckBeyondLog { index: Index(2), last: Index(1) });
    check(5, 1, accepted(1), PeerError::Sender(ServerId(5)));
    check(0, 1, accepted(1), PeerError::Sender(ServerId(0)));
    check(1, 1, accepted(1), PeerError::Sender(ServerId(1)));
    check(4, 0, accepted(1), PeerError::Term(Term(0)));
    check(4, limits::TERM_MAX + 1, accepted(1), PeerError::Term(Term(limits::TERM_MAX + 1)));
    check(4, 1, accepted(u64::MAX), PeerError::Index(Index(u64::MAX)));
    let known = ServerId(1);
    check(4, 1, heartbeat(1), PeerError::SecondLeader { claims: ServerId(4), known, term: Term(1) });
    check(4, 2, heartbeat(2), PeerError::CommitBeyondLog { commit: Index(2), last: Index(1) });
    check(4, 2, append(vec![entry(1, 2)]), PeerError::Conflict(Index(1)));
    let after = PeerBody::Append { prev_index: Index(1), prev_term: Term(2), commit: Index(0), entries: Vec::new() };
    assert_eq!(after_committed(after), Err(PeerError::Conflict(Index(1))));
    check(4, 2, append(vec![entry(2, 2)]), PeerError::Entries("gap"));
    check(4, 2, append(vec![entry(1, 3)]), PeerError::Entries("term out of order"));
    check(4, 2, append(vec![entry(1, 2), entry(2, 1)]), PeerError::Entries("term out of order"));
    let stranger = Membership::simple(&[ServerId(4)], &[]);
    let snapshot = PeerBody::Snapshot { index: Index(9), term: Term(2), membership: stranger };
    check(4, 2, snapshot, PeerError::Membership("the receiver is no member"));
    let snapshot = PeerBody::Snapshot { index: Index(9), term: Term(2), membership: Membership::default() };
    check(4, 2, snapshot, PeerError::Membership("no voter"));
    let all = Membership::simple(&[1, 2, 3].map(numbered), &[]);
    let snapshot = PeerBody::Snapshot { index: Index(1), term: Term(2), membership: all };
    assert_eq!(after_committed(snapshot), Err(PeerError::Conflict(Index(1))));
    check(4, 1, PeerBody::TimeoutNow, PeerError::Stale("leadership handed over by another leader"));
}

/// The result of `body` from a leader in term 2, at a follower. That follower has a committed entry 1 of term 1, and
/// nothing more in its memory.
fn after_committed(body: PeerBody) -> Result<(), PeerError> {
    let mut server = follower_with_two_entries();
    server.node.step(PeerMessage { from: ServerId(2), to: ServerId(1), term: Term(2), body })
}

/// Server 1 of three with entries 1 and 2 of term 1, both committed.
fn follower_with_two_entries() -> Server {
    let mut disk = Disk::new(Membership::simple(&[ServerId(1), ServerId(2), ServerId(3)], &[]));
    let mut server = Server::start(0, &disk, 1);
    let entry = |index| Entry {
        term: Term(1),
        index: Index(index),
        kind: EntryKind::Normal,
        payload: Bytes::from_static(b"x"),
    };
    let entries = vec![entry(1), entry(2)];
    let body = PeerBody::Append { prev_index: Index(0), prev_term: Term(0), commit: Index(2), entries };
    server.node.step(PeerMessage { from: ServerId(2), to: ServerId(1), term: Term(1), body }).expect("a good append");
    assert!(server.node.ready(&mut server.out));
    server.take_append(0, &mut net::random(1), 1);
    server.persist_due(1, &mut disk);
    assert_eq!(server.node.commit(), Index(2));
    server
}

#[test]
fn a_term_moves_no_faster_than_elections_can_be_held() {
    let vote = |term: u64| PeerBody::Vote {
        pre: false,
        transfer: true,
        last_index: Index(99),
        last_term: Term(term),
        commit: Index(0),
        commit_term: Term(0),
    };
    let told = |server: &mut Server, term: u64| {
        let (from, to) = (ServerId(2), ServerId(1));
        server.node.step(PeerMessage { from, to, term: Term(term), body: vote(term) })
    };
    let mut server = follower_with_two_entries();
    let most = server.node.plausible_term();
    // It started with term 0.
    assert_eq!(most, Term(limits::TERM_AHEAD_MAX));
    let bad = [most.0 + 1, u64::from(u32::MAX >> 1) - 1, limits::TERM_MAX - 1, limits::TERM_MAX];
    for term in bad {
        let refused = told(&mut server, term);
        assert_eq!(refused, Err(PeerError::TermJump { term: Term(term), most }));
        assert!(refused.is_err_and(|error| error.breaks_connection()));
    }
    for term in [limits::TERM_MAX + 1, u64::from(u32::MAX), i64::MAX as u64, u64::MAX] {
        assert!(told(&mut server, term).is_err_and(|error| error.breaks_connection()), "{term}");
    }
    assert_eq!(server.node.term(), Term(1), "nothing of that counts");
    // An accepted term does not raise the bound for the next one.
    assert_eq!(told(&mut server, most.0), Ok(()));
    assert_eq!((server.node.term(), server.node.plausible_term()), (most, most));
    assert!(told(&mut server, most.0 + 1).is_err());
    for _ in 0..1000 {
        server.node.tick();
    }
    let later = server.node.plausible_term();
    assert!(later > most && later.0 < most.0 + 2 * 1000, "{later}");
}

#[test]
fn a_leader_that_lacks_what_is_committed_is_noticed() {
    let mut server = follower_with_two_entries();
    let append = |prev_index: u64| PeerMessage {
        from: ServerId(3),
        to: ServerId(1),
        term: Term(2),
        body: PeerBody::Append { prev_index: Index(prev_index), prev_term: Term(1), commit: Index(1), entries: vec![] },
    };
    for _ in 0..=limits::SHORT_APPENDS_MAX {
        assert!(!server.node.leader_lacks_committed());
        server.node.step(append(1)).expect("it may come late");
    }
    assert!(server.node.leader_lacks_committed());
    server.node.step(append(2)).expect("it has everything");
    assert!(!server.node.leader_lacks_committed());
}

/// A leader repeats an append with each heartbeat until the reply is here, and the reply waits for the disk.
#[test]
fn a_slow_disk_here_is_no_sign_of_a_leader_that_lacks_anything() {
    let mut server = follower_with_two_entries();
    let entry = Entry { term: Term(2), index: Index(3), kind: EntryKind::Normal, payload: Bytes::from_static(b"x") };
    let append = |prev_index: u64, prev_term: u64, entries: Vec<Entry>| {
        let body =
            PeerBody::Append { prev_index: Index(prev_index), prev_term: Term(prev_term), commit: Index(1), entries };
        PeerMessage { from: ServerId(3), to: ServerId(1), term: Term(2), body }
    };
    server.node.step(append(2, 1, vec![entry])).expect("a good append");
    assert!(server.node.ready(&mut server.out));
    for _ in 0..=2 * limits::SHORT_APPENDS_MAX {
        server.node.step(append(1, 1, Vec::new())).expect("it is repeated");
    }
    assert!(!server.node.leader_lacks_committed());
}
