//! A server that finds no leader: it closes connections, so that clients find a server with a leader. Clients that ask
//! for a read-only session may read the state here (protocol chapter 27).
//!
//! For the length of an election all clients wait. Connections with a shorter session timeout are closed
//! earlier. The ensemble ends a session without a sign of life, and a client that receives this server's answers would
//! not notice. A read-only session is known to the client alone: a client with the right password for an id has it.

use super::greeting::password;
use super::{Served, Shard};
use crate::apply::same_secret;
use crate::ids::{ConnId, Millis, SessionId};
use crate::shard::conn::{Close, Conn, Phase};
use crate::shard::counters::Answered;
use crate::shard::reply;
use alloc::vec::Vec;
use corral_wire::records::ConnectRequest;
use corral_wire::{ErrorCode, OpCode};
use xxhash_rust::xxh3::xxh3_128_with_seed;

impl Shard {
    /// Closes every session's connection, because no leader has been found for too long. Until
    /// [`Shard::resume_proposals`] only read-only sessions are opened, for clients that ask for one, if the
    /// configuration allows it.
    pub(super) fn leaderless(&mut self, now: Millis) {
        self.flow.leaderless = true;
        self.end_all(now, Close::NoLeader, |_| true);
    }

    /// The state of this view is corrupt: as [`Shard::leaderless`], and no client is served before [`Shard::install`].
    pub(super) fn distrust(&mut self, now: Millis) {
        self.flow.distrusted = true;
        self.pause_proposals(now);
        self.leaderless(now);
    }

    /// Closes connections that have waited for a leader for two thirds of their session timeout. After that time
    /// without an answer a client closes its connection anyway. Checks `count` slots from `from` on.
    pub(super) fn send_away_in_time(&mut self, now: Millis, (from, count): (usize, usize)) {
        if self.flow.paused && !self.flow.leaderless {
            let waited = now.since(self.flow.paused_since);
            let overdue = |conn: &&Conn| conn.phase == Phase::Live && waited * 3 >= conn.session.silence_max_ms() * 2;
            let list = self.conns.range(from, count).filter(overdue).map(|conn| conn.id).collect();
            self.end_these(now, Close::NoLeader, list);
        }
    }

    /// Closes read-only connections, because there is a leader: their clients connect again, and get ordinary sessions.
    pub(super) fn end_read_only(&mut self, now: Millis) {
        self.end_all(now, Close::LeaderFound, |conn| conn.session.is_read_only());
    }

    /// Ends the connections that have a session. Their requests in flight get no answer.
    fn end_all(&mut self, now: Millis, why: Close, which: impl Fn(&Conn) -> bool) {
        let ends = |conn: &&Conn| conn.phase == Phase::Live && which(conn);
        let list = self.conns.iter().filter(ends).map(|conn| conn.id).collect();
        self.end_these(now, why, list);
    }

    fn end_these(&mut self, now: Millis, why: Close, list: Vec<ConnId>) {
        for id in list {
            if let Some(conn) = self.conns.take(id) {
                self.end_now(now, conn, why);
            }
        }
    }

    /// Returns the answer to `isro`.
    pub(super) const fn isro(&self) -> &'static [u8] {
        match (self.flow.paused, self.flow.leaderless && self.config.read_only && !self.flow.distrusted) {
            (false, _) => b"rw",
            (true, true) => b"ro",
            (true, false) => b"null",
        }
    }

    /// A connect request while there is no leader. A session of the ensemble is not taken over: it may live elsewhere.
    /// A server that has never had any state accepts no client: it would deny every znode there is.
    pub(super) fn connect_leaderless(
        &mut self,
        conn: &mut Conn,
        request: &ConnectRequest<'_>,
        entropy: [u8; 16],
    ) -> Served {
        let zxid = self.view.zxid();
        if self.flow.distrusted || !self.config.read_only || request.read_only != Some(true) || zxid.0 == 0 {
            return Err(Close::NoLeader);
        }
        if request.last_zxid_seen > zxid.max(self.freshness.floor()).wire() {
            return Err(Close::ClientAhead);
        }
        let asked = SessionId(request.session_id);
        let session = if asked == SessionId(0) { self.read_only_session(entropy) } else { asked };
        if !self.is_read_only_session(session) {
            return Err(Close::NoLeader);
        }
        let right = self.read_only_password(session);
        if asked != SessionId(0) && !same_secret(&password(request), &right) {
            reply::connected(conn.output.buffer(&mut self.buffers), 0, 0, &[0; 16], Some(true));
            return Err(Close::SessionRefused);
        }
        conn.phase = Phase::Live;
        let timeout_ms = self.negotiated(request.timeout_ms);
        conn.session.attach_read_only(session, timeout_ms);
        reply::connected(conn.output.buffer(&mut self.buffers), session.0, timeout_ms, &right, Some(true));
        Ok(())
    }

    /// A new id of a read-only session. Ids that the ensemble gives hold the epoch in these 24 bits, and epochs begin
    /// at 1.
    fn read_only_session(&self, entropy: [u8; 16]) -> SessionId {
        let [a, b, c, d, ..] = entropy;
        let low = u64::from(u32::from_be_bytes([a, b, c, d]));
        SessionId((u64::from(self.config.server) << 56 | low).cast_signed())
    }

    const fn is_read_only_session(&self, session: SessionId) -> bool {
        session.0.cast_unsigned() >> 32 == (self.config.server as u64) << 24
    }

    /// The password of a read-only session, for this start of the server. It guards nothing: such a session owns
    /// nothing, and has no rights of its own.
    fn read_only_password(&self, session: SessionId) -> [u8; 16] {
        xxh3_128_with_seed(&session.0.to_be_bytes(), self.config.incarnation).to_be_bytes()
    }

    /// Answers a write, or a sync, of a read-only session. Everything before it has been answered.
    pub(super) fn refuse_write(&mut self, now: Millis, conn: &mut Conn, what: Answered) -> Served {
        let (zxid, begins) = (self.view.zxid(), conn.unsent());
        let closes = what.op == Some(OpCode::CloseSession);
        if closes {
            reply::done(conn.output.buffer(&mut self.buffers), what.xid, zxid);
        } else {
            reply::error(conn.output.buffer(&mut self.buffers), what.xid, zxid, ErrorCode::NotReadOnly);
        }
        let bytes = conn.unsent() - begins;
        self.count_reply(conn, now, what, bytes);
        if closes { Err(Close::Done) } else { Ok(()) }
    }
}
