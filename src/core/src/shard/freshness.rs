//! How new a state each read must show. It is the newest state that a client of this server may have seen, and, where
//! reads are linearizable, the state that the leader names.
//!
//! A barrier is a sync without a request. Reads that come together share one, and those of a turn travel together, so that they are one
//! question to the leader. Without linearizable reads no barrier is kept.

use crate::ids::{ConnId, Zxid};
use crate::shard::conn::{Conn, Pending};
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::mem;
use corral_wire::OpCode;
use hashbrown::HashMap;
use xxhash_rust::xxh3::Xxh3DefaultBuilder;

/// The barriers of one connection, counted.
#[derive(Clone, Copy, Debug, Default)]
struct Barriers {
    asked: u64,
    /// Answers received. An answer that overtakes an older one replaces it, because it is of a later state.
    passed: u64,
    /// Up to that one no answer is needed.
    excused: u64,
}

/// The least state that each read must show, and the connections that wait for it.
pub(super) struct Freshness {
    linearizable: bool,
    /// The newest state that any client of this server may have seen: no read shows an older one.
    floor: Zxid,
    /// A read that comes while the view is at this zxid may be served at once. It is the floor, or out of reach if
    /// reads wait for a barrier.
    gate: Zxid,
    barriers: HashMap<ConnId, Barriers, Xxh3DefaultBuilder>,
    /// Connections with a sync or barrier to be sent at the end of the turn, each once in a row.
    syncs: Vec<ConnId>,
    /// Connections with a next read that waits until the view has reached the zxid.
    behind: BinaryHeap<Reverse<(Zxid, ConnId)>>,
}

impl Freshness {
    pub(super) fn new(linearizable: bool) -> Self {
        let gate = Zxid(if linearizable { u64::MAX } else { 0 });
        let (barriers, syncs, behind) = Default::default();
        Self { linearizable, floor: Zxid(0), gate, barriers, syncs, behind }
    }

    pub(super) const fn floor(&self) -> Zxid {
        self.floor
    }

    /// The least view from which a read may be served at once.
    #[inline]
    pub(super) const fn gate(&self) -> Zxid {
        self.gate
    }

    /// A client may have seen this state.
    #[inline]
    pub(super) fn observe(&mut self, zxid: Zxid) {
        self.floor = self.floor.max(zxid);
        self.gate = self.gate.max(zxid);
    }

    /// Asks the leader for the sync or barrier of a connection. Gives the number of the barrier.
    #[inline(never)]
    pub(super) fn ask(&mut self, conn: &Conn) -> u64 {
        self.syncs.push(conn.id);
        if !self.linearizable {
            return 0;
        }
        let barriers = self.barriers.entry(conn.id).or_default();
        barriers.asked += 1;
        barriers.asked
    }

    /// The barrier for which a read must wait; 0 for none.
    #[inline(never)]
    pub(super) fn barrier(&mut self, conn: &Conn, op: Option<OpCode>) -> u64 {
        if !self.linearizable || conn.session.is_read_only() || op == Some(OpCode::Ping) {
            return 0;
        }
        if self.syncs.last() == Some(&conn.id) {
            return self.barriers.get(&conn.id).map_or(0, |barriers| barriers.asked);
        }
        self.ask(conn)
    }

    pub(super) const fn has_syncs(&self) -> bool {
        !self.syncs.is_empty()
    }

    /// Takes the connections with a sync or barrier that goes to the leader now.
    pub(super) fn take_syncs(&mut self) -> Vec<ConnId> {
        mem::take(&mut self.syncs)
    }

    /// Whether the leader has not answered the barrier of the connection's oldest request.
    pub(super) fn is_blocked(&self, conn: &Conn) -> bool {
        let barrier = conn.pending.front().map_or(0, Pending::barrier);
        barrier > 0
            && self.barriers.get(&conn.id).is_none_or(|barriers| barrier > barriers.passed.max(barriers.excused))
    }

    /// A command of the connection is about to be applied. Writes that were answered before the reads in front of it
    /// were sent are before it in the log, and are applied. So these reads need no answer of the leader any more, and
    /// must not see the state behind the command.
    pub(super) fn excuse(&mut self, conn: &Conn) {
        // A sync that is answered may stand in front of them, when the end of a turn kept it.
        let reads = conn.pending.iter().take_while(|pending| pending.ready_at().is_some());
        let barrier = reads.map(Pending::barrier).max().unwrap_or(0);
        if let Some(barriers) = self.barriers.get_mut(&conn.id) {
            barriers.excused = barriers.excused.max(barrier);
        }
    }

    /// An answer of the leader came. Whether it was the last that is due: then it is that of a sync, behind which
    /// nothing more is taken.
    pub(super) fn pass(&mut self, id: ConnId) -> bool {
        self.barriers.get_mut(&id).is_none_or(|barriers| {
            barriers.passed += 1;
            barriers.passed == barriers.asked
        })
    }

    /// The connection has ended.
    pub(super) fn forget(&mut self, id: ConnId) {
        if !self.barriers.is_empty() {
            self.barriers.remove(&id);
        }
    }

    /// The connection's next read waits for a view of this zxid.
    pub(super) fn wait(&mut self, conn: &mut Conn, from: Zxid) {
        if !mem::replace(&mut conn.waits.view, true) {
            self.behind.push(Reverse((from, conn.id)));
        }
    }

    /// Whether a connection waits for no newer view than this.
    #[inline]
    pub(super) fn may_serve(&self, view: Zxid) -> bool {
        self.behind.peek().is_some_and(|Reverse((zxid, _))| *zxid <= view)
    }

    /// The next connection that waits for no newer view than this.
    pub(super) fn next(&mut self, view: Zxid) -> Option<ConnId> {
        if self.may_serve(view) { self.behind.pop().map(|Reverse((_, id))| id) } else { None }
    }

    /// No connection is left to wait.
    pub(super) fn clear_waiting(&mut self) {
        self.behind.clear();
    }
}
