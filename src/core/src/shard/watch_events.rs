//! Watch events: which of this shard's connections hear of a change, and in which order (protocol chapter 14.3).
//!
//! The events of a transaction are queued before any of its changes reaches the view, so before a client can read the
//! new state. Where they are more than a turn's work, the turn ends between two of them. The view does not change until
//! all are queued. Meanwhile a connection with such an event is not served. No watch is set, because it would miss the
//! change. Plain reads of the others go on; they show the state before the transaction.

use super::Shard;
use crate::apply::outcome::AppliedTxn;
use crate::ids::{ConnId, Millis, Zxid};
use crate::limits::{
    ACL_ENTRY_COST, ACL_IDENTITY_COST, BYTES_PER_COST, EVENT_COST, WATCH_LOOK_COST, WATCHED_COST, WATCHERS_PIECE,
};
use crate::shard::conn::{Close, Conn, Long, Pending, SHARED_BYTES};
use crate::shard::read::{Outline, Watching};
use crate::shard::reply;
use crate::shard::watch::{Kind, Watchers};
use crate::tree::acl::{Acl, READ};
use crate::tree::change::Change;
use crate::tree::view::{NodeRef, View};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use corral_wire::consts::EventType;
use corral_wire::records::{GetDataRequest, RequestHeader};
use corral_wire::{OpCode, Reader};
use hashbrown::HashMap;
use xxhash_rust::xxh3::Xxh3DefaultBuilder;

/// The watch events of a shard that are being told.
#[derive(Debug, Default)]
pub(super) struct WatchEvents {
    /// The transaction that is applied next, if queueing its events takes several turns.
    in_progress: Option<Box<EventsInProgress>>,
    /// Counts the transactions with events. The number of the latest stands on the connections that were told of it.
    transactions: u32,
    event: Event,
}

impl WatchEvents {
    /// Whether a transaction waits until its events are told.
    #[inline]
    pub(super) const fn is_in_progress(&self) -> bool {
        self.in_progress.is_some()
    }

    /// A client may have seen this state.
    pub(super) fn observe(&mut self, zxid: Zxid) {
        if let Some(in_progress) = &mut self.in_progress {
            in_progress.seen = in_progress.seen.max(zxid);
        }
    }

    /// The state was replaced: nothing is told any more.
    pub(super) fn clear(&mut self) {
        self.in_progress = None;
    }
}

/// A transaction with events that are queued over several turns.
#[derive(Debug)]
struct EventsInProgress {
    at: Point,
    earlier: Earlier,
    /// The state that every client may have seen already: older ones are not shown meanwhile either.
    seen: Zxid,
    /// Connections with a long setWatches that goes on afterwards.
    paused: Vec<ConnId>,
}

/// The event that is being told.
#[derive(Debug, Default)]
struct Event {
    bytes: Vec<u8>,
    /// The same bytes, if several connections hear of a long one.
    shared: Option<Arc<[u8]>>,
}

/// How far the events of a transaction are told.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    change: usize,
    /// Its own watchers have been told, those of the parent come.
    parent: bool,
    /// Those of connections in smaller slots have been told.
    slot: u32,
}

impl Point {
    const fn next_change(self) -> Self {
        Self { change: self.change + 1, parent: false, slot: 0 }
    }
}

/// The ACLs after the earlier changes of a transaction, which have not reached the view.
#[derive(Debug, Default)]
struct Earlier {
    upto: usize,
    /// The latest change of a path, by the path's hash.
    latest: HashMap<u64, usize, Xxh3DefaultBuilder>,
}

impl Earlier {
    /// The ACL of a znode just before a change of the transaction; none when there is no such znode.
    fn acl(&mut self, view: &View, changes: &[Change], before: usize, path: &str, hash: u64) -> Option<Acl> {
        while self.upto < before {
            self.latest.insert(changes[self.upto].at().hash, self.upto);
            self.upto += 1;
        }
        let same = |at: &usize| &*changes[*at].at().path == path;
        let latest = self.latest.get(&hash).copied();
        let latest = latest.and_then(|at| if same(&at) { Some(at) } else { (0..before).rev().find(same) });
        match latest.map(|at| &changes[at]) {
            None => view.get_hashed(path, hash).map(|node| NodeRef::to_acl(&node)),
            Some(Change::Deleted { .. }) => None,
            Some(Change::Created { node, .. } | Change::DataSet { node, .. } | Change::Quiet { node, .. }) => {
                Some(node.acl.clone())
            }
        }
    }
}

impl Shard {
    /// Queues the events of a transaction that is about to reach the view, from where the last call ended. False when
    /// the turn's work is done before all are told.
    pub(super) fn tell_events(&mut self, now: Millis, txn: &AppliedTxn) -> bool {
        let (mut at, mut earlier) = match &mut self.events.in_progress {
            Some(in_progress) => (in_progress.at, mem::take(&mut in_progress.earlier)),
            None if self.watches.is_empty() => return true,
            None => {
                self.events.transactions = self.events.transactions.wrapping_add(1);
                Default::default()
            }
        };
        while at.change < txn.changes.len() {
            if self.turn.is_over() {
                self.queue_later(txn.zxid, at, earlier);
                return false;
            }
            at = self.notify(now, txn, at, &mut earlier);
        }
        if let Some(in_progress) = self.events.in_progress.take() {
            self.walking.extend(in_progress.paused);
        }
        true
    }

    #[cold]
    fn queue_later(&mut self, zxid: Zxid, at: Point, earlier: Earlier) {
        match &mut self.events.in_progress {
            Some(in_progress) => (in_progress.at, in_progress.earlier) = (at, earlier),
            None => {
                self.events.in_progress =
                    Some(Box::new(EventsInProgress { at, earlier, seen: self.freshness.gate(), paused: Vec::new() }))
            }
        }
        self.freshness.observe(zxid);
    }

    /// Whether a request may be served although the events of a transaction are being told. It must set no watch, and
    /// its connection must not have been told.
    #[cold]
    pub(super) fn may_see_before(&self, conn: &Conn, frame: &[u8]) -> bool {
        let Some(in_progress) = &self.events.in_progress else { return false };
        conn.told != self.events.transactions && self.view.zxid() >= in_progress.seen && is_plain(frame)
    }

    /// Whether the connection's first request waits until the events of a transaction are told.
    pub(super) fn waits_for_events(&self, conn: &Conn) -> bool {
        self.events.in_progress.is_some()
            && !matches!(conn.pending.front(), Some(Pending::Queued { frame, .. }) if self.may_see_before(conn, frame))
    }

    /// Whether a read under way sets watches, or may end, and waits until the events of a transaction are told. Its
    /// reply shows a state before all of them, or behind. It goes on then.
    pub(super) fn pauses(&mut self, conn: &Conn) -> bool {
        let Some(in_progress) = &mut self.events.in_progress else { return false };
        let first = conn.pending.front();
        let begun = if let Some(Pending::Long { begun, .. }) = first { begun.as_deref() } else { None };
        let waits = !conn.waits.turn && matches!(begun, Some(Long::Rewatch(_) | Long::Walk(_)));
        if waits {
            in_progress.paused.push(conn.id);
        }
        waits
    }

    /// Queues the events of a change for some of its watchers. Returns the next point.
    fn notify(&mut self, now: Millis, txn: &AppliedTxn, point: Point, earlier: &mut Earlier) -> Point {
        let change = &txn.changes[point.change];
        let at = change.at();
        let (kind, event, path, hash) = match change {
            Change::Quiet { .. } => return point.next_change(),
            _ if point.parent => (Kind::Child, EventType::NodeChildrenChanged, at.parent(), at.parent_hash),
            Change::Created { .. } => (Kind::Data, EventType::NodeCreated, &*at.path, at.hash),
            Change::Deleted { .. } => (Kind::Both, EventType::NodeDeleted, &*at.path, at.hash),
            Change::DataSet { .. } => (Kind::Data, EventType::NodeDataChanged, &*at.path, at.hash),
        };
        let (mut told, hasher) = (Vec::new(), self.view.hasher());
        let some = Watchers { from: point.slot, max: self.watchers_piece(path) };
        let fired = self.watches.fire_some(kind, path, hash, hasher, some, &mut told);
        self.turn.spend(WATCHED_COST + fired.looked * WATCH_LOOK_COST);
        if self.watches.has_recursive() {
            self.turn.spend(path.len());
        }
        if !told.is_empty() {
            let acl = match change {
                Change::Created { node, .. } | Change::DataSet { node, .. } if !point.parent => Some(node.acl.clone()),
                _ => earlier.acl(&self.view, &txn.changes, point.change, path, hash),
            };
            self.tell(now, txn.zxid, event, path, &acl.unwrap_or(Acl::Open), told);
        }
        match fired.next {
            Some(slot) => Point { slot, ..point },
            None if point.parent || matches!(change, Change::DataSet { .. }) => point.next_change(),
            None => Point { parent: true, slot: 0, ..point },
        }
    }

    /// How many are told of an event of that path before the work of the turn is looked at.
    fn watchers_piece(&self, path: &str) -> usize {
        let each = EVENT_COST + path.len() / BYTES_PER_COST;
        (self.config.limits.turn_cost_max / each).clamp(1, WATCHERS_PIECE)
    }

    #[allow(clippy::too_many_arguments, reason = "one event, spelled out")]
    fn tell(&mut self, now: Millis, zxid: Zxid, kind: EventType, path: &str, acl: &Acl, told: Vec<ConnId>) {
        self.events.event.bytes.clear();
        reply::event(&mut self.events.event.bytes, zxid.wire(), kind, path);
        self.events.event.shared = None;
        if told.len() > 1 && self.events.event.bytes.len() >= SHARED_BYTES {
            self.events.event.shared = Some(Arc::from(&*self.events.event.bytes));
        }
        for id in told {
            if self.may_read(id, acl) {
                self.deliver(now, id);
            }
        }
    }

    /// Appends an event to a connection's output. A connection that does not read, so that events accumulate, is ended.
    fn deliver(&mut self, now: Millis, id: ConnId) {
        let Some(mut conn) = self.conns.take(id) else { return };
        let limits = &self.config.limits;
        let list = if self.lists.is_empty() { None } else { conn.list_under_way() };
        let waiting = list.as_ref().map_or(0, |list| list.held.len()) + conn.unsent();
        let too_much = waiting > limits.reply_buffer_bytes_hard_max.saturating_add(conn.output.allowance());
        if too_much || self.memory.is_exhausted_for(waiting) {
            return self.end(&conn, Close::SlowReader);
        }
        self.turn.spend(EVENT_COST);
        conn.told = self.events.transactions;
        if !conn.is_closing() {
            let event = &self.events.event.bytes;
            let list = conn.list_under_way().filter(|_| !self.lists.is_empty());
            match (list, &self.events.event.shared) {
                (None, Some(shared)) => conn.output.append_shared(shared),
                (Some(list), _) => {
                    self.turn.spend(event.len() / BYTES_PER_COST);
                    list.held.extend_from_slice(event);
                }
                (None, None) => {
                    self.turn.spend(event.len() / BYTES_PER_COST);
                    conn.output.buffer(&mut self.buffers).extend_from_slice(event);
                }
            }
            conn.counters.sent += 1;
            self.statistics.sent += 1;
        }
        self.settle(now, conn, Ok(()));
    }

    fn may_read(&mut self, id: ConnId, acl: &Acl) -> bool {
        let list = match acl {
            Acl::List(list) if !self.config.skip_acl => list,
            _ => return true,
        };
        let Some(identities) = self.identities(id) else { return false };
        let check = ACL_ENTRY_COST * list.len() + ACL_IDENTITY_COST * identities.len();
        let grants = list.grants(READ, identities);
        // Whether or not there is an event to deliver.
        self.turn.spend(EVENT_COST + check);
        grants
    }
}

/// Whether a request shows the state and sets no watch.
fn is_plain(frame: &[u8]) -> bool {
    let mut reader = Reader::new(frame);
    let Ok(header) = RequestHeader::decode(&mut reader) else { return false };
    let Some(op) = OpCode::from_i32(header.op) else { return false };
    match Outline::of(op).watching {
        Watching::No => true,
        Watching::IfAsked => GetDataRequest::decode(&mut reader).is_ok_and(|request| !request.watch),
        Watching::Maybe => false,
    }
}
