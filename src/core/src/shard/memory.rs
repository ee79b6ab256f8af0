//! The memory that this shard's connections hold: unsent replies, incomplete requests, and replies in the making. One
//! sum, one limit.
//!
//! A reply is weighed before it is made. A reply that does not fit waits, first come first served, and its connection
//! is read no further. A small reply never waits. A share of the limit is reserved for connections that hold little.
//! Their replies do not wait behind the large replies of others, until one of those has waited for `MEMORY_WAIT_MS`. A
//! reply larger than the limit is made when the others hold no more than half of it. A large request of which a part
//! has come is read on freely while all hold no more than half of the limit. Beyond that it waits in the same queue
//! until there is memory for all of it, which is then set aside. So requests become whole one after the other, instead
//! of all of them growing until none can. A connection that holds memory, and does not take its replies or send the
//! rest, is ended when others have waited too long. So no connection waits for ever.

use crate::ids::{ConnId, Millis};
use crate::limits::{
    MEMORY_WAIT_MS, MODERATE_BYTES, PART_WAIT_MS, READER_LOOK_MS, RESERVED_SHARE, SLOTS_PIECE, SLOW_BYTES_PER_S,
    SLOW_LOOK_MS, ShardLimits,
};
use crate::shard::conn::{Close, Conn};
use crate::shard::conns::Conns;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem;

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

/// Connections that hold memory and do not take it, or do not send the rest.
#[derive(Debug)]
struct SlowHolders {
    /// The slot that is looked at next, if not all were.
    next: Option<usize>,
    /// How long the first has waited for memory.
    waited: u64,
    /// Since the last look.
    ms: u64,
    /// How long each has held it.
    list: Vec<(u64, ConnId)>,
}

/// The sum of memory that connections hold, and the connections that wait for some.
#[derive(Debug)]
pub(super) struct Memory {
    /// The limit.
    max: usize,
    /// Bytes that a connection may hold whatever the others hold.
    small: usize,
    /// Bytes that all connections hold.
    held: usize,
    /// Connections that wait for memory, oldest first.
    waiting: VecDeque<Wanting>,
    /// The first of these has its turn.
    admitting: bool,
    /// The first that waits has waited so long that no others go past it.
    keeps_order: bool,
    /// When the slow holders were last looked for.
    looked_at: Millis,
    slow: Option<Box<SlowHolders>>,
}

impl Memory {
    pub(super) fn new(limits: &ShardLimits, now: Millis) -> Self {
        Self {
            max: limits.reply_buffer_bytes_total_max,
            small: limits.small(),
            held: 0,
            waiting: VecDeque::new(),
            admitting: false,
            keeps_order: false,
            looked_at: now,
            slow: None,
        }
    }

    /// Bytes that all connections hold.
    pub(super) const fn held(&self) -> usize {
        self.held
    }

    /// Whether a connection to which so many bytes are owed must not be owed more.
    pub(super) const fn is_exhausted_for(&self, unsent: usize) -> bool {
        self.held >= self.max && unsent > self.small
    }

    /// Whether a connection that holds `own` bytes may hold `need` more.
    fn has(&self, own: usize, need: usize) -> bool {
        let most = if own + need > MODERATE_BYTES { self.max - self.max / RESERVED_SHARE } else { self.max };
        self.held + need <= most || self.held - own <= self.max / 2
    }

    /// Whether the connection must give back before it may hold more.
    pub(super) fn is_short(&self, conn: &Conn) -> bool {
        self.held > self.max && conn.held.counted() > self.small && !self.has(conn.held.counted(), 0)
    }

    /// Bytes of a reply to this connection for which there is memory.
    #[inline]
    pub(super) fn room(&self, conn: &Conn) -> usize {
        let others = self.held - conn.held.counted();
        let is_ample = others <= self.max / 2;
        if is_ample && (self.waiting.is_empty() || self.admitting) {
            usize::MAX
        } else {
            self.scarce_room(conn, others)
        }
    }

    #[inline(never)]
    fn scarce_room(&self, conn: &Conn, others: usize) -> usize {
        // As it was counted when it was admitted.
        let holds = if self.admitting { conn.held.counted() } else { conn.holds() };
        let most = if self.keeps_order && !self.admitting { 0 } else { MODERATE_BYTES };
        let moderate = most.saturating_sub(holds).min(self.max.saturating_sub(others + holds)).max(self.small);
        if !self.waiting.is_empty() && !self.admitting {
            return moderate;
        }
        (self.max - self.max / RESERVED_SHARE).saturating_sub(others + holds).max(moderate)
    }

    /// Whether a connection waits.
    pub(super) fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Puts the connection into the queue, unless it stands there.
    pub(super) fn wait(&mut self, conn: &mut Conn, wanting: Wanting) {
        conn.stalled = true;
        if !mem::replace(&mut conn.waits.memory, true) {
            self.waiting.push_back(wanting);
        }
    }

    /// Whether the first that waits need not any more. `list`: whether a list in pieces may begin.
    pub(super) fn may_admit(&self, conns: &Conns, list: bool) -> bool {
        let Some(first) = self.waiting.front() else { return false };
        let Some(conn) = conns.get(first.conn).filter(|conn| !conn.is_closing()) else { return true };
        self.has(conn.held.counted(), first.need) && (!first.list || list)
    }

    /// Takes the first out of the queue. It may hold its memory until [`Memory::end_admission`].
    pub(super) fn begin_admission(&mut self, conns: &mut Conns) -> Option<Box<Conn>> {
        let mut conn = self.waiting.pop_front().and_then(|first| conns.take(first.conn))?;
        conn.waits.memory = false;
        self.admitting = true;
        Some(conn)
    }

    pub(super) const fn end_admission(&mut self) {
        self.admitting = false;
    }

    /// Counts anew what a connection holds.
    pub(super) fn count(&mut self, now: Millis, conn: &mut Conn) {
        self.sum_up(conn);
        // The length of a stalled one's input is not judged yet.
        if !conn.input.is_empty() && !conn.stalled && !conn.is_closing() && self.sets_aside_the_rest(now, conn) {
            self.sum_up(conn);
        }
        conn.held.note(now, conn.held.counted() > self.small);
    }

    fn sum_up(&mut self, conn: &mut Conn) {
        let holds = conn.holds();
        self.held = self.held - conn.held.count(holds) + holds;
    }

    /// The connection ends.
    pub(super) const fn forget(&mut self, conn: &Conn) {
        self.held -= conn.held.counted();
    }

    /// No connection is left.
    pub(super) fn clear_queue(&mut self) {
        self.waiting.clear();
    }

    /// Sets memory aside for the rest of a large request, or makes the connection wait for it, if it must do either.
    fn sets_aside_the_rest(&mut self, now: Millis, conn: &mut Conn) -> bool {
        let missing = conn.missing();
        let is_small = conn.input.len() + missing <= self.small;
        let is_set_aside = conn.input.has_room(missing);
        if is_small || is_set_aside || self.held <= self.max / 2 {
            return false;
        }
        let is_first = self.waiting.is_empty() || self.admitting;
        if is_first && self.has(conn.held.counted(), missing) {
            conn.input.make_room(missing);
        } else {
            let need = conn.input.len() + missing;
            self.wait(conn, Wanting { conn: conn.id, need, list: false, since: now });
        }
        true
    }

    /// Begins to look for slow holders if connections have waited long enough. They are ended until there is memory for
    /// waiting connections, the longest holder first. A connection that waits in the midst of a request does not end
    /// before slow holders that it waits for.
    pub(super) fn look_for_slow_holders(&mut self, now: Millis) {
        let waited = self.waiting.front().map_or(0, |first| now.since(first.since));
        let ms = now.since(self.looked_at);
        self.keeps_order = waited >= MEMORY_WAIT_MS;
        if self.slow.is_none() && waited >= PART_WAIT_MS && ms >= SLOW_LOOK_MS {
            self.looked_at = now;
            self.slow = Some(Box::new(SlowHolders { next: Some(0), waited, ms, list: Vec::new() }));
        }
    }

    /// Whether [`Memory::next_slow_holders`] has something to do.
    pub(super) const fn has_slow_holders(&self) -> bool {
        self.slow.is_some()
    }

    /// Looks at some more connections. Whether all slow holders are found.
    pub(super) fn find_slow_holders(&mut self, now: Millis, conns: &mut Conns) -> bool {
        let Some(found) = &mut self.slow else { return false };
        let Some(from) = found.next else { return true };
        let (small, waited, ms) = (self.small, found.waited, found.ms);
        let mut slow = |conn: &mut Conn| {
            let is_part = conn.missing() > 0 && conn.input.len() > small && !conn.waits.memory;
            let is_not_reading =
                conn.unsent() > small && waited >= MEMORY_WAIT_MS && conn.held.ms(now) >= READER_LOOK_MS;
            // Bytes that it took since the last look. Before that the sockets' buffers took much of it.
            let took = u64::from(conn.held.take_moved());
            let is_slow = conn.held.ms(now) >= SLOW_LOOK_MS && took * 1000 < SLOW_BYTES_PER_S * ms;
            (is_slow && (is_not_reading || is_part)).then_some((conn.held.ms(now), conn.id))
        };
        found.list.extend(conns.range_mut(from, SLOTS_PIECE).filter_map(&mut slow));
        found.next = conns.after(from, SLOTS_PIECE);
        if found.next.is_none() {
            found.list.sort_unstable();
        }
        found.next.is_none()
    }

    /// The next holder that was found, the longest first. `None` when there is memory for the connections that have waited long enough,
    /// or no holder is left. `list`: whether a list in pieces may begin.
    pub(super) fn next_slow_holder(&mut self, now: Millis, conns: &Conns, list: bool) -> Option<ConnId> {
        let overdue = |wanting: &&Wanting| now.since(wanting.since) >= PART_WAIT_MS;
        let needed: usize = self.waiting.iter().take_while(overdue).map(|wanting| wanting.need).sum();
        let is_enough = self.may_admit(conns, list) && self.held + needed <= self.max;
        let goes_on = self.waiting.front().as_ref().is_some_and(overdue) && !is_enough;
        let next = self.slow.as_mut().filter(|_| goes_on).and_then(|slow| slow.list.pop());
        if next.is_none() {
            self.slow = None;
        }
        next.map(|(_, id)| id)
    }

    /// Why a slow holder ends; `None` if it has taken what it held.
    pub(super) fn ends_slow_holder(&self, conn: &Conn) -> Option<Close> {
        let why = if conn.unsent() > self.small { Close::SlowReader } else { Close::SlowSender };
        (conn.held.counted() > self.small).then_some(why)
    }
}
