//! The flags every sub-command has, the types of their values, and the target made from them.
//!
//! Used by the `corral-bench` binary and by the server's `bench` sub-command. Clap refuses a value that is out of its
//! limits, with the name of the flag. A contradiction of two flags is a [`WrongFlag`]. Sends nothing.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use crate::limits::{RATE_MAX, RATE_MIN, SECONDS_MAX};
use crate::tls::TlsArgs;

/// The flags every sub-command has.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Server and output", allow_negative_numbers = true)]
pub(crate) struct CommonArgs {
    /// Server addresses; sessions are spread evenly over them
    #[arg(short, long, default_value = "127.0.0.1:2181", value_delimiter = ',', value_name = "HOST:PORT")]
    pub(crate) server: Vec<String>,
    /// Process ids of the servers on this machine, to measure their CPU time and memory; several are added up
    #[arg(long, value_name = "PID,...", value_parser = pids)]
    pub(crate) pid: Vec<Pids>,
    /// Pin the client threads to these CPUs, in turn; choose others than the server's
    #[arg(long, value_delimiter = ',', value_name = "CPU,...")]
    pub(crate) cpu: Vec<usize>,
    /// Session timeout to request
    #[arg(long, default_value_t = 30_000, value_name = "MS", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) session_timeout_ms: i32,
    /// Fail if a reply takes longer than this
    #[arg(long, default_value = "10", value_name = "SECONDS", value_parser = some_seconds)]
    pub(crate) reply_timeout: Duration,
    /// Znode to create and to work beneath; it must not exist, but its parent must [default: /corral-bench-PID-TIME]
    #[arg(long, value_name = "PATH", value_parser = znode)]
    pub(crate) chroot: Option<String>,
    /// Do not remove the znodes at the end
    #[arg(long)]
    pub(crate) keep: bool,
    /// Print one line of JSON on standard output instead of the table
    #[arg(long)]
    pub(crate) json: bool,
    /// Text that is copied into the JSON line
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Print no progress on standard error
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
}

/// Process ids as `--pid` has them: with commas between them, or with spaces as `pidof` prints them. Never empty.
#[derive(Clone, Debug)]
pub(crate) struct Pids(Vec<i32>);

fn pids(text: &str) -> Result<Pids, String> {
    let words = text.split([',', ' ', '\n', '\t']).filter(|word| !word.is_empty());
    let read =
        |word: &str| word.parse().ok().filter(|pid| *pid > 0).ok_or_else(|| format!("{word:?} is not a process id"));
    let pids: Vec<i32> = words.map(read).collect::<Result<_, _>>()?;
    if pids.is_empty() { Err("no process id: does the server run?".to_owned()) } else { Ok(Pids(pids)) }
}

fn znode(path: &str) -> Result<String, String> {
    let parts_fine = path.split('/').skip(1).all(|part| !part.is_empty() && part != "." && part != "..");
    let fine = path.starts_with('/') && parts_fine && path.len() <= 200 && !path.contains(char::is_control);
    fine.then(|| path.to_owned()).ok_or_else(|| "not the path of a znode (as /a or /a/b, up to 200 bytes)".to_owned())
}

fn number_within(text: &str, min: f64, max: f64, unit: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (min..=max).contains(&value) { Ok(value) } else { Err(format!("not within {min}..={max} {unit}")) }
}

/// Parses seconds, 0 included.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    number_within(text, 0.0, SECONDS_MAX, "seconds").map(Duration::from_secs_f64)
}

/// Parses seconds above 0.
pub(crate) fn some_seconds(text: &str) -> Result<Duration, String> {
    number_within(text, 0.001, SECONDS_MAX, "seconds").map(Duration::from_secs_f64)
}

/// Parses a rate of an open loop, per second.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    number_within(text, RATE_MIN, RATE_MAX, "per second")
}

/// Parses a count of at least one.
pub(crate) fn up_to(max: u32) -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(max))
}

/// Flags that do not fit together, as a sentence. Nothing was sent, and the program ends with exit code 2.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WrongFlag(String);

/// Makes an error of the command line a [`WrongFlag`]. A name that cannot be resolved now is not a wrong flag.
pub(crate) fn flags<T>(checked: Result<T>) -> Result<T> {
    checked.map_err(|error| {
        let unresolved = error.downcast_ref::<io::Error>().is_some_and(|it| it.kind() != io::ErrorKind::InvalidInput);
        if unresolved || error.is::<WrongFlag>() { error } else { WrongFlag(format!("{error:#}")).into() }
    })
}

/// Where a run takes place, with addresses resolved.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) pids: Vec<i32>,
    pub(crate) chroot: String,
    pub(crate) args: CommonArgs,
}

impl Target {
    /// Resolves the addresses and tries the CPUs.
    pub(crate) fn of(args: &CommonArgs) -> Result<Self> {
        flags(pinnable(&args.cpu))?;
        let chroot = format!("/corral-bench-{}-{}", std::process::id(), unix_time());
        Ok(Self {
            servers: flags(args.server.iter().map(|name| resolve(name)).collect())?,
            pids: args.pid.iter().flat_map(|pids| pids.0.clone()).collect(),
            chroot: args.chroot.clone().unwrap_or(chroot),
            args: args.clone(),
        })
    }

    /// The CPU of the nth client thread, if they are pinned.
    pub(crate) fn cpu(&self, thread: usize) -> Option<usize> {
        self.args.cpu.get(thread % self.args.cpu.len().max(1)).copied()
    }

    pub(crate) fn server(&self, number: usize) -> SocketAddr {
        self.servers[number % self.servers.len()]
    }
}

pub(crate) fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Checks that the thread can be pinned to each of the CPUs. The thread keeps its own.
fn pinnable(cpus: &[usize]) -> Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let this = nix::unistd::Pid::from_raw(0);
    let before = nix::sched::sched_getaffinity(this).context("sched_getaffinity")?;
    let tried = cpus.iter().try_for_each(|cpu| pin(Some(*cpu)));
    nix::sched::sched_setaffinity(this, &before).context("sched_setaffinity")?;
    tried
}

pub(crate) fn pin(cpu: Option<usize>) -> Result<()> {
    let Some(cpu) = cpu else { return Ok(()) };
    let mut set = nix::sched::CpuSet::new();
    set.set(cpu).with_context(|| format!("--cpu {cpu}: no such CPU"))?;
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set)
        .with_context(|| format!("--cpu {cpu}: this process may not run there"))
}

fn resolve(name: &str) -> Result<SocketAddr> {
    let mut found = name.to_socket_addrs().with_context(|| format!("--server {name}: give HOST:PORT"))?;
    found.next().with_context(|| format!("--server {name} has no address"))
}
