//! Nothing is done for a session before its password has been compared: session ids are public.

use corral_core::apply::Proof;
use corral_core::apply::outcome::AppliedBatch;
use corral_core::command::{Command, CommandKind, Proposals};
use corral_core::ids::{ConnId, Millis, Origin, ServerId, SessionId, ShardId, WallMillis, Zxid};
use corral_core::ops;
use corral_core::ops::WriteOp;
use corral_core::sequencer::{Sequencer, SequencerConfig, take_wrong_attaches};
use corral_core::shard::conn::Close;
use corral_core::shard::{ShardConfig, ShardMessage};
use corral_core::shared::Text;
use corral_core::tree::view::View;
use corral_types::{Index, Machine as _, Term};
use corral_wire::records::ConnectRequest;
use std::sync::Arc;

use crate::member;
use crate::one_shard::{Server, framed};

const TIMEOUT_MS: i32 = 400;
const RIGHT: [u8; 16] = [7; 16];
const WRONG: [u8; 16] = [8; 16];

fn leader() -> Sequencer {
    let mut sequencer = member::sequencer(SequencerConfig { tick_ms: 100, ..SequencerConfig::default() });
    sequencer.lead(Term(1));
    sequencer
}

fn command(slot: u32, kind: CommandKind) -> Command {
    let conn = ConnId { slot, generation: 1 };
    Command::own(Some(Origin { server: ServerId(1), shard: ShardId(0), conn, incarnation: 1 }), kind)
}

fn attach(slot: u32, session: SessionId, password: [u8; 16]) -> Command {
    command(slot, CommandKind::AttachSession { session, timeout_ms: TIMEOUT_MS, password })
}

fn proposals(commands: Vec<Command>) -> Proposals {
    Proposals { identities: vec![Arc::default()], bytes: 100 * commands.len(), commands, ..Proposals::default() }
}

/// All that waits is ordered, logged and applied.
fn commit(sequencer: &mut Sequencer) -> Vec<AppliedBatch> {
    while let Some(payload) = sequencer.next_batch() {
        let index = Index(sequencer.index() + 1);
        sequencer.commit(index, Term(1), &payload, true).expect("it was just encoded");
    }
    sequencer.take_applied().into_iter().map(|entry| entry.batch).collect()
}

/// Takes a shard's proposals. Gives the connections that are refused at once.
fn propose(sequencer: &mut Sequencer, now: Millis, mut proposals: Proposals) -> Vec<ConnId> {
    let refused = take_wrong_attaches(sequencer.machine(), &mut proposals);
    sequencer.enqueue(now, proposals);
    refused
}

/// A leader with a session without a connection, since time 0.
fn with_session() -> (Sequencer, SessionId) {
    let mut sequencer = leader();
    let create = CommandKind::CreateSession { timeout_ms: TIMEOUT_MS, password: RIGHT };
    assert_eq!(propose(&mut sequencer, Millis(0), proposals(vec![command(1, create)])), []);
    commit(&mut sequencer);
    let (session, _) = sequencer.sessions().iter().next().expect("the session was created");
    let session = *session;
    sequencer.take_activity(ShardId(0), Millis(60_000), &[]);
    (sequencer, session)
}

/// Sessions that end if attaches with this password are queued every 50 ms, never to be ordered, and when.
fn expires_at(password: [u8; 16]) -> Option<u64> {
    let (mut sequencer, session) = with_session();
    (0..2000).step_by(50).find(|now| {
        // As it comes from a follower that has not applied the session's creation.
        sequencer.enqueue(Millis(*now), proposals(vec![attach(2, session, password)]));
        !sequencer.tick(Millis(*now), WallMillis(0)).expired.is_empty()
    })
}

/// One connect a second with a wrong password kept the lock of a crashed client for ever.
#[test]
fn an_attach_without_the_password_does_not_extend_a_session() {
    assert_eq!(expires_at(WRONG), Some(500));
    assert_eq!(expires_at([0; 16]), Some(500));
    assert_eq!(expires_at(RIGHT), None, "an attach with the password that waits in the queue keeps its session alive");
}

#[test]
fn an_attach_that_proves_nothing_takes_no_log_entry() {
    let (mut sequencer, session) = with_session();
    let machine = sequencer.machine();
    let applied = machine.view().zxid();
    let never = SessionId(session.0 - 1);
    let future = SessionId(session.0 + 1);
    assert_eq!(machine.proof(session, &RIGHT), Proof::Right);
    assert_eq!(machine.proof(session, &WRONG), Proof::Wrong);
    assert_eq!(machine.proof(never, &RIGHT), Proof::Wrong, "it would have been created before {applied}");
    assert_eq!(machine.proof(future, &RIGHT), Proof::Unknown, "its creation may not be applied here yet");

    let refused = propose(
        &mut sequencer,
        Millis(1),
        proposals(vec![attach(2, session, WRONG), attach(3, session, RIGHT), attach(4, never, RIGHT)]),
    );
    let slots: Vec<u32> = refused.iter().map(|conn| conn.slot).collect();
    assert_eq!((slots, sequencer.commands_waiting()), (vec![2, 4], 1));
    assert_eq!(propose(&mut sequencer, Millis(1), proposals(vec![attach(5, session, WRONG)])).len(), 1);
    assert_eq!(sequencer.commands_waiting(), 1);
    assert_eq!(propose(&mut sequencer, Millis(1), proposals(vec![attach(6, future, WRONG)])), []);
    assert_eq!(sequencer.commands_waiting(), 2);
    commit(&mut sequencer);

    propose(&mut sequencer, Millis(2), proposals(vec![Command { session, ..command(3, CommandKind::CloseSession) }]));
    commit(&mut sequencer);
    assert_eq!(sequencer.machine().proof(session, &RIGHT), Proof::Wrong, "it has ended");
}

fn server() -> Server {
    let config = ShardConfig { session_timeout_min_ms: 100, ..ShardConfig::default() };
    Server::with_config(config, View::empty(7))
}

fn greeting(session: i64, password: [u8; 16]) -> Vec<u8> {
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 0,
        timeout_ms: TIMEOUT_MS,
        session_id: session,
        passwd: Some(&password),
        read_only: Some(false),
    };
    framed(|writer| request.encode(writer))
}

/// The refused one is answered out of turn; what was proposed before and behind it comes back in turn.
#[test]
fn a_refused_connection_ends_and_its_neighbours_do_not() {
    let (mut sequencer, mut server) = (leader(), server());
    let mut connect = |session: i64, password| {
        let conn = server.accept();
        server.send(conn, &greeting(session, password));
        conn
    };
    let (first, wrong) = (connect(0, RIGHT), connect(1 << 56, WRONG));
    let (gone, last) = (connect(1 << 56, WRONG), connect(0, RIGHT));
    server.hang_up(gone);
    let refused = propose(&mut sequencer, Millis(1), server.take().expect("four connect requests"));
    assert_eq!(refused, [wrong, gone]);
    server.event(ShardMessage::Refused(refused));
    let refusal = server.shard.unsent(wrong).to_vec();
    assert!(refusal.len() > 16 && refusal[8..20] == [0; 12], "session 0 with timeout 0: {refusal:?}");
    server.sent(wrong, refusal.len());
    assert_eq!(server.out.closed, [(gone, Close::HungUp), (wrong, Close::SessionRefused)]);
    commit(&mut sequencer).into_iter().for_each(|batch| server.apply(batch));
    assert!(
        !server.shard.unsent(first).is_empty() && !server.shard.unsent(last).is_empty(),
        "both have their sessions"
    );
    assert_eq!((sequencer.sessions_alive(), server.out.closed.len()), (2, 2));
}

/// The owner's connection is another one, which a stranger's attempt does not disturb.
#[test]
fn the_owner_keeps_its_connection_when_a_stranger_attaches() {
    let (mut sequencer, mut server) = (leader(), server());
    let owner = server.accept();
    server.send(owner, &greeting(0, [0; 16]));
    propose(&mut sequencer, Millis(0), server.take().expect("a connect request"));
    commit(&mut sequencer).into_iter().for_each(|batch| server.apply(batch));
    let (session, _) = sequencer.sessions().iter().next().expect("one session");
    let session = *session;
    // In the log all the same, as from a follower that lags behind.
    sequencer.enqueue(Millis(1), proposals(vec![attach(77, session, WRONG)]));
    let write = CommandKind::Op(WriteOp::Check(ops::Check { path: Text::from("/"), version: -1 }));
    sequencer.enqueue(Millis(1), proposals(vec![command(78, write)]));
    let before = sequencer.sessions().get(&session).cloned();
    commit(&mut sequencer).into_iter().for_each(|batch| server.apply(batch));
    assert_eq!(sequencer.sessions().get(&session).cloned(), before);
    assert_eq!((server.shard.connections(), server.out.closed.len()), (1, 0));
    assert!(server.shard.view().zxid() > Zxid(0));
}
