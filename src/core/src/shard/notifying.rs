//! Queues the watch events of a transaction, in pieces. Their order and their limits: `watch_events`.

use crate::apply::outcome::AppliedTxn;
use crate::ids::{ConnId, Millis, Zxid};
use crate::limits::{
    ACL_ENTRY_COST, ACL_IDENTITY_COST, BYTES_PER_COST, EVENT_COST, WATCH_LOOK_COST, WATCHED_COST, WATCHERS_PIECE,
};
use crate::shard::conn::{Close, SHARED_BYTES};
use crate::shard::state::ShardState;
use crate::shard::watch::Kind;
use crate::shard::watch::fire::{Watchers, fire_some};
use crate::shard::watch_events::{Earlier, EventsInProgress, Point};
use crate::shard::{ending, reply};
use crate::tree::acl::{Acl, READ};
use crate::tree::change::Change;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use corral_wire::consts::EventType;

/// Queues the events of a transaction that is about to reach the view, from where the last call ended. False when
/// the turn's work is done before all are queued.
pub(super) fn queue_events(shard: &mut ShardState, now: Millis, txn: &AppliedTxn) -> bool {
    let (mut at, mut earlier) = match &mut shard.events.in_progress {
        Some(in_progress) => (in_progress.at, mem::take(&mut in_progress.earlier)),
        None if shard.watches.is_empty() => return true,
        None => {
            shard.events.transactions = shard.events.transactions.wrapping_add(1);
            Default::default()
        }
    };
    while at.change < txn.changes.len() {
        if shard.turn.is_over() {
            queue_later(shard, txn.zxid, at, earlier);
            return false;
        }
        at = notify(shard, now, txn, at, &mut earlier);
    }
    if let Some(in_progress) = shard.events.in_progress.take() {
        shard.walking.extend(in_progress.paused);
    }
    true
}

#[cold]
fn queue_later(shard: &mut ShardState, zxid: Zxid, at: Point, earlier: Earlier) {
    match &mut shard.events.in_progress {
        Some(in_progress) => (in_progress.at, in_progress.earlier) = (at, earlier),
        None => {
            shard.events.in_progress =
                Some(Box::new(EventsInProgress { at, earlier, seen: shard.freshness.gate(), paused: Vec::new() }))
        }
    }
    shard.freshness.observe(zxid);
}

/// Queues the events of a change for some of its watchers. Returns the next point.
fn notify(shard: &mut ShardState, now: Millis, txn: &AppliedTxn, point: Point, earlier: &mut Earlier) -> Point {
    let change = &txn.changes[point.change];
    let at = change.at();
    let (kind, event, path, hash) = match change {
        Change::Quiet { .. } => return point.next_change(),
        _ if point.parent => (Kind::Child, EventType::NodeChildrenChanged, at.parent(), at.parent_hash),
        Change::Created { .. } => (Kind::Data, EventType::NodeCreated, &*at.path, at.hash),
        Change::Deleted { .. } => (Kind::Both, EventType::NodeDeleted, &*at.path, at.hash),
        Change::DataSet { .. } => (Kind::Data, EventType::NodeDataChanged, &*at.path, at.hash),
    };
    let (mut watchers, hasher) = (Vec::new(), shard.view.hasher());
    let some = Watchers { from: point.slot, max: watchers_piece(shard, path) };
    let fired = fire_some(&mut shard.watches, kind, path, hash, hasher, some, &mut watchers);
    shard.turn.spend(WATCHED_COST + fired.looked * WATCH_LOOK_COST);
    if shard.watches.has_recursive() {
        shard.turn.spend(path.len());
    }
    if !watchers.is_empty() {
        let acl = match change {
            Change::Created { node, .. } | Change::DataSet { node, .. } if !point.parent => Some(node.acl.clone()),
            _ => earlier.acl(&shard.view, &txn.changes, point.change, path, hash),
        };
        queue(shard, now, txn.zxid, event, path, &acl.unwrap_or(Acl::Open), watchers);
    }
    match fired.next {
        Some(slot) => Point { slot, ..point },
        None if point.parent || matches!(change, Change::DataSet { .. }) => point.next_change(),
        None => Point { parent: true, slot: 0, ..point },
    }
}

/// The most watchers that get an event of that path before the work of the turn is looked at.
fn watchers_piece(shard: &ShardState, path: &str) -> usize {
    let each = EVENT_COST + path.len() / BYTES_PER_COST;
    (shard.config.limits.turn_cost_max / each).clamp(1, WATCHERS_PIECE)
}

#[allow(clippy::too_many_arguments, reason = "one event, spelled out")]
fn queue(
    shard: &mut ShardState,
    now: Millis,
    zxid: Zxid,
    kind: EventType,
    path: &str,
    acl: &Acl,
    watchers: Vec<ConnId>,
) {
    shard.events.event.bytes.clear();
    reply::event(&mut shard.events.event.bytes, zxid.wire(), kind, path);
    shard.events.event.shared = None;
    if watchers.len() > 1 && shard.events.event.bytes.len() >= SHARED_BYTES {
        shard.events.event.shared = Some(Arc::from(&*shard.events.event.bytes));
    }
    for id in watchers {
        if may_read(shard, id, acl) {
            deliver(shard, now, id);
        }
    }
}

/// Appends an event to a connection's output. A connection that does not read, so that events accumulate, is ended.
fn deliver(shard: &mut ShardState, now: Millis, id: ConnId) {
    let Some(mut conn) = shard.conns.take(id) else { return };
    let limits = &shard.config.limits;
    let list = if shard.lists.is_empty() { None } else { conn.list_under_way() };
    let waiting = list.as_ref().map_or(0, |list| list.held.len()) + conn.unsent();
    let too_much = waiting > limits.reply_buffer_bytes_hard_max.saturating_add(conn.output.allowance());
    if too_much || shard.memory.is_exhausted_for(waiting) {
        return ending::end(shard, &conn, Close::SlowReader);
    }
    shard.turn.spend(EVENT_COST);
    conn.told = shard.events.transactions;
    if !conn.is_closing() {
        let event = &shard.events.event.bytes;
        let list = conn.list_under_way().filter(|_| !shard.lists.is_empty());
        match (list, &shard.events.event.shared) {
            (None, Some(shared)) => conn.output.append_shared(shared),
            (Some(list), _) => {
                shard.turn.spend(event.len() / BYTES_PER_COST);
                list.held.extend_from_slice(event);
            }
            (None, None) => {
                shard.turn.spend(event.len() / BYTES_PER_COST);
                conn.output.buffer(&mut shard.buffers).extend_from_slice(event);
            }
        }
        conn.counters.sent += 1;
        shard.statistics.sent += 1;
    }
    ending::settle(shard, now, conn, Ok(()));
}

fn may_read(shard: &mut ShardState, id: ConnId, acl: &Acl) -> bool {
    let list = match acl {
        Acl::List(list) if !shard.config.skip_acl => list,
        _ => return true,
    };
    let Some(identities) = shard.conns.get(id).map(|conn| &conn.identities) else { return false };
    let check = ACL_ENTRY_COST * list.len() + ACL_IDENTITY_COST * identities.len();
    let grants = list.grants(READ, identities);
    // Whether or not there is an event to deliver.
    shard.turn.spend(EVENT_COST + check);
    grants
}
