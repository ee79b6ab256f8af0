//! Events: what the driver reports to the engine.

use bytes::Bytes;
use corral_consensus::{Entry, Micros, ServerId};
use corral_core::ids::{Millis, ShardId, WallMillis};
use corral_core::report::Obstacle;
use corral_core::shard::{Requests, SessionActivity};
use corral_core::tree::snapshot::Snapshot;
use corral_peer::Frame;
use std::sync::Arc;

use crate::snapshot::{Arrived, SnapshotContent};

/// The time at which something is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Monotonic, since an arbitrary beginning that shards use too.
    pub micros: Micros,
    /// For `ctime` and `mtime` alone.
    pub wall: WallMillis,
}

impl Now {
    /// The monotonic time in milliseconds.
    pub fn millis(self) -> Millis {
        Millis::of(self.micros)
    }
}

/// An event, reported by the driver to [`crate::Engine::handle`].
pub enum Event {
    /// One unit of Raft's time has passed, see [`crate::Settings`].
    Tick,
    /// Requests of a shard: commands to be written, and `sync` requests to be answered behind them.
    Requests(ShardId, Requests),
    /// A shard's report of active sessions.
    SessionActivity(ShardId, SessionActivity),
    /// The append of this number, and all before it, are durable.
    Durable(u64),
    /// Whether the log has no space for the next append; reported when that changes.
    LogFull(bool),
    /// The snapshot that [`crate::Effect::WriteSnapshot`] requested is durable, checked and mapped.
    SnapshotWritten(WrittenSnapshot),
    /// A requested snapshot could not be written.
    SnapshotFailed {
        /// Log index of the state that was to be written.
        index: u64,
        /// Whether writing had begun; false if there was no space for it.
        was_tried: bool,
        /// The corrupt data, if they are the reason.
        found: Option<CorruptState>,
    },
    /// Whether disk space or memory is scarce: a leader then refuses writes that add data.
    Scarce(bool),
    /// An operator requests a snapshot. It is written if anything has changed.
    SnapshotRequested,
    /// The state of this server is corrupt.
    StateCorrupt(CorruptState),
    /// A snapshot that [`crate::Effect::Replaced`] named is damaged, and changes may have copied from it.
    CopiedDamage {
        /// The finding.
        found: CorruptState,
        /// As [`crate::Effect::Replaced`] had it.
        installs: u64,
    },
    /// Entries that [`crate::ToLog::Read`] asked for; none if the log does not hold the first one or it is damaged.
    LogRead(Vec<Entry>),
    /// A sealed segment of the log is damaged, as this sentence states.
    LogDamaged(String),
    /// Progress of a snapshot from another server, see [`crate::Effect::Receive`].
    Incoming(Incoming),
    /// An event of the connections to another server. A standalone server has none.
    Peer(ServerId, PeerEvent),
    /// A server that is not in the list of servers, and holds data of this cluster; reported when that changes.
    UnknownServer(Option<ServerId>),
    /// The process is to stop: drain the shards, transfer leadership, write a last snapshot.
    Stop,
    /// A shard has no connection left.
    Drained,
}

/// An event of the connections to another server: this server dials one, for its own messages, and the other server dials one.
pub enum PeerEvent {
    /// The name of the server has not resolved since the start, or resolves now for the first time after that.
    Name {
        /// Whether it resolves.
        resolves: bool,
    },
    /// The connection that this server dialled is open: messages for that server use it from now on.
    ConnectedTo {
        /// Number of the connection, never used again.
        stream: u64,
    },
    /// The connection that this server dialled has ended. Messages sent on it may be lost.
    DisconnectedFrom {
        /// The connection.
        stream: u64,
        /// Whether the process of the other server has ended.
        gone: bool,
    },
    /// The connection that the other server dialled is open.
    Accepted {
        /// Number of the connection, never used again.
        stream: u64,
        /// Names the start of the other server.
        incarnation: u64,
    },
    /// The connection that the other server dialled has ended.
    Lost {
        /// The connection.
        stream: u64,
        /// Whether the process of the other server has ended.
        gone: bool,
    },
    /// A frame was received on the connection that the other server dialled.
    Frame {
        /// The connection.
        stream: u64,
        /// The frame. Its content is not checked yet.
        frame: Frame,
    },
    /// A message for that server could not be queued.
    Undelivered {
        /// As [`crate::ToPeers::Send`] had it.
        announced_snapshot: bool,
    },
}

/// A durable, verified, mapped snapshot of this server's state.
pub struct WrittenSnapshot {
    /// The snapshot.
    pub snapshot: Arc<Snapshot>,
    /// The whole file, for other servers.
    pub bytes: Arc<dyn SnapshotContent>,
    /// Log index of the last entry that it contains.
    pub index: u64,
    /// Term of that entry.
    pub term: u64,
    /// Log indices of the snapshots that stay on the disk, this one included.
    pub kept: Vec<u64>,
}

/// A finding that the state of this server is corrupt.
#[derive(Clone, Debug)]
pub struct CorruptState {
    /// The finding.
    pub finding: Finding,
    /// File and offset, or zxid and digests: the first part of a sentence.
    pub what: String,
}

/// How a corrupt state was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Bytes of the snapshot that is served do not match their checksum.
    DamagedSnapshot,
    /// The digest of the state differs from another server's at the same zxid, or from the digest that was stored with
    /// the changes.
    DivergedDigest,
    /// The start found the mark of an earlier process, which had found another digest.
    NotedByEarlierProcess,
}

impl Finding {
    /// As the status shows it.
    pub(crate) fn obstacle(self) -> Obstacle {
        match self {
            Finding::DamagedSnapshot => Obstacle::Damaged,
            Finding::DivergedDigest | Finding::NotedByEarlierProcess => Obstacle::Diverged,
        }
    }
}

/// Progress of a snapshot from another server.
pub enum Incoming {
    /// A piece is written.
    Written {
        /// Log index of the snapshot.
        index: u64,
        /// Bytes written so far.
        upto: u64,
    },
    /// The snapshot is received: durable, checked and mapped.
    Whole {
        /// Log index of the snapshot.
        index: u64,
        /// The snapshot with its state.
        snapshot: Box<Arrived>,
    },
    /// The snapshot cannot be used.
    Failed {
        /// Log index of the snapshot.
        index: u64,
        /// Why.
        reason: String,
    },
}

/// The bytes of a snapshot from another server; see [`crate::Effect::Receive`].
#[derive(Debug)]
pub enum Receive {
    /// A snapshot begins. A transfer that was begun before is given up.
    Begin {
        /// Log index of the snapshot.
        index: u64,
        /// Zxid of its state.
        zxid: u64,
        /// Bytes of the whole file.
        bytes: u64,
    },
    /// The next bytes.
    Piece {
        /// Log index of the snapshot.
        index: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// The received snapshot is not installed: its file is deleted.
    Forget {
        /// Log index of the snapshot.
        index: u64,
        /// Zxid of its state.
        zxid: u64,
    },
}
