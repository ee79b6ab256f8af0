//! The flags of a load, and the settings that follow from them together.
//!
//! A client thread gets everything from the plan, which cannot be out of its limits. Knows no socket.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{FromArgMatches as _, value_parser};
use corral_wire::ErrorCode;

use crate::args::{CommonArgs, flags, rate, seconds, some_seconds, up_to};
use crate::limits::{
    CHILDREN_MAX, CONNECTIONS_MAX, DEPTH_MAX, IN_FLIGHT_BYTES_MAX, INTERVAL_SECONDS_MIN, KEYS_MAX, MULTI_OPS_MAX,
    THREADS_MAX, TIMELINE_ROWS_MAX, VALUE_BYTES_MAX, ZIPF_THETA_MAX,
};
use crate::mix::{Distribution, Kind, Mix, Operation};

const HELP: &str = "\
How it works:
  A load opens SESSIONS sessions and keeps DEPTH requests in flight on each (closed loop), or sends --rate requests per
  second whether or not the server keeps up (open loop). It warms up, measures for --duration, and prints throughput,
  latency percentiles and the CPU time of client and server. It creates a znode of its own below /, works only beneath it
  and removes it at the end. Every reply is checked: order, error code, zxid, sizes, contents. The first wrong one ends the
  run with exit code 1.

How to measure:
  1. Pin server and client to different CPUs (taskset, --cpu), and give --pid. Server CPU per operation is the steadiest
     figure.
  2. Warm up: --warmup 10 or more for a JVM. The warm-up is load too: its creates count for no figure, but the server has
     them. Use --warmup 0 to create an exact number of znodes.
  3. Find the saturation with a closed loop. Then measure latency with --rate below it. A closed loop sends nothing while
     the server stalls, and so hides the stall; with --rate latency counts from when each request was due. Server CPU per
     operation is far higher at a low rate: each request wakes the server for itself, and a corral with poll_us polls
     meanwhile. Compare it at equal rates only.
  4. Repeat each run, alternating between the servers of one machine, with a durable log on both sides. Compare medians and
     spread. Read the notes under the table.

Examples:
  corral bench                                      50 sessions x 16 in flight, getData, 10 s
  corral bench --depth 1 --pid \"$(pidof corral)\"   one request in flight each; server CPU per operation
  corral bench --mix get=80,set=15,create=3,delete=2 --keys-distribution zipf -n 256
  corral bench -o set --rate 20000                  open loop: 20,000 writes a second
  corral bench -o create --ops 1000000 --warmup 0 --keep     create a million znodes and leave them there
  corral bench --duration 60 --csv run.csv --json   every second as a line, and the whole run as one JSON object
  corral bench -s h1:2181,h2:2181,h3:2181           spread the sessions over an ensemble
  corral bench watches -n 10000                     another scenario; corral bench watches --help describes it
More than 60 sessions (-n 256) need a server that takes them from one address: corral serve
--set limits.connections_per_ip_max=0, in ZooKeeper maxClientCnxns=0.";

/// The flags of one load.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    /// Operation of each request
    #[arg(short, long = "op", value_enum, default_value_t = Operation::Get, help_heading = "Requests")]
    pub(crate) op: Operation,
    /// Share of reads in --op mix, in percent [default: 90]
    #[arg(long, value_name = "PERCENT", value_parser = value_parser!(u32).range(0..=100), help_heading = "Requests")]
    pub(crate) read_percent: Option<u32>,
    /// Several operations with their weights, as get=80,set=10,create=5,delete=3,exists=1,children=1
    #[arg(long, conflicts_with_all = ["op", "read_percent"], value_name = "OP=WEIGHT,...", value_parser = Mix::parse,
        help_heading = "Requests")]
    pub(crate) mix: Option<Mix>,
    /// Bytes of each value written; with MIN..MAX the size of every write is random
    #[arg(long, default_value = "100", value_name = "BYTES|MIN..MAX", value_parser = sizes, help_heading = "Requests")]
    pub(crate) value_bytes: Sizes,
    /// setData operations in one multi
    #[arg(long, default_value_t = 4, value_name = "COUNT", value_parser = up_to(MULTI_OPS_MAX), help_heading = "Requests")]
    pub(crate) multi_ops: u32,
    /// Children of the znode that the children operation lists
    #[arg(long, default_value_t = 100, value_parser = up_to(CHILDREN_MAX), help_heading = "Requests")]
    pub(crate) children: u32,
    /// Count replies with these errors instead of failing, as THROTTLEDOP,QUOTAEXCEEDED
    #[arg(long, value_delimiter = ',', default_value = "THROTTLEDOP", value_name = "ERROR,...", value_parser = error_code,
        help_heading = "Requests")]
    pub(crate) tolerate: Vec<i32>,
    /// Sessions, each with a connection of its own. ZooKeeper and corral accept 60 from one address by default
    #[arg(short = 'n', long, default_value_t = 50, value_name = "SESSIONS", value_parser = up_to(CONNECTIONS_MAX),
        help_heading = "Concurrency and rate")]
    pub(crate) connections: u32,
    /// Requests in flight on each session
    #[arg(long, default_value_t = 16, value_parser = up_to(DEPTH_MAX), help_heading = "Concurrency and rate")]
    pub(crate) depth: u32,
    /// Client threads; each drives the same number of sessions
    #[arg(short, long, default_value_t = 1, value_parser = up_to(THREADS_MAX), help_heading = "Concurrency and rate")]
    pub(crate) threads: u32,
    /// Open loop: send this many requests per second in all; latency counts from when a request was due
    #[arg(long, value_name = "PER_SECOND", value_parser = rate, help_heading = "Concurrency and rate")]
    pub(crate) rate: Option<f64>,
    /// Znodes prepared for get, exists, set and multi; with delete alone, znodes to be deleted
    #[arg(long, default_value_t = 1000, value_parser = up_to(KEYS_MAX), help_heading = "Keys")]
    pub(crate) keys: u32,
    /// How requests are spread over the keys
    #[arg(long, value_enum, default_value_t = Distribution::Uniform, help_heading = "Keys")]
    pub(crate) keys_distribution: Distribution,
    /// Exponent of Zipf's law: 0 is uniform, 0.99 is common, above 1 a few keys get nearly all requests [default: 0.99]
    #[arg(long, value_name = "THETA", value_parser = theta, help_heading = "Keys")]
    pub(crate) zipf_theta: Option<f64>,
    /// Seed of all random choices: the same seed makes the same requests on each session
    #[arg(long, default_value_t = 1, help_heading = "Keys")]
    pub(crate) seed: u64,
    /// Seconds to measure
    #[arg(long, default_value = "10", value_name = "SECONDS", value_parser = some_seconds, help_heading = "Length of the run")]
    pub(crate) duration: Duration,
    /// Measure until at least this many operations are answered, instead of a time. Requests in flight at the end count for
    /// the latency, and those of the warm-up for nothing
    #[arg(long, conflicts_with = "duration", value_name = "COUNT", value_parser = value_parser!(u64).range(1..),
        help_heading = "Length of the run")]
    pub(crate) ops: Option<u64>,
    /// Seconds of the same load before measuring; at least 10 for a JVM, 0 for none. Its writes are done too
    #[arg(long, default_value = "2", value_name = "SECONDS", value_parser = seconds, help_heading = "Length of the run")]
    pub(crate) warmup: Duration,
    /// Seconds of each interval of the timeline
    #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = some_seconds, help_heading = "Files")]
    pub(crate) interval: Duration,
    /// Also write the timeline to this file, a line for each interval
    #[arg(long, value_name = "FILE", help_heading = "Files")]
    pub(crate) csv: Option<PathBuf>,
    /// Also draw throughput over time and latency by percentile into this directory
    #[arg(long, value_name = "DIR", help_heading = "Files")]
    pub(crate) svg: Option<PathBuf>,
    /// The flags that every sub-command has.
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Reads in `--op mix`, in percent, by default.
const READ_PERCENT: u32 = 90;
/// The exponent of Zipf's law by default.
const ZIPF_THETA: f64 = 0.99;

/// Bytes of the smallest and the largest value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) min: usize,
    pub(crate) max: usize,
}

/// Parses `100` or `10..2000`.
pub(crate) fn sizes(text: &str) -> Result<Sizes, String> {
    let number = |text: &str| text.trim().parse::<usize>().map_err(|_| format!("{text:?} is no size"));
    let (min, max) = text.split_once("..").unwrap_or((text, text));
    let (min, max) = (number(min)?, number(max)?);
    match () {
        () if min > max => Err("the smallest is above the largest".to_owned()),
        () if max > VALUE_BYTES_MAX => Err(format!("above {VALUE_BYTES_MAX}")),
        () => Ok(Sizes { min, max }),
    }
}

fn error_code(name: &str) -> Result<i32, String> {
    if name.is_empty() {
        // Success is tolerated in any case.
        return Ok(0);
    }
    let found = ErrorCode::ALL.iter().find(|code| code.name().eq_ignore_ascii_case(name.trim()));
    found.map(|code| code.code()).ok_or_else(|| "no such error (as THROTTLEDOP)".to_owned())
}

fn theta(text: &str) -> Result<f64, String> {
    let found = text.parse().ok().filter(|theta| (0.0..=ZIPF_THETA_MAX).contains(theta));
    found.ok_or_else(|| format!("not within 0..={ZIPF_THETA_MAX}"))
}

/// Connections with a deep queue of requests in flight, beside an open loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flood {
    pub(crate) connections: u32,
    pub(crate) depth: u32,
}

/// The flags, checked against each other.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) args: Args,
    pub(crate) mix: Mix,
    /// The exponent of Zipf's law; `None` for uniform keys.
    pub(crate) theta: Option<f64>,
    /// Connections that always have this many requests in flight, beside the connections that follow the rate.
    pub(crate) flood: Option<Flood>,
}

impl Plan {
    pub(crate) fn of(args: &Args, flood: Option<Flood>) -> Result<Self> {
        flags(Self::checked(args, flood))
    }

    fn checked(args: &Args, flood: Option<Flood>) -> Result<Self> {
        ensure!(args.threads <= args.connections, "--threads {} is more than the connections", args.threads);
        let (mixed, zipf) = (args.op == Operation::Mix, args.keys_distribution == Distribution::Zipf);
        ensure!(mixed || args.read_percent.is_none(), "--read-percent has no effect without --op mix");
        ensure!(zipf || args.zipf_theta.is_none(), "--zipf-theta has no effect without --keys-distribution zipf");
        let of_op = || Mix::of(args.op, args.read_percent.unwrap_or(READ_PERCENT));
        let mix = args.mix.clone().unwrap_or_else(of_op);
        let writes = if mix.has(Kind::Multi) { args.multi_ops as usize } else { 1 };
        let request_bytes = writes * (args.value_bytes.max + 64);
        ensure!(
            !mix.has(Kind::Multi) || request_bytes <= VALUE_BYTES_MAX,
            "--multi-ops x --value-bytes makes requests of {request_bytes} bytes; at most {VALUE_BYTES_MAX}"
        );
        let flooding = flood.map_or(0, |flood| u64::from(flood.connections) * u64::from(flood.depth));
        let bytes = (u64::from(args.connections) * u64::from(args.depth)).max(flooding) * request_bytes as u64;
        ensure!(
            bytes <= IN_FLIGHT_BYTES_MAX,
            "--connections x --depth x --value-bytes keeps {bytes} bytes in flight; at most {IN_FLIGHT_BYTES_MAX}"
        );
        let interval = args.interval.as_secs_f64();
        ensure!(interval >= INTERVAL_SECONDS_MIN, "--interval {interval} is below {INTERVAL_SECONDS_MIN}");
        let rows = if args.ops.is_none() { args.duration.as_secs_f64() / interval } else { 0.0 };
        ensure!(
            rows <= f64::from(TIMELINE_ROWS_MAX),
            "--duration / --interval makes {rows:.0} lines; at most {TIMELINE_ROWS_MAX}"
        );
        let theta = zipf.then_some(args.zipf_theta.unwrap_or(ZIPF_THETA));
        Ok(Self { args: args.clone(), mix, theta, flood })
    }

    /// Connections of all kinds.
    pub(crate) fn connections_all(&self) -> u32 {
        self.args.connections + self.flood.map_or(0, |flood| flood.connections)
    }

    /// The pace and depth of each connection is that of the flood from here on.
    pub(crate) fn floods(&self, number: u32) -> Option<Flood> {
        self.flood.filter(|_| number >= self.args.connections)
    }

    /// The timeline's length, if it is known.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub(crate) fn intervals_max(&self) -> u32 {
        let Args { ops, duration, interval, .. } = &self.args;
        // A short rest behind the last full interval does not make one more.
        let intervals = (duration.as_secs_f64() / interval.as_secs_f64() - 0.1).ceil() as u32;
        if ops.is_some() { u32::MAX } else { intervals.max(1) }
    }
}

impl Args {
    /// The flags of a command line.
    pub(crate) fn parse(line: &str) -> Result<Self, clap::Error> {
        let command = <Self as clap::Args>::augment_args(clap::Command::new("bench").no_binary_name(true));
        Self::from_arg_matches(&command.try_get_matches_from(line.split_whitespace())?)
    }
}
