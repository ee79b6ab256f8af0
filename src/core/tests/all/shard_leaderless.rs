//! One shard without a leader: when connections are closed, which are accepted, and the rights of a read-only session.

use crate::one_shard::{Server, create, framed, get, request};
use corral_core::ids::SessionId;
use corral_core::ids::{ConnId, Millis};
use corral_core::limits::{DRAIN_WAIT_MS, ShardLimits};
use corral_core::shard::conn::Close;
use corral_core::shard::{Flow, ShardMessage};
use corral_core::tree::view::View;
use corral_wire::records::{ConnectRequest, ConnectResponse, ReplyHeader};
use corral_wire::{OpCode, Reader};

const NOT_READ_ONLY: i32 = -119;

/// A server with one znode, `/there`.
fn server() -> Server {
    let mut server = Server::new(ShardLimits::default());
    let writer = server.client();
    server.send(writer, &create(1, "/there", b"x"));
    server.commit();
    server.hang_up(writer);
    server.tick();
    server.closed();
    server
}

fn hold_and_go(server: &mut Server) {
    server.flow(Flow::Pause);
    server.flow(Flow::Leaderless);
}

/// A connection that asks for a session.
fn connect(server: &mut Server, read_only: Option<bool>, session_id: i64, passwd: [u8; 16], zxid: i64) -> ConnId {
    let id = server.accept();
    let bytes = framed(|writer| {
        ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: zxid,
            timeout_ms: 30_000,
            session_id,
            passwd: Some(&passwd),
            read_only,
        }
        .encode(writer);
    });
    server.send(id, &bytes);
    id
}

/// Session, password and timeout of the only answer there is, which must tell that it is read-only.
fn granted(server: &mut Server, id: ConnId) -> (i64, [u8; 16], i32) {
    let frames = server.take_frames(id);
    assert_eq!(frames.len(), 1, "one answer to the connect request");
    let response = ConnectResponse::decode(&mut Reader::new(&frames[0])).expect("an answer");
    assert_eq!(response.read_only, Some(true));
    let passwd = response.passwd.expect("a password").try_into().expect("sixteen bytes");
    (response.session_id, passwd, response.timeout_ms)
}

fn reader(server: &mut Server) -> ConnId {
    let id = connect(server, Some(true), 0, [0; 16], 0);
    assert_ne!(granted(server, id).0, 0);
    id
}

#[test]
fn everybody_is_sent_away_and_only_who_asks_may_read() {
    let mut server = server();
    let idle = server.client();
    server.flow(Flow::Pause);
    server.send(idle, &get(1, "/there"));
    assert_eq!(server.replies(idle), [(1, 0)], "reads are served for the length of an election");
    server.flow(Flow::Leaderless);
    assert_eq!(server.closed(), [Close::NoLeader]);
    for read_only in [None, Some(false)] {
        connect(&mut server, read_only, 0, [0; 16], 0);
        assert_eq!(server.closed(), [Close::NoLeader], "at once, without an answer");
    }
    let reader = reader(&mut server);
    assert!(server.take().is_none(), "nothing is proposed");
    server.send(reader, &get(1, "/there"));
    server.send(reader, &create(2, "/no", b""));
    server.send(reader, &request(3, OpCode::Sync, |writer| writer.str("/")));
    server.send(reader, &request(4, OpCode::Multi, |writer| writer.i32(0)));
    server.send(reader, &get(5, "/no"));
    let refused = |xid| (xid, NOT_READ_ONLY);
    assert_eq!(server.replies(reader), [(1, 0), refused(2), refused(3), refused(4), (5, -101)]);
    server.send(reader, &request(6, OpCode::CloseSession, |_| {}));
    assert_eq!(server.replies(reader), [(6, 0)]);
    assert_eq!(server.closed(), [Close::Done]);
}

#[test]
fn a_server_that_stops_does_not_wait_long_for_a_leader() {
    let mut server = server();
    let writer = server.client();
    server.send(writer, &create(1, "/unordered", b""));
    connect(&mut server, None, 0, [0; 16], 0);
    server.flow(Flow::Pause);
    server.event(ShardMessage::Drain);
    server.now = Millis(server.now.0 + DRAIN_WAIT_MS - 1);
    server.tick();
    assert_eq!(server.closed(), [], "a leader may still be found");
    server.now = Millis(server.now.0 + 1);
    server.tick();
    assert_eq!(server.closed(), [Close::NoLeader, Close::NoLeader]);
    assert_eq!(server.shard.connections(), 0);
}

#[test]
fn a_refusal_tells_the_zxid_of_the_view() {
    let mut server = server();
    hold_and_go(&mut server);
    let reader = reader(&mut server);
    server.send(reader, &create(1, "/no", b""));
    let frames = server.take_frames(reader);
    let header = ReplyHeader::decode(&mut Reader::new(&frames[0])).expect("a header");
    assert_eq!((header.zxid, header.err), (server.shard.view().zxid().wire(), NOT_READ_ONLY));
}

#[test]
fn a_read_only_session_goes_on_with_its_password_alone() {
    let mut server = server();
    hold_and_go(&mut server);
    let first = connect(&mut server, Some(true), 0, [0; 16], 0);
    let (session, password, timeout_ms) = granted(&mut server, first);
    assert_eq!(timeout_ms, 30_000);
    let again = connect(&mut server, Some(true), session, password, 0);
    assert_eq!(granted(&mut server, again), (session, password, timeout_ms));
    let wrong = connect(&mut server, Some(true), session, [1; 16], 0);
    assert_eq!(granted(&mut server, wrong), (0, [0; 16], 0), "as if it had ended");
    // A session of the ensemble may live elsewhere.
    connect(&mut server, Some(true), 0x0100_0001_0000_0001, [7; 16], 0);
    connect(&mut server, Some(true), 0, [0; 16], i64::MAX);
    assert_eq!(server.closed(), [Close::SessionRefused, Close::NoLeader, Close::ClientAhead]);
}

/// The sessions that a tick reports.
fn active(server: &mut Server, now: Millis) -> Vec<(SessionId, Millis)> {
    server.now = now;
    server.tick();
    server.out.activity.take().expect("a tick reports").sessions
}

#[test]
fn readers_go_when_a_leader_is_found_and_nobody_hears_of_their_sessions() {
    let mut server = server();
    hold_and_go(&mut server);
    let reader = reader(&mut server);
    server.send(reader, &get(1, "/there"));
    assert_eq!(active(&mut server, Millis(200)), []);
    server.release();
    assert_eq!(server.replies(reader), [(1, 0)], "what was answered before still arrives");
    assert_eq!(server.closed(), [Close::LeaderFound]);
    assert_eq!(active(&mut server, Millis(400)), []);
    let client = server.client();
    server.send(client, &create(1, "/now", b""));
    server.commit();
    assert_eq!(server.replies(client), [(1, 0)]);
}

#[test]
fn a_session_does_not_wait_until_it_ends_elsewhere() {
    let mut server = server();
    server.client();
    let (hold_at, timeout_ms) = (Millis(500), 30_000);
    server.now = hold_at;
    server.flow(Flow::Pause);
    // A second word for it changes nothing.
    server.now = Millis(5000);
    server.flow(Flow::Pause);
    active(&mut server, Millis(499 + timeout_ms * 2 / 3));
    // If this core stalled until now, the message that a leader is found may lie unread.
    active(&mut server, Millis(500 + timeout_ms * 2 / 3));
    assert_eq!(server.closed(), []);
    active(&mut server, Millis(501 + timeout_ms * 2 / 3));
    assert_eq!(server.closed(), [Close::NoLeader]);
}

#[test]
fn a_server_without_any_state_serves_nobody() {
    let mut server = Server::with_view(ShardLimits::default(), View::empty(7));
    hold_and_go(&mut server);
    connect(&mut server, Some(true), 0, [0; 16], 0);
    assert_eq!(server.closed(), [Close::NoLeader]);
}
