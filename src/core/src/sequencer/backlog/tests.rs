//! Commands are judged before they are logged. A logged command is carried out.

use crate::apply::StateMachine;
use crate::apply::outcome::{AppliedBatch, Outcome};
use crate::command::{Batch, Command, CommandKind, Proposals};
use crate::cost::COMMAND_MAX;
use crate::features;
use crate::ids::{ConnId, Millis, Origin, ServerId, SessionId, ShardId, WallMillis};
use crate::ops;
use crate::ops::{OpResult, WriteOp};
use crate::sequencer::{Sequencer, SequencerConfig};
use crate::session::{Ephemerals, Session, SessionTable};
use crate::shared::{Data, Text};
use crate::tree::acl::Acl;
use crate::tree::change::Change;
use crate::tree::view::View;
use crate::tree::znode::{NodeStat, Znode};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use corral_wire::error::ErrorCode;

const ORIGIN: Origin =
    Origin { server: ServerId(1), shard: ShardId(0), conn: ConnId { slot: 1, generation: 1 }, incarnation: 1 };
const SESSION: SessionId = SessionId(7);
/// So many changes cost more than one command may.
const MANY: usize = 20_000;

/// A session, and `/a`.
fn machine() -> StateMachine {
    let mut view = View::empty(7);
    let node = Arc::new(Znode { stat: NodeStat::default(), acl: Acl::Open, data: None });
    let (at, zxid) = (view.hashed(Text::from("/a")), view.zxid());
    view.apply(zxid, &Change::Created { at, node });
    let session =
        Session { timeout_ms: 1000, password: [0; 16], owner: Some(ORIGIN), ephemerals: Ephemerals::default() };
    let sessions = SessionTable::from_iter([(SESSION, session)]);
    StateMachine::new(view, sessions)
}

fn server(command_cost_max: u64) -> Sequencer {
    let config = SequencerConfig { command_cost_max, ..SequencerConfig::default() };
    Sequencer::new(config, machine(), 0, 0)
}

fn leader(admits: bool) -> Sequencer {
    let mut leader = server(COMMAND_MAX);
    leader.all_members_know(if admits { features::KNOWN } else { 0 });
    leader.begin_leadership(Millis(0), 1);
    leader
}

fn set(path: &str) -> WriteOp {
    WriteOp::SetData(ops::SetData { path: Text::from(path), data: Some(Data::from(&b"x"[..])), version: -1 })
}

fn write(kind: CommandKind) -> Proposals {
    Proposals::new(Vec::new(), vec![Command { origin: Some(ORIGIN), session: SESSION, identities: 0, kind }])
}

fn sets(path: &str, count: usize) -> Proposals {
    write(CommandKind::Multi(vec![set(path); count]))
}

fn next(leader: &mut Sequencer) -> Option<Vec<u8>> {
    let batch = leader.take_batch(WallMillis(1))?;
    let payload = batch.encode();
    leader.proposed(batch);
    Some(payload)
}

fn commit(server: &mut Sequencer, payload: &[u8], own: bool) -> AppliedBatch {
    server.apply_entry(Millis(0), server.index() + 1, 1, payload, own).expect("a batch")
}

fn is_refused(applied: &AppliedBatch) -> bool {
    let throttled = |result: &OpResult| *result == OpResult::Error(ErrorCode::ThrottledOp);
    match &applied.txns[0].outcome {
        Outcome::Op(result) => throttled(result),
        Outcome::Multi(results) => results.iter().any(throttled),
        _ => false,
    }
}

#[test]
fn a_leader_refuses_a_costly_command_before_it_is_logged() {
    let mut leader = leader(true);
    let refused = |payload: &[u8]| {
        let batch = Batch::decode(payload).expect("a batch");
        assert_ne!(batch.features & features::ADMITTED, 0);
        batch.commands[0].kind == CommandKind::Refused(ErrorCode::ThrottledOp)
    };
    for (proposals, is_too_costly) in [
        (write(CommandKind::Op(set("/a"))), false),
        (sets("/a", MANY), true),
        // It costs as much at most, and ends at the first operation.
        (sets("/missing", MANY), false),
        (sets("/a", MANY / 2), false),
    ] {
        leader.enqueue(Millis(0), proposals);
        let payload = next(&mut leader).expect("a command waits");
        assert_eq!(refused(&payload), is_too_costly);
        let applied = commit(&mut leader, &payload, true);
        assert_eq!(is_refused(&applied), is_too_costly);
    }
    let stat = leader.machine().view().get("/a").expect("it exists").stat();
    assert_eq!(usize::try_from(stat.version).expect("few"), 1 + MANY / 2, "whole or not at all");
}

#[test]
fn a_costly_command_is_judged_on_the_state_that_it_meets() {
    let mut leader = leader(true);
    let create = WriteOp::Create(ops::Create {
        op: crate::ops::CreateOp::Create,
        path: Text::from("/b"),
        data: None,
        acl: crate::tree::acl::AclSpec::Open,
        flags: 0,
        ttl_ms: -1,
    });
    leader.enqueue(Millis(0), write(CommandKind::Op(create)));
    leader.enqueue(Millis(0), sets("/b", MANY));
    leader.enqueue(Millis(0), write(CommandKind::Op(set("/b"))));
    let first = next(&mut leader).expect("a command waits");
    assert_eq!((next(&mut leader), leader.commands_waiting()), (None, 2), "it waits for the znode");
    assert!(!is_refused(&commit(&mut leader, &first, true)));
    let second = next(&mut leader).expect("everything before is applied");
    let applied = commit(&mut leader, &second, true);
    assert!(is_refused(&applied));
    assert_eq!((applied.txns.len(), leader.commands_waiting()), (2, 0), "a refused one leaves room for others");
    assert!(matches!(applied.txns[1].outcome, Outcome::Op(OpResult::Stat(_))), "{:?}", applied.txns[1].outcome);
}

/// In a rolling upgrade one member after the other is down.
#[test]
fn commands_are_judged_for_ever_behind_the_first_judged_entry() {
    let mut leader = leader(true);
    let mut follower = server(COMMAND_MAX);
    leader.enqueue(Millis(0), write(CommandKind::Op(set("/a"))));
    let payload = next(&mut leader).expect("a command waits");
    leader.all_members_know(0);
    follower.all_members_know(0);
    assert!(leader.admits() && !follower.admits());
    commit(&mut follower, &payload, false);
    assert!(follower.admits());
    leader.end_leadership();
    assert!(!leader.admits(), "that entry may be lost");
}

#[test]
fn the_first_batch_that_all_members_know_names_the_ensemble() {
    let id = |server: &Sequencer| server.machine().ensemble_id();
    let (mut leader, mut follower) = (leader(false), server(COMMAND_MAX));
    let mut both_apply = |leader: &mut Sequencer| {
        leader.enqueue(Millis(0), write(CommandKind::Op(set("/a"))));
        let payload = next(leader).expect("a command waits");
        commit(leader, &payload, true);
        commit(&mut follower, &payload, false);
        assert_eq!(id(leader), id(&follower));
        id(leader)
    };
    assert_eq!(both_apply(&mut leader), None, "a member may not know it");
    leader.all_members_know(features::KNOWN);
    let first = both_apply(&mut leader);
    assert!(first.is_some());
    assert_eq!(both_apply(&mut leader), first);
}

#[test]
fn without_the_word_of_all_members_the_budget_decides_as_before() {
    let mut leader = leader(false);
    leader.enqueue(Millis(0), sets("/a", MANY));
    let payload = next(&mut leader).expect("a command waits");
    let batch = Batch::decode(&payload).expect("a batch");
    assert_eq!(batch.features & features::ADMITTED, 0);
    assert!(matches!(batch.commands[0].kind, CommandKind::Multi(_)));
    assert!(is_refused(&commit(&mut leader, &payload, true)));
}

/// One other build has a tenth of this build's limit, and another one has ten times as much.
#[test]
fn builds_with_other_prices_come_to_the_same_state() {
    let state = |server: &Sequencer| {
        let view = server.machine().view();
        (view.digest(), view.get("/a").map(|node| node.stat()))
    };
    for admits in [true, false] {
        let mut leader = leader(admits);
        let mut builds = [COMMAND_MAX / 10, COMMAND_MAX, COMMAND_MAX * 10].map(server);
        let mut equal = true;
        for count in [1, MANY / 5, MANY / 2, MANY, 3] {
            leader.enqueue(Millis(0), sets("/a", count));
            let payload = next(&mut leader).expect("a command waits");
            let outcome = is_refused(&commit(&mut leader, &payload, true));
            for build in &mut builds {
                equal &= is_refused(&commit(build, &payload, false)) == outcome;
                equal &= state(build) == state(&leader);
            }
        }
        assert_eq!(equal, admits, "by its own prices each comes to another state");
    }
}

#[test]
fn growing_writes_are_refused_while_space_is_scarce() {
    let mut leader = leader(true);
    leader.refuse_growth(true);
    let delete = || WriteOp::Delete(ops::Delete { path: Text::from("/a"), version: 7 });
    let own = Command::own(None, CommandKind::SystemNodes(Vec::new()));
    for (kind, is_refused) in [
        (CommandKind::Op(set("/a")), true),
        (CommandKind::Multi(vec![delete(), set("/a")]), true),
        (CommandKind::Multi(vec![delete()]), false),
        (CommandKind::Op(delete()), false),
        (CommandKind::CreateSession { timeout_ms: 1000, password: [1; 16] }, false),
        (own.kind, false),
    ] {
        leader.enqueue(Millis(0), write(kind.clone()));
        let payload = next(&mut leader).expect("a command waits");
        let batch = Batch::decode(&payload).expect("a batch");
        let refused = CommandKind::Refused(ErrorCode::QuotaExceeded);
        assert_eq!(batch.commands[0].kind, if is_refused { refused } else { kind });
        commit(&mut leader, &payload, true);
    }
    assert_eq!(leader.growth_refused(), 2);
    leader.refuse_growth(false);
    leader.enqueue(Millis(0), write(CommandKind::Op(set("/a"))));
    let payload = next(&mut leader).expect("a command waits");
    commit(&mut leader, &payload, true);
    assert_eq!(leader.machine().view().get("/a").expect("it exists").stat().version, 1);
}
