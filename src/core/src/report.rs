//! What a shard tells of itself, and the texts of the four-letter words made from all shards' reports (protocol
//! chapter 23).

use crate::ids::{Millis, Zxid};
use crate::shard::Shard;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use core::net::SocketAddr;
use corral_wire::fourletter::FourLetter;

/// Counters of one shard since its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics {
    pub received: u64,
    pub sent: u64,
    pub latency_ms_min: Option<u64>,
    pub latency_ms_max: u64,
    pub latency_ms_sum: u64,
    pub latency_count: u64,
}

impl Statistics {
    pub(crate) fn latency(&mut self, ms: u64) {
        self.latency_ms_min = Some(self.latency_ms_min.map_or(ms, |min| min.min(ms)));
        self.latency_ms_max = self.latency_ms_max.max(ms);
        self.latency_ms_sum += ms;
        self.latency_count += 1;
    }

    fn merge(&mut self, other: &Self) {
        self.received += other.received;
        self.sent += other.sent;
        self.latency_ms_min = match (self.latency_ms_min, other.latency_ms_min) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.latency_ms_max = self.latency_ms_max.max(other.latency_ms_max);
        self.latency_ms_sum += other.latency_ms_sum;
        self.latency_count += other.latency_count;
    }
}

/// One connection, as `stat` lists it.
#[derive(Clone, Debug)]
pub struct ConnLine {
    pub peer: SocketAddr,
    pub reading: bool,
    pub queued: usize,
    pub received: u64,
    pub sent: u64,
}

/// One shard's part of an answer; merged with the others'.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub statistics: Statistics,
    pub connections: u64,
    pub outstanding: u64,
    pub watches: u64,
    pub lines: Vec<ConnLine>,
    /// The rest is the same on every shard at the same zxid; the newest counts.
    pub zxid: Zxid,
    pub nodes: u64,
    pub data_bytes: u64,
    pub ephemerals: u64,
    pub sessions: u64,
}

impl Report {
    /// Takes another shard's report in.
    pub fn merge(&mut self, other: Self) {
        self.statistics.merge(&other.statistics);
        self.connections += other.connections;
        self.outstanding += other.outstanding;
        self.watches += other.watches;
        self.lines.extend(other.lines);
        if other.zxid >= self.zxid {
            self.zxid = other.zxid;
            self.nodes = other.nodes;
            self.data_bytes = other.data_bytes;
            self.ephemerals = other.ephemerals;
            self.sessions = other.sessions;
        }
    }

    /// In tenths of microseconds, as text in milliseconds.
    fn average_latency(&self) -> String {
        decimal(self.statistics.latency_ms_sum * 10_000 / self.statistics.latency_count.max(1))
    }
}

impl Shard {
    /// This shard's part of the answer to a four-letter word; `word` decides whether connections are listed.
    pub fn report(&self, word: FourLetter) -> Report {
        let lines = if word == FourLetter::Stat { self.conns.iter().map(line).collect() } else { Vec::new() };
        Report {
            statistics: self.statistics,
            connections: self.conns.len() as u64,
            outstanding: self.conns.iter().map(|conn| conn.pending.len() as u64).sum(),
            watches: self.watches.len() as u64,
            lines,
            zxid: self.view.zxid(),
            // ZooKeeper counts its root twice, under `/` and under the empty path.
            nodes: self.view.node_count() + 1,
            data_bytes: self.view.data_bytes(),
            ephemerals: self.view.ephemerals_count(),
            sessions: self.sessions_alive,
        }
    }
}

fn line(conn: &crate::conn::Conn) -> ConnLine {
    ConnLine {
        peer: conn.peer,
        reading: conn.word.is_none() && !conn.stalled,
        queued: conn.pending.len(),
        received: conn.counters.received,
        sent: conn.counters.sent,
    }
}

/// What the process knows and no shard does.
#[derive(Clone, Debug)]
pub struct ServerFacts {
    /// As in `3.9.4-corral 0.1.0, built on ...`.
    pub version: String,
    pub open_files: u64,
    pub open_files_max: u64,
    /// How often a core stood still long enough for the watchdog to see it.
    pub freezes: u64,
}

/// The whole answer to a word; `None` for one that is not served.
pub fn render(word: FourLetter, report: &Report, facts: &ServerFacts, now: Millis) -> Option<String> {
    match word {
        FourLetter::Srvr => Some(server_block(report, facts, false)),
        FourLetter::Stat => Some(server_block(report, facts, true)),
        FourLetter::Mntr => Some(monitor(report, facts, now)),
        _ => None,
    }
}

fn server_block(report: &Report, facts: &ServerFacts, clients: bool) -> String {
    let mut text = format!("Zookeeper version: {}\n", facts.version);
    if clients {
        text.push_str("Clients:\n");
        for line in &report.lines {
            let _ = writeln!(
                text,
                " /{}[{}](queued={},recved={},sent={})",
                line.peer,
                u8::from(line.reading),
                line.queued,
                line.received,
                line.sent
            );
        }
        text.push('\n');
    }
    let statistics = &report.statistics;
    let average = report.average_latency();
    let _ = write!(
        text,
        "Latency min/avg/max: {}/{average}/{}\nReceived: {}\nSent: {}\nConnections: {}\nOutstanding: {}\nZxid: {}\n\
         Mode: standalone\nNode count: {}\n",
        statistics.latency_ms_min.unwrap_or(0),
        statistics.latency_ms_max,
        statistics.received,
        statistics.sent,
        report.connections,
        report.outstanding,
        report.zxid,
        report.nodes,
    );
    text
}

/// Ten-thousandths as Java prints a double rounded to four digits: at least one after the point, no trailing zeros.
fn decimal(ten_thousandths: u64) -> String {
    let mut text = format!("{}.{:04}", ten_thousandths / 10_000, ten_thousandths % 10_000);
    while text.ends_with('0') && !text.ends_with(".0") {
        text.pop();
    }
    text
}

fn monitor(report: &Report, facts: &ServerFacts, now: Millis) -> String {
    let statistics = &report.statistics;
    let mut text = String::new();
    let mut put = |key: &str, value: &dyn core::fmt::Display| {
        let _ = writeln!(text, "zk_{key}\t{value}");
    };
    put("version", &facts.version);
    put("server_state", &"standalone");
    put("peer_state", &"leading - broadcast");
    put("avg_latency", &report.average_latency());
    put("min_latency", &statistics.latency_ms_min.unwrap_or(0));
    put("max_latency", &statistics.latency_ms_max);
    put("packets_received", &statistics.received);
    put("packets_sent", &statistics.sent);
    put("num_alive_connections", &report.connections);
    put("outstanding_requests", &report.outstanding);
    put("znode_count", &report.nodes);
    put("watch_count", &report.watches);
    put("ephemerals_count", &report.ephemerals);
    put("approximate_data_size", &report.data_bytes);
    put("global_sessions", &report.sessions);
    put("local_sessions", &0);
    put("open_file_descriptor_count", &facts.open_files);
    put("max_file_descriptor_count", &facts.open_files_max);
    put("uptime", &now.0);
    put("watchdog_freezes", &facts.freezes);
    text
}

#[cfg(test)]
mod tests {
    use super::decimal;

    #[test]
    fn decimals_as_java_prints_them() {
        for (value, text) in [(0, "0.0"), (5000, "0.5"), (4217, "0.4217"), (120_000, "12.0"), (12_500, "1.25")] {
            assert_eq!(decimal(value), text);
        }
    }
}
