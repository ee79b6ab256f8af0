//! One shard and one state machine, without log or sockets: costly writes of some clients and cheap ones of others.

use crate::one_shard::{Server, create, get, request};
use corral_core::command::{Command, CommandKind, Proposals};
use corral_core::ids::{ConnId, Millis};
use corral_core::limits::ShardLimits;
use corral_core::shard::conn::Close;
use corral_wire::OpCode;
use proptest::prelude::*;

/// A multi of so many checks of the root; 10,000 cost some 20 ms.
fn checks(xid: i32, count: usize) -> Vec<u8> {
    request(xid, OpCode::Multi, |writer| {
        for _ in 0..count {
            writer.i32(OpCode::Check.number());
            writer.bool(false);
            writer.i32(-1);
            writer.str("/");
            writer.i32(-1);
        }
        writer.i32(-1);
        writer.bool(true);
        writer.i32(-1);
    })
}

const COSTLY: usize = 10_000;

/// A server with a driver that takes all proposals at once, and that does all its work in one turn.
fn server() -> Server {
    Server::new(ShardLimits { proposals_bytes_max: usize::MAX, turn_cost_max: usize::MAX, ..ShardLimits::default() })
}

fn checks_of(command: &Command) -> usize {
    match &command.kind {
        CommandKind::Multi(ops) => ops.len(),
        _ => 0,
    }
}

/// Takes everything that is proposed now; gives the connection of each command.
fn proposed(server: &mut Server) -> (Vec<Proposals>, Vec<ConnId>) {
    let taken: Vec<Proposals> = std::iter::from_fn(|| server.take()).collect();
    let commands = taken.iter().flat_map(|proposals| &proposals.commands);
    let by = commands.map(|command| command.origin.expect("a client's").conn).collect();
    (taken, by)
}

#[test]
fn a_cheap_write_waits_for_few_costly_ones() {
    let mut server = server();
    let hostile: Vec<ConnId> = (0..10).map(|_| server.client()).collect();
    let polite = server.client();
    for id in &hostile {
        server.send(*id, &[checks(1, COSTLY), checks(2, COSTLY)].concat());
    }
    server.send(polite, &create(1, "/polite", b""));
    let (taken, by) = proposed(&mut server);
    assert_eq!(by, [hostile[0], polite], "one costly write is in flight, and what is cheap goes past those that wait");
    taken.into_iter().for_each(|taken| server.commit_these(taken));
    assert_eq!(server.replies(polite), [(1, 0)]);
    let mut order = vec![hostile[0]];
    while let Some(taken) = server.take() {
        order.extend(taken.commands.iter().map(|command| command.origin.expect("a client's").conn));
        assert_eq!(taken.commands.len(), 1);
        server.commit_these(taken);
    }
    let queue = [&hostile[..1], &hostile[1..], &hostile[1..]].concat();
    assert_eq!(order[1..], queue, "each has its turn, in the order of their coming");
    for id in hostile {
        assert_eq!(server.replies(id), [(1, 0), (2, 0)]);
    }
}

#[test]
fn a_small_write_waits_for_few_megabytes() {
    let mut server = server();
    let hostile: Vec<ConnId> = (0..30).map(|_| server.client()).collect();
    let polite = server.client();
    let large = vec![7; 900_000];
    for (id, at) in hostile.iter().zip(0..) {
        server.send(*id, &[create(1, &format!("/{at}"), &large), create(2, &format!("/{at}-"), b"")].concat());
    }
    server.send(polite, &create(1, "/polite", &large[..100_000]));
    let (taken, by) = proposed(&mut server);
    assert_eq!(by.last(), Some(&polite), "what is not large goes past what waits");
    let large_ones = by.iter().filter(|id| **id != polite).count() / 2;
    assert!((2..6).contains(&large_ones), "{large_ones} of 30 large writes are in flight");
    taken.into_iter().for_each(|taken| server.commit_these(taken));
    server.commit();
    assert_eq!(server.replies(polite), [(1, 0)]);
    for id in hostile {
        assert_eq!(server.replies(id), [(1, 0), (2, 0)]);
    }
}

#[test]
fn a_long_pipeline_of_cheap_writes_is_costly_too() {
    let mut server = server();
    let (a, b) = (server.client(), server.client());
    let some: Vec<u8> = (1..=900).flat_map(|xid| checks(xid, 100)).collect();
    server.send(a, &some);
    server.send(b, &create(1, "/b", b""));
    let (taken, by) = proposed(&mut server);
    assert!((50..200).contains(&by.len()), "{} of 900 multis are in flight", by.len());
    assert_eq!(by.last(), Some(&b));
    taken.into_iter().for_each(|taken| server.commit_these(taken));
    server.commit();
    assert_eq!(server.replies(a), (1..=900).map(|xid| (xid, 0)).collect::<Vec<_>>());
}

#[test]
fn who_waits_with_a_costly_write_is_not_silent_and_may_leave() {
    let mut server = server();
    let clients: Vec<ConnId> = (0..4).map(|_| server.client()).collect();
    for id in &clients {
        server.send(*id, &[checks(1, COSTLY), checks(2, COSTLY), get(3, "/")].concat());
    }
    for at in 1..100 {
        server.now = Millis(at * 1000);
        server.tick();
    }
    assert_eq!(server.closed(), [], "they wait for the server");
    server.hang_up(clients[1]);
    assert_eq!(server.closed(), [Close::HungUp]);
    server.commit();
    for id in [clients[0], clients[2], clients[3]] {
        assert_eq!(server.replies(id), [(1, 0), (2, 0), (3, 0)]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn all_are_answered_in_order_and_what_is_in_flight_is_bounded(
        sent in prop::collection::vec((0..5_usize, prop::sample::select(vec![0, 1, 50, 2000, COSTLY]), 1..4), 1..60),
        hanging_up in prop::option::of(0..5_usize),
    ) {
        let mut server = server();
        let clients: Vec<ConnId> = (0..5).map(|_| server.client()).collect();
        let mut xids = [0; 5];
        for (who, count, times) in sent {
            let burst: Vec<u8> = (1..=times)
                .flat_map(|time| {
                    let xid = xids[who] + time;
                    if count == 0 { get(xid, "/") } else { checks(xid, count) }
                })
                .collect();
            xids[who] += times;
            server.send(clients[who], &burst);
        }
        if let Some(who) = hanging_up {
            server.hang_up(clients[who]);
        }
        let mut replies = vec![Vec::new(); 5];
        let mut read = |server: &mut Server| {
            for (who, id) in clients.iter().enumerate().filter(|(who, _)| hanging_up != Some(*who)) {
                replies[who].extend(server.replies(*id));
            }
        };
        read(&mut server);
        while let Some(taken) = server.take() {
            let costly: Vec<usize> = taken.commands.iter().map(checks_of).filter(|checks| *checks >= 2000).collect();
            let before_the_last: usize = costly.iter().rev().skip(1).sum();
            prop_assert!(before_the_last < COSTLY, "{costly:?}");
            server.commit_these(taken);
            read(&mut server);
        }
        for (who, replies) in replies.into_iter().enumerate().filter(|(who, _)| hanging_up != Some(*who)) {
            prop_assert_eq!(replies, (1..=xids[who]).map(|xid| (xid, 0)).collect::<Vec<_>>());
        }
    }
}
