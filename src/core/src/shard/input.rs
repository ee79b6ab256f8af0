//! From bytes to requests, and when a connection must wait: all limits on the requests of one connection under way are
//! applied here. Writes become proposals. Reads are served, or wait for the writes before them.

use crate::command::CommandKind;
use crate::ids::{ConnId, Millis, Zxid};
use crate::limits::{CONNECT_BYTES_MAX, MULTI_OP_COST, REQUEST_COST};
use crate::shard::conn::{Close, Conn, Pending, Phase};
use crate::shard::load::Request;
use crate::shard::memory::Wanting;
use crate::shard::state::{Served, ShardState};
use crate::shard::{authentication, ending, greeting, long, proposing, reply, serving, warm};
use alloc::boxed::Box;
use core::mem;
use corral_wire::frame::next_frame;
use corral_wire::op::Kind as OpKind;
use corral_wire::records::{RequestHeader, SyncRequest};
use corral_wire::{ErrorCode, OpCode, Reader};

/// Bytes came in. They are taken whole; while the connection is stalled the driver reads no more of it.
pub(super) fn received(shard: &mut ShardState, now: Millis, id: ConnId, bytes: &[u8]) {
    let Some(mut conn) = shard.conns.take(id) else { return };
    shard.turn.begin();
    shard.activity.note(now, &mut conn);
    conn.held.note_moved(bytes.len());
    shard.statistics.bytes_received += bytes.len() as u64;
    if !shard.metered.is_empty() {
        shard.metered.count_bytes(&shard.config.limits, now, id, bytes.len());
    }
    let verdict = if conn.input.is_empty() {
        consume(shard, now, &mut conn, bytes).map(|used| conn.input.append(&bytes[used..]))
    } else if conn.missing() > bytes.len() && !conn.is_closing() {
        conn.input.append(bytes);
        Ok(())
    } else {
        conn.input.append(bytes);
        consume_kept(shard, now, &mut conn)
    };
    ending::settle(shard, now, conn, verdict);
}

/// The socket took `count` bytes of [`Shard::unsent`](super::Shard::unsent).
pub(super) fn sent(shard: &mut ShardState, now: Millis, id: ConnId, count: usize) {
    let Some(mut conn) = shard.conns.take(id) else { return };
    shard.turn.begin();
    conn.held.note_moved(count);
    conn.output.forget_sent(count, &mut shard.buffers);
    shard.statistics.bytes_sent += count as u64;
    go_on(shard, now, conn);
}

/// The client sends no more. It may still read, as netcat does, which closes its side at once: what it has asked
/// for is answered, then the connection ends.
pub(super) fn input_ended(shard: &mut ShardState, id: ConnId) {
    let Some(conn) = shard.conns.get_mut(id) else { return };
    conn.mute = true;
    if conn.is_paid() {
        ending::hung_up(shard, id);
    }
}

fn consume_kept(shard: &mut ShardState, now: Millis, conn: &mut Conn) -> Served {
    let mut input = mem::take(&mut conn.input);
    let used = consume(shard, now, conn, input.rest())?;
    input.take(used);
    conn.input = input;
    Ok(())
}

/// Takes whole frames off the front of `bytes` until there is none or the connection must wait.
fn consume(shard: &mut ShardState, now: Millis, conn: &mut Conn, bytes: &[u8]) -> Result<usize, Close> {
    let (mut used, mut looked) = (0, 0);
    loop {
        if conn.is_closing() {
            return Ok(bytes.len());
        }
        conn.stalled = must_wait(shard, now, conn);
        if conn.stalled {
            return Ok(used);
        }
        let rest = &bytes[used..];
        if conn.is_greeting()
            && let Some(done) = greeting::greeted_with_four_letter(shard, now, conn, rest)?
        {
            return Ok(used + done);
        }
        let frame_bytes_max = shard.config.limits.frame_bytes_max;
        let max = if conn.is_greeting() { frame_bytes_max.min(CONNECT_BYTES_MAX) } else { frame_bytes_max };
        let Ok(found) = next_frame(rest, max) else {
            return Err(bad_length(conn, rest));
        };
        let Some((frame, length)) = found else { return Ok(used) };
        if let Phase::Greeting { entropy } = conn.phase {
            greeting::connect(shard, conn, frame, entropy)?;
        } else {
            if used >= looked {
                looked = used + warm::look_ahead(&shard.view, frame_bytes_max, rest);
            }
            let counted = shard.loads.is_next().then(|| (shard.turn.spent(), conn.unsent()));
            request(shard, now, conn, frame)?;
            if conn.waits.costly {
                return Ok(used);
            }
            if let Some(before) = counted {
                count_load(shard, conn, frame, before);
            }
            conn.counters.received += 1;
            shard.statistics.received += 1;
            if !shard.metered.is_empty() {
                shard.metered.count_request(&shard.config.limits, now, conn.id);
            }
        }
        used += length;
        if shard.turn.is_over() {
            shard.go_on_later(conn);
            return Ok(used);
        }
    }
}

/// Takes a request, unless it is a write that must wait: then the connection is queued for it.
fn request(shard: &mut ShardState, now: Millis, conn: &mut Conn, frame: &[u8]) -> Served {
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
            ending::count_sent(shard, conn);
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

/// Counts a request for the loads, with the work and the unsent bytes before it.
fn count_load(shard: &mut ShardState, conn: &Conn, frame: &[u8], (spent, unsent): (usize, usize)) {
    let bytes = frame.len() + conn.unsent().saturating_sub(unsent);
    let cost = shard.turn.spent().saturating_sub(spent);
    let (address, session) = (conn.peer.ip().to_canonical(), conn.session.id());
    shard.loads.count(&Request { address, session, frame, bytes, cost });
}

/// Whether something of this connection, or of the shard, must be finished before more is read.
fn must_wait(shard: &mut ShardState, now: Millis, conn: &mut Conn) -> bool {
    if shard.in_flight.is_full(&shard.config.limits) {
        shard.writes.hold_back(conn);
        return true;
    }
    if shard.memory.is_short(conn) {
        shard.memory.wait(conn, Wanting { conn: conn.id, need: 0, list: false, since: now });
    }
    let limits = &shard.config.limits;
    shard.draining.has_begun()
        || conn.blocked
        || conn.waits.memory
        || conn.waits.costly
        || conn.waits.turn
        || conn.phase == Phase::Connecting
        || conn.pending.len() >= limits.requests_in_flight_per_connection_max
        || conn.pending.unproposed() >= limits.queued_per_connection_max
        || conn.pending.queued_bytes() >= limits.queued_bytes_max
        || conn.unsent() >= limits.reply_buffer_bytes_soft_max
        || (!shard.metered.is_empty() && shard.metered.is_over(limits, now, conn.id))
}

/// Serves what waited in the connection, then goes on with its input, and puts it back.
pub(super) fn go_on(shard: &mut ShardState, now: Millis, mut conn: Box<Conn>) {
    let verdict = serving::catch_up(shard, now, &mut conn).and_then(|()| resume(shard, now, &mut conn));
    ending::settle(shard, now, conn, verdict);
}

pub(super) fn resume_by_id(shard: &mut ShardState, now: Millis, id: ConnId) {
    if let Some(mut conn) = shard.conns.take(id) {
        let verdict = resume(shard, now, &mut conn);
        ending::settle(shard, now, conn, verdict);
    }
}

/// Goes on with a stalled connection's input if what held it back is gone, in a later turn if this one's work is done.
pub(super) fn resume(shard: &mut ShardState, now: Millis, conn: &mut Conn) -> Served {
    if !conn.stalled {
        return Ok(());
    }
    if shard.turn.is_over() {
        // A connection in a queue goes on when that queue serves it.
        if !conn.waits.costly && !conn.waits.memory {
            shard.go_on_later(conn);
        }
        return Ok(());
    }
    consume_kept(shard, now, conn)?;
    if !conn.stalled {
        shard.effects.resumed.push(conn.id);
    }
    Ok(())
}

fn bad_length(conn: &Conn, bytes: &[u8]) -> Close {
    let word = bytes.first_chunk::<4>().copied().unwrap_or_default();
    match &word {
        b"GET " | b"POST" | b"HEAD" | b"PUT " | b"OPTI" if conn.is_greeting() => Close::Http,
        [0x16, 0x03, _, _] if conn.is_greeting() => Close::Tls,
        _ => Close::BadLength(i32::from_be_bytes(word)),
    }
}
