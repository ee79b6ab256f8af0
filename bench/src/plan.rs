//! The flags of a load and the checked plan made from them.
//!
//! A client thread gets everything from the plan, which cannot be out of its limits. It knows no socket.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use corral_wire::ErrorCode;

use crate::args::{CommonArgs, Target, flags, program, rate, seconds, up_to, within};
use crate::keys::{Distribution, checked_theta};
use crate::limits::{
    CHILDREN_MAX, CONNECTIONS_MAX, DEPTH_MAX, IN_FLIGHT_BYTES_MAX, INTERVAL_SECONDS_MIN, KEYS_MAX, MULTI_BYTES_MAX,
    MULTI_OPS_MAX, THREADS_MAX, TIMELINE_ROWS_MAX, VALUE_BYTES_MAX,
};
use crate::mix::{Kind, Mix, Operation};

/// Ends the help of a load.
pub(crate) fn examples() -> String {
    let program = program();
    format!(
        "\
What it does:
  A load opens SESSIONS sessions and keeps DEPTH requests in flight on each (closed loop), or sends --rate requests per
  second whether or not the server keeps up (open loop). It warms up, measures for --duration, and prints throughput,
  latency percentiles and the CPU time of client and server. It creates a znode of its own below /, works only beneath it
  and removes it at the end. Every reply is checked: order, error code, zxid, sizes, contents. The first wrong one ends the
  run with exit code 1.

How to measure:
  1. Pin server and client to different CPUs (taskset, --cpu), and give --pid. Server CPU per operation is the steadiest
     figure.
  2. Warm up: --warmup 10 or more for a JVM.
  3. Find the saturation with a closed loop. Then measure latency with --rate below it. A closed loop sends nothing while
     the server stalls, and so hides the stall; with --rate latency counts from when each request was due.
  4. Repeat each run, alternating between the servers, and compare medians and spread. Read the notes under the table.
  5. Compare like with like: a durable log on both sides, the same machine, the same minute.

Examples:
  {program}                                      50 sessions x 16 in flight, getData, 10 s
  {program} --depth 1 --pid \"$(pidof corral)\"   one request in flight each; server CPU per operation
  {program} --mix get=80,set=15,create=3,delete=2 --keys-distribution zipf -n 256
  {program} -o set --rate 20000                  open loop: 20,000 writes a second
  {program} -o create --ops 1000000 --keep       create a million znodes and leave them there
  {program} --duration 60 --csv run.csv --json   every second as a line, and the whole run as one JSON object
  {program} -s h1:2181,h2:2181,h3:2181           spread the sessions over an ensemble
  {program} watches -n 10000 --pid PID           another scenario; {program} watches --help describes it
More than 60 sessions (-n 256) need a server that takes them from one address: corral serve
--set limits.connections_per_ip_max=0, in ZooKeeper maxClientCnxns=0."
    )
}

/// The flags of one load.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = examples())]
pub struct Args {
    /// Operation of each request
    #[arg(short, long = "op", value_enum, default_value_t = Operation::Get, help_heading = "Requests")]
    pub op: Operation,
    /// Share of reads in --op mix, in percent [default: 90]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100), help_heading = "Requests")]
    pub read_percent: Option<u32>,
    /// Several operations with their weights, as get=80,set=10,create=5,delete=3,exists=1,children=1
    #[arg(long, conflicts_with_all = ["op", "read_percent"], value_name = "OP=WEIGHT,...", help_heading = "Requests")]
    pub mix: Option<String>,
    /// Bytes of each value written; with MIN..MAX the size of every write is random
    #[arg(long, default_value = "100", value_name = "BYTES|MIN..MAX", help_heading = "Requests")]
    pub value_bytes: String,
    /// setData operations in one multi
    #[arg(long, default_value_t = 4, value_name = "COUNT", value_parser = up_to(MULTI_OPS_MAX), help_heading = "Requests")]
    pub multi_ops: u32,
    /// Children of the znode that the children operation lists
    #[arg(long, default_value_t = 100, value_parser = up_to(CHILDREN_MAX), help_heading = "Requests")]
    pub children: u32,
    /// Count replies with these errors instead of failing, as THROTTLEDOP,QUOTAEXCEEDED
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "THROTTLEDOP",
        value_name = "ERROR,...",
        help_heading = "Requests"
    )]
    pub tolerate: Vec<String>,
    /// Sessions, each with a connection of its own. ZooKeeper and corral accept 60 from one address by default
    #[arg(
        short = 'n',
        long,
        default_value_t = 50,
        value_name = "SESSIONS",
        value_parser = up_to(CONNECTIONS_MAX),
        help_heading = "Concurrency and rate"
    )]
    pub connections: u32,
    /// Requests in flight on each session
    #[arg(long, default_value_t = 16, value_parser = up_to(DEPTH_MAX), help_heading = "Concurrency and rate")]
    pub depth: u32,
    /// Client threads; each drives the same number of sessions
    #[arg(short, long, default_value_t = 1, value_parser = up_to(THREADS_MAX), help_heading = "Concurrency and rate")]
    pub threads: u32,
    /// Open loop: send this many requests per second in all; latency counts from when a request was due
    #[arg(long, value_name = "PER_SECOND", help_heading = "Concurrency and rate")]
    pub rate: Option<f64>,
    /// Znodes prepared for get, exists, set and multi; with delete alone, znodes to be deleted
    #[arg(long, default_value_t = 1000, value_parser = up_to(KEYS_MAX), help_heading = "Keys")]
    pub keys: u32,
    /// How requests are spread over the keys
    #[arg(long, value_enum, default_value_t = Distribution::Uniform, help_heading = "Keys")]
    pub keys_distribution: Distribution,
    /// Exponent of Zipf's law: 0 is uniform, 0.99 is common, above 1 a few keys get nearly all requests [default: 0.99]
    #[arg(long, value_name = "THETA", help_heading = "Keys")]
    pub zipf_theta: Option<f64>,
    /// Seed of all random choices: the same seed makes the same requests on each session
    #[arg(long, default_value_t = 1, help_heading = "Keys")]
    pub seed: u64,
    /// Seconds to measure
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS", help_heading = "Length of the run")]
    pub duration: f64,
    /// Measure until at least this many operations are answered, instead of a time. Requests in flight at the end count for
    /// the latency
    #[arg(long, conflicts_with = "duration", value_name = "COUNT", help_heading = "Length of the run")]
    pub ops: Option<u64>,
    /// Seconds of the same load before measuring; at least 10 for a JVM
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS", help_heading = "Length of the run")]
    pub warmup: f64,
    /// Seconds of each interval of the timeline
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", help_heading = "Files")]
    pub interval: f64,
    /// Also write the timeline to this file, a line for each interval
    #[arg(long, value_name = "FILE", help_heading = "Files")]
    pub csv: Option<PathBuf>,
    /// Also draw throughput over time and latency by percentile into this directory
    #[arg(long, value_name = "DIR", help_heading = "Files")]
    pub svg: Option<PathBuf>,
    /// The flags that every sub-command has.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Reads in `--op mix`, in percent, by default.
const READ_PERCENT: u32 = 90;
/// The exponent of Zipf's law by default.
const ZIPF_THETA: f64 = 0.99;

/// When the measured window ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Extent {
    Time(Duration),
    Ops(u64),
}

/// The checked flags.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) target: Target,
    pub(crate) mix: Mix,
    pub(crate) connections: u32,
    pub(crate) depth: u32,
    pub(crate) threads: u32,
    pub(crate) value_bytes_min: usize,
    pub(crate) value_bytes_max: usize,
    pub(crate) keys: u32,
    /// The exponent of Zipf's law; `None` for uniform keys.
    pub(crate) theta: Option<f64>,
    pub(crate) seed: u64,
    pub(crate) children: u32,
    pub(crate) multi_ops: u32,
    pub(crate) extent: Extent,
    pub(crate) warmup: Duration,
    pub(crate) rate: Option<f64>,
    pub(crate) interval: Duration,
    /// Error codes that are counted.
    pub(crate) tolerated: Vec<i32>,
    /// Connections that always have this many requests in flight, beside those that follow `rate`.
    pub(crate) flood: Option<Flood>,
}

/// Connections with a deep queue of requests in flight, beside an open loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flood {
    pub(crate) connections: u32,
    pub(crate) depth: u32,
}

impl Plan {
    /// Checks every flag against its limit and resolves the addresses.
    pub(crate) fn of(args: &Args) -> Result<Self> {
        flags(Self::checked(args))
    }

    fn checked(args: &Args) -> Result<Self> {
        within("--connections", args.connections, CONNECTIONS_MAX)?;
        within("--depth", args.depth, DEPTH_MAX)?;
        within("--threads", args.threads, THREADS_MAX)?;
        within("--keys", args.keys, KEYS_MAX)?;
        within("--children", args.children, CHILDREN_MAX)?;
        within("--multi-ops", args.multi_ops, MULTI_OPS_MAX)?;
        ensure!(args.threads <= args.connections, "--threads {} is more than --connections", args.threads);
        let (mixed, zipf) = (args.op == Operation::Mix, args.keys_distribution == Distribution::Zipf);
        ensure!(mixed || args.read_percent.is_none(), "--read-percent has no effect without --op mix");
        ensure!(zipf || args.zipf_theta.is_none(), "--zipf-theta has no effect without --keys-distribution zipf");
        ensure!(args.ops != Some(0), "--ops 0 measures nothing");
        let (value_bytes_min, value_bytes_max) = sizes(&args.value_bytes)?;
        let mix = match &args.mix {
            Some(text) => Mix::parse(text).with_context(|| format!("--mix {text}"))?,
            None => Mix::of(args.op, args.read_percent.unwrap_or(READ_PERCENT)),
        };
        let request_bytes = if mix.has(Kind::Multi) { args.multi_ops as usize } else { 1 } * (value_bytes_max + 64);
        ensure!(
            !mix.has(Kind::Multi) || request_bytes <= MULTI_BYTES_MAX,
            "--multi-ops x --value-bytes makes requests of {request_bytes} bytes; at most {MULTI_BYTES_MAX}"
        );
        in_flight_fits(u64::from(args.connections) * u64::from(args.depth), request_bytes)?;
        let extent = match args.ops {
            Some(ops) => Extent::Ops(ops),
            None => Extent::Time(seconds("--duration", args.duration, 0.001)?),
        };
        let interval = seconds("--interval", args.interval, INTERVAL_SECONDS_MIN)?;
        if let Extent::Time(duration) = extent {
            let rows = duration.as_secs_f64() / interval.as_secs_f64();
            ensure!(
                rows <= f64::from(TIMELINE_ROWS_MAX),
                "--duration / --interval makes {rows:.0} lines; at most {TIMELINE_ROWS_MAX}"
            );
        }
        Ok(Self {
            target: Target::of(&args.common)?,
            mix,
            connections: args.connections,
            depth: args.depth,
            threads: args.threads,
            value_bytes_min,
            value_bytes_max,
            keys: args.keys,
            theta: checked_theta(args.keys_distribution, args.zipf_theta.unwrap_or(ZIPF_THETA))?,
            seed: args.seed,
            children: args.children,
            multi_ops: args.multi_ops,
            extent,
            warmup: seconds("--warmup", args.warmup, 0.0)?,
            rate: args.rate.map(|value| rate("--rate", value)).transpose()?,
            interval,
            tolerated: tolerated(&args.tolerate)?,
            flood: None,
        })
    }

    /// Connections of all kinds.
    pub(crate) fn connections_all(&self) -> u32 {
        self.connections + self.flood.map_or(0, |flood| flood.connections)
    }
}

/// Refuses what would measure the client's memory.
pub(crate) fn in_flight_fits(requests: u64, request_bytes: usize) -> Result<()> {
    let bytes = requests * request_bytes as u64;
    if bytes > IN_FLIGHT_BYTES_MAX {
        bail!("--connections x --depth x --value-bytes keeps {bytes} bytes in flight; at most {IN_FLIGHT_BYTES_MAX}");
    }
    Ok(())
}

/// Parses `100` or `10..2000`.
fn sizes(text: &str) -> Result<(usize, usize)> {
    let number =
        |text: &str| text.trim().parse::<usize>().with_context(|| format!("--value-bytes {text:?} is no size"));
    let (min, max) = match text.split_once("..") {
        Some((min, max)) => (number(min)?, number(max)?),
        None => (number(text)?, number(text)?),
    };
    ensure!(min <= max, "--value-bytes {text}: the smallest is above the largest");
    ensure!(max <= VALUE_BYTES_MAX, "--value-bytes {text} is above {VALUE_BYTES_MAX}");
    Ok((min, max))
}

fn tolerated(names: &[String]) -> Result<Vec<i32>> {
    let code = |name: &String| {
        let found = ErrorCode::ALL.iter().find(|code| code.name().eq_ignore_ascii_case(name.trim()));
        found.map(|code| code.code()).with_context(|| format!("--tolerate {name}: no such error (as THROTTLEDOP)"))
    };
    names.iter().filter(|name| !name.trim().is_empty()).map(code).collect()
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
        let line =
            "-s 127.0.0.1:1,127.0.0.1:2 -o mix -n 8 --depth 2 -t 2 --ops 5 --cpu 0,1 --chroot /a/b --value-bytes 5..9";
        let plan = plan(line).unwrap();
        assert_eq!(plan.target.servers.len(), 2);
        assert_eq!((plan.mix.text().as_str(), plan.connections, plan.depth, plan.threads), ("get=90,set=10", 8, 2, 2));
        assert_eq!((plan.extent, plan.target.chroot.as_str()), (Extent::Ops(5), "/a/b"));
        assert_eq!((plan.value_bytes_min, plan.value_bytes_max), (5, 9));
        assert_eq!(plan.target.cpus, [0, 1]);
        assert_eq!(plan.tolerated, [-127]);
    }

    #[test]
    fn bad_flags_are_refused_by_name() {
        fn check(line: &str, part: &str) {
            let error = plan(line).err().map(|error| format!("{error:#}")).unwrap_or_default();
            assert!(error.contains(part), "{line:?} gives {error:?}");
        }
        check("-n 0", "0 is not in 1..=50000");
        check("-n 50001", "50001 is not in 1..=50000");
        check("--depth 65537", "--depth <DEPTH>");
        check("-n 2 -t 3", "--threads 3");
        check("--read-percent 101", "101 is not in 0..=100");
        check("--keys 99999999999", "99999999999 is not in 1..=10000000");
        check("-o get --read-percent 50", "--read-percent has no effect");
        check("--zipf-theta 0.5", "--zipf-theta has no effect");
        check("--duration -1", "--duration -1 is not within");
        check("--rate -5", "--rate -5.0 is not within");
        check("--cpu 1000000", "--cpu 1000000");
        check("--value-bytes 1000001", "--value-bytes 1000001");
        check("--value-bytes 5..4", "--value-bytes 5..4");
        check("--value-bytes x", "--value-bytes");
        check("-n 50000 --depth 65536", "bytes in flight");
        check("--ops 0", "--ops 0");
        check("--rate 0", "--rate 0.0 is not within 0.001..=100000000 per second");
        check("--rate 1e-300", "--rate 1e-300 is not within");
        check("--rate 1e9", "--rate 1000000000.0 is not within");
        check("--rate nan", "--rate NaN");
        check("--duration 0", "--duration 0");
        check("--warmup inf", "--warmup inf");
        check("--interval 0", "--interval 0");
        check("--duration 604800 --interval 0.1", "--duration / --interval");
        check("--ops 1 --duration 1", "cannot be used with");
        check("--op get --mix get=1", "cannot be used with");
        check("--mix get=1,walk=2", "no operation");
        check("-o multi --multi-ops 1000 --value-bytes 2000", "--multi-ops x --value-bytes");
        check("--keys-distribution zipf --zipf-theta nan", "--zipf-theta NaN");
        check("--tolerate NOSUCH", "--tolerate NOSUCH");
        check("-s nonsense", "--server nonsense");
        check("--pid 0", "--pid");
        for path in ["/", "a", "/a/", "/a//b", "/a/..", "/."] {
            check(&format!("--chroot {path}"), "--chroot");
        }
    }
}
