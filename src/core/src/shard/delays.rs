//! Reads, and syncs, that a connection sent before a write. If they are not all served when the write is about to be
//! applied, because the turn's work was done before, it waits for them. They are served a turn's worth at a time.
//!
//! Their cost by then is limited, because all commands behind the write wait as well. Beyond that they are answered
//! THROTTLEDOP.

use crate::ids::ConnId;
use crate::limits::DELAY_COST_MAX;

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
    /// The connection's reads before its write are served from now on, until [`Delay::end`].
    pub(super) fn begin(&mut self, conn: ConnId) {
        if self.spent >= DELAY_COST_MAX {
            self.too_much = Some(conn);
        }
        self.is_due = true;
    }

    /// Serving has cost this much.
    pub(super) const fn end(&mut self, spent: usize) {
        self.is_due = false;
        self.spent += spent;
    }

    /// Whether the connection's reads have delayed its write long enough.
    pub(super) fn is_too_much(&self, conn: ConnId) -> bool {
        self.too_much == Some(conn)
    }

    /// Whether the reads that are served are those before the next transaction: they wait for no turn.
    pub(super) const fn is_due(&self) -> bool {
        self.is_due
    }
}
