//! Facts about the process and its host, gathered on request: sizes of directories, open files, the environment.
//!
//! For a thread that may block: all of it is files. Knows no shard.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use corral_core::ids::WallMillis;
use corral_core::report::{Configured, Moment, PeerFacts, ServerFacts};
use corral_core::servers::{Role, Servers};
use corral_wire::fourletter::FourLetter;

use super::space::{Space, newest_snapshot};
use crate::audit::AuditLog;
use crate::config::{self, Config};
use crate::gauges::Gauges;
use crate::net::acceptor::BACKLOG;
use crate::net::peers::{PeerConnections, PeerStats};
use crate::net::tls::certificates::Certificates;
use crate::runtime::clock::Clock;
use crate::version::VERSION;

/// ZooKeeper's text for a property that its Java machine does not have.
const ABSENT: &str = "<NA>";

/// Gathers facts about the process and its host.
pub(crate) struct Facts {
    clock: Clock,
    started: WallMillis,
    gauges: Arc<Gauges>,
    data_dir: PathBuf,
    log_dir: PathBuf,
    /// Without the port for clients and the sizes of the directories.
    configured: Configured,
    connections: Option<Arc<PeerConnections>>,
    certificates: Vec<Box<dyn Certificates>>,
    audit: Option<AuditLog>,
    space: Space,
    /// All keys of the configuration.
    settings: Vec<(&'static str, String)>,
    /// Counters of the connections to observers at the last `orst`.
    observers_reset: Vec<PeerFacts>,
}

impl Facts {
    pub(crate) fn new(
        config: &Config,
        clock: Clock,
        gauges: Arc<Gauges>,
        connections: Option<Arc<PeerConnections>>,
        certificates: Vec<Box<dyn Certificates>>,
        audit: Option<AuditLog>,
    ) -> Facts {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let (data_dir, log_dir) = (absolute(&config.server.data_dir), absolute(&config.server.log_dir));
        let configured = Configured {
            client_port: 0,
            secure_client_port: None,
            data_dir: data_dir.display().to_string(),
            data_dir_bytes: 0,
            log_dir: log_dir.display().to_string(),
            log_dir_bytes: 0,
            tick_ms: config.server.tick_time_ms,
            connections_per_ip_max: config.limits.connections_per_ip_max,
            session_timeout_min_ms: config.sessions.timeout_min_ms,
            session_timeout_max_ms: config.sessions.timeout_max_ms,
            backlog: BACKLOG,
            server_id: config.own_id(),
            members: None,
        };
        let started = WallMillis(clock.wall().0.saturating_sub_unsigned(clock.now().0));
        let settings = config::values(config);
        let observers_reset = Vec::new();
        let space = Space::new(&data_dir, &log_dir, config.log.segment_bytes);
        Facts {
            clock,
            started,
            gauges,
            data_dir,
            log_dir,
            configured,
            connections,
            certificates,
            audit,
            space,
            settings,
            observers_reset,
        }
    }

    /// The directories.
    pub(crate) fn space(&self) -> &Space {
        &self.space
    }

    pub(crate) fn now(&self) -> Moment {
        Moment { now: self.clock.now(), wall: self.clock.wall() }
    }

    /// Forgets what `srst` wants forgotten.
    pub(crate) fn reset(&self) {
        self.gauges.reset();
    }

    /// The counters of the connections to observers begin anew.
    pub(crate) fn reset_observers(&mut self) {
        self.observers_reset = self.peers();
    }

    /// Of the connections to other servers.
    fn peers(&self) -> Vec<PeerFacts> {
        self.connections.iter().flat_map(|connections| connections.stats()).map(peer).collect()
    }

    /// Of the connections to the observers among these, since the counters were reset.
    fn observers(&self, members: &Servers) -> Vec<PeerFacts> {
        let is_observer =
            |peer: &PeerFacts| members.0.get(&peer.id).is_some_and(|server| server.role == Role::Observer);
        let since = |peer: PeerFacts| match self.observers_reset.iter().find(|before| before.id == peer.id) {
            Some(before) => PeerFacts {
                messages_in: peer.messages_in.saturating_sub(before.messages_in),
                messages_out: peer.messages_out.saturating_sub(before.messages_out),
                ..peer
            },
            None => peer,
        };
        self.peers().into_iter().filter(is_observer).map(since).collect()
    }

    /// The facts for the answer to this command; looks at no more files than that takes.
    pub(crate) fn gather(&self, command: FourLetter, trace_mask: i64) -> ServerFacts {
        let mut facts = ServerFacts {
            version: VERSION.to_owned(),
            started: self.started,
            mode: self.gauges.mode(),
            stalled: self.gauges.stalled.load(Ordering::Relaxed),
            obstacle: self.gauges.obstacle(),
            trace_mask,
            leader: self.gauges.leader(),
            proposals: self.gauges.proposals(),
            slow_syncs: self.gauges.slow_syncs.count(),
            configured: Configured {
                client_port: self.gauges.client_port.load(Ordering::Relaxed),
                secure_client_port: Some(self.gauges.secure_port.load(Ordering::Relaxed)).filter(|port| *port > 0),
                members: self.gauges.members(),
                ..self.configured.clone()
            },
            ..ServerFacts::default()
        };
        match command {
            FourLetter::Conf | FourLetter::Dirs | FourLetter::Srvr | FourLetter::Stat => {
                facts.configured.data_dir_bytes = bytes_below(&self.data_dir);
                facts.configured.log_dir_bytes = bytes_below(&self.log_dir);
                if command == FourLetter::Conf {
                    facts.last_snapshot =
                        newest_snapshot(&self.data_dir).map(|(newest, meta)| (newest.zxid, meta.mtime()));
                    facts.settings.clone_from(&self.settings);
                    let members = facts.configured.members.as_ref();
                    facts.observers = members.map(|(servers, _)| self.observers(servers)).unwrap_or_default();
                }
            }
            FourLetter::Hash => facts.digests = self.gauges.digests(),
            FourLetter::Envi => facts.environment = environment(),
            FourLetter::Mntr => {
                (facts.open_files, facts.open_files_max) = open_files();
                facts.resident_bytes = Memory::now().used;
                facts.anonymous_bytes = anonymous_bytes();
                facts.cpu_ten_thousandths = cpu_ten_thousandths();
                facts.threads = threads();
                (facts.delta_bytes, facts.log_bytes) = self.gauges.consensus_bytes();
                facts.freezes = self.gauges.freezes.count();
                facts.last_freeze_s = self.gauges.freezes.last_s();
                facts.last_slow_sync_s = self.gauges.slow_syncs.last_s();
                (facts.elections, facts.looking_count, facts.led_ms) = self.gauges.elections();
                facts.clock_ahead_ms = self.gauges.clock_ahead_ms();
                facts.lag = self.gauges.lag();
                facts.scarcity = self.gauges.scarcity();
                (facts.growth_refusing, facts.growth_refused) = self.gauges.growth();
                facts.spaces = self.space.look();
                facts.slow_disk_transfers = self.gauges.slow_disk_transfers.load(Ordering::Relaxed);
                facts.log_entries_kept = self.gauges.log_entries_kept.load(Ordering::Relaxed);
                facts.digest_mismatches = self.gauges.digest_mismatches.load(Ordering::Relaxed);
                facts.scrub = self.gauges.scrub();
                facts.reconfig = self.gauges.reconfig();
                facts.quorum = self.gauges.quorum();
                facts.handshakes_failed = self.gauges.handshakes_failed.load(Ordering::Relaxed);
                facts.connections_refused = self.gauges.refused.load(Ordering::Relaxed);
                facts.audit = self.audit.as_ref().map(AuditLog::facts);
                facts.latencies = self.gauges.latencies();
                facts.syncs = self.gauges.syncs.timing();
                facts.snapshots = self.gauges.snapshots.timing();
                facts.certificate_expires = self.certificates.iter().filter_map(|one| one.expires()).min();
                facts.peers = self.peers();
            }
            _ => {}
        }
        facts
    }
}

fn peer(stats: PeerStats) -> PeerFacts {
    PeerFacts {
        id: stats.peer,
        connected_out: stats.up_out,
        connected_in: stats.up_in,
        bytes_out: stats.bytes_out,
        bytes_in: stats.bytes_in,
        messages_out: stats.messages_out,
        messages_in: stats.messages_in,
        queued_bytes: stats.queued_bytes as u64,
        queued_messages: stats.queued_messages as u64,
        dropped: stats.dropped,
        reconnects: stats.reconnects,
        dials_failed: stats.dials_failed,
    }
}

/// Sizes of all files below a directory. Files may come and go meanwhile. Symbolic links are not followed.
fn bytes_below(directory: &Path) -> u64 {
    let mut bytes = 0_u64;
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => left.push(entry.path()),
                // A sparse file may have 8 EiB.
                Ok(meta) => bytes = bytes.saturating_add(meta.len()),
                Err(_) => {}
            }
        }
    }
    bytes
}

/// File descriptors in use, and how many there may be.
fn open_files() -> (u64, u64) {
    let open = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count) as u64;
    let max = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
    (open, max)
}

/// CPU time of the process, ten-thousandths of a second.
fn cpu_ten_thousandths() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let (seconds, nanoseconds) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    seconds.saturating_mul(10_000) + nanoseconds / 100_000
}

/// CPU time by name of thread, ten-thousandths of a second. Threads may end meanwhile.
fn threads() -> Vec<(String, u64)> {
    let mut times = BTreeMap::new();
    for thread in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let read = |file| fs::read_to_string(thread.path().join(file)).ok();
        let (Some(name), Some(stat)) = (read("comm"), read("schedstat")) else { continue };
        let ns: Option<u64> = stat.split_whitespace().next().and_then(|number| number.parse().ok());
        *times.entry(name.trim_end().to_owned()).or_insert(0) += ns.unwrap_or(0) / 100_000;
    }
    times.into_iter().collect()
}

/// ZooKeeper's keys. There is no Java here, so what is Java's own is absent; the memory is the host's and the
/// process's.
fn environment() -> Vec<(&'static str, String)> {
    let absent = || ABSENT.to_owned();
    let kernel = |name: &str| {
        fs::read_to_string(Path::new("/proc/sys/kernel").join(name))
            .map_or_else(|_| absent(), |text| text.trim().to_owned())
    };
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten();
    let (user, home) = user.map_or_else(|| (absent(), absent()), |user| (user.name, user.dir.display().to_string()));
    let memory = Memory::now();
    let mb = |bytes: u64| format!("{}MB", bytes >> 20);
    vec![
        ("zookeeper.version", VERSION.to_owned()),
        ("host.name", kernel("hostname")),
        ("java.version", absent()),
        ("java.vendor", absent()),
        ("java.home", absent()),
        ("java.class.path", absent()),
        ("java.library.path", absent()),
        ("java.io.tmpdir", std::env::temp_dir().display().to_string()),
        ("java.compiler", absent()),
        ("os.name", kernel("ostype")),
        ("os.arch", java_name(std::env::consts::ARCH).to_owned()),
        ("os.version", kernel("osrelease")),
        ("user.name", user),
        ("user.home", home),
        ("user.dir", std::env::current_dir().map_or_else(|_| absent(), |path| path.display().to_string())),
        ("os.memory.free", mb(memory.free)),
        ("os.memory.max", mb(memory.max)),
        ("os.memory.total", mb(memory.used)),
    ]
}

/// An architecture as Java calls it.
fn java_name(arch: &str) -> &str {
    if arch == "x86_64" { "amd64" } else { arch }
}

/// Bytes of memory; 0 if the kernel does not report them.
struct Memory {
    /// The memory that the host can still give.
    free: u64,
    /// The most memory of the process: the control group's limit or all there is.
    max: u64,
    /// The memory of the process, its mapped files included.
    used: u64,
}

impl Memory {
    fn now() -> Memory {
        let host = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let limit = fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
        Memory {
            free: kib(&host, "MemAvailable:"),
            max: limit.unwrap_or(u64::MAX).min(kib(&host, "MemTotal:")),
            used: kib(&own, "VmRSS:"),
        }
    }
}

/// Memory of the process that no file backs.
pub(super) fn anonymous_bytes() -> u64 {
    kib(&fs::read_to_string("/proc/self/status").unwrap_or_default(), "RssAnon:")
}

/// The bytes of a line such as `VmRSS:     1234 kB`.
fn kib(text: &str, key: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let number: Option<u64> = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.unwrap_or(0).saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_directories() {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        assert_eq!(bytes_below(&dir.path().join("missing")), 0);
        fs::create_dir(dir.path().join("below")).expect("the directory is writable");
        for (name, bytes) in [("a", 10), ("below/b", 20)] {
            fs::write(dir.path().join(name), vec![0; bytes]).expect("the directory is writable");
        }
        std::os::unix::fs::symlink("/", dir.path().join("below/up")).expect("the directory is writable");
        // A symbolic link has the size of its text.
        assert_eq!(bytes_below(dir.path()), 31);
    }

    #[test]
    fn the_environment_has_zookeepers_keys() {
        let keys: Vec<&str> = environment().iter().map(|(key, _)| *key).collect();
        let expect = "zookeeper.version host.name java.version java.vendor java.home java.class.path \
                      java.library.path java.io.tmpdir java.compiler os.name os.arch os.version user.name user.home \
                      user.dir os.memory.free os.memory.max os.memory.total";
        assert_eq!(keys, expect.split_whitespace().collect::<Vec<_>>());
        assert!(
            environment().iter().all(|(key, value)| !value.is_empty() && (!key.contains("memory") || value != "0MB"))
        );
    }

    #[test]
    fn lines_of_the_kernels_files() {
        let text = "VmPeak:\t  99 kB\nVmRSS:\t  1234 kB\nThreads:\tx\n";
        for (key, bytes) in [("VmRSS:", 1234 * 1024), ("Threads:", 0), ("None:", 0)] {
            assert_eq!(kib(text, key), bytes, "{key}");
        }
    }
}
