//! Reads, and syncs, that a connection sent before a write. If they are not all served when the write is about to be
//! applied, because the turn's work was done before, it waits for them. They are served a turn's worth at a time.
//!
//! Their cost by then is limited, because all commands behind the write wait as well. Beyond that they are answered
//! THROTTLEDOP.

use super::Shard;
use crate::ids::{ConnId, Millis};
use crate::limits::DELAY_COST_MAX;
use crate::shard::conn::Pending;

/// How the reads before the next transaction delay it.
#[derive(Debug, Default)]
pub(super) struct Delay {
    /// Cost of these reads meanwhile.
    spent: usize,
    /// The connection of these reads, when that is enough.
    too_much: Option<ConnId>,
    /// They are served now.
    is_due: bool,
}

impl Delay {
    /// Whether the connection's reads have delayed its write long enough.
    pub(super) fn is_too_much(&self, conn: ConnId) -> bool {
        self.too_much == Some(conn)
    }

    /// Whether the reads that are served are those before the next transaction: they wait for no turn.
    pub(super) const fn is_due(&self) -> bool {
        self.is_due
    }
}

impl Shard {
    /// A command of a connection is about to be applied: serves the reads in front of it. False when the turn's work is done
    /// before all are.
    #[inline]
    pub(super) fn serve_reads_before(&mut self, now: Millis, id: ConnId) -> bool {
        let first = self.conns.get(id).and_then(|conn| conn.pending.front());
        first.and_then(Pending::ready_at).is_none() || self.serve_before(now, id)
    }

    #[cold]
    fn serve_before(&mut self, now: Millis, id: ConnId) -> bool {
        let Some(mut conn) = self.conns.take(id) else { return true };
        if conn.is_closing() {
            self.conns.put_back(conn);
            return true;
        }
        self.freshness.excuse(&conn);
        if self.delay.spent >= DELAY_COST_MAX {
            self.delay.too_much = Some(id);
        }
        let before = self.turn.spent();
        self.delay.is_due = true;
        let verdict = self.catch_up(now, &mut conn);
        self.delay.is_due = false;
        self.delay.spent += self.turn.spent() - before;
        let is_over = self.turn.is_over();
        let is_ready = conn.pending.front().and_then(Pending::ready_at).is_some();
        let goes_on = is_over && is_ready && verdict.is_ok() && !conn.is_closing();
        self.settle(now, conn, verdict);
        !goes_on
    }
}
