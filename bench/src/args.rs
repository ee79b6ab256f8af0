//! The flags every sub-command has: where the server is, how long to wait, what to print; and their checked form.
//!
//! Used by the `corral-bench` binary and by the server's `bench` sub-command. Knows no socket: addresses are resolved
//! by name only when the run starts.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::limits::{RATE_MAX, RATE_MIN, SECONDS_MAX};

/// The flags every sub-command has.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Server and output", allow_negative_numbers = true)]
pub struct CommonArgs {
    /// Server addresses; sessions are spread evenly over them
    #[arg(short, long, default_value = "127.0.0.1:2181", value_delimiter = ',', value_name = "HOST:PORT")]
    pub server: Vec<String>,
    /// Process ids of the servers on this machine, to measure their CPU time and memory; several are added up
    #[arg(long, value_name = "PID,...", value_parser = Pids::parse)]
    pub pid: Vec<Pids>,
    /// Pin the client threads to these CPUs, in turn; choose others than the server's
    #[arg(long, value_delimiter = ',', value_name = "CPU,...")]
    pub cpu: Vec<usize>,
    /// Session timeout to request
    #[arg(long, default_value_t = 30_000, value_name = "MS")]
    pub session_timeout_ms: i32,
    /// Fail if a reply takes longer than this
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    pub reply_timeout: f64,
    /// Znode to create and to work beneath; it must not exist [default: /corral-bench-PID-TIME]
    #[arg(long, value_name = "PATH")]
    pub chroot: Option<String>,
    /// Do not remove the znodes at the end
    #[arg(long)]
    pub keep: bool,
    /// Print one line of JSON on standard output instead of the table
    #[arg(long)]
    pub json: bool,
    /// Text that is copied into the JSON line
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,
    /// Print no progress on standard error
    #[arg(short, long)]
    pub quiet: bool,
}

/// Process ids as `--pid` has them: with commas between them, or with spaces as `pidof` prints them. Never none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pids(Vec<i32>);

impl Pids {
    fn parse(text: &str) -> Result<Self, PidError> {
        let words = text.split([',', ' ', '\n', '\t']).filter(|word| !word.is_empty());
        let invalid = |word: &str| PidError::Invalid(word.to_owned());
        let read = |word: &str| word.parse().ok().filter(|pid| *pid > 0).ok_or_else(|| invalid(word));
        let pids: Vec<i32> = words.map(read).collect::<Result<_, _>>()?;
        if pids.is_empty() { Err(PidError::Empty) } else { Ok(Self(pids)) }
    }
}

/// Why the text of `--pid` is not a list of process ids.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum PidError {
    #[error("no process id: does the server run?")]
    Empty,
    #[error("{0:?} is not a process id")]
    Invalid(String),
}

/// A wrong flag, as a sentence. Nothing was sent, and the program ends with exit code 2.
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

/// Parses a count of at least one.
pub(crate) fn up_to(max: u32) -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(max))
}

/// The checked flags every sub-command has, with addresses resolved.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) pids: Vec<i32>,
    pub(crate) cpus: Vec<usize>,
    pub(crate) session_timeout_ms: i32,
    pub(crate) reply_timeout: Duration,
    pub(crate) chroot: String,
    pub(crate) keep: bool,
    pub(crate) quiet: bool,
}

impl Target {
    /// Checks every flag and resolves the addresses.
    pub(crate) fn of(args: &CommonArgs) -> Result<Self> {
        flags(Self::checked(args))
    }

    fn checked(args: &CommonArgs) -> Result<Self> {
        pinnable("--cpu", &args.cpu)?;
        ensure!(args.session_timeout_ms > 0, "--session-timeout-ms {} is not positive", args.session_timeout_ms);
        Ok(Self {
            servers: resolve(&args.server)?,
            pids: args.pid.iter().flat_map(|pids| pids.0.clone()).collect(),
            cpus: args.cpu.clone(),
            session_timeout_ms: args.session_timeout_ms,
            reply_timeout: seconds("--reply-timeout", args.reply_timeout, 0.001)?,
            chroot: chroot(args.chroot.as_deref())?,
            keep: args.keep,
            quiet: args.quiet,
        })
    }

    /// The CPU of the nth client thread, if they are pinned.
    pub(crate) fn cpu(&self, thread: usize) -> Option<usize> {
        self.cpus.get(thread % self.cpus.len().max(1)).copied()
    }
}

/// Checks that the thread can be pinned to each of the CPUs, before anything is sent. The thread keeps its own.
pub(crate) fn pinnable(flag: &str, cpus: &[usize]) -> Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let this = nix::unistd::Pid::from_raw(0);
    let before = nix::sched::sched_getaffinity(this).context("sched_getaffinity")?;
    let tried = cpus.iter().try_for_each(|cpu| pin_by(flag, *cpu));
    nix::sched::sched_setaffinity(this, &before).context("sched_setaffinity")?;
    tried
}

/// Pins the calling thread.
pub(crate) fn pin(cpu: Option<usize>) -> Result<()> {
    cpu.map_or(Ok(()), |cpu| pin_by("--cpu", cpu))
}

fn pin_by(flag: &str, cpu: usize) -> Result<()> {
    let mut set = nix::sched::CpuSet::new();
    set.set(cpu).with_context(|| format!("{flag} {cpu}: no such CPU"))?;
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set)
        .with_context(|| format!("{flag} {cpu}: this process may not run there"))
}

/// The name of the program: the load generator alone, or the server's sub-command.
pub(crate) fn program() -> &'static str {
    let alone = std::env::args_os().next().is_some_and(|path| Path::new(&path).ends_with("corral-bench"));
    if alone { "corral-bench" } else { "corral bench" }
}

pub(crate) fn within(flag: &str, value: u32, max: u32) -> Result<()> {
    ensure!((1..=max).contains(&value), "{flag} {value} is not within 1..={max}");
    Ok(())
}

/// Checks a rate of an open loop, per second.
pub(crate) fn rate(flag: &str, value: f64) -> Result<f64> {
    ensure!(
        (RATE_MIN..=RATE_MAX).contains(&value),
        "{flag} {value:?} is not within {RATE_MIN}..={RATE_MAX} per second"
    );
    Ok(value)
}

pub(crate) fn seconds(flag: &str, value: f64, min: f64) -> Result<Duration> {
    ensure!((min..=SECONDS_MAX).contains(&value), "{flag} {value} is not within {min}..={SECONDS_MAX} seconds");
    Ok(Duration::from_secs_f64(value))
}

fn resolve(names: &[String]) -> Result<Vec<SocketAddr>> {
    let resolved = names.iter().map(|name| {
        let mut found = name.to_socket_addrs().with_context(|| format!("--server {name}: give HOST:PORT"))?;
        found.next().with_context(|| format!("--server {name} has no address"))
    });
    resolved.collect()
}

fn chroot(given: Option<&str>) -> Result<String> {
    let Some(path) = given else {
        return Ok(format!("/corral-bench-{}-{}", std::process::id(), crate::machine::unix_time()));
    };
    let parts_fine = path.split('/').skip(1).all(|part| !part.is_empty() && part != "." && part != "..");
    let fine = path.starts_with('/') && parts_fine && path.len() <= 200 && !path.contains(char::is_control);
    ensure!(fine, "--chroot {path:?} is not the path of a znode (as /a or /a/b, up to 200 bytes)");
    Ok(path.to_owned())
}
