//! Effects: what the engine asks of its driver, and the status that it shows.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use corral_consensus::{Append, ReplacedLog, ServerId};
use corral_core::ids::ShardId;
use corral_core::report::{Mode, Obstacle, Quorum};
use corral_core::sequencer::{FrozenState, ReconfigStep};
use corral_core::shard::{self, ShardMessage};
use corral_core::sizes::Sizes;
use corral_core::tree::snapshot::Snapshot;
use corral_peer::{Generation, Kind};

use crate::addresses::{Moved, PeerAddress};
use crate::event::{Receive, WrittenSnapshot};
use crate::snapshot::Arrived;

/// An effect that the driver carries out. Effects are carried out in the order in which they are given.
///
/// Each kind keeps its order towards its receiver (log, shard, connection). Each variant states the events that the
/// driver reports because of it.
#[must_use = "an effect that is not carried out loses a message or an append"]
pub enum Effect {
    /// Sends this to every shard.
    Shards(ShardMessage),
    /// Sends this to one shard: an answer to some of its connections, which may have ended.
    Shard(ShardId, ShardMessage),
    /// Sends this to the log.
    Log(ToLog),
    /// Writes a snapshot of this state in the background. The end is reported as [`crate::Event::SnapshotWritten`] or
    /// [`crate::Event::SnapshotFailed`]. At most one of the present state is in progress.
    WriteSnapshot(Box<FrozenState>),
    /// The snapshot `by` has replaced this one. Changes may have copied from `snapshot` until now, so it is verified
    /// once more before it is dropped. If it is damaged, the driver reports [`crate::Event::CopiedDamage`].
    Replaced {
        /// The former snapshot.
        snapshot: Arc<Snapshot>,
        /// The present one.
        by: Weak<Snapshot>,
        /// How many snapshots of other servers were installed before.
        installs: u64,
    },
    /// Another server's snapshot is installed: snapshots that are too old to be kept beside it are deleted.
    Installed {
        /// Zxid of its state.
        zxid: u64,
        /// Index of the last entry that it contains.
        index: u64,
    },
    /// Drops this on a thread that no client waits for.
    Drop(Garbage),
    /// Writes another server's snapshot beside this server's own. The driver reports [`crate::Event::Incoming`] when
    /// [`Receive::Begin`] failed, after each piece, and after the last piece once the file is durable, checked and mapped.
    Receive(Receive),
    /// Notes on disk that the state is corrupt, with the reason, or that it is intact again. A later start reports a note
    /// that it finds, because its checksums would not find a state that diverged.
    NoteStateCorrupt(Option<String>),
    /// Checks all files now.
    Scrub,
    /// Does this with the connections to other servers.
    Peers(ToPeers),
    /// Ends the process. The engine is not called after that.
    End(Ended),
}

/// Structures that are dropped where no client waits: to free a million entries, or a mapping, takes long.
pub enum Garbage {
    /// A structure of a shard or of the state machine.
    Core(shard::Garbage),
    /// The state that a snapshot was written of.
    Frozen(Box<FrozenState>),
    /// Another server's snapshot that was received and will not be installed.
    Arrived(Box<Arrived>),
    /// A snapshot of a state that was replaced.
    Written(WrittenSnapshot),
    /// Log entries that a snapshot replaced.
    Log(ReplacedLog),
}

/// A message to the log.
#[derive(Debug)]
pub enum ToLog {
    /// Write, sync, then report [`crate::Event::Durable`].
    Append(Append),
    /// Read entries that are durable: at least one, and then as many as make up a page. The driver reports
    /// [`crate::Event::LogRead`].
    Read {
        /// Index of the first one.
        from: u64,
        /// Index of the last one.
        upto: u64,
    },
    /// Entries before this index are not needed any more. [`LogQueue`](crate::LogQueue) lets it overtake messages that wait
    /// for space.
    Trim(u64),
    /// Begin another segment, so that the next trim can drop all that was written so far.
    Seal,
    /// All entries are void: a snapshot is durable, and the next entry has this index.
    Reset(u64),
    /// Sync, then close.
    Close,
}

/// A command to the connections with other servers.
pub enum ToPeers {
    /// Sends a message to another server. It may be held back until the next [`ToPeers::Flush`].
    Send {
        /// The receiver.
        peer: ServerId,
        /// On this connection or not at all. `None`: on the connection that is open; if there is none, or its queue is
        /// full, the driver reports [`crate::PeerEvent::Undelivered`].
        stream: Option<u64>,
        /// Kind of the frame.
        kind: Kind,
        /// The encoded message.
        payload: Bytes,
        /// Whether the message announces a snapshot; reported back if it is not delivered.
        announces_snapshot: bool,
    },
    /// Sends what was held back.
    Flush,
    /// Closes a connection that another server dialled, because of an invalid message.
    Close {
        /// The server that dialled it.
        peer: ServerId,
        /// The connection.
        stream: u64,
    },
    /// Dials these servers, and accepts connections of them alone, from now on. This server may be among them.
    Connect(Vec<PeerAddress>),
    /// The data of this server are of that generation from now on: connections with servers of other generations end.
    Adopt(Generation),
    /// The list of servers has changed for this server: its addresses, or the list to store.
    Moved(Moved),
}

/// Why the process ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// It was told to stop, and everything is written.
    #[error("stopped")]
    Stopped,
    /// A committed entry cannot be read by this version.
    #[error("log entry {index} cannot be read by this version")]
    NotABatch {
        /// Index of the entry.
        index: u64,
    },
    /// The data of this server cannot be served. The sentence states the reason and the remedy.
    #[error("{0}")]
    Damaged(String),
}

/// The status of a server, for four-letter commands and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Role, in ZooKeeper's words.
    pub mode: Mode,
    /// The log, or a received snapshot, has no space: what the leader sends is not accepted.
    pub stalled: bool,
    /// Why it accepts no sessions or no writes, as found at the last tick.
    pub found: Option<Obstacle>,
    /// The state is corrupt: [`Obstacle::Damaged`] or [`Obstacle::Diverged`].
    pub withheld: Option<Obstacle>,
    /// How often leadership was transferred because of a slow disk.
    pub slow_disk_transfers: u64,
    /// Voters and followers that keep up, as the leader counts them; `None` of a standalone server.
    pub quorum: Option<Quorum>,
    /// How far a membership change is.
    pub reconfig: ReconfigStep,
    /// Log entries that the newest snapshot holds, and that are kept for servers that receive an older one.
    pub log_entries_kept: u64,
    /// Log index of the snapshot that is served; 0: it is not a file.
    pub served_snapshot: u64,
    /// Log entries that are committed and not applied here, as of the last tick.
    pub lag: u64,
    /// Whether this leader refuses writes that add data, and how many it refused, as of the last tick.
    pub growth_refusing: bool,
    /// See there.
    pub growth_refused: u64,
    /// Milliseconds by which this server's wall clock is ahead of the leader's, if that is known.
    pub clock_ahead_ms: Option<i64>,
    /// The leader, if this server of an ensemble knows one.
    pub leader: Option<ServerId>,
    /// Sizes of the log entries that this server proposed.
    pub proposals: Sizes,
    /// Estimated bytes of the tree's changes since its snapshot, and bytes of the log entries in memory, as of the last tick.
    pub delta_bytes: u64,
    /// See there.
    pub log_bytes: u64,
}

impl Status {
    /// At the start.
    pub(crate) fn new(mode: Mode, served_snapshot: u64) -> Status {
        Status {
            mode,
            stalled: false,
            found: None,
            withheld: None,
            slow_disk_transfers: 0,
            log_entries_kept: 0,
            quorum: None,
            reconfig: ReconfigStep::default(),
            served_snapshot,
            lag: 0,
            clock_ahead_ms: None,
            growth_refusing: false,
            growth_refused: 0,
            leader: None,
            proposals: Sizes::default(),
            delta_bytes: 0,
            log_bytes: 0,
        }
    }

    /// Why this server accepts no sessions or no writes; `None` if it does.
    #[must_use]
    pub fn obstacle(&self) -> Option<Obstacle> {
        [self.withheld, self.found].into_iter().flatten().min()
    }
}

/// Effects and status as the engine's components gather them in one call.
pub(crate) struct Outbox {
    pub(crate) effects: Vec<Effect>,
    pub(crate) status: Status,
}

impl Outbox {
    pub(crate) fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(crate) fn log(&mut self, message: ToLog) {
        self.push(Effect::Log(message));
    }

    pub(crate) fn shards(&mut self, message: ShardMessage) {
        self.push(Effect::Shards(message));
    }

    pub(crate) fn peers(&mut self, command: ToPeers) {
        self.push(Effect::Peers(command));
    }

    pub(crate) fn send(&mut self, peer: ServerId, kind: Kind, payload: Bytes) {
        self.peers(ToPeers::Send { peer, stream: None, kind, payload, announces_snapshot: false });
    }
}
