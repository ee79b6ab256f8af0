//! `mntr`: ZooKeeper's metric names with what is known here, no more. The list is in `docs/metrics.md`.

use super::{Latency, Mode, Obstacle, Quorum, ServerFacts, Timing, Totals, decimal};
use crate::ids::Millis;
use alloc::format;
use alloc::string::String;
use core::fmt::{Display, Write};

/// `zk_<key>\t<value>` lines.
struct Lines(String);

impl Lines {
    fn put(&mut self, key: &str, value: impl Display) {
        let _ = writeln!(self.0, "zk_{key}\t{value}");
    }

    /// ZooKeeper's basic summary, milliseconds.
    fn latency(&mut self, key: &str, of: &Latency) {
        self.put(&format!("avg_{key}"), decimal(of.average()));
        self.put(&format!("min_{key}"), of.ms_min());
        self.put(&format!("max_{key}"), of.ms_max);
        self.put(&format!("cnt_{key}"), of.count);
        self.put(&format!("sum_{key}"), of.ms_sum);
    }

    /// The state of disk and data, which ZooKeeper does not tell.
    fn own(&mut self, facts: &ServerFacts) {
        self.put("disk_full", u8::from(facts.stalled));
        let serves = facts.obstacle.is_none() && facts.mode != Mode::Looking;
        self.put("serving", u8::from(serves));
        // A server that has just lost its leader looks for the reason at its next tick.
        self.put("not_serving_reason", facts.obstacle.map_or(if serves { "none" } else { "unknown" }, Obstacle::word));
        self.put("scrub_last_complete", facts.scrub.completed_s);
        self.put("scrub_bytes", facts.scrub.bytes);
        self.put("scrub_damage_found", facts.scrub.damaged);
        self.put("digest_mismatches_count", facts.digest_mismatches);
        self.put("state_distrusted", u8::from(facts.scrub.heals));
    }

    /// A leader alone knows who keeps up.
    fn quorum(&mut self, quorum: &Quorum, mode: Mode) {
        self.put("quorum_size", quorum.size);
        if mode == Mode::Leader {
            self.put("learners", quorum.learners);
            self.put("synced_followers", quorum.synced_followers);
            self.put("synced_non_voting_followers", quorum.synced_non_voting_followers);
            self.put("synced_observers", quorum.synced_observers);
        }
    }

    /// The same, of something measured in microseconds: whole milliseconds but for the average.
    fn timing(&mut self, key: &str, of: &Timing) {
        self.put(&format!("avg_{key}"), decimal(of.us_sum.saturating_mul(10) / of.count.max(1)));
        self.put(&format!("min_{key}"), of.us_min / 1000);
        self.put(&format!("max_{key}"), of.us_max / 1000);
        self.put(&format!("cnt_{key}"), of.count);
        self.put(&format!("sum_{key}"), of.us_sum / 1000);
    }
}

/// What a server tells that does not serve, behind ZooKeeper's sentence.
pub(super) fn not_serving(facts: &ServerFacts) -> String {
    let mut lines = Lines(String::new());
    lines.own(facts);
    lines.0
}

pub(super) fn text(totals: &Totals, facts: &ServerFacts, now: Millis) -> String {
    let statistics = &totals.statistics;
    let latency = statistics.latency();
    let mut lines = Lines(String::new());
    lines.put("version", &facts.version);
    lines.put("server_state", facts.mode.word());
    lines.put("ephemerals_count", totals.ephemerals);
    lines.put("num_alive_connections", totals.connections);
    lines.put("avg_latency", decimal(latency.average()));
    lines.put("outstanding_requests", totals.outstanding);
    lines.put("znode_count", totals.nodes);
    lines.put("global_sessions", totals.sessions);
    lines.put("packets_sent", statistics.sent);
    lines.put("packets_received", statistics.received);
    lines.put("watch_count", totals.watches);
    lines.put("auth_failed_count", statistics.auths_failed);
    lines.put("min_latency", latency.ms_min());
    lines.put("max_file_descriptor_count", facts.open_files_max);
    lines.put("approximate_data_size", totals.data_bytes);
    lines.put("open_file_descriptor_count", facts.open_files);
    lines.put("local_sessions", 0);
    lines.put("uptime", now.0);
    lines.put("max_latency", latency.ms_max);
    lines.put("connection_rejected", facts.connections_refused);
    lines.put("unsuccessful_handshake", facts.handshakes_failed);
    lines.put("connection_request_count", statistics.connects);
    lines.put("sessionless_connections_expired", statistics.never_connected);
    lines.put("stale_sessions_expired", statistics.sessions_expired);
    lines.put("bytes_received_count", statistics.bytes_received);
    lines.put("response_bytes", statistics.bytes_sent);
    lines.latency("readlatency", &statistics.reads);
    lines.latency("updatelatency", &statistics.updates);
    lines.timing("fsynctime", &facts.syncs);
    lines.timing("snapshottime", &facts.snapshots);
    if let Some(quorum) = &facts.quorum {
        lines.quorum(quorum, facts.mode);
    }
    lines.put("watchdog_freezes", facts.freezes);
    lines.put("slow_disk_handovers", facts.slow_disk_transfers);
    lines.put("log_entries_kept", facts.log_entries_kept);
    lines.put("reconfig_step", facts.reconfig.word());
    lines.own(facts);
    if let Some(audit) = &facts.audit {
        lines.put("audit_records", audit.written);
        lines.put("audit_dropped", audit.dropped);
        lines.put("audit_queued_bytes", audit.queued_bytes);
    }
    if let Some(expires) = facts.certificate_expires {
        lines.put("tls_certificate_expires", expires);
    }
    for peer in &facts.peers {
        let id = peer.id;
        lines.put(&format!("peer_{id}_connected"), u8::from(peer.connected));
        lines.put(&format!("peer_{id}_bytes_sent"), peer.bytes_out);
        lines.put(&format!("peer_{id}_bytes_received"), peer.bytes_in);
        lines.put(&format!("peer_{id}_messages_sent"), peer.messages_out);
        lines.put(&format!("peer_{id}_messages_received"), peer.messages_in);
        lines.put(&format!("peer_{id}_queued_bytes"), peer.queued_bytes);
        lines.put(&format!("peer_{id}_queued_messages"), peer.queued_messages);
        lines.put(&format!("peer_{id}_messages_lost"), peer.dropped);
        lines.put(&format!("peer_{id}_reconnects"), peer.reconnects);
        lines.put(&format!("peer_{id}_dials_failed"), peer.dials_failed);
    }
    lines.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_as_zookeeper_prints_them() {
        let mut lines = Lines(String::new());
        let mut latency = Latency::default();
        for ms in [0, 14, 1] {
            latency.note(ms);
        }
        lines.latency("readlatency", &latency);
        lines.timing("fsynctime", &Timing { count: 4, us_sum: 5000, us_min: 400, us_max: 3600 });
        lines.timing("snapshottime", &Timing::default());
        let expect = "zk_avg_readlatency\t5.0\nzk_min_readlatency\t0\nzk_max_readlatency\t14\nzk_cnt_readlatency\t3\n\
                      zk_sum_readlatency\t15\nzk_avg_fsynctime\t1.25\nzk_min_fsynctime\t0\nzk_max_fsynctime\t3\n\
                      zk_cnt_fsynctime\t4\nzk_sum_fsynctime\t5\nzk_avg_snapshottime\t0.0\nzk_min_snapshottime\t0\n\
                      zk_max_snapshottime\t0\nzk_cnt_snapshottime\t0\nzk_sum_snapshottime\t0\n";
        assert_eq!(lines.0, expect);
    }

    #[test]
    fn every_line_is_a_key_and_a_value_and_none_comes_twice() {
        let text = text(&Totals::default(), &ServerFacts::default(), Millis(0));
        let mut keys: alloc::vec::Vec<&str> = text.lines().filter_map(|line| Some(line.split_once('\t')?.0)).collect();
        assert_eq!(keys.len(), text.lines().count());
        keys.sort_unstable();
        assert!(keys.windows(2).all(|pair| pair[0] != pair[1]), "{keys:?}");
    }
}
