//! Reads that take more than one turn: begun when everything before them is answered, then one piece at a time.

use crate::ids::{Millis, Zxid};
use crate::limits::{LISTS_MAX, NAME_COST, REPLY_FRAME_BYTES_MAX, REQUEST_COST, REWATCH_BYTES_AT_ONCE, WATCH_COST};
use crate::shard::conn::{Conn, Long, Pending};
use crate::shard::counters::Answered;
use crate::shard::memory::Wanting;
use crate::shard::read::{Length, ListContext, Outline, PutOff, ReadContext, Rewatch, begin_list, is_short};
use crate::shard::state::ShardState;
use crate::shard::walk::{Walk, WalkContext, is_walk};
use crate::shard::{ending, reply};
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

/// Whether a read that is put behind others will take more than a turn, as it looks now: then nothing is taken
/// behind it. A read that has become long until it is served, with writes behind it, is refused.
pub(super) fn will_be_long(shard: &ShardState, op: OpCode, record: &[u8]) -> bool {
    let looks_up = match Outline::of(op).length {
        Length::Short => return false,
        Length::Paths => return record.len() > REWATCH_BYTES_AT_ONCE,
        Length::List { .. } if op.kind() == OpKind::Extension && !shard.config.keeper_extensions => return false,
        Length::List { looks_up } => looks_up,
    };
    let Ok(Some(path)) = Reader::new(record).string() else { return false };
    let path = crate::path::or_root(path);
    let size = shard.view.children_size(path, shard.view.hasher().hash(path));
    size.is_some_and(|size| {
        !is_short(ChildrenSize { entries: 2 * size.entries, bytes: 2 * size.bytes }, looks_up.then_some(path))
    })
}

fn walk_context<'s>(shard: &'s ShardState, conn: &'s Conn) -> WalkContext<'s> {
    let limit =
        shard.config.limits.reply_buffer_bytes_hard_max.saturating_sub(conn.unsent()).min(REPLY_FRAME_BYTES_MAX);
    WalkContext {
        view: &shard.view,
        identities: conn.identities.as_slice(),
        skip_acl: shard.config.skip_acl,
        reply_bytes_max: limit,
        room: shard.memory.room(conn),
    }
}

/// Returns the context for a read of this connection. Takes its output, to be put back.
#[inline(always)]
pub(super) fn read_context<'s>(shard: &'s mut ShardState, conn: &'s mut Conn) -> (ReadContext<'s>, Vec<u8>) {
    let (unsent, room) = (conn.unsent(), shard.memory.room(conn));
    let has_turn = mem::take(&mut shard.has_turn) || shard.delay.is_due();
    let output = conn.output.take_buffer(&mut shard.buffers);
    let ShardState { view, watches, config, sessions, .. } = shard;
    let context = ReadContext {
        view,
        watches,
        conn: conn.id,
        identities: conn.identities.as_slice(),
        any_sasl_user: config.any_sasl_user.as_ref(),
        ephemerals: sessions.ephemerals(conn.session.id()),
        skip_acl: config.skip_acl,
        keeper: config.keeper_extensions,
        reply_bytes_max: config.limits.reply_buffer_bytes_hard_max.saturating_sub(unsent).min(REPLY_FRAME_BYTES_MAX),
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
    shard: &mut ShardState,
    now: Millis,
    conn: &mut Conn,
    xid: i32,
    op: OpCode,
    record: Box<[u8]>,
    at: Micros,
) {
    shard.turn.spend(REQUEST_COST + record.len());
    let begun = match op {
        _ if is_walk(op) => Walk::start(&walk_context(shard, conn), op, &mut Reader::new(&record)).map(Long::Walk),
        OpCode::SetWatches | OpCode::SetWatches2 => {
            let need = record.len() * EVENTS_PER_BYTE;
            if need > shard.memory.room(conn) {
                return put_back(shard, now, conn, (xid, op, record, at), need, false);
            }
            Rewatch::begin(op, record).map(Long::Rewatch)
        }
        _ if !shard.lists.may_begin() => {
            return put_back(shard, now, conn, (xid, op, record, at), 0, true);
        }
        _ => {
            let (mut context, output) = read_context(shard, conn);
            let begun = begin_list(&mut context, xid, op, &mut Reader::new(&record));
            let why = context.put_off.take();
            conn.output.put_back(output);
            match why {
                Some(PutOff::Room(need)) => {
                    return put_back(shard, now, conn, (xid, op, record, at), need, true);
                }
                _ => begun.map(Long::List),
            }
        }
    };
    match begun {
        Ok(long) => {
            if matches!(long, Long::List(_)) {
                shard.lists.begin(conn.id);
            }
            go_on(shard, now, conn, xid, op, Box::new(long), at);
        }
        Err(code) => {
            end_long(shard, now, conn, Answered { op: Some(op), xid, at, update: false }, None, Some(code));
        }
    }
}

fn put_back(
    shard: &mut ShardState,
    now: Millis,
    conn: &mut Conn,
    (xid, op, record, at): (i32, OpCode, Box<[u8]>, Micros),
    need: usize,
    list: bool,
) {
    let (begun, floor, barrier) = (None, Zxid(0), 0);
    conn.pending.push_front(Pending::Long { xid, op, record, begun, floor, barrier, at });
    shard.memory.wait(conn, Wanting { conn: conn.id, need, list, since: now });
}

pub(super) fn go_on(
    shard: &mut ShardState,
    now: Millis,
    conn: &mut Conn,
    xid: i32,
    op: OpCode,
    mut long: Box<Long>,
    at: Micros,
) {
    let mut looked = 0;
    let step = match &mut *long {
        Long::Walk(walk) => walk.step(&walk_context(shard, conn), &mut looked),
        Long::List(list) => {
            let context = ListContext {
                view: &shard.view,
                identities: conn.identities.as_slice(),
                skip_acl: shard.config.skip_acl,
                reply_bytes_max: shard.config.limits.reply_buffer_bytes_hard_max.min(shard.memory.room(conn)),
                changed_bytes_max: shard.config.limits.reply_buffer_bytes_total_max / LISTS_MAX,
            };
            list.step(&context, &mut looked)
        }
        Long::Rewatch(rewatch) => {
            let before = rewatch.passed();
            let (mut context, mut output) = read_context(shard, conn);
            let done = rewatch.step(&mut context, &mut output, xid);
            conn.output.put_back(output);
            looked = (rewatch.passed() - before) * WATCH_COST / NAME_COST;
            Ok(done)
        }
    };
    shard.turn.spend(looked * NAME_COST);
    let what = Answered { op: Some(op), xid, at, update: false };
    match step {
        Ok(false) => {
            let (record, begun, floor) = (Box::default(), Some(long), Zxid(0));
            conn.pending.push_front(Pending::Long { xid, op, record, begun, floor, barrier: 0, at });
            shard.walking.push_back(conn.id);
        }
        Ok(true) => end_long(shard, now, conn, what, Some(*long), None),
        Err(code) => end_long(shard, now, conn, what, Some(*long), Some(code)),
    }
}

/// Answers a read that is over, with its result or with an error.
fn end_long(
    shard: &mut ShardState,
    now: Millis,
    conn: &mut Conn,
    what: Answered,
    long: Option<Long>,
    failed: Option<ErrorCode>,
) {
    let (zxid, xid) = (shard.view.zxid(), what.xid);
    let begins = conn.unsent();
    if let Some(code) = failed {
        reply::error(conn.output.buffer(&mut shard.buffers), xid, zxid, code);
    }
    let mut bytes = conn.unsent() - begins;
    match long {
        Some(Long::Walk(walk)) if failed.is_none() => {
            walk.reply(conn.output.buffer(&mut shard.buffers), xid, zxid);
            bytes = conn.unsent() - begins;
        }
        Some(Long::List(list)) => {
            shard.lists.end(conn.id);
            if let Some((path, hash)) = list.fresh_watch(failed.is_some()) {
                shard.watches.take_back(conn.id, path, hash);
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
    if conn.unsent() > shard.config.limits.reply_buffer_bytes_soft_max {
        conn.output.allow_unsent();
    }
    conn.blocked = conn.pending.iter().any(Pending::blocks);
    ending::count_reply(shard, conn, now, what, bytes);
}
