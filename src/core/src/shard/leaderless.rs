//! A server that finds no leader: it closes connections, so that clients find a server with a leader. Clients that ask
//! for a read-only session may read the state here (protocol chapter 27).
//!
//! For the length of an election all clients wait. Connections with a shorter session timeout are closed
//! earlier. The ensemble ends a session without a sign of life, and a client that receives this server's answers would
//! not notice. A read-only session is known to the client alone: a client with the right password for an id has it.

use crate::apply::same_secret;
use crate::ids::{Millis, SessionId};
use crate::limits::DRAIN_WAIT_MS;
use crate::shard::conn::{Close, Conn, Phase};
use crate::shard::state::{Served, ShardState};
use crate::shard::{ending, reply};
use corral_wire::records::ConnectRequest;
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Closes every session's connection, because no leader has been found for too long. Until
/// `messages::resume_proposals` only read-only sessions are opened, for clients that ask for one, if the
/// configuration allows it.
pub(super) fn leaderless(shard: &mut ShardState, now: Millis) {
    shard.flow.leaderless = true;
    end_all(shard, now, Close::NoLeader, |_| true);
}

/// The state of this view is corrupt: as [`leaderless`], and no client is served before `messages::install`.
pub(super) fn distrust(shard: &mut ShardState, now: Millis) {
    shard.flow.distrusted = true;
    shard.flow.pause(now);
    leaderless(shard, now);
}

/// Closes connections that have waited for a leader for two thirds of their session timeout. After that time
/// without an answer a client closes its connection anyway. Only the time up to the last report counts: the message
/// that a leader is found may lie unread when this core stalled. A server that stops closes all of them after
/// `DRAIN_WAIT_MS`. Checks `count` slots from `from` on.
pub(super) fn send_away_in_time(shard: &mut ShardState, now: Millis, read_upto: Millis, (from, count): (usize, usize)) {
    if shard.flow.paused && !shard.flow.leaderless {
        let waited = read_upto.since(shard.flow.paused_since);
        let stops = shard.draining.has_begun() && now.since(shard.flow.paused_since) >= DRAIN_WAIT_MS;
        let overdue =
            |conn: &&Conn| stops || (conn.phase == Phase::Live && waited * 3 >= conn.session.silence_max_ms() * 2);
        let list = shard.conns.range(from, count).filter(overdue).map(|conn| conn.id).collect();
        ending::end_these(shard, now, Close::NoLeader, list);
    }
}

/// Closes read-only connections, because there is a leader: their clients connect again, and get ordinary sessions.
pub(super) fn end_read_only(shard: &mut ShardState, now: Millis) {
    end_all(shard, now, Close::LeaderFound, |conn| conn.session.is_read_only());
}

/// Ends the connections that have a session. Their requests in flight get no answer.
fn end_all(shard: &mut ShardState, now: Millis, why: Close, which: impl Fn(&Conn) -> bool) {
    let ends = |conn: &&Conn| conn.phase == Phase::Live && which(conn);
    let list = shard.conns.iter().filter(ends).map(|conn| conn.id).collect();
    ending::end_these(shard, now, why, list);
}

/// Returns the answer to `isro`.
pub(super) const fn isro(shard: &ShardState) -> &'static [u8] {
    match (shard.flow.paused, shard.flow.leaderless && shard.config.read_only && !shard.flow.distrusted) {
        (false, _) => b"rw",
        (true, true) => b"ro",
        (true, false) => b"null",
    }
}

/// A connect request while there is no leader. A session of the ensemble is not taken over: it may live elsewhere.
/// A server that has never had any state accepts no client: it would deny every znode there is.
pub(super) fn connect_leaderless(
    shard: &mut ShardState,
    conn: &mut Conn,
    request: &ConnectRequest<'_>,
    entropy: [u8; 16],
) -> Served {
    let zxid = shard.view.zxid();
    if shard.flow.distrusted || !shard.config.read_only || request.read_only != Some(true) || zxid.0 == 0 {
        return Err(Close::NoLeader);
    }
    if request.last_zxid_seen > zxid.max(shard.freshness.floor()).wire() {
        return Err(Close::ClientAhead);
    }
    let asked = SessionId(request.session_id);
    let session = if asked == SessionId(0) { read_only_session(shard, entropy) } else { asked };
    if !is_read_only_session(shard, session) {
        return Err(Close::NoLeader);
    }
    let right = read_only_password(shard, session);
    if asked != SessionId(0) && !same_secret(&password(request), &right) {
        reply::connected(conn.output.buffer(&mut shard.buffers), 0, 0, &[0; 16], Some(true));
        return Err(Close::SessionRefused);
    }
    conn.phase = Phase::Live;
    let timeout_ms = shard.config.negotiated(request.timeout_ms);
    conn.session.attach_read_only(session, timeout_ms);
    reply::connected(conn.output.buffer(&mut shard.buffers), session.0, timeout_ms, &right, Some(true));
    Ok(())
}

/// A new id of a read-only session. Ids that the ensemble gives hold the epoch in these 24 bits, and epochs begin
/// at 1.
fn read_only_session(shard: &ShardState, entropy: [u8; 16]) -> SessionId {
    let [a, b, c, d, ..] = entropy;
    let low = u64::from(u32::from_be_bytes([a, b, c, d]));
    SessionId((u64::from(shard.config.server.0) << 56 | low).cast_signed())
}

const fn is_read_only_session(shard: &ShardState, session: SessionId) -> bool {
    session.0.cast_unsigned() >> 32 == (shard.config.server.0 as u64) << 24
}

/// The password of a read-only session, for this start of the server. It guards nothing: such a session owns
/// nothing, and has no rights of its own.
fn read_only_password(shard: &ShardState, session: SessionId) -> [u8; 16] {
    xxh3_128_with_seed(&session.0.to_be_bytes(), shard.config.incarnation).to_be_bytes()
}

/// Returns the password of a connect request, or zeros if it is missing or has another length.
pub(super) fn password(request: &ConnectRequest<'_>) -> [u8; 16] {
    request.passwd.and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; 16])
}
