//! Messages of the driver that concern many connections: the flow of proposals, refused attaches, and a state that is replaced.
//!
//! In an ensemble the consensus actor reports when proposals must wait. They stay here, never sent, within the limits on
//! commands in flight. It also reports when sent proposals that did not come back have no known outcome. Then the
//! connections that wait for them end, and only these. No later write of such a connection is ever ordered, so that of
//! its writes a prefix is.

use crate::apply::outcome::Outcome;
use crate::ids::{ConnId, Millis};
use crate::shard::conn::{Close, Pending};
use crate::shard::counters::Answered;
use crate::shard::effects::Garbage;
use crate::shard::sessions::Sessions;
use crate::shard::state::ShardState;
use crate::shard::watch::WatchTable;
use crate::shard::{ending, greeting, leaderless, resuming};
use crate::tree::view::View;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;
use corral_wire::OpCode;

/// Answers connections with an attach that needs no log entry, because it is known here that it proves nothing. One
/// walk over the commands in flight serves all of them.
pub(super) fn refuse(shard: &mut ShardState, now: Millis, mut refused: Vec<ConnId>) {
    refused.sort_unstable();
    // A connection has nothing else in flight before it has a session.
    shard.in_flight.refuse(&refused);
    for id in refused {
        let Some(mut conn) = shard.conns.take(id) else { continue };
        if conn.is_closing() {
            shard.conns.put_back(conn);
            continue;
        }
        conn.pending.note_back();
        let Some(Pending::Connect { at }) = conn.pending.pop() else {
            unreachable!("a connection that attaches waits for nothing else")
        };
        let what = Answered { op: Some(OpCode::CreateSession), xid: 0, at, update: true };
        ending::count_reply(shard, &mut conn, now, what, 0);
        let verdict = greeting::connected(shard, &mut conn, &Outcome::SessionRefused);
        ending::settle(shard, now, conn, verdict);
    }
    resuming::resume_held_back(shard, now);
    ending::close_if_drained(shard, now);
}

/// Ends the connections of commands that were taken and have not come back: their outcome is unknown. All others
/// stay, with their commands that were not taken yet. With `unsent_too` these end as well, because no leader is
/// found.
pub(super) fn uncertain(shard: &mut ShardState, now: Millis, generation: u32, unsent_too: bool) {
    let ended = shard.in_flight.lose(generation, unsent_too, &mut shard.effects.audited);
    for id in ended {
        if let Some(conn) = shard.conns.take(id) {
            if conn.is_closing() {
                shard.conns.put_back(conn);
            } else {
                ending::end_now(shard, now, conn, Close::Uncertain);
            }
        }
    }
    resuming::resume_held_back(shard, now);
    ending::close_if_drained(shard, now);
}

/// The leader's snapshot took the place of the state: every connection ends, and the view is that of the snapshot.
pub(super) fn install(shard: &mut ShardState, view: View, sessions_alive: u64) {
    let all: Vec<ConnId> = shard.conns.iter().map(|conn| conn.id).collect();
    for id in all {
        if let Some(conn) = shard.conns.take(id) {
            ending::end(shard, &conn, Close::Replaced);
        }
    }
    // The remaining watches are listed by the hashes of the old view, and no connection has any.
    mem::take(&mut shard.dropping).into_iter().for_each(|id| shard.conns.free(id));
    let watches = mem::replace(&mut shard.watches, WatchTable::of(&shard.config.limits));
    shard.effects.garbage.push(Garbage::Watches(Box::new(watches)));
    shard.events.clear();
    (shard.lists, shard.delay) = Default::default();
    shard.memory.clear_queue();
    shard.in_flight.clear(&mut shard.effects.audited);
    shard.sessions = Sessions::new(sessions_alive);
    shard.freshness.clear_waiting();
    shard.walking.clear();
    shard.writes.clear();
    shard.flow.distrusted = false;
    shard.effects.garbage.push(Garbage::View(Box::new(mem::replace(&mut shard.view, view))));
}

/// Proposals go again, with the next turn.
pub(super) fn resume_proposals(shard: &mut ShardState, now: Millis) {
    shard.flow.paused = false;
    if mem::replace(&mut shard.flow.leaderless, false) {
        leaderless::end_read_only(shard, now);
    }
}
