//! One shard and one state machine, without log or sockets: the limits on the requests under way of a connection.

use crate::one_shard::{Server, create, get, request};
use corral_core::ids::{ConnId, Millis};
use corral_core::limits::{IDENTITIES_BYTES_MAX, ShardLimits};
use corral_core::shard::conn::Close;
use corral_wire::limits::MULTI_OPS_MAX;
use corral_wire::multi::{MultiOp, encode_request};
use corral_wire::records::{DeleteRequest, GetChildrenRequest};
use corral_wire::{ErrorCode, OpCode};
use proptest::prelude::*;

fn limits(change: impl FnOnce(&mut ShardLimits)) -> ShardLimits {
    let mut limits = ShardLimits::default();
    change(&mut limits);
    limits
}

#[test]
fn writes_on_their_way_have_a_limit() {
    let mut server = Server::new(limits(|limits| limits.requests_in_flight_max = 2));
    let (a, b) = (server.client(), server.client());
    let burst: Vec<u8> = (1..=5).flat_map(|xid| create(xid, &format!("/{xid}"), b"")).collect();
    server.send(a, &burst);
    assert!(server.shard.is_stalled(a));
    let taken = server.take().expect("two of them");
    assert_eq!(taken.commands.len(), 2);
    server.send(b, &create(1, "/b", b""));
    assert!(server.shard.is_stalled(b) && server.take().is_none(), "the limit is the shard's");
    server.commit_these(taken);
    while let Some(next) = server.take() {
        assert!(next.commands.len() <= 2);
        server.commit_these(next);
    }
    assert_eq!(server.replies(a), (1..=5).map(|xid| (xid, 0)).collect::<Vec<_>>());
    assert_eq!(server.replies(b), [(1, 0)]);
}

/// In frames larger than the default: neither proposed nor weighed operation by operation.
#[test]
fn a_multi_of_more_operations_than_any_budget_allows_is_refused_as_it_is_decoded() {
    let delete = MultiOp::Delete(DeleteRequest { path: Some("/a"), version: -1 });
    let read = MultiOp::GetChildren(GetChildrenRequest { path: Some("/a"), watch: false });
    for (op, one) in [(OpCode::Multi, delete), (OpCode::MultiRead, read)] {
        let mut server = Server::new(limits(|limits| limits.frame_bytes_max = 64 << 20));
        let id = server.client();
        let ops = std::iter::repeat_n(one, MULTI_OPS_MAX + 1);
        server.send(id, &request(1, op, |writer| encode_request(writer, ops.clone())));
        assert!(server.take().is_none(), "nothing is proposed");
        assert_eq!(server.replies(id), [(1, ErrorCode::ThrottledOp.code())]);
    }
}

#[test]
fn who_sends_no_more_is_still_answered() {
    let mut server = Server::new(limits(|limits| limits.requests_in_flight_max = 2));
    let burst: Vec<u8> = (1..=5).flat_map(|xid| create(xid, &format!("/{xid}"), b"")).chain(get(6, "/5")).collect();
    let (a, b, c) = (server.client(), server.client(), server.client());
    // Some are under way, some are still held back.
    server.send(a, &burst);
    assert!(server.shard.is_stalled(a));
    // An answer that is not sent yet.
    server.send(b, &get(1, "/"));
    for id in [a, b, c] {
        server.end_input(id);
    }
    assert_eq!(server.closed(), [Close::HungUp], "nothing is owed to the third");
    server.commit();
    assert_eq!(server.replies(a), (1..=6).map(|xid| (xid, 0)).collect::<Vec<_>>());
    assert_eq!(server.replies(b), [(1, 0)]);
    assert_eq!(server.closed(), [Close::HungUp, Close::HungUp]);
    assert_eq!(server.shard.connections(), 0);
}

#[test]
fn large_requests_have_a_limit_of_their_own() {
    let mut server = Server::new(limits(|limits| {
        limits.large_request_bytes = 1000;
        limits.large_requests_bytes_max = 5000;
    }));
    let (a, b) = (server.client(), server.client());
    for xid in 1..=2 {
        server.send(a, &create(xid, &format!("/{xid}"), &[0; 2000]));
    }
    server.send(b, &create(1, "/small", &[0; 500]));
    server.send(b, &create(2, "/large", &[0; 2000]));
    server.commit();
    assert_eq!(server.replies(a), [(1, 0), (2, 0)]);
    assert_eq!(server.closed(), [Close::LargeRequests]);
    assert!(server.machine.view().get("/small").is_some() && server.machine.view().get("/large").is_none());
    server.send(a, &create(3, "/3", &[0; 2000]));
    server.commit();
    assert_eq!(server.replies(a), [(3, 0)], "what came back counts no more");
}

#[test]
fn reads_that_waited_too_long_are_throttled() {
    let mut server = Server::new(limits(|limits| limits.throttled_op_wait_ms = 100));
    let a = server.client();
    server.send(a, &[create(1, "/a", b""), get(2, "/a"), request(-2, OpCode::Ping, |_| ())].concat());
    server.now = Millis(101);
    server.commit();
    assert_eq!(server.replies(a), [(1, 0), (2, ErrorCode::ThrottledOp.code()), (-2, 0)]);
}

#[test]
fn deferred_reads_come_when_their_client_reads() {
    let mut server = Server::new(limits(|limits| limits.reply_buffer_bytes_soft_max = 10_000));
    let a = server.client();
    server.send(a, &create(1, "/a", &[0; 9000]));
    let burst: Vec<u8> = (2..=20).flat_map(|xid| get(xid, "/a")).collect();
    server.send(a, &burst);
    server.commit();
    let unsent = server.shard.unsent_bytes(a);
    assert!((9000..30_000).contains(&unsent), "{unsent} bytes wait");
    assert_eq!(server.replies(a).len(), 20, "all come when they are read");
}

#[test]
fn reads_before_a_write_never_see_it() {
    let mut server = Server::new(limits(|limits| limits.reply_buffer_bytes_soft_max = 1000));
    let a = server.client();
    server.send(a, &create(1, "/a", &[1; 900]));
    let mut burst: Vec<u8> = (2..=9).flat_map(|xid| get(xid, "/a")).collect();
    let set = request(10, OpCode::SetData, |writer| {
        writer.str("/a");
        writer.buffer(Some(&[2; 900]));
        writer.i32(-1);
    });
    burst.extend(set);
    server.send(a, &burst);
    server.commit();
    let frames = server.take_frames(a);
    assert_eq!(frames.len(), 10);
    for frame in &frames[1..9] {
        assert_eq!(frame[20], 1, "a read in front of the write shows the state before it");
    }
}

#[test]
fn reads_before_a_write_are_refused_once_too_much_waits_to_be_sent() {
    let mut server = Server::new(limits(|limits| {
        limits.reply_buffer_bytes_soft_max = 1000;
        limits.reply_buffer_bytes_hard_max = 5000;
    }));
    let a = server.client();
    server.send(a, &create(1, "/a", &[0; 2000]));
    server.commit();
    assert_eq!(server.replies(a), [(1, 0)]);
    let set = |xid| {
        request(xid, OpCode::SetData, |writer| {
            writer.str("/a");
            writer.buffer(Some(&[1; 2000]));
            writer.i32(-1);
        })
    };
    let mut burst = set(2);
    burst.extend((3..=20).flat_map(|xid| get(xid, "/a")));
    burst.extend(set(21));
    server.send(a, &burst);
    server.commit();
    assert!(server.shard.unsent_bytes(a) < 10_000);
    let replies = server.replies(a);
    let throttled = replies.iter().filter(|(_, err)| *err == ErrorCode::ThrottledOp.code()).count();
    assert_eq!((replies.len(), throttled), (20, 15));
    assert_eq!(replies.last(), Some(&(21, 0)));
}

#[test]
fn a_reply_larger_than_all_limits_arrives() {
    let mut server = Server::new(limits(|limits| {
        limits.reply_buffer_bytes_soft_max = 1000;
        limits.reply_buffer_bytes_hard_max = 5000;
    }));
    let (a, b) = (server.client(), server.client());
    for xid in 1..=1000 {
        server.send(a, &create(xid, &format!("/node-{xid}"), b""));
    }
    server.commit();
    assert_eq!(server.replies(a).len(), 1000);
    let watched_list = request(1, OpCode::GetChildren, |writer| {
        writer.str("/");
        writer.bool(true);
    });
    server.send(b, &watched_list);
    server.send(a, &create(1001, "/late", b""));
    server.commit();
    assert_eq!(server.closed(), [], "an event behind a large reply is no offence");
    assert_eq!(server.replies(b), [(1, 0), (-1, 0)]);
}

#[test]
fn who_does_not_read_its_events_is_ended() {
    let mut server = Server::new(limits(|limits| limits.reply_buffer_bytes_hard_max = 5000));
    let (a, b) = (server.client(), server.client());
    let everything = request(1, OpCode::AddWatch, |writer| {
        writer.str("/");
        writer.i32(1);
    });
    server.send(b, &everything);
    for xid in 1..=200 {
        server.send(a, &create(xid, &format!("/node-{xid}"), b""));
        server.commit();
    }
    assert_eq!(server.closed(), [Close::SlowReader]);
    assert_eq!(server.replies(a).len(), 200);
}

#[test]
fn all_connections_together_have_a_limit_on_what_waits() {
    let mut server = Server::new(limits(|limits| {
        limits.reply_buffer_bytes_soft_max = 2000;
        limits.reply_buffer_bytes_hard_max = 1_000_000;
        limits.reply_buffer_bytes_total_max = 10_000;
    }));
    let a = server.client();
    let watchers: Vec<ConnId> = (0..8).map(|_| server.client()).collect();
    let everything = request(1, OpCode::AddWatch, |writer| {
        writer.str("/");
        writer.i32(1);
    });
    for watcher in &watchers {
        server.send(*watcher, &everything);
    }
    for xid in 1..=200 {
        server.send(a, &create(xid, &format!("/node-{xid}"), b""));
        server.commit();
        assert_eq!(server.replies(a), [(xid, 0)], "who reads is served");
    }
    let waiting: usize = watchers.iter().map(|watcher| server.shard.unsent_bytes(*watcher)).sum();
    assert!(waiting < 10_000 + 8 * 100, "{waiting} bytes wait");
    let closed = server.closed();
    assert!(!closed.is_empty() && closed.iter().all(|why| *why == Close::SlowReader), "{closed:?}");
}

#[test]
fn a_moderate_reply_does_not_wait_behind_large_ones() {
    const LARGE: usize = 1_000_000;
    let reply_buffer_bytes_total_max = 8 * LARGE;
    let limits = ShardLimits { reply_buffer_bytes_total_max, turn_cost_max: usize::MAX, ..ShardLimits::default() };
    let mut server = Server::new(limits);
    let a = server.client();
    server.send(a, &create(1, "/large", &vec![7; LARGE]));
    server.commit();
    server.send(a, &create(2, "/moderate", &vec![7; 100_000]));
    server.commit();
    assert_eq!(server.replies(a), [(1, 0), (2, 0)]);
    let slow: Vec<ConnId> = (0..12).map(|_| server.client()).collect();
    for id in &slow {
        server.send(*id, &get(1, "/large"));
    }
    let served = slow.iter().filter(|id| server.shard.unsent_bytes(**id) > LARGE).count();
    assert!((3..8).contains(&served), "{served} of 12 have their reply, the others wait for memory");
    server.send(a, &get(3, "/moderate"));
    assert_eq!(server.replies(a), [(3, 0)]);
    server.send(a, &get(4, "/large"));
    assert_eq!(server.replies(a), [], "it waits as theirs do");
}

#[test]
fn connections_that_wait_for_memory_do_not_keep_each_other_waiting() {
    const REQUESTS: i32 = 3_000;
    let mut server = Server::new(ShardLimits {
        reply_buffer_bytes_total_max: 1 << 20,
        turn_cost_max: 50_000,
        ..ShardLimits::default()
    });
    let clients: Vec<ConnId> = (0..40).map(|_| server.client()).collect();
    let burst: Vec<u8> = (1..=REQUESTS).flat_map(|xid| get(xid, "/")).collect();
    for client in &clients {
        server.send(*client, &burst);
    }
    let mut replies = 0;
    while server.shard.needs_turn() {
        server.turn();
        replies += clients.iter().map(|client| server.replies(*client).len()).sum::<usize>();
    }
    assert_eq!(replies, clients.len() * REQUESTS as usize);
}

#[test]
fn a_walk_goes_on_between_other_work_and_keeps_the_order() {
    let mut server = Server::new(ShardLimits::default());
    let (a, b) = (server.client(), server.client());
    for xid in 1..=2500 {
        server.send(a, &create(xid, &format!("/zookeeper/{xid}"), b""));
        server.commit();
    }
    assert_eq!(server.replies(a).len(), 2500);
    let count = request(1, OpCode::GetAllChildrenNumber, |writer| writer.str("/zookeeper"));
    server.send(a, &[count, get(2, "/")].concat());
    assert!(server.shard.needs_turn() && server.shard.is_stalled(a));
    server.send(b, &get(1, "/"));
    assert_eq!(server.replies(b), [(1, 0)], "others are served meanwhile");
    while server.shard.needs_turn() {
        server.turn();
    }
    let frames = server.take_frames(a);
    assert_eq!(frames.len(), 2);
    assert_eq!(frames[0][16..], 2502_i32.to_be_bytes());
    server.hang_up(a);
}

#[test]
fn identities_may_be_so_long() {
    let auth = |user_bytes: usize| {
        request(-4, OpCode::Auth, |writer| {
            writer.i32(0);
            writer.str("digest");
            writer.buffer(Some(format!("{}:secret", "u".repeat(user_bytes)).as_bytes()));
        })
    };
    let mut server = Server::new(ShardLimits::default());
    let a = server.client();
    server.send(a, &auth(1500));
    assert_eq!(server.replies(a), [(-4, 0)]);
    server.send(a, &auth(600));
    assert_eq!(server.closed(), [Close::IdentityLimit], "all together");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// A connection proves any identities in any turns: its commands carry no more than the limits, and it is ended
    /// beyond them.
    #[test]
    fn the_identities_of_a_connection_are_bounded_in_number_and_bytes(
        users in proptest::collection::vec(prop_oneof![1_usize..30, 200_usize..3000], 1..24),
        again in any::<bool>(),
    ) {
        let mut server = Server::new(limits(|_| {}));
        let (a, most) = (server.client(), ShardLimits::default().identities_per_connection_max);
        // The address counts too.
        let (mut proven, mut bytes) = (1, 10 + "ip".len() + "127.0.0.1".len());
        for (number, user_bytes) in users.iter().enumerate() {
            let credentials = format!("{}{number}:secret", "u".repeat(*user_bytes));
            let id = corral_core::tree::acl::digest_id(credentials.as_bytes(), corral_core::tree::acl::sha1);
            for _ in 0..=usize::from(again) {
                server.send(a, &request(-4, OpCode::Auth, |writer| {
                    writer.i32(0);
                    writer.string(Some("digest"));
                    writer.buffer(Some(credentials.as_bytes()));
                }));
            }
            proven += 1;
            bytes += 10 + "digest".len() + id.len();
            // A list may hold some bytes more, which its command counts for.
            if proven > most || bytes > IDENTITIES_BYTES_MAX + 50 {
                prop_assert_eq!(server.closed(), [Close::IdentityLimit]);
                return Ok(());
            }
            server.send(a, &create(1, &format!("/{number}"), b""));
            let taken = server.take().expect("a write");
            let whom = &taken.identities[taken.commands[0].identities as usize];
            prop_assert_eq!(whom.len(), proven);
            let sum: usize = whom.iter().map(|who| 10 + who.scheme.len() + who.id.len()).sum();
            prop_assert_eq!(sum, bytes);
            server.commit_these(taken);
            server.take_frames(a);
        }
        prop_assert_eq!(server.closed(), []);
    }
}
