//! One shard with linearizable reads: reads that wait for the leader's answer, and reads that share one.

use crate::one_shard::{Server, create, get, request};
use corral_core::ids::ConnId;
use corral_core::shard::ShardMessage;
use corral_wire::OpCode;

/// The leader answers the barriers asked so far.
fn answer(server: &mut Server) -> Vec<ConnId> {
    let asked = server.take_syncs();
    for id in &asked {
        server.event(ShardMessage::Synced(vec![*id]));
    }
    asked
}

fn ping(xid: i32) -> Vec<u8> {
    request(xid, OpCode::Ping, |_| {})
}

#[test]
fn reads_that_come_together_share_one_word_of_the_leader() {
    let mut server = Server::linearizable();
    let a = server.client();
    server.send(a, &[get(1, "/"), get(2, "/none"), get(3, "/")].concat());
    assert!(server.replies(a).is_empty());
    assert_eq!(answer(&mut server), [a]);
    assert_eq!(server.replies(a), [(1, 0), (2, -101), (3, 0)]);
    server.send(a, &get(4, "/"));
    let first = server.take_syncs();
    server.send(a, &get(5, "/"));
    assert_eq!((first.len(), server.take_syncs().len()), (1, 1), "it came later");
    server.event(ShardMessage::Synced(vec![a]));
    assert_eq!(server.replies(a), [(4, 0)]);
    server.event(ShardMessage::Synced(vec![a]));
    assert_eq!(server.replies(a), [(5, 0)]);
}

#[test]
fn a_read_behind_a_write_waits_for_both() {
    let mut server = Server::linearizable();
    let a = server.client();
    server.send(a, &[create(1, "/a", b""), get(2, "/a")].concat());
    answer(&mut server);
    assert!(server.replies(a).is_empty());
    server.commit();
    assert_eq!(server.replies(a), [(1, 0), (2, 0)]);
    server.send(a, &[create(3, "/b", b""), get(4, "/b")].concat());
    server.commit();
    assert_eq!(server.replies(a), [(3, 0)]);
    answer(&mut server);
    assert_eq!(server.replies(a), [(4, 0)]);
}

#[test]
fn a_read_before_a_write_that_comes_back_waits_no_longer_and_does_not_see_it() {
    let mut server = Server::linearizable();
    let a = server.client();
    server.send(a, &[get(1, "/a"), get(2, "/"), create(3, "/a", b""), get(4, "/a")].concat());
    server.commit();
    assert_eq!(server.replies(a), [(1, -101), (2, 0), (3, 0), (4, 0)], "the last came before the write was proposed");
    answer(&mut server);
    server.send(a, &[get(5, "/"), create(6, "/b", b"")].concat());
    assert_eq!(server.take_syncs(), [a]);
    server.send(a, &get(7, "/b"));
    server.commit();
    assert_eq!(server.replies(a), [(5, 0), (6, 0)]);
    server.event(ShardMessage::Synced(vec![a]));
    assert!(server.replies(a).is_empty(), "that was the word for the first");
    answer(&mut server);
    assert_eq!(server.replies(a), [(7, 0)]);
}

#[test]
fn a_sync_is_answered_by_its_own_word_and_pings_by_none() {
    let mut server = Server::linearizable();
    let a = server.client();
    server.send(a, &ping(-2));
    assert_eq!(server.replies(a), [(-2, 0)]);
    server.send(a, &get(1, "/"));
    let read = server.take_syncs();
    server.send(a, &request(2, OpCode::Sync, |writer| writer.str("/")));
    let sync = server.take_syncs();
    assert_eq!((read, sync), (vec![a], vec![a]));
    server.event(ShardMessage::Synced(vec![a]));
    assert_eq!(server.replies(a), [(1, 0)]);
    server.event(ShardMessage::Synced(vec![a]));
    assert_eq!(server.replies(a), [(2, 0)]);
}

#[test]
fn a_count_of_descendants_waits_as_well() {
    let mut server = Server::linearizable();
    let a = server.client();
    server.send(a, &request(1, OpCode::GetAllChildrenNumber, |writer| writer.str("/")));
    assert_eq!(server.take_syncs(), [a]);
    assert!(!server.shard.needs_turn());
    server.event(ShardMessage::Synced(vec![a]));
    server.turn();
    assert_eq!(server.replies(a), [(1, 0)]);
}
