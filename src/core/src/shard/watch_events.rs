//! Watch events: which of this shard's connections hear of a change, and in which order (protocol chapter 14.3).
//!
//! The events of a transaction are queued before any of its changes reaches the view, so before a client can read the
//! new state. Where they are more than a turn's work, the turn ends between two of them. The view does not change until
//! all are queued. Meanwhile a connection with such an event is not served. No watch is set, because it would miss the
//! change. Plain reads of the others go on; they show the state before the transaction.

use crate::ids::{ConnId, Zxid};
use crate::shard::conn::{Conn, Long, Pending};
use crate::shard::read::{Outline, Watching};
use crate::tree::acl::Acl;
use crate::tree::change::Change;
use crate::tree::view::{NodeRef, View};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use corral_wire::records::{GetDataRequest, RequestHeader};
use corral_wire::{OpCode, Reader};
use hashbrown::HashMap;
use xxhash_rust::xxh3::Xxh3DefaultBuilder;

/// The watch events of a shard that are being told.
#[derive(Debug, Default)]
pub(super) struct WatchEvents {
    /// The transaction that is applied next, if queueing its events takes several turns.
    pub(super) in_progress: Option<Box<EventsInProgress>>,
    /// Counts the transactions with events. The number of the latest stands on the connections that were told of it.
    pub(super) transactions: u32,
    pub(super) event: Event,
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

    /// Whether a request may be served at this zxid although the events of a transaction are being told. It must set
    /// no watch, and its connection must not have been told.
    #[cold]
    pub(super) fn may_see_before(&self, conn: &Conn, frame: &[u8], zxid: Zxid) -> bool {
        let Some(in_progress) = &self.in_progress else { return false };
        conn.told != self.transactions && zxid >= in_progress.seen && is_plain(frame)
    }

    /// Whether the connection's first request waits until the events of a transaction are told.
    pub(super) fn waits(&self, conn: &Conn, zxid: Zxid) -> bool {
        self.in_progress.is_some()
            && !matches!(conn.pending.front(), Some(Pending::Queued { frame, .. }) if self.may_see_before(conn, frame, zxid))
    }

    /// Whether a read under way sets watches, or may end, and waits until the events of a transaction are told. Its
    /// reply shows a state before all of them, or behind. It goes on then.
    pub(super) fn pauses(&mut self, conn: &Conn) -> bool {
        let Some(in_progress) = &mut self.in_progress else { return false };
        let first = conn.pending.front();
        let begun = if let Some(Pending::Long { begun, .. }) = first { begun.as_deref() } else { None };
        let waits = !conn.waits.turn && matches!(begun, Some(Long::Rewatch(_) | Long::Walk(_)));
        if waits {
            in_progress.paused.push(conn.id);
        }
        waits
    }
}

/// A transaction with events that are queued over several turns.
#[derive(Debug)]
pub(super) struct EventsInProgress {
    pub(super) at: Point,
    pub(super) earlier: Earlier,
    /// The state that every client may have seen already: older ones are not shown meanwhile either.
    pub(super) seen: Zxid,
    /// Connections with a long setWatches that goes on afterwards.
    pub(super) paused: Vec<ConnId>,
}

/// The event that is being told.
#[derive(Debug, Default)]
pub(super) struct Event {
    pub(super) bytes: Vec<u8>,
    /// The same bytes, if several connections hear of a long one.
    pub(super) shared: Option<Arc<[u8]>>,
}

/// How far the events of a transaction are told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Point {
    pub(super) change: usize,
    /// Its own watchers have been told, those of the parent come.
    pub(super) parent: bool,
    /// Those of connections in smaller slots have been told.
    pub(super) slot: u32,
}

impl Point {
    pub(super) const fn next_change(self) -> Self {
        Self { change: self.change + 1, parent: false, slot: 0 }
    }
}

/// The ACLs after the earlier changes of a transaction, which have not reached the view.
#[derive(Debug, Default)]
pub(super) struct Earlier {
    pub(super) upto: usize,
    /// The latest change of a path, by the path's hash.
    pub(super) latest: HashMap<u64, usize, Xxh3DefaultBuilder>,
}

impl Earlier {
    /// The ACL of a znode just before a change of the transaction; none when there is no such znode.
    pub(super) fn acl(&mut self, view: &View, changes: &[Change], before: usize, path: &str, hash: u64) -> Option<Acl> {
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
