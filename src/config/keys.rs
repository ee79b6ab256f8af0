//! The one table of configuration keys: name, type, default, limits, unit and meaning.
//!
//! The `sections!` table below makes the plain `Config` structs, their defaults and the `KEYS` list from which files,
//! flags, `check-config` and docs/configuration.md are served. It does not know file formats. A new key is one entry
//! here.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use corral_consensus::ServerId;
use corral_peer::ClusterName;

use crate::config::core_rows::CoreRow;
use crate::config::four_letter::FourLetterCommands;
use crate::config::members::{Member, Members};
use crate::config::value::{
    AuditFormat, ClientAuth, ConsensusPlacement, DigestAlgorithm, Field, HIDDEN, Limits, LogFormat, LogLevel, Names,
    OnClientAddr, Raw, Rejection, Secret, Text, TransportChoice, WhenFull,
};

/// One configuration key.
pub(crate) struct Key {
    /// The TOML section, such as `server`.
    pub(crate) section: &'static str,
    /// Section and name, such as `server.data_dir`. Unique.
    pub(crate) path: &'static str,
    /// The effect of the key, one paragraph of Markdown.
    pub(crate) doc: &'static str,
    /// The type's name.
    pub(crate) kind: &'static str,
    /// Unit of a number, empty if it has none.
    pub(crate) unit: &'static str,
    /// Bounds of a number.
    pub(crate) limits: Limits,
    /// Reads a value into the configuration.
    pub(crate) set: fn(&mut Config, &Raw, Limits) -> Result<(), Rejection>,
    /// The value as TOML.
    pub(crate) show: fn(&Config) -> String,
}

impl Key {
    /// The name within its section, such as `data_dir`.
    pub(crate) fn name(&self) -> &'static str {
        self.path.split_once('.').map_or(self.path, |(_, name)| name)
    }
}

/// The key of a path such as `server.data_dir`.
pub(crate) fn key(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

macro_rules! sections {
    ($(
        $(#[doc = $sdoc:literal])+
        $section:ident: $Section:ident {
            $(
                $(#[doc = $doc:literal])+
                $field:ident: $ty:ty = $default:expr, $limits:expr, $unit:literal;
            )+
        }
    )+) => {
        /// The effective configuration: plain data, every value within its limits.
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) struct Config {
            $( $(#[doc = $sdoc])+ pub(crate) $section: $Section, )+
            /// The per-core table. Empty = the plan is derived from the CPUs. See `CorePlan::of`.
            pub(crate) cores: Vec<CoreRow>,
        }

        impl Default for Config {
            fn default() -> Config {
                Config { $( $section: $Section { $( $field: $default, )+ }, )+ cores: Vec::new() }
            }
        }

        $(
            $(#[doc = $sdoc])+
            #[derive(Clone, Debug, PartialEq)]
            pub(crate) struct $Section { $( $(#[doc = $doc])+ pub(crate) $field: $ty, )+ }
        )+

        /// Every section with its meaning, in the order of the reference.
        pub(crate) const SECTIONS: &[(&str, &str)] = &[$( (stringify!($section), concat!($($sdoc),+)), )+];

        /// Every key, in the order of the reference.
        pub(crate) const KEYS: &[Key] = &[$($(
            Key {
                section: stringify!($section),
                path: concat!(stringify!($section), ".", stringify!($field)),
                doc: concat!($($doc),+),
                kind: <$ty as Field>::KIND,
                unit: $unit,
                limits: $limits,
                set: |config, raw, limits| {
                    config.$section.$field = <$ty as Field>::parse(raw, limits)?;
                    Ok(())
                },
                show: |config| config.$section.$field.show(),
            },
        )+)+];
    };
}

const NONE: Limits = Limits::NONE;
const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;
/// Largest value of a ZooKeeper `int`.
const INT_MAX: u64 = 0x7fff_ffff;
/// Largest number of milliseconds for intervals: thirty days.
const INTERVAL_MS_MAX: u64 = 30 * 24 * 3_600_000;

const fn range(min: u64, max: u64) -> Limits {
    Limits::range(min, max)
}

sections! {
    /// Where the server keeps its data and where it listens.
    server: Server {
        /// Directory of the snapshots and, unless `server.log_dir` says otherwise, of the log. Created if
        /// missing.
        data_dir: PathBuf = PathBuf::from("./data"), NONE, "";
        /// Directory of the log. A disk of its own lowers write latency. Empty = `server.data_dir`.
        log_dir: PathBuf = PathBuf::new(), NONE, "";
        /// Address and port for clients. The default serves this host only. `[::]:2181` serves every network,
        /// IPv4 and IPv6, and `0.0.0.0:2181` every IPv4 network. Port 0 lets the kernel choose. The log tells
        /// which.
        client_addr: SocketAddr = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 2181), NONE, "";
        /// ZooKeeper's basic time unit: sessions are expired on its multiples, and the session timeout bounds derive
        /// from it.
        tick_time_ms: u32 = 2000, range(10, 600_000), "ms";
        /// Number of this server, the highest byte of the session ids it issues. In an ensemble it is the ID
        /// of this server in `ensemble.servers`. If the key is not set there, the file `myid` in the data
        /// directory holds it.
        server_id: u8 = 1, range(1, 254), "";
        /// How much is logged. SIGHUP reads it again. The environment variable `RUST_LOG` takes its place.
        log_level: LogLevel = LogLevel::Info, NONE, "";
    }
    /// The log of the server.
    logging: Logging {
        /// Levels of single modules, as `"corral::net=debug"`. SIGHUP reads them again.
        modules: Names = Names::default(), NONE, "";
        /// `text`, or `json` for one object a line.
        format: LogFormat = LogFormat::Text, NONE, "";
        /// Requests that take as long from their receipt to their reply are logged. 0 = none.
        slow_request_ms: u32 = 1000, range(0, 3_600_000), "ms";
        /// File of the log. SIGHUP opens it again. Empty = standard error.
        file: PathBuf = PathBuf::new(), NONE, "";
        /// Length at which the file becomes `FILE.1`, and another one is begun. 0 = none.
        file_bytes_max: u64 = 100 * MIB, range(0, 1024 * GIB), "bytes";
        /// Full files that are kept.
        files_retained: u16 = 10, range(1, 1000), "";
    }
    /// The servers that answer together. With none or one of them a server runs alone, and the rest of this section
    /// means nothing.
    ensemble: Ensemble {
        /// All servers at the first start, this one among them, the same on each:
        /// `"ID=HOST:PORT[:ROLE][;CLIENT]"`. The port is for the other servers. A second port, as in
        /// ZooKeeper's files, is ignored. ROLE is `participant` (the default) or `observer`. CLIENT is `PORT`
        /// or `HOST:PORT`, where clients reach it. The ID of this server is `server.server_id`, or the
        /// content of the file `myid` in the data directory.
        servers: Members = Members::default(), NONE, "";
        /// Name of the ensemble. Servers of another name are refused, so that two ensembles cannot mix by a wrong
        /// address.
        cluster: ClusterName = ClusterName::new("corral").expect("the name is legal"), NONE, "";
        /// Address and port to listen on for the other servers. Empty = the host and port of this server in
        /// `ensemble.servers`.
        peer_addr: Option<SocketAddr> = None, NONE, "";
        /// Interval of the leader's heartbeats when it sends nothing else.
        heartbeat_ms: u32 = 40, range(5, 60_000), "ms";
        /// A follower without a message of the leader for this time, up to twice this time, starts an
        /// election. At least twice `ensemble.heartbeat_ms`, and at most 100000 times. If the leader's
        /// process ends, the election starts at once.
        election_ms: u32 = 160, range(20, 600_000), "ms";
        /// Time for which a server without a leader keeps its clients: reads are served, writes and new
        /// sessions wait. Then it closes all connections, so that clients find a server with a leader. The
        /// connection of a session with a short timeout is closed after two thirds of that timeout. 0 = 20 x
        /// `ensemble.election_ms`.
        hold_ms: u32 = 0, range(0, 600_000), "ms";
        /// Bytes of applied log entries that are kept in memory, also over a restart. A server that lags by less is sent
        /// these entries. A server that lags by more is sent entries from disk, if need be behind a snapshot.
        log_cache_bytes: u64 = 32 * MIB, range(MIB, 4 * GIB), "bytes";
        /// Clients that ask for it may read while this server has no leader, after `ensemble.hold_ms`. `isro`
        /// is always answered then.
        read_only: bool = false, NONE, "";
        /// Every read waits for a confirmation of the leader and a majority, and shows every write that was
        /// acknowledged before the read was sent. Reads that arrive together share one confirmation.
        /// Otherwise a read shows the state of this server, and a client can send a `sync` first.
        linearizable_reads: bool = false, NONE, "";
        /// PEM, PKCS#12 or JKS file of this server's certificate, and of those between it and the authority. It must be for
        /// serverAuth and clientAuth. One of its alternative names (SAN) must be the host of this server in
        /// `ensemble.servers`, as in ZooKeeper's quorum TLS, or `server-ID`. The common name does not count.
        /// With `tls_cert`, `tls_key` and `tls_ca` all connections between servers are encrypted (TLS 1.3),
        /// and both sides authenticate. Empty = no TLS.
        tls_cert: PathBuf = PathBuf::new(), NONE, "";
        /// File of the key of `tls_cert`. A PKCS#12 or JKS file holds both.
        tls_key: PathBuf = PathBuf::new(), NONE, "";
        /// Password of `tls_key`.
        tls_key_password: Secret = Secret::default(), NONE, "";
        /// File that holds the password of `tls_key`, instead of `tls_key_password`.
        tls_key_password_file: PathBuf = PathBuf::new(), NONE, "";
        /// File of the authorities that sign the certificates of all servers.
        tls_ca: PathBuf = PathBuf::new(), NONE, "";
        /// Password of `tls_ca`.
        tls_ca_password: Secret = Secret::default(), NONE, "";
        /// File that holds the password of `tls_ca`, instead of `tls_ca_password`.
        tls_ca_password_file: PathBuf = PathBuf::new(), NONE, "";
        /// The files are checked every two seconds, and read again after a change. Otherwise they are
        /// read at SIGHUP. New connections use the new files.
        tls_watch: bool = false, NONE, "";
        /// File with the secret that all servers of the ensemble share, as `openssl rand -base64 32` makes
        /// one. Both sides of each connection between servers prove that they hold it, and every frame is
        /// authenticated and encrypted. Only its owner may read it (mode 0600 or 0400). One secret a line, 32
        /// to 1024 bytes, at most 4: the server proves itself with the first, and accepts any. It is read at
        /// the start. Empty = no secret, which is possible if all servers are on this host.
        secret_file: PathBuf = PathBuf::new(), NONE, "";
        /// Allows servers on several hosts without TLS, but with `secret_file`. A secret that becomes known,
        /// also later, decrypts recorded traffic. Without a secret the servers do not start.
        allow_plaintext: bool = false, NONE, "";
    }
    /// Bounds of session timeouts.
    sessions: Sessions {
        /// Shortest session timeout granted. 0 = 2 x `server.tick_time_ms`.
        timeout_min_ms: u32 = 0, range(0, INT_MAX), "ms";
        /// Longest session timeout granted. 0 = 20 x `server.tick_time_ms`.
        timeout_max_ms: u32 = 0, range(0, INT_MAX), "ms";
        /// A connection that has not opened a session within this time is closed.
        sessionless_timeout_ms: u32 = 10_000, range(100, 3_600_000), "ms";
    }
    /// Limits for one client and for all clients. At a full limit the server stops reading the connection, closes
    /// it, or refuses the request.
    limits: LimitsSection {
        /// Longest request frame, without its length word. A longer one closes the connection (ZooKeeper's
        /// `jute.maxbuffer`).
        frame_bytes_max: u32 = 1_048_575, range(1024, 64 * MIB), "bytes";
        /// Connections of the whole server. Further ones are closed on accept. 0 = as many as RLIMIT_NOFILE
        /// allows.
        connections_max: u32 = 0, range(0, 10_000_000), "";
        /// Connections from one IP address, or from one IPv6 network of 64 bits. Further ones are closed on
        /// accept. 0 = no such limit.
        connections_per_ip_max: u32 = 60, range(0, 10_000_000), "";
        /// Requests of one connection that wait for their reply. At the limit the connection is not read
        /// until one is answered.
        requests_in_flight_per_connection_max: u32 = 1000, range(1, 1_000_000), "";
        /// Bytes of replies queued on one connection above which its requests are not read.
        reply_buffer_bytes_soft_max: u32 = 1_048_576, range(4 * KIB, GIB), "bytes";
        /// Bytes of replies and watch events queued on one connection above which it is closed: a client that does not
        /// read.
        reply_buffer_bytes_hard_max: u32 = 67_108_864, range(64 * KIB, 2 * GIB), "bytes";
        /// Bytes of memory that all connections together hold. Each shard has its share. It counts unsent replies and
        /// watch events, lists in progress, and incomplete or waiting requests. The requests of connections that wait
        /// for this memory do not count. A reply is weighed before it is made: one of more than 16 KiB that does not
        /// fit waits, and its connection is not read. A client that has more than 16 KiB to take is closed when an
        /// event is due to it. Of a large request the rest is read when there is memory for all of it. An eighth is for
        /// connections that hold 256 KiB or less. When a request has waited 2 s, clients that take less than 256 KiB/s
        /// of their replies are closed, oldest first. After 0.5 s, clients that send less than that of an incomplete
        /// request. A single reply larger than the limit is made when all others hold no more than half of it.
        reply_buffer_bytes_total_max: u64 = GIB, range(MIB, 1024 * GIB), "bytes";
        /// Paths one connection may watch. A request that would add one more is answered THROTTLEDOP.
        watches_per_connection_max: u32 = 200_000, range(1, 100_000_000), "";
        /// Bytes of one connection's watches, each counted with 64 bytes and the length of its path. A
        /// request that would add more is answered THROTTLEDOP.
        watch_bytes_per_connection_max: u32 = 67_108_864, range(64 * KIB, 2 * GIB), "bytes";
        /// Bytes of the watches of all connections together, counted likewise, each shard with its share of them.
        watch_bytes_total_max: u64 = 2 * GIB, range(MIB, 1024 * GIB), "bytes";
        /// Identities one connection may prove with auth packets, its address included. One more, or more
        /// than 2 KiB of them, closes the connection.
        identities_per_connection_max: u32 = 16, range(2, 64), "";
        /// Sessions of the whole service. A connect beyond them is closed without an answer.
        sessions_max: u32 = 1_000_000, range(1, 10_000_000), "";
        /// Bytes of writes that one shard has handed to consensus and that are not committed. At the limit
        /// the shard stops reading.
        inflight_bytes_per_shard_max: u64 = 64 * MIB, range(MIB, 16 * GIB), "bytes";
        /// Writes of the whole server that may be on their way. Each shard has its share of them and stops
        /// reading at it. 0 = no such limit.
        requests_in_flight_max: u32 = 0, range(0, 100_000_000), "";
        /// A request that waited longer than this for those before it is answered THROTTLEDOP, and not done.
        /// Pings, writes and the opening and closing of sessions never are. 0 = none is.
        throttled_op_wait_ms: u32 = 0, range(0, INTERVAL_MS_MAX), "ms";
        /// A request frame longer than this counts as large. 0 = none does.
        large_request_bytes: u32 = 0, range(0, 64 * MIB), "bytes";
        /// Bytes of large writes that may be on their way, in the whole server. Each shard has its share of
        /// them, and one more closes its connection.
        large_requests_bytes_max: u32 = 104_857_600, range(MIB, 2 * GIB), "bytes";
        /// Whether a leader refuses writes that add data (QUOTAEXCEEDED) while less than two log segments and one
        /// snapshot have room on its disks. Reads, deletes and sessions go on.
        reserve_disk_space: bool = true, NONE, "";
        /// Anonymous memory of the process at which a leader refuses writes that add data (QUOTAEXCEEDED). They go
        /// on below nine tenths of it. 0 = no such limit.
        memory_bytes_max: u64 = 0, range(0, 1024 * GIB), "bytes";
    }
    /// Rates of the clients of one address, or of one IPv6 network of 64 bits, all its connections together. Connections of an
    /// address that is over a rate are not read until it is within the rate again. 0 = no such limit.
    rate_limits: RateLimits {
        /// Requests in a second.
        requests_per_second: u32 = 0, range(0, 1_000_000_000), "";
        /// Bytes of requests in a second.
        bytes_per_second: u64 = 0, range(0, 1024 * GIB), "bytes";
        /// New connections in a second. Further ones are closed on accept.
        connections_per_second: u32 = 0, range(0, 1_000_000), "";
        /// Amount that may come at once, as a time: the rate allows as much in that time.
        burst_ms: u32 = 1000, range(200, INTERVAL_MS_MAX), "ms";
        /// New connections of all clients together take a token each, and are closed on accept if there is none. So many
        /// tokens at most.
        connection_tokens: u32 = 0, range(0, 10_000_000), "";
        /// Tokens that come back in each `rate_limits.connection_fill_ms`.
        connection_fill_count: u32 = 1, range(1, 10_000_000), "";
        /// See `rate_limits.connection_fill_count`.
        connection_fill_ms: u32 = 1, range(1, 3_600_000), "ms";
    }
    /// The log: fully allocated segment files that every acknowledged write is synced to.
    log: Log {
        /// Size of a log segment, allocated as a whole. Rounded down to whole pages of 4096 bytes. At least
        /// four times `limits.frame_bytes_max`.
        segment_bytes: u64 = 64 * MIB, range(4 * MIB, GIB), "bytes";
        /// Segments that no snapshot needs, kept for reuse. Further ones are removed.
        spare_segments_max: u16 = 16, range(1, 1000), "";
        /// A sync that takes longer than this is logged as a warning.
        sync_warning_ms: u32 = 1000, range(1, 600_000), "ms";
    }
    /// When a new snapshot is written, and how many are kept. Snapshots are written in the background.
    snapshot: Snapshot {
        /// No snapshot is written because of its share while the changes since the last one are fewer bytes than this.
        floor_bytes: u64 = 64 * MIB, range(MIB, 1024 * GIB), "bytes";
        /// A snapshot is written when the changes since the last one reach this share of its size. After ten seconds
        /// without a write, and at a start, which replays the log, an eighth of this, and of the floor, is enough.
        share_of_snapshot_percent: u32 = 50, range(1, 1000), "percent";
        /// A snapshot is written after this many transactions. 0 = not because of their number.
        txns_max: u64 = 0, range(0, 1 << 48), "transactions";
        /// A snapshot is written when the log since the last one reaches this size and its share of the
        /// snapshot's size. This bounds the replay at a restart. Writes that take long to apply count for as
        /// many bytes as ordinary ones of that time. 0 = never because of the log.
        log_bytes_max: u64 = 128 * MIB, range(0, 1024 * GIB), "bytes";
        /// Least time between the starts of two snapshots. It does not hold on request, at shutdown, and when writing
        /// has become calm (`calm_ms`). A quarter of it is enough when the changes have outgrown the share eight times.
        interval_min_ms: u64 = 10_000, range(0, INTERVAL_MS_MAX), "ms";
        /// When writing has fallen below an eighth of its former rate for this long, a due snapshot is written without
        /// waiting for `interval_min_ms`. 0 = it waits.
        calm_ms: u64 = 1000, range(0, INTERVAL_MS_MAX), "ms";
        /// A snapshot is written at least this often if anything changed. 0 = not because of time.
        interval_max_ms: u64 = 3_600_000, range(0, INTERVAL_MS_MAX), "ms";
        /// Snapshots kept. Older ones and the log before them are removed.
        snapshots_retained: u32 = 3, range(1, 10_000), "";
        /// Whether old snapshots and log segments are removed at all. False keeps everything for ever.
        purge: bool = true, NONE, "";
    }
    /// The scrubber reads every snapshot file and every sealed log segment in the background and compares them
    /// with their checksums. If the served snapshot is damaged, a member of an ensemble stops serving and
    /// installs another server's snapshot. A standalone server ends with exit code 6. A damaged snapshot that is
    /// not served is moved into the directory `damaged`.
    scrub: Scrub {
        /// Time from the start of the server, or the end of a scrub, to the beginning of the next one. 0 = never. A
        /// start checks the snapshot that it serves, but not older ones and not the whole log.
        interval_s: u32 = 86_400, range(0, 31_536_000), "s";
        /// How fast it reads at most.
        bytes_per_s_max: u64 = 64 * MIB, range(MIB, 1024 * GIB), "bytes/s";
    }
    /// ZooKeeper's four-letter commands on the client port.
    commands: Commands {
        /// Commands that are executed. `"*"` stands for all. `srvr` always is. ZooKeeper's own default is
        /// kept: monitors that use `ruok`, `stat` or `mntr` need them listed.
        four_letter_whitelist: FourLetterCommands = FourLetterCommands::zookeeper_default(), NONE, "";
    }
    /// Deletion of empty containers and expired TTL nodes.
    containers: Containers {
        /// How often they are looked for.
        check_interval_ms: u64 = 60_000, range(100, INTERVAL_MS_MAX), "ms";
        /// Deletions in a minute, spread evenly.
        deletes_per_minute_max: u32 = 10_000, range(1, 1_000_000), "znodes";
        /// A container that never had a child is deleted this long after its last change. 0 = never.
        never_used_max_ms: u64 = 0, range(0, INTERVAL_MS_MAX), "ms";
    }
    /// Optional behaviour of ZooKeeper.
    features: Features {
        /// Container and TTL znodes. ZooKeeper's own default is off, and off it is with a zoo.cfg that does not name
        /// it.
        extended_types: bool = true, NONE, "";
        /// Quotas are enforced. Otherwise exceeding one is only logged.
        enforce_quota: bool = false, NONE, "";
        /// Clients may change the membership with `reconfig`, if they may write `/zookeeper/config`. A server that is
        /// alone refuses all the same, with UNIMPLEMENTED instead of RECONFIGDISABLED.
        reconfig: bool = false, NONE, "";
        /// `reconfig` must leave two servers with a vote. Otherwise one is enough.
        two_voters: bool = true, NONE, "";
        /// ClickHouse Keeper's operations 500 to 507 are served, and `/keeper` shows that to clients. No
        /// client may write there.
        keeper_extensions: bool = false, NONE, "";
    }
    /// TLS for clients. It is served on `tls.client_addr`, and on `server.client_addr` by `tls.on_client_addr`. The key store
    /// and the trust store are PEM, PKCS#12 or JKS files. They are read again at SIGHUP, and new connections use
    /// them.
    tls: Tls {
        /// Address and port for clients that speak TLS, besides `server.client_addr`. Empty = none.
        client_addr: Option<SocketAddr> = None, NONE, "";
        /// TLS on `server.client_addr`. `none` serves plaintext there. `also` serves both: the first byte of a
        /// connection tells. `only` refuses plaintext.
        on_client_addr: OnClientAddr = OnClientAddr::None, NONE, "";
        /// Certificates of clients. `none` asks for none. `want` asks for a certificate, and verifies it.
        /// `need` accepts no connection without one. A verified certificate authenticates its subject (scheme `x509`).
        client_auth: ClientAuth = ClientAuth::Need, NONE, "";
        /// File of this server's key and certificate, with the certificates between that and the authority.
        key_store: PathBuf = PathBuf::new(), NONE, "";
        /// Password of `tls.key_store`.
        key_store_password: Secret = Secret::default(), NONE, "";
        /// File that holds the password of `tls.key_store`, instead of `tls.key_store_password`.
        key_store_password_file: PathBuf = PathBuf::new(), NONE, "";
        /// File of the authorities that sign the certificates of clients. A certificate of a client that is in it
        /// is accepted as well.
        trust_store: PathBuf = PathBuf::new(), NONE, "";
        /// Password of `tls.trust_store`.
        trust_store_password: Secret = Secret::default(), NONE, "";
        /// File that holds the password of `tls.trust_store`, instead of `tls.trust_store_password`.
        trust_store_password_file: PathBuf = PathBuf::new(), NONE, "";
        /// File of certificate revocation lists, PEM or DER. A client with a revoked certificate is
        /// refused. So is a client if the file has no list of its authority, or an expired one. Empty = revocation
        /// is not checked.
        crl_file: PathBuf = PathBuf::new(), NONE, "";
        /// Versions that are served: `TLSv1.2`, `TLSv1.3`. Empty = both.
        protocols: Names = Names::default(), NONE, "";
        /// Cipher suites that are served, by their IANA names, in the order of preference. Empty = all that
        /// the server has.
        cipher_suites: Names = Names::default(), NONE, "";
        /// The files are checked every two seconds, and read again after a change.
        watch: bool = false, NONE, "";
        /// Handshakes at a time. Further connections wait to be accepted.
        handshakes_max: u32 = 1000, range(1, 100_000), "";
        /// A handshake that is not complete after this time ends the connection.
        handshake_ms: u32 = 10_000, range(100, 600_000), "ms";
        /// On a port for both: a connection that sent no byte for this time is taken for plaintext.
        detection_ms: u32 = 5000, range(1, 600_000), "ms";
    }
    /// Access control.
    security: Security {
        /// No ACL is ever checked.
        skip_acl: bool = false, NONE, "";
        /// Clients may authenticate with the scheme `digest`, and ACLs may name it. Otherwise such an `auth` packet closes the
        /// connection, and such an ACL is refused (INVALIDACL).
        digest_scheme: bool = true, NONE, "";
        /// The hash of digests in ACLs. After a change the digests in the tree match no password.
        digest_algorithm: DigestAlgorithm = DigestAlgorithm::Sha1, NONE, "";
        /// The superuser's digest, `super:` and the base64 hash as ZooKeeper's DigestAuthenticationProvider prints it.
        /// Empty = none.
        super_digest: Secret = Secret::default(), NONE, "";
        /// Schemes of which every client must prove one: `digest`, `sasl`, `x509`. Every request before that,
        /// also a ping, is answered SESSIONCLOSEDREQUIRESASLAUTH (-124), and the connection is closed. Empty = a
        /// client need not authenticate.
        enforce_schemes: Names = Names::default(), NONE, "";
        /// ACLs may name SASL users (scheme `sasl`). So they may wherever SASL users are configured.
        sasl_acls: bool = false, NONE, "";
        /// JAAS file with SASL users, as ZooKeeper's `java.security.auth.login.config`: the options
        /// `user_NAME="PASSWORD"` of one section. The mechanism is DIGEST-MD5. Read again at SIGHUP. Empty = none.
        sasl_jaas_file: PathBuf = PathBuf::new(), NONE, "";
        /// The section of `sasl_jaas_file`.
        sasl_jaas_section: Text = Text("Server".to_owned()), NONE, "";
        /// File with SASL users, one `NAME:PASSWORD` a line, mode 600. During a rotation a user may have
        /// several lines: each password is valid. Read again at SIGHUP. Empty = none.
        sasl_users_file: PathBuf = PathBuf::new(), NONE, "";
        /// SASL users that are super users, besides the rights that ACLs give them.
        sasl_super_users: Names = Names::default(), NONE, "";
        /// Every SASL user has the rights that ACLs give to this one (ZooKeeper's `letAnySaslUserDoX`). Empty = none.
        sasl_any_user: Text = Text::default(), NONE, "";
        /// Password of the SASL user `super`, instead of one from the files. That user passes every ACL of the
        /// scheme `sasl`.
        sasl_super_password: Secret = Secret::default(), NONE, "";
        /// A client that fails to prove its SASL user goes on without one. Otherwise its connection is closed.
        allow_sasl_failed_clients: bool = false, NONE, "";
        /// ACLs may name the subjects of client certificates (scheme `x509`). So they may wherever clients prove
        /// certificates, see `tls.client_auth`.
        x509_acls: bool = false, NONE, "";
        /// The superuser's certificate: its subject as ZooKeeper writes it, such as `CN=admin,O=Example,C=DE`. Empty = none.
        x509_super_user: Text = Text::default(), NONE, "";
    }
    /// The audit log: a line for each write of a client, with its user and result. Ephemeral znodes that are deleted
    /// with their session have a line as well.
    audit: Audit {
        /// The audit log is written.
        enabled: bool = false, NONE, "";
        /// The file. Empty = `audit.log` in `server.data_dir`. At SIGHUP it is opened again, so that another
        /// program can move it away.
        file: PathBuf = PathBuf::new(), NONE, "";
        /// `zookeeper`: the lines of ZooKeeper's audit log, the time in UTC. `json`: an object a line.
        format: AuditFormat = AuditFormat::ZooKeeper, NONE, "";
        /// At this size the file is renamed to `FILE.1`, `FILE.1` to `FILE.2`, and so on, and a new file begins. 0 = at no size.
        file_bytes_max: u64 = 10 * MIB, range(0, 1024 * GIB), "bytes";
        /// Full files that are kept. Older ones are removed.
        files_retained: u16 = 10, range(1, 1000), "";
        /// Bytes of memory for records that are not written yet.
        queue_bytes_max: u64 = 16 * MIB, range(64 * KIB, 4 * GIB), "bytes";
        /// Policy for `queue_bytes_max`, which is reached if the disk is slow or full. `hold`: clients' writes wait until the
        /// log is written, and reads are served. `drop`: records are dropped, and `zk_audit_dropped` counts them.
        when_full: WhenFull = WhenFull::Hold, NONE, "";
    }
    /// Metrics for Prometheus and probes of health, by HTTP. [metrics.md](metrics.md) lists the metrics.
    metrics: Metrics {
        /// Address and port that serve `GET /metrics`, and the probes `/livez`, `/readyz` and `/healthz`. The port
        /// asks for no user. Empty = none.
        http_addr: Option<SocketAddr> = None, NONE, "";
    }
    /// HTTP for administration: the commands of ZooKeeper's AdminServer, metrics, and probes of health.
    admin: Admin {
        /// Serves it. If the address is in use, the server logs a warning and goes on without it.
        enabled: bool = true, NONE, "";
        /// Address and port. The default serves this host only. The commands show sessions, paths and addresses to
        /// every client.
        http_addr: SocketAddr = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 8080), NONE, "";
        /// Path of the commands.
        command_url: Text = Text("/commands".to_owned()), NONE, "";
        /// A connection is closed after this time.
        idle_timeout_ms: u32 = 30_000, range(1000, 3_600_000), "ms";
        /// TLS, with the key store of `[tls]`, or with that of `[ensemble]` if `tls.key_store` is empty. `none` serves
        /// plaintext, `also` both, and `only` TLS alone.
        tls: OnClientAddr = OnClientAddr::None, NONE, "";
        /// With TLS: whether clients prove a certificate of the trust store. `none` asks for none, `want` accepts clients
        /// without one, and `need` refuses them.
        client_auth: ClientAuth = ClientAuth::None, NONE, "";
        /// Allows the commands that change something: `connection_stat_reset`, `stat_reset`,
        /// `observer_connection_stat_reset`, `set_trace_mask`, `shed_connections` and `restore`. Each needs a proof: a token of `admin.token_file`, the
        /// user of `security.super_digest`, or the certificate of `security.x509_super_user`.
        allow_changes: bool = false, NONE, "";
        /// File with tokens for `Authorization: Bearer TOKEN`, one a line, of 16 characters at least. Only its owner may
        /// read it (mode 0600 or 0400). It is read at each use. Empty = none.
        token_file: PathBuf = PathBuf::new(), NONE, "";
    }
    /// Threads and their timing. The defaults are measured. Change them only with a measurement.
    runtime: Runtime {
        /// Shard executors, each with its share of the connections. 0 = derived from the CPUs. More shards than CPUs
        /// are allowed.
        shards: u16 = 0, range(0, 1024), "";
        /// Where the consensus actor runs.
        consensus_placement: ConsensusPlacement = ConsensusPlacement::Auto, NONE, "";
        /// Sockets of clients: `ring` is an io_uring for each shard (Linux 6.1), and `stream` the runtime's
        /// sockets. `auto` is a ring if the kernel supports it.
        transport: TransportChoice = TransportChoice::Auto, NONE, "";
        /// Entries of each executor's io_uring. Below 1024 the runtime can stall. A shard's own ring gives
        /// the kernel a quarter as many requests in one call.
        ring_depth: u32 = 1024, range(1024, 32_768), "entries";
        /// Bytes of registered I/O memory per executor. Counts against RLIMIT_MEMLOCK. Only `transport =
        /// "stream"` uses it, and does without where it is used up.
        io_memory_bytes: u32 = 65_536, range(64 * KIB, GIB), "bytes";
        /// How long one turn may work before it must look at the sockets again.
        turn_budget_us: u32 = 250, range(10, 100_000), "us";
        /// Time for which a shard polls after traffic before it sleeps. It lowers latency, and keeps the CPU
        /// busy under traffic. Only where the sockets are served by a ring.
        poll_us: u32 = 0, range(0, 2000), "us";
        /// Shortest heartbeat timer while there is work.
        heartbeat_busy_ms: u32 = 5, range(1, 1000), "ms";
        /// Shortest heartbeat timer while idle. Not below `runtime.heartbeat_busy_ms`.
        heartbeat_idle_ms: u32 = 50, range(1, 10_000), "ms";
        /// The watchdog logs a core that made no progress for this long, and sends it a wake-up signal. At least five times
        /// `runtime.heartbeat_idle_ms`.
        watchdog_frozen_ms: u32 = 250, range(100, 600_000), "ms";
        /// The watchdog ends the process when a core made no progress and was asleep for this long. Never
        /// while it works. Above `runtime.watchdog_frozen_ms`.
        watchdog_exit_ms: u32 = 10_000, range(200, 3_600_000), "ms";
    }
}

impl Config {
    /// This server.
    pub(crate) fn own_id(&self) -> ServerId {
        ServerId(self.server.server_id)
    }

    /// This server among those of its ensemble; `None` when it runs alone.
    pub(crate) fn own_member(&self) -> Option<&Member> {
        let servers = &self.ensemble.servers;
        servers.of(self.server.server_id).filter(|_| servers.is_ensemble())
    }

    /// Whether the process holds a secret of the operator: a password, a private key or the secret of an ensemble.
    pub(crate) fn has_secrets(&self) -> bool {
        let files = [
            &self.tls.key_store,
            &self.ensemble.tls_key,
            &self.ensemble.secret_file,
            &self.security.sasl_jaas_file,
            &self.security.sasl_users_file,
        ];
        KEYS.iter().any(|key| (key.show)(self) == HIDDEN) || files.iter().any(|file| !file.as_os_str().is_empty())
    }
}

impl Audit {
    /// The file, with this directory of data.
    pub(crate) fn path(&self, data_dir: &Path) -> PathBuf {
        if self.file.as_os_str().is_empty() { data_dir.join("audit.log") } else { self.file.clone() }
    }
}
