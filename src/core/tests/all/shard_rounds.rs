//! Work that many connections cause at the same time is done in pieces: no call of the shard takes more than a turn's work.

use crate::one_shard::*;
use corral_core::ids::{ConnId, Millis};
use corral_core::limits::{ENDED_PIECE, MEMORY_WAIT_MS, REQUEST_COST, SLOTS_PIECE, ShardLimits, TURN_COST_MAX};
use corral_core::shard::ShardMessage;
use corral_core::shard::conn::Close;
use corral_wire::OpCode;

fn sync(xid: i32) -> Vec<u8> {
    request(xid, OpCode::Sync, |writer| writer.str("/"))
}

#[test]
fn all_silent_connections_end_after_one_tick_and_few_in_each_piece() {
    const COUNT: usize = 5 * SLOTS_PIECE + 7;
    let mut server = Server::new(ShardLimits::default());
    for _ in 0..COUNT {
        server.accept();
    }
    // Silence is judged up to the tick before.
    server.now = Millis(1_000_000);
    server.tick();
    walk(&mut server);
    assert_eq!(server.closed(), []);
    server.now = Millis(1_000_200);
    server.tick();
    let (mut pieces, mut closed) = (1, server.closed());
    while server.shard.needs_turn() {
        server.turn();
        let some = server.closed();
        assert!(some.len() <= SLOTS_PIECE, "{} at once", some.len());
        closed.extend(some);
        pieces += 1;
    }
    assert_eq!((closed.len(), pieces, server.shard.connections()), (COUNT, 6, 0));
    assert!(closed.iter().all(|why| *why == Close::NeverConnected));
}

#[test]
fn connections_that_are_held_back_wait_in_one_place_each_and_go_on_in_turn() {
    const FLIGHT: usize = 10;
    const CLIENTS: usize = 2000;
    let mut server = Server::new(ShardLimits { requests_in_flight_max: FLIGHT, ..ShardLimits::default() });
    let clients: Vec<ConnId> = (0..CLIENTS).map(|_| server.client()).collect();
    for (number, client) in clients.iter().enumerate() {
        server.send(*client, &create(1, &format!("/{number}"), b""));
    }
    // Waiting clients send more, and none waits twice because of that.
    for client in &clients {
        server.send(*client, &get(2, "/"));
    }
    let mut answered = 0;
    while let Some(proposals) = server.take() {
        let batch = server.evaluate(proposals);
        let here = &clients[answered..answered + batch.txns.len()];
        answered += batch.txns.len();
        server.apply_in_turns(batch, |server| {
            // The work of connections that go on, and not a look at all that wait.
            assert!(server.shard.spent() < 100_000, "{}", server.shard.spent());
        });
        for client in here {
            assert_eq!(server.replies(*client), [(1, 0), (2, 0)], "the first that wait are the first that go on");
        }
    }
    assert_eq!(answered, CLIENTS);
    assert!(!server.shard.needs_turn());
}

#[test]
fn connections_that_wait_for_a_state_are_served_in_turns() {
    const CLIENTS: usize = 20_000;
    let mut server = Server::new(ShardLimits::default());
    let clients: Vec<ConnId> = (0..CLIENTS).map(|_| server.client()).collect();
    let a = server.client();
    server.send(a, &create(1, "/a", b""));
    let proposals = server.take().expect("one");
    let batch = server.evaluate(proposals);
    server.applied = corral_core::ids::Zxid(server.shard.view().zxid().0 + 1);
    for client in &clients {
        server.send(*client, &get(1, "/"));
        assert!(server.shard.unsent(*client).is_empty());
    }
    server.apply(batch);
    let (mut pieces, mut before) = (0, 0);
    let served = |server: &Server| clients.iter().filter(|id| !server.shard.unsent(**id).is_empty()).count();
    while server.shard.needs_turn() {
        server.turn();
        assert!(server.shard.spent() < 2 * TURN_COST_MAX);
        let after = served(&server);
        assert!(after > before && after - before < CLIENTS / 4, "{after} after {before}");
        (pieces, before) = (pieces + 1, after);
    }
    assert!(pieces > 4 && served(&server) == CLIENTS, "{pieces} pieces");
}

#[test]
fn a_connection_whose_turn_it_is_does_not_wait_for_all_that_wait_for_a_state() {
    const CLIENTS: usize = 100;
    let mut server = Server::new(ShardLimits { turn_cost_max: REQUEST_COST / 2, ..ShardLimits::default() });
    let clients: Vec<ConnId> = (0..CLIENTS).map(|_| server.client()).collect();
    let (a, b) = (server.client(), server.client());
    walk(&mut server);
    server.send(a, &create(1, "/a", b""));
    let proposals = server.take().expect("one");
    let batch = server.evaluate(proposals);
    walk(&mut server);
    server.send(b, &[get(1, "/"), get(2, "/")].concat());
    assert_eq!(server.replies(b), [(1, 0)], "its second request waits for its turn");
    server.applied = corral_core::ids::Zxid(server.shard.view().zxid().0 + 1);
    for client in &clients {
        server.send(*client, &get(1, "/"));
    }
    server.apply(batch);
    let mut calls = 0;
    while server.shard.unsent(b).is_empty() {
        server.turn();
        calls += 1;
    }
    assert!(calls <= 5, "{calls} calls");
    let served = |server: &Server| clients.iter().filter(|id| !server.shard.unsent(**id).is_empty()).count();
    assert!(served(&server) < CLIENTS);
    walk(&mut server);
    assert_eq!(served(&server), CLIENTS);
}

#[test]
fn requests_that_are_kept_are_taken_one_by_one_in_order() {
    const COUNT: i32 = 20_000;
    let mut server = Server::new(ShardLimits::default());
    let a = server.client();
    let bytes: Vec<u8> = (1..=COUNT).flat_map(sync).collect();
    bytes.chunks(4001).for_each(|some| server.send(a, some));
    for xid in 1..=COUNT {
        assert_eq!(server.take_syncs(), [a]);
        server.event(ShardMessage::Synced(vec![a]));
        assert_eq!(server.replies(a), [(xid, 0)]);
    }
    assert!(server.take_syncs().is_empty());
}

#[test]
fn those_who_hold_memory_too_long_end_some_at_a_time() {
    const HOLDERS: usize = 3 * ENDED_PIECE;
    const DATA: usize = 20_000;
    let limits = ShardLimits { reply_buffer_bytes_total_max: HOLDERS * DATA / 2, ..ShardLimits::default() };
    let mut server = Server::new(limits);
    let writer = server.client();
    server.send(writer, &create(1, "/a", &vec![0; DATA]));
    server.commit();
    server.take_frames(writer);
    let clients: Vec<ConnId> = (0..2 * HOLDERS).map(|_| server.client()).collect();
    for client in &clients {
        server.send(*client, &get(1, "/a"));
    }
    let mut ended = 0;
    for _ in 0..4 {
        server.now = Millis(server.now.0 + MEMORY_WAIT_MS);
        server.tick();
        ended += server.closed().len();
        while server.shard.needs_turn() {
            server.turn();
            let some = server.closed().len();
            assert!(some <= ENDED_PIECE + SLOTS_PIECE, "{some} at once");
            ended += some;
        }
    }
    assert!(ended > 0 && server.shard.connections() == 1 + 2 * HOLDERS - ended, "{ended} ended");
}
