//! One shard between leaders: commands that wait, connections that end, and commands that come back late.

use crate::one_shard::{Server, create, get, reconfig};
use corral_core::command::{CommandKind, Proposals};
use corral_core::features;
use corral_core::limits::ShardLimits;
use corral_core::shard::Flow;
use corral_core::shard::conn::Close;
use corral_core::shard::{Garbage, ShardMessage};
use corral_core::shared::Text;
use corral_core::tree::view::View;
use corral_wire::ErrorCode;
use std::sync::Arc;

fn server() -> Server {
    Server::new(ShardLimits::default())
}

fn taken(server: &mut Server) -> Proposals {
    server.take().expect("something was proposed")
}

fn uncertain(server: &mut Server, generation: u32, unsent_too: bool) {
    server.flow(Flow::Uncertain { generation, unsent_too });
}

#[test]
fn writes_wait_for_a_leader() {
    let mut server = server();
    let a = server.client();
    server.flow(Flow::Pause);
    server.send(a, &create(1, "/1", b""));
    assert!(!server.shard.needs_turn(), "nothing is to be passed on");
    assert!(server.take().is_none());
    server.send(a, &create(2, "/2", b""));
    server.release();
    assert!(server.shard.needs_turn());
    server.commit();
    assert_eq!(server.replies(a), [(1, 0), (2, 0)]);
}

#[test]
fn what_was_held_back_goes_in_pieces() {
    let mut server = Server::new(ShardLimits { proposals_bytes_max: 10_000, ..ShardLimits::default() });
    let clients = [server.client(), server.client()];
    server.flow(Flow::Pause);
    for xid in 1..=10 {
        for (at, client) in clients.into_iter().enumerate() {
            server.send(client, &create(xid, &format!("/{at}-{xid}"), &[0; 1500]));
        }
    }
    assert!(server.take().is_none());
    // More than any piece: it goes all the same.
    server.send(clients[0], &create(11, "/0-11", &[0; 20_000]));
    server.send(clients[0], &create(12, "/0-12", b""));
    server.release();
    let mut pieces = Vec::new();
    while let Some(piece) = server.take() {
        assert!(piece.bytes <= 10_000 || piece.commands.len() == 1, "{} bytes", piece.bytes);
        pieces.push(piece);
    }
    assert_eq!(pieces.len(), 6);
    pieces.into_iter().for_each(|piece| server.commit_these(piece));
    let all = |last| (1..=last).map(|xid| (xid, 0)).collect::<Vec<(i32, i32)>>();
    assert_eq!((server.replies(clients[0]), server.replies(clients[1])), (all(12), all(10)));
}

#[test]
fn only_those_with_something_sent_are_sent_away() {
    let mut server = server();
    let (idle, sent, both, unsent) = (server.client(), server.client(), server.client(), server.client());
    server.send(sent, &create(1, "/sent", b""));
    server.send(both, &create(1, "/both-1", b""));
    let lost = taken(&mut server);
    assert_eq!(lost.generation, 0);
    server.flow(Flow::Pause);
    server.send(both, &create(2, "/both-2", b""));
    server.send(unsent, &create(1, "/unsent", b""));
    // A read behind a write waits for it.
    server.send(unsent, &get(2, "/both-2"));
    uncertain(&mut server, 1, false);
    assert_eq!(server.closed(), [Close::Uncertain, Close::Uncertain]);
    assert_eq!(server.shard.connections(), 2);
    let audited = ["/sent invoked", "/both-1 invoked", "/both-2 failure"];
    assert_eq!(server.audited(), audited, "an unknown outcome is not a failure");
    server.release();
    let next = taken(&mut server);
    assert_eq!((next.commands.len(), next.generation), (1, 1), "no later write of a connection without the one before");
    server.commit_these(next);
    assert_eq!(server.replies(unsent), [(1, 0), (2, -101)]);
    server.send(idle, &create(1, "/idle", b""));
    server.commit();
    assert_eq!(server.replies(idle), [(1, 0)]);
}

#[test]
fn what_comes_back_late_answers_nobody() {
    let mut server = server();
    let (a, b) = (server.client(), server.client());
    server.send(a, &create(1, "/a", b""));
    let late = taken(&mut server);
    uncertain(&mut server, 1, false);
    assert_eq!(server.closed(), [Close::Uncertain]);
    // A later connection in the place of the former.
    let c = server.client();
    server.send(b, &create(1, "/b", b""));
    server.send(c, &create(1, "/c", b""));
    let next = taken(&mut server);
    server.commit_these(late);
    assert!(server.replies(b).is_empty() && server.replies(c).is_empty());
    server.commit_these(next);
    assert_eq!((server.replies(b), server.replies(c)), (vec![(1, 0)], vec![(1, 0)]));
}

#[test]
fn without_a_leader_for_too_long_all_who_write_are_sent_away() {
    let mut server = server();
    let (a, b) = (server.client(), server.client());
    server.flow(Flow::Pause);
    server.send(a, &create(1, "/a", b""));
    uncertain(&mut server, 1, true);
    assert_eq!(server.closed(), [Close::Uncertain]);
    server.release();
    assert!(server.take().is_none(), "what was not sent is forgotten");
    server.send(b, &get(1, "/"));
    assert_eq!(server.replies(b), [(1, 0)], "who only reads stays");
}

#[test]
fn a_snapshot_takes_the_place_of_everything() {
    let mut server = server();
    let a = server.client();
    server.send(a, &create(1, "/a", b""));
    server.send(a, &create(2, "/b", b""));
    server.commit();
    server.send(a, &create(3, "/c", b""));
    let lost = taken(&mut server);
    server.send(a, &create(4, "/d", b""));
    server.event(ShardMessage::Install(Arc::new(View::empty(9)), 3));
    assert_eq!(server.closed(), [Close::Replaced]);
    assert!(server.out.garbage.iter().any(|garbage| matches!(garbage, Garbage::View(_))));
    assert_eq!((server.shard.connections(), server.take().is_none()), (0, true));
    assert!(server.shard.view().get("/a").is_none());
    assert_eq!(lost.commands.len(), 1);
    assert!(server.take().is_none());
}

const LINES: &str = "server.1=a:1:2:participant\nserver.2=b:1:2:participant\n";

/// A server of an ensemble, with clients that may change the membership.
fn of_an_ensemble() -> Server {
    let mut server = server();
    server.features = features::RECONFIG | features::SKIP_ACL | features::ENSEMBLE;
    server.own(None, CommandKind::Configured(Text::from(LINES)));
    server
}

#[test]
fn what_is_under_way_is_answered_later() {
    let mut server = of_an_ensemble();
    let (a, b) = (server.client(), server.client());
    server.send(a, &create(1, "/a", b""));
    server.send(a, &reconfig(2, "server.3=c:1:2;3"));
    server.send(a, &create(3, "/behind", b""));
    server.send(a, &get(4, "/behind"));
    let first = taken(&mut server);
    assert_eq!(first.commands.len(), 2, "nothing is read behind it");
    server.commit_these(first);
    assert_eq!(server.replies(a), [(1, 0)]);
    server.send(b, &create(1, "/b", b""));
    server.send(b, &reconfig(2, "server.3=c:1:2:observer;3"));
    server.commit();
    assert_eq!(server.replies(b), [(1, 0)], "others go on");
    server.own(Some(b), CommandKind::ReconfigFails(ErrorCode::ReconfigInProgress));
    assert_eq!(server.replies(b), [(2, -14)]);
    server.own(Some(a), CommandKind::ReconfigBegins(Text::from("server.2=b:1:2\nserver.3=c:1:2\n")));
    assert!(server.replies(a).is_empty());
    server.own(None, CommandKind::ReconfigEnds);
    assert_eq!(server.replies(a), [(2, 0)]);
    server.commit();
    assert_eq!(server.replies(a), [(3, 0), (4, 0)]);
    server.send(a, &reconfig(5, ""));
    server.send(a, &get(6, "/zookeeper/config"));
    server.commit();
    assert_eq!(server.replies(a), [(5, 0), (6, 0)], "what needs no other server is done at once");
}

#[test]
fn what_is_under_way_ends_with_its_leader() {
    let mut server = of_an_ensemble();
    let (a, b) = (server.client(), server.client());
    server.send(a, &reconfig(1, "server.3=c:1:2;3"));
    server.commit();
    uncertain(&mut server, 1, false);
    assert_eq!(server.closed(), [Close::Uncertain]);
    server.own(Some(a), CommandKind::ReconfigFails(ErrorCode::NewConfigNoQuorum));
    uncertain(&mut server, 2, false);
    assert!(server.closed().is_empty());
    server.send(b, &create(1, "/b", b""));
    server.commit();
    assert_eq!(server.replies(b), [(1, 0)]);
}
