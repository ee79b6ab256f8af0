//! The work of a tick, and the checks of all connections that a tick begins.

use crate::ids::{ConnId, Millis};
use crate::limits::ENDED_PIECE;
use crate::shard::conn::{Close, Conn, Phase};
use crate::shard::effects::{Garbage, SessionActivity};
use crate::shard::shed::Shedding;
use crate::shard::state::ShardState;
use crate::shard::{ending, greeting, input, leaderless};
use alloc::vec::Vec;
use core::iter;

/// Begins a look at all connections, with which `several_turns::walk_on` goes on. The report of session activity is complete up to the
/// last tick, because every socket has had its turn since.
pub(super) fn tick(shard: &mut ShardState, now: Millis) {
    shard.turn.begin();
    shard.activity.begin_round(shard.conns.slots());
    let (upto, sessions) = shard.activity.report(now, &mut shard.conns);
    shard.memory.look_for_slow_holders(now);
    look_around(shard, now);
    greeting::let_ask(shard, now);
    shard.loads.tick(now);
    shed_some(shard);
    shard.statistics.rate_limited += shard.metered.take_waits();
    let mut queue = shard.metered.queue();
    while let Some(id) = shard.metered.next_ready(&shard.config.limits, now, &mut queue) {
        input::resume_by_id(shard, now, id);
    }
    shard.effects.garbage.extend(iter::from_fn(|| shard.watches.take_emptied()).map(Garbage::Watches));
    shard.effects.activity = Some(SessionActivity { upto, sessions });
}

/// Checks some of all connections, and looks for some slow holders of memory.
pub(super) fn look_around(shard: &mut ShardState, now: Millis) {
    if let Some((slots, read_upto)) = shard.activity.next_piece(&mut shard.conns) {
        excuse_those_who_wait(shard, now, slots);
        close_overdue(shard, now, read_upto, slots);
        leaderless::send_away_in_time(shard, now, read_upto, slots);
    }
    end_slow_holders(shard, now);
}

/// Whether [`look_around`] has something to do.
pub(super) fn is_looking_around(shard: &ShardState) -> bool {
    shard.activity.has_round() || shard.memory.has_slow_holders()
}

/// A connection that is not read, because this server owes it answers or is stopping, is not silent: what it says
/// may lie unread. Looks at so many slots from one on.
fn excuse_those_who_wait(shard: &mut ShardState, now: Millis, (from, count): (usize, usize)) {
    let draining = shard.draining.has_begun();
    let unread = shard.config.limits.reply_buffer_bytes_soft_max;
    let metered = &shard.metered;
    let is_owed = |conn: &Conn| {
        !conn.pending.is_empty()
            || conn.waits.memory
            || conn.waits.costly
            || conn.waits.turn
            || conn.waits.in_flight
            || metered.waits(now, conn.id, conn.session.silence_max_ms())
    };
    let waits = |conn: &&mut Conn| conn.stalled && is_owed(conn) && conn.unsent() < unread;
    for conn in shard.conns.range_mut(from, count).filter(|conn| draining || waits(conn)) {
        shard.activity.note(now, conn);
    }
}

/// Closes overdue connections. Silence is judged up to the last report: later bytes may still lie in a socket that
/// was not read yet, when this core stalled.
fn close_overdue(shard: &mut ShardState, now: Millis, read_upto: Millis, (from, count): (usize, usize)) {
    const LINGER_MS: u64 = 5000;
    let sessionless = shard.config.sessionless_timeout_ms;
    let overdue = |conn: &Conn| match conn.phase {
        Phase::Greeting { .. } if read_upto.since(conn.opened) > sessionless => Some(Close::NeverConnected),
        Phase::Closing { since, why } if now.since(since) > LINGER_MS => Some(why),
        Phase::Live if read_upto.since(conn.active_at) > conn.session.silence_max_ms() => Some(Close::Silent),
        _ => None,
    };
    let conns = shard.conns.range(from, count);
    let list: Vec<(ConnId, Close)> = conns.filter_map(|conn| Some((conn.id, overdue(conn)?))).collect();
    for (id, why) in list {
        if let Some(conn) = shard.conns.take(id) {
            ending::end(shard, &conn, why);
        }
    }
}

/// Ends some of the connections that hold memory and do not take it, or do not send the rest.
fn end_slow_holders(shard: &mut ShardState, now: Millis) {
    if !shard.memory.find_slow_holders(now, &mut shard.conns) {
        return;
    }
    for _ in 0..ENDED_PIECE {
        let list = shard.lists.may_begin();
        let Some(id) = shard.memory.next_slow_holder(now, &shard.conns, list) else { return };
        if let Some(why) = shard.conns.get(id).and_then(|conn| shard.memory.ends_slow_holder(conn))
            && let Some(conn) = shard.conns.take(id)
        {
            ending::end(shard, &conn, why);
        }
    }
}

/// Closes so many of a hundred connections in the next ticks. Their sessions go on.
pub(super) fn shed(shard: &mut ShardState, now: Millis, percent: u8) {
    shard.shedding = Some(Shedding::begin(now, shard.conns.len(), percent));
}

fn shed_some(shard: &mut ShardState) {
    let chosen = shard.shedding.as_mut().map(|shedding| shedding.choose(&shard.conns)).unwrap_or_default();
    for id in chosen {
        if let Some(conn) = shard.conns.take(id) {
            ending::end(shard, &conn, Close::Shed);
        }
    }
    shard.shedding.take_if(|shedding| shedding.is_over());
}
