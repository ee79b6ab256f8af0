//! Messages of the driver: batches, snapshots, flow of proposals, answers from elsewhere.
//!
//! In an ensemble the consensus actor reports when proposals must wait. They stay here, never sent, within the limits on
//! commands in flight. It also reports when sent proposals that did not come back have no known outcome. Then the
//! connections that wait for them end, and only these. No later write of such a connection is ever ordered, so that of
//! its writes a prefix is.

use crate::apply::outcome::{AppliedBatch, Outcome};
use crate::ids::{ConnId, Millis};
use crate::shard::conn::{Close, Pending};
use crate::shard::counters::Answered;
use crate::shard::effects::Garbage;
use crate::shard::events::{Flow, ShardMessage};
use crate::shard::sessions::Sessions;
use crate::shard::state::ShardState;
use crate::shard::watch::WatchTable;
use crate::shard::{applying, authentication, ending, greeting, leaderless, resuming, upkeep};
use crate::tree::view::View;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use corral_wire::OpCode;

/// Carries out a message. None is given while a batch is applied in part.
pub(super) fn take_message(shard: &mut ShardState, now: Millis, message: ShardMessage) {
    match message {
        ShardMessage::Batch(batch) => apply_from(shard, now, batch, 0),
        ShardMessage::Adopt(frozen) => applying::adopt_frozen(shard, frozen),
        ShardMessage::Swap(snapshot) => applying::swap_snapshot(shard, snapshot),
        ShardMessage::Install(view, sessions_alive) => install(shard, View::clone(&view), sessions_alive),
        ShardMessage::Flow(flow) => match flow {
            Flow::Pause => shard.flow.pause(now),
            Flow::Resume => resume_proposals(shard, now),
            Flow::Uncertain { generation, unsent_too } => uncertain(shard, now, generation, unsent_too),
            Flow::Leaderless => leaderless::leaderless(shard, now),
            Flow::Distrusted => leaderless::distrust(shard, now),
        },
        ShardMessage::Growth(refuses) => shard.refuses_growth = refuses,
        ShardMessage::Drain => ending::drain(shard, now),
        ShardMessage::Synced(conns) => conns.into_iter().for_each(|id| applying::synced(shard, now, id)),
        ShardMessage::SyncRefused(conns) => conns.into_iter().for_each(|id| ending::hung_up(shard, id)),
        ShardMessage::Refused(conns) => refuse(shard, now, conns),
        ShardMessage::FourLetterAnswered { conn, text } => {
            greeting::answer_four_letter(shard, now, conn, text.into_bytes())
        }
        ShardMessage::WritesGoOn => resuming::release_writes(shard, now),
        ShardMessage::Shed(percent) => upkeep::shed(shard, now, percent),
        ShardMessage::SaslUsers(users) => authentication::set_sasl_users(shard, users),
    }
}

/// Applies the next transactions of a batch, for the length of a turn, or takes the next message behind it.
pub(super) fn apply_next(shard: &mut ShardState, now: Millis) {
    if let Some((batch, from)) = shard.mailbox.unfinished.take() {
        apply_from(shard, now, batch, from);
    } else if let Some(message) = shard.mailbox.waiting.pop_front() {
        take_message(shard, now, message);
    }
}

fn apply_from(shard: &mut ShardState, now: Millis, batch: Arc<AppliedBatch>, from: usize) {
    let next = applying::apply_some(shard, now, &batch, from);
    if next < batch.txns.len() {
        shard.mailbox.unfinished = Some((batch, next));
    } else {
        shard.effects.applied += 1;
    }
}

/// Answers connections with an attach that needs no log entry, because it is known here that it proves nothing. One
/// walk over the commands in flight serves all of them.
fn refuse(shard: &mut ShardState, now: Millis, mut refused: Vec<ConnId>) {
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
        shard.count_reply(&mut conn, now, Answered { op: Some(OpCode::CreateSession), xid: 0, at, update: true }, 0);
        let verdict = greeting::connected(shard, &mut conn, &Outcome::SessionRefused);
        ending::settle(shard, now, conn, verdict);
    }
    resuming::resume_held_back(shard, now);
    ending::close_if_drained(shard, now);
}

/// Ends the connections of commands that were taken and have not come back: their outcome is unknown. All others
/// stay, with their commands that were not taken yet. With `unsent_too` these end as well, because no leader is
/// found.
fn uncertain(shard: &mut ShardState, now: Millis, generation: u32, unsent_too: bool) {
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
fn install(shard: &mut ShardState, view: View, sessions_alive: u64) {
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
fn resume_proposals(shard: &mut ShardState, now: Millis) {
    shard.flow.paused = false;
    if mem::replace(&mut shard.flow.leaderless, false) {
        leaderless::end_read_only(shard, now);
    }
}
