//! Flow control of writes: how much a shard proposes before some of what it proposed has come back.
//!
//! Commands are ordered first come, first served, so a write waits for everything that was proposed before it. A connection
//! may always have writes in flight that cost less than [`FREE_COST_MAX`] together. What goes beyond that is costly: it is
//! proposed only while the shard's costly writes in flight cost less than [`COSTLY_COST_MAX`]. Otherwise the connection queues
//! for its turn, and is read no further meanwhile. So the cheap write of another connection has at most that and one command
//! before it, for each shard, however many clients send costly ones.

use super::{Outputs, Shard};
use crate::command::{CommandKind, WriteOp};
use crate::conn::Conn;
use crate::evaluate::{Circumstances, cost_at_most, counts};
use crate::ids::{ConnId, Millis};
use alloc::collections::VecDeque;
use core::mem;
use corral_wire::OpCode;

/// What the writes of one connection may cost together, in units of [`crate::cost`], before they are costly: some hundreds of
/// single ones.
const FREE_COST_MAX: u64 = 500_000;

/// So many single writes of a connection are not costly, whatever they are.
const FREE_SINGLE_MAX: u32 = 32;

/// Below it are the quotas.
const QUOTAS: &str = "/zookeeper/quota";

/// What the costly writes of a shard that are in flight cost together when no further one is proposed. Half of what one command
/// may cost.
const COSTLY_COST_MAX: u64 = 10_000_000;

/// A multi of more bytes may be costly, and is not looked at more closely while costly writes have to queue.
const COSTLY_BYTES: usize = 8 << 10;

/// What a proposed command counts for until it comes back.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    /// Bytes.
    pub(super) weight: usize,
    /// The size of its frame if that is a large one.
    pub(super) large: usize,
    /// What it may cost if it is costly, or 0.
    pub(super) cost: u64,
    pub(super) conn: ConnId,
}

/// The costly writes of a shard.
#[derive(Debug, Default)]
pub(super) struct Costly {
    /// What those in flight may cost together.
    pub(super) in_flight: u64,
    /// Connections whose next request is a costly write that has to wait, oldest first. Each stands here once; some may have
    /// ended.
    queue: VecDeque<ConnId>,
}

impl Costly {
    fn has_to_queue(&self) -> bool {
        self.in_flight >= COSTLY_COST_MAX || !self.queue.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Whether a command changes one znode and counts none.
fn is_single(kind: &CommandKind) -> bool {
    match kind {
        CommandKind::Op(WriteOp::Create { path, .. }) => !counts(path),
        CommandKind::Op(op) => !matches!(op, WriteOp::RemoveRecursive { .. }),
        _ => false,
    }
}

impl Shard {
    /// Whether this shard proposes no more before some of what it proposed has come back.
    pub(super) fn has_enough_in_flight(&self) -> bool {
        let limits = &self.config.limits;
        self.in_flight_bytes >= limits.inflight_bytes_per_shard_max
            || self.in_flight.len() >= limits.requests_in_flight_max
    }

    /// Whether the connection is queued for its next write, which is not decoded yet.
    #[inline]
    pub(super) fn queues_unseen(&mut self, conn: &mut Conn, op: OpCode, bytes: usize) -> bool {
        let queues = op == OpCode::Multi && bytes > COSTLY_BYTES && self.costly.has_to_queue();
        if queues {
            self.queue(conn);
        }
        queues
    }

    fn queue(&mut self, conn: &mut Conn) {
        (conn.queued, conn.stalled) = (true, true);
        self.costly.queue.push_back(conn.id);
    }

    /// What the connection's next write counts for among the costly ones, 0 if it is not costly. None if it has to wait: then the
    /// connection is queued.
    #[inline]
    pub(super) fn admit_write(&mut self, conn: &mut Conn, kind: &CommandKind) -> Option<u64> {
        if conn.proposed < FREE_SINGLE_MAX && is_single(kind) { Some(0) } else { self.admit_by_cost(conn, kind) }
    }

    fn admit_by_cost(&mut self, conn: &mut Conn, kind: &CommandKind) -> Option<u64> {
        let cost = self.cost_of(conn, kind);
        if cost.saturating_mul(u64::from(conn.proposed) + 1) <= FREE_COST_MAX {
            return Some(0);
        }
        if self.costly.has_to_queue() {
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
        if let (CommandKind::CloseSession, Some(list)) = (kind, self.ephemerals.get(&conn.session)) {
            (at.ephemerals, at.ephemerals_bytes) = (list.len(), list.bytes());
        }
        cost_at_most(kind, at)
    }

    /// Something has come back, or never will: connections that waited for it are read on.
    #[inline]
    pub(super) fn resume_held_back(&mut self, now: Millis, out: &mut Outputs) {
        if self.has_enough_in_flight() {
            return;
        }
        for id in mem::take(&mut self.held_back) {
            self.resume_by_id(now, id, out);
        }
        if !self.costly.queue.is_empty() {
            self.resume_costly(now, out);
        }
    }

    fn resume_costly(&mut self, now: Millis, out: &mut Outputs) {
        // Those that are queued again stand behind those that have waited longer.
        let mut queue = mem::take(&mut self.costly.queue);
        while !self.costly.has_to_queue()
            && let Some(id) = queue.pop_front()
        {
            if let Some(conn) = self.conns.get_mut(id) {
                conn.queued = false;
                self.resume_by_id(now, id, out);
            }
        }
        let newer = mem::replace(&mut self.costly.queue, queue);
        self.costly.queue.extend(newer);
    }
}
