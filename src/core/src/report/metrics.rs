//! The table of metrics. `mntr`, the Prometheus endpoint and `docs/metrics.md` are rendered from it: a new metric is a row here, and
//! an increment where it is counted.
//!
//! Names are those of ZooKeeper 3.9 where it has the metric (protocol chapter 25).

use super::facts::{LatencyFacts, Mode, PeerFacts, Quorum};
use super::gathered::Gathered;
use super::kind::Kind::{self, Counter, Gauge, Summary as Durations, Text};
use super::kind::Origin::{self, Corral, Prometheus, ZooKeeper};
use super::latencies::{Histogram, Quantiles};
use super::obstacle::Obstacle;
use super::scarcity::SpaceFacts;
use super::top;
use super::value::{Summary, Value, decimal};
use crate::shard::counters::Latency;
use crate::shard::pieces::ShardLoad;
use crate::sizes::Sizes;
use crate::tree::acl;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

/// A row of the table.
pub struct Metric {
    /// Without the `zk_` that `mntr` puts in front.
    pub name: &'static str,
    /// Type of the value.
    pub kind: Kind,
    /// Where the name and the meaning come from.
    pub origin: Origin,
    /// One sentence or more, with the unit, without Markdown.
    pub help: &'static str,
    source: Source,
}

/// The function that gives the value.
enum Source {
    /// Of this server.
    Server(fn(&Gathered) -> Value),
    /// One for each value of this label.
    Labelled(&'static str, Values),
}

/// The function that gives the values of a label, each with its number.
enum Values {
    Peers(fn(&PeerFacts) -> u64),
    Shards(fn(&ShardLoad) -> u64),
    Times(fn(&LatencyFacts) -> &[(&'static str, Histogram)]),
    Numbers(fn(&Gathered) -> Vec<(String, Value)>),
}

impl Values {
    fn of(&self, known: &Gathered) -> Vec<(String, Value)> {
        match self {
            Self::Peers(number) => {
                known.facts.peers.iter().map(|peer| (format!("{}", peer.id), number(peer).into())).collect()
            }
            Self::Shards(number) => {
                known.report.shards().iter().map(|shard| (format!("{}", shard.id.0), number(shard).into())).collect()
            }
            Self::Times(times) => {
                let value = |times: &Histogram| Value::Histogram(Box::new(*times));
                times(&known.facts.latencies).iter().map(|(key, times)| (String::from(*key), value(times))).collect()
            }
            Self::Numbers(numbers) => numbers(known),
        }
    }
}

/// A metric with its value.
pub struct Sample {
    /// The row of the table.
    pub metric: &'static Metric,
    /// Name and value of a label.
    pub label: Option<(&'static str, String)>,
    /// The present value.
    pub value: Value,
}

const fn server(
    origin: Origin,
    kind: Kind,
    name: &'static str,
    help: &'static str,
    value: fn(&Gathered) -> Value,
) -> Metric {
    Metric { name, kind, origin, help, source: Source::Server(value) }
}

const fn peer(kind: Kind, name: &'static str, help: &'static str, value: fn(&PeerFacts) -> u64) -> Metric {
    labelled(kind, name, "peer", help, Values::Peers(value))
}

const fn shard(kind: Kind, name: &'static str, help: &'static str, value: fn(&ShardLoad) -> u64) -> Metric {
    labelled(kind, name, "shard", help, Values::Shards(value))
}

const fn labelled(kind: Kind, name: &'static str, label: &'static str, help: &'static str, values: Values) -> Metric {
    Metric { name, kind, origin: Origin::Corral, help, source: Source::Labelled(label, values) }
}

/// A summary with quantiles.
fn with_quantiles(latency: &Latency, quantiles: Quantiles) -> Value {
    match latency.into() {
        Value::Summary(of) => Value::Summary(Summary { quantiles: Some(quantiles), ..of }),
        other => other,
    }
}

/// A count of the ensemble that only its leader knows.
fn of_leader(known: &Gathered, count: fn(&Quorum) -> u64) -> Value {
    known.facts.quorum.as_ref().filter(|_| known.facts.mode == Mode::Leader).map(count).into()
}

fn of_proposals(known: &Gathered, size: fn(&Sizes) -> i64) -> Value {
    if known.facts.mode == Mode::Leader { Value::Whole(size(&known.facts.proposals)) } else { Value::Absent }
}

fn memory_by_owner(known: &Gathered) -> Vec<(String, Value)> {
    let facts = &known.facts;
    let of_shards = |bytes: fn(&ShardLoad) -> u64| known.report.shards().iter().map(bytes).sum::<u64>();
    let owners = [
        ("delta", of_shards(|shard| shard.delta_bytes) + facts.delta_bytes),
        ("connections", of_shards(|shard| shard.connection_bytes)),
        ("watches", of_shards(|shard| shard.watch_bytes)),
        ("log", facts.log_bytes),
        ("peers", facts.peers.iter().map(|peer| peer.queued_bytes).sum()),
        ("audit", facts.audit.map_or(0, |audit| audit.queued_bytes)),
    ];
    owners.map(|(owner, bytes)| (String::from(owner), bytes.into())).into()
}

fn serves(known: &Gathered) -> bool {
    known.facts.obstacle.is_none() && known.facts.mode != Mode::Looking
}

/// Every metric, in the order of `mntr`.
pub const METRICS: &[Metric] = &[
    server(ZooKeeper, Text, "version", "version and time of the build", |k| k.facts.version.as_str().into()),
    server(
        ZooKeeper,
        Text,
        "server_state",
        "leader, follower, observer, standalone, read-only, or looking without a leader",
        |k| k.facts.mode.word().into(),
    ),
    server(
        ZooKeeper,
        Text,
        "peer_state",
        "in an ensemble: leading, following, observing or looking, and the state of ZooKeeper's protocol",
        |k| k.facts.configured.members.as_ref().map(|_| k.facts.mode.peer_state()).into(),
    ),
    server(
        ZooKeeper,
        Gauge,
        "observer_master_id",
        "of an observer: the server that sends it the log, the leader",
        |k| k.facts.leader.filter(|_| k.facts.mode == Mode::Observer).map(|leader| leader.wide()).into(),
    ),
    server(ZooKeeper, Gauge, "ephemerals_count", "ephemeral znodes", |k| k.totals().ephemerals.into()),
    server(ZooKeeper, Gauge, "num_alive_connections", "client connections", |k| k.totals().connections.into()),
    server(ZooKeeper, Gauge, "avg_latency", "average latency of all requests, ms", |k| {
        Value::TenThousandths(k.totals().statistics.latency().average())
    }),
    server(ZooKeeper, Gauge, "outstanding_requests", "requests that are queued or in flight", |k| {
        k.totals().outstanding.into()
    }),
    server(ZooKeeper, Gauge, "znode_count", "znodes of the tree", |k| k.totals().nodes.into()),
    server(ZooKeeper, Gauge, "global_sessions", "sessions of the whole ensemble", |k| k.totals().sessions.into()),
    server(ZooKeeper, Counter, "packets_sent", "replies, events, and answers to four-letter commands", |k| {
        k.totals().statistics.sent.into()
    }),
    server(ZooKeeper, Counter, "packets_received", "requests and four-letter commands", |k| {
        k.totals().statistics.received.into()
    }),
    server(ZooKeeper, Gauge, "watch_count", "watches of both tables", |k| k.totals().watches.into()),
    server(ZooKeeper, Counter, "auth_failed_count", "connections closed because authentication failed", |k| {
        k.totals().statistics.auths_failed.into()
    }),
    server(ZooKeeper, Gauge, "min_latency", "smallest latency of all requests, ms", |k| {
        k.totals().statistics.latency().ms_min().into()
    }),
    server(ZooKeeper, Gauge, "max_file_descriptor_count", "file descriptors that the process may have", |k| {
        k.facts.open_files_max.into()
    }),
    server(ZooKeeper, Gauge, "approximate_data_size", "bytes of paths and data of the tree", |k| {
        k.totals().data_bytes.into()
    }),
    server(ZooKeeper, Gauge, "open_file_descriptor_count", "file descriptors that the process has", |k| {
        k.facts.open_files.into()
    }),
    server(ZooKeeper, Gauge, "local_sessions", "always 0: there are no local sessions", |_| Value::Whole(0)),
    server(ZooKeeper, Gauge, "uptime", "ms since the start", |k| k.moment.now.0.into()),
    server(ZooKeeper, Gauge, "max_latency", "largest latency of all requests, ms", |k| {
        k.totals().statistics.latency().ms_max.into()
    }),
    server(ZooKeeper, Counter, "connection_rejected", "connections closed on accept because of a limit", |k| {
        k.facts.connections_refused.into()
    }),
    server(ZooKeeper, Counter, "unsuccessful_handshake", "TLS handshakes of clients that failed", |k| {
        k.facts.handshakes_failed.into()
    }),
    server(ZooKeeper, Counter, "connection_request_count", "connect requests", |k| {
        k.totals().statistics.connects.into()
    }),
    server(
        ZooKeeper,
        Counter,
        "sessionless_connections_expired",
        "connections closed because no connect request came",
        |k| k.totals().statistics.never_connected.into(),
    ),
    server(ZooKeeper, Counter, "stale_sessions_expired", "sessions that expired", |k| {
        k.totals().statistics.sessions_expired.into()
    }),
    server(ZooKeeper, Counter, "throttled_ops", "requests answered THROTTLEDOP because they waited too long", |k| {
        k.totals().statistics.throttled.into()
    }),
    server(
        ZooKeeper,
        Counter,
        "large_requests_rejected",
        "connections closed because of a large request (`limits.large_requests_bytes_max`)",
        |k| k.totals().statistics.large_requests_refused.into(),
    ),
    server(ZooKeeper, Counter, "bytes_received_count", "bytes from clients", |k| {
        k.totals().statistics.bytes_received.into()
    }),
    server(ZooKeeper, Counter, "response_bytes", "bytes to clients, events included", |k| {
        k.totals().statistics.bytes_sent.into()
    }),
    server(
        ZooKeeper,
        Durations,
        "readlatency",
        "requests that are no transactions. Quantiles are there too: p50, p95, p99, p999",
        |k| with_quantiles(&k.totals().statistics.reads, k.facts.latencies.reads),
    ),
    server(
        ZooKeeper,
        Durations,
        "updatelatency",
        "transactions, from reading the request to queueing the reply. Quantiles are there too: p50, p95, p99, p999",
        |k| with_quantiles(&k.totals().statistics.updates, k.facts.latencies.updates),
    ),
    labelled(
        Kind::Histogram,
        "request",
        "operation",
        "requests from their receipt until their reply is given to the kernel",
        Values::Times(|latencies| &latencies.operations),
    ),
    labelled(
        Kind::Histogram,
        "write_stage",
        "stage",
        "stages of writes. queue: from the shard to the consensus actor. sync: from there until the log is synced. commit: until a majority has the log entry and this server has evaluated it. apply: from there until a shard has applied it",
        Values::Times(|latencies| &latencies.stages),
    ),
    server(ZooKeeper, Durations, "fsynctime", "syncs of the log", |k| (&k.facts.syncs).into()),
    server(ZooKeeper, Durations, "snapshottime", "snapshots written", |k| (&k.facts.snapshots).into()),
    server(
        ZooKeeper,
        Gauge,
        "last_client_response_size",
        "bytes of the last reply of a shard. -1 before the first",
        |k| Value::Whole(k.totals().statistics.replies.last()),
    ),
    server(ZooKeeper, Gauge, "min_client_response_size", "bytes of the smallest reply. -1 before the first", |k| {
        Value::Whole(k.totals().statistics.replies.min())
    }),
    server(ZooKeeper, Gauge, "max_client_response_size", "bytes of the largest reply. -1 before the first", |k| {
        Value::Whole(k.totals().statistics.replies.max())
    }),
    server(
        ZooKeeper,
        Gauge,
        "last_proposal_size",
        "of a leader: bytes of the last log entry, which holds one transaction or more. -1 before the first",
        |k| of_proposals(k, Sizes::last),
    ),
    server(ZooKeeper, Gauge, "min_proposal_size", "of a leader: bytes of the smallest log entry", |k| {
        of_proposals(k, Sizes::min)
    }),
    server(ZooKeeper, Gauge, "max_proposal_size", "of a leader: bytes of the largest log entry", |k| {
        of_proposals(k, Sizes::max)
    }),
    server(ZooKeeper, Durations, "election_time", "in an ensemble: from losing a leader until one is known", |k| {
        k.facts.quorum.as_ref().map(|_| &k.facts.elections).map_or(Value::Absent, Into::into)
    }),
    server(
        ZooKeeper,
        Counter,
        "looking_count",
        "in an ensemble: times that this server began to look for a leader",
        |k| k.facts.quorum.as_ref().map(|_| k.facts.looking_count).into(),
    ),
    server(ZooKeeper, Gauge, "leader_uptime", "of a leader: ms since it began to lead", |k| k.facts.led_ms.into()),
    server(ZooKeeper, Gauge, "quorum_size", "in an ensemble: servers that have a vote now", |k| {
        k.facts.quorum.as_ref().map(|quorum| quorum.size).into()
    }),
    server(
        ZooKeeper,
        Gauge,
        "learners",
        "of a leader: followers and observers that reported within one or two election timeouts, without itself",
        |k| of_leader(k, |quorum| quorum.learners),
    ),
    server(
        ZooKeeper,
        Gauge,
        "synced_followers",
        "of a leader: those with a vote that lack fewer than 64 committed log entries",
        |k| of_leader(k, |quorum| quorum.synced_followers),
    ),
    server(
        ZooKeeper,
        Gauge,
        "synced_non_voting_followers",
        "of a leader: the same, of servers that are to have a vote and have none yet",
        |k| of_leader(k, |quorum| quorum.synced_non_voting_followers),
    ),
    server(ZooKeeper, Gauge, "synced_observers", "of a leader: the same, of observers", |k| {
        of_leader(k, |quorum| quorum.synced_observers)
    }),
    server(Corral, Gauge, "apply_lag", "log entries that are committed and that this server has not applied", |k| {
        k.facts.lag.into()
    }),
    server(
        Corral,
        Gauge,
        "clock_ahead",
        "of a follower: ms by which its wall clock is ahead of the leader's, the time of a commit included. 0 while that is not known",
        |k| Value::Whole(k.facts.clock_ahead_ms),
    ),
    server(Corral, Counter, "slow_syncs", "syncs of the log that took longer than `log.sync_warning_ms`", |k| {
        k.facts.slow_syncs.into()
    }),
    server(Corral, Counter, "watchdog_freezes", "stalls of an executor", |k| k.facts.freezes.into()),
    server(
        Corral,
        Counter,
        "slow_disk_handovers",
        "times that this server transferred leadership because its log was not synced in time",
        |k| k.facts.slow_disk_transfers.into(),
    ),
    server(
        Corral,
        Gauge,
        "log_entries_kept",
        "log entries that the newest snapshot holds, and that the leader keeps on disk for servers that receive an older snapshot. 0 as a rule",
        |k| k.facts.log_entries_kept.into(),
    ),
    server(Corral, Text, "reconfig_step", "how far a membership change is: none, catching-up, entering, joint", |k| {
        k.facts.reconfig.word().into()
    }),
    server(Corral, Gauge, "disk_full", "1 while the log, or a snapshot of another server, has no space", |k| {
        k.facts.stalled.into()
    }),
    server(Corral, Gauge, "log_dir_free_bytes", "bytes left in the file system of the log", |k| {
        k.facts.spaces.first().map(|space| space.free_bytes).into()
    }),
    server(Corral, Gauge, "data_dir_free_bytes", "bytes left in the file system of the snapshots", |k| {
        k.facts.spaces.last().map(|space| space.free_bytes).into()
    }),
    server(Corral, Gauge, "disk_space_low", "1 while the next log segments and snapshots have no room", |k| {
        k.facts.spaces.iter().any(SpaceFacts::is_low).into()
    }),
    server(
        Corral,
        Gauge,
        "growth_refusing",
        "1 while this leader refuses writes that add data, because disk space or memory is scarce",
        |k| k.facts.growth_refusing.into(),
    ),
    server(
        Corral,
        Counter,
        "growth_refused",
        "writes of clients that this server refused for that reason while it led",
        |k| (k.facts.growth_refused + k.totals().statistics.growth_refused).into(),
    ),
    server(
        Corral,
        Counter,
        "rate_limited",
        "times that a connection was not read because its address was over a limit of `rate_limits`",
        |k| k.totals().statistics.rate_limited.into(),
    ),
    server(
        Corral,
        Gauge,
        "busiest_address_requests",
        "requests in a second of the address that sends most, in the last two seconds",
        |k| top::busiest(&k.report.top).map(|row| row.requests_per_second).into(),
    ),
    server(Corral, Text, "busiest_address", "this address", |k| {
        top::busiest(&k.report.top).map(|row| acl::address_text(*row.key)).as_deref().into()
    }),
    server(Corral, Gauge, "serving", "1 while the server accepts sessions and writes", |k| serves(k).into()),
    server(Corral, Text, "not_serving_reason", "why it does not, or none", |k| {
        // A server that has just lost its leader looks for the reason at its next tick.
        k.facts.obstacle.map_or(if serves(k) { "none" } else { "unknown" }, Obstacle::word).into()
    }),
    server(
        Corral,
        Gauge,
        "scrub_last_complete",
        "when the last scrub was complete, Unix seconds. 0 before the first",
        |k| k.facts.scrub.completed_s.into(),
    ),
    server(Corral, Counter, "scrub_bytes", "bytes that scrubs have read", |k| k.facts.scrub.bytes.into()),
    server(
        Corral,
        Counter,
        "scrub_damage_found",
        "damaged snapshots and logs, found by scrubs or when a new snapshot was written",
        |k| k.facts.scrub.damaged.into(),
    ),
    server(
        ZooKeeper,
        Counter,
        "digest_mismatches_count",
        "differences of the digest of the tree: to another server's at the same log entry, or when a snapshot was written or read",
        |k| k.facts.digest_mismatches.into(),
    ),
    server(
        Corral,
        Gauge,
        "state_distrusted",
        "1 while the state is damaged or differs from the others', and is being replaced",
        |k| k.facts.scrub.heals.into(),
    ),
    server(Corral, Counter, "audit_records", "with an audit log: records written", |k| {
        k.facts.audit.as_ref().map(|audit| audit.written).into()
    }),
    server(
        Corral,
        Counter,
        "audit_dropped",
        "with an audit log: records dropped because the disk was full or slow",
        |k| k.facts.audit.as_ref().map(|audit| audit.dropped).into(),
    ),
    server(
        Corral,
        Gauge,
        "audit_queued_bytes",
        "with an audit log: bytes of memory of records that are not written yet",
        |k| k.facts.audit.as_ref().map(|audit| audit.queued_bytes).into(),
    ),
    server(
        Corral,
        Gauge,
        "tls_certificate_expires",
        "with TLS: when the first of the certificates in use expires, Unix seconds",
        |k| k.facts.certificate_expires.map_or(Value::Absent, Value::Whole),
    ),
    server(Prometheus, Counter, "process_cpu_seconds_total", "CPU time of the process, user and system, s", |k| {
        Value::TenThousandths(k.facts.cpu_ten_thousandths)
    }),
    server(
        Corral,
        Gauge,
        "anonymous_memory_bytes",
        "memory of the process that no file backs, which `limits.memory_bytes_max` bounds",
        |k| k.facts.anonymous_bytes.into(),
    ),
    server(Prometheus, Gauge, "process_resident_memory_bytes", "resident memory, mapped files included", |k| {
        k.facts.resident_bytes.into()
    }),
    server(Prometheus, Gauge, "process_start_time_seconds", "when the process started, Unix seconds", |k| {
        k.facts.started.0.div_euclid(1000).max(0).unsigned_abs().into()
    }),
    labelled(
        Gauge,
        "memory_bytes",
        "owner",
        "estimated memory by owner. delta: changes of the tree since its snapshot, in shards and consensus actor. connections: their requests and replies. log: entries that are not applied. peers: messages that wait. watches and audit: theirs",
        Values::Numbers(memory_by_owner),
    ),
    labelled(
        Counter,
        "thread_cpu_seconds",
        "thread",
        "CPU time of the threads of this name, user and system, s. shard-N are the data cores",
        Values::Numbers(|k| {
            let threads = k.facts.threads.iter();
            threads.map(|(name, time)| (name.clone(), Value::TenThousandths(*time))).collect()
        }),
    ),
    shard(Gauge, "shard_connections", "client connections of the shard", |s| s.connections),
    shard(Counter, "shard_requests", "requests that the shard received", |s| s.requests),
    shard(Gauge, "shard_watches", "watches of the shard's connections, of both tables", |s| s.watches),
    peer(Gauge, "peer_connected", "1 while there are connections of both directions to the other server", |p| {
        p.is_connected().into()
    }),
    peer(Gauge, "peer_connected_out", "1 while the connection stands that this server dialled", |p| {
        p.connected_out.into()
    }),
    peer(Gauge, "peer_connected_in", "1 while the connection stands that the other server dialled", |p| {
        p.connected_in.into()
    }),
    peer(Counter, "peer_bytes_sent", "bytes sent to the other server", |p| p.bytes_out),
    peer(Counter, "peer_bytes_received", "bytes received from the other server", |p| p.bytes_in),
    peer(Counter, "peer_messages_sent", "messages sent to the other server", |p| p.messages_out),
    peer(Counter, "peer_messages_received", "messages received from the other server", |p| p.messages_in),
    peer(Gauge, "peer_queued_bytes", "bytes that wait to be sent to the other server", |p| p.queued_bytes),
    peer(Gauge, "peer_queued_messages", "messages that wait to be sent to the other server", |p| p.queued_messages),
    peer(
        Counter,
        "peer_messages_lost",
        "messages lost on the way to it: a connection broke, or too much waited. Raft repeats them if it must",
        |p| p.dropped,
    ),
    peer(Counter, "peer_reconnects", "connections with the other server made again", |p| p.reconnects),
    peer(Counter, "peer_dials_failed", "times that the other server was not reached", |p| p.dials_failed),
];

impl Metric {
    fn samples(&'static self, known: &Gathered) -> Vec<Sample> {
        match &self.source {
            Source::Server(value) => Vec::from([Sample { metric: self, label: None, value: value(known) }]),
            Source::Labelled(label, values) => {
                let sample = |(key, value)| Sample { metric: self, label: Some((*label, key)), value };
                values.of(known).into_iter().map(sample).collect()
            }
        }
    }

    /// The name in Prometheus: ZooKeeper's own, and by Prometheus' conventions where ZooKeeper has none.
    pub fn prometheus_name(&self) -> String {
        let name = self.name;
        match (self.origin, self.kind) {
            (Origin::Corral, Kind::Histogram) => format!("corral_{name}_seconds"),
            (Origin::Corral, Kind::Counter) => format!("corral_{name}_total"),
            (Origin::Corral, _) => format!("corral_{name}"),
            (Origin::ZooKeeper | Origin::Prometheus, _) => String::from(name),
        }
    }

    /// The name in `mntr`, for documentation. A label in capitals stands for its values.
    pub fn mntr_name(&self) -> String {
        let name = self.name;
        match (&self.source, self.kind) {
            (Source::Labelled(label, _), Kind::Histogram) => {
                let name = self.name_with(label, &label.to_uppercase());
                format!("zk_{{cnt,avg,p50,p95,p99,p999}}_{name}")
            }
            (Source::Labelled(label, _), _) => format!("zk_{}", self.name_with(label, &label.to_uppercase())),
            (Source::Server(_), Kind::Summary) => format!("zk_{{avg,min,max,cnt,sum}}_{name}"),
            (Source::Server(_), _) => format!("zk_{name}"),
        }
    }

    /// The name with the value of a label in it, for `mntr`.
    fn name_with(&self, label: &str, value: &str) -> String {
        let unit = if self.kind == Kind::Histogram { "_ms" } else { "" };
        match self.name.strip_prefix(label) {
            Some(rest) => format!("{label}_{value}{rest}{unit}"),
            None => format!("{value}_{}{unit}", self.name),
        }
    }
}

impl Sample {
    /// Its lines: a name without `zk_`, and a number or a text.
    pub fn lines(self) -> Vec<(String, Value)> {
        self.value.lines(match self.label {
            Some((label, value)) => self.metric.name_with(label, &value.replace(' ', "-")),
            None => String::from(self.metric.name),
        })
    }
}

/// All metrics that this server has, in the order of the table. Gathered for [`FourLetter::Mntr`](corral_wire::fourletter::FourLetter::Mntr).
pub fn samples(known: &Gathered) -> impl Iterator<Item = Sample> {
    METRICS.iter().flat_map(|metric| metric.samples(known)).filter(|sample| sample.value != Value::Absent)
}

/// The lines of `mntr`: `zk_NAME`, a tab, the value.
pub(super) fn text(known: &Gathered) -> String {
    let mut text = String::new();
    for (name, value) in samples(known).flat_map(Sample::lines) {
        // To write to a string cannot fail.
        let _ = match value {
            Value::Whole(number) => writeln!(text, "zk_{name}\t{number}"),
            Value::TenThousandths(number) => writeln!(text, "zk_{name}\t{}", decimal(number)),
            Value::Text(word) => writeln!(text, "zk_{name}\t{word}"),
            Value::Absent | Value::Summary(_) | Value::Histogram(_) => Ok(()),
        };
    }
    text
}

#[cfg(test)]
mod tests;
