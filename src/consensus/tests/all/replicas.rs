//! Groups of replicas, each a node and its machine. The tests check the applied entries, their proposers, and the disks
//! at that time.
//!
//! A failing seed is printed; put it into `REGRESSIONS`.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::group::ledger::{COST, Ledger, number};
use crate::group::{self, Bug, Counts, Faults, Group, STEPS_PER_TICK};
use crate::setup::{config_alone, id_of, numbered};
use bytes::Bytes;
use corral_consensus::limits::APPLIED_WORK_MAX;
use corral_consensus::{
    AppendReply, ConfChange, Config, Effects, Entry, EntryKind, HardState, Index, LogDisk, MemberChange, Membership,
    Micros, PeerBody, PeerMessage, RaftNode, Replica, Restored, Role, ServerId, Term, Transition,
};

const SEEDS: u64 = 150;
const STEPS: u64 = 900;
const SETTLE_STEPS: u64 = 6000;

/// Seeds that once failed, all with changing memberships: a server restarted with a membership that was gone.
const REGRESSIONS: &[u64] = &[499];

fn run(seed: u64, voters: usize, learners: usize, change: impl Fn(&mut Faults)) -> Counts {
    let mut faults = Faults::drawn(&mut group::random(!seed));
    change(&mut faults);
    let mut group = Group::new(seed, voters, learners, faults);
    group.run(STEPS);
    group.settle(SETTLE_STEPS);
    group.counts
}

fn many(voters: usize, learners: usize, change: impl Fn(&mut Faults)) -> Counts {
    let mut sum = Counts::default();
    for seed in 0..SEEDS {
        let ran = catch_unwind(AssertUnwindSafe(|| run(seed, voters, learners, &change)));
        let ran = ran.unwrap_or_else(|panic| {
            // Nothing can be done about a closed stream.
            let _ = writeln!(std::io::stderr(), "failing seed: {seed} with {voters} voters");
            std::panic::resume_unwind(panic)
        });
        sum.committed += ran.committed;
        sum.reads += ran.reads;
        sum.installs += ran.installs;
        sum.distrusted += ran.distrusted;
        sum.log_reads += ran.log_reads;
        sum.leaders += ran.leaders;
        sum.lost_tails += ran.lost_tails;
        sum.came_back += ran.came_back;
        sum.contexts += ran.contexts;
    }
    sum
}

#[test]
fn three_replicas() {
    let did = many(3, 0, |_| {});
    assert!(did.committed > 3000 && did.reads > 300 && did.installs > 10 && did.leaders > 300, "too little: {did:?}");
    assert!(did.lost_tails > 30 && did.came_back > 3, "too few leaderships ended in the middle: {did:?}");
}

#[test]
fn five_replicas() {
    let did = many(5, 0, |_| {});
    assert!(did.committed > 3000 && did.reads > 300 && did.installs > 1 && did.leaders > 300, "too little: {did:?}");
    assert!(did.lost_tails > 30 && did.came_back > 3, "too few leaderships ended in the middle: {did:?}");
}

#[test]
fn three_replicas_and_a_learner() {
    let did = many(3, 1, |_| {});
    assert!(did.committed > 3000 && did.installs > 5, "too little: {did:?}");
}

#[test]
fn three_replicas_that_crash_all_the_time() {
    let did = many(3, 0, |faults| faults.crash = 30);
    assert!(did.committed > 1000 && did.leaders > 300, "too little: {did:?}");
}

#[test]
fn memberships_that_change() {
    let did = many(3, 2, |faults| faults.conf_changes = true);
    assert!(did.committed > 2000 && did.contexts > 500, "too little: {did:?}");
}

#[test]
fn three_replicas_whose_states_are_damaged() {
    let did = many(3, 0, |faults| faults.distrust = 8);
    assert!(did.committed > 1500 && did.distrusted > 300 && did.log_reads > 100, "too little: {did:?}");
}

#[test]
fn damaged_states_among_crashes() {
    let did = many(3, 0, |faults| (faults.distrust, faults.crash) = (8, 20));
    assert!(did.distrusted > 200 && did.log_reads > 100, "too little: {did:?}");
}

#[test]
fn a_server_whose_state_is_damaged_takes_it_from_the_leader_although_nobody_writes() {
    for leads in [false, true] {
        let mut group = calm(3, 0);
        let leader = group.leader().expect("it is led");
        let at = if leads { leader } else { (leader + 1) % 3 };
        group.distrust(at);
        group.run_until(3000, "healed", |group| {
            group.servers[at].as_ref().is_some_and(|server| !server.replica.is_state_corrupt()) && group.is_whole()
        });
        assert_ne!(group.leader(), Some(at), "who distrusts itself hands over");
        let lines = &group.servers[at].as_ref().expect("running").ledger.lines;
        assert!(lines.iter().zip(&group.committed).all(|(line, known)| line == known), "the state is another's");
        group.settle(SETTLE_STEPS);
    }
}

fn entry(at: u64) -> Entry {
    Entry { term: Term(1), index: Index(at), kind: EntryKind::Normal, payload: Bytes::new() }
}

/// A replica with its machine.
struct Member {
    replica: Replica,
    ledger: Ledger,
}

impl Member {
    fn new(raft: RaftNode) -> Member {
        Member { replica: Replica::new(raft, Index(0)), ledger: Ledger::default() }
    }
}

/// Server 1 of three, with entries up to this one, of which none is known to be committed.
fn replica_with_log(last: u64) -> Member {
    let config = Config {
        id: ServerId(1),
        voters: Vec::new(),
        learners: Vec::new(),
        election_ticks: 10,
        heartbeat_ticks: 2,
        max_inflight_entries: 50,
        log_cache_bytes: 1 << 20,
        max_entry_bytes: 1 << 20,
        seed: 1,
    };
    let hard_state = HardState { term: Term(2), vote: None, commit: Index(0) };
    let restored = Restored { hard_state, entries: (1..=last).map(entry).collect(), ..Restored::default() };
    let raft = RaftNode::with_membership(config, three(), restored).expect("a disk is consistent");
    Member::new(raft)
}

fn three() -> Membership {
    Membership::simple(&[1, 2, 3].map(numbered), &[])
}

/// One turn. Its appends are durable at once.
fn turn(member: &mut Member) -> Effects {
    let mut effects = Effects::default();
    while member.replica.turn(&mut member.ledger, Micros(0), &mut effects).expect("it can be applied") {}
    effects.appends.iter().for_each(|append| member.replica.persisted(&member.ledger, Micros(0), append.number));
    effects
}

fn hear(member: &mut Member, from: u64, term: u64, body: PeerBody) {
    let message = PeerMessage { from: numbered(from), to: ServerId(1), term: Term(term), body };
    member.replica.step(&mut member.ledger, message).expect("it is in order");
}

/// The leader is silent for an election timeout while it sends the snapshot, and then goes on. The log was replaced by the
/// older snapshot, and with it entries that had been acknowledged.
#[test]
fn a_state_is_replaced_and_no_acknowledged_entry_is_lost() {
    let mut member = replica_with_log(3);
    let append = |prev: u64, commit| PeerBody::Append {
        prev_index: Index(prev),
        prev_term: Term(1),
        commit: Index(commit),
        entries: (prev + 1..=prev + 5).map(entry).collect(),
    };
    // A turn applies a few entries.
    let turns = |member: &mut Member| (0..10).for_each(|_| drop(turn(member)));
    hear(&mut member, 2, 2, append(3, 8));
    turns(&mut member);
    assert_eq!(member.replica.applied(), Index(8));
    assert!(member.replica.mark_state_corrupt());
    let least = Index(8);
    assert!(
        member
            .replica
            .state_requests()
            .iter()
            .all(|request| matches!(request.body, PeerBody::WantsState { least: from, .. } if from == least))
    );
    // Until the snapshot comes.
    (0..40).for_each(|_| member.replica.tick());
    hear(&mut member, 2, 2, append(8, 10));
    let _ = turn(&mut member);
    let said = turn(&mut member).messages;
    let acknowledges = |message: &PeerMessage| {
        matches!(message.body, PeerBody::AppendReply(AppendReply::Accepted { index: Index(13), .. }))
    };
    assert!(said.iter().any(acknowledges), "{said:?}");
    assert_eq!((member.replica.applied(), member.replica.raft().applied_index()), (Index(8), Index(10)));
    hear(&mut member, 2, 2, PeerBody::Snapshot { index: Index(10), term: Term(1), membership: three() });
    let did = turn(&mut member);
    assert!(did.installs.is_empty() && did.appends.iter().all(|append| append.entries.is_empty()), "{did:?}");
    assert_eq!(member.replica.raft().last_index(), Index(13));
    member.ledger.lines = vec![(Term(1), 0); 10];
    member.replica.state_replaced(Index(10));
    let commit = Index(13);
    hear(&mut member, 2, 2, PeerBody::Notice { index: Index(13), term: Term(1), commit });
    turns(&mut member);
    assert!(!member.replica.is_state_corrupt());
    assert_eq!((member.replica.applied(), member.replica.raft().last_index()), (commit, commit));
}

/// Another server's snapshot takes the place of a state that is not to be trusted when another fault of that state is found.
#[test]
fn a_fault_of_a_state_that_is_being_replaced_withholds_no_later_snapshot() {
    let (mut member, all) = (replica_with_log(3), three());
    assert!(member.replica.mark_state_corrupt());
    hear(&mut member, 2, 2, PeerBody::Snapshot { index: Index(5), term: Term(2), membership: all });
    assert_eq!(turn(&mut member).installs.len(), 1);
    assert!(!member.replica.mark_state_corrupt(), "it is replaced already");
    member.replica.installed(Index(5));
    member.replica.compact(Index(5), Term(2));
    hear(&mut member, 2, 2, PeerBody::TimeoutNow);
    let _ = turn(&mut member);
    let granted = PeerBody::VoteReply { pre: false, granted: true, commit: Index(0), commit_term: Term(0) };
    hear(&mut member, 3, 3, granted);
    assert_eq!(member.replica.raft().role(), Role::Leader);
    let _ = turn(&mut member);
    let (index, hint, hint_term, commit) = (Index(5), Index(0), Term(0), Index(0));
    hear(&mut member, 3, 3, PeerBody::AppendReply(AppendReply::Rejected { index, hint, hint_term, commit }));
    let said = turn(&mut member).messages;
    assert!(said.iter().any(|message| matches!(message.body, PeerBody::Snapshot { .. })), "{said:?}");
}

/// The wanted membership follows from the state, and the membership from the log.
#[test]
fn a_leader_with_a_corrupt_state_changes_no_members() {
    let changes_members = |is_corrupt: bool| {
        let mut member = Member::new(RaftNode::new(config_alone(), Restored::default()).expect("valid"));
        member.replica.campaign();
        (0..3).for_each(|_| drop(turn(&mut member)));
        assert!(member.replica.is_leading());
        assert!(!is_corrupt || member.replica.mark_state_corrupt());
        let before = member.replica.raft().last_index();
        (0..20).for_each(|_| member.replica.reconcile(&three()));
        member.replica.raft().last_index() > before
    };
    assert_eq!([false, true].map(changes_members), [true, false]);
}

/// The leader falls silent, and one of the other two cannot stand for election: it must not count itself as led for
/// ever.
fn the_third_leads(unfit: impl Fn(&mut Group, usize)) {
    for seed in 0..60 {
        let mut group = Group::new(seed, 3, 0, Faults::NONE);
        group.quiet = true;
        group.run_until(2000, "led", Group::is_whole);
        group.run(50);
        let leader = group.leader().expect("it is led");
        unfit(&mut group, (leader + 1) % 3);
        group.cut_off(leader, true);
        let third = (leader + 2) % 3;
        group.run_until(100 * STEPS_PER_TICK, "led by the third", |group| group.leader() == Some(third));
    }
}

#[test]
fn a_server_whose_state_is_damaged_does_not_keep_others_from_being_elected() {
    the_third_leads(Group::distrust);
}

#[test]
fn a_server_whose_disk_is_full_does_not_keep_others_from_being_elected() {
    the_third_leads(|group, at| {
        let replica = &mut group.servers[at].as_mut().expect("running").replica;
        replica.transfer_leadership_if_slow(Micros(0), Micros(u64::MAX), LogDisk::Full);
    });
}

/// A replay, or the entries that a lagging server receives at once.
#[test]
fn much_that_is_committed_at_once_is_applied_in_many_turns() {
    const ENTRIES: u64 = 1000;
    let entry = |index: u64| {
        let payload = Bytes::copy_from_slice(&(index + 1).to_be_bytes());
        Entry { term: Term(1), index: Index(index), kind: EntryKind::Normal, payload }
    };
    let hard_state = HardState { term: Term(1), vote: None, commit: Index(ENTRIES) };
    let restored = Restored { hard_state, entries: (1..=ENTRIES).map(entry).collect(), ..Restored::default() };
    let node = RaftNode::new(config_alone(), restored).expect("valid");
    let mut member = Member::new(node);
    member.replica.campaign();
    let (mut turns, now) = (0, Micros(7));
    while !member.replica.is_leading() {
        let (mut effects, before) = (Effects::default(), member.replica.applied());
        while member.replica.turn(&mut member.ledger, now, &mut effects).expect("the ledger takes everything") {}
        let applied = member.replica.applied().0 - before.0;
        assert!(applied <= APPLIED_WORK_MAX.div_ceil(COST), "{applied} entries in one turn");
        let rest = ENTRIES - member.replica.applied().0.min(ENTRIES);
        assert!(rest == 0 || effects.wake_at == Some(now), "{rest} entries wait, and no turn is asked for");
        effects.appends.iter().for_each(|append| member.replica.persisted(&member.ledger, now, append.number));
        turns += 1;
    }
    assert!(turns >= ENTRIES / 4, "{turns} turns");
    assert_eq!(member.ledger.lines.len() as u64, ENTRIES + 1);
    assert_eq!(member.replica.applied_bytes(), 8 * ENTRIES);
}

/// A leader with a log that takes larger entries than the log here.
#[test]
fn an_entry_that_the_log_does_not_take_is_refused_with_the_reason() {
    const BYTES_MAX: u32 = 1000;
    let config = Config {
        id: ServerId(1),
        voters: vec![ServerId(1), ServerId(2)],
        learners: Vec::new(),
        election_ticks: 10,
        heartbeat_ticks: 2,
        max_inflight_entries: 100,
        log_cache_bytes: 32 << 20,
        max_entry_bytes: BYTES_MAX,
        seed: 1,
    };
    let node = RaftNode::new(config, Restored::default()).expect("valid");
    let mut member = Member::new(node);
    let append = |bytes: usize| {
        let payload = Bytes::from(1_u64.to_be_bytes().repeat(bytes / 8));
        let entry = Entry { term: Term(1), index: Index(1), kind: EntryKind::Normal, payload };
        let body =
            PeerBody::Append { prev_index: Index(0), prev_term: Term(0), commit: Index(0), entries: vec![entry] };
        PeerMessage { from: ServerId(2), to: ServerId(1), term: Term(1), body }
    };
    let refused = member.replica.step(&mut member.ledger, append(BYTES_MAX as usize + 8)).expect_err("too large");
    assert!(refused.breaks_connection() && refused.to_string().contains("log.segment_bytes"), "{refused}");
    assert_eq!(member.replica.raft().last_index(), Index(0));
    member.replica.step(&mut member.ledger, append(BYTES_MAX as usize)).expect("it fits");
}

#[test]
fn seeds_that_once_failed() {
    for seed in REGRESSIONS {
        run(*seed, 3, 2, |faults| faults.conf_changes = true);
    }
}

/// Whether the checker, or the code itself, sees the bug within some seeds.
fn is_caught(bug: Bug) -> bool {
    let plant = |faults: &mut Faults| {
        faults.bug = Some(bug);
        faults.crash = 30;
    };
    (0..200).any(|seed| catch_unwind(AssertUnwindSafe(|| run(seed, 3, 0, plant))).is_err())
}

#[test]
fn an_acknowledgement_before_the_sync_is_caught() {
    assert!(is_caught(Bug::AckBeforeSync));
}

#[test]
fn a_vote_forgotten_over_a_restart_is_caught() {
    assert!(is_caught(Bug::ForgetVote));
}

/// A quiet group in which every server follows the leader.
fn calm(voters: usize, learners: usize) -> Group {
    let mut group = Group::new(7, voters, learners, Faults::NONE);
    group.quiet = true;
    group.run_until(2000, "led", Group::is_whole);
    group.run(50);
    group
}

fn term(group: &Group, at: usize) -> u64 {
    group.servers[at].as_ref().map_or(0, |server| server.replica.raft().term().0)
}

#[test]
fn a_leader_that_is_seen_to_go_is_replaced_within_a_few_ticks() {
    for voters in [3, 5] {
        let mut group = calm(voters, 0);
        let old = group.leader().expect("it is led");
        let at = group.now;
        group.crash(old);
        group.faults.crash = 0;
        group.run_until(200, "led again", |group| group.leader().is_some_and(|now| now != old));
        let ticks = (group.now - at) / STEPS_PER_TICK;
        assert!(ticks <= 8, "{ticks} ticks with {voters} voters; the timeout is 10 to 20");
    }
}

#[test]
fn a_leader_wrongly_said_to_be_gone_stays_and_no_term_moves() {
    let mut group = calm(3, 0);
    let leader = group.leader().expect("it is led");
    let before = term(&group, leader);
    let other = (leader + 1) % 3;
    group.servers[other].as_mut().expect("running").replica.leader_lost(id_of(leader), 0);
    group.run(400);
    assert_eq!(group.leader(), Some(leader));
    assert!((0..3).all(|at| term(&group, at) == before), "a term moved");
}

#[test]
fn a_leader_cut_off_steps_down_and_its_tail_is_gone() {
    let mut group = calm(3, 0);
    let old = group.leader().expect("it is led");
    group.cut_off(old, true);
    let lost = group.offer_to_leader();
    group.run_until(600, "replaced", |group| group.leader().is_some_and(|now| now != old));
    let kept = group.offer_to_leader();
    group.run(100);
    assert!(!group.servers[old].as_ref().expect("running").replica.is_leading(), "a leader without a quorum stays");
    group.cut_off(old, false);
    group.run_until(600, "whole", Group::is_whole);
    let has = |number| group.committed.iter().any(|line| line.1 == number);
    assert!(has(kept) && !has(lost));
}

#[test]
fn leadership_goes_where_it_is_sent() {
    let mut group = calm(5, 0);
    let old = group.leader().expect("it is led");
    let replica = &mut group.servers[old].as_mut().expect("running").replica;
    let to = replica.raft().followers().successor().expect("others vote");
    replica.transfer(to).expect("it may");
    group.offer_to_leader();
    group.run_until(100, "handed over", |group| group.leader().is_some_and(|now| id_of(now) == to));
    group.run_until(100, "whole", Group::is_whole);
}

#[test]
fn a_server_that_lost_everything_gets_the_snapshot() {
    let mut group = calm(3, 0);
    let leader = group.leader().expect("it is led");
    let other = (leader + 1) % 3;
    group.crash(other);
    for _ in 0..30 {
        group.offer_to_leader();
        group.run(20);
    }
    // Long enough for the leader to have a snapshot, and its log is cut with a restart of its.
    group.crash(leader);
    group.start(other);
    group.start(leader);
    group.run_until(3000, "whole", Group::is_whole);
    assert!(group.committed.len() > 30);
}

#[test]
fn members_come_and_go() {
    let mut group = calm(3, 2);
    let change = |changes: Vec<MemberChange>, context| ConfChange { changes, transition: Transition::Auto, context };
    let context = group.context();
    let leader = group.leader().expect("it is led");
    group.strangers = true;
    let leave = (0..3).find(|at| *at != leader).map(id_of).expect("two others");
    let joint =
        vec![MemberChange::AddVoter(ServerId(4)), MemberChange::AddVoter(ServerId(5)), MemberChange::Remove(leave)];
    let replica = &mut group.servers[leader].as_mut().expect("running").replica;
    replica.propose_conf_change(change(joint, context)).expect("it fits");
    let done = |group: &Group| {
        let membership = |at: usize| group.servers[at].as_ref().map(|server| server.replica.raft().membership());
        let four = |at| membership(at).is_some_and(|now| now.voters.len() == 4 && !now.is_joint());
        four(leader) && four(3) && four(4)
    };
    group.run_until(500, "joined", done);
    let contexts = group.servers[leader].as_ref().map(|server| server.ledger.contexts);
    assert_eq!(contexts, Some(1), "the context comes once, with the change itself");
    assert_eq!(group.servers[3].as_ref().map(|server| server.replica.raft().role()), Some(Role::Follower));
    // The two that came can carry it with one of the old.
    let stay = (0..3).find(|at| *at != leader && id_of(*at) != leave).expect("the third");
    group.crash(stay);
    let number = group.offer_to_leader();
    group.run_until(500, "committed by those who came", |group| group.committed.iter().any(|line| line.1 == number));
}

/// The machine gives the second number once the first one is applied. No later event asks for it.
#[test]
fn commands_that_wait_for_an_entry_are_proposed_in_the_turn_that_applies_it() {
    let raft = RaftNode::new(config_alone(), Restored::default()).expect("valid");
    let mut member = Member::new(raft);
    member.replica.campaign();
    (0..2).for_each(|_| drop(turn(&mut member)));
    member.ledger.waiting.extend([1, 5]);
    let mut proposed = || {
        let entries = turn(&mut member).appends.into_iter().flat_map(|append| append.entries);
        entries.map(|entry| number(&entry.payload)).collect::<Vec<u64>>()
    };
    assert_eq!([proposed(), proposed(), proposed()], [vec![1], vec![5], vec![]]);
}
