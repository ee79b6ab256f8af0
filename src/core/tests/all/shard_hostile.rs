//! One shard and one state machine, without log or sockets. Requests of one client never keep the core from the others,
//! and never make it hold more than the limits allow.

use crate::one_shard::{Server, children, create, delete, get, open_znode, request, walk, wide};
use corral_core::ids::{ConnId, Millis};
use corral_core::limits::{
    LIST_BYTES_AT_ONCE, LIST_ENTRIES_AT_ONCE, LISTS_MAX, LOOK_UPS_AT_ONCE, MEMORY_WAIT_MS, NAME_BYTES_MAX, SMALL_BYTES,
    ShardLimits, TURN_COST_MAX,
};
use corral_core::shard::ShardMessage;
use corral_core::shard::conn::Close;
use corral_core::shared::Text;
use corral_core::tree::acl::{Acl, AclEntry, AclList};
use corral_core::tree::change::Change;
use corral_core::tree::view::View;
use corral_core::tree::znode::{NodeStat, Znode};
use corral_wire::records::{FilteredListRequest, ReplyHeader};
use corral_wire::{ErrorCode, OpCode, Reader, Writer};
use std::collections::BTreeSet;
use std::sync::Arc;

fn limits(change: impl FnOnce(&mut ShardLimits)) -> ShardLimits {
    let mut limits = ShardLimits::default();
    change(&mut limits);
    limits
}

fn filtered(xid: i32, path: &str, list_type: u8) -> Vec<u8> {
    request(xid, OpCode::FilteredList, |writer| {
        FilteredListRequest { path: Some(path), watch: false, list_type }.encode(writer);
    })
}

fn header(frame: &[u8]) -> ReplyHeader {
    ReplyHeader::decode(&mut Reader::new(frame)).expect("a header")
}

/// The names of a reply to getChildren or a filtered list.
fn names(frame: &[u8]) -> Vec<String> {
    let mut reader = Reader::new(&frame[16..]);
    let count = reader.i32().expect("a count");
    (0..count).map(|_| reader.string().expect("a string").expect("not null").to_owned()).collect()
}

#[test]
fn a_long_list_is_written_in_pieces_and_shows_one_state() {
    const COUNT: usize = 5 * LIST_ENTRIES_AT_ONCE;
    let mut server = Server::with_view(ShardLimits::default(), wide(COUNT, "n"));
    let (a, b) = (server.client(), server.client());
    let expected: Vec<String> = (0..COUNT).map(|number| format!("n{number:07}")).collect();
    server.send(a, &[children(1, "/p", true), get(2, "/p")].concat());
    assert!(server.shard.needs_turn() && server.shard.is_stalled(a) && server.shard.unsent(a).is_empty());
    let begun = server.shard.view().zxid();
    // Between two pieces children come and go, before and behind the place where the list has come to, some twice.
    let mut xid = 1;
    while server.shard.needs_turn() {
        server.turn();
        for number in [10, COUNT / 2, COUNT - 10] {
            let number = number + usize::try_from(xid).expect("small");
            let (gone, new) = (format!("/p/n{number:07}"), format!("/p/n{number:07}x"));
            for bytes in
                [delete(xid, &gone), create(xid + 1, &new, b""), create(xid + 2, &gone, b""), delete(xid + 3, &new)]
            {
                server.send(b, &bytes);
                server.commit();
                xid += 4;
            }
        }
        assert!(!server.replies(b).is_empty(), "others are served meanwhile");
    }
    let frames = server.take_frames(a);
    assert_eq!(frames.len(), 3, "the list, the event of its watch behind it, the next reply");
    assert_eq!((header(&frames[0]).xid, header(&frames[0]).zxid), (1, begun.wire()));
    assert_eq!(names(&frames[0]), expected);
    assert_eq!((header(&frames[1]).xid, header(&frames[2]).xid), (-1, 2));
    assert!(header(&frames[2]).zxid > begun.wire());
}

#[test]
fn a_transaction_that_changes_much_of_many_lists_waits_until_they_have_kept_it() {
    const COUNT: usize = 5 * LIST_ENTRIES_AT_ONCE;
    const CHANGES: usize = 2000;
    let mut server = Server::with_view(ShardLimits::default(), wide(COUNT, "n"));
    let readers: Vec<ConnId> = (0..=LISTS_MAX).map(|_| server.client()).collect();
    let (a, late) = (server.client(), readers[LISTS_MAX]);
    for reader in &readers[..LISTS_MAX] {
        server.send(*reader, &children(1, "/p", false));
    }
    let deletes = request(1, OpCode::Multi, |writer: &mut Writer<'_>| {
        for number in COUNT - CHANGES..COUNT {
            writer.i32(OpCode::Delete.number());
            writer.bool(false);
            writer.i32(-1);
            writer.str(&format!("/p/n{number:07}"));
            writer.i32(-1);
        }
        writer.i32(-1);
        writer.bool(true);
        writer.i32(-1);
    });
    server.send(a, &deletes);
    let proposals = server.take().expect("a multi");
    let batch = server.evaluate(proposals);
    assert_eq!(batch.txns[0].changes.len(), CHANGES);
    let mut turns = 0;
    server.apply_in_turns(batch, |server| {
        assert!(server.shard.spent() < 2 * TURN_COST_MAX, "one turn's work");
        // A list that begins now has kept nothing: it shows the state behind the transaction.
        if turns == 0 {
            server.send(late, &children(1, "/p", false));
        }
        turns += 1;
    });
    assert!(turns > 4, "{turns} turns");
    walk(&mut server);
    for reader in &readers[..LISTS_MAX] {
        assert_eq!(names(&server.take_frames(*reader)[0]).len(), COUNT);
    }
    assert_eq!(names(&server.take_frames(late)[0]).len(), COUNT - CHANGES);
}

#[test]
fn a_list_that_has_lost_most_of_its_children_is_read_at_once() {
    const COUNT: usize = 3 * LIST_ENTRIES_AT_ONCE;
    for left in [0, 100] {
        let mut server = Server::with_view(ShardLimits::default(), without_first(COUNT, left));
        let a = server.client();
        server.send(a, &children(1, "/p", false));
        assert_eq!(walk(&mut server), 0);
        assert_eq!(names(&server.take_frames(a)[0]).len(), left);
    }
}

#[test]
fn a_long_list_with_many_deleted_children_is_read_in_pieces() {
    const LEFT: usize = 40_000;
    let mut server = Server::with_view(ShardLimits::default(), without_first(LEFT + 3 * LIST_ENTRIES_AT_ONCE, LEFT));
    let a = server.client();
    server.send(a, &children(1, "/p", false));
    assert!(walk(&mut server) >= 3);
    assert_eq!(names(&server.take_frames(a)[0]).len(), LEFT);
}

/// So many children, of which all but the last so many are deleted, each with a mark because what lies below is frozen.
fn without_first(count: usize, left: usize) -> View {
    let mut view = wide(count, "n");
    let zxid = view.zxid();
    view.freeze();
    for number in 0..count - left {
        let at = view.hashed(Text::from(format!("/p/n{number:07}")));
        view.apply(zxid, &Change::Deleted { at });
    }
    view
}

#[test]
fn short_walks_of_one_client_share_turns_with_others() {
    const WALKS: i32 = 200;
    let mut server = Server::with_view(ShardLimits::default(), wide(800, "n"));
    let a = server.client();
    let count = |xid: i32| request(xid, OpCode::GetAllChildrenNumber, |writer| writer.str("/p"));
    server.send(a, &(1..=WALKS).flat_map(count).collect::<Vec<u8>>());
    assert!(server.shard.spent() < 2 * TURN_COST_MAX, "{} in one turn", server.shard.spent());
    assert!(walk(&mut server) > 10, "the rest comes a turn at a time");
    assert_eq!(server.take_frames(a).len(), WALKS as usize);
}

#[test]
fn filtered_lists_look_their_children_up_in_pieces() {
    const COUNT: usize = 10 * LOOK_UPS_AT_ONCE;
    let mut server = Server::with_view(ShardLimits::default(), wide(COUNT, "n"));
    let clients: Vec<ConnId> = (0..3).map(|_| server.client()).collect();
    for client in &clients {
        let burst: Vec<u8> = (1..=20).flat_map(|xid| filtered(xid, "/p", 2)).chain(get(21, "/p")).collect();
        server.send(*client, &burst);
        assert!(server.shard.spent() < 2 * TURN_COST_MAX, "one turn's work");
    }
    let turns = walk(&mut server);
    assert!(turns >= 3 * 20 * COUNT / 8192, "{turns} turns");
    for client in &clients {
        let frames = server.take_frames(*client);
        assert_eq!(frames.len(), 21);
        assert!(frames[..20].iter().all(|frame| names(frame).is_empty()));
    }
    server.send(clients[0], &filtered(30, "/p", 1));
    walk(&mut server);
    assert_eq!(names(&server.take_frames(clients[0])[0]).len(), COUNT);
}

#[test]
fn long_lists_wait_for_each_other_and_all_come() {
    const COUNT: usize = 2 * LIST_ENTRIES_AT_ONCE;
    let mut server = Server::with_view(ShardLimits::default(), wide(COUNT, "n"));
    let clients: Vec<ConnId> = (0..2 * LISTS_MAX).map(|_| server.client()).collect();
    for client in &clients {
        server.send(*client, &children(1, "/p", false));
    }
    walk(&mut server);
    for client in clients {
        assert_eq!(names(&server.take_frames(client)[0]).len(), COUNT);
    }
}

#[test]
fn a_multi_read_that_looks_at_too_much_is_refused() {
    let mut view = View::empty(7);
    let zxid = view.zxid();
    let entry = |at: usize| AclEntry { perms: 1, scheme: Text::from("digest"), id: Text::from(format!("u{at}:h")) };
    let list: Vec<AclEntry> =
        (0..254).map(entry).chain([AclEntry { perms: 31, scheme: "world".into(), id: "anyone".into() }]).collect();
    let at = view.hashed(Text::from("/dear"));
    let dear = Znode { stat: NodeStat::default(), acl: Acl::List(Arc::new(AclList::from(list))), data: None };
    view.apply(zxid, &Change::Created { at, node: Arc::new(dear) });
    let mut server = Server::with_view(ShardLimits::default(), view);
    let a = server.client();
    let many = |xid: i32, path: &str, count: usize| {
        request(xid, OpCode::MultiRead, |writer: &mut Writer<'_>| {
            for _ in 0..count {
                writer.i32(OpCode::GetData.number());
                writer.bool(false);
                writer.i32(-1);
                writer.str(path);
                writer.bool(false);
            }
            writer.i32(-1);
            writer.bool(true);
            writer.i32(-1);
        })
    };
    server.send(a, &many(1, "/dear", 20_000));
    assert!(server.shard.spent() < 60 * TURN_COST_MAX, "{} are spent", server.shard.spent());
    server.send(a, &many(2, "/dear", 100));
    server.send(a, &many(3, "/", 20_000));
    walk(&mut server);
    let errors: Vec<(i32, i32)> = server.replies(a);
    assert_eq!(errors, [(1, ErrorCode::ThrottledOp.code()), (2, 0), (3, 0)]);
}

#[test]
fn a_burst_of_requests_waits_for_the_turns_of_others() {
    let mut server = Server::with_view(limits(|limits| limits.reply_buffer_bytes_soft_max = 64 << 20), wide(5000, "n"));
    let (a, b) = (server.client(), server.client());
    let burst: Vec<u8> = (1..=200).flat_map(|xid| children(xid, "/p", false)).collect();
    server.send(a, &burst);
    assert!(server.shard.spent() < 2 * TURN_COST_MAX, "{} are spent", server.shard.spent());
    assert!(server.shard.needs_turn() && server.shard.is_stalled(a));
    server.send(b, &get(1, "/p"));
    assert_eq!(server.replies(b), [(1, 0)]);
    let turns = walk(&mut server);
    assert!(turns > 20, "{turns} turns");
    assert_eq!(server.replies(a), (1..=200).map(|xid| (xid, 0)).collect::<Vec<_>>());
}

#[test]
fn a_batch_is_applied_over_several_turns() {
    let mut server = Server::new(ShardLimits::default());
    let a = server.client();
    let burst: Vec<u8> = (1..=900).flat_map(|xid| create(xid, &format!("/{xid}"), b"")).collect();
    server.send(a, &burst);
    let mut batches = Vec::new();
    while let Some(proposals) = server.take() {
        batches.push(server.evaluate(proposals));
    }
    let (mut turns, mut txns) = (0, 0);
    for batch in batches {
        txns += batch.txns.len();
        server.apply_in_turns(batch, |_| turns += 1);
    }
    // A request and a change count for half a microsecond each, and the parent's change of none.
    assert!(txns == 900 && turns <= 900 && server.shard.spent() <= TURN_COST_MAX + 2000);
    assert_eq!(server.replies(a).len(), 900);
}

#[test]
fn very_many_watches_are_set_and_dropped_in_pieces() {
    const COUNT: usize = 50_000;
    let mut server = Server::new(ShardLimits::default());
    let (a, b) = (server.client(), server.client());
    let again = |xid: i32, count: usize| {
        let texts: Vec<String> = (0..count).map(|at| format!("/{at}")).collect();
        request(xid, OpCode::SetWatches, |writer| {
            writer.i64(0);
            writer.i32(0);
            writer.i32(i32::try_from(count).expect("small"));
            texts.iter().for_each(|path| writer.str(path));
            writer.i32(0);
        })
    };
    server.send(a, &[again(1, COUNT), get(2, "/")].concat());
    assert!(server.shard.needs_turn() && server.shard.spent() < 2 * TURN_COST_MAX);
    server.send(b, &get(1, "/"));
    assert_eq!(server.replies(b), [(1, 0)], "others are served meanwhile");
    assert!(walk(&mut server) >= COUNT / 2500);
    assert_eq!(server.replies(a), [(1, 0), (2, 0)]);
    // One fires as it should, and the rest go in pieces when the connection has gone.
    server.send(b, &create(2, "/49999", b""));
    server.commit();
    assert_eq!(server.replies(a), [(-1, 0)]);
    server.hang_up(a);
    assert_eq!(server.closed(), [Close::HungUp]);
    let c = server.client();
    assert!(c.slot != a.slot, "its slot has no tenant before its watches are gone");
    assert!(walk(&mut server) >= COUNT / 2000);
    assert_eq!(server.client().slot, a.slot);
    server.send(b, &create(3, "/7", b""));
    server.commit();
    assert_eq!(server.replies(c), []);
}

#[test]
fn watches_have_a_limit_in_bytes() {
    let mut server = Server::new(limits(|limits| {
        limits.watch_bytes_per_connection_max = 10_000;
        limits.watch_bytes_total_max = 15_000;
    }));
    let (a, b) = (server.client(), server.client());
    let watch = |xid: i32, path: &str| {
        request(xid, OpCode::AddWatch, |writer| {
            writer.str(path);
            writer.i32(1);
        })
    };
    let long = |at: i32| format!("/{at}{}", "x".repeat(900));
    let burst: Vec<u8> = (1..=20).flat_map(|xid| watch(xid, &long(xid))).collect();
    for (client, fit) in [(a, 10), (b, 5)] {
        server.send(client, &burst);
        let replies = server.replies(client);
        let refused = replies.iter().filter(|(_, err)| *err == ErrorCode::ThrottledOp.code()).count();
        assert_eq!((replies.len(), refused), (20, 20 - fit), "the connection's limit, then the shard's");
    }
    server.hang_up(a);
    server.send(b, &watch(30, &long(30)));
    assert_eq!(server.replies(b), [(30, 0)]);
}

/// The bytes that wait to be sent to all these.
fn unsent(server: &Server, clients: &[ConnId]) -> usize {
    clients.iter().map(|client| server.shard.unsent_bytes(*client)).sum()
}

#[test]
fn replies_wait_for_memory_and_who_does_not_read_is_ended() {
    const LIST_BYTES: usize = 200_000;
    const MAX: usize = 1_000_000;
    let view = wide(LIST_BYTES / 12, "n");
    let mut server = Server::with_view(limits(|limits| limits.reply_buffer_bytes_total_max = MAX), view);
    let stalled: Vec<ConnId> = (0..40).map(|_| server.client()).collect();
    let polite = server.client();
    for client in &stalled {
        server.send(*client, &children(1, "/p", false));
    }
    walk(&mut server);
    let held = unsent(&server, &stalled);
    assert!((LIST_BYTES..=MAX).contains(&held), "{held} bytes are held");
    // Small replies are never kept waiting.
    server.send(polite, &get(1, "/p"));
    assert_eq!(server.replies(polite), [(1, 0)]);
    // A large one waits with the others, and comes when its turn does.
    server.send(polite, &children(2, "/p", false));
    walk(&mut server);
    assert!(server.shard.is_stalled(polite) && server.shard.unsent(polite).is_empty());
    let mut answered = BTreeSet::new();
    for _ in 0..40 {
        server.now = Millis(server.now.0 + MEMORY_WAIT_MS);
        server.tick();
        walk(&mut server);
        assert!(unsent(&server, &stalled) + server.shard.unsent_bytes(polite) <= MAX);
        answered.extend(server.replies(polite));
    }
    assert_eq!(answered, BTreeSet::from([(2, 0)]));
    let closed = server.closed();
    assert!(closed.len() >= 35, "{closed:?}");
    // Time passes: in the end also those are silent that have waited and were answered.
    assert!(closed.iter().all(|why| matches!(why, Close::SlowReader | Close::Silent)), "{closed:?}");
}

#[test]
fn a_reply_larger_than_the_limit_comes_when_it_is_the_only_one() {
    let mut server =
        Server::with_view(limits(|limits| limits.reply_buffer_bytes_total_max = 50_000), wide(20_000, "n"));
    let (a, b) = (server.client(), server.client());
    for client in [a, b] {
        server.send(client, &children(1, "/p", false));
    }
    walk(&mut server);
    assert!(server.shard.unsent_bytes(a) > 200_000 && server.shard.unsent(b).is_empty());
    assert_eq!(server.replies(a), [(1, 0)]);
    walk(&mut server);
    assert_eq!(server.replies(b), [(1, 0)]);
    assert!(server.closed().is_empty());
}

#[test]
fn who_takes_its_replies_is_not_ended_for_those_who_wait() {
    let mut server =
        Server::with_view(limits(|limits| limits.reply_buffer_bytes_total_max = 300_000), wide(100_000, "n"));
    let (a, b) = (server.client(), server.client());
    for client in [a, b] {
        server.send(client, &children(1, "/p", false));
    }
    walk(&mut server);
    let all = server.shard.unsent(a).len();
    assert!(all > 1_000_000);
    for _ in 0..20 {
        server.now = Millis(server.now.0 + 100);
        server.sent(a, all / 20);
        server.tick();
    }
    assert!(server.closed().is_empty());
}

#[test]
fn parts_of_requests_have_a_limit_together() {
    const MAX: usize = 4_000_000;
    let mut server = Server::new(limits(|limits| limits.reply_buffer_bytes_total_max = MAX));
    let clients: Vec<ConnId> = (0..40).map(|_| server.client()).collect();
    let whole = create(1, "/large", &vec![0; 500_000]);
    let mut taken = 0;
    for at in 0..whole.len() / 50_000 {
        for client in &clients {
            if !server.shard.is_stalled(*client) {
                server.send(*client, &whole[at * 50_000..][..50_000]);
                taken += 50_000;
            }
        }
    }
    assert!(taken < 2 * MAX, "{taken} bytes are taken of 20,000,000");
    let polite = server.client();
    server.send(polite, &get(1, "/"));
    assert_eq!(server.replies(polite), [(1, 0)]);
    for _ in 0..3 {
        server.now = Millis(server.now.0 + MEMORY_WAIT_MS);
        server.tick();
        walk(&mut server);
    }
    let closed = server.closed();
    assert!(!closed.is_empty() && closed.iter().all(|why| *why == Close::SlowSender), "{closed:?}");
}

#[test]
fn a_large_request_becomes_whole_beside_many_that_do_not() {
    const MAX: usize = 4_000_000;
    let mut server = Server::new(limits(|limits| limits.reply_buffer_bytes_total_max = MAX));
    let whole = create(1, "/large", &vec![0; 500_000]);
    let hostile: Vec<ConnId> = (0..100).map(|_| server.client()).collect();
    for client in &hostile {
        for at in 0..6 {
            if !server.shard.is_stalled(*client) {
                server.send(*client, &whole[at * 60_000..][..60_000]);
            }
        }
    }
    let polite = server.client();
    let mut sent = 0;
    let begun = server.now;
    while server.replies(polite).is_empty() {
        while sent < whole.len() && !server.shard.is_stalled(polite) {
            let next = whole.len().min(sent + 60_000);
            server.send(polite, &whole[sent..next]);
            sent = next;
        }
        server.commit();
        server.now = Millis(server.now.0 + 100);
        server.tick();
        walk(&mut server);
        assert!(server.now.since(begun) < 20_000, "{sent} bytes are taken");
    }
    assert!(server.closed().iter().all(|why| *why == Close::SlowSender));
}

#[test]
fn events_for_those_who_do_not_read_are_bounded_together() {
    const MAX: usize = 2_000_000;
    let mut server = Server::new(limits(|limits| limits.reply_buffer_bytes_total_max = MAX));
    let writer = server.client();
    let stalled: Vec<ConnId> = (0..45).map(|_| server.client()).collect();
    let everything = request(1, OpCode::AddWatch, |writer| {
        writer.str("/");
        writer.i32(1);
    });
    for client in &stalled {
        server.send(*client, &everything);
    }
    for xid in 1..=3000 {
        server.send(writer, &create(xid, &format!("/{xid}{}", "x".repeat(200)), b""));
        server.commit();
        assert_eq!(server.replies(writer), [(xid, 0)]);
        let held = unsent(&server, &stalled);
        assert!(held <= MAX + 45 * SMALL_BYTES, "{held} bytes are held after {xid}");
    }
    assert!(server.closed().iter().all(|why| *why == Close::SlowReader));
}

#[test]
fn what_waits_for_long_comes_in_its_order() {
    let mut server = Server::new(ShardLimits::default());
    let (writer, reader, late) = (server.client(), server.client(), server.client());
    let everything = request(1, OpCode::AddWatch, |writer| {
        writer.str("/");
        writer.i32(1);
    });
    let mut read = Vec::new();
    for client in [reader, late] {
        server.send(client, &everything);
    }
    for xid in 1..=4000 {
        server.send(writer, &create(xid, &format!("/{xid}{}", "x".repeat(200)), b""));
        // Replies between the events, to both alike.
        if xid % 100 == 0 {
            for client in [reader, late] {
                server.send(client, &get(xid, "/"));
            }
        }
        server.commit();
        server.replies(writer);
        read.extend(server.take_frames(reader));
    }
    let waiting = server.shard.unsent_bytes(late);
    assert!(waiting > 500_000 && server.shard.unsent(late).len() < waiting / 2, "{waiting} bytes wait in chunks");
    assert!(server.take_frames(late) == read, "the same frames in the same order");
    assert_eq!(server.shard.unsent_bytes(late), 0);
}

/// A read that waits for a write of its client becomes a long one with that write, and a sync behind it is answered meanwhile.
#[test]
fn an_answered_sync_lets_nothing_pass_a_list_under_way() {
    // Long by the bytes of its names.
    const NAMES: usize = 2 * LIST_BYTES_AT_ONCE / NAME_BYTES_MAX / 3;
    let creates = |xid: i32| {
        request(xid, OpCode::Multi, |writer: &mut Writer<'_>| {
            for number in 0..NAMES {
                writer.i32(OpCode::Create.number());
                writer.bool(false);
                writer.i32(-1);
                writer.str(&format!("/p/{xid}{number:0width$}", width = NAME_BYTES_MAX - 1));
                open_znode(writer, b"");
            }
            writer.i32(-1);
            writer.bool(true);
            writer.i32(-1);
        })
    };
    // The sync is answered while the list is under way, or before it begins.
    for early in [false, true] {
        let mut server = Server::with_view(ShardLimits::default(), wide(0, "n"));
        let a = server.client();
        server.send(a, &creates(1));
        server.send(a, &creates(2));
        server.send(a, &children(3, "/p", false));
        server.send(a, &request(4, OpCode::Sync, |writer| writer.str("/")));
        assert_eq!(server.take_syncs(), [a], "the sync is taken");
        let synced = |server: &mut Server| server.event(ShardMessage::Synced(vec![a]));
        if early {
            synced(&mut server);
        }
        server.commit();
        assert_eq!(server.replies(a), [(1, 0), (2, 0)]);
        assert!(server.shard.needs_turn(), "the list is under way");
        if !early {
            synced(&mut server);
        }
        server.send(a, &create(5, "/last", b""));
        server.commit();
        walk(&mut server);
        assert_eq!(server.replies(a), [(3, 0), (4, 0)], "{early}");
        server.commit();
        assert_eq!(server.replies(a), [(5, 0)], "{early}");
    }
}
