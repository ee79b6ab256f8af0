//! From bytes to frames, and when a connection must wait: every limit on what one may have under way is applied here.
//!
//! After each tick all connections are looked at, some at a time: a silent one ends, an idle one gives its buffers back. A tick
//! does the first piece, [`Shard::walk_on`] the others. A tick that comes before the last piece begins no further look.

use super::memory::Wanting;
use super::{Served, Shard};
use crate::conn::{Close, Conn, Phase};
use crate::ids::{ConnId, Millis, SessionId};
use crate::limits::{CONNECT_BYTES_MAX, ROUND_TICKS_MAX, SLOTS_A_TICK, SLOTS_PIECE};
use crate::load::Request;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;
use corral_wire::frame::next_frame;

/// A look at all connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    /// The next slot.
    from: usize,
    /// Up to when every socket had been read when it began.
    read_upto: Millis,
    /// Connections that may be idle, and were not looked at.
    cooling: usize,
}

impl Shard {
    /// Bytes came in. They are taken whole; while the connection is stalled the driver reads no more of it.
    pub(super) fn received(&mut self, now: Millis, id: ConnId, bytes: &[u8]) {
        let Some(mut conn) = self.conns.take(id) else { return };
        self.spent = 0;
        conn.heard = now;
        conn.note_moved(bytes.len());
        self.statistics.bytes_received += bytes.len() as u64;
        if !self.metered.is_empty() {
            self.metered.count_bytes(&self.config.limits, now, id, bytes.len());
        }
        if !mem::replace(&mut conn.heard_noted, true) {
            self.heard.push(id);
        }
        let verdict = if conn.input.is_empty() {
            self.consume(now, &mut conn, bytes).map(|used| conn.input.append(&bytes[used..]))
        } else if conn.missing() > bytes.len() && !conn.is_closing() {
            conn.input.append(bytes);
            Ok(())
        } else {
            conn.input.append(bytes);
            self.consume_kept(now, &mut conn)
        };
        self.settle(now, conn, verdict);
    }

    /// The socket took `count` bytes of [`Shard::unsent`].
    pub(super) fn sent(&mut self, now: Millis, id: ConnId, count: usize) {
        let Some(mut conn) = self.conns.take(id) else { return };
        self.spent = 0;
        conn.note_moved(count);
        conn.forget_sent(count);
        self.statistics.bytes_sent += count as u64;
        if conn.unsent() == 0 {
            conn.sent = 0;
            conn.announced = false;
            self.buffers.take_back(&mut conn.output);
        }
        let verdict = self.catch_up(now, &mut conn).and_then(|()| self.resume(now, &mut conn));
        self.settle(now, conn, verdict);
    }

    /// The client sends no more. It may still read, as netcat does, which closes its side at once: what it has asked
    /// for is answered, then the connection ends.
    pub(super) fn input_ended(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id) else { return };
        conn.mute = true;
        if conn.is_paid() {
            self.hung_up(id);
        }
    }

    /// The socket failed or the client closed it.
    pub(super) fn hung_up(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.take(id) {
            self.end(&conn, Close::HungUp);
        }
    }

    pub(super) fn consume_kept(&mut self, now: Millis, conn: &mut Conn) -> Served {
        let mut input = mem::take(&mut conn.input);
        let used = self.consume(now, conn, input.rest())?;
        input.take(used);
        conn.input = input;
        Ok(())
    }

    /// Takes whole frames off the front of `bytes` until there is none or the connection must wait.
    pub(super) fn consume(&mut self, now: Millis, conn: &mut Conn, bytes: &[u8]) -> Result<usize, Close> {
        let (mut used, mut looked) = (0, 0);
        loop {
            if conn.is_closing() {
                return Ok(bytes.len());
            }
            conn.stalled = self.must_wait(now, conn);
            if conn.stalled {
                return Ok(used);
            }
            let rest = &bytes[used..];
            if conn.is_greeting()
                && let Some(done) = self.greeted_with_four_letter(now, conn, rest)?
            {
                return Ok(used + done);
            }
            let frame_bytes_max = self.config.limits.frame_bytes_max;
            let max = if conn.is_greeting() { frame_bytes_max.min(CONNECT_BYTES_MAX) } else { frame_bytes_max };
            let Ok(found) = next_frame(rest, max) else {
                return Err(bad_length(conn, rest));
            };
            let Some((frame, length)) = found else { return Ok(used) };
            if let Phase::Greeting { entropy } = conn.phase {
                self.connect(conn, frame, entropy)?;
            } else {
                if used >= looked {
                    looked = used + self.look_ahead(rest);
                }
                let counted = self.loads.is_next().then(|| (self.spent, conn.unsent()));
                self.request(now, conn, frame)?;
                if conn.queued {
                    return Ok(used);
                }
                if let Some(before) = counted {
                    self.count_load(conn, frame, before);
                }
                conn.counters.received += 1;
                self.statistics.received += 1;
                if !self.metered.is_empty() {
                    self.metered.count_request(&self.config.limits, now, conn.id);
                }
            }
            used += length;
            if self.spent >= self.config.limits.turn_cost_max {
                self.go_on_later(conn);
                return Ok(used);
            }
        }
    }

    /// Counts a request for [`Shard::loads`], with the work and the unsent bytes before it.
    fn count_load(&mut self, conn: &Conn, frame: &[u8], (spent, unsent): (usize, usize)) {
        let bytes = frame.len() + conn.unsent().saturating_sub(unsent);
        let cost = self.spent.saturating_sub(spent);
        let (address, session) = (conn.peer.ip().to_canonical(), conn.session);
        self.loads.count(&Request { address, session, frame, bytes, cost });
    }

    /// Whether something of this connection, or of the shard, must be finished before more is read.
    pub(super) fn must_wait(&mut self, now: Millis, conn: &mut Conn) -> bool {
        if self.has_enough_in_flight() {
            if !mem::replace(&mut conn.held_back, true) {
                self.held_back.push_back(conn.id);
            }
            return true;
        }
        if self.is_short_of_memory(conn) {
            self.wait_for_memory(conn, Wanting { conn: conn.id, need: 0, list: false, since: now });
        }
        let limits = &self.config.limits;
        self.draining
            || conn.blocked
            || conn.wanting
            || conn.queued
            || conn.again
            || conn.phase == Phase::Connecting
            || conn.pending.len() >= limits.requests_in_flight_per_connection_max
            || conn.pending.len() - conn.proposed as usize >= limits.queued_per_connection_max
            || conn.queued_bytes as usize >= limits.queued_bytes_max
            || conn.unsent() >= limits.reply_buffer_bytes_soft_max
            || (!self.metered.is_empty() && self.metered.is_over(limits, now, conn.id))
    }

    pub(super) fn resume_by_id(&mut self, now: Millis, id: ConnId) {
        if let Some(mut conn) = self.conns.take(id) {
            let verdict = self.resume(now, &mut conn);
            self.settle(now, conn, verdict);
        }
    }

    /// Goes on with a stalled connection's input if what held it back is gone, in a later turn if this one's work is done.
    pub(super) fn resume(&mut self, now: Millis, conn: &mut Conn) -> Served {
        if !conn.stalled {
            return Ok(());
        }
        if self.spent >= self.config.limits.turn_cost_max {
            // One that stands in a queue comes back with that.
            if !conn.queued && !conn.wanting {
                self.go_on_later(conn);
            }
            return Ok(());
        }
        self.consume_kept(now, conn)?;
        if !conn.stalled {
            self.effects.resumed.push(conn.id);
        }
        Ok(())
    }

    /// Puts a connection back after it was worked on, or ends it.
    pub(super) fn settle(&mut self, now: Millis, mut conn: Box<Conn>, verdict: Served) {
        conn.begin_chunk();
        if let Err(why) = verdict {
            conn.close_after_flush(now, why);
            self.lists.retain(|id| *id != conn.id);
        }
        self.weigh(now, &mut conn);
        if let Phase::Closing { why, .. } = conn.phase
            && conn.unsent() == 0
        {
            return self.end(&conn, why);
        }
        if conn.mute && conn.is_paid() {
            return self.end(&conn, Close::HungUp);
        }
        if conn.unsent() > 0 && !mem::replace(&mut conn.announced, true) {
            self.effects.dirty.push(conn.id);
        }
        self.conns.put_back(conn);
    }

    pub(super) fn end(&mut self, conn: &Conn, why: Close) {
        self.unbind(conn);
        if !self.lists.is_empty() {
            self.lists.retain(|id| *id != conn.id);
        }
        if !self.barriers.is_empty() {
            self.barriers.remove(&conn.id);
        }
        if !self.sasl.is_empty() {
            self.sasl.remove(&conn.id);
        }
        self.held_bytes -= conn.summed;
        if !self.metered.is_empty() {
            self.metered.forget(conn.id);
        }
        self.forget_command(conn.command);
        if conn.heard_noted && conn.session != SessionId(0) && !conn.read_only {
            self.heard_and_ended.push((conn.session, conn.heard));
        }
        match why {
            Close::AuthFailed => self.statistics.auths_failed += 1,
            Close::NeverConnected => self.statistics.never_connected += 1,
            Close::LargeRequests => self.statistics.large_requests_refused += 1,
            _ => {}
        }
        self.conns.forget();
        self.drop_watches_of(conn.id);
        self.effects.closed.push((conn.id, why));
    }

    pub(super) fn begin_round(&mut self) {
        self.ticks += 1;
        if self.round.is_none() && self.ticks >= (self.conns.slots() / SLOTS_A_TICK).min(ROUND_TICKS_MAX) {
            self.ticks = 0;
            self.round = Some(Round { from: 0, read_upto: self.reported_at, cooling: self.cooling.len() });
        }
    }

    /// Sessions heard from since the last tick. Their connections are idle if they are not heard from again.
    pub(super) fn take_heard(&mut self) -> Vec<(SessionId, Millis)> {
        let mut list = mem::take(&mut self.heard_and_ended);
        list.reserve(self.heard.len());
        for id in mem::take(&mut self.heard) {
            let Some(conn) = self.conns.get_mut(id) else { continue };
            if !mem::replace(&mut conn.cooling, true) {
                self.cooling.push_back(id);
            }
            conn.heard_noted = false;
            if conn.session != SessionId(0) && !conn.read_only {
                list.push((conn.session, conn.heard));
            }
        }
        list
    }

    /// Whether [`Shard::look_around`] has something to do.
    pub(super) fn is_looking_around(&self) -> bool {
        self.round.is_some() || self.slow_holders.is_some()
    }

    /// A piece of the look at all connections, and of that for those who hold memory.
    pub(super) fn look_around(&mut self, now: Millis) {
        if let Some(Round { from, read_upto, cooling }) = self.round {
            let slots = (from, SLOTS_PIECE);
            let left = self.cool_down(cooling);
            self.excuse_those_who_wait(now, slots);
            self.close_overdue(now, read_upto, slots);
            self.send_away_in_time(now, slots);
            let next = self.conns.after(from, SLOTS_PIECE);
            let from = next.unwrap_or(from + SLOTS_PIECE);
            self.round = (next.is_some() || left > 0).then_some(Round { from, read_upto, cooling: left });
        }
        self.end_slow_holders(now);
    }

    /// An idle connection owns no buffer. One that still waits for answers is looked at again after the next tick. Looks at
    /// some of so many; gives how many are left.
    fn cool_down(&mut self, count: usize) -> usize {
        let some = count.min(SLOTS_PIECE);
        for _ in 0..some {
            let Some(id) = self.cooling.pop_front() else { return 0 };
            let Some(conn) = self.conns.get_mut(id) else { continue };
            // One that is heard from again comes back with the next tick.
            conn.cooling = !conn.heard_noted && !conn.cool_down();
            if conn.cooling {
                self.cooling.push_back(id);
            }
        }
        if some == count && self.cooling.capacity() > 2 * (self.cooling.len() + self.heard.len()) {
            self.cooling.shrink_to(self.cooling.len() + self.heard.len());
        }
        count - some
    }

    /// A connection that is not read, because this server owes it answers or is stopping, is not silent: what it says
    /// may lie unread. Looks at so many slots from one on.
    pub(super) fn excuse_those_who_wait(&mut self, now: Millis, (from, count): (usize, usize)) {
        let draining = self.draining;
        let unread = self.config.limits.reply_buffer_bytes_soft_max;
        let metered = &self.metered;
        let is_owed = |conn: &Conn| {
            !conn.pending.is_empty()
                || conn.wanting
                || conn.queued
                || conn.again
                || conn.held_back
                || metered.waits(now, conn.id, u64::try_from(conn.timeout_ms).unwrap_or(0))
        };
        let waits = |conn: &&mut Conn| conn.stalled && is_owed(conn) && conn.unsent() < unread;
        for conn in self.conns.range_mut(from, count).filter(|conn| draining || waits(conn)) {
            conn.heard = now;
            if !mem::replace(&mut conn.heard_noted, true) {
                self.heard.push(conn.id);
            }
        }
    }

    /// Silence is judged up to the last report: what came since may still lie in a socket that has not had its turn,
    /// when this core stalled.
    pub(super) fn close_overdue(&mut self, now: Millis, read_upto: Millis, (from, count): (usize, usize)) {
        const LINGER_MS: u64 = 5000;
        let sessionless = self.config.sessionless_timeout_ms;
        let overdue = |conn: &Conn| match conn.phase {
            Phase::Greeting { .. } if read_upto.since(conn.opened) > sessionless => Some(Close::NeverConnected),
            Phase::Closing { since, why } if now.since(since) > LINGER_MS => Some(why),
            Phase::Live if read_upto.since(conn.heard) > u64::try_from(conn.timeout_ms).unwrap_or(0) => {
                Some(Close::Silent)
            }
            _ => None,
        };
        let conns = self.conns.range(from, count);
        let list: Vec<(ConnId, Close)> = conns.filter_map(|conn| Some((conn.id, overdue(conn)?))).collect();
        for (id, why) in list {
            if let Some(conn) = self.conns.take(id) {
                self.end(&conn, why);
            }
        }
    }
}

fn bad_length(conn: &Conn, bytes: &[u8]) -> Close {
    let word = bytes.first_chunk::<4>().copied().unwrap_or_default();
    match &word {
        b"GET " | b"POST" | b"HEAD" | b"PUT " | b"OPTI" if conn.is_greeting() => Close::Http,
        [0x16, 0x03, _, _] if conn.is_greeting() => Close::Tls,
        _ => Close::BadLength(i32::from_be_bytes(word)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{client, shard};
    use super::*;

    #[test]
    fn a_connection_that_is_heard_from_again_and_again_is_looked_at_once() {
        let mut shard = shard();
        let id = client(&mut shard);
        for (byte, now) in b"ruo".iter().zip(1..) {
            shard.received(Millis(now), id, &[*byte]);
            shard.tick(Millis(now));
            assert_eq!(shard.cooling, [id]);
        }
        shard.received(Millis(4), id, b"k");
        shard.sent(Millis(4), id, 4);
        for now in 5..8 {
            shard.tick(Millis(now));
        }
        assert!(shard.cooling.is_empty());
    }
}
