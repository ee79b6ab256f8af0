//! The memory that this shard's connections hold: what they have not taken, what they have not sent whole, what is
//! being made for them. One sum, one limit.
//!
//! A reply is weighed before it is made. One that does not fit waits, first come first served, and its connection is
//! read no further; a small one never waits. A share of the limit is reserved for connections that hold little: their replies
//! do not wait behind the large replies of others, until one of those has waited for `MEMORY_WAIT_MS`. A reply larger than
//! the limit is made when the others hold no more than half of it. A large request of which a part has come is read on freely while all hold no more than half of the
//! limit; beyond that it waits in the same queue until there is memory for all of it, which is then set aside: so
//! requests become whole one after the other, instead of all of them growing until none can. Who holds memory and does
//! not take it, or does not send the rest, is ended when others have waited too long, so nobody waits for ever.

use super::Shard;
use crate::conn::{Close, Conn};
use crate::ids::{ConnId, Millis};
use crate::limits::{
    ENDED_PIECE, MEMORY_WAIT_MS, MODERATE_BYTES, PART_WAIT_MS, READER_LOOK_MS, RESERVED_SHARE, SLOTS_PIECE,
    SLOW_BYTES_PER_S, SLOW_LOOK_MS,
};
use alloc::boxed::Box;
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

/// Those who hold memory and do not take it, or do not send the rest.
#[derive(Debug)]
pub(super) struct SlowHolders {
    /// The slot that is looked at next, if not all were.
    next: Option<usize>,
    /// How long the first has waited for memory.
    waited: u64,
    /// Since the last look.
    ms: u64,
    /// How long each has held it.
    list: Vec<(u64, ConnId)>,
}

impl Shard {
    /// Whether a connection that holds `own` bytes may hold `need` more.
    fn has_memory(&self, own: usize, need: usize) -> bool {
        let max = self.config.limits.reply_buffer_bytes_total_max;
        let most = if own + need > MODERATE_BYTES { max - max / RESERVED_SHARE } else { max };
        self.held_bytes + need <= most || self.held_bytes - own <= max / 2
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
        let others = self.held_bytes - conn.summed;
        let is_ample = others <= self.config.limits.reply_buffer_bytes_total_max / 2;
        if is_ample && (self.wanting.is_empty() || self.admitting) {
            usize::MAX
        } else {
            self.scarce_room(conn, others)
        }
    }

    #[inline(never)]
    fn scarce_room(&self, conn: &Conn, others: usize) -> usize {
        let (small, max) = (self.config.limits.small(), self.config.limits.reply_buffer_bytes_total_max);
        // As it was weighed when it was admitted.
        let holds = if self.admitting { conn.summed } else { conn.holds() };
        let most = if self.keeps_order && !self.admitting { 0 } else { MODERATE_BYTES };
        let moderate = most.saturating_sub(holds).min(max.saturating_sub(others + holds)).max(small);
        if !self.wanting.is_empty() && !self.admitting {
            return moderate;
        }
        (max - max / RESERVED_SHARE).saturating_sub(others + holds).max(moderate)
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

    pub(super) fn admit(&mut self, now: Millis) {
        if !self.may_admit() {
            return;
        }
        let Some(mut conn) = self.wanting.pop_front().and_then(|first| self.conns.take(first.conn)) else { return };
        conn.wanting = false;
        (self.admitting, self.has_turn) = (true, true);
        let verdict = if conn.is_closing() {
            Ok(())
        } else {
            self.catch_up(now, &mut conn).and_then(|()| self.resume(now, &mut conn))
        };
        self.settle(now, conn, verdict);
        (self.admitting, self.has_turn) = (false, false);
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
        let is_set_aside = conn.input.has_room(missing);
        if is_small || is_set_aside || self.held_bytes <= limits.reply_buffer_bytes_total_max / 2 {
            return false;
        }
        let is_first = self.wanting.is_empty() || self.admitting;
        if is_first && self.has_memory(conn.summed, missing) {
            conn.input.make_room(missing);
        } else {
            let need = conn.input.len() + missing;
            self.wait_for_memory(conn, Wanting { conn: conn.id, need, list: false, since: now });
        }
        true
    }

    /// Ends those who hold memory and do not take it, or do not send the rest, who has held it longest first, when
    /// others have waited long enough, until there is memory for those. So who waits in the midst of a request does not
    /// go before those that it waits for.
    ///
    /// Begins to look for them.
    pub(super) fn look_for_slow_holders(&mut self, now: Millis) {
        let waited = self.wanting.front().map_or(0, |first| now.since(first.since));
        let ms = now.since(self.looked_at);
        self.keeps_order = waited >= MEMORY_WAIT_MS;
        if self.slow_holders.is_none() && waited >= PART_WAIT_MS && ms >= SLOW_LOOK_MS {
            self.looked_at = now;
            self.slow_holders = Some(Box::new(SlowHolders { next: Some(0), waited, ms, list: Vec::new() }));
        }
    }

    /// Looks at some more connections, or ends some of those that were found.
    pub(super) fn end_slow_holders(&mut self, now: Millis) {
        let Some(mut slow) = self.slow_holders.take() else { return };
        if let Some(from) = slow.next {
            self.find_slow_holders(now, from, &mut slow);
        }
        if slow.next.is_some() || !self.end_found(now, &mut slow.list) {
            self.slow_holders = Some(slow);
        }
    }

    fn find_slow_holders(&mut self, now: Millis, from: usize, found: &mut SlowHolders) {
        let small = self.config.limits.small();
        let SlowHolders { waited, ms, .. } = *found;
        let mut slow = |conn: &mut Conn| {
            let is_part = conn.missing() > 0 && conn.input.len() > small && !conn.wanting;
            let is_not_reading =
                conn.unsent() > small && waited >= MEMORY_WAIT_MS && conn.held_ms(now) >= READER_LOOK_MS;
            // What it took since the last look; before that the sockets' buffers took much of it.
            let took = u64::from(core::mem::take(&mut conn.took));
            let is_slow = conn.held_ms(now) >= SLOW_LOOK_MS && took * 1000 < SLOW_BYTES_PER_S * ms;
            (is_slow && (is_not_reading || is_part)).then_some((conn.held_ms(now), conn.id))
        };
        found.list.extend(self.conns.range_mut(from, SLOTS_PIECE).filter_map(&mut slow));
        found.next = self.conns.after(from, SLOTS_PIECE);
        if found.next.is_none() {
            found.list.sort_unstable();
        }
    }

    /// Ends some of the slow holders, the last of the list first. True when there is memory for those who have waited long
    /// enough, or no holder is left.
    fn end_found(&mut self, now: Millis, list: &mut Vec<(u64, ConnId)>) -> bool {
        let small = self.config.limits.small();
        let overdue = |wanting: &&Wanting| now.since(wanting.since) >= PART_WAIT_MS;
        let needed: usize = self.wanting.iter().take_while(overdue).map(|wanting| wanting.need).sum();
        for _ in 0..ENDED_PIECE {
            if !self.wanting.front().as_ref().is_some_and(overdue) {
                return true;
            }
            if self.may_admit() && self.held_bytes + needed <= self.config.limits.reply_buffer_bytes_total_max {
                return true;
            }
            let Some((_, id)) = list.pop() else { return true };
            // What it took since it was found is not held any more.
            if self.conns.get(id).is_some_and(|conn| conn.summed > small)
                && let Some(conn) = self.conns.take(id)
            {
                let why = if conn.unsent() > small { Close::SlowReader } else { Close::SlowSender };
                self.end(&conn, why);
            }
        }
        false
    }
}
