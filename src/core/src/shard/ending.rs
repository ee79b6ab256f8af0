//! The end of requests, which are counted, and of connections: at once, or when all that is queued for them has been sent.

use crate::ids::{ConnId, Millis};
use crate::limits::{ANSWERED_MAX, DROP_COST, DROPPED_PIECE};
use crate::shard::conn::{Close, Conn, Phase};
use crate::shard::counters::Answered;
use crate::shard::effects::{Answer, Garbage};
use crate::shard::state::{Draining, Served, ShardState};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Counts a reply of so many bytes, its length word included: a few plain stores, because every read comes by here. Sizes of 0 do
/// not count.
pub(super) fn count_reply(shard: &mut ShardState, conn: &mut Conn, now: Millis, what: Answered, bytes: usize) {
    if bytes > 0 {
        shard.statistics.replies.note(bytes - size_of::<i32>());
    }
    let ms = now.since(Millis::of(what.at));
    if let Some(op) = what.op.filter(|_| shard.effects.answered.len() < ANSWERED_MAX) {
        shard.effects.answered.push(Answer { op, at: what.at });
    }
    conn.counters.replied(what, shard.view.zxid(), now, ms);
    shard.statistics.sent += 1;
    let latency = if what.update { &mut shard.statistics.updates } else { &mut shard.statistics.reads };
    latency.note(ms);
    if ms >= shard.config.slow_request_ms {
        shard.effects.slow.note(conn, what, shard.view.zxid(), ms);
    }
}

/// Counts a reply that tells nothing of how fast this server is.
pub(super) fn count_sent(shard: &mut ShardState, conn: &mut Conn) {
    conn.counters.sent += 1;
    shard.statistics.sent += 1;
}

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
            shard.activity.note(now, &mut conn);
            settle(shard, now, conn, Err(Close::Shutdown));
        }
    }
}

/// The server stops: nothing more is read. Connections end when every answer under way has been sent.
pub(super) fn drain(shard: &mut ShardState, now: Millis) {
    shard.draining = Draining::Begun;
    close_if_drained(shard, now);
}

#[cfg(test)]
mod tests {
    use crate::ids::{Millis, SessionId};
    use crate::shard::counters::Answered;
    use crate::shard::slow::SlowRequests;
    use crate::shard::tests::{client, shard};
    use corral_wire::OpCode;

    #[test]
    fn slow_requests_are_kept_to_a_limit() {
        let mut shard = shard();
        shard.state.config.slow_request_ms = 5;
        let id = client(&mut shard);
        let mut conn = shard.state.conns.take(id).expect("it is there");
        conn.session.attach(SessionId(9), 1000);
        let mut answer = |xid, at| {
            let what = Answered { op: Some(OpCode::SetData), xid, at: Millis(at).micros(), update: true };
            super::count_reply(&mut shard.state, &mut conn, Millis(10), what, 20);
        };
        (0..20).for_each(|xid| answer(xid, 5));
        answer(99, 6);
        let SlowRequests { kept, left_out } = shard.state.effects.slow;
        assert_eq!((kept.len(), left_out), (16, 4));
        let first = &kept[0];
        assert_eq!((first.ms, first.operation, first.session, first.xid), (5, "SETD", SessionId(9), 0));
        assert_eq!(first.address.port(), 1);
    }
}
