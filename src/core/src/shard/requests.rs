//! Requests of a session: writes become proposals, reads are served or wait for the writes before them.

use crate::command::CommandKind;
use crate::ids::{Millis, Zxid};
use crate::limits::{MULTI_OP_COST, REQUEST_COST};
use crate::shard::conn::{Close, Conn, Pending};
use crate::shard::state::{Served, ShardState};
use crate::shard::{authentication, long, proposing, reply, serving};
use corral_wire::op::Kind as OpKind;
use corral_wire::records::{RequestHeader, SyncRequest};
use corral_wire::{ErrorCode, OpCode, Reader};

/// Takes a request, unless it is a write that must wait: then the connection is queued for it.
pub(super) fn request(shard: &mut ShardState, now: Millis, conn: &mut Conn, frame: &[u8]) -> Served {
    let mut reader = Reader::new(frame);
    let header = RequestHeader::decode(&mut reader).map_err(|_| Close::Malformed)?;
    let op = OpCode::from_i32(header.op);
    match op.map(OpCode::kind) {
        Some(OpKind::Connection) if op == Some(OpCode::Auth) => {
            return authentication::authenticate(shard, conn, header.xid, &mut reader);
        }
        Some(OpKind::Connection) if op == Some(OpCode::Sasl) => {
            return authentication::sasl(shard, conn, header.xid, &mut reader);
        }
        _ if !shard.config.enforce_schemes.is_empty() && !authentication::is_authenticated(shard, conn) => {
            reply::error(
                conn.output.buffer(&mut shard.buffers),
                header.xid,
                Zxid(0),
                ErrorCode::SessionClosedRequireSaslAuth,
            );
            shard.count_sent(conn);
            return Err(Close::Unauthenticated);
        }
        Some(_) if op.is_some_and(|op| shard.config.writes(op)) && !conn.session.is_read_only() => {
            let op = op.expect("has a kind");
            if proposing::queues_unseen(shard, conn, op, frame.len()) {
                return Ok(());
            }
            let large = proposing::large(shard, frame)?;
            shard.turn.spend(REQUEST_COST + frame.len());
            if let Ok(kind) = proposing::decode(shard, op, &conn.identities, &mut reader)
                && !(shard.refuses_growth && kind.adds_data())
            {
                if let CommandKind::Multi(ops) = &kind {
                    shard.turn.spend(ops.len() * MULTI_OP_COST);
                }
                let Some(cost) = proposing::admit_write(shard, conn, &kind, frame.len()) else { return Ok(()) };
                conn.blocked |= matches!(op, OpCode::CloseSession | OpCode::Reconfig);
                conn.pending.push(Pending::Write { xid: header.xid, op, at: shard.clock });
                proposing::propose(shard, conn, kind, large, cost);
                return Ok(());
            }
        }
        _ if op == Some(OpCode::Sync) && !conn.session.is_read_only() => {
            if let Ok(request) = SyncRequest::decode(&mut reader) {
                let path = request.path.map(|path| path.as_bytes().into());
                conn.pending.push(Pending::Sync { xid: header.xid, path, done: false, at: shard.clock });
                conn.blocked = true;
                shard.freshness.ask(conn);
                return Ok(());
            }
        }
        Some(_) if op.is_some_and(|op| shard.config.walks(op)) => {
            queue_long(shard, conn, header.xid, op.expect("has a kind"), reader.rest());
            return serving::catch_up(shard, now, conn);
        }
        _ => {}
    }
    let first = conn.pending.is_empty();
    if first
        && (shard.view.zxid() >= shard.freshness.gate() || shard.events.may_see_before(conn, frame, shard.view.zxid()))
    {
        serving::serve_decoded(shard, now, conn, frame, header, shard.clock)?;
        return if conn.pending.is_empty() { Ok(()) } else { serving::catch_up(shard, now, conn) };
    }
    if let Some(op) = op.filter(|op| long::will_be_long(shard, *op, reader.rest())) {
        queue_long(shard, conn, header.xid, op, reader.rest());
        return if first { serving::catch_up(shard, now, conn) } else { Ok(()) };
    }
    let (floor, barrier) = (shard.freshness.floor(), shard.freshness.barrier(conn, op));
    conn.pending.push(Pending::Queued { frame: frame.into(), floor, barrier, at: shard.clock });
    if first { serving::catch_up(shard, now, conn) } else { Ok(()) }
}

/// Queues a read that takes more than a turn. Nothing is taken behind it.
fn queue_long(shard: &mut ShardState, conn: &mut Conn, xid: i32, op: OpCode, record: &[u8]) {
    conn.blocked = true;
    let (begun, floor, barrier) = (None, shard.freshness.floor(), shard.freshness.barrier(conn, Some(op)));
    conn.pending.push(Pending::Long { xid, op, record: record.into(), begun, floor, barrier, at: shard.clock });
}
