//! One shard and one state machine, without log or sockets: many connections that wait, watch or close at once delay no
//! other turn. A list in pieces shows one state, with any changes below its children.

use crate::one_shard::{Server, children, create, get, request, walk, wide};
use corral_core::ids::{ConnId, Zxid};
use corral_core::limits::{LISTS_MAX, LOOK_UP_COST, LOOK_UPS_AT_ONCE, REQUEST_COST, ShardLimits, TURN_COST_MAX};
use corral_core::shard::Flow;
use corral_core::shard::conn::Close;
use corral_core::shared::Text;
use corral_core::tree::acl::{Acl, AclEntry, AclList};
use corral_core::tree::change::Change;
use corral_core::tree::view::View;
use corral_core::tree::znode::{NodeStat, Znode};
use corral_wire::records::{FilteredListWithStatsAndDataRequest, SetDataRequest, Stat};
use corral_wire::{ErrorCode, OpCode, Reader, Writer};
use std::sync::Arc;

fn set(xid: i32, path: &str) -> Vec<u8> {
    request(xid, OpCode::SetData, |writer| SetDataRequest { path: Some(path), data: None, version: -1 }.encode(writer))
}

/// Work of each turn in which what was proposed is applied.
fn turns(server: &mut Server) -> Vec<usize> {
    let mut turns = Vec::new();
    while let Some(proposals) = server.take() {
        let batch = server.evaluate(proposals);
        server.apply_in_turns(batch, |server| turns.push(server.shard.spent()));
    }
    turns
}

#[test]
fn watchers_whose_identities_are_compared_with_a_long_acl_count() {
    const WATCHERS: usize = 100;
    let entry = |at: usize| AclEntry { perms: 1, scheme: Text::from("digest"), id: Text::from(format!("u{at}:h")) };
    let writers = AclEntry { perms: 2, scheme: "world".into(), id: "anyone".into() };
    let list: Vec<AclEntry> = (0..254).map(entry).chain([writers]).collect();
    let mut view = View::empty(7);
    let (at, zxid) = (view.hashed(Text::from("/z")), view.zxid());
    let node = Znode { stat: NodeStat::default(), acl: Acl::List(Arc::new(AclList::from(list))), data: None };
    view.apply(zxid, &Change::Created { at, node: Arc::new(node) });
    let mut server = Server::with_view(ShardLimits::default(), view);
    let watchers: Vec<ConnId> = (0..WATCHERS).map(|_| server.client()).collect();
    for watcher in &watchers {
        for user in 0..10 {
            server.send(
                *watcher,
                &request(-4, OpCode::Auth, |writer| {
                    writer.i32(0);
                    writer.str("digest");
                    writer.buffer(Some(format!("someone{user}:x").as_bytes()));
                }),
            );
        }
        server.send(
            *watcher,
            &request(1, OpCode::AddWatch, |writer| {
                writer.str("/z");
                writer.i32(0);
            }),
        );
        server.take_frames(*watcher);
    }
    let a = server.client();
    server.send(a, &(1..=50).flat_map(|xid| set(xid, "/z")).collect::<Vec<u8>>());
    let turns = turns(&mut server);
    let least = 50 * WATCHERS * 254 * 10 / TURN_COST_MAX;
    assert!(turns.len() > least / 2, "{} turns", turns.len());
    assert!(turns.iter().all(|spent| *spent < 3 * TURN_COST_MAX), "{turns:?}");
    assert!(server.replies(watchers[0]).is_empty(), "none of them may read");
}

#[test]
fn those_who_wait_for_a_later_state_are_not_looked_at_before_it_comes() {
    const WAITING: usize = 500;
    let mut server = Server::with_view(ShardLimits::default(), wide(1, "n"));
    let waiting: Vec<ConnId> = (0..WAITING).map(|_| server.client()).collect();
    let a = server.client();
    server.send(a, &(1..=900).flat_map(|xid| set(xid, "/p")).collect::<Vec<u8>>());
    let (before, mut batches) = (server.shard.view().zxid(), Vec::new());
    while let Some(proposals) = server.take() {
        batches.push(server.evaluate(proposals));
    }
    // Another shard has applied all of them.
    server.applied = Zxid(before.0 + 900);
    for client in &waiting {
        server.send(*client, &get(1, "/p"));
        assert!(server.shard.unsent(*client).is_empty());
    }
    let mut spent = 0;
    for batch in batches {
        server.apply_in_turns(batch, |server| spent += server.shard.spent());
    }
    while server.shard.needs_turn() {
        server.turn();
        spent += server.shard.spent();
    }
    // Each is looked at once, and served.
    let least = 900 * 2 * REQUEST_COST + WAITING * (LOOK_UP_COST + REQUEST_COST);
    assert!((least..least * 5 / 4).contains(&spent), "{spent} are spent");
    for client in waiting {
        assert_eq!(server.replies(client), [(1, 0)]);
    }
}

#[test]
fn connections_that_close_keep_no_list_from_being_written() {
    let mut server = Server::with_view(ShardLimits::default(), wide(20 * LOOK_UPS_AT_ONCE, "n"));
    let clients: Vec<ConnId> = (0..LISTS_MAX).map(|_| server.client()).collect();
    let a = server.client();
    for client in &clients {
        // Something that it does not take, a list that is begun, and its session's end.
        server.send(*client, &[get(1, "/p"), children(2, "/p", false)].concat());
        assert!(server.shard.unsent_bytes(*client) > 0);
    }
    server.send(a, &children(1, "/p", false));
    server.flow(Flow::Leaderless);
    server.flow(Flow::Resume);
    assert!(server.closed().iter().all(|why| *why == Close::NoLeader));
    let b = server.client();
    server.send(b, &children(1, "/p", false));
    walk(&mut server);
    assert_eq!(server.replies(b), [(1, 0)], "nobody has taken anything");
}

fn whole(xid: i32, path: &str) -> Vec<u8> {
    request(xid, OpCode::FilteredListWithStatsAndData, |writer| {
        let (watch, list_type, with_stat, with_data) = (false, 0, true, true);
        FilteredListWithStatsAndDataRequest { path: Some(path), watch, list_type, with_stat, with_data }.encode(writer);
    })
}

/// The Stat of each child in the reply to a whole list.
fn stats(frame: &[u8]) -> Vec<Stat> {
    let mut reader = Reader::new(&frame[16..]);
    let names = reader.i32().expect("a count");
    (0..names).for_each(|_| assert!(reader.string().is_ok()));
    Stat::decode(&mut reader).expect("the parent's");
    let count = reader.i32().expect("a count");
    (0..count).map(|_| Stat::decode(&mut reader).expect("a Stat")).collect()
}

#[test]
fn a_list_with_stats_in_pieces_shows_no_child_that_changed_below() {
    const COUNT: usize = 10 * LOOK_UPS_AT_ONCE;
    let mut server = Server::with_view(ShardLimits::default(), wide(COUNT, "n"));
    let (a, b) = (server.client(), server.client());
    server.send(a, &whole(1, "/p"));
    assert!(server.shard.needs_turn());
    server.send(b, &create(1, &format!("/p/n{:07}/below", COUNT - 1), b""));
    server.commit();
    assert_eq!(server.replies(b), [(1, 0)]);
    walk(&mut server);
    let stats = stats(&server.take_frames(a)[0]);
    assert_eq!((stats.len(), stats.last().expect("there are some").num_children), (COUNT, 0));
}

#[test]
fn a_multi_read_of_whole_lists_is_weighed_with_their_data() {
    let (reply_buffer_bytes_hard_max, reply_buffer_bytes_total_max) = (1 << 20, 1 << 20);
    let limits = ShardLimits { reply_buffer_bytes_hard_max, reply_buffer_bytes_total_max, ..ShardLimits::default() };
    let mut server = Server::new(limits);
    let (a, b) = (server.client(), server.client());
    server.send(a, &create(1, "/l", b""));
    for at in 0..4 {
        server.send(a, &create(2 + at, &format!("/l/{at}"), &vec![7; 100_000]));
    }
    server.commit();
    server.take_frames(a);
    let lists = |xid: i32, count: usize| {
        request(xid, OpCode::MultiRead, |writer: &mut Writer<'_>| {
            for _ in 0..count {
                writer.i32(OpCode::FilteredListWithStatsAndData.number());
                writer.bool(false);
                writer.i32(-1);
                let (watch, list_type, with_stat, with_data) = (false, 0, true, true);
                FilteredListWithStatsAndDataRequest { path: Some("/l"), watch, list_type, with_stat, with_data }
                    .encode(writer);
            }
            writer.i32(-1);
            writer.bool(true);
            writer.i32(-1);
        })
    };
    server.send(a, &lists(10, 2));
    server.send(b, &lists(10, 2));
    assert_eq!((server.shard.unsent_bytes(a), server.shard.unsent_bytes(b)), (0, 0), "they wait for their turns");
    server.turn();
    assert!(server.shard.spent() > 800_000 / 4, "{} are spent", server.shard.spent());
    assert!(server.shard.unsent_bytes(a) > 800_000, "one turn has one of them");
    walk(&mut server);
    assert_eq!(server.shard.unsent_bytes(b), 0, "it waits until the other has taken his");
    assert_eq!(server.replies(a), [(10, 0)]);
    walk(&mut server);
    assert_eq!(server.replies(b), [(10, 0)]);
    server.send(a, &lists(11, 3));
    assert!(server.shard.unsent_bytes(a) < 1000, "it is refused before it is made");
    assert_eq!(server.replies(a), [(11, ErrorCode::ThrottledOp.code())]);
}

#[test]
fn a_multi_read_looks_up_many_children_in_its_turn_alone() {
    const COUNT: usize = 4000;
    let mut server = Server::with_view(ShardLimits::default(), wide(COUNT, "n"));
    let a = server.client();
    let list = request(1, OpCode::MultiRead, |writer: &mut Writer<'_>| {
        writer.i32(OpCode::FilteredListWithStatsAndData.number());
        writer.bool(false);
        writer.i32(-1);
        let (watch, list_type, with_stat, with_data) = (false, 0, true, true);
        FilteredListWithStatsAndDataRequest { path: Some("/p"), watch, list_type, with_stat, with_data }.encode(writer);
        writer.i32(-1);
        writer.bool(true);
        writer.i32(-1);
    });
    server.send(a, &list);
    assert!(server.shard.spent() < COUNT * LOOK_UP_COST / 10, "{} are spent", server.shard.spent());
    assert!(server.shard.needs_turn() && server.shard.unsent(a).is_empty());
    walk(&mut server);
    assert_eq!(server.replies(a), [(1, 0)]);
}
