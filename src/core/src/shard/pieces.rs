//! A shard's part of an answer to a four-letter command: plain values, in pieces.

use crate::ids::{Millis, SessionId, ShardId, Zxid};
use crate::shard::conn::{Conn, Phase};
use crate::shard::counters::{ConnCounters, Statistics};
use crate::shard::load::{Loads, merge};
use crate::shared::Text;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use smallvec::SmallVec;

/// The result of one pass.
#[derive(Debug, Default)]
pub struct Piece {
    /// Sums, for `srvr`, `stat` and `mntr`.
    pub totals: Totals,
    /// Connections, for `stat`, `cons` and `dump`.
    pub conns: Vec<ConnLine>,
    /// Paths with data watches, for `wchs`, `wchc` and `wchp`.
    pub watched: Vec<Watched>,
    /// Load of clients, for `top`. For `mntr` it has addresses alone.
    pub top: TopClients,
    /// With the totals.
    pub shard: Option<ShardLoad>,
    /// Where the next pass begins; `None` after the last.
    pub next: Option<usize>,
}

/// Sums over one shard, or over all of them.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Counters of requests, replies and bytes.
    pub statistics: Statistics,
    /// Connections that are open.
    pub connections: u64,
    /// Requests that wait for their reply.
    pub outstanding: u64,
    /// Both tables, per path, table and connection.
    pub watches: u64,
    /// The rest is the same on every shard at the same zxid; the newest counts.
    pub zxid: Zxid,
    /// Znodes; the root counts twice, as in ZooKeeper.
    pub nodes: u64,
    /// Bytes of all paths and all data.
    pub data_bytes: u64,
    /// Ephemeral znodes.
    pub ephemerals: u64,
    /// Live sessions of all servers.
    pub sessions: u64,
}

impl Totals {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.statistics.merge(&other.statistics);
        self.connections += other.connections;
        self.outstanding += other.outstanding;
        self.watches += other.watches;
        if other.zxid >= self.zxid {
            self.zxid = other.zxid;
            self.nodes = other.nodes;
            self.data_bytes = other.data_bytes;
            self.ephemerals = other.ephemerals;
            self.sessions = other.sessions;
        }
    }
}

/// A path with data watches.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The path's hash, the same on all shards.
    pub hash: u64,
    /// The watched path. Empty for `wchs`, which counts by the hash.
    pub path: Text,
    /// Sessions that watch the path on one shard, or some of them.
    pub watchers: SmallVec<[SessionId; 1]>,
}

/// One connection.
#[derive(Clone, Debug)]
pub struct ConnLine {
    /// Address of the client. An IPv4 address is one, also if the socket is of IPv6.
    pub peer: SocketAddr,
    /// 0 before the connection has a session.
    pub session: SessionId,
    /// Negotiated session timeout, milliseconds; 0 before the connection has a session.
    pub timeout_ms: i32,
    /// When it was accepted.
    pub opened: Millis,
    /// Whether it uses TLS.
    pub is_secured: bool,
    /// End of the bucket of time in which it ends if it stays silent. A bucket is as wide as a connection may go without a session, as
    /// in ZooKeeper.
    pub due: Millis,
    /// Whether it is read from.
    pub reading: bool,
    /// Whether bytes wait to be sent to it.
    pub writing: bool,
    /// Requests that wait for their reply.
    pub queued: usize,
    /// Paths that it watches.
    pub watches: u32,
    /// Requests, replies and latencies of this connection.
    pub counters: ConnCounters,
}

impl ConnLine {
    /// `sessionless_ms` is how long a connection may go without a session.
    pub(super) fn of(conn: &Conn, watches: u32, sessionless_ms: u64) -> Self {
        let silent_ms = conn.session.silence_max_ms();
        let end = match conn.phase {
            Phase::Live => conn.active_at.plus(silent_ms),
            _ => conn.opened.plus(sessionless_ms),
        };
        let width = sessionless_ms.max(1);
        Self {
            peer: SocketAddr::new(conn.peer.ip().to_canonical(), conn.peer.port()),
            session: conn.session.id(),
            timeout_ms: conn.session.timeout_ms(),
            opened: conn.opened,
            is_secured: conn.is_secured,
            due: Millis((end.0 / width + 1).saturating_mul(width)),
            reading: conn.command.is_none() && !conn.stalled,
            writing: conn.command.is_none() && conn.unsent() > 0,
            queued: conn.pending.len(),
            watches,
            counters: conn.counters,
        }
    }
}

/// Connections of an address or a session, now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Connections that are open.
    pub connections: u64,
    /// Requests without a reply.
    pub waiting: u64,
    /// Watched paths.
    pub watches: u64,
}

impl Held {
    pub(super) fn add(&mut self, other: &Self) {
        self.connections += other.connections;
        self.waiting += other.waiting;
        self.watches += other.watches;
    }
}

/// The load of shards, and their connections as far as these were looked at.
#[derive(Clone, Debug, Default)]
pub struct TopClients {
    /// The last window of each shard, added up.
    pub loads: Loads,
    /// Connections of the addresses in `loads`.
    pub by_address: Vec<(IpAddr, Held)>,
    /// Connections of the sessions in `loads`.
    pub by_session: Vec<(SessionId, Held)>,
}

impl TopClients {
    pub(crate) fn merge(&mut self, other: Self) {
        self.loads.merge(other.loads);
        merge(&mut self.by_address, other.by_address, Held::add);
        merge(&mut self.by_session, other.by_session, Held::add);
    }
}

/// Load and memory of one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardLoad {
    /// The shard.
    pub id: ShardId,
    /// Connections that are open.
    pub connections: u64,
    /// Received since the start, or the last `srst`.
    pub requests: u64,
    /// Watches, counted per path, table and connection.
    pub watches: u64,
    /// Estimated bytes of the changes of the tree since its snapshot.
    pub delta_bytes: u64,
    /// Bytes of the requests and replies that its connections hold.
    pub connection_bytes: u64,
    /// Bytes of the watches, as their limits count them.
    pub watch_bytes: u64,
}
