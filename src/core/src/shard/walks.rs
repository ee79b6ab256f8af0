//! Subtree walks of this shard's connections: begun when everything before them is answered, then one piece at a time.

use super::{Outputs, Shard};
use crate::conn::{Conn, Pending};
use crate::ids::{Millis, Zxid};
use crate::reply;
use crate::report::Answered;
use crate::walk::{Walk, WalkContext, is_walk};
use alloc::boxed::Box;
use corral_wire::op::Kind as OpKind;
use corral_wire::{ErrorCode, OpCode, Reader};

impl Shard {
    /// Whether the operation is a walk that this server serves.
    pub(super) fn walks(&self, op: OpCode) -> bool {
        is_walk(op) && (op.kind() != OpKind::Extension || self.config.keeper_extensions)
    }

    fn walk_context<'s>(&'s self, conn: &'s Conn) -> WalkContext<'s> {
        WalkContext {
            view: &self.view,
            identities: conn.identities.as_slice(),
            skip_acl: self.config.skip_acl,
            reply_bytes_max: self.config.limits.reply_bytes_hard.saturating_sub(conn.unsent()),
        }
    }

    pub(super) fn begin_walk(
        &mut self,
        now: Millis,
        conn: &mut Conn,
        xid: i32,
        op: OpCode,
        record: Box<[u8]>,
        at: Millis,
    ) {
        match Walk::start(&self.walk_context(conn), op, &mut Reader::new(&record)) {
            Ok(walk) => self.go_on(now, conn, xid, op, Box::new(walk), at),
            Err(code) => self.end_walk(now, conn, Answered { op: Some(op), xid, at, update: false }, Err(code)),
        }
    }

    fn go_on(&mut self, now: Millis, conn: &mut Conn, xid: i32, op: OpCode, mut walk: Box<Walk>, at: Millis) {
        match walk.step(&self.walk_context(conn)) {
            Ok(false) => {
                let (record, begun, floor) = (Box::default(), Some(walk), Zxid(0));
                conn.pending.push_front(Pending::Walk { xid, op, record, begun, floor, barrier: 0, at });
                self.walking.push_back(conn.id);
            }
            Ok(true) => self.end_walk(now, conn, Answered { op: Some(op), xid, at, update: false }, Ok(walk)),
            Err(code) => self.end_walk(now, conn, Answered { op: Some(op), xid, at, update: false }, Err(code)),
        }
    }

    fn end_walk(&mut self, now: Millis, conn: &mut Conn, what: Answered, walk: Result<Box<Walk>, ErrorCode>) {
        self.buffers.lend(&mut conn.output);
        let zxid = self.view.zxid();
        match walk {
            Ok(walk) => walk.reply(&mut conn.output, what.xid, zxid),
            Err(code) => reply::error(&mut conn.output, what.xid, zxid, code),
        }
        conn.barred = false;
        self.count_reply(conn, now, what);
    }

    /// Whether [`Shard::walk_on`] has something to do: the driver calls it, between other work, until it has not.
    pub fn is_walking(&self) -> bool {
        !self.walking.is_empty()
    }

    /// One piece of one walk.
    pub fn walk_on(&mut self, now: Millis, out: &mut Outputs) {
        let Some(mut conn) = self.walking.pop_front().and_then(|id| self.conns.take(id)) else { return };
        if conn.is_closing() {
            return self.conns.put_back(conn);
        }
        match conn.pending.pop_front() {
            Some(Pending::Walk { xid, op, begun: Some(walk), at, .. }) => {
                self.go_on(now, &mut conn, xid, op, walk, at);
            }
            other => unreachable!("a walk goes on, but {other:?} is first"),
        }
        let verdict = self.catch_up(now, &mut conn).and_then(|()| self.resume(now, &mut conn, out));
        self.settle(now, conn, verdict, out);
    }
}
