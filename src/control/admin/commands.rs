//! The commands of ZooKeeper's AdminServer: names, what each needs to know, and the fields of its answer (protocol chapter 24).
//!
//! Pure: what shards, leader and process tell comes gathered.

use std::collections::BTreeMap;

use corral_core::ids::{ServerId, Zxid};
use corral_core::report::{Gathered, Mode, PeerFacts, Sample, Value, clients, not_serving, samples};
use corral_core::servers::{Role, Server};
use corral_core::shard::pieces::ConnLine;
use corral_core::sizes::Sizes;
use corral_wire::fourletter::FourLetter;
use serde::Serialize;

use super::json::{Fields, object};

/// Not in ZooKeeper 3.9. Their answers are made with their arguments.
pub(super) const SHED: &str = "shed_connections";
pub(super) const LOG_ENTRIES: &str = "log_entries";
pub(super) const RESTORE: &str = "restore";

/// A command.
pub(super) struct Command {
    /// The primary name, and further ones.
    pub(super) names: &'static [&'static str],
    /// The four-letter command for which everything is gathered that the answer shows.
    pub(super) asks: FourLetter,
    /// Whether it is refused while the server serves no clients.
    needs_serving: bool,
    pub(super) kind: Kind,
    fields: fn(&mut Fields<'_>, &mut Gathered) -> Result<(), &'static str>,
}

/// Effect of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Shows,
    /// Resets counters, or sets the trace mask.
    Changes,
    /// Sends all data.
    Reveals(Format),
    /// Replaces all data.
    Restores,
}

/// How all data are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    ZooKeeper,
    Backup,
    /// Committed entries of the log. The argument is the index of the entry before them.
    Entries,
}

const fn shows(names: &'static [&'static str], asks: FourLetter, fields: Answer) -> Command {
    Command { names, asks, needs_serving: true, kind: Kind::Shows, fields }
}

const fn always(names: &'static [&'static str], asks: FourLetter, fields: Answer) -> Command {
    Command { needs_serving: false, ..shows(names, asks, fields) }
}

const fn changes(names: &'static [&'static str], asks: FourLetter) -> Command {
    Command { kind: Kind::Changes, ..shows(names, asks, nothing) }
}

const fn reveals(names: &'static [&'static str], format: Format) -> Command {
    Command { kind: Kind::Reveals(format), ..always(names, Srvr, nothing) }
}

type Answer = fn(&mut Fields<'_>, &mut Gathered) -> Result<(), &'static str>;

use FourLetter::{Conf, Cons, Crst, Dirs, Dump, Envi, Gtmk, Hash, Isro, Mntr, Ruok, Srst, Srvr, Stat, Stmk};
use FourLetter::{Wchc, Wchp, Wchs};

/// All commands, by their primary names.
pub(super) const COMMANDS: &[Command] = &[
    reveals(&["backup"], Format::Backup),
    shows(&["configuration", "conf", "config"], Conf, configuration),
    changes(&["connection_stat_reset", "crst"], Crst),
    shows(&["connections", "cons"], Cons, connections),
    shows(&["dirs"], Dirs, dirs),
    shows(&["dump"], Dump, dump),
    always(&["environment", "env", "envi"], Envi, environment),
    always(&["get_trace_mask", "gtmk"], Gtmk, trace_mask),
    shows(&["hash"], Hash, hash),
    shows(&["initial_configuration", "icfg"], Conf, initial_configuration),
    shows(&["is_read_only", "isro"], Isro, is_read_only),
    shows(&["last_snapshot", "lsnp"], Conf, last_snapshot),
    shows(&["leader", "lead"], Conf, leader),
    reveals(&[LOG_ENTRIES], Format::Entries),
    always(&["monitor", "mntr"], Mntr, monitor),
    changes(&["observer_connection_stat_reset", "orst"], Ruok),
    shows(&["observers", "obsr"], Conf, observers),
    Command { kind: Kind::Restores, ..always(&[RESTORE, "rest"], Ruok, nothing) },
    shows(&["ruok"], Ruok, nothing),
    shows(&["server_stats", "srvr"], Srvr, server_stats),
    Command { needs_serving: false, fields: trace_mask, ..changes(&["set_trace_mask", "stmk"], Stmk) },
    changes(&[SHED, "shed"], Srvr),
    reveals(&["snapshot", "snap"], Format::ZooKeeper),
    changes(&["stat_reset", "srst"], Srst),
    shows(&["stats", "stat"], Stat, stats),
    always(&["system_properties", "sysp"], Conf, system_properties),
    shows(&["voting_view"], Conf, voting_view),
    shows(&["watch_summary", "wchs"], Wchs, watch_summary),
    shows(&["watches", "wchc"], Wchc, watches),
    shows(&["watches_by_path", "wchp"], Wchp, watches_by_path),
    always(&["zabstate"], Srvr, zabstate),
];

impl Command {
    /// The command of this name.
    pub(super) fn named(name: &str) -> Option<&'static Command> {
        COMMANDS.iter().find(|command| command.names.contains(&name))
    }

    pub(super) fn name(&self) -> &'static str {
        self.names[0]
    }

    /// The answer, from gathered facts.
    pub(super) fn answer(&self, gathered: &mut Gathered) -> Vec<u8> {
        if self.needs_serving && !gathered.is_serving() {
            return failed(self.name(), not_serving(&gathered.facts).trim_end());
        }
        object(|fields| {
            let done = (self.fields)(fields, gathered);
            let cut = || gathered.report.is_full().then_some("the answer is cut: there is more than it may hold");
            fields.put("command", self.name());
            fields.put("error", &done.err().or_else(cut));
        })
    }
}

/// The answer of a command that could not be carried out.
pub(super) fn failed(name: &str, error: &str) -> Vec<u8> {
    object(|fields| {
        fields.put("command", name);
        fields.put("error", error);
    })
}

type Done = Result<(), &'static str>;

fn nothing(_: &mut Fields<'_>, _: &mut Gathered) -> Done {
    Ok(())
}

fn configuration(fields: &mut Fields<'_>, gathered: &mut Gathered) -> Done {
    let conf = &gathered.facts.configured;
    fields.put("client_port", &conf.client_port);
    fields.put("data_dir", &conf.data_dir);
    fields.put("data_log_dir", &conf.log_dir);
    fields.put("tick_time", &conf.tick_ms);
    fields.put("max_client_cnxns", &conf.connections_per_ip_max);
    fields.put("min_session_timeout", &conf.session_timeout_min_ms);
    fields.put("max_session_timeout", &conf.session_timeout_max_ms);
    fields.put("server_id", &conf.server_id.0);
    fields.put("client_port_listen_backlog", &conf.backlog);
    Ok(())
}

#[derive(Serialize)]
struct Connection {
    remote_socket_address: String,
    interest_ops: u8,
    outstanding_requests: usize,
    packets_received: u64,
    packets_sent: u64,
    #[serde(flatten)]
    more: Option<MoreOfConnection>,
}

/// Fields that `stats` leaves out.
#[derive(Serialize)]
struct MoreOfConnection {
    session_id: i64,
    last_operation: &'static str,
    established: i64,
    session_timeout: i32,
    last_cxid: i32,
    last_zxid: i64,
    last_response_time: u64,
    last_latency: u32,
    min_latency: u32,
    avg_latency: u64,
    max_latency: u32,
}

fn put_connections(fields: &mut Fields<'_>, gathered: &Gathered, in_full: bool) {
    let started = gathered.facts.started.0;
    let shown = |line: &ConnLine| Connection {
        remote_socket_address: clients::address(line),
        interest_ops: clients::interest(line),
        outstanding_requests: line.queued,
        packets_received: line.counters.received,
        packets_sent: line.counters.sent,
        more: in_full.then(|| MoreOfConnection {
            session_id: line.session.0,
            last_operation: clients::last_operation(line),
            established: started.saturating_add_unsigned(line.opened.0),
            session_timeout: line.timeout_ms,
            last_cxid: line.counters.last_xid,
            last_zxid: line.counters.last_zxid,
            last_response_time: line.counters.last_reply.0,
            last_latency: line.counters.last_latency_ms,
            min_latency: line.counters.latency_ms_min(),
            avg_latency: line.counters.latency_ms_average(),
            max_latency: line.counters.latency_ms_max,
        }),
    };
    let of = |is_secured: bool| -> Vec<Connection> {
        gathered.report.conns.iter().filter(|line| line.is_secured == is_secured).map(shown).collect()
    };
    fields.put("connections", &of(false));
    fields.put("secure_connections", &of(true));
}

fn connections(fields: &mut Fields<'_>, gathered: &mut Gathered) -> Done {
    put_connections(fields, gathered, true);
    Ok(())
}

fn dirs(fields: &mut Fields<'_>, gathered: &mut Gathered) -> Done {
    fields.put("datadir_size", &gathered.facts.configured.data_dir_bytes);
    fields.put("logdir_size", &gathered.facts.configured.log_dir_bytes);
    Ok(())
}

/// Keys of maps are texts in JSON, and sorted by number here as Java's maps of numbers are.
fn dump(fields: &mut Fields<'_>, gathered: &mut Gathered) -> Done {
    let mut expiry: BTreeMap<u64, Vec<i64>> = BTreeMap::new();
    let mut ephemerals: BTreeMap<i64, Vec<&str>> = BTreeMap::new();
    for line in &gathered.report.sessions {
        if let Some(due) = line.due {
            expiry.entry(due.0).or_default().push(line.id.0);
        }
        if !line.ephemerals.is_empty() {
            ephemerals.entry(line.id.0).or_default().extend(line.ephemerals.iter().map(|path| &**path));
        }
    }
    fields.put("expiry_time_to_session_ids", &expiry);
    fields.put("session_id_to_ephemeral_paths", &ephemerals);
    Ok(())
}

fn environment(fields: &mut Fields<'_>, gathered: &mut Gathered) -> Done {
    gathered.facts.environment.iter().for_each(|(key, value)| fields.put(key, value));
    Ok(())
}

fn trace_mask(fields: &mut Fields<'_>, gathered: &mut Gathered) -> Done {
    fields.put("tracemask", &gathered.facts.trace_mask);
    Ok(())
}

/// ZooKeeper's `DigestCalculator.DIGEST_VERSION`.
const DIGEST_VERSION: u32 = 2;

fn hash(fields: &mut Fields<'_>, gathered: &mut Gathered) -> Done {
    #[derive(Serialize)]
    struct Digest {
        zxid: u64,
        digest: u64,
        digest_version: u32,
    }
    let shown = |(zxid, digest): &(Zxid, u64)| Digest { zxid: zxid.0, digest: *digest, digest_version: DIGEST_VERSION };
    fields.put("digests", &gathered.facts.digests.iter().map(shown).collect::<Vec<_>>());
    Ok(())
}

fn initial_configuration(fields: &mut Fields<'_>, gathered: &mut Gathered) -> Done {
    let lines = gathered.facts.settings.iter().map(|(key, value)| format!("{key} = {value}\n"));
    fields.put("initial_configuration", &lines.collect::<String>());
    Ok(())
}

fn is_read_only(fields: &mut Fields<'_>, gathered: &mut Gathered) -> Done {
    fields.put("read_only", &(gathered.facts.mode == Mode::ReadOnly));
    Ok(())
}

fn last_snapshot(fields: &mut Fields<'_>, gathered: &mut Gathered) -> Done {
    let (zxid, time) = gathered.facts.last_snapshot.unwrap_or((0, -1));
    fields.put("zxid", &format!("{zxid:x}"));
    fields.put("timestamp", &time);
    Ok(())
}

fn leader(fields: &mut Fields<'_>, gathered: &mut Gathered) -> Done {
    let facts = &gathered.facts;
    let id = facts.leader.ok_or("server is not initialized")?;
    let leader = member(gathered, id);
    fields.put("is_leader", &(facts.mode == Mode::Leader));
    fields.put("leader_id", &id.0);
    fields.put("leader_ip", &leader.map_or("", |server| &*server.host));
    Ok(())
}

fn member(gathered: &Gathered, id: ServerId) -> Option<&Server> {
    let (servers, _) = gathered.facts.configured.members.as_ref()?;
    servers.0.get(&id)
}

fn monitor(fields: &mut Fields<'_>, gathered: &mut Gathered) -> Done {
    for (name, value) in samples(gathered).flat_map(Sample::lines) {
        match value {
            Value::Whole(number) => fields.put(&name, &number),
            Value::TenThousandths(number) => fields.put(&name, &decimal(number)),
            Value::Text(text) => fields.put(&name, &text),
            Value::Absent | Value::Summary(_) | Value::Histogram(_) => {}
        }
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "such numbers are double precision in ZooKeeper")]
fn decimal(ten_thousandths: u64) -> f64 {
    ten_thousandths as f64 / 10_000.0
}

fn observers(fields: &mut Fields<'_>, gathered: &mut Gathered) -> Done {
    #[derive(Serialize)]
    struct Observer {
        remote_socket_address: String,
        sid: u8,
        established: i64,
        queued_packets: u64,
        queued_packets_size: u64,
        packets_received: u64,
        packets_sent: u64,
        requests: u64,
        last_zxid: i64,
    }
    let is_leader = gathered.facts.mode == Mode::Leader;
    let connected = gathered.facts.observers.iter().filter(|peer| is_leader && peer.is_connected());
    let shown = |peer: &PeerFacts| Observer {
        remote_socket_address: member(gathered, peer.id)
            .map_or_else(String::new, |server| format!("/{}", at_peers(server))),
        sid: peer.id.0,
        // Not counted here, as ZooKeeper has them before the first.
        established: 0,
        queued_packets: peer.queued_messages,
        queued_packets_size: peer.queued_bytes,
        packets_received: peer.messages_in,
        packets_sent: peer.messages_out,
        requests: 0,
        last_zxid: -1,
    };
    let shown: Vec<Observer> = connected.map(shown).collect();
    fields.put("synced_observers", &shown.len());
    fields.put("observers", &shown);
    Ok(())
}

#[derive(Serialize)]
struct BufferSizes {
    last_buffer_size: i64,
    min_buffer_size: i64,
    max_buffer_size: i64,
}

impl From<Sizes> for BufferSizes {
    fn from(sizes: Sizes) -> BufferSizes {
        BufferSizes { last_buffer_size: sizes.last(), min_buffer_size: sizes.min(), max_buffer_size: sizes.max() }
    }
}

#[derive(Serialize)]
struct ServerStats<'g> {
    packets_sent: u64,
    packets_received: u64,
    fsync_threshold_exceed_count: u64,
    client_response_stats: BufferSizes,
    data_dir_size: u64,
    log_dir_size: u64,
    provider_null: bool,
    last_processed_zxid: u64,
    outstanding_requests: u64,
    server_state: &'g str,
    avg_latency: f64,
    max_latency: u64,
    min_latency: u64,
    num_alive_client_connections: u64,
    auth_failed_count: u64,
    /// Counted by ZooKeeper's Netty connections alone. Jackson's names have no underscore after TLS.
    non_mtlsremote_conn_count: u64,
    non_mtlslocal_conn_count: u64,
    uptime: u64,
}

fn server_stats(fields: &mut Fields<'_>, gathered: &mut Gathered) -> Done {
    let (totals, facts) = (&gathered.report.totals, &gathered.facts);
    let (statistics, latency) = (&totals.statistics, totals.statistics.latency());
    fields.put("version", &facts.version);
    fields.put("read_only", &(facts.mode == Mode::ReadOnly));
    let stats = ServerStats {
        packets_sent: statistics.sent,
        packets_received: statistics.received,
        fsync_threshold_exceed_count: facts.slow_syncs,
        client_response_stats: statistics.replies.into(),
        data_dir_size: facts.configured.data_dir_bytes,
        log_dir_size: facts.configured.log_dir_bytes,
        provider_null: false,
        last_processed_zxid: totals.zxid.0,
        outstanding_requests: totals.outstanding,
        server_state: facts.mode.word(),
        avg_latency: decimal(latency.average()),
        max_latency: latency.ms_max,
        min_latency: latency.ms_min(),
        num_alive_client_connections: totals.connections,
        auth_failed_count: statistics.auths_failed,
        non_mtlsremote_conn_count: 0,
        non_mtlslocal_conn_count: 0,
        uptime: gathered.moment.now.0,
    };
    fields.put("server_stats", &stats);
    fields.put("client_response", &BufferSizes::from(statistics.replies));
    if facts.mode == Mode::Leader {
        fields.put("proposal_stats", &BufferSizes::from(facts.proposals));
    }
    fields.put("node_count", &totals.nodes);
    Ok(())
}

fn stats(fields: &mut Fields<'_>, gathered: &mut Gathered) -> Done {
    server_stats(fields, gathered)?;
    put_connections(fields, gathered, false);
    Ok(())
}

/// There are no properties of Java: the keys of the configuration, without secrets.
fn system_properties(fields: &mut Fields<'_>, gathered: &mut Gathered) -> Done {
    gathered.facts.settings.iter().for_each(|(key, value)| fields.put(key, value.trim_matches('"')));
    Ok(())
}

fn voting_view(fields: &mut Fields<'_>, gathered: &mut Gathered) -> Done {
    #[derive(Serialize)]
    struct Voter {
        server_addresses: [String; 1],
        election_addresses: [String; 1],
        client_address: String,
        learner_type: &'static str,
    }
    let servers = gathered.facts.configured.members.as_ref().map(|(servers, _)| &servers.0);
    let voters = servers.into_iter().flatten().filter(|(_, server)| server.role != Role::Observer);
    let shown = |(id, server): (&ServerId, &Server)| {
        let voter = Voter {
            server_addresses: [at_peers(server)],
            election_addresses: [at(&server.host, server.election_port)],
            client_address: at_clients(server),
            learner_type: "participant",
        };
        (id.0, voter)
    };
    fields.put("current_config", &voters.map(shown).collect::<BTreeMap<_, _>>());
    Ok(())
}

fn at(host: &str, port: u16) -> String {
    let (left, right) = if host.contains(':') { ("[", "]") } else { ("", "") };
    format!("{left}{host}{right}:{port}")
}

fn at_peers(server: &Server) -> String {
    at(&server.host, server.peer_port)
}

fn at_clients(server: &Server) -> String {
    server.client.as_ref().map_or_else(String::new, |(host, port)| at(host, *port))
}

fn watch_summary(fields: &mut Fields<'_>, gathered: &mut Gathered) -> Done {
    let summary = gathered.report.watch_summary();
    fields.put("num_connections", &summary.connections);
    fields.put("num_paths", &summary.paths);
    fields.put("num_total_watches", &summary.watches);
    Ok(())
}

fn watches(fields: &mut Fields<'_>, gathered: &mut Gathered) -> Done {
    let mut paths: BTreeMap<i64, Vec<&str>> = BTreeMap::new();
    for (session, path) in gathered.report.watches_by_session() {
        paths.entry(session.0).or_default().push(path);
    }
    fields.put("session_id_to_watched_paths", &paths);
    Ok(())
}

fn watches_by_path(fields: &mut Fields<'_>, gathered: &mut Gathered) -> Done {
    let mut sessions: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for (path, session) in gathered.report.watches_by_path() {
        sessions.entry(path).or_default().push(session.0);
    }
    fields.put("path_to_session_ids", &sessions);
    Ok(())
}

/// ZooKeeper's `MultipleAddresses`. An address of a server is always one here.
#[derive(Serialize)]
struct Addresses {
    empty: bool,
    all_addresses: [String; 1],
    wildcard_addresses: [String; 1],
    all_ports: [u16; 1],
    all_host_strings: [String; 1],
    reachable_address: String,
    all_reachable_addresses: [String; 1],
    all_reachable_addresses_or_all: [String; 1],
    reachable_or_one: String,
    one: String,
}

impl Addresses {
    fn of(host: &str, port: u16) -> Addresses {
        let address = || at(host, port);
        Addresses {
            empty: false,
            all_addresses: [address()],
            wildcard_addresses: [at("0.0.0.0", port)],
            all_ports: [port],
            all_host_strings: [host.to_owned()],
            reachable_address: address(),
            all_reachable_addresses: [address()],
            all_reachable_addresses_or_all: [address()],
            reachable_or_one: address(),
            one: address(),
        }
    }
}

fn zabstate(fields: &mut Fields<'_>, gathered: &mut Gathered) -> Done {
    let (facts, zxid) = (&gathered.facts, gathered.report.totals.zxid.0);
    let id = facts.configured.server_id;
    let Some(own) = member(gathered, id) else {
        fields.put("voting", &false);
        fields.put("zabstate", "");
        return Ok(());
    };
    fields.put("myid", &id.0);
    fields.put("is_leader", &(facts.mode == Mode::Leader));
    fields.put("quorum_address", &Addresses::of(&own.host, own.peer_port));
    fields.put("election_address", &Addresses::of(&own.host, own.election_port));
    fields.put("client_address", &at_clients(own));
    fields.put("voting", &(own.role != Role::Observer));
    fields.put("last_zxid", &format!("0x{zxid:x}"));
    fields.put("zab_epoch", &(zxid >> 32));
    fields.put("zab_counter", &(zxid & u64::from(u32::MAX)));
    let has_leader = !matches!(facts.mode, Mode::Looking | Mode::ReadOnly);
    fields.put("zabstate", if has_leader { "broadcast" } else { "election" });
    Ok(())
}
