//! The command line of the load generator and the checked plan made from it.
//!
//! Used by the `corral-bench` binary and by the server's `bench` sub-command. Knows no socket: addresses are resolved
//! by name only when the run starts.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;

use crate::limits::{
    CHILDREN_MAX, CONNECTIONS_MAX, DEPTH_MAX, IN_FLIGHT_BYTES_MAX, KEYS_MAX, RATE_MAX, SECONDS_MAX, THREADS_MAX,
    VALUE_BYTES_MAX,
};

/// What each request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Operation {
    /// getData of a random key
    Get,
    /// exists of a random key
    Exists,
    /// getChildren2 of one znode with --children children
    Children,
    /// setData of a random key (durable on the server)
    Set,
    /// create of a new persistent znode (durable on the server)
    Create,
    /// --read-percent getData, the rest setData
    Mix,
}

impl Operation {
    /// The name as on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Exists => "exists",
            Self::Children => "children",
            Self::Set => "set",
            Self::Create => "create",
            Self::Mix => "mix",
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  corral-bench                                      50 connections x 16 in flight, getData, 10 s
  corral-bench -d 1 --pid $(pidof corral)           one request in flight each; server CPU per operation
  corral-bench -o mix --read-percent 90 -c 256
  corral-bench -o set --rate 20000                  open loop: 20,000/s come whether or not the server keeps up
  corral-bench -o create --ops 1000000 --keep       load a million znodes and leave them there
  corral-bench --server h1:2181,h2:2181,h3:2181     spread the connections over an ensemble

The generator creates a znode of its own below /, works only beneath it and removes it at the end. Every reply is
checked (order, error code, sizes, contents); the first wrong one ends the run with exit code 1.";

/// The flags of one run.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Server addresses; connections are spread evenly over them
    #[arg(short, long, default_value = "127.0.0.1:2181", value_delimiter = ',', value_name = "HOST:PORT")]
    pub server: Vec<String>,
    /// What each request does
    #[arg(short, long = "op", value_enum, default_value_t = Operation::Get)]
    pub op: Operation,
    /// Share of reads in a mix, in percent
    #[arg(long, default_value_t = 90, value_name = "PERCENT")]
    pub read_percent: u32,
    /// Number of connections, each a session of its own. ZooKeeper and corral take 60 from one address unless told
    /// otherwise
    #[arg(short, long, default_value_t = 50)]
    pub connections: u32,
    /// Requests in flight on each connection
    #[arg(short, long, default_value_t = 16)]
    pub depth: u32,
    /// Client threads; connections are dealt out to them
    #[arg(short, long, default_value_t = 1)]
    pub threads: u32,
    /// Bytes of each znode's value
    #[arg(long, default_value_t = 100, value_name = "BYTES")]
    pub value_bytes: usize,
    /// Znodes prepared for get, exists, set and mix
    #[arg(long, default_value_t = 1000)]
    pub keys: u32,
    /// Children prepared for the children operation
    #[arg(long, default_value_t = 100)]
    pub children: u32,
    /// Seconds to measure
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    pub duration: f64,
    /// Measure this many operations instead of a time
    #[arg(long, conflicts_with = "duration", value_name = "COUNT")]
    pub ops: Option<u64>,
    /// Seconds of the same load before measuring (give a JVM at least 10)
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS")]
    pub warmup: f64,
    /// Open loop: offer this many requests per second in all; latency counts from when a request was due
    #[arg(long, value_name = "PER_SECOND")]
    pub rate: Option<f64>,
    /// Process id of the server, to account its CPU time per operation (this machine only)
    #[arg(long, value_name = "PID")]
    pub pid: Option<i32>,
    /// Pin the client threads to these CPUs, in turn
    #[arg(long, value_delimiter = ',', value_name = "CPU,...")]
    pub cpu: Vec<usize>,
    /// Session timeout to ask for
    #[arg(long, default_value_t = 30_000, value_name = "MS")]
    pub session_timeout_ms: i32,
    /// Give up when a reply takes longer than this
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    pub reply_timeout: f64,
    /// The znode to work beneath; it must not exist [default: /corral-bench-PID-TIME]
    #[arg(long, value_name = "PATH")]
    pub chroot: Option<String>,
    /// Leave the znodes behind
    #[arg(long)]
    pub keep: bool,
    /// Print one line of JSON on standard output instead of the table
    #[arg(long)]
    pub json: bool,
    /// Any text, carried into the JSON line
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,
    /// No progress on standard error
    #[arg(short, long)]
    pub quiet: bool,
}

/// When the measured window ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Extent {
    Time(Duration),
    Ops(u64),
}

/// The checked flags, with addresses resolved.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) op: Operation,
    pub(crate) read_percent: u32,
    pub(crate) connections: u32,
    pub(crate) depth: u32,
    pub(crate) threads: u32,
    pub(crate) value_bytes: usize,
    pub(crate) keys: u32,
    pub(crate) children: u32,
    pub(crate) extent: Extent,
    pub(crate) warmup: Duration,
    pub(crate) rate: Option<f64>,
    pub(crate) pid: Option<i32>,
    pub(crate) cpus: Vec<usize>,
    pub(crate) session_timeout_ms: i32,
    pub(crate) reply_timeout: Duration,
    pub(crate) chroot: String,
    pub(crate) keep: bool,
    pub(crate) quiet: bool,
}

impl Plan {
    /// Checks every flag against its limit and resolves the addresses.
    pub(crate) fn of(args: &Args) -> Result<Self> {
        within("--connections", args.connections, CONNECTIONS_MAX)?;
        within("--depth", args.depth, DEPTH_MAX)?;
        within("--threads", args.threads, THREADS_MAX)?;
        within("--keys", args.keys, KEYS_MAX)?;
        within("--children", args.children, CHILDREN_MAX)?;
        ensure!(args.threads <= args.connections, "--threads {} is more than --connections", args.threads);
        ensure!(args.read_percent <= 100, "--read-percent {} is more than 100", args.read_percent);
        ensure!(args.value_bytes <= VALUE_BYTES_MAX, "--value-bytes {} is above {VALUE_BYTES_MAX}", args.value_bytes);
        ensure!(args.ops != Some(0), "--ops 0 measures nothing");
        ensure!(args.pid.is_none_or(|pid| pid > 0), "--pid is no process id");
        let in_flight = u64::from(args.connections) * u64::from(args.depth) * (args.value_bytes as u64 + 64);
        if in_flight > IN_FLIGHT_BYTES_MAX {
            bail!(
                "--connections x --depth x --value-bytes keeps {in_flight} bytes in flight; at most {IN_FLIGHT_BYTES_MAX}"
            );
        }
        if let Some(rate) = args.rate {
            ensure!(rate > 0.0 && rate <= RATE_MAX, "--rate {rate} is not within 0..={RATE_MAX}");
        }
        let extent = match args.ops {
            Some(ops) => Extent::Ops(ops),
            None => Extent::Time(seconds("--duration", args.duration, 0.001)?),
        };
        Ok(Self {
            servers: resolve(&args.server)?,
            op: args.op,
            read_percent: args.read_percent,
            connections: args.connections,
            depth: args.depth,
            threads: args.threads,
            value_bytes: args.value_bytes,
            keys: args.keys,
            children: args.children,
            extent,
            warmup: seconds("--warmup", args.warmup, 0.0)?,
            rate: args.rate,
            pid: args.pid,
            cpus: args.cpu.clone(),
            session_timeout_ms: args.session_timeout_ms,
            reply_timeout: seconds("--reply-timeout", args.reply_timeout, 0.001)?,
            chroot: chroot(args.chroot.as_deref())?,
            keep: args.keep,
            quiet: args.quiet,
        })
    }
}

fn within(flag: &str, value: u32, max: u32) -> Result<()> {
    ensure!((1..=max).contains(&value), "{flag} {value} is not within 1..={max}");
    Ok(())
}

fn seconds(flag: &str, value: f64, min: f64) -> Result<Duration> {
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
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        return Ok(format!("/corral-bench-{}-{}", std::process::id(), since.as_secs()));
    };
    let parts_fine = path.split('/').skip(1).all(|part| !part.is_empty() && part != "." && part != "..");
    let fine = path.starts_with('/') && parts_fine && path.len() <= 200 && !path.contains(char::is_control);
    ensure!(fine, "--chroot {path:?} is not the path of a znode (as /a or /a/b, up to 200 bytes)");
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn plan(line: &str) -> Result<Plan> {
        let words = std::iter::once("bench").chain(line.split_whitespace());
        Plan::of(&Cli::try_parse_from(words)?.args)
    }

    #[test]
    fn flags_become_a_plan() {
        let plan = plan("-s 127.0.0.1:1,127.0.0.1:2 -o mix -c 8 -d 2 -t 2 --ops 5 --cpu 0,1 --chroot /a/b").unwrap();
        assert_eq!(plan.servers.len(), 2);
        assert_eq!((plan.op, plan.connections, plan.depth, plan.threads), (Operation::Mix, 8, 2, 2));
        assert_eq!((plan.extent, plan.chroot.as_str()), (Extent::Ops(5), "/a/b"));
        assert_eq!(plan.cpus, [0, 1]);
    }

    #[test]
    fn bad_flags_are_refused_by_name() {
        fn check(line: &str, part: &str) {
            let error = plan(line).err().map(|error| format!("{error:#}")).unwrap_or_default();
            assert!(error.contains(part), "{line:?} gives {error:?}");
        }
        check("-c 0", "--connections 0");
        check("-c 50001", "--connections 50001");
        check("-d 65537", "--depth 65537");
        check("-c 2 -t 3", "--threads 3");
        check("--read-percent 101", "--read-percent 101");
        check("--value-bytes 1000001", "--value-bytes 1000001");
        check("-c 50000 -d 65536", "bytes in flight");
        check("--ops 0", "--ops 0");
        check("--rate 0", "--rate 0");
        check("--rate nan", "--rate NaN");
        check("--duration 0", "--duration 0");
        check("--warmup inf", "--warmup inf");
        check("--ops 1 --duration 1", "cannot be used with");
        check("-s nonsense", "--server nonsense");
        check("--pid 0", "--pid");
        for path in ["/", "a", "/a/", "/a//b", "/a/..", "/."] {
            check(&format!("--chroot {path}"), "--chroot");
        }
    }
}
