//! Syncs, and reads that must be linearizable: what waits for the leader's word on how far it must see.
//!
//! A barrier is a sync that nobody asked for. Reads that come together share one; the driver sends those of a turn
//! together, so that they are one question to the leader. Without linearizable reads nothing is kept here.

use super::Shard;
use crate::conn::{Conn, Pending};
use crate::ids::{ConnId, Millis};
use corral_wire::OpCode;

/// The barriers of one connection, counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Barriers {
    asked: u64,
    /// Answers that came. One that overtakes an older one stands for it, because it tells of a later state.
    passed: u64,
    /// Up to that one no answer is needed.
    excused: u64,
}

impl Shard {
    /// A sync has come back from the leader, behind every batch it stands for.
    pub(super) fn synced(&mut self, now: Millis, id: ConnId) {
        let Some(mut conn) = self.conns.take(id) else { return };
        if conn.is_closing() {
            return self.conns.put_back(conn);
        }
        let last = self.pass_barrier(id);
        if let Some(Pending::Sync { done, .. }) = conn.pending.back_mut()
            && last
        {
            *done = true;
            // A read in front of it may have become a long one meanwhile.
            conn.blocked = conn.pending.iter().any(Pending::blocks);
        }
        let verdict = self.catch_up(now, &mut conn).and_then(|()| self.resume(now, &mut conn));
        self.settle(now, conn, verdict);
    }

    /// Asks the leader; the answer comes by [`Shard::synced`].
    #[inline(never)]
    pub(super) fn ask_barrier(&mut self, conn: &Conn) -> u64 {
        self.syncs.push(conn.id);
        if !self.config.linearizable {
            return 0;
        }
        let barriers = self.barriers.entry(conn.id).or_default();
        barriers.asked += 1;
        barriers.asked
    }

    /// Which barrier a read must wait for; 0 for none.
    #[inline(never)]
    pub(super) fn barrier(&mut self, conn: &Conn, op: Option<OpCode>) -> u64 {
        if !self.config.linearizable || conn.read_only || op == Some(OpCode::Ping) {
            return 0;
        }
        if self.syncs.last() == Some(&conn.id) {
            return self.barriers.get(&conn.id).map_or(0, |barriers| barriers.asked);
        }
        self.ask_barrier(conn)
    }

    /// Whether the leader has not answered what the connection's oldest request waits for.
    pub(super) fn is_blocked(&self, conn: &Conn) -> bool {
        let barrier = conn.pending.front().map_or(0, Pending::barrier);
        barrier > 0
            && self.barriers.get(&conn.id).is_none_or(|barriers| barrier > barriers.passed.max(barriers.excused))
    }

    /// A command of the connection is about to be applied. Whatever was answered anywhere before the reads in front of
    /// it were sent lies before it in the log, and is applied: so they need no answer of the leader any more, and must
    /// not see what comes now.
    pub(super) fn excuse_barriers(&mut self, conn: &Conn) {
        // A sync that is answered may stand in front of them, when the end of a turn kept it.
        let reads = conn.pending.iter().take_while(|pending| pending.ready_at().is_some());
        let barrier = reads.map(Pending::barrier).max().unwrap_or(0);
        if let Some(barriers) = self.barriers.get_mut(&conn.id) {
            barriers.excused = barriers.excused.max(barrier);
        }
    }

    /// An answer of the leader came. Whether it was the last that is due: then it is that of a sync, behind which
    /// nothing more is taken.
    pub(super) fn pass_barrier(&mut self, id: ConnId) -> bool {
        self.barriers.get_mut(&id).is_none_or(|barriers| {
            barriers.passed += 1;
            barriers.passed == barriers.asked
        })
    }
}
