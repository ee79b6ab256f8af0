//! Effects of committed transactions on this shard's connections: watch events, answers, reads that waited for them,
//! and sessions that moved or ended. The order of the events and their limits: `watch_events`.

use crate::apply::outcome::{AppliedBatch, AppliedTxn, Outcome, SessionChange};
use crate::ids::{ConnId, Millis, Origin, ShardId, Zxid};
use crate::limits::{
    ACL_ENTRY_COST, ACL_IDENTITY_COST, BYTES_PER_COST, EVENT_COST, LOOK_UP_COST, REQUEST_COST, WATCH_LOOK_COST,
    WATCHED_COST, WATCHERS_PIECE,
};
use crate::ops::OpResult;
use crate::shard::conn::{Close, Conn, Pending, SHARED_BYTES};
use crate::shard::counters::Answered;
use crate::shard::delays::Delay;
use crate::shard::effects::Garbage;
use crate::shard::state::{Served, ShardState};
use crate::shard::watch::Kind;
use crate::shard::watch::fire::{Watchers, fire_some};
use crate::shard::watch_events::{Earlier, EventsInProgress, Point};
use crate::shard::{audit, ending, greeting, input, reply, resuming, serving};
use crate::tree::acl::{Acl, READ};
use crate::tree::change::Change;
use crate::tree::delta::Delta;
use crate::tree::snapshot::Snapshot;
use crate::tree::view::WARM_MAX;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use corral_wire::consts::EventType;
use corral_wire::{ErrorCode, OpCode};

/// The state machine froze its delta at this shard's zxid; the shard uses the shared one from now on.
pub(super) fn adopt_frozen(shard: &mut ShardState, frozen: Arc<Delta>) {
    let own = shard.view.adopt_frozen(frozen);
    shard.effects.garbage.push(Garbage::Delta(own));
}

/// The frozen delta is part of the new snapshot.
pub(super) fn swap_snapshot(shard: &mut ShardState, snapshot: Arc<Snapshot>) {
    let (old, frozen) = shard.view.swap_snapshot(snapshot);
    shard.effects.garbage.push(Garbage::Snapshot(old));
    shard.effects.garbage.extend(frozen.map(Garbage::Frozen));
}

/// A committed batch: the only thing that moves the view. Transaction by transaction: events, then the new state,
/// then the answers and the reads that waited for it. Writers are sent to before connections that only watched: no
/// writer waits until thousands of events are queued.
///
/// Applies it from one of its transactions on, until the turn's work is done. Returns the next transaction, which
/// is the same one while its events, for example, are not all done. Until all are applied no other batch may come,
/// and nothing that depends on the batch's last zxid.
pub(super) fn apply_some(shard: &mut ShardState, now: Millis, batch: &AppliedBatch, from: usize) -> usize {
    shard.turn.begin();
    let mut next = batch.txns.len();
    let mut answered = shard.effects.dirty.len();
    for (at, txn) in batch.txns.iter().enumerate().skip(from) {
        if shard.turn.is_over() {
            next = at;
            break;
        }
        let goes_on = shard.events.is_in_progress();
        if !goes_on && may_serve_behind(shard) {
            // Before the next events, which they would have to wait for.
            serve_those_behind(shard, now);
            if may_serve_behind(shard) {
                next = at;
                break;
            }
        }
        if (at - from).is_multiple_of(WARM_MAX) && !goes_on {
            let changes = batch.txns[at..].iter().take(WARM_MAX).flat_map(|txn| &txn.changes);
            shard.view.warm(changes.map(|change| change.at().hash));
        }
        if let Some(origin) = txn.origin.filter(|origin| !goes_on && shard.config.is_mine(*origin))
            && !serve_reads_before(shard, now, origin.conn)
        {
            next = at;
            break;
        }
        let is_kept = shard.lists.is_empty() || preserve(shard, txn);
        if !is_kept || !queue_events(shard, now, txn) {
            next = at;
            break;
        }
        shard.turn.spend(REQUEST_COST * (1 + txn.changes.len()));
        for change in &txn.changes {
            shard.sessions.note_change(&shard.view, change);
            shard.view.apply(txn.zxid, change);
        }
        shard.view.set_zxid(txn.zxid);
        shard.delay = Delay::default();
        shard.lists.applied();
        if shard.config.audit && shard.config.shard == ShardId(0) {
            shard.effects.audited.extend(audit::ephemerals_deleted(txn));
        }
        if let Some(change) = txn.session {
            session_changed(shard, now, change, txn.origin);
        }
        if let Some(origin) = txn.origin.filter(|origin| shard.config.is_mine(*origin))
            && !ends_underway(shard, now, origin.conn, txn)
            && came_back(shard, origin.conn, &txn.outcome)
        {
            let told = shard.effects.dirty.len();
            answer(shard, now, origin.conn, txn);
            if shard.effects.dirty.get(told) == Some(&origin.conn) {
                shard.effects.dirty.swap(answered, told);
                answered += 1;
            }
        }
        serve_those_behind(shard, now);
    }
    resuming::resume_held_back(shard, now);
    ending::close_if_drained(shard, now);
    next
}

fn answer(shard: &mut ShardState, now: Millis, id: ConnId, txn: &AppliedTxn) {
    let Some(mut conn) = shard.conns.take(id) else { return };
    if conn.is_closing() {
        // It hears of no more events, so it must not see any more state either.
        return shard.conns.put_back(conn);
    }
    let verdict = answer_first(shard, now, &mut conn, txn)
        .and_then(|()| serving::catch_up(shard, now, &mut conn))
        .and_then(|()| input::resume(shard, now, &mut conn));
    ending::settle(shard, now, conn, verdict);
}

/// The oldest unanswered request of the connection is the one this transaction belongs to: both are in order.
fn answer_first(shard: &mut ShardState, now: Millis, conn: &mut Conn, txn: &AppliedTxn) -> Served {
    conn.pending.note_back();
    match conn.pending.pop() {
        Some(Pending::Write { xid, op, at }) => {
            if matches!(txn.outcome, Outcome::Op(OpResult::Error(ErrorCode::SessionMoved))) || moved(&txn.outcome) {
                return Err(Close::SessionMoved);
            }
            if op == OpCode::Reconfig {
                if matches!(txn.outcome, Outcome::Underway(_)) {
                    conn.pending.push_front(Pending::Underway { xid, op, at });
                    return Ok(());
                }
                conn.blocked = false;
            }
            let begins = conn.unsent();
            reply::outcome(conn.output.buffer(&mut shard.buffers), xid, txn.zxid, &txn.outcome);
            let bytes = conn.unsent() - begins;
            ending::count_reply(shard, conn, now, Answered { op: Some(op), xid, at, update: true }, bytes);
            if !shard.effects.slow.is_empty()
                && let Some(change) = txn.changes.first()
            {
                shard.effects.slow.name(conn.session.id(), xid, &change.at().path);
            }
            if op == OpCode::CloseSession { Err(Close::Done) } else { Ok(()) }
        }
        Some(Pending::Connect { at }) => {
            let what = Answered { op: Some(OpCode::CreateSession), xid: 0, at, update: true };
            ending::count_reply(shard, conn, now, what, 0);
            greeting::connected(shard, conn, &txn.outcome)
        }
        other => unreachable!("a command of this connection came back, but {other:?} waits first"),
    }
}

/// Answers an operation under way, which has ended in a later transaction than its own.
fn answer_later(shard: &mut ShardState, now: Millis, id: ConnId, zxid: Zxid, outcome: &Outcome) {
    let Some(mut conn) = shard.conns.take(id) else { return };
    let Some(Pending::Underway { xid, op, at }) = conn.pending.front().filter(|_| !conn.is_closing()) else {
        return shard.conns.put_back(conn);
    };
    let (xid, op, at) = (*xid, *op, *at);
    conn.pending.pop();
    conn.blocked = false;
    let begins = conn.unsent();
    reply::outcome(conn.output.buffer(&mut shard.buffers), xid, zxid, outcome);
    let bytes = conn.unsent() - begins;
    ending::count_reply(shard, &mut conn, now, Answered { op: Some(op), xid, at, update: true }, bytes);
    input::go_on(shard, now, conn);
}

/// Whether the transaction is the end of an operation that an earlier command began.
fn ends_underway(shard: &mut ShardState, now: Millis, conn: ConnId, txn: &AppliedTxn) -> bool {
    let Outcome::Later(outcome) = &txn.outcome else { return false };
    shard.in_flight.end_underway(conn, outcome, &mut shard.effects.audited);
    answer_later(shard, now, conn, txn.zxid, outcome);
    true
}

fn session_changed(shard: &mut ShardState, now: Millis, change: SessionChange, origin: Option<Origin>) {
    let asker = origin.filter(|origin| shard.config.is_mine(*origin)).map(|origin| origin.conn);
    let (session, why) = match change {
        SessionChange::Created(_) => {
            shard.sessions.created();
            return;
        }
        SessionChange::Attached(session) => (session, Close::SessionMoved),
        SessionChange::Closed(session) => {
            shard.sessions.ended();
            shard.statistics.sessions_expired += u64::from(origin.is_none());
            (session, Close::SessionExpired)
        }
    };
    let bound = shard.sessions.conn(session).filter(|conn| Some(*conn) != asker);
    if let Some(conn) = bound.and_then(|conn| shard.conns.take(conn)) {
        ending::end_now(shard, now, conn, why);
    }
}

/// A command of a connection is about to be applied: serves the reads in front of it. False when the turn's work is done
/// before all are.
#[inline]
fn serve_reads_before(shard: &mut ShardState, now: Millis, id: ConnId) -> bool {
    let first = shard.conns.get(id).and_then(|conn| conn.pending.front());
    first.and_then(Pending::ready_at).is_none() || serve_before(shard, now, id)
}

#[cold]
fn serve_before(shard: &mut ShardState, now: Millis, id: ConnId) -> bool {
    let Some(mut conn) = shard.conns.take(id) else { return true };
    if conn.is_closing() {
        shard.conns.put_back(conn);
        return true;
    }
    shard.freshness.excuse(&conn);
    shard.delay.begin(id);
    let before = shard.turn.spent();
    let verdict = serving::catch_up(shard, now, &mut conn);
    shard.delay.end(shard.turn.spent() - before);
    let is_over = shard.turn.is_over();
    let is_ready = conn.pending.front().and_then(Pending::ready_at).is_some();
    let goes_on = is_over && is_ready && verdict.is_ok() && !conn.is_closing();
    ending::settle(shard, now, conn, verdict);
    !goes_on
}

/// A command of this shard was applied. False if its connection ended because the outcome was not known.
fn came_back(shard: &mut ShardState, conn: ConnId, outcome: &Outcome) -> bool {
    let came_back = shard.in_flight.come_back(conn, outcome, &mut shard.effects.audited);
    let waits = || shard.conns.get(conn).is_some_and(|conn| !conn.is_closing());
    assert!(came_back || !waits(), "each command of a connection that comes back was in flight");
    came_back
}

/// A transaction is about to reach the view: see [`Lists::preserve`](super::lists::Lists::preserve).
fn preserve(shard: &mut ShardState, txn: &AppliedTxn) -> bool {
    shard.lists.preserve(txn, (&shard.view, &mut shard.conns), &mut shard.turn)
}

/// Serves connections with reads that waited for the view to move, until the turn's work is done. Then
/// `several_turns::walk_on` goes on: a later state serves as well.
pub(super) fn serve_those_behind(shard: &mut ShardState, now: Millis) {
    while !shard.turn.is_over()
        && let Some(id) = shard.freshness.next(shard.view.zxid())
    {
        shard.turn.spend(LOOK_UP_COST);
        let Some(mut conn) = shard.conns.take(id) else { continue };
        conn.waits.view = false;
        input::go_on(shard, now, conn);
    }
}

/// Whether a read that waited for the view may be served.
pub(super) fn may_serve_behind(shard: &ShardState) -> bool {
    shard.freshness.may_serve(shard.view.zxid())
}

/// A sync has come back from the leader, behind every batch it stands for.
pub(super) fn synced(shard: &mut ShardState, now: Millis, id: ConnId) {
    let Some(mut conn) = shard.conns.take(id) else { return };
    if conn.is_closing() {
        return shard.conns.put_back(conn);
    }
    let last = shard.freshness.pass(id);
    if let Some(Pending::Sync { done, .. }) = conn.pending.back_mut()
        && last
    {
        *done = true;
        // A read in front of it may have become a long one meanwhile.
        conn.blocked = conn.pending.iter().any(Pending::blocks);
    }
    input::go_on(shard, now, conn);
}

fn moved(outcome: &Outcome) -> bool {
    let is_moved = |result: &OpResult| *result == OpResult::Error(ErrorCode::SessionMoved);
    matches!(outcome, Outcome::Multi(results) if results.iter().any(is_moved))
}

// ----- watch events -----

/// Queues the events of a transaction that is about to reach the view, from where the last call ended. False when
/// the turn's work is done before all are queued.
fn queue_events(shard: &mut ShardState, now: Millis, txn: &AppliedTxn) -> bool {
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
