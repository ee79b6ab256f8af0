//! From bytes to frames, and when a connection must wait: all limits on the requests of one connection under way are
//! applied here.

use super::memory::Wanting;
use super::{Served, Shard};
use crate::ids::{ConnId, Millis};
use crate::limits::{CONNECT_BYTES_MAX, ENDED_PIECE};
use crate::shard::conn::{Close, Conn, Phase};
use crate::shard::load::Request;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;
use corral_wire::frame::next_frame;

impl Shard {
    /// Bytes came in. They are taken whole; while the connection is stalled the driver reads no more of it.
    pub(super) fn received(&mut self, now: Millis, id: ConnId, bytes: &[u8]) {
        let Some(mut conn) = self.conns.take(id) else { return };
        self.turn.begin();
        self.activity.note(now, &mut conn);
        conn.held.note_moved(bytes.len());
        self.statistics.bytes_received += bytes.len() as u64;
        if !self.metered.is_empty() {
            self.metered.count_bytes(&self.config.limits, now, id, bytes.len());
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
        self.turn.begin();
        conn.held.note_moved(count);
        conn.output.forget_sent(count, &mut self.buffers);
        self.statistics.bytes_sent += count as u64;
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
                let counted = self.loads.is_next().then(|| (self.turn.spent(), conn.unsent()));
                self.request(now, conn, frame)?;
                if conn.waits.costly {
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
            if self.turn.is_over() {
                self.go_on_later(conn);
                return Ok(used);
            }
        }
    }

    /// Counts a request for [`Shard::loads`], with the work and the unsent bytes before it.
    fn count_load(&mut self, conn: &Conn, frame: &[u8], (spent, unsent): (usize, usize)) {
        let bytes = frame.len() + conn.unsent().saturating_sub(unsent);
        let cost = self.turn.spent().saturating_sub(spent);
        let (address, session) = (conn.peer.ip().to_canonical(), conn.session.id());
        self.loads.count(&Request { address, session, frame, bytes, cost });
    }

    /// Whether something of this connection, or of the shard, must be finished before more is read.
    pub(super) fn must_wait(&mut self, now: Millis, conn: &mut Conn) -> bool {
        if self.in_flight.is_full(&self.config.limits) {
            self.writes.hold_back(conn);
            return true;
        }
        if self.memory.is_short(conn) {
            self.memory.wait(conn, Wanting { conn: conn.id, need: 0, list: false, since: now });
        }
        let limits = &self.config.limits;
        self.draining.has_begun()
            || conn.blocked
            || conn.waits.memory
            || conn.waits.costly
            || conn.waits.turn
            || conn.phase == Phase::Connecting
            || conn.pending.len() >= limits.requests_in_flight_per_connection_max
            || conn.pending.unproposed() >= limits.queued_per_connection_max
            || conn.pending.queued_bytes() >= limits.queued_bytes_max
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
        if self.turn.is_over() {
            // A connection in a queue goes on when that queue serves it.
            if !conn.waits.costly && !conn.waits.memory {
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
        conn.output.begin_chunk();
        if let Err(why) = verdict {
            conn.close_after_flush(now, why);
            self.lists.end(conn.id);
        }
        self.memory.count(now, &mut conn);
        if let Phase::Closing { why, .. } = conn.phase
            && conn.unsent() == 0
        {
            return self.end(&conn, why);
        }
        if conn.mute && conn.is_paid() {
            return self.end(&conn, Close::HungUp);
        }
        if conn.output.announce() {
            self.effects.dirty.push(conn.id);
        }
        self.conns.put_back(conn);
    }

    pub(super) fn end(&mut self, conn: &Conn, why: Close) {
        self.unbind(conn);
        self.lists.end(conn.id);
        self.freshness.forget(conn.id);
        self.sasl.forget(conn.id);
        self.memory.forget(conn);
        if !self.metered.is_empty() {
            self.metered.forget(conn.id);
        }
        self.forget_command(conn.command);
        self.activity.note_end(conn);
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

    /// Whether [`Shard::look_around`] has something to do.
    pub(super) fn is_looking_around(&self) -> bool {
        self.activity.has_round() || self.memory.has_slow_holders()
    }

    /// Checks some of all connections, and looks for some slow holders of memory.
    pub(super) fn look_around(&mut self, now: Millis) {
        if let Some((slots, read_upto)) = self.activity.next_piece(&mut self.conns) {
            self.excuse_those_who_wait(now, slots);
            self.close_overdue(now, read_upto, slots);
            self.send_away_in_time(now, slots);
        }
        self.end_slow_holders(now);
    }

    /// Ends some of the connections that hold memory and do not take it, or do not send the rest.
    fn end_slow_holders(&mut self, now: Millis) {
        if !self.memory.find_slow_holders(now, &mut self.conns) {
            return;
        }
        for _ in 0..ENDED_PIECE {
            let list = self.lists.may_begin();
            let Some(id) = self.memory.next_slow_holder(now, &self.conns, list) else { return };
            if let Some(why) = self.conns.get(id).and_then(|conn| self.memory.ends_slow_holder(conn))
                && let Some(conn) = self.conns.take(id)
            {
                self.end(&conn, why);
            }
        }
    }

    /// A connection that is not read, because this server owes it answers or is stopping, is not silent: what it says
    /// may lie unread. Looks at so many slots from one on.
    pub(super) fn excuse_those_who_wait(&mut self, now: Millis, (from, count): (usize, usize)) {
        let draining = self.draining.has_begun();
        let unread = self.config.limits.reply_buffer_bytes_soft_max;
        let metered = &self.metered;
        let is_owed = |conn: &Conn| {
            !conn.pending.is_empty()
                || conn.waits.memory
                || conn.waits.costly
                || conn.waits.turn
                || conn.waits.in_flight
                || metered.waits(now, conn.id, conn.session.silence_max_ms())
        };
        let waits = |conn: &&mut Conn| conn.stalled && is_owed(conn) && conn.unsent() < unread;
        for conn in self.conns.range_mut(from, count).filter(|conn| draining || waits(conn)) {
            self.activity.note(now, conn);
        }
    }

    /// Closes overdue connections. Silence is judged up to the last report: later bytes may still lie in a socket that
    /// was not read yet, when this core stalled.
    pub(super) fn close_overdue(&mut self, now: Millis, read_upto: Millis, (from, count): (usize, usize)) {
        const LINGER_MS: u64 = 5000;
        let sessionless = self.config.sessionless_timeout_ms;
        let overdue = |conn: &Conn| match conn.phase {
            Phase::Greeting { .. } if read_upto.since(conn.opened) > sessionless => Some(Close::NeverConnected),
            Phase::Closing { since, why } if now.since(since) > LINGER_MS => Some(why),
            Phase::Live if read_upto.since(conn.active_at) > conn.session.silence_max_ms() => Some(Close::Silent),
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
