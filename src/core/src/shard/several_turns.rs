//! Work that takes several turns: each does a piece. It is of long reads, of connections that wait for others' turns or for
//! memory, and of watches of ended connections.

use crate::ids::Millis;
use crate::shard::conn::Pending;
use crate::shard::state::ShardState;
use crate::shard::{applying, ending, input, long, resuming, upkeep};
use core::mem;

/// Whether [`walk_on`] has something to do.
pub(super) fn is_walking(shard: &ShardState) -> bool {
    !shard.walking.is_empty()
        || !shard.dropping.is_empty()
        || upkeep::is_looking_around(shard)
        || shard.memory.may_admit(&shard.conns, shard.lists.may_begin())
        || resuming::may_resume(shard)
        || applying::may_serve_behind(shard)
}

/// Does one piece of one read, or of the other work between the turns.
pub(super) fn walk_on(shard: &mut ShardState, now: Millis) {
    shard.turn.begin();
    ending::drop_watches(shard);
    // The first may take the whole turn, so each is first in one of so many calls.
    const KINDS: u8 = 5;
    let first = shard.walk_first;
    shard.walk_first = (first + 1) % KINDS;
    for kind in first..first + KINDS {
        match kind % KINDS {
            0 => admit(shard, now),
            1 => resuming::resume_held_back(shard, now),
            2 => resuming::resume_queued(shard, now),
            3 => applying::serve_those_behind(shard, now),
            _ => go_on_with_next(shard, now),
        }
        if shard.turn.is_over() {
            break;
        }
    }
    upkeep::look_around(shard, now);
}

/// The connection that has waited longest for memory goes on, if there is enough for it.
fn admit(shard: &mut ShardState, now: Millis) {
    if !shard.memory.may_admit(&shard.conns, shard.lists.may_begin()) {
        return;
    }
    let Some(conn) = shard.memory.begin_admission(&mut shard.conns) else { return };
    shard.has_turn = true;
    if conn.is_closing() {
        ending::settle(shard, now, conn, Ok(()));
    } else {
        input::go_on(shard, now, conn);
    }
    shard.memory.end_admission();
    shard.has_turn = false;
}

/// A piece of the read, or the next requests, of the connection that has waited longest for that.
fn go_on_with_next(shard: &mut ShardState, now: Millis) {
    let Some(id) = shard.walking.pop_front() else { return };
    let Some(mut conn) = shard.conns.take(id) else { return };
    if conn.is_closing() {
        return shard.conns.put_back(conn);
    }
    if shard.events.pauses(&conn) {
        return shard.conns.put_back(conn);
    }
    shard.has_turn = mem::take(&mut conn.waits.turn);
    if !shard.has_turn {
        match conn.pending.pop() {
            Some(Pending::Long { xid, op, begun: Some(long), at, .. }) => {
                long::go_on(shard, now, &mut conn, xid, op, long, at);
            }
            other => unreachable!("a long read goes on, but {other:?} is first"),
        }
    }
    input::go_on(shard, now, conn);
    shard.has_turn = false;
}
