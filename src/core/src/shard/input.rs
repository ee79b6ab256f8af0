//! From bytes to frames, and when a connection must wait: every limit on what one may have under way is applied here.

use super::memory::Wanting;
use super::{Outputs, Shard, Verdict};
use crate::conn::{Close, Conn, Phase};
use crate::ids::{ConnId, Millis, SessionId};
use crate::limits::CONNECT_BYTES_MAX;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;
use corral_wire::frame::next_frame;

impl Shard {
    pub(super) fn consume_kept(&mut self, now: Millis, conn: &mut Conn, out: &mut Outputs) -> Verdict {
        let mut input = mem::take(&mut conn.input);
        let used = self.consume(now, conn, &input, out)?;
        if used == input.len() {
            input = Vec::new();
        } else {
            input.drain(..used);
        }
        conn.input = input;
        Ok(())
    }

    /// Takes whole frames off the front of `bytes` until there is none or the connection must wait.
    pub(super) fn consume(
        &mut self,
        now: Millis,
        conn: &mut Conn,
        bytes: &[u8],
        out: &mut Outputs,
    ) -> Result<usize, Close> {
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
                && let Some(done) = self.greeted_with_word(now, conn, rest, out)?
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
                self.connect(now, conn, frame, entropy)?;
            } else {
                if used >= looked {
                    looked = used + self.look_ahead(rest);
                }
                self.request(now, conn, frame, out)?;
                if conn.queued {
                    return Ok(used);
                }
                conn.counters.received += 1;
                self.statistics.received += 1;
            }
            used += length;
            if self.spent >= self.config.limits.turn_cost_max {
                self.go_on_later(conn);
                return Ok(used);
            }
        }
    }

    /// Whether something of this connection, or of the shard, must be finished before more is read.
    pub(super) fn must_wait(&mut self, now: Millis, conn: &mut Conn) -> bool {
        if self.has_enough_in_flight() {
            self.held_back.push(conn.id);
            return true;
        }
        if self.is_short_of_memory(conn) {
            self.wait_for_memory(conn, Wanting { conn: conn.id, need: 0, list: false, since: now });
        }
        let limits = &self.config.limits;
        self.draining
            || conn.barred
            || conn.wanting
            || conn.queued
            || conn.again
            || conn.phase == Phase::Connecting
            || conn.pending.len() >= limits.requests_in_flight_per_connection_max
            || conn.pending.len() - conn.proposed as usize >= limits.parked_per_conn_max
            || conn.parked_bytes as usize >= limits.parked_bytes_max
            || conn.unsent() >= limits.reply_buffer_bytes_soft_max
    }

    pub(super) fn resume_by_id(&mut self, now: Millis, id: ConnId, out: &mut Outputs) {
        if let Some(mut conn) = self.conns.take(id) {
            let verdict = self.resume(now, &mut conn, out);
            self.settle(now, conn, verdict, out);
        }
    }

    /// Goes on with a stalled connection's input if what held it back is gone.
    pub(super) fn resume(&mut self, now: Millis, conn: &mut Conn, out: &mut Outputs) -> Verdict {
        if !conn.stalled {
            return Ok(());
        }
        self.consume_kept(now, conn, out)?;
        if !conn.stalled {
            out.resumed.push(conn.id);
        }
        Ok(())
    }

    /// Puts a connection back after it was worked on, or ends it.
    pub(super) fn settle(&mut self, now: Millis, mut conn: Box<Conn>, verdict: Verdict, out: &mut Outputs) {
        conn.begin_chunk();
        if let Err(why) = verdict {
            conn.close_after_flush(now, why);
            self.lists.retain(|id| *id != conn.id);
        }
        self.weigh(now, &mut conn);
        if let Phase::Closing { why, .. } = conn.phase
            && conn.unsent() == 0
        {
            return self.end(&conn, why, out);
        }
        if conn.mute && conn.is_paid() {
            return self.end(&conn, Close::HungUp, out);
        }
        if conn.unsent() > 0 && !mem::replace(&mut conn.announced, true) {
            out.dirty.push(conn.id);
        }
        self.conns.put_back(conn);
    }

    pub(super) fn end(&mut self, conn: &Conn, why: Close, out: &mut Outputs) {
        self.unbind(conn, out);
        if !self.lists.is_empty() {
            self.lists.retain(|id| *id != conn.id);
        }
        if !self.barriers.is_empty() {
            self.barriers.remove(&conn.id);
        }
        self.held_bytes -= conn.summed;
        if conn.heard_noted && conn.session != SessionId(0) && !conn.read_only {
            self.heard_and_ended.push((conn.session, conn.heard));
        }
        match why {
            Close::AuthFailed => self.statistics.auths_failed += 1,
            Close::NeverConnected => self.statistics.never_connected += 1,
            _ => {}
        }
        self.conns.forget();
        self.drop_watches_of(conn.id);
        out.closed.push((conn.id, why));
    }

    /// A connection that is not read, because this server owes it answers or is stopping, is not silent: what it says may
    /// lie unread.
    pub(super) fn excuse_those_who_wait(&mut self, now: Millis) {
        let draining = self.draining;
        let unread = self.config.limits.reply_buffer_bytes_soft_max;
        let is_owed = |conn: &Conn| !conn.pending.is_empty() || conn.wanting || conn.queued;
        let waits = |conn: &&mut Conn| conn.stalled && is_owed(conn) && conn.unsent() < unread;
        for conn in self.conns.iter_mut().filter(|conn| draining || waits(conn)) {
            conn.heard = now;
            if !mem::replace(&mut conn.heard_noted, true) {
                self.heard.push(conn.id);
            }
        }
    }

    /// Silence is judged up to the last report: what came since may still lie in a socket that has not had its turn,
    /// when this core stood still.
    pub(super) fn close_overdue(&mut self, now: Millis, out: &mut Outputs) {
        let read_upto = self.reported_at;
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
        let list: Vec<(ConnId, Close)> = self.conns.iter().filter_map(|conn| Some((conn.id, overdue(conn)?))).collect();
        for (id, why) in list {
            if let Some(conn) = self.conns.take(id) {
                self.end(&conn, why, out);
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
