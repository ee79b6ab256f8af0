//! The table of metrics. `mntr`, the Prometheus endpoint and `docs/metrics.md` are rendered from it: a new metric is a row here, and
//! an increment where it is counted.
//!
//! Names are those of ZooKeeper 3.9 where it has the metric (protocol chapter 25).

use super::process::PeerFacts;
use super::value::{Summary, Value};
use super::{Gathered, Histogram, Latency, LatencyFacts, Mode, Obstacle, Quantiles, Quorum, Sizes, Timing, decimal};
use crate::acl;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The value of now.
    Gauge,
    /// Grows until the server is restarted, or `srst` resets it.
    Counter,
    /// Number, sum, average and extremes of durations, in milliseconds.
    Summary,
    /// Durations: in milliseconds in `mntr`, in seconds in Prometheus.
    Histogram,
    /// A word or a sentence.
    Text,
}

impl Kind {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Summary => "summary",
            Self::Histogram => "histogram",
            Self::Text => "text",
        }
    }
}

/// Where the name and the meaning of a metric come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    ZooKeeper,
    /// The process metrics that all of Prometheus' client libraries export.
    Prometheus,
    Corral,
}

/// A row of the table.
pub struct Metric {
    /// Without the `zk_` that `mntr` puts in front.
    pub name: &'static str,
    pub kind: Kind,
    pub origin: Origin,
    /// One sentence or more, with the unit, without Markdown.
    pub help: &'static str,
    source: Source,
}

/// The function that gives the value.
enum Source {
    /// Of this server.
    Server(fn(&Gathered) -> Value),
    /// Of each other server of an ensemble.
    Peer(fn(&PeerFacts) -> u64),
    /// One for each value of this label.
    Labelled(&'static str, fn(&LatencyFacts) -> &[(&'static str, Histogram)]),
}

/// A metric with its value.
pub struct Sample {
    pub metric: &'static Metric,
    /// The other server that it is about.
    pub peer: Option<u64>,
    /// Name and value of a label.
    pub label: Option<(&'static str, &'static str)>,
    pub value: Value,
}

impl From<&Timing> for Value {
    fn from(of: &Timing) -> Self {
        let average_ten_thousandths = of.us_sum.saturating_mul(10) / of.count.max(1);
        let (sum, min, max) = (of.us_sum / 1000, of.us_min / 1000, of.us_max / 1000);
        Self::Summary(Summary { count: of.count, sum, min, max, average_ten_thousandths, quantiles: None })
    }
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
    Metric { name, kind, origin: Origin::Corral, help, source: Source::Peer(value) }
}

const fn labelled(
    name: &'static str,
    label: &'static str,
    help: &'static str,
    values: fn(&LatencyFacts) -> &[(&'static str, Histogram)],
) -> Metric {
    let source = Source::Labelled(label, values);
    Metric { name, kind: Kind::Histogram, origin: Origin::Corral, help, source }
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

fn serves(known: &Gathered) -> bool {
    known.facts.obstacle.is_none() && known.facts.mode != Mode::Looking
}

use Kind::{Counter, Gauge, Summary as Durations, Text};
use Origin::{Corral, Prometheus, ZooKeeper};

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
        |k| k.facts.leader.filter(|_| k.facts.mode == Mode::Observer).into(),
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
        "request",
        "operation",
        "requests from their receipt until their reply is given to the kernel",
        |latencies| &latencies.operations,
    ),
    labelled(
        "write_stage",
        "stage",
        "stages of writes. queue: from the shard to the consensus actor. sync: from there until the log is synced. commit: until a majority has the log entry and this server has evaluated it. apply: from there until a shard has applied it",
        |latencies| &latencies.stages,
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
        k.facts.spaces.iter().any(super::SpaceFacts::is_low).into()
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
        |k| k.report.top.busiest().map(|row| row.requests_per_second).into(),
    ),
    server(Corral, Text, "busiest_address", "this address", |k| {
        k.report.top.busiest().map(|row| acl::address_text(*row.key)).as_deref().into()
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
    peer(Gauge, "connected", "1 while there are connections of both directions to the other server", |p| {
        p.connected.into()
    }),
    peer(Counter, "bytes_sent", "bytes sent to the other server", |p| p.bytes_out),
    peer(Counter, "bytes_received", "bytes received from the other server", |p| p.bytes_in),
    peer(Counter, "messages_sent", "messages sent to the other server", |p| p.messages_out),
    peer(Counter, "messages_received", "messages received from the other server", |p| p.messages_in),
    peer(Gauge, "queued_bytes", "bytes that wait to be sent to the other server", |p| p.queued_bytes),
    peer(Gauge, "queued_messages", "messages that wait to be sent to the other server", |p| p.queued_messages),
    peer(
        Counter,
        "messages_lost",
        "messages lost on the way to it: a connection broke, or too much waited. Raft repeats them if it must",
        |p| p.dropped,
    ),
    peer(Counter, "reconnects", "connections with the other server made again", |p| p.reconnects),
    peer(Counter, "dials_failed", "times that the other server was not reached", |p| p.dials_failed),
];

impl Metric {
    /// The name in Prometheus: ZooKeeper's own, and by Prometheus' conventions where ZooKeeper has none.
    pub fn prometheus_name(&self) -> String {
        let (of, name) = (if matches!(self.source, Source::Peer(_)) { "peer_" } else { "" }, self.name);
        match (self.origin, self.kind) {
            (Origin::Corral, Kind::Histogram) => format!("corral_{of}{name}_seconds"),
            (Origin::Corral, Kind::Counter) => format!("corral_{of}{name}_total"),
            (Origin::Corral, _) => format!("corral_{of}{name}"),
            (Origin::ZooKeeper | Origin::Prometheus, _) => format!("{of}{name}"),
        }
    }

    /// The name in `mntr`, for documentation. `N` stands for the id of another server.
    pub fn mntr_name(&self) -> String {
        let name = self.name;
        match (&self.source, self.kind) {
            (Source::Peer(_), _) => format!("zk_peer_N_{name}"),
            (Source::Labelled(label, _), _) => {
                format!("zk_{{cnt,avg,p50,p95,p99,p999}}_{}_{name}_ms", label.to_uppercase())
            }
            (_, Kind::Summary) => format!("zk_{{avg,min,max,cnt,sum}}_{name}"),
            _ => format!("zk_{name}"),
        }
    }
}

/// All metrics that this server has, in the order of the table.
pub(super) fn samples(known: &Gathered) -> impl Iterator<Item = Sample> {
    let of = move |metric: &'static Metric| {
        let sample = |value| Sample { metric, peer: None, label: None, value };
        match metric.source {
            Source::Server(value) => Vec::from([sample(value(known))]),
            Source::Peer(value) => {
                let of = |facts: &PeerFacts| Sample { peer: Some(facts.id), ..sample(value(facts).into()) };
                known.facts.peers.iter().map(of).collect()
            }
            Source::Labelled(label, values) => {
                let of = |(key, times): &(&'static str, Histogram)| Sample {
                    label: Some((label, key)),
                    ..sample(Value::Histogram(Box::new(*times)))
                };
                values(&known.facts.latencies).iter().map(of).collect()
            }
        }
    };
    METRICS.iter().flat_map(of).filter(|sample| sample.value != Value::Absent)
}

impl Sample {
    /// Its lines: a name without `zk_`, and a number or a text.
    pub fn lines(self) -> Vec<(String, Value)> {
        let name = self.metric.name;
        self.value.lines(match (self.peer, self.label) {
            (Some(id), _) => format!("peer_{id}_{name}"),
            (None, Some((_, value))) => format!("{value}_{name}_ms"),
            (None, None) => String::from(name),
        })
    }
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
