//! The facts of the process: plain values. The driver gathers them, which may read files and clocks.

use super::latencies::{Histogram, Quantiles};
use super::obstacle::Obstacle;
use super::scarcity::{Scarcity, SpaceFacts};
use crate::ids::{Millis, ServerId, WallMillis, Zxid};
use crate::sequencer::ReconfigStep;
use crate::servers::Servers;
use crate::sizes::Sizes;
use alloc::string::String;
use alloc::vec::Vec;

/// The facts that the process knows, and no shard does.
#[derive(Clone, Debug, Default)]
pub struct ServerFacts {
    /// As in `3.9.5-corral-0.1.0, built on ...`.
    pub version: String,
    /// Wall time at the zero of [`Millis`].
    pub started: WallMillis,
    /// Role of the server, for `srvr` and `mntr`.
    pub mode: Mode,
    /// This server has no space for entries or a snapshot of the leader.
    pub stalled: bool,
    /// Why it opens no sessions or takes no writes; `None` while it does.
    pub obstacle: Option<Obstacle>,
    /// ZooKeeper's trace mask: `stmk` stores it and `gtmk` shows it. It has no effect.
    pub trace_mask: i64,
    /// File descriptors in use.
    pub open_files: u64,
    /// Most file descriptors that the process may use.
    pub open_files_max: u64,
    /// CPU time of the process, ten-thousandths of a second.
    pub cpu_ten_thousandths: u64,
    /// Memory of the process, its mapped files included.
    pub resident_bytes: u64,
    /// Of it what no file backs.
    pub anonymous_bytes: u64,
    /// CPU time by name of thread, ten-thousandths of a second.
    pub threads: Vec<(String, u64)>,
    /// Estimated bytes of the consensus actor's changes of the tree since its snapshot.
    pub delta_bytes: u64,
    /// Bytes of log entries that are in memory because they are not applied.
    pub log_bytes: u64,
    /// How often a core was stalled long enough for the watchdog to see it.
    pub freezes: u64,
    /// When a core last was stalled, Unix seconds; 0: never.
    pub last_freeze_s: u64,
    /// When a sync of the log last took too long, Unix seconds; 0: never.
    pub last_slow_sync_s: u64,
    /// Whether disk space or memory is scarce; `None` where both suffice.
    pub scarcity: Option<Scarcity>,
    /// Whether this leader refuses writes that add data.
    pub growth_refusing: bool,
    /// Writes of clients that this server refused because of scarcity while it led.
    pub growth_refused: u64,
    /// How long the searches for a leader took that have ended.
    pub elections: Timing,
    /// How often this server began to look for a leader.
    pub looking_count: u64,
    /// Since when this server leads, in milliseconds; `None` if it does not.
    pub led_ms: Option<u64>,
    /// Milliseconds by which the wall clock is ahead of the leader's; 0 while that is not known.
    pub clock_ahead_ms: i64,
    /// Log entries that are committed and not applied here.
    pub lag: u64,
    /// How often this server let another lead because its log was stalled.
    pub slow_disk_transfers: u64,
    /// Log entries kept for servers that receive an older snapshot than the newest.
    pub log_entries_kept: u64,
    /// Findings of the scrubber.
    pub scrub: ScrubFacts,
    /// Differences between digests of the tree, since the start.
    pub digest_mismatches: u64,
    /// Digests of the tree, oldest first.
    pub digests: Vec<(Zxid, u64)>,
    /// How far a membership change is, as far as this server knows.
    pub reconfig: ReconfigStep,
    /// Number of voters, and servers that keep up with this leader. `None` for a standalone server.
    pub quorum: Option<Quorum>,
    /// When the certificate for connections to other servers expires, Unix seconds; `None` where there is none.
    pub certificate_expires: Option<i64>,
    /// Id of the leader of the ensemble, if this server knows one.
    pub leader: Option<ServerId>,
    /// Of the log entries that this server proposed.
    pub proposals: Sizes,
    /// Syncs of the log that took longer than the configuration's limit.
    pub slow_syncs: u64,
    /// Zxid of the newest snapshot file, and when it was written in Unix seconds.
    pub last_snapshot: Option<(u64, i64)>,
    /// All keys of the configuration with their values in TOML. Secrets are not shown.
    pub settings: Vec<(&'static str, String)>,
    /// Connections closed on accept, because of a limit.
    pub connections_refused: u64,
    /// TLS handshakes of clients that failed.
    pub handshakes_failed: u64,
    /// `None` where there is no audit log.
    pub audit: Option<AuditFacts>,
    /// Latencies by operation and by stage.
    pub latencies: LatencyFacts,
    /// Syncs of the log.
    pub syncs: Timing,
    /// Snapshots written.
    pub snapshots: Timing,
    /// The connections to the other servers of an ensemble.
    pub peers: Vec<PeerFacts>,
    /// Connections to the observers among them, counted since the last reset.
    pub observers: Vec<PeerFacts>,
    /// The part of the configuration that `conf` shows.
    pub configured: Configured,
    /// Of the directory of the log first, and of that of the snapshots if it is another one.
    pub spaces: Vec<SpaceFacts>,
    /// The lines of `envi`.
    pub environment: Vec<(&'static str, String)>,
}

/// Times of requests by operation, and of the stages of writes.
#[derive(Clone, Debug, Default)]
pub struct LatencyFacts {
    /// Of all requests that are no transactions.
    pub reads: Quantiles,
    /// Of transactions.
    pub updates: Quantiles,
    /// Times by the protocol's operation, without operations that did not occur.
    pub operations: Vec<(&'static str, Histogram)>,
    /// Times by stage of a write: `queue`, `sync`, `commit`, `apply`. Stages without a time are left out.
    pub stages: Vec<(&'static str, Histogram)>,
}

/// Of the audit log.
#[derive(Clone, Copy, Debug, Default)]
pub struct AuditFacts {
    /// Records written since the start.
    pub written: u64,
    /// Records dropped since the start.
    pub dropped: u64,
    /// Bytes of memory of records that are not written yet.
    pub queued_bytes: u64,
}

/// The findings of the scrubber.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubFacts {
    /// When the last scrub was complete, Unix seconds; 0 before the first.
    pub completed_s: u64,
    /// Bytes that scrubs have read.
    pub bytes: u64,
    /// Snapshot files and logs that were found damaged.
    pub damaged: u64,
    /// The state is not to be trusted, and is being taken from another server.
    pub heals: bool,
}

/// Number of voters of an ensemble. Of a leader also the servers that it has contact with, without itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quorum {
    /// Servers that vote.
    pub size: u64,
    /// All servers that sent a message lately.
    pub learners: u64,
    /// Of these, members with a vote that lack little of the log.
    pub synced_followers: u64,
    /// Of these, members without a vote that are to have one and lack little of the log.
    pub synced_non_voting_followers: u64,
    /// Of these, observers that lack little of the log.
    pub synced_observers: u64,
}

/// The connections with one other server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerFacts {
    /// The other server.
    pub id: ServerId,
    /// The connection stands that this server dialled.
    pub connected_out: bool,
    /// The connection stands that the other server dialled.
    pub connected_in: bool,
    /// Bytes sent, with the headers of frames.
    pub bytes_out: u64,
    /// Bytes received, with the headers of frames.
    pub bytes_in: u64,
    /// Messages sent.
    pub messages_out: u64,
    /// Messages received.
    pub messages_in: u64,
    /// Bytes that wait to be sent.
    pub queued_bytes: u64,
    /// Messages that wait to be sent.
    pub queued_messages: u64,
    /// Messages that were lost on the way to it.
    pub dropped: u64,
    /// Connections after the first, of both directions.
    pub reconnects: u64,
    /// Attempts to connect to the other server that failed.
    pub dials_failed: u64,
}

impl PeerFacts {
    /// Whether the connections of both directions stand.
    pub const fn is_connected(&self) -> bool {
        self.connected_out && self.connected_in
    }
}

/// The role of a server, as ZooKeeper calls it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// A server that is not in an ensemble.
    #[default]
    Standalone,
    /// The server that orders the writes of the ensemble.
    Leader,
    /// A server with a vote that follows a leader.
    Follower,
    /// A server without a vote that follows a leader.
    Observer,
    /// Of an ensemble that has no leader, as far as this server knows: nothing can be written.
    Looking,
    /// The same for so long that clients may read what is here, if they ask for that.
    ReadOnly,
}

impl Mode {
    /// All roles.
    pub const ALL: [Self; 6] =
        [Self::Standalone, Self::Leader, Self::Follower, Self::Observer, Self::Looking, Self::ReadOnly];

    /// The name in `srvr`, `stat` and `mntr`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
            Self::Leader => "leader",
            Self::Follower => "follower",
            Self::Observer => "observer",
            Self::Looking => "looking",
            Self::ReadOnly => "read-only",
        }
    }

    /// State of a server of an ensemble, as ZooKeeper's `peer_state` has it.
    pub const fn peer_state(self) -> &'static str {
        match self {
            Self::Leader => "leading - broadcast",
            Self::Follower => "following - broadcast",
            Self::Observer => "observing - broadcast",
            Self::Standalone | Self::Looking | Self::ReadOnly => "looking - election",
        }
    }
}

/// How long something took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// How often it was done.
    pub count: u64,
    /// Sum of the times, microseconds.
    pub us_sum: u64,
    /// The shortest time, microseconds; 0 if there is none.
    pub us_min: u64,
    /// The longest time, microseconds; 0 if there is none.
    pub us_max: u64,
}

/// The part of the configuration that `conf` shows.
#[derive(Clone, Debug, Default)]
pub struct Configured {
    /// Port of the listener for clients without TLS.
    pub client_port: u16,
    /// Port of the listener for clients with TLS. `None` where there is none.
    pub secure_client_port: Option<u16>,
    /// Directory of the snapshots.
    pub data_dir: String,
    /// Bytes of all files below that directory.
    pub data_dir_bytes: u64,
    /// Directory of the log.
    pub log_dir: String,
    /// Bytes of all files below that directory.
    pub log_dir_bytes: u64,
    /// ZooKeeper's `tickTime`, milliseconds.
    pub tick_ms: u32,
    /// 0 is no limit.
    pub connections_per_ip_max: u32,
    /// Least session timeout that a client may negotiate.
    pub session_timeout_min_ms: u32,
    /// Greatest session timeout that a client may negotiate.
    pub session_timeout_max_ms: u32,
    /// Connections that the kernel holds until they are accepted.
    pub backlog: i32,
    /// Id of this server, 1..=255.
    pub server_id: ServerId,
    /// Of a member of an ensemble: the list of servers, and its version.
    pub members: Option<(Servers, u64)>,
}

/// The moment an answer is given.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Monotonic time, milliseconds since the start of the process.
    pub now: Millis,
    /// The same moment on the wall clock.
    pub wall: WallMillis,
}
