//! Connections that wait because of the writes in flight: see [`proposing`](super::proposing).

use crate::ids::ConnId;
use crate::shard::conn::Conn;
use alloc::collections::VecDeque;
use core::mem;

/// Cost of the costly writes in flight of a shard at which no further one is proposed. Half of the most that one
/// command may cost.
const COSTLY_COST_MAX: u64 = 10_000_000;

/// Connections that are read no further because of the commands in flight.
#[derive(Debug, Default)]
pub(super) struct WriteQueues {
    /// Enough was in flight, whatever came next.
    pub(super) held_back: VecDeque<ConnId>,
    /// Their next request is a costly write that has to wait, oldest first. Each stands here once; some may have ended.
    pub(super) costly: VecDeque<ConnId>,
    /// No write at all is proposed, see [`ShardEvent::HoldWrites`](super::events::ShardEvent::HoldWrites).
    pub(super) held: bool,
}

impl WriteQueues {
    /// Enough is in flight: the connection is read no further.
    pub(super) fn hold_back(&mut self, conn: &mut Conn) {
        if !mem::replace(&mut conn.waits.in_flight, true) {
            self.held_back.push_back(conn.id);
        }
    }

    /// The connection's next write has to wait, and it is read no further.
    pub(super) fn queue(&mut self, conn: &mut Conn) {
        (conn.waits.costly, conn.stalled) = (true, true);
        self.costly.push_back(conn.id);
    }

    /// Whether another costly write has to wait, with this cost in flight.
    pub(super) fn has_to_queue(&self, in_flight: u64) -> bool {
        self.held || in_flight >= COSTLY_COST_MAX || !self.costly.is_empty()
    }

    /// Whether a connection may go on if less than enough is in flight, with this cost.
    pub(super) fn may_go_on(&self, in_flight: u64) -> bool {
        !self.held_back.is_empty() || (!self.costly.is_empty() && !self.held && in_flight < COSTLY_COST_MAX)
    }

    /// No connection is left.
    pub(super) fn clear(&mut self) {
        *self = Self { held: self.held, ..Self::default() };
    }
}
