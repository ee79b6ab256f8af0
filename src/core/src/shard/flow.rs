//! Flow control of writes: how much a shard proposes before some of its proposals have come back.
//!
//! Commands are ordered first come, first served, so a write waits for everything that was proposed before it. A
//! connection may always have writes in flight that cost less than [`FREE_COST_MAX`] together. Writes beyond that are
//! costly: they are proposed only while the shard's costly writes in flight cost less than [`COSTLY_COST_MAX`].
//! Otherwise the connection queues for its turn, and is read no further meanwhile. So the cheap write of another
//! connection has at most that and one command before it, for each shard, however many clients send costly ones.

use super::Shard;
use crate::apply::{Circumstances, cost_at_most};
use crate::command::CommandKind;
use crate::ids::{ConnId, Millis};
use crate::limits::LOOK_UP_COST;
use crate::ops::WriteOp;
use crate::quota::counts;
use crate::shard::conn::Conn;
use alloc::collections::VecDeque;
use core::mem;
use corral_wire::OpCode;

/// Cost of the writes of one connection together, in units of [`crate::cost`], before they are costly: some hundreds of
/// single writes.
const FREE_COST_MAX: u64 = 500_000;

/// So many single writes of a connection are not costly, if none has more than [`COSTLY_BYTES`].
const FREE_SINGLE_MAX: u32 = 32;

/// Below it are the quotas.
const QUOTAS: &str = "/zookeeper/quota";

/// Cost of the costly writes in flight of a shard at which no further one is proposed. Half of the most that one
/// command may cost.
const COSTLY_COST_MAX: u64 = 10_000_000;

/// A write of more bytes may be costly; a multi is not looked at more closely while costly writes have to queue.
const COSTLY_BYTES: usize = 8 << 10;

/// Cost of a byte on its way to the log, in units of [`crate::cost`], for a disk that takes 250 MB a second.
const LOG_BYTE_COST: u64 = 4;

/// A write of more bytes is always costly.
const ALWAYS_COSTLY_BYTES: usize = (FREE_COST_MAX / LOG_BYTE_COST) as usize;

/// Connections that are read no further because of the commands in flight.
#[derive(Debug, Default)]
pub(super) struct WriteQueues {
    /// Enough was in flight, whatever came next.
    held_back: VecDeque<ConnId>,
    /// Their next request is a costly write that has to wait, oldest first. Each stands here once; some may have ended.
    costly: VecDeque<ConnId>,
    /// No write at all is proposed, see [`Shard::hold_writes`].
    held: bool,
}

impl WriteQueues {
    /// Enough is in flight: the connection is read no further.
    pub(super) fn hold_back(&mut self, conn: &mut Conn) {
        if !mem::replace(&mut conn.waits.in_flight, true) {
            self.held_back.push_back(conn.id);
        }
    }

    /// Whether another costly write has to wait, with this cost in flight.
    fn has_to_queue(&self, in_flight: u64) -> bool {
        self.held || in_flight >= COSTLY_COST_MAX || !self.costly.is_empty()
    }

    /// Whether a connection may go on if less than enough is in flight, with this cost.
    fn may_go_on(&self, in_flight: u64) -> bool {
        !self.held_back.is_empty() || (!self.costly.is_empty() && !self.held && in_flight < COSTLY_COST_MAX)
    }

    /// No connection is left.
    pub(super) fn clear(&mut self) {
        *self = Self { held: self.held, ..Self::default() };
    }
}

/// Whether a command changes one znode and counts none.
fn is_single(kind: &CommandKind) -> bool {
    match kind {
        CommandKind::Op(WriteOp::Create(create)) => !counts(&create.path),
        CommandKind::Op(op) => !matches!(op, WriteOp::RemoveRecursive(..)),
        _ => false,
    }
}

impl Shard {
    /// Writes wait unread from now on, until [`Shard::release_writes`].
    pub(super) const fn hold_writes(&mut self) {
        self.writes.held = true;
    }

    pub(super) fn release_writes(&mut self, now: Millis) {
        self.turn.begin();
        self.writes.held = false;
        self.resume_held_back(now);
    }

    /// Whether the connection is queued for its next write, which is not decoded yet.
    #[inline]
    pub(super) fn queues_unseen(&mut self, conn: &mut Conn, op: OpCode, bytes: usize) -> bool {
        let may_cost = if op == OpCode::Multi { COSTLY_BYTES } else { ALWAYS_COSTLY_BYTES };
        let queues = self.writes.held || bytes > may_cost && self.writes.has_to_queue(self.in_flight.cost());
        if queues {
            self.queue(conn);
        }
        queues
    }

    fn queue(&mut self, conn: &mut Conn) {
        (conn.waits.costly, conn.stalled) = (true, true);
        self.writes.costly.push_back(conn.id);
    }

    /// The cost of the connection's next write, of so many bytes, among the costly ones; 0 if the write is not costly. `None` if the
    /// write has to wait: the connection is queued.
    #[inline]
    pub(super) fn admit_write(&mut self, conn: &mut Conn, kind: &CommandKind, bytes: usize) -> Option<u64> {
        let is_free = conn.pending.proposed() < FREE_SINGLE_MAX && bytes <= COSTLY_BYTES && is_single(kind);
        if is_free { Some(0) } else { self.admit_by_cost(conn, kind, bytes) }
    }

    fn admit_by_cost(&mut self, conn: &mut Conn, kind: &CommandKind, bytes: usize) -> Option<u64> {
        let cost = self.cost_of(conn, kind) + LOG_BYTE_COST * bytes as u64;
        if cost.saturating_mul(u64::from(conn.pending.proposed()) + 1) <= FREE_COST_MAX {
            return Some(0);
        }
        if self.writes.has_to_queue(self.in_flight.cost()) {
            self.queue(conn);
            return None;
        }
        Some(cost)
    }

    fn cost_of(&self, conn: &Conn, kind: &CommandKind) -> u64 {
        let mut at = Circumstances { identities: conn.identities.len(), ..Circumstances::default() };
        if matches!(kind, CommandKind::Multi(_) | CommandKind::CloseSession) {
            at.quotas = self.view.get(QUOTAS).is_some_and(|quotas| quotas.stat().num_children > 0);
        }
        if let (CommandKind::CloseSession, Some(list)) = (kind, self.sessions.ephemerals(conn.session.id())) {
            (at.ephemerals, at.ephemerals_bytes) = (list.len(), list.bytes());
        }
        cost_at_most(kind, at)
    }

    /// Whether a connection that waited for commands in flight may be read on.
    pub(super) fn may_resume(&self) -> bool {
        self.writes.may_go_on(self.in_flight.cost()) && !self.in_flight.is_full(&self.config.limits)
    }

    /// Resumes connections that waited for commands in flight, because one was answered or lost. The longest wait comes
    /// first, until enough is in flight again or the turn's work is done. [`Shard::walk_on`] does the rest.
    #[inline]
    pub(super) fn resume_held_back(&mut self, now: Millis) {
        if self.may_resume() {
            self.resume_some(now);
        }
    }

    #[inline(never)]
    fn resume_some(&mut self, now: Millis) {
        while !self.turn.is_over()
            && !self.in_flight.is_full(&self.config.limits)
            && let Some(id) = self.writes.held_back.pop_front()
        {
            self.turn.spend(LOOK_UP_COST);
            if let Some(conn) = self.conns.get_mut(id) {
                conn.waits.in_flight = false;
                self.resume_by_id(now, id);
            }
        }
        if !self.writes.costly.is_empty() {
            self.resume_costly(now);
        }
    }

    /// As [`Shard::resume_held_back`], for those alone that are queued with a costly write.
    pub(super) fn resume_queued(&mut self, now: Millis) {
        if !self.writes.costly.is_empty() && !self.in_flight.is_full(&self.config.limits) {
            self.resume_costly(now);
        }
    }

    fn resume_costly(&mut self, now: Millis) {
        // Connections that are queued again come behind connections that have waited longer.
        let mut queue = mem::take(&mut self.writes.costly);
        while !self.turn.is_over()
            && !self.writes.has_to_queue(self.in_flight.cost())
            && let Some(id) = queue.pop_front()
        {
            self.turn.spend(LOOK_UP_COST);
            if let Some(conn) = self.conns.get_mut(id) {
                conn.waits.costly = false;
                self.resume_by_id(now, id);
            }
        }
        let newer = mem::replace(&mut self.writes.costly, queue);
        self.writes.costly.extend(newer);
    }
}
