//! Which connections are active: for the reports of session activity, and to find the silent and the idle ones.
//!
//! After each tick all connections are looked at, some at a time. A tick that comes before the last piece begins no further look.

use crate::ids::{ConnId, Millis, SessionId};
use crate::limits::{ROUND_TICKS_MAX, SLOTS_A_TICK, SLOTS_PIECE};
use crate::shard::conn::Conn;
use crate::shard::conns::Conns;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem;

/// A look at all connections.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// The next slot.
    from: usize,
    /// Every socket had been read up to this time when the round began.
    read_upto: Millis,
    /// Connections that may be idle, and were not looked at.
    cooling: usize,
}

/// The active, silent and idle connections of a shard, and the reports of them.
#[derive(Debug)]
pub(super) struct Activity {
    /// Active since the last report, each once.
    active: Vec<ConnId>,
    /// Active before that, each once: they are idle if they are not active again.
    cooling: VecDeque<ConnId>,
    /// Sessions that were active since the last report, on connections that have ended.
    ended: Vec<(SessionId, Millis)>,
    reported_at: Millis,
    round: Option<Round>,
    /// Ticks since the last round began.
    ticks: usize,
}

impl Activity {
    pub(super) fn new(now: Millis) -> Self {
        let (active, cooling, ended) = Default::default();
        Self { active, cooling, ended, reported_at: now, round: None, ticks: 0 }
    }

    /// The connection is active.
    #[inline]
    pub(super) fn note(&mut self, now: Millis, conn: &mut Conn) {
        conn.active_at = now;
        if !mem::replace(&mut conn.activity.noted, true) {
            self.active.push(conn.id);
        }
    }

    /// The connection has ended.
    pub(super) fn note_end(&mut self, conn: &Conn) {
        if conn.activity.noted {
            self.ended.extend(reported(conn));
        }
    }

    /// Sessions that were active since the last tick, and the time up to which that list is complete. It is the time of
    /// the last tick, because every socket has been read since.
    pub(super) fn report(&mut self, now: Millis, conns: &mut Conns) -> (Millis, Vec<(SessionId, Millis)>) {
        let mut list = mem::take(&mut self.ended);
        list.reserve(self.active.len());
        for id in mem::take(&mut self.active) {
            let Some(conn) = conns.get_mut(id) else { continue };
            if !mem::replace(&mut conn.activity.cooling, true) {
                self.cooling.push_back(id);
            }
            conn.activity.noted = false;
            list.extend(reported(conn));
        }
        (mem::replace(&mut self.reported_at, now), list)
    }

    /// A tick begins a round, unless one is under way. Of many connections not every tick does.
    pub(super) fn begin_round(&mut self, slots: usize) {
        self.ticks += 1;
        if self.round.is_none() && self.ticks >= (slots / SLOTS_A_TICK).min(ROUND_TICKS_MAX) {
            self.ticks = 0;
            self.round = Some(Round { from: 0, read_upto: self.reported_at, cooling: self.cooling.len() });
        }
    }

    pub(super) const fn has_round(&self) -> bool {
        self.round.is_some()
    }

    /// The next piece of the round: so many slots from one on, and the time up to which every socket had been read. Idle connections have
    /// given their buffers back.
    pub(super) fn next_piece(&mut self, conns: &mut Conns) -> Option<((usize, usize), Millis)> {
        let Round { from, read_upto, cooling } = self.round?;
        let left = self.cool_down(conns, cooling);
        let next = conns.after(from, SLOTS_PIECE);
        let round = Round { from: next.unwrap_or(from + SLOTS_PIECE), read_upto, cooling: left };
        self.round = (next.is_some() || left > 0).then_some(round);
        Some(((from, SLOTS_PIECE), read_upto))
    }

    /// Frees the buffers of idle connections. A connection that still waits for answers is checked again after the next
    /// tick. Checks some of so many, and returns how many are left.
    fn cool_down(&mut self, conns: &mut Conns, count: usize) -> usize {
        let some = count.min(SLOTS_PIECE);
        for _ in 0..some {
            let Some(id) = self.cooling.pop_front() else { return 0 };
            let Some(conn) = conns.get_mut(id) else { continue };
            // An active connection comes back with the next tick.
            conn.activity.cooling = !conn.activity.noted && !conn.cool_down();
            if conn.activity.cooling {
                self.cooling.push_back(id);
            }
        }
        if some == count && self.cooling.capacity() > 2 * (self.cooling.len() + self.active.len()) {
            self.cooling.shrink_to(self.cooling.len() + self.active.len());
        }
        count - some
    }
}

/// The session of a connection for the report, if the leader knows it.
fn reported(conn: &Conn) -> Option<(SessionId, Millis)> {
    Some((conn.session.replicated()?, conn.active_at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::ClientEvent;
    use crate::shard::tests::{client, event, receive, shard, tick};

    #[test]
    fn a_connection_that_is_active_again_and_again_is_looked_at_once() {
        let mut shard = shard();
        let id = client(&mut shard);
        for (byte, now) in b"ruo".iter().zip(1..) {
            receive(&mut shard, Millis(now), id, &[*byte]);
            tick(&mut shard, Millis(now));
            assert_eq!(shard.state.activity.cooling, [id]);
        }
        receive(&mut shard, Millis(4), id, b"k");
        event(&mut shard, Millis(4), id, ClientEvent::Sent(4));
        for now in 5..8 {
            tick(&mut shard, Millis(now));
        }
        assert!(shard.state.activity.cooling.is_empty());
    }
}
