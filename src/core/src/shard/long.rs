//! Reads that take more than one turn, of this shard's connections: begun when everything before them is answered, then
//! one piece at a time. Other work between the turns is here too. It is of connections that wait for others' turns or
//! for memory, and of watches of ended connections.

use super::Shard;
use super::memory::Wanting;
use crate::apply::outcome::AppliedTxn;
use crate::ids::{ConnId, Millis, Zxid};
use crate::limits::{
    DROP_COST, DROPPED_PIECE, LISTS_MAX, NAME_COST, REPLY_FRAME_BYTES_MAX, REQUEST_COST, REWATCH_BYTES_AT_ONCE,
    WATCH_COST,
};
use crate::shard::conn::{Conn, Long, Pending};
use crate::shard::counters::Answered;
use crate::shard::read::{Length, ListContext, Outline, PutOff, ReadContext, Rewatch, begin_list, is_short};
use crate::shard::reply;
use crate::shard::walk::{Walk, WalkContext, is_walk};
use crate::tree::view::ChildrenSize;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::Cell;
use core::mem;
use corral_types::Micros;
use corral_wire::op::Kind as OpKind;
use corral_wire::{ErrorCode, OpCode, Reader};

/// Bytes of events for each byte of a setWatches, at most: a path of one byte takes five there, and thirty-three here.
const EVENTS_PER_BYTE: usize = 8;

impl Shard {
    /// Whether the operation is a walk that this server serves.
    pub(super) fn walks(&self, op: OpCode) -> bool {
        is_walk(op) && (op.kind() != OpKind::Extension || self.config.keeper_extensions)
    }

    /// Whether a read that is put behind others will take more than a turn, as it looks now: then nothing is taken
    /// behind it. A read that has become long until it is served, with writes behind it, is refused.
    pub(super) fn will_be_long(&self, op: OpCode, record: &[u8]) -> bool {
        let looks_up = match Outline::of(op).length {
            Length::Short => return false,
            Length::Paths => return record.len() > REWATCH_BYTES_AT_ONCE,
            Length::List { .. } if op.kind() == OpKind::Extension && !self.config.keeper_extensions => return false,
            Length::List { looks_up } => looks_up,
        };
        let Ok(Some(path)) = Reader::new(record).string() else { return false };
        let path = crate::path::or_root(path);
        let size = self.view.children_size(path, self.view.hasher().hash(path));
        size.is_some_and(|size| {
            !is_short(ChildrenSize { entries: 2 * size.entries, bytes: 2 * size.bytes }, looks_up.then_some(path))
        })
    }

    fn walk_context<'s>(&'s self, conn: &'s Conn) -> WalkContext<'s> {
        let limit =
            self.config.limits.reply_buffer_bytes_hard_max.saturating_sub(conn.unsent()).min(REPLY_FRAME_BYTES_MAX);
        WalkContext {
            view: &self.view,
            identities: conn.identities.as_slice(),
            skip_acl: self.config.skip_acl,
            reply_bytes_max: limit,
            room: self.memory.room(conn),
        }
    }

    /// Returns the context for a read of this connection. Takes its output, to be put back.
    #[inline(always)]
    pub(super) fn read_context<'s>(&'s mut self, conn: &'s mut Conn) -> (ReadContext<'s>, Vec<u8>) {
        let (unsent, room) = (conn.unsent(), self.memory.room(conn));
        let has_turn = mem::take(&mut self.has_turn) || self.delay.is_due();
        let output = conn.output.take_buffer(&mut self.buffers);
        let Self { view, watches, config, sessions, .. } = self;
        let context = ReadContext {
            view,
            watches,
            conn: conn.id,
            identities: conn.identities.as_slice(),
            any_sasl_user: config.any_sasl_user.as_ref(),
            ephemerals: sessions.ephemerals(conn.session.id()),
            skip_acl: config.skip_acl,
            keeper: config.keeper_extensions,
            reply_bytes_max: config
                .limits
                .reply_buffer_bytes_hard_max
                .saturating_sub(unsent)
                .min(REPLY_FRAME_BYTES_MAX),
            room,
            may_wait: conn.pending.proposed() == 0,
            has_turn,
            multi: false,
            put_off: Cell::new(None),
            cost: Cell::new(0),
        };
        (context, output)
    }

    /// Begins the connection's first request; or puts it back, to wait for memory.
    pub(super) fn begin_long(
        &mut self,
        now: Millis,
        conn: &mut Conn,
        xid: i32,
        op: OpCode,
        record: Box<[u8]>,
        at: Micros,
    ) {
        self.turn.spend(REQUEST_COST + record.len());
        let begun = match op {
            _ if is_walk(op) => Walk::start(&self.walk_context(conn), op, &mut Reader::new(&record)).map(Long::Walk),
            OpCode::SetWatches | OpCode::SetWatches2 => {
                let need = record.len() * EVENTS_PER_BYTE;
                if need > self.memory.room(conn) {
                    return self.put_back(now, conn, (xid, op, record, at), need, false);
                }
                Rewatch::begin(op, record).map(Long::Rewatch)
            }
            _ if !self.lists.may_begin() => {
                return self.put_back(now, conn, (xid, op, record, at), 0, true);
            }
            _ => {
                let (mut context, output) = self.read_context(conn);
                let begun = begin_list(&mut context, xid, op, &mut Reader::new(&record));
                let why = context.put_off.take();
                conn.output.put_back(output);
                match why {
                    Some(PutOff::Room(need)) => {
                        return self.put_back(now, conn, (xid, op, record, at), need, true);
                    }
                    _ => begun.map(Long::List),
                }
            }
        };
        match begun {
            Ok(long) => {
                if matches!(long, Long::List(_)) {
                    self.lists.begin(conn.id);
                }
                self.go_on(now, conn, xid, op, Box::new(long), at);
            }
            Err(code) => {
                self.end_long(now, conn, Answered { op: Some(op), xid, at, update: false }, None, Some(code));
            }
        }
    }

    fn put_back(
        &mut self,
        now: Millis,
        conn: &mut Conn,
        (xid, op, record, at): (i32, OpCode, Box<[u8]>, Micros),
        need: usize,
        list: bool,
    ) {
        let (begun, floor, barrier) = (None, Zxid(0), 0);
        conn.pending.push_front(Pending::Long { xid, op, record, begun, floor, barrier, at });
        self.memory.wait(conn, Wanting { conn: conn.id, need, list, since: now });
    }

    fn go_on(&mut self, now: Millis, conn: &mut Conn, xid: i32, op: OpCode, mut long: Box<Long>, at: Micros) {
        let mut looked = 0;
        let step = match &mut *long {
            Long::Walk(walk) => walk.step(&self.walk_context(conn), &mut looked),
            Long::List(list) => {
                let context = ListContext {
                    view: &self.view,
                    identities: conn.identities.as_slice(),
                    skip_acl: self.config.skip_acl,
                    reply_bytes_max: self.config.limits.reply_buffer_bytes_hard_max.min(self.memory.room(conn)),
                    changed_bytes_max: self.config.limits.reply_buffer_bytes_total_max / LISTS_MAX,
                };
                list.step(&context, &mut looked)
            }
            Long::Rewatch(rewatch) => {
                let before = rewatch.passed();
                let (mut context, mut output) = self.read_context(conn);
                let done = rewatch.step(&mut context, &mut output, xid);
                conn.output.put_back(output);
                looked = (rewatch.passed() - before) * WATCH_COST / NAME_COST;
                Ok(done)
            }
        };
        self.turn.spend(looked * NAME_COST);
        let what = Answered { op: Some(op), xid, at, update: false };
        match step {
            Ok(false) => {
                let (record, begun, floor) = (Box::default(), Some(long), Zxid(0));
                conn.pending.push_front(Pending::Long { xid, op, record, begun, floor, barrier: 0, at });
                self.walking.push_back(conn.id);
            }
            Ok(true) => self.end_long(now, conn, what, Some(*long), None),
            Err(code) => self.end_long(now, conn, what, Some(*long), Some(code)),
        }
    }

    /// Answers a read that is over, with its result or with an error.
    fn end_long(
        &mut self,
        now: Millis,
        conn: &mut Conn,
        what: Answered,
        long: Option<Long>,
        failed: Option<ErrorCode>,
    ) {
        let (zxid, xid) = (self.view.zxid(), what.xid);
        let begins = conn.unsent();
        if let Some(code) = failed {
            reply::error(conn.output.buffer(&mut self.buffers), xid, zxid, code);
        }
        let mut bytes = conn.unsent() - begins;
        match long {
            Some(Long::Walk(walk)) if failed.is_none() => {
                walk.reply(conn.output.buffer(&mut self.buffers), xid, zxid);
                bytes = conn.unsent() - begins;
            }
            Some(Long::List(list)) => {
                self.lists.end(conn.id);
                if let Some((path, hash)) = list.fresh_watch(failed.is_some()) {
                    self.watches.take_back(conn.id, path, hash);
                }
                let (reply, events) = list.finish();
                if failed.is_none() {
                    bytes = reply.len();
                }
                if failed.is_none() {
                    conn.output.append_whole(reply);
                }
                conn.output.append_whole(events);
            }
            _ => {}
        }
        if conn.unsent() > self.config.limits.reply_buffer_bytes_soft_max {
            conn.output.allow_unsent();
        }
        conn.blocked = conn.pending.iter().any(Pending::blocks);
        self.count_reply(conn, now, what, bytes);
    }

    /// A transaction is about to reach the view: see [`Lists::preserve`](super::lists::Lists::preserve).
    pub(super) fn preserve(&mut self, txn: &AppliedTxn) -> bool {
        self.lists.preserve(txn, (&self.view, &mut self.conns), &mut self.turn)
    }

    /// The connection's next requests wait until others have had their turns.
    pub(super) fn go_on_later(&mut self, conn: &mut Conn) {
        conn.stalled = true;
        if !mem::replace(&mut conn.waits.turn, true) {
            self.walking.push_back(conn.id);
        }
    }

    /// Whether [`Shard::walk_on`] has something to do.
    pub(super) fn is_walking(&self) -> bool {
        !self.walking.is_empty()
            || !self.dropping.is_empty()
            || self.is_looking_around()
            || self.memory.may_admit(&self.conns, self.lists.may_begin())
            || self.may_resume()
            || self.may_serve_behind()
    }

    /// Does one piece of one read, or of the other work between the turns.
    pub(super) fn walk_on(&mut self, now: Millis) {
        self.turn.begin();
        self.drop_watches();
        // The first may take the whole turn, so each is first in one of so many calls.
        const KINDS: u8 = 5;
        let first = self.walk_first;
        self.walk_first = (first + 1) % KINDS;
        for kind in first..first + KINDS {
            match kind % KINDS {
                0 => self.admit(now),
                1 => self.resume_held_back(now),
                2 => self.resume_queued(now),
                3 => self.serve_those_behind(now),
                _ => self.go_on_with_next(now),
            }
            if self.turn.is_over() {
                break;
            }
        }
        self.look_around(now);
    }

    /// The connection that has waited longest for memory goes on, if there is enough for it.
    fn admit(&mut self, now: Millis) {
        if !self.memory.may_admit(&self.conns, self.lists.may_begin()) {
            return;
        }
        let Some(mut conn) = self.memory.begin_admission(&mut self.conns) else { return };
        self.has_turn = true;
        let verdict = if conn.is_closing() {
            Ok(())
        } else {
            self.catch_up(now, &mut conn).and_then(|()| self.resume(now, &mut conn))
        };
        self.settle(now, conn, verdict);
        self.memory.end_admission();
        self.has_turn = false;
    }

    /// A piece of the read, or the next requests, of the connection that has waited longest for that.
    fn go_on_with_next(&mut self, now: Millis) {
        let Some(id) = self.walking.pop_front() else { return };
        let Some(mut conn) = self.conns.take(id) else { return };
        if conn.is_closing() {
            return self.conns.put_back(conn);
        }
        if self.pauses(&conn) {
            return self.conns.put_back(conn);
        }
        self.has_turn = mem::take(&mut conn.waits.turn);
        if !self.has_turn {
            match conn.pending.pop() {
                Some(Pending::Long { xid, op, begun: Some(long), at, .. }) => {
                    self.go_on(now, &mut conn, xid, op, long, at);
                }
                other => unreachable!("a long read goes on, but {other:?} is first"),
            }
        }
        let verdict = self.catch_up(now, &mut conn).and_then(|()| self.resume(now, &mut conn));
        self.has_turn = false;
        self.settle(now, conn, verdict);
    }

    /// Some watches of a connection that has ended.
    fn drop_watches(&mut self) {
        let Some(id) = self.dropping.front().copied() else { return };
        if self.drop_some(id) {
            self.dropping.pop_front();
            self.conns.free(id);
        }
    }

    /// True when none is left.
    fn drop_some(&mut self, id: ConnId) -> bool {
        let hasher = self.view.hasher();
        let mut left = DROPPED_PIECE;
        let done = self.watches.drop_some(id, &mut left, |path| hasher.hash(path));
        self.turn.spend(DROP_COST * (DROPPED_PIECE - left));
        done
    }

    /// A connection has ended: its watches go, at once if they are few, and then its slot is free.
    pub(super) fn drop_watches_of(&mut self, id: ConnId) {
        if !self.turn.is_over() && self.drop_some(id) {
            self.conns.free(id);
        } else {
            self.dropping.push_back(id);
        }
    }
}
