//! Each rule of the ways to the leader by itself. `streams.rs` has them all at once, with shards and chance.

use corral_core::apply::outcome::{AppliedBatch, AppliedEntry, AppliedTxn, Outcome};
use corral_core::ops;
use corral_core::ops::WriteOp;
use corral_core::tree::acl::Identity;
use std::sync::Arc;

use corral_core::apply::StateMachine;
use corral_core::command::{Batch, Command, CommandKind, Proposals};
use corral_core::forwarding::peer::{
    Forward, Heartbeat, Pause, Paused, PeerFault, PeerMessage, SessionReport, Uninitialised,
};
use corral_core::forwarding::{Awaited, EnsembleConfig, Founders, Leadership, PeerSend, Sender};
use corral_core::ids::{ConnId, Millis, Origin, ServerId, SessionId, ShardId, WallMillis, Zxid};
use corral_core::limits::{FORWARDED_BYTES_MAX, PAUSE_MAX_MS};
use corral_core::sequencer::SequencerConfig;
use corral_core::sequencer::reaper::ReapPolicy;
use corral_core::servers::Servers;
use corral_core::session::SessionTable;
use corral_core::shard::Flow;
use corral_core::shared::Text;
use corral_core::tree::change::Changes;
use corral_core::tree::view::View;
use corral_types::{Machine as _, Term};

use crate::member::Member;

const LEADS_2: Leadership = Leadership::Follower { leader: Some(ServerId(2)) };
const LEADERLESS: Leadership = Leadership::Follower { leader: None };

fn member(server: u8) -> Member {
    let reap = ReapPolicy { check_interval_ms: 60_000, deletes_per_minute_max: 100, never_used_max_ms: 0 };
    let config = SequencerConfig {
        server: ServerId(server),
        incarnation: 10 + u64::from(server),
        tick_ms: 100,
        reap,
        ..SequencerConfig::default()
    };
    let mut member = Member::new(config, EnsembleConfig { shards: 1, hold_ms: 1000, lost_after_ms: 300 });
    assert_eq!(member.take_flow(), [Flow::Pause]);
    member
}

/// A follower of server 2 in term 5, with the first report of its stream taken.
fn follower() -> Member {
    let mut member = member(1);
    member.peer_connected(ServerId(2), 7);
    member.set_leadership(LEADS_2, 5);
    member.settle();
    assert_eq!(member.take_flow(), [Flow::Resume]);
    assert_eq!(sequences(&member.take_sends()), ["7: report 0"]);
    member
}

fn leader() -> Member {
    let mut member = member(2);
    member.set_leadership(Leadership::Leader, 5);
    member.settle();
    member.commit(1, 5, &[], false);
    member.sequencer.lead(Term(5));
    assert_eq!(member.take_flow(), [Flow::Resume]);
    member
}

fn from(peer: u8, incarnation: u64, connection: u64) -> Sender {
    Sender { peer: ServerId(peer), incarnation, connection }
}

/// A turn's writes of some connections, by slot.
fn writes(server: u8, generation: u32, slots: &[u32]) -> Proposals {
    let command = |slot: &u32| Command {
        origin: Some(Origin {
            server: ServerId(server),
            shard: ShardId(0),
            conn: ConnId { slot: *slot, generation: 1 },
            incarnation: 10 + u64::from(server),
        }),
        session: SessionId(1),
        identities: 0,
        kind: CommandKind::Op(WriteOp::Delete(ops::Delete { path: Text::from("/a"), version: -1 })),
    };
    let identities = vec![Arc::new(vec![Identity { scheme: Text::from("ip"), id: Text::from("::1") }])];
    Proposals {
        identities,
        commands: slots.iter().map(command).collect(),
        bytes: 1,
        generation,
        ..Proposals::default()
    }
}

fn sequences(sends: &[PeerSend]) -> Vec<String> {
    let line = |send: &PeerSend| match &send.message {
        PeerMessage::Forward(Forward { sequence, .. }) => format!("{}: forward {sequence}", send.connection),
        PeerMessage::SessionReport(SessionReport { sequence, .. }) => format!("{}: report {sequence}", send.connection),
        PeerMessage::Heartbeat(Heartbeat { clock, .. }) => format!("{}: heartbeat {}", send.connection, clock.0),
        PeerMessage::Uninitialised(Uninitialised { acknowledged, .. }) => {
            format!("{}: uninitialised {acknowledged}", send.connection)
        }
        PeerMessage::Digest(report) => format!("{}: digest {}", send.connection, report.index),
        PeerMessage::Pause(_) => format!("{}: pause", send.connection),
        PeerMessage::Paused(Paused { sequence, .. }) => format!("{}: paused {sequence}", send.connection),
    };
    sends.iter().map(line).collect()
}

/// Slots in the next batch.
fn ordered(leader: &mut Member) -> Vec<u32> {
    let batch = leader.sequencer.take_batch(WallMillis(0));
    let slots = batch.iter().flat_map(|batch| &batch.commands).filter_map(|command| command.origin);
    slots.map(|origin| origin.conn.slot).collect()
}

fn give(leader: &mut Member, connection: u64, sends: Vec<PeerSend>) -> Result<(), PeerFault> {
    sends.into_iter().try_for_each(|send| leader.received(Millis(0), from(1, 11, connection), send.message))
}

#[test]
fn commands_go_to_the_leader_in_order() {
    let (mut follower, mut leader) = (follower(), leader());
    leader.proposed(Millis(0), writes(2, 0, &[1]));
    follower.proposed(Millis(0), writes(1, 0, &[2, 3]));
    follower.proposed(Millis(0), writes(1, 0, &[2]));
    let sends = follower.take_sends();
    assert_eq!(sequences(&sends), ["7: forward 1", "7: forward 2"]);
    let report = SessionReport { term: 5, sequence: 0, echo: Millis(0), sessions: vec![] };
    assert_eq!(leader.received(Millis(0), from(1, 11, 70), PeerMessage::SessionReport(report)), Ok(()));
    assert_eq!(give(&mut leader, 70, sends), Ok(()));
    assert_eq!(ordered(&mut leader), [1, 2, 3, 2]);
}

#[test]
fn without_a_leader_shards_hold_back() {
    let mut member = member(1);
    member.settle();
    member.set_leadership(LEADS_2, 5);
    member.settle();
    assert!(member.take_flow().is_empty(), "held until the connection to the leader is up");
    member.peer_connected(ServerId(2), 7);
    member.settle();
    assert_eq!(member.take_flow(), [Flow::Resume]);
}

#[test]
fn a_leader_lost_and_found_again_costs_nothing() {
    let mut member = follower();
    member.proposed(Millis(0), writes(1, 0, &[1]));
    member.set_leadership(LEADERLESS, 5);
    member.settle();
    assert_eq!(member.take_flow(), [Flow::Pause]);
    // On its way from the shard when that was told.
    member.proposed(Millis(0), writes(1, 0, &[2]));
    member.set_leadership(LEADS_2, 5);
    member.settle();
    assert_eq!(member.take_flow(), [Flow::Resume]);
    assert_eq!(sequences(&member.take_sends()), ["7: forward 1", "7: forward 2"]);
}

#[test]
fn another_link_to_the_same_leader_makes_what_was_sent_uncertain() {
    let mut member = follower();
    member.proposed(Millis(0), writes(1, 0, &[1]));
    member.forwarding.peer_disconnected(ServerId(2), 7);
    member.settle();
    assert_eq!(member.take_flow(), [Flow::Pause]);
    member.proposed(Millis(0), writes(1, 0, &[1]));
    member.peer_connected(ServerId(2), 8);
    member.settle();
    let uncertain = Flow::Uncertain { generation: 1, unsent_too: false };
    assert_eq!(member.take_flow(), [uncertain, Flow::Resume]);
    member.proposed(Millis(0), writes(1, 0, &[1]));
    member.proposed(Millis(0), writes(1, 1, &[2]));
    assert_eq!(sequences(&member.take_sends()), ["7: forward 1", "8: report 0", "8: forward 1"]);
}

#[test]
fn a_stream_that_carried_nothing_ends_without_a_word() {
    let mut member = follower();
    member.forwarding.peer_disconnected(ServerId(2), 7);
    member.peer_connected(ServerId(2), 8);
    member.settle();
    assert_eq!(member.take_flow(), [Flow::Pause, Flow::Resume]);
}

#[test]
fn a_later_term_settles_what_came_back_and_what_never_will() {
    let mut member = follower();
    member.proposed(Millis(0), writes(1, 0, &[1]));
    member.peer_connected(ServerId(3), 1);
    member.set_leadership(Leadership::Follower { leader: Some(ServerId(3)) }, 6);
    member.settle();
    assert_eq!(member.take_flow(), [Flow::Pause], "it may come back still");
    member.commit(1, 5, &[], false);
    member.settle();
    assert!(member.take_flow().is_empty());
    member.commit(2, 6, &[], false);
    member.settle();
    assert_eq!(member.take_flow(), [Flow::Uncertain { generation: 1, unsent_too: false }, Flow::Resume]);
}

#[test]
fn a_leader_that_follows_orders_nothing_more() {
    let mut leader = leader();
    leader.proposed(Millis(0), writes(2, 0, &[1]));
    leader.sequencer.follow();
    leader.set_leadership(LEADERLESS, 6);
    leader.settle();
    assert_eq!(leader.take_flow(), [Flow::Pause]);
    leader.proposed(Millis(0), writes(2, 0, &[1]));
    leader.set_leadership(Leadership::Leader, 7);
    leader.commit(2, 7, &[], false);
    leader.sequencer.lead(Term(7));
    leader.settle();
    assert_eq!(leader.take_flow(), [Flow::Uncertain { generation: 1, unsent_too: false }, Flow::Resume]);
    assert!(ordered(&mut leader).is_empty(), "neither what waited nor what came late");
}

#[test]
fn without_a_leader_for_too_long_those_who_wait_are_sent_away() {
    let mut member = follower();
    member.proposed(Millis(0), writes(1, 0, &[1]));
    member.set_time(Millis(100));
    member.set_leadership(LEADERLESS, 6);
    member.settle();
    member.tick(Millis(1099));
    assert_eq!(member.take_flow(), [Flow::Pause]);
    member.tick(Millis(1100));
    assert_eq!(member.take_flow(), [Flow::Uncertain { generation: 1, unsent_too: true }, Flow::Leaderless]);
    member.tick(Millis(2100));
    assert_eq!(member.take_flow(), [Flow::Uncertain { generation: 2, unsent_too: true }], "away is told once");
    member.set_leadership(Leadership::Follower { leader: Some(ServerId(2)) }, 7);
    member.settle();
    assert_eq!(member.take_flow(), [Flow::Resume]);
    member.set_leadership(LEADERLESS, 8);
    member.settle();
    member.tick(Millis(3099));
    assert_eq!(member.take_flow(), [Flow::Pause]);
    member.tick(Millis(3100));
    assert_eq!(member.take_flow().last(), Some(&Flow::Leaderless), "and again after every leader");
}

#[test]
fn who_has_no_space_serves_its_clients_as_without_a_leader() {
    let mut member = follower();
    member.proposed(Millis(0), writes(1, 0, &[1]));
    member.forwarding.stall(true);
    member.settle();
    assert_eq!(member.take_flow(), [Flow::Pause]);
    member.proposed(Millis(0), writes(1, 0, &[2]));
    assert_eq!(sequences(&member.take_sends()), ["7: forward 1"], "what comes now waits");
    member.forwarding.stall(false);
    member.settle();
    assert_eq!(member.take_flow(), [Flow::Resume]);
    assert_eq!(sequences(&member.take_sends()), ["7: forward 2"], "and goes when there is space");
    member.forwarding.stall(true);
    member.settle();
    member.tick(Millis(1000));
    let uncertain = Flow::Uncertain { generation: 1, unsent_too: true };
    assert_eq!(member.take_flow(), [Flow::Pause, uncertain, Flow::Leaderless]);
    member.forwarding.stall(false);
    member.settle();
    assert_eq!(member.take_flow(), [Flow::Resume]);
    let mut leader = leader();
    leader.forwarding.stall(true);
    leader.settle();
    assert!(leader.take_flow().is_empty(), "its clients have nowhere to go");
    leader.peer_connected(ServerId(1), 70);
    leader.settle();
    assert_eq!(leader.take_flow(), [Flow::Pause], "it hands over, or nobody who is there has space");
    leader.proposed(Millis(0), writes(2, 0, &[3]));
    assert!(ordered(&mut leader).is_empty(), "what comes now waits");
    leader.tick(Millis(1000));
    assert_eq!(leader.take_flow().last(), Some(&Flow::Leaderless));
    leader.forwarding.stall(false);
    leader.settle();
    assert_eq!(leader.take_flow(), [Flow::Resume]);
}

#[test]
fn a_snapshot_settles_nothing_that_was_sent() {
    let mut member = follower();
    member.proposed(Millis(0), writes(1, 0, &[1]));
    member.install(StateMachine::new(View::empty(7), SessionTable::default()), 9, 5);
    member.settle();
    assert_eq!(member.take_flow(), [Flow::Pause, Flow::Uncertain { generation: 1, unsent_too: true }, Flow::Resume]);
    assert_eq!(sequences(&member.take_sends()), ["7: forward 1", "7: report 0"]);
    assert_eq!(member.sequencer.index(), 9);
}

#[test]
fn a_snapshot_that_failed_is_not_tried_again_behind_another_servers() {
    let mut member = follower();
    member.sequencer.freeze(Millis(0), Vec::new());
    let index = member.sequencer.index();
    assert_eq!(member.sequencer.frozen_again(index).map(|frozen| frozen.index), Some(index));
    member.install(StateMachine::new(View::empty(7), SessionTable::default()), 9, 5);
    assert!(member.sequencer.frozen_again(index).is_none(), "it is gone");
    member.sequencer.freeze(Millis(0), Vec::new());
    assert!(member.sequencer.frozen_again(index).is_none(), "another one is being written");
}

#[test]
fn what_is_of_another_term_or_stream_is_not_ordered() {
    let forward =
        |term, sequence, slot: u32| PeerMessage::Forward(Forward { term, sequence, proposals: writes(1, 0, &[slot]) });
    let mut leader = leader();
    assert_eq!(leader.received(Millis(0), from(1, 11, 70), forward(5, 0, 1)), Ok(()));
    assert_eq!(leader.received(Millis(0), from(1, 11, 70), forward(4, 1, 2)), Ok(()), "a former term");
    assert_eq!(leader.received(Millis(0), from(1, 11, 70), forward(6, 1, 3)), Ok(()), "a later term");
    assert_eq!(leader.received(Millis(0), from(1, 11, 71), forward(5, 0, 4)), Ok(()));
    assert_eq!(leader.received(Millis(0), from(1, 11, 70), forward(5, 1, 5)), Ok(()), "the former stream");
    assert_eq!(
        leader.received(Millis(0), from(1, 11, 71), forward(5, 2, 6)),
        Err(PeerFault::Gap { expected: 1, found: 2 })
    );
    assert!(leader.received(Millis(0), from(1, 12, 71), forward(5, 1, 7)).is_err(), "another start of the server");
    assert_eq!(leader.received(Millis(0), from(1, 11, 71), forward(5, 1, 8)), Ok(()));
    assert_eq!(ordered(&mut leader), [1, 4, 8]);
}

#[test]
fn a_server_that_sends_faster_than_commands_are_ordered_is_refused() {
    let mut leader = leader();
    let bytes = 8 << 20;
    let mut send = |connection, sequence| {
        let proposals = Proposals { bytes, ..writes(1, 0, &[1]) };
        leader.received(
            Millis(0),
            from(1, 11, connection),
            PeerMessage::Forward(Forward { term: 5, sequence, proposals }),
        )
    };
    let taken = (0..).take_while(|&sequence| send(70, sequence) == Ok(())).count();
    assert_eq!(taken, FORWARDED_BYTES_MAX / bytes + 1);
    assert_eq!(send(71, 0), Err(PeerFault::Flood));
    let mut left = taken;
    while left > 0 {
        left -= ordered(&mut leader).len();
    }
    assert_eq!(leader.sequencer.bytes_waiting(), 0);
    let forward = Forward { term: 5, sequence: 0, proposals: writes(1, 0, &[1]) };
    assert_eq!(leader.received(Millis(0), from(1, 11, 72), PeerMessage::Forward(forward)), Ok(()));
}

#[test]
fn the_leader_sends_its_clock_and_receives_reports_of_sessions() {
    let (mut follower, mut leader) = (follower(), leader());
    leader.peer_connected(ServerId(1), 3);
    leader.tick(Millis(5000));
    let heartbeats = leader.take_sends();
    assert_eq!(sequences(&heartbeats), ["3: heartbeat 5000", "3: digest 1"]);
    for heartbeat in heartbeats {
        assert_eq!(follower.received(Millis(40), from(2, 12, 9), heartbeat.message), Ok(()));
    }
    let echo = |follower: &mut Member| {
        follower.tick(Millis(50));
        match follower.take_sends().pop().map(|send| send.message) {
            Some(PeerMessage::SessionReport(report)) => (report.echo.0, report.sessions),
            other => panic!("{other:?}"),
        }
    };
    // The shard's report says nothing of the time after the heartbeat came.
    follower.take_activity(ShardId(0), Millis(39), &[(SessionId(4), Millis(38))]);
    assert_eq!(echo(&mut follower), (0, vec![SessionId(4)]));
    follower.take_activity(ShardId(0), Millis(40), &[(SessionId(5), Millis(40)), (SessionId(5), Millis(40))]);
    assert_eq!(echo(&mut follower), (5000, vec![SessionId(5)]));
    assert_eq!(echo(&mut follower), (5000, vec![]));
}

#[test]
fn uninitialised_servers_greet_each_other_and_bootstrap_once() {
    let uninitialised = |server: u8| {
        let mut member = member(server);
        let founders = Founders { own: ServerId(server), voters: vec![ServerId(1), ServerId(2)], learners: vec![] };
        member.forwarding.begin_uninitialised(founders, false);
        member
    };
    let (mut one, mut two) = (uninitialised(1), uninitialised(2));
    one.peer_connected(ServerId(2), 7);
    assert_eq!(sequences(&one.take_sends()), ["7: uninitialised 0"]);
    assert_eq!(one.forwarding.awaited(), [Awaited::Silent(ServerId(2))]);
    let say = |to: &mut Member, from: u8, sends: Vec<PeerSend>| {
        for send in sends {
            let sender = Sender { peer: ServerId(from), incarnation: 10 + u64::from(from), connection: 1 };
            assert_eq!(to.received(Millis(1), sender, send.message), Ok(()));
        }
    };
    two.peer_connected(ServerId(1), 8);
    say(&mut one, 2, two.take_sends());
    let answer = one.take_sends();
    assert_eq!(sequences(&answer), ["7: uninitialised 12"], "at once");
    say(&mut two, 1, answer);
    let answer = two.take_sends();
    assert_eq!(sequences(&answer), ["8: uninitialised 11"]);
    say(&mut one, 2, answer);
    assert!(one.forwarding.bootstraps() && !one.forwarding.bootstraps(), "once");
    assert!(two.forwarding.bootstraps());
    // Until that is durable it is still uninitialised.
    one.tick(Millis(1000));
    assert_eq!(sequences(&one.take_sends()), ["7: uninitialised 12"]);
    one.forwarding.bootstrapped();
    // And goes on saying that it has promised nothing, until it does.
    one.tick(Millis(2000));
    assert_eq!(sequences(&one.take_sends()), ["7: uninitialised 12"]);
    one.tick(Millis(3000));
    one.forwarding.initialised();
    assert!(one.take_sends().is_empty() && one.forwarding.awaited().is_empty());
    // From now on it tells its Raft of others.
    let lost = Uninitialised { founders: 0, acknowledged: 0, bootstrapped: false };
    let late = Uninitialised { bootstrapped: true, ..lost };
    assert_eq!(one.received(Millis(2001), from(2, 12, 1), PeerMessage::Uninitialised(late)), Ok(()));
    assert_eq!(one.received(Millis(2001), from(2, 12, 1), PeerMessage::Uninitialised(lost)), Ok(()));
    assert_eq!(one.forwarding.take_uninitialised(), [ServerId(2)]);
}

#[test]
fn a_leader_that_goes_leaves_nobody_in_doubt() {
    let pause = PeerMessage::Pause(Pause { term: 5 });
    let from = Sender { peer: ServerId(2), incarnation: 12, connection: 3 };
    let mut member = follower();
    member.proposed(Millis(0), writes(1, 0, &[1]));
    assert_eq!(sequences(&member.take_sends()), ["7: forward 1"]);
    member.received(Millis(1), from, pause.clone()).expect("of its leader");
    assert_eq!(sequences(&member.take_sends()), ["7: report 2", "7: paused 3"]);
    member.settle();
    member.proposed(Millis(1), writes(1, 0, &[2]));
    member.tick(Millis(2));
    assert!(member.take_sends().is_empty(), "nothing is sent behind that");
    assert_eq!(member.take_flow(), [Flow::Pause]);
    let Proposals { identities, commands, .. } = writes(1, 0, &[1]);
    let batch = Batch { time: WallMillis(1), first_zxid: 5 << 32 | 1, features: 0, identities, commands };
    member.commit(1, 5, &batch.encode(), false);
    member.commit(2, 6, &[], false);
    member.set_leadership(Leadership::Follower { leader: Some(ServerId(2)) }, 6);
    member.settle();
    assert_eq!(member.take_flow(), [Flow::Resume], "all has come back");
    assert_eq!(sequences(&member.take_sends()), ["7: report 0", "7: forward 1"]);
}

#[test]
fn a_pause_ends_with_what_it_is_for_or_soon() {
    let mut member = follower();
    let from = Sender { peer: ServerId(2), incarnation: 12, connection: 3 };
    for (term, peer) in [(4, 2), (5, 3)] {
        let pause = PeerMessage::Pause(Pause { term });
        member.received(Millis(1), Sender { peer: ServerId(peer), ..from }, pause).expect("passed over");
    }
    member.settle();
    assert!(member.take_flow().is_empty(), "not of its leader");
    member.received(Millis(1), from, PeerMessage::Pause(Pause { term: 5 })).expect("of its leader");
    member.settle();
    assert_eq!(member.take_flow(), [Flow::Pause]);
    member.tick(Millis(2 * PAUSE_MAX_MS));
    assert!(member.take_flow().is_empty());
    member.tick(Millis(2 * PAUSE_MAX_MS + 1));
    assert_eq!(member.take_flow(), [Flow::Resume], "its leader stays");
}

#[test]
fn a_leader_waits_for_all_that_are_linked() {
    let mut leader = leader();
    leader.peer_connected(ServerId(3), 9);
    leader.take_sends();
    leader.set_time(Millis(10));
    assert!(leader.pause() && !leader.pause(), "it asks once");
    assert_eq!(sequences(&leader.take_sends()), ["9: pause"]);
    assert!(!leader.is_paused());
    let from = Sender { peer: ServerId(3), incarnation: 13, connection: 4 };
    let report = SessionReport { term: 5, sequence: 0, echo: Millis(0), sessions: vec![] };
    leader.received(Millis(11), from, PeerMessage::SessionReport(report)).expect("the first");
    leader.received(Millis(11), from, PeerMessage::Paused(Paused { term: 5, sequence: 1 })).expect("the last");
    assert!(leader.is_paused());
    leader.peer_connected(ServerId(4), 10);
    assert!(!leader.is_paused());
    leader.set_time(Millis(10 + PAUSE_MAX_MS));
    assert!(leader.is_paused(), "it does not wait for ever");
}

/// A former leader with a slow disk applies nothing of its successor for long. Its clients' sessions must not expire
/// meanwhile.
#[test]
fn a_former_leader_reports_its_sessions_before_it_has_applied_an_entry_of_the_next_one() {
    let mut member = leader();
    member.proposed(Millis(0), writes(2, 0, &[1]));
    member.peer_connected(ServerId(1), 7);
    member.take_sends();
    member.set_leadership(Leadership::Follower { leader: Some(ServerId(1)) }, 6);
    member.settle();
    assert_eq!(member.take_flow(), [Flow::Pause], "its own commands may still be committed");
    assert_eq!(sequences(&member.take_sends()), ["7: report 0"]);
    let heartbeat = PeerMessage::Heartbeat(Heartbeat { term: 6, clock: Millis(5000) });
    assert_eq!(member.received(Millis(40), from(1, 11, 9), heartbeat), Ok(()));
    member.take_activity(ShardId(0), Millis(41), &[(SessionId(4), Millis(41))]);
    member.tick(Millis(50));
    let sends = member.take_sends();
    let reported = sends.iter().find_map(|send| match &send.message {
        PeerMessage::SessionReport(report) => Some((report.sequence, report.echo, report.sessions.clone())),
        _ => None,
    });
    assert_eq!(reported, Some((1, Millis(5000), vec![SessionId(4)])));
    // The commands follow on the same stream.
    member.commit(2, 6, &[], false);
    member.settle();
    assert_eq!(member.take_flow(), [Flow::Uncertain { generation: 1, unsent_too: false }, Flow::Resume]);
    member.proposed(Millis(60), writes(2, 1, &[2]));
    assert_eq!(sequences(&member.take_sends()), ["7: forward 2"]);
}

/// An entry of term 5 with transactions of server 1: so many that are done, begun, and ended later.
fn came_back(index: u64, (done, begun, ended): (usize, usize, usize)) -> AppliedEntry {
    let outcomes = vec![Outcome::SessionClosed; done]
        .into_iter()
        .chain(vec![Outcome::Underway(Box::new((Servers::default(), 0))); begun])
        .chain(vec![Outcome::Later(Box::new(Outcome::SessionClosed)); ended]);
    let origin =
        Origin { server: ServerId(1), shard: ShardId(0), conn: ConnId { slot: 1, generation: 1 }, incarnation: 11 };
    let txn =
        |outcome| AppliedTxn { zxid: Zxid(0), changes: Changes::new(), session: None, origin: Some(origin), outcome };
    let batch = AppliedBatch { time: WallMillis(0), txns: outcomes.map(txn).collect() };
    AppliedEntry { index, term: 5, own: false, digest: None, batch }
}

#[test]
fn what_is_under_way_has_not_come_back() {
    for (entries, doubt) in [
        ([(1, 0, 0), (0, 1, 0)], true),
        ([(1, 1, 0), (0, 0, 1)], false),
        ([(1, 0, 0), (0, 0, 1)], true),
        ([(2, 0, 0), (0, 0, 0)], false),
    ] {
        let mut member = follower();
        member.proposed(Millis(0), writes(1, 0, &[1, 2]));
        for (index, back) in (1..).zip(entries) {
            member.applied(came_back(index, back));
        }
        member.commit(1, 6, &[], false);
        member.settle();
        let told = member.take_flow().iter().any(|note| matches!(note, Flow::Uncertain { .. }));
        assert_eq!(told, doubt, "{entries:?}");
    }
}
