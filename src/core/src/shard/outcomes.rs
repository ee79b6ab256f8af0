//! Effects of committed transactions on this shard's connections: answers, reads that waited for them, and sessions
//! that moved or ended.

use super::delays::Delay;
use super::{Garbage, Served, Shard};
use crate::apply::outcome::{AppliedBatch, AppliedTxn, Outcome, SessionChange};
use crate::ids::{ConnId, Millis, Origin, ShardId, Zxid};
use crate::limits::{LOOK_UP_COST, REQUEST_COST};
use crate::ops::OpResult;
use crate::shard::audit;
use crate::shard::conn::{Close, Conn, Pending, Phase};
use crate::shard::counters::Answered;
use crate::shard::reply;
use crate::tree::acl::Identity;
use crate::tree::delta::Delta;
use crate::tree::snapshot::Snapshot;
use crate::tree::view::WARM_MAX;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use corral_wire::records::ReplyHeader;
use corral_wire::{ErrorCode, OpCode};

impl Shard {
    /// The state machine froze its delta at this shard's zxid; the shard uses the shared one from now on.
    pub(super) fn adopt_frozen(&mut self, frozen: Arc<Delta>) {
        let own = self.view.adopt_frozen(frozen);
        self.effects.garbage.push(Garbage::Delta(own));
    }

    /// The frozen delta is part of the new snapshot.
    pub(super) fn swap_snapshot(&mut self, snapshot: Arc<Snapshot>) {
        let (old, frozen) = self.view.swap_snapshot(snapshot);
        self.effects.garbage.push(Garbage::Snapshot(old));
        self.effects.garbage.extend(frozen.map(Garbage::Frozen));
    }

    /// A committed batch: the only thing that moves the view. Transaction by transaction: events, then the new state,
    /// then the answers and the reads that waited for it. Writers are sent to before connections that only watched: no
    /// writer waits until thousands of events are queued.
    ///
    /// Applies it from one of its transactions on, until the turn's work is done. Returns the next transaction, which
    /// is the same one while its events, for example, are not all done. Until all are applied no other batch may come,
    /// and nothing that depends on the batch's last zxid.
    pub(super) fn apply_some(&mut self, now: Millis, batch: &AppliedBatch, from: usize) -> usize {
        self.turn.begin();
        let mut next = batch.txns.len();
        let mut answered = self.effects.dirty.len();
        for (at, txn) in batch.txns.iter().enumerate().skip(from) {
            if self.turn.is_over() {
                next = at;
                break;
            }
            let goes_on = self.events.is_in_progress();
            if !goes_on && self.may_serve_behind() {
                // Before the next events, which they would have to wait for.
                self.serve_those_behind(now);
                if self.may_serve_behind() {
                    next = at;
                    break;
                }
            }
            if (at - from).is_multiple_of(WARM_MAX) && !goes_on {
                let changes = batch.txns[at..].iter().take(WARM_MAX).flat_map(|txn| &txn.changes);
                self.view.warm(changes.map(|change| change.at().hash));
            }
            if let Some(origin) = txn.origin.filter(|origin| !goes_on && self.is_mine(*origin))
                && !self.serve_reads_before(now, origin.conn)
            {
                next = at;
                break;
            }
            let is_kept = self.lists.is_empty() || self.preserve(txn);
            if !is_kept || !self.tell_events(now, txn) {
                next = at;
                break;
            }
            self.turn.spend(REQUEST_COST * (1 + txn.changes.len()));
            for change in &txn.changes {
                self.sessions.note_change(&self.view, change);
                self.view.apply(txn.zxid, change);
            }
            self.view.set_zxid(txn.zxid);
            self.delay = Delay::default();
            self.lists.applied();
            if self.config.audit && self.config.shard == ShardId(0) {
                self.effects.audited.extend(audit::ephemerals_deleted(txn));
            }
            if let Some(change) = txn.session {
                self.session_changed(now, change, txn.origin);
            }
            if let Some(origin) = txn.origin.filter(|origin| self.is_mine(*origin))
                && !self.ends_underway(now, origin.conn, txn)
                && self.came_back(origin.conn, &txn.outcome)
            {
                let told = self.effects.dirty.len();
                self.answer(now, origin.conn, txn);
                if self.effects.dirty.get(told) == Some(&origin.conn) {
                    self.effects.dirty.swap(answered, told);
                    answered += 1;
                }
            }
            self.serve_those_behind(now);
        }
        self.resume_held_back(now);
        self.close_if_drained(now);
        next
    }

    /// Whether the transaction is the end of an operation that an earlier command began.
    fn ends_underway(&mut self, now: Millis, conn: ConnId, txn: &AppliedTxn) -> bool {
        let Outcome::Later(outcome) = &txn.outcome else { return false };
        self.in_flight.end_underway(conn, outcome, &mut self.effects.audited);
        self.answer_later(now, conn, txn.zxid, outcome);
        true
    }

    pub(super) fn answer(&mut self, now: Millis, id: ConnId, txn: &AppliedTxn) {
        let Some(mut conn) = self.conns.take(id) else { return };
        if conn.is_closing() {
            // It hears of no more events, so it must not see any more state either.
            return self.conns.put_back(conn);
        }
        let verdict = self
            .answer_first(now, &mut conn, txn)
            .and_then(|()| self.catch_up(now, &mut conn))
            .and_then(|()| self.resume(now, &mut conn));
        self.settle(now, conn, verdict);
    }

    /// The oldest unanswered request of the connection is the one this transaction belongs to: both are in order.
    pub(super) fn answer_first(&mut self, now: Millis, conn: &mut Conn, txn: &AppliedTxn) -> Served {
        conn.pending.note_back();
        match conn.pending.pop() {
            Some(Pending::Write { xid, op, at }) => {
                if matches!(txn.outcome, Outcome::Op(OpResult::Error(ErrorCode::SessionMoved))) || moved(&txn.outcome) {
                    return Err(Close::SessionMoved);
                }
                if op == OpCode::Reconfig {
                    if matches!(txn.outcome, Outcome::Underway(_)) {
                        conn.pending.push_front(Pending::Underway { xid, op, at });
                        return Ok(());
                    }
                    conn.blocked = false;
                }
                let begins = conn.unsent();
                reply::outcome(conn.output.buffer(&mut self.buffers), xid, txn.zxid, &txn.outcome);
                let bytes = conn.unsent() - begins;
                self.count_reply(conn, now, Answered { op: Some(op), xid, at, update: true }, bytes);
                if !self.effects.slow.is_empty()
                    && let Some(change) = txn.changes.first()
                {
                    self.effects.slow.name(conn.session.id(), xid, &change.at().path);
                }
                if op == OpCode::CloseSession { Err(Close::Done) } else { Ok(()) }
            }
            Some(Pending::Connect { at }) => {
                self.count_reply(conn, now, Answered { op: Some(OpCode::CreateSession), xid: 0, at, update: true }, 0);
                self.connected(conn, &txn.outcome)
            }
            other => unreachable!("a command of this connection came back, but {other:?} waits first"),
        }
    }

    /// Answers an operation under way, which has ended in a later transaction than its own.
    pub(super) fn answer_later(&mut self, now: Millis, id: ConnId, zxid: Zxid, outcome: &Outcome) {
        let Some(mut conn) = self.conns.take(id) else { return };
        let Some(Pending::Underway { xid, op, at }) = conn.pending.front().filter(|_| !conn.is_closing()) else {
            return self.conns.put_back(conn);
        };
        let (xid, op, at) = (*xid, *op, *at);
        conn.pending.pop();
        conn.blocked = false;
        let begins = conn.unsent();
        reply::outcome(conn.output.buffer(&mut self.buffers), xid, zxid, outcome);
        let bytes = conn.unsent() - begins;
        self.count_reply(&mut conn, now, Answered { op: Some(op), xid, at, update: true }, bytes);
        let verdict = self.catch_up(now, &mut conn).and_then(|()| self.resume(now, &mut conn));
        self.settle(now, conn, verdict);
    }

    /// A sync has come back from the leader, behind every batch it stands for.
    pub(super) fn synced(&mut self, now: Millis, id: ConnId) {
        let Some(mut conn) = self.conns.take(id) else { return };
        if conn.is_closing() {
            return self.conns.put_back(conn);
        }
        let last = self.freshness.pass(id);
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

    pub(super) fn connected(&mut self, conn: &mut Conn, outcome: &Outcome) -> Served {
        match outcome {
            Outcome::SessionCreated { session, timeout_ms, password }
            | Outcome::SessionAttached { session, timeout_ms, password, .. } => {
                let ephemerals =
                    if let Outcome::SessionAttached { ephemerals, .. } = outcome { Some(ephemerals) } else { None };
                conn.phase = Phase::Live;
                conn.session.attach(*session, *timeout_ms);
                self.sessions.bind(*session, conn.id, ephemerals);
                let read_only = conn.session.response_byte();
                reply::connected(conn.output.buffer(&mut self.buffers), session.0, *timeout_ms, password, read_only);
                Ok(())
            }
            _ => {
                reply::connected(conn.output.buffer(&mut self.buffers), 0, 0, &[0; 16], conn.session.response_byte());
                Err(Close::SessionRefused)
            }
        }
    }

    /// Serves requests that waited for the requests before them, as far as none waits for its own reason. A client with
    /// enough to read gets the rest later, unless writes are behind it: a read must not see a later write. When the
    /// turn's work is done the rest is served in the next ones, before a write behind it: see `delays`.
    pub(super) fn catch_up(&mut self, now: Millis, conn: &mut Conn) -> Served {
        while let Some(floor) = conn.pending.front().and_then(Pending::ready_at)
            && (conn.pending.proposed() > 0 || conn.unsent() < self.config.limits.reply_buffer_bytes_soft_max)
            && !conn.is_closing()
        {
            // With writes behind them they must see the state before these.
            if (conn.pending.proposed() == 0 && conn.waits.memory) || (conn.waits.turn && !self.delay.is_due()) {
                return Ok(());
            }
            if self.freshness.is_blocked(conn) {
                return Ok(());
            }
            if self.turn.is_over() {
                self.go_on_later(conn);
                return Ok(());
            }
            let waits_for_events = self.waits_for_events(conn);
            if floor > self.view.zxid() || waits_for_events {
                // Events are told before the next state.
                let from = if waits_for_events { Zxid(self.view.zxid().0 + 1) } else { floor };
                self.freshness.wait(conn, from);
                return Ok(());
            }
            match conn.pending.pop() {
                Some(Pending::Queued { frame, at, .. }) => {
                    self.serve(now, conn, &frame, at)?;
                }
                Some(Pending::Long { xid, op, record, at, .. }) => self.begin_long(now, conn, xid, op, record, at),
                Some(Pending::Sync { xid, path, at, .. }) => {
                    let (zxid, begins) = (self.view.zxid().wire(), conn.unsent());
                    reply::frame(conn.output.buffer(&mut self.buffers), |writer| {
                        ReplyHeader::ok(xid, zxid).encode(writer);
                        writer.buffer(path.as_deref());
                    });
                    let bytes = conn.unsent() - begins;
                    self.count_reply(conn, now, Answered { op: Some(OpCode::Sync), xid, at, update: false }, bytes);
                }
                other => unreachable!("{other:?} was in front"),
            }
        }
        Ok(())
    }

    /// The session has no connection here any more, if it was this one's.
    pub(super) fn unbind(&mut self, conn: &Conn) {
        self.effects.garbage.extend(self.sessions.unbind(conn).map(Garbage::Ephemerals));
    }

    /// Whether a read that waited for the view may be served.
    pub(super) fn may_serve_behind(&self) -> bool {
        self.freshness.may_serve(self.view.zxid())
    }

    /// Serves connections with reads that waited for the view to move, until the turn's work is done. Then
    /// [`Shard::walk_on`] goes on: a later state serves as well.
    pub(super) fn serve_those_behind(&mut self, now: Millis) {
        while !self.turn.is_over()
            && let Some(id) = self.freshness.next(self.view.zxid())
        {
            self.turn.spend(LOOK_UP_COST);
            let Some(mut conn) = self.conns.take(id) else { continue };
            conn.waits.view = false;
            let verdict = self.catch_up(now, &mut conn).and_then(|()| self.resume(now, &mut conn));
            self.settle(now, conn, verdict);
        }
    }

    pub(super) fn session_changed(&mut self, now: Millis, change: SessionChange, origin: Option<Origin>) {
        let asker = origin.filter(|origin| self.is_mine(*origin)).map(|origin| origin.conn);
        let (session, why) = match change {
            SessionChange::Created(_) => {
                self.sessions.created();
                return;
            }
            SessionChange::Attached(session) => (session, Close::SessionMoved),
            SessionChange::Closed(session) => {
                self.sessions.ended();
                self.statistics.sessions_expired += u64::from(origin.is_none());
                (session, Close::SessionExpired)
            }
        };
        let bound = self.sessions.conn(session).filter(|conn| Some(*conn) != asker);
        if let Some(conn) = bound.and_then(|conn| self.conns.take(conn)) {
            self.end_now(now, conn, why);
        }
    }

    /// Ends a connection, and removes it from its session. Bytes queued for it may still be sent.
    pub(super) fn end_now(&mut self, now: Millis, conn: Box<Conn>, why: Close) {
        self.unbind(&conn);
        self.settle(now, conn, Err(why));
    }

    pub(super) fn identities(&self, id: ConnId) -> Option<&Arc<Vec<Identity>>> {
        self.conns.get(id).map(|conn| &conn.identities)
    }
}

fn moved(outcome: &Outcome) -> bool {
    let is_moved = |result: &OpResult| *result == OpResult::Error(ErrorCode::SessionMoved);
    matches!(outcome, Outcome::Multi(results) if results.iter().any(is_moved))
}
