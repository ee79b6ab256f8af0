//! The memory that this shard's connections hold: what they have not taken, what they have not sent whole, what is being
//! made for them. One sum, one limit.
//!
//! A reply is weighed before it is made. One that does not fit waits, first come first served, and its connection is read no
//! further; a small one never waits. A reply larger than the limit is made when the others hold no more than half of it. A
//! large request of which a part has come is read on freely while all hold no more than half of the limit; beyond that it
//! waits in the same queue until there is memory for all of it, which is then set aside: so requests become whole one after
//! the other, instead of all of them growing until none can. Who holds memory and does not take it, or does not send the
//! rest, is ended when others have waited too long, so nobody waits for ever.

use super::{Outputs, Shard};
use crate::conn::{Close, Conn};
use crate::ids::{ConnId, Millis};
use crate::limits::{MEMORY_WAIT_MS, PART_WAIT_MS, READER_LOOK_MS, SLOW_BYTES_PER_S, SLOW_LOOK_MS};
use alloc::vec::Vec;

/// A connection that waits for memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanting {
    pub(super) conn: ConnId,
    /// Bytes of the reply, or of the request of which a part has come; 0 when it is only read no further.
    pub(super) need: usize,
    /// It waits to begin a list in pieces, too.
    pub(super) list: bool,
    pub(super) since: Millis,
}

impl Shard {
    /// Whether a connection that holds `own` bytes may hold `need` more.
    fn has_memory(&self, own: usize, need: usize) -> bool {
        let max = self.config.limits.reply_buffer_bytes_total_max;
        self.held_bytes + need <= max || self.held_bytes - own <= max / 2
    }

    /// Whether the connection must give back before it may hold more.
    pub(super) fn is_short_of_memory(&self, conn: &Conn) -> bool {
        self.held_bytes > self.config.limits.reply_buffer_bytes_total_max
            && conn.summed > self.config.limits.small()
            && !self.has_memory(conn.summed, 0)
    }

    /// Bytes of a reply for which there is memory.
    #[inline]
    pub(super) fn room(&self, conn: &Conn) -> usize {
        let limits = &self.config.limits;
        let others = self.held_bytes - conn.summed;
        if !self.wanting.is_empty() && !self.admitting {
            limits.small()
        } else if others <= limits.reply_buffer_bytes_total_max / 2 {
            usize::MAX
        } else {
            limits.reply_buffer_bytes_total_max.saturating_sub(others + conn.holds()).max(limits.small())
        }
    }

    pub(super) fn wait_for_memory(&mut self, conn: &mut Conn, wanting: Wanting) {
        conn.stalled = true;
        if !core::mem::replace(&mut conn.wanting, true) {
            self.wanting.push_back(wanting);
        }
    }

    /// Whether the first that waits for memory need not any more.
    pub(super) fn may_admit(&self) -> bool {
        let Some(first) = self.wanting.front() else { return false };
        let Some(conn) = self.conns.get(first.conn).filter(|conn| !conn.is_closing()) else { return true };
        self.has_memory(conn.summed, first.need) && (!first.list || self.may_begin_list())
    }

    pub(super) fn admit(&mut self, now: Millis, out: &mut Outputs) {
        if !self.may_admit() {
            return;
        }
        let Some(mut conn) = self.wanting.pop_front().and_then(|first| self.conns.take(first.conn)) else { return };
        conn.wanting = false;
        self.admitting = true;
        let verdict = if conn.is_closing() {
            Ok(())
        } else {
            self.catch_up(now, &mut conn).and_then(|()| self.resume(now, &mut conn, out))
        };
        self.settle(now, conn, verdict, out);
        self.admitting = false;
    }

    /// Counts anew what a connection holds.
    pub(super) fn weigh(&mut self, now: Millis, conn: &mut Conn) {
        self.count_held(conn);
        // Of a stalled one the length is not judged yet.
        if !conn.input.is_empty() && !conn.stalled && !conn.is_closing() && self.sets_aside_the_rest(now, conn) {
            self.count_held(conn);
        }
        conn.note_held(now, conn.summed > self.config.limits.small());
    }

    fn count_held(&mut self, conn: &mut Conn) {
        let holds = conn.holds();
        self.held_bytes = self.held_bytes - conn.summed + holds;
        conn.summed = holds;
    }

    /// Sets memory aside for the rest of a large request, or makes the connection wait for it, if it must do either.
    fn sets_aside_the_rest(&mut self, now: Millis, conn: &mut Conn) -> bool {
        let limits = &self.config.limits;
        let missing = conn.missing();
        let is_small = conn.input.len() + missing <= limits.small();
        let is_set_aside = conn.input.capacity() - conn.input.len() >= missing;
        if is_small || is_set_aside || self.held_bytes <= limits.reply_buffer_bytes_total_max / 2 {
            return false;
        }
        let is_first = self.wanting.is_empty() || self.admitting;
        if is_first && self.has_memory(conn.summed, missing) {
            conn.input.reserve_exact(missing);
        } else {
            let need = conn.input.len() + missing;
            self.wait_for_memory(conn, Wanting { conn: conn.id, need, list: false, since: now });
        }
        true
    }

    /// Ends those who hold memory and do not take it, or do not send the rest, who has held it longest first, when others have
    /// waited long enough, until there is memory for those. So who waits in the midst of a request does not go before those
    /// that it waits for.
    pub(super) fn end_slow_holders(&mut self, now: Millis, out: &mut Outputs) {
        let waited = self.wanting.front().map_or(0, |first| now.since(first.since));
        let ms = now.since(self.looked_at);
        if waited < PART_WAIT_MS || ms < SLOW_LOOK_MS {
            return;
        }
        self.looked_at = now;
        let small = self.config.limits.small();
        let mut slow = |conn: &mut Conn| {
            let is_part = conn.missing() > 0 && conn.input.len() > small && !conn.wanting;
            let is_deaf = conn.unsent() > small && waited >= MEMORY_WAIT_MS && conn.held_ms(now) >= READER_LOOK_MS;
            // What it took since the last look; before that the sockets' buffers took much of it.
            let took = u64::from(core::mem::take(&mut conn.took));
            let is_slow = conn.held_ms(now) >= SLOW_LOOK_MS && took * 1000 < SLOW_BYTES_PER_S * ms;
            (is_slow && (is_deaf || is_part)).then_some((conn.held_ms(now), conn.id))
        };
        let mut list: Vec<(u64, ConnId)> = self.conns.iter_mut().filter_map(&mut slow).collect();
        list.sort_unstable_by(|one, other| other.cmp(one));
        let overdue = |wanting: &&Wanting| now.since(wanting.since) >= PART_WAIT_MS;
        let needed: usize = self.wanting.iter().take_while(overdue).map(|wanting| wanting.need).sum();
        for (_, id) in list {
            if self.may_admit() && self.held_bytes + needed <= self.config.limits.reply_buffer_bytes_total_max {
                return;
            }
            if let Some(conn) = self.conns.take(id) {
                let why = if conn.unsent() > small { Close::SlowReader } else { Close::SlowSender };
                self.end(&conn, why, out);
            }
        }
    }
}
