//! The limits on reads, with any requests in any turns. Unsent bytes stay within the sum that all connections have. A
//! turn ends when its work is done, and every request is answered once, in its place.

use crate::one_shard::{Server, create, request};
use corral_core::ids::ConnId;
use corral_core::limits::{MULTI_READ_COST_MAX, ShardLimits, TURN_COST_MAX};
use corral_wire::{ErrorCode, OpCode, Writer};
use proptest::collection::vec;
use proptest::prelude::*;

/// The least that may be configured.
const UNSENT_BYTES_MAX: usize = 1 << 20;
/// Bytes that one connection may hold while the others hold little; no list is longer.
const REPLY_BYTES_HARD: usize = 1 << 20;
/// Bytes that a connection may always hold.
const FREE_BYTES: usize = 16 << 10;
/// Less than the server's, so that many turns are needed.
const TURN_COST: usize = 50_000;
const CHILDREN: usize = 300;
/// Turns in which all must be answered.
const ROUNDS_MAX: usize = 10_000;

#[derive(Clone, Debug)]
enum Ask {
    Data(usize),
    Children,
    Children2,
    Filtered,
    Count,
    Ephemerals,
    SetWatches(usize),
    Multi(Vec<bool>),
}

fn ask() -> impl Strategy<Value = Ask> {
    prop_oneof![
        3 => (0..CHILDREN).prop_map(Ask::Data),
        3 => Just(Ask::Children),
        2 => Just(Ask::Children2),
        1 => Just(Ask::Filtered),
        1 => Just(Ask::Count),
        1 => Just(Ask::Ephemerals),
        1 => (1_usize..20).prop_map(Ask::SetWatches),
        2 => vec(prop::bool::weighted(0.2), 1..40).prop_map(Ask::Multi),
    ]
}

fn name(number: usize, bytes: usize) -> String {
    format!("/p/{number:0>bytes$}")
}

fn list(writer: &mut Writer<'_>) {
    writer.str("/p");
    writer.bool(false);
}

impl Ask {
    fn frame(&self, xid: i32, name_bytes: usize) -> Vec<u8> {
        let child = |number: usize| name(number, name_bytes);
        match self {
            Ask::Data(number) => crate::one_shard::get(xid, &child(*number)),
            Ask::Children => request(xid, OpCode::GetChildren, list),
            Ask::Children2 => request(xid, OpCode::GetChildren2, list),
            Ask::Filtered => request(xid, OpCode::FilteredList, |writer| {
                list(writer);
                writer.u8(1);
            }),
            Ask::Count => request(xid, OpCode::GetAllChildrenNumber, |writer| writer.str("/p")),
            Ask::Ephemerals => request(xid, OpCode::GetEphemerals, |writer| writer.str("/p")),
            Ask::SetWatches(count) => request(xid, OpCode::SetWatches, |writer| {
                writer.i64(i64::MAX >> 1);
                writer.i32(i32::try_from(*count).expect("few"));
                (0..*count).for_each(|number| writer.str(&child(number)));
                writer.i32(0);
                writer.i32(0);
            }),
            Ask::Multi(lists) => request(xid, OpCode::MultiRead, |writer| {
                for (at, lists) in lists.iter().enumerate() {
                    let op = if *lists { OpCode::GetChildren } else { OpCode::GetData };
                    writer.i32(op as i32);
                    writer.bool(false);
                    writer.i32(-1);
                    writer.str(&if *lists { "/p".to_owned() } else { child(at) });
                    writer.bool(false);
                }
                writer.i32(-1);
                writer.bool(true);
                writer.i32(-1);
            }),
        }
    }
}

/// A shard with `/p` and children of it, with names of so many bytes and data of so many.
fn server(name_bytes: usize, data_bytes: usize) -> Server {
    let limits = ShardLimits {
        reply_buffer_bytes_total_max: UNSENT_BYTES_MAX,
        reply_buffer_bytes_hard_max: REPLY_BYTES_HARD,
        turn_cost_max: TURN_COST,
        ..ShardLimits::default()
    };
    let mut server = Server::new(limits);
    let writer = server.client();
    server.send(writer, &create(1, "/p", b""));
    for number in 0..CHILDREN {
        server.send(writer, &create(1, &name(number, name_bytes), &vec![7; data_bytes]));
        server.commit();
        server.take_frames(writer);
    }
    server.hang_up(writer);
    server.closed();
    server
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_waits_and_what_a_turn_does_is_bounded_whatever_is_read(
        name_bytes in prop_oneof![4_usize..40, 200_usize..300, 800_usize..1000],
        data_bytes in prop_oneof![Just(0_usize), 1000_usize..30_000],
        asked in vec((0_usize..4, vec(ask(), 1..6)), 1..12),
    ) {
        let mut server = server(name_bytes, data_bytes);
        // The last two read nothing before the end.
        let clients: Vec<ConnId> = (0..4).map(|_| server.client()).collect();
        let (mut sent, mut got) = (vec![0_i32; 4], vec![Vec::new(); 4]);
        let in_one_go = asked.iter().flat_map(|(_, asks)| asks).any(|ask| matches!(ask, Ask::Multi(_)));
        // A turn goes beyond its work by one request, or one piece of it.
        let turn_max = TURN_COST + TURN_COST_MAX + if in_one_go { MULTI_READ_COST_MAX } else { 0 };
        let most = UNSENT_BYTES_MAX + REPLY_BYTES_HARD + 4 * FREE_BYTES;
        let check = |server: &Server| {
            let waiting: usize = clients.iter().map(|id| server.shard.unsent_bytes(*id)).sum();
            prop_assert!(waiting <= most, "{} bytes wait, {} may", waiting, most);
            let spent = server.shard.spent();
            prop_assert!(spent <= turn_max, "a turn of {}", spent);
            Ok(())
        };
        for (who, asks) in &asked {
            let burst: Vec<u8> = asks.iter().enumerate().flat_map(|(at, ask)| {
                ask.frame(sent[*who] + 1 + i32::try_from(at).expect("few"), name_bytes)
            }).collect();
            sent[*who] += i32::try_from(asks.len()).expect("few");
            server.send(clients[*who], &burst);
            check(&server)?;
            for round in 0..20 {
                if server.shard.needs_turn() {
                    server.turn();
                    check(&server)?;
                }
                got[round % 2].extend(server.replies(clients[round % 2]));
                check(&server)?;
            }
        }
        let mut rounds = 0;
        while (0..4).any(|who| got[who].len() < usize::try_from(sent[who]).expect("few")) {
            rounds += 1;
            prop_assert!(rounds < ROUNDS_MAX, "answered {:?} of {:?}", got.iter().map(Vec::len).collect::<Vec<_>>(), sent);
            if server.shard.needs_turn() {
                server.turn();
                check(&server)?;
            }
            for (who, id) in clients.iter().enumerate() {
                got[who].extend(server.replies(*id));
                server.send(*id, b"");
                check(&server)?;
            }
        }
        for (who, got) in got.iter().enumerate() {
            let xids: Vec<i32> = got.iter().map(|(xid, _)| *xid).collect();
            prop_assert_eq!(xids, (1..=sent[who]).collect::<Vec<_>>());
            let known = [0, ErrorCode::ThrottledOp as i32];
            prop_assert!(got.iter().all(|(_, error)| known.contains(error)), "{:?}", got);
        }
        prop_assert_eq!(server.closed(), []);
    }
}
