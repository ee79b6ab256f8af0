//! Drives the shards: messages, sockets, turns.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use corral_core::apply::outcome::{AppliedBatch, SessionChange};
use corral_core::ids::{ConnId, ShardId};
use corral_core::shard::ShardMessage;
use corral_core::shard::conn::Close;
use corral_core::tree::change::Change;
use corral_engine as engine;

use crate::check::sessions;
use crate::link::address;
use crate::model::LinkId;
use crate::options::Bug;
use crate::server::peers;
use crate::shard_driver::{ShardDriver, ShardEffect};
use crate::world::World;
use crate::world::event::{Channel, Event, Inner};
use crate::world::server::ShardSide;

pub(crate) fn side(world: &mut World, shard: usize) -> Option<&mut ShardSide> {
    world.nodes[world.at].server.as_mut().map(|server| &mut server.shards[shard])
}

/// Puts an event off if the shard is paused, or gives it back.
pub(crate) fn defer(world: &mut World, shard: usize, event: Event) -> Option<Event> {
    let Some(deferred) = side(world, shard).and_then(|side| side.deferred.as_mut()) else { return Some(event) };
    deferred.push_back(event);
    None
}

pub(crate) fn pause(world: &mut World, shard: usize, time: u64) {
    let Some(side) = side(world, shard) else { return };
    if side.deferred.is_none() {
        side.deferred = Some(VecDeque::new());
        world.inside_after(time, Inner::Resume(shard));
        world.note(format_args!("shard {shard} stalls"));
    }
}

/// One call of the shard and everything it asks for.
fn with_shard(world: &mut World, shard: usize, call: impl FnOnce(&mut ShardDriver)) {
    if let Some(side) = side(world, shard) {
        call(&mut side.shard);
    }
    carry_out(world, shard);
}

fn carry_out(world: &mut World, shard: usize) {
    while let Some(effect) = side(world, shard).and_then(|side| side.shard.next_effect()) {
        do_for_shard(world, shard, effect);
    }
    let Some(side) = side(world, shard) else { return };
    if side.shard.needs_turn() && !std::mem::replace(&mut side.turn_planned, true) {
        world.inside_soon(100, Inner::ShardTurn(shard));
    }
}

fn do_for_shard(world: &mut World, shard: usize, effect: ShardEffect) {
    let now = world.clock();
    let Some(side) = side(world, shard) else { return };
    let link = |conn: ConnId| side.links.get(&conn).copied();
    let event = match effect {
        ShardEffect::Question(question) => {
            let (conn, text) = (question.conn, "not served\n".to_owned());
            return side.shard.take(now, ShardMessage::FourLetterAnswered { conn, text });
        }
        ShardEffect::Dirty(conn) => return link(conn).into_iter().for_each(|link| flush(world, link, shard)),
        ShardEffect::Resumed(conn) => {
            return link(conn).into_iter().for_each(|link| world.inside_soon(50, Inner::Readable(link)));
        }
        ShardEffect::Closed(conn, why) => {
            let Some(link) = side.links.remove(&conn) else { return };
            world.counts.uncertain += u64::from(why == Close::Uncertain);
            world.note(format_args!("link {} closed by the server: {why}", link.0));
            return close_at_server(world, link);
        }
        ShardEffect::Applied => return applied(world, shard),
        ShardEffect::Requests(requests) => engine::Event::Requests(shard_id(shard), requests),
        ShardEffect::Activity(activity) => engine::Event::SessionActivity(shard_id(shard), activity),
        ShardEffect::Drained => engine::Event::Drained,
    };
    world.mail(Channel::ShardToConsensus(shard), Inner::ToConsensus(event));
}

/// A shard's turn ends.
pub(crate) fn turn(world: &mut World, shard: usize) {
    if let Some(side) = side(world, shard) {
        side.turn_planned = false;
    }
    let now = world.clock();
    with_shard(world, shard, |shard| shard.turn(now));
}

fn flush(world: &mut World, link: LinkId, shard: usize) {
    let now = world.clock();
    let Some(id) = world.links[link.0].conn else { return };
    let room = world.links[link.0].window.saturating_sub(world.links[link.0].in_flight);
    let Some(side) = world.nodes[world.at].server.as_mut().map(|server| &mut server.shards[shard]) else { return };
    let unsent = side.shard.unsent(id);
    if unsent.is_empty() {
        return;
    }
    let short = world.schedule.per_mille(50);
    let count = if short { world.schedule.index(unsent.len()) + 1 } else { unsent.len() }.min(room);
    if count == 0 {
        world.links[link.0].writing = true;
        return;
    }
    let rest = side.shard.unsent_bytes(id) - count;
    let bytes = side.shard.send(now, id, count);
    world.links[link.0].in_flight += count;
    world.send_over_network(Channel::ToClient(link), Event::ToClient(link, bytes));
    world.links[link.0].writing = rest > 0;
    if rest > 0 && room > count {
        let wait = world.schedule.delay(200);
        world.after(wait, Event::Writable(link));
    }
}

pub(crate) fn writable(world: &mut World, link: LinkId) {
    let shard = world.links[link.0].shard;
    if !world.links[link.0].writing || world.links[link.0].conn.is_none() {
        return;
    }
    let Some(_) = defer(world, shard, Event::Writable(link)) else { return };
    flush(world, link, shard);
    carry_out(world, shard);
}

pub(crate) fn arrive(world: &mut World, link: LinkId) {
    let shard = world.links[link.0].shard;
    if world.nodes[world.at].server.is_none() || world.links[link.0].client_gone {
        close_at_server(world, link);
        return;
    }
    let Some(_) = defer(world, shard, Event::Arrive(link)) else { return };
    let (now, peer) = (world.clock(), SocketAddr::from((address(world.links[link.0].client), 1000)));
    let entropy = world.workload.bytes();
    let life = world.nodes[world.at].life;
    let Some(side) = side(world, shard) else { return };
    let Some(id) = side.shard.accept(now, peer, entropy) else { return close_at_server(world, link) };
    side.links.insert(id, link);
    let incarnation = side.shard.config().incarnation;
    world.links[link.0].conn = Some(id);
    world.links[link.0].life = life;
    world.check.accepted(link, shard_id(shard), id, incarnation);
}

/// Bytes come to a socket; the actor gets all that wait, unless it wants nothing read.
pub(crate) fn at_server(world: &mut World, link: LinkId, bytes: Vec<u8>) {
    let shard = world.links[link.0].shard;
    let Some(id) = world.links[link.0].conn.filter(|_| world.links[link.0].life == world.nodes[world.at].life) else {
        return;
    };
    let stalled = side(world, shard).is_none_or(|side| side.shard.is_stalled(id));
    if !stalled && !bytes.is_empty() {
        sign_of_life(world, link);
    }
    let event = defer(world, shard, Event::ToServer(link, bytes));
    let Some(Event::ToServer(_, bytes)) = event else { return };
    world.links[link.0].unread.extend(bytes);
    if stalled {
        return;
    }
    let unread = std::mem::take(&mut world.links[link.0].unread);
    let now = world.clock();
    if !unread.is_empty() {
        sign_of_life(world, link);
        let sides = world.nodes[world.at].server.iter().flat_map(|server| &server.shards);
        let applied = sides.map(|side| side.shard.view().zxid()).max().unwrap_or_default();
        with_shard(world, shard, |shard| shard.receive(now, id, &unread, applied));
    }
    let at_end = world.links[link.0].ended_by_client && world.links[link.0].conn == Some(id);
    if at_end && side(world, shard).is_some_and(|side| !side.shard.is_stalled(id)) {
        with_shard(world, shard, |shard| shard.hang_up(now, id));
    }
}

pub(crate) fn end_at_server(world: &mut World, link: LinkId) {
    let shard = world.links[link.0].shard;
    let Some(_) = defer(world, shard, Event::EndToServer(link)) else { return };
    world.links[link.0].ended_by_client = true;
    at_server(world, link, Vec::new());
}

pub(crate) fn message(world: &mut World, shard: usize, message: ShardMessage) {
    let message = match message {
        ShardMessage::Batch(batch) => shard_batch(world, shard, batch),
        message => Some(message),
    };
    let now = world.clock();
    if let Some(message) = message {
        with_shard(world, shard, |shard| shard.take(now, message));
    }
}

/// Bytes reached a server that wants to read them: its session lives, as far as the leader can hear of that.
fn sign_of_life(world: &mut World, link: LinkId) {
    if world.nodes[world.at].unsure_until <= world.now && peers::reaches_leader(world) {
        let time = world.time();
        sessions::sign_of_life(&mut world.check, link, time);
    }
}

/// The batch as a bug has it, or none.
fn shard_batch(world: &mut World, shard: usize, mut batch: Arc<AppliedBatch>) -> Option<ShardMessage> {
    let plain = |change: &Change| matches!(change, Change::DataSet { .. });
    let only_data = batch.txns.iter().all(|txn| txn.changes.iter().all(plain) && txn.session.is_none());
    let foreign = batch.txns.iter().all(|txn| txn.origin.is_none_or(|at| usize::from(at.shard.0) != shard));
    let some = batch.txns.iter().any(|txn| !txn.changes.is_empty());
    if some && only_data && foreign && world.bug(Bug::MissBatch, 200) {
        if let Some(side) = side(world, shard) {
            side.taken += 1;
        }
        return None;
    }
    let ends = |change: Option<SessionChange>| matches!(change, Some(SessionChange::Closed(_)));
    let with_ephemerals = batch.txns.iter().any(|txn| ends(txn.session) && !txn.changes.is_empty());
    if with_ephemerals && world.bug(Bug::KeepEphemerals, 300) {
        let maimed = Arc::make_mut(&mut batch).txns.iter_mut();
        maimed.filter(|txn| ends(txn.session)).for_each(|txn| txn.changes.clear());
    } else if world.options.bug == Some(Bug::ForgetUsage) {
        let is_usage =
            |change: &Change| matches!(change, Change::Quiet { at, .. } if at.path.starts_with("/zookeeper/quota/"));
        for txn in &mut Arc::make_mut(&mut batch).txns {
            txn.changes.retain(|change| !is_usage(change));
        }
    }
    if let Some(side) = side(world, shard) {
        side.batches.push_back(Arc::clone(&batch));
    }
    Some(ShardMessage::Batch(batch))
}

/// The shard has applied the oldest of its batches.
fn applied(world: &mut World, shard: usize) {
    let Some(side) = side(world, shard) else { return };
    side.taken += 1;
    let Some(batch) = side.batches.pop_front() else { return };
    let some = batch.txns.iter().any(|txn| !txn.changes.is_empty());
    if some && world.bug(Bug::ApplyTwice, 50) {
        let now = world.clock();
        // It is at most behind another one.
        with_shard(world, shard, |shard| shard.take(now, ShardMessage::Batch(batch)));
    }
}

pub(crate) fn tick(world: &mut World, shard: usize) {
    let now = world.clock();
    with_shard(world, shard, |shard| shard.tick(now));
    let wait = 200_000 + world.schedule.delay(1_000);
    world.inside_after(wait, Inner::ShardTick(shard));
}

/// The server's end closes; what it sent before still arrives.
pub(super) fn close_at_server(world: &mut World, link: LinkId) {
    world.links[link.0].conn = None;
    if !std::mem::replace(&mut world.links[link.0].server_gone, true) {
        world.send_over_network(Channel::ToClient(link), Event::EndToClient(link));
    }
}

fn shard_id(shard: usize) -> ShardId {
    ShardId(u16::try_from(shard).expect("few shards"))
}
