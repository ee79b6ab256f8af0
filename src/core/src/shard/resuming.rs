//! Connections that waited for commands in flight are read on.

use crate::ids::Millis;
use crate::limits::LOOK_UP_COST;
use crate::shard::input;
use crate::shard::state::ShardState;
use core::mem;

/// Writes go on after they were held.
pub(super) fn release_writes(shard: &mut ShardState, now: Millis) {
    shard.turn.begin();
    shard.writes.held = false;
    resume_held_back(shard, now);
}

/// Whether a connection that waited for commands in flight may be read on.
pub(super) fn may_resume(shard: &ShardState) -> bool {
    shard.writes.may_go_on(shard.in_flight.cost()) && !shard.in_flight.is_full(&shard.config.limits)
}

/// Resumes connections that waited for commands in flight, because one was answered or lost. The longest wait comes
/// first, until enough is in flight again or the turn's work is done. `several_turns::walk_on` does the rest.
#[inline]
pub(super) fn resume_held_back(shard: &mut ShardState, now: Millis) {
    if may_resume(shard) {
        resume_some(shard, now);
    }
}

#[inline(never)]
fn resume_some(shard: &mut ShardState, now: Millis) {
    while !shard.turn.is_over()
        && !shard.in_flight.is_full(&shard.config.limits)
        && let Some(id) = shard.writes.held_back.pop_front()
    {
        shard.turn.spend(LOOK_UP_COST);
        if let Some(conn) = shard.conns.get_mut(id) {
            conn.waits.in_flight = false;
            input::resume_by_id(shard, now, id);
        }
    }
    if !shard.writes.costly.is_empty() {
        resume_costly(shard, now);
    }
}

/// As [`resume_held_back`], for those alone that are queued with a costly write.
pub(super) fn resume_queued(shard: &mut ShardState, now: Millis) {
    if !shard.writes.costly.is_empty() && !shard.in_flight.is_full(&shard.config.limits) {
        resume_costly(shard, now);
    }
}

fn resume_costly(shard: &mut ShardState, now: Millis) {
    // Connections that are queued again come behind connections that have waited longer.
    let mut queue = mem::take(&mut shard.writes.costly);
    while !shard.turn.is_over()
        && !shard.writes.has_to_queue(shard.in_flight.cost())
        && let Some(id) = queue.pop_front()
    {
        shard.turn.spend(LOOK_UP_COST);
        if let Some(conn) = shard.conns.get_mut(id) {
            conn.waits.costly = false;
            input::resume_by_id(shard, now, id);
        }
    }
    let newer = mem::replace(&mut shard.writes.costly, queue);
    shard.writes.costly.extend(newer);
}
