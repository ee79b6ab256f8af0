//! Answers to the requests that are not proposed: at once, or when everything before them is answered.

use crate::ids::{Millis, Zxid};
use crate::limits::REQUEST_COST;
use crate::ops::decode::Refused;
use crate::shard::conn::{Close, Conn, Pending};
use crate::shard::counters::Answered;
use crate::shard::memory::Wanting;
use crate::shard::read::{PutOff, Unserved};
use crate::shard::state::{Served, ShardState};
use crate::shard::{ending, load, long, proposing, read, reply};
use corral_types::Micros;
use corral_wire::consts::{XID_PING, ZXID_UNNUMBERED};
use corral_wire::limits::REQUEST_HEADER_BYTES;
use corral_wire::op::Kind as OpKind;
use corral_wire::records::{ReplyHeader, RequestHeader};
use corral_wire::{ErrorCode, OpCode, Reader};

/// Serves requests that waited for the requests before them, as far as none waits for its own reason. A client with
/// enough to read gets the rest later, unless writes are behind it: a read must not see a later write. When the
/// turn's work is done the rest is served in the next ones, before a write behind it: see `delays`.
pub(super) fn catch_up(shard: &mut ShardState, now: Millis, conn: &mut Conn) -> Served {
    while let Some(floor) = conn.pending.front().and_then(Pending::ready_at)
        && (conn.pending.proposed() > 0 || conn.unsent() < shard.config.limits.reply_buffer_bytes_soft_max)
        && !conn.is_closing()
    {
        // With writes behind them they must see the state before these.
        if (conn.pending.proposed() == 0 && conn.waits.memory) || (conn.waits.turn && !shard.delay.is_due()) {
            return Ok(());
        }
        if shard.freshness.is_blocked(conn) {
            return Ok(());
        }
        if shard.turn.is_over() {
            shard.go_on_later(conn);
            return Ok(());
        }
        let waits_for_events = shard.events.waits(conn, shard.view.zxid());
        if floor > shard.view.zxid() || waits_for_events {
            // Events are told before the next state.
            let from = if waits_for_events { Zxid(shard.view.zxid().0 + 1) } else { floor };
            shard.freshness.wait(conn, from);
            return Ok(());
        }
        match conn.pending.pop() {
            Some(Pending::Queued { frame, at, .. }) => {
                serve(shard, now, conn, &frame, at)?;
            }
            Some(Pending::Long { xid, op, record, at, .. }) => long::begin_long(shard, now, conn, xid, op, record, at),
            Some(Pending::Sync { xid, path, at, .. }) => {
                let (zxid, begins) = (shard.view.zxid().wire(), conn.unsent());
                reply::frame(conn.output.buffer(&mut shard.buffers), |writer| {
                    ReplyHeader::ok(xid, zxid).encode(writer);
                    writer.buffer(path.as_deref());
                });
                let (bytes, op) = (conn.unsent() - begins, Some(OpCode::Sync));
                ending::count_reply(shard, conn, now, Answered { op, xid, at, update: false }, bytes);
            }
            other => unreachable!("{other:?} was in front"),
        }
    }
    Ok(())
}

/// Answers a request that need not, or cannot, be proposed. Everything before it has been answered.
fn serve(shard: &mut ShardState, now: Millis, conn: &mut Conn, frame: &[u8], at: Micros) -> Served {
    let header = RequestHeader::decode(&mut Reader::new(frame)).map_err(|_| Close::Malformed)?;
    serve_decoded(shard, now, conn, frame, header, at)
}

/// As [`serve`], with the header of the frame.
pub(super) fn serve_decoded(
    shard: &mut ShardState,
    now: Millis,
    conn: &mut Conn,
    frame: &[u8],
    header: RequestHeader,
    at: Micros,
) -> Served {
    let mut reader = Reader::new(frame.get(REQUEST_HEADER_BYTES..).unwrap_or_default());
    let begins = conn.unsent();
    let zxid = shard.view.zxid();
    let op = OpCode::from_i32(header.op);
    let served = match op {
        Some(op) if is_throttled(shard, now, conn, op, at) => {
            shard.statistics.throttled += 1;
            reply::error(conn.output.buffer(&mut shard.buffers), header.xid, Zxid(0), ErrorCode::ThrottledOp);
            Ok(())
        }
        Some(OpCode::Ping) => {
            // Its own xid does not count: ZooKeeper answers every ping with this one.
            reply::done(conn.output.buffer(&mut shard.buffers), XID_PING, zxid);
            Ok(())
        }
        Some(op) if conn.session.is_read_only() && (op == OpCode::Sync || shard.config.writes(op)) => {
            return refuse_write(shard, now, conn, Answered { op: Some(op), xid: header.xid, at, update: false });
        }
        Some(OpCode::Sync) => {
            reply::error(conn.output.buffer(&mut shard.buffers), header.xid, zxid, ErrorCode::MarshallingError);
            Ok(())
        }
        Some(op) if shard.config.writes(op) => {
            shard.turn.spend(frame.len());
            answer_refused(shard, conn, op, header.xid, &mut reader)
        }
        Some(op) if op.kind() == OpKind::Read || (op.kind() == OpKind::Extension && shard.config.keeper_extensions) => {
            let (mut context, mut output) = long::read_context(shard, conn);
            let served = read::serve(&mut context, &mut output, header.xid, op, &mut reader);
            let cost = context.cost.get();
            conn.output.put_back(output);
            shard.turn.spend(cost);
            served
        }
        _ => Err(Unserved::Unknown),
    };
    shard.turn.spend(REQUEST_COST);
    if let Err(Unserved::Later(why)) = served {
        put_off(shard, now, conn, frame, at, why);
        return Ok(());
    }
    ending::count_reply(shard, conn, now, Answered { op, xid: header.xid, at, update: false }, conn.unsent() - begins);
    if !shard.effects.slow.is_empty()
        && let Some(path) = load::path(frame)
    {
        shard.effects.slow.name(conn.session.id(), header.xid, path);
    }
    let unsent = conn.unsent();
    if unsent > shard.config.limits.reply_buffer_bytes_soft_max {
        conn.output.allow_unsent();
    }
    served.map_err(|_| {
        let refusal = ReplyHeader::error(header.xid, ZXID_UNNUMBERED, ErrorCode::Unimplemented);
        reply::frame(conn.output.buffer(&mut shard.buffers), |writer| refusal.encode(writer));
        Close::UnknownOp(header.op)
    })
}

/// Answers a write that is not proposed.
fn answer_refused(
    shard: &mut ShardState,
    conn: &mut Conn,
    op: OpCode,
    xid: i32,
    reader: &mut Reader<'_>,
) -> Result<(), Unserved> {
    let code = match proposing::decode(shard, op, &conn.identities, reader) {
        Err(Refused::NotServed) => return Err(Unserved::Unknown),
        Err(Refused::TooManyOps) => ErrorCode::ThrottledOp,
        Err(_) => ErrorCode::MarshallingError,
        // Otherwise it would have been proposed.
        Ok(_) => {
            shard.statistics.growth_refused += 1;
            ErrorCode::QuotaExceeded
        }
    };
    reply::error(conn.output.buffer(&mut shard.buffers), xid, shard.view.zxid(), code);
    Ok(())
}

/// A read that is not answered in this turn: it is the first again, and is done in pieces, or waits for memory.
#[cold]
fn put_off(shard: &mut ShardState, now: Millis, conn: &mut Conn, frame: &[u8], at: Micros, why: PutOff) {
    let mut reader = Reader::new(frame);
    let header = RequestHeader::decode(&mut reader);
    match (why, header.ok().and_then(|header| Some((header.xid, OpCode::from_i32(header.op)?)))) {
        (PutOff::Long, Some((xid, op))) => {
            let (record, begun, floor, barrier) = (reader.rest().into(), None, Zxid(0), 0);
            conn.pending.push_front(Pending::Long { xid, op, record, begun, floor, barrier, at });
            conn.blocked = true;
        }
        (PutOff::Long, None) => unreachable!("only a read that is known is put off"),
        (PutOff::Turn | PutOff::Room(_), _) => {
            conn.pending.push_front(Pending::Queued { frame: frame.into(), floor: Zxid(0), barrier: 0, at });
            match why {
                PutOff::Room(need) => {
                    shard.memory.wait(conn, Wanting { conn: conn.id, need, list: false, since: now });
                }
                _ => shard.go_on_later(conn),
            }
        }
    }
}

/// Answers a write, or a sync, of a read-only session. Everything before it has been answered.
fn refuse_write(shard: &mut ShardState, now: Millis, conn: &mut Conn, what: Answered) -> Served {
    let (zxid, begins) = (shard.view.zxid(), conn.unsent());
    let closes = what.op == Some(OpCode::CloseSession);
    if closes {
        reply::done(conn.output.buffer(&mut shard.buffers), what.xid, zxid);
    } else {
        reply::error(conn.output.buffer(&mut shard.buffers), what.xid, zxid, ErrorCode::NotReadOnly);
    }
    let bytes = conn.unsent() - begins;
    ending::count_reply(shard, conn, now, what, bytes);
    if closes { Err(Close::Done) } else { Ok(()) }
}

/// Whether a request is refused: it waited too long, its client has too much to read, or a write behind it has
/// waited long enough.
fn is_throttled(shard: &ShardState, now: Millis, conn: &Conn, op: OpCode, at: Micros) -> bool {
    let limits = &shard.config.limits;
    let late = limits.throttled_op_wait_ms > 0 && now.since(Millis::of(at)) > limits.throttled_op_wait_ms;
    let too_much = conn.unsent() > limits.reply_buffer_bytes_hard_max;
    op != OpCode::Ping && (late || too_much || shard.delay.is_too_much(conn.id))
}
