//! A server that answers by HTTP: facts from its answers, and findings from facts.
//!
//! Pure. It uses answers that every client gets, and leaves out whatever an answer lacks.

use std::collections::BTreeMap;
use std::time::Duration;

use indicatif::HumanBytes;
use serde_json::{Value, json};

use super::clock::Offset;
use super::pages;
use super::report::{Fact, Finding, Severity};
use crate::cli::health::Probe;
use crate::cli::http::{Answer, TimedAnswer};
use crate::cli::security::DAYS_LEFT_MIN;
use crate::config::members::Members;
use crate::config::value::{Field, Limits, Raw, Role};
use crate::net::tls::DAY_S;

/// The paths that are asked for, in this order.
pub(super) const PATHS: [&str; 9] = [
    "/readyz?verbose",
    "/healthz?verbose",
    "/commands/monitor",
    "/commands/zabstate",
    "/commands/system_properties",
    "/commands/leader",
    "/commands/voting_view",
    "/commands/server_stats",
    "/commands/hash",
];

/// A larger difference of two clocks is a finding.
pub(super) const CLOCK_MS_MAX: i64 = 1000;
/// A larger average of the syncs since the start is a finding, ms.
const SYNC_MS_MAX: f64 = 50.0;
/// More of a limit in use is a finding, percent.
const USED_PERCENT_MAX: u64 = 80;

/// A server that answered.
#[derive(Clone, Default)]
pub(super) struct Server {
    pub(super) address: String,
    took: Duration,
    pub(super) clock: Option<Offset>,
    /// Failing checks, with the worst consequence of each.
    failing: Vec<(Severity, String)>,
    passed: usize,
    /// The status of the metrics, if it is not 200.
    refused: Option<u16>,
    monitor: Value,
    settings: Value,
    /// Days until its first certificate expires.
    days_left: Option<i64>,
    /// Its number, if it is a member of an ensemble.
    pub(super) id: Option<u64>,
    pub(super) zxid: Option<u64>,
    /// The leader that it knows.
    pub(super) leader: Option<u64>,
    /// The voters that it knows, and their addresses for other servers. While it does not serve: those of its configuration.
    pub(super) voters: BTreeMap<u64, String>,
    /// Digests of the tree by zxid.
    pub(super) digests: BTreeMap<u64, u64>,
}

impl Server {
    /// From the answers to [`PATHS`].
    ///
    /// # Errors
    /// If they are not those of corral.
    pub(super) fn of(address: String, answers: &[TimedAnswer], now_s: i64) -> Result<Server, String> {
        let [ready, healthy, monitor, zab, settings, leader, voters, stats, hash] = answers else {
            return Err("not all questions were answered".to_owned());
        };
        let (ready_probe, healthy_probe) =
            (Probe::of(&ready.answer, "readyz")?, Probe::of(&healthy.answer, "healthz")?);
        let mut failing: Vec<_> = ready_probe.faults.iter().map(|fault| (Severity::Critical, *fault)).collect();
        // Its first words name the check.
        let name = |fault: &str| fault.split(' ').next().map(str::to_owned);
        failing.extend(
            healthy_probe
                .faults
                .iter()
                .filter(|fault| !ready_probe.faults.iter().any(|other| name(other) == name(fault)))
                .map(|fault| (Severity::Warning, *fault)),
        );
        let (zab, leader, stats) = (fields(&zab.answer), fields(&leader.answer), fields(&stats.answer));
        let mut server = Server {
            address,
            took: ready.received.duration_since(ready.sent).unwrap_or_default(),
            clock: answers.iter().filter_map(|one| Offset::of(&one.date, one.sent, one.received)).reduce(Offset::and),
            failing: failing.into_iter().map(|(severity, fault)| (severity, fault.to_owned())).collect(),
            passed: healthy_probe.passed.len(),
            refused: Some(monitor.answer.0).filter(|status| *status != 200),
            monitor: fields(&monitor.answer),
            settings: fields(&settings.answer),
            days_left: None,
            id: zab.get("myid").and_then(Value::as_u64),
            zxid: zab.get("last_zxid").and_then(Value::as_str).and_then(hex),
            leader: leader.get("leader_id").and_then(Value::as_u64),
            voters: voters_of(&fields(&voters.answer)),
            digests: digests_of(&fields(&hash.answer)),
        };
        if server.voters.is_empty() {
            server.voters = configured_voters(&server.settings);
        }
        server.zxid = server.zxid.or_else(|| stats.get("server_stats")?.get("last_processed_zxid")?.as_u64());
        let expires = server.number("tls_certificate_expires").and_then(|expires| i64::try_from(expires).ok());
        server.days_left =
            expires.filter(|expires| *expires > 0).map(|expires| expires.saturating_sub(now_s).div_euclid(DAY_S));
        Ok(server)
    }

    /// A metric that is a whole number.
    pub(super) fn number(&self, metric: &str) -> Option<u64> {
        self.monitor.get(metric)?.as_u64()
    }

    pub(super) fn word(&self, metric: &str) -> &str {
        self.monitor.get(metric).and_then(Value::as_str).unwrap_or_default()
    }

    /// Version of the program, without the date of its build.
    pub(super) fn version(&self) -> &str {
        self.word("version").split(',').next().unwrap_or_default()
    }

    pub(super) fn is_leader(&self) -> bool {
        self.word("server_state") == "leader"
    }

    /// The limit of connections. 0 stands for none.
    fn connections_max(&self) -> Option<u64> {
        self.settings.get("limits.connections_max")?.as_str()?.parse().ok().filter(|max| *max > 0)
    }

    /// A sentence for each other server to which a connection is missing.
    fn disconnected(&self) -> Vec<String> {
        let metrics = self.monitor.as_object().into_iter().flatten().filter(|(_, value)| value.as_u64() == Some(0));
        let peers = metrics.filter_map(|(metric, _)| metric.strip_prefix("peer_")?.strip_suffix("_connected"));
        let stands = |peer: &str, way: &str| self.number(&format!("peer_{peer}_connected_{way}"));
        let sentence = |peer: &str| match (stands(peer, "out"), stands(peer, "in")) {
            (Some(1), Some(0)) => format!(
                "it is connected to server {peer}, which is not connected to it: the address of this server in the list of that one is wrong or \
                 blocked, or the log of that server has the reason"
            ),
            (Some(0), Some(1)) => {
                format!(
                    "server {peer} is connected to it, and it is not connected to server {peer}: its log has the reason"
                )
            }
            _ => format!("it is not connected to server {peer}"),
        };
        peers.map(sentence).collect()
    }

    /// The lines of the page.
    pub(super) fn facts(&self) -> Vec<Fact> {
        let took_ms = u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX);
        let mut facts = vec![
            Fact::new("answer", format!("{took_ms} ms"), json!({"ms": took_ms})),
            Fact::text("version", self.version()),
            Fact::text("role", self.role()),
        ];
        facts.extend(self.zxid.map(|zxid| Fact::text("zxid", format!("0x{zxid:x}"))));
        facts.push(Fact::new(
            "checks",
            format!("{} pass, {} fail", self.passed, self.failing.len()),
            json!({"pass": self.passed, "fail": self.failing.len()}),
        ));
        facts.extend(self.connections());
        let files = self.number("open_file_descriptor_count").zip(self.number("max_file_descriptor_count"));
        facts.extend(files.map(|(open, max)| {
            Fact::new("files", format!("{open} of {max} descriptors"), json!({"open": open, "max": max}))
        }));
        facts.extend(self.syncs());
        let free = self.number("log_dir_free_bytes").zip(self.number("data_dir_free_bytes"));
        facts.extend(free.map(|(log, data)| {
            let shown = format!("{} for the log, {} for snapshots", HumanBytes(log), HumanBytes(data));
            Fact::new("free space", shown, json!({"log_bytes": log, "data_bytes": data}))
        }));
        facts.extend(self.clock.map(|clock| Fact::new("clock", clock.shown(), clock.json())));
        facts.extend(self.days_left.map(|days| {
            Fact::new("certificates", format!("the first one expires in {days} days"), json!({"days": days}))
        }));
        facts
    }

    fn role(&self) -> String {
        let state = self.word("server_state");
        match (self.id, self.leader) {
            (None, _) => state.to_owned(),
            (Some(id), Some(leader)) if !self.is_leader() => format!("{state}, server {id}, of leader {leader}"),
            (Some(id), _) => format!("{state}, server {id}"),
        }
    }

    fn connections(&self) -> Option<Fact> {
        let (open, max) = (self.number("num_alive_connections")?, self.connections_max());
        let shown = max.map_or_else(|| open.to_string(), |max| format!("{open} of {max}"));
        Some(Fact::new("connections", shown, json!({"open": open, "max": max})))
    }

    fn syncs(&self) -> Option<Fact> {
        let (count, average) = (self.number("cnt_fsynctime")?, self.average_sync_ms()?);
        let (max, slow) = (self.number("max_fsynctime")?, self.number("slow_syncs")?);
        let shown = format!("{count} since the start: average {average:.1} ms, longest {max} ms, {slow} slow");
        Some(Fact::new("log syncs", shown, json!({"count": count, "average_ms": average, "max_ms": max, "slow": slow})))
    }

    fn average_sync_ms(&self) -> Option<f64> {
        self.monitor.get("avg_fsynctime")?.as_f64()
    }

    /// Findings of this server alone.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings: Vec<Finding> =
            self.failing.iter().map(|(severity, fault)| of_check(*severity, fault)).collect();
        let mut warn =
            |check: &str, sentence: String, advice: &str| findings.push(Finding::warning(check, sentence, advice));
        if let Some(status) = self.refused {
            let sentence = format!(
                "/commands/monitor gives status {status}, so metrics and members are not examined: the commands are off or below \
                 another path"
            );
            warn("commands", sentence, pages::LISTENS);
        }
        if let Some(days) = self.days_left.filter(|days| (0..DAYS_LEFT_MIN).contains(days)) {
            warn("certificates", format!("a certificate in use expires in {days} days"), pages::CERTIFICATES);
        }
        for sentence in self.disconnected() {
            warn("peers", sentence, pages::READ_THE_LOG);
        }
        let behind = self.number("quorum_size").zip(self.number("synced_followers")).filter(|_| self.is_leader());
        if let Some((voters, synced)) = behind.filter(|(voters, synced)| synced.saturating_add(1) < *voters) {
            let sentence = format!(
                "{synced} of {} followers have all entries: another server is stopped, disconnected or slow",
                voters.saturating_sub(1)
            );
            warn("followers", sentence, pages::NOT_SERVING);
        }
        self.numbers(&mut warn);
        if let Some(clock) = self.clock.filter(|clock| clock.exceeds(CLOCK_MS_MAX)) {
            let sentence = format!("its clock differs from the clock of this host: {}", clock.shown());
            warn("clock", sentence, "timedatectl status on both hosts");
        }
        findings
    }

    /// Numbers beyond their limits.
    fn numbers(&self, warn: &mut impl FnMut(&str, String, &str)) {
        if self.average_sync_ms().is_some_and(|average| average > SYNC_MS_MAX) {
            let sentence =
                format!("a sync of the log takes more than {SYNC_MS_MAX} ms on average, and each write waits for one");
            warn("syncs", sentence, pages::DISK_SLOW);
        }
        let counts = [
            (
                "digests",
                "digest_mismatches_count",
                "differences of its digest to another server's or to a snapshot's",
                pages::DIGESTS,
            ),
            (
                "scrub",
                "scrub_damage_found",
                "damaged files, by its scrubber",
                "corral verify DIR with its data directory, on its host",
            ),
        ];
        for (check, metric, of, advice) in counts {
            if let Some(count) = self.number(metric).filter(|count| *count > 0) {
                warn(check, format!("it has found {count} {of}"), advice);
            }
        }
        let used = [
            (
                "descriptors",
                "open_file_descriptor_count",
                self.number("max_file_descriptor_count"),
                "file descriptors",
                pages::LIMITS,
            ),
            ("connections", "num_alive_connections", self.connections_max(), "connections", pages::CLIENTS),
        ];
        for (check, metric, max, of, advice) in used {
            let Some((open, max)) = self.number(metric).zip(max) else { continue };
            if open.saturating_mul(100) > max.saturating_mul(USED_PERCENT_MAX) {
                warn(check, format!("{open} of at most {max} {of} are open"), advice);
            }
        }
    }
}

/// A failing check of a probe, which begins with its name, with the page about it.
fn of_check(severity: Severity, fault: &str) -> Finding {
    let (check, _) = fault.split_once(' ').unwrap_or((fault, ""));
    let advice = match check {
        "disk-space" | "disk-space-left" | "growth" => pages::DISK_FULL,
        "applied-lag" => pages::STAGES,
        "sync-latency" => pages::DISK_SLOW,
        "executor-stalls" => pages::STALLS,
        "clock" => "timedatectl status on this host and on the leader's",
        "data" => pages::DIGESTS,
        "certificates" => pages::CERTIFICATES,
        _ => pages::NOT_SERVING,
    };
    Finding { severity, ..Finding::warning(check, fault, advice) }
}

/// The object of an answer. `Null` if the command failed.
fn fields((status, text): &Answer) -> Value {
    let object: Option<Value> = serde_json::from_str(text).ok();
    object.filter(|object| *status == 200 && object.get("error").is_some_and(Value::is_null)).unwrap_or_default()
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

fn voters_of(view: &Value) -> BTreeMap<u64, String> {
    let voters = view.get("current_config").and_then(Value::as_object).into_iter().flatten();
    let address = |voter: &Value| Some(voter.get("server_addresses")?.get(0)?.as_str()?.to_owned());
    voters.filter_map(|(id, voter)| Some((id.parse().ok()?, address(voter)?))).collect()
}

/// The voters of `ensemble.servers`.
fn configured_voters(settings: &Value) -> BTreeMap<u64, String> {
    let list =
        settings.get("ensemble.servers").and_then(Value::as_str).and_then(|list| serde_json::from_str(list).ok());
    let members = list.and_then(|list| Members::parse(&Raw::List(list), Limits::NONE).ok()).unwrap_or_default();
    let voters = members.0.iter().filter(|member| member.role == Role::Participant);
    voters.map(|member| (u64::from(member.id), member.peer_address())).collect()
}

fn digests_of(hash: &Value) -> BTreeMap<u64, u64> {
    let digests = hash.get("digests").and_then(Value::as_array).into_iter().flatten();
    digests.filter_map(|one| Some((one.get("zxid")?.as_u64()?, one.get("digest")?.as_u64()?))).collect()
}

#[cfg(test)]
impl Server {
    /// A member of an ensemble with these metrics.
    pub(super) fn with(id: u64, monitor: Value) -> Server {
        Server { id: Some(id), address: format!("h{id}:8080"), monitor, ..Server::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    /// A healthy server of an ensemble of three with these metrics and voters.
    fn server(id: u64, monitor: &Value, texts: [&str; 3]) -> Server {
        let [zxid, leader, hash] = texts;
        let voters: serde_json::Map<String, Value> =
            (1..4).map(|id| (id.to_string(), json!({"server_addresses": [format!("h{id}:2888")]}))).collect();
        let mut metrics = json!({"version": "3.9.5-corral-0.1.0, built", "server_state": "follower", "error": null});
        let object = metrics.as_object_mut().expect("it is one");
        object.extend(monitor.as_object().cloned().unwrap_or_default());
        let texts = [
            "[+]has-leader ok\nreadyz check passed\n".to_owned(),
            "[+]has-leader ok\nhealthz check passed\n".to_owned(),
            metrics.to_string(),
            json!({"myid": id, "last_zxid": zxid, "error": null}).to_string(),
            json!({"limits.connections_max": "100", "error": null}).to_string(),
            leader.parse().map_or_else(
                |_| "{}".to_owned(),
                |leader: u64| json!({"leader_id": leader, "error": null}).to_string(),
            ),
            json!({"current_config": voters, "error": null}).to_string(),
            "{}".to_owned(),
            hash.to_owned(),
        ];
        Server::of(format!("h{id}:8080"), &answers(&texts), 1_000_000_000).expect("it answers")
    }

    fn answers(texts: &[String]) -> Vec<TimedAnswer> {
        let now = SystemTime::UNIX_EPOCH;
        let answer = |text: &String| TimedAnswer {
            answer: (200, text.clone()),
            date: "Thu, 01 Jan 1970 00:00:00 GMT".to_owned(),
            sent: now,
            received: now + Duration::from_millis(3),
        };
        texts.iter().map(answer).collect()
    }

    fn checks(findings: &[Finding]) -> Vec<(&str, Severity)> {
        findings.iter().map(|finding| (finding.check.as_str(), finding.severity)).collect()
    }

    const TEXTS: [&str; 3] = ["0x100000005", "1", "{}"];

    #[test]
    fn a_healthy_server_has_no_findings() {
        let monitor = json!({"num_alive_connections": 80, "peer_2_connected": 1, "avg_fsynctime": 50.0, "synced_followers": 0,
            "quorum_size": 3, "tls_certificate_expires": 1_000_000_000 + 30 * DAY_S});
        let healthy = server(3, &monitor, TEXTS);
        assert_eq!(healthy.findings(), []);
        assert_eq!(
            (healthy.id, healthy.zxid, healthy.leader, healthy.voters.len()),
            (Some(3), Some(0x1_0000_0005), Some(1), 3)
        );
        assert_eq!(
            (healthy.version(), healthy.role().as_str()),
            ("3.9.5-corral-0.1.0", "follower, server 3, of leader 1")
        );
        assert_eq!(server(3, &Value::Null, TEXTS).findings(), [], "an older version has fewer metrics");
    }

    #[test]
    fn a_server_that_does_not_serve_has_the_voters_of_its_configuration() {
        let list = r#"["1=h1:2888:3888:participant;2181", "2=[::1]:2888:participant", "3=h3:2888:observer"]"#;
        let voters = configured_voters(&json!({"ensemble.servers": list}));
        assert_eq!(voters, BTreeMap::from([(1, "h1:2888".to_owned()), (2, "[::1]:2888".to_owned())]));
        assert_eq!(configured_voters(&json!({"ensemble.servers": "[\"?\"]"})), BTreeMap::new());
    }

    #[test]
    fn numbers_beyond_their_limits_are_findings() {
        let found = |monitor: Value, expect: &[&str]| {
            let findings = server(1, &monitor, TEXTS).findings();
            let expect: Vec<_> = expect.iter().map(|check| (*check, Severity::Warning)).collect();
            assert_eq!(checks(&findings), expect, "{monitor}");
        };
        found(json!({"num_alive_connections": 81}), &["connections"]);
        found(json!({"open_file_descriptor_count": 90, "max_file_descriptor_count": 100}), &["descriptors"]);
        found(json!({"avg_fsynctime": 50.5}), &["syncs"]);
        found(json!({"digest_mismatches_count": 1, "scrub_damage_found": 2}), &["digests", "scrub"]);
        found(json!({"peer_2_connected": 0, "peer_3_connected": 0, "peer_2_bytes_sent": 0}), &["peers", "peers"]);
        let one_way = |out: u64, back: u64| {
            let ways = json!({"peer_2_connected": 0, "peer_2_connected_out": out, "peer_2_connected_in": back});
            server(1, &ways, TEXTS).findings().remove(0).sentence
        };
        assert!(one_way(1, 0).starts_with("it is connected to server 2, which is not connected to it"));
        assert!(one_way(0, 1).starts_with("server 2 is connected to it, and it is not connected to server 2"));
        assert_eq!(one_way(0, 0), "it is not connected to server 2");
        found(json!({"server_state": "leader", "quorum_size": 3, "synced_followers": 1}), &["followers"]);
        found(json!({"tls_certificate_expires": 1_000_000_000 + 30 * DAY_S - 1}), &["certificates"]);
    }

    #[test]
    fn failing_checks_are_findings_once() {
        let mut texts: Vec<String> = vec!["{}".to_owned(); PATHS.len()];
        texts[0] = "[-]serving failed: it knows no leader\nreadyz check failed\n".to_owned();
        texts[1] = "[-]serving failed: none\n[-]clock failed: 6 s ahead\nhealthz check failed\n".to_owned();
        let mut answers = answers(&texts);
        answers[0].answer.0 = 503;
        answers[1].answer.0 = 503;
        let of = |answers: &[TimedAnswer]| Server::of("h:1".to_owned(), answers, 0);
        let findings = of(&answers).expect("it answers").findings();
        assert_eq!(checks(&findings), [("serving", Severity::Critical), ("clock", Severity::Warning)]);
        assert_eq!(
            (findings[0].sentence.as_str(), findings[0].advice.as_str()),
            ("serving failed: it knows no leader", pages::NOT_SERVING)
        );
        answers[2].answer.0 = 404;
        answers.iter_mut().for_each(|one| one.date = "Thu, 01 Jan 1970 00:00:10 GMT".to_owned());
        let findings = of(&answers).expect("it answers").findings();
        assert_eq!(checks(&findings[2..]), [("commands", Severity::Warning), ("clock", Severity::Warning)]);
        assert!(of(&answers[1..]).is_err());
        answers[1].answer = (200, "<html>".to_owned());
        assert!(of(&answers).is_err_and(|reason| reason.contains("is it the admin address of corral?")));
    }
}
