//! One shard and one state machine, without log or sockets. Reads between two writes of a client delay no other turn,
//! and the second write only so long.

use crate::one_shard::{Server, children, create, delete, get, request, walk, wide};
use corral_core::apply::outcome::AppliedBatch;
use corral_core::limits::{MULTI_READ_COST_MAX, ShardLimits, TURN_COST_MAX};
use corral_wire::records::GetChildrenRequest;
use corral_wire::{ErrorCode, OpCode, Writer};

/// Applies a batch; gives the work of its longest turn, in which others were served as well.
fn longest_turn(server: &mut Server, batch: AppliedBatch) -> usize {
    let mut longest = 0;
    server.apply_in_turns(batch, |server| {
        longest = longest.max(server.shard.spent());
        if server.shard.needs_turn() {
            server.turn();
            longest = longest.max(server.shard.spent());
        }
    });
    longest
}

#[test]
fn reads_between_two_writes_are_served_between_them_a_turn_at_a_time() {
    let mut server = Server::with_view(ShardLimits::default(), wide(5000, "n"));
    let a = server.client();
    let reads: Vec<u8> =
        (2..=40).flat_map(|xid| [children(2 * xid, "/p", false), get(2 * xid + 1, "/new")]).flatten().collect();
    server.send(a, &[create(1, "/new", b"1"), reads, delete(100, "/new"), get(101, "/new")].concat());
    let proposals = server.take().expect("two writes");
    let batch = server.evaluate(proposals);
    assert_eq!(batch.txns.len(), 2);
    let longest = longest_turn(&mut server, batch);
    assert!(longest < 2 * TURN_COST_MAX, "{longest} are spent in one turn");
    walk(&mut server);
    let between = (4..=81).map(|xid| (xid, 0));
    let expected: Vec<(i32, i32)> =
        [(1, 0)].into_iter().chain(between).chain([(100, 0), (101, ErrorCode::NoNode.code())]).collect();
    assert_eq!(server.replies(a), expected);
}

/// A multiRead that lists the children of `/p` 20 times.
fn listing(xid: i32) -> Vec<u8> {
    request(xid, OpCode::MultiRead, |writer: &mut Writer<'_>| {
        for _ in 0..20 {
            writer.i32(OpCode::GetChildren.number());
            writer.bool(false);
            writer.i32(-1);
            GetChildrenRequest { path: Some("/p"), watch: false }.encode(writer);
        }
        writer.i32(-1);
        writer.bool(true);
        writer.i32(-1);
    })
}

#[test]
fn a_costly_read_between_two_writes_waits_for_its_turn_and_keeps_its_place() {
    let mut server = Server::with_view(ShardLimits::default(), wide(5000, "n"));
    let (a, b) = (server.client(), server.client());
    server.send(a, &[create(1, "/new", b"1"), listing(2), get(3, "/new")].concat());
    server.send(b, &create(1, "/other", b""));
    server.send(a, &[delete(4, "/new"), get(5, "/new")].concat());
    let proposals = server.take().expect("three writes");
    let batch = server.evaluate(proposals);
    // The third write waits for the reads before it, which end the turn.
    let mut turns = 0;
    server.apply_in_turns(batch, |server| {
        if turns == 0 {
            assert!(server.shard.is_applying() && server.shard.spent() > TURN_COST_MAX);
            assert_eq!(server.replies(b), [(1, 0)], "a write of another client does not wait for the costly read");
        }
        turns += 1;
    });
    walk(&mut server);
    assert_eq!(server.replies(a), [(1, 0), (2, 0), (3, 0), (4, 0), (5, ErrorCode::NoNode.code())]);
    // No write comes behind: the read has its turn by itself.
    server.send(a, &[create(6, "/new", b"1"), listing(7), get(8, "/new")].concat());
    let proposals = server.take().expect("a write");
    server.commit_these(proposals);
    assert_eq!(server.replies(a), [(6, 0)]);
    walk(&mut server);
    assert_eq!(server.replies(a), [(7, 0), (8, 0)]);
}

#[test]
fn reads_that_delay_a_write_for_too_long_are_refused() {
    let mut server = Server::with_view(ShardLimits::default(), wide(5000, "n"));
    let (a, b) = (server.client(), server.client());
    let reads: Vec<u8> = (2..=100).flat_map(listing).collect();
    server.send(a, &[create(1, "/new", b"1"), reads, delete(101, "/new")].concat());
    server.send(b, &create(1, "/other", b""));
    let proposals = server.take().expect("three writes");
    let batch = server.evaluate(proposals);
    let longest = longest_turn(&mut server, batch);
    // A multiRead shows one state, so it is served in one turn.
    assert!(longest < MULTI_READ_COST_MAX / 2, "{longest} are spent in one turn");
    assert_eq!(server.replies(b), [(1, 0)]);
    let replies = server.replies(a);
    assert_eq!(replies.iter().map(|(xid, _)| *xid).collect::<Vec<_>>(), (1..=101).collect::<Vec<_>>());
    let served = replies.iter().filter(|(_, error)| *error == 0).count();
    assert!((3..60).contains(&served), "{served} are served");
    assert!(replies.iter().all(|(_, error)| [0, ErrorCode::ThrottledOp.code()].contains(error)), "{replies:?}");
    // The next are served again.
    server.send(a, &children(102, "/p", false));
    assert_eq!(server.replies(a), [(102, 0)]);
}
