//! The end of connections: at once, or when all that is queued for them has been sent.

use crate::ids::{ConnId, Millis};
use crate::limits::{DROP_COST, DROPPED_PIECE};
use crate::shard::conn::{Close, Conn, Phase};
use crate::shard::effects::Garbage;
use crate::shard::state::{Draining, Served, ShardState};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Puts a connection back after it was worked on, or ends it.
pub(super) fn settle(shard: &mut ShardState, now: Millis, mut conn: Box<Conn>, verdict: Served) {
    conn.output.begin_chunk();
    if let Err(why) = verdict {
        conn.close_after_flush(now, why);
        shard.lists.end(conn.id);
    }
    shard.memory.count(now, &mut conn);
    if let Phase::Closing { why, .. } = conn.phase
        && conn.unsent() == 0
    {
        return end(shard, &conn, why);
    }
    if conn.mute && conn.is_paid() {
        return end(shard, &conn, Close::HungUp);
    }
    if conn.output.announce() {
        shard.effects.dirty.push(conn.id);
    }
    shard.conns.put_back(conn);
}

/// Ends a connection at once.
pub(super) fn end(shard: &mut ShardState, conn: &Conn, why: Close) {
    unbind(shard, conn);
    shard.lists.end(conn.id);
    shard.freshness.forget(conn.id);
    shard.sasl.forget(conn.id);
    shard.memory.forget(conn);
    if !shard.metered.is_empty() {
        shard.metered.forget(conn.id);
    }
    shard.long_commands.forget(conn.command);
    shard.activity.note_end(conn);
    match why {
        Close::AuthFailed => shard.statistics.auths_failed += 1,
        Close::NeverConnected => shard.statistics.never_connected += 1,
        Close::LargeRequests => shard.statistics.large_requests_refused += 1,
        _ => {}
    }
    shard.conns.forget();
    drop_watches_of(shard, conn.id);
    shard.effects.closed.push((conn.id, why));
}

/// Ends a connection, and removes it from its session. Bytes queued for it may still be sent.
pub(super) fn end_now(shard: &mut ShardState, now: Millis, conn: Box<Conn>, why: Close) {
    unbind(shard, &conn);
    settle(shard, now, conn, Err(why));
}

/// As [`end_now`], for several.
pub(super) fn end_these(shard: &mut ShardState, now: Millis, why: Close, list: Vec<ConnId>) {
    for id in list {
        if let Some(conn) = shard.conns.take(id) {
            end_now(shard, now, conn, why);
        }
    }
}

/// The socket failed or the client closed it.
pub(super) fn hung_up(shard: &mut ShardState, id: ConnId) {
    if let Some(conn) = shard.conns.take(id) {
        end(shard, &conn, Close::HungUp);
    }
}

/// The session has no connection here any more, if it was this one's.
fn unbind(shard: &mut ShardState, conn: &Conn) {
    shard.effects.garbage.extend(shard.sessions.unbind(conn).map(Garbage::Ephemerals));
}

/// A connection has ended: its watches go, at once if they are few, and then its slot is free.
fn drop_watches_of(shard: &mut ShardState, id: ConnId) {
    if !shard.turn.is_over() && drop_some(shard, id) {
        shard.conns.free(id);
    } else {
        shard.dropping.push_back(id);
    }
}

/// Some watches of a connection that has ended.
pub(super) fn drop_watches(shard: &mut ShardState) {
    let Some(id) = shard.dropping.front().copied() else { return };
    if drop_some(shard, id) {
        shard.dropping.pop_front();
        shard.conns.free(id);
    }
}

/// True when none is left.
fn drop_some(shard: &mut ShardState, id: ConnId) -> bool {
    let hasher = shard.view.hasher();
    let mut left = DROPPED_PIECE;
    let done = shard.watches.drop_some(id, &mut left, |path| hasher.hash(path));
    shard.turn.spend(DROP_COST * (DROPPED_PIECE - left));
    done
}

/// If the server stops and no answer is under way any more, all connections end.
pub(super) fn close_if_drained(shard: &mut ShardState, now: Millis) {
    if !shard.draining.has_begun() || !shard.in_flight.is_empty() || shard.conns.len() == 0 {
        return;
    }
    let all: Vec<ConnId> = shard.conns.iter().map(|conn| conn.id).collect();
    for id in all {
        if let Some(mut conn) = shard.conns.take(id) {
            // It has not been read since the stop began, so it may not have been silent.
            (conn.active_at, conn.activity.noted) = (now, true);
            settle(shard, now, conn, Err(Close::Shutdown));
        }
    }
}

/// The server stops: nothing more is read. Connections end when every answer under way has been sent.
pub(super) fn drain(shard: &mut ShardState, now: Millis) {
    shard.draining = Draining::Begun;
    close_if_drained(shard, now);
}
