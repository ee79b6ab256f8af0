//! Idle sessions and watches: the memory of each in the server, and the CPU time to keep them alive.
//!
//! Memory is read from the server's smaps_rollup: before, with the sessions, with the watches, after. The kernel's
//! memory for the sockets belongs to no process and is not in it. RSS holds mapped files too, such as a log that is
//! mapped ahead; the anonymous part is what the server has allocated. The sessions ping at a third of their timeout.
//! One thread.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use corral_wire::OpCode;

use crate::args::{CommonArgs, flags, seconds, up_to};
use crate::cpu::Memory;
use crate::frames::{encoded_path, push_frame, value};
use crate::histogram::{ratio, us};
use crate::limits::{CONNECTIONS_MAX, KEYS_MAX, WATCHES_MAX};
use crate::report::{Report, fields};
use crate::stage::{Stage, nothing};
use crate::swarm::{POLL, Swarm, granted_or, unexpected};

const HELP: &str = "\
How it works:
  It opens sessions, sets their watches, waits, and reads the server's memory and CPU time. The sessions only send pings.

How to read it:
  RSS includes mapped files: a log mapped ahead, snapshots. 'anonymous' is what the server has allocated itself.
  Memory of socket buffers belongs to the kernel and is in neither. Start a server for this alone: memory that an
  earlier load has freed is used again, and does not show. Choose many sessions.

Examples:
  corral bench idle --pid \"$(pidof corral)\" -n 50                  bytes for each of 50 sessions
  corral bench idle --pid \"$(pidof corral)\" -n 10000               bytes and CPU of keeping many
  corral bench idle --pid \"$(pidof corral)\" -n 1000 --watches 200  bytes for each watch";

/// Flags of `idle`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct IdleArgs {
    /// Sessions to hold; more than 60 from one address need corral serve --set limits.connections_per_ip_max=0, in ZooKeeper
    /// maxClientCnxns=0
    #[arg(short = 'n', long, default_value_t = 1000, value_parser = up_to(CONNECTIONS_MAX))]
    sessions: u32,
    /// One-shot data watches of each session, each on another znode
    #[arg(long, default_value_t = 0)]
    watches: u32,
    /// Znodes to watch
    #[arg(long, default_value_t = 1000, value_parser = up_to(KEYS_MAX))]
    keys: u32,
    /// Seconds to hold them, during which the server's CPU time is counted
    #[arg(long, default_value = "5", value_name = "SECONDS", value_parser = seconds)]
    hold: Duration,
    /// Seconds to wait before the server's memory is read
    #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = seconds)]
    settle: Duration,
    #[command(flatten)]
    common: CommonArgs,
}

/// Requests of one session on their way while watches are set.
const WATCH_BATCH: usize = 256;

fn check(args: &IdleArgs) -> Result<()> {
    let IdleArgs { sessions, watches, keys, .. } = args;
    ensure!(watches <= keys, "--watches {watches} is more than --keys {keys}: a session has one on each");
    let all = u64::from(*watches) * u64::from(*sessions);
    ensure!(all <= WATCHES_MAX, "--watches x --sessions is {all}; at most {WATCHES_MAX}");
    Ok(())
}

pub(super) fn run(args: &IdleArgs) -> Result<()> {
    flags(check(args))?;
    let mut stage = Stage::set(&args.common, args.sessions)?;
    let (chroot, value) = (stage.target.chroot.clone(), value(100));
    let keys = if args.watches > 0 { args.keys } else { 0 };
    let below = || (0..keys).map(|key| format!("{chroot}/{key:08}")).collect();
    stage.perform(&below, &|_| &value, |stage| measure(stage, args), nothing)?.print(&args.common)
}

fn measure(stage: &mut Stage, args: &IdleArgs) -> Result<Report> {
    let mut swarm: Swarm<()> = stage.swarm()?;
    let before = settled(stage, &mut swarm, args)?;
    let numbers: Vec<usize> = (0..args.sessions as usize).collect();
    let sessions = stage.open_sessions(&mut swarm, &numbers)?;
    let with_sessions = settled(stage, &mut swarm, args)?;
    let mut with_watches = None;
    if args.watches > 0 {
        set_watches(stage, &mut swarm, args, &sessions)?;
        with_watches = settled(stage, &mut swarm, args)?;
    }
    stage.restart_cpu()?;
    let begun = Instant::now();
    rest(stage, &mut swarm, args.hold)?;
    let hold_seconds = begun.elapsed().as_secs_f64();
    let cpu_us = stage.cpu_ns()?.0.map(us);
    swarm.close_all(|event| Err(unexpected(&event)))?;
    let after = settled(stage, &mut swarm, args)?;
    Ok(report(stage, args, [before, with_sessions, with_watches, after], hold_seconds, cpu_us))
}

fn report(
    stage: &Stage,
    args: &IdleArgs,
    [before, with_sessions, with_watches, after]: [Option<Memory>; 4],
    hold_seconds: f64,
    cpu_us: Option<f64>,
) -> Report {
    let IdleArgs { sessions, watches, keys, .. } = args;
    let growth = |from: Option<Memory>, to: Option<Memory>, of: fn(Memory) -> u64, by: u64| {
        Some((ratio(of(to?), 1) - ratio(of(from?), 1)) * 1024.0 / ratio(by, 1))
    };
    let count = u64::from(*sessions);
    let session = |of| growth(before, with_sessions, of, count);
    let watch = |of| growth(with_sessions, with_watches, of, count * u64::from(*watches));
    let (rss, anonymous) = (|of: Memory| of.rss_kib, |of: Memory| of.anonymous_kib);
    let mut remarks = stage.doubts.clone();
    let mut say = |wanted: bool, text: &str| remarks.extend(wanted.then(|| text.to_owned()));
    say(cpu_us.is_none(), "without --pid neither memory nor CPU of the server is measured");
    say(
        hold_seconds < f64::from(args.common.session_timeout_ms) / 3e3,
        "held for less than a third of the session timeout: not every session has pinged, the CPU lacks its pings",
    );
    say(
        [session(rss), watch(rss)].into_iter().flatten().any(|bytes| bytes <= 0.0),
        "the server reused memory that an earlier load had freed: start a server for this run, and hold more sessions",
    );
    Report {
        scenario: "idle",
        headline: format!("{sessions} sessions, {watches} watches each on {keys} znodes"),
        load: fields! { sessions, watches_per_session: watches, keys },
        figures: fields! {
            memory_before: before,
            memory_with_sessions: with_sessions,
            memory_with_watches: with_watches,
            memory_after: after,
            rss_bytes_per_session: session(rss),
            anonymous_bytes_per_session: session(anonymous),
            rss_bytes_per_watch: watch(rss),
            anonymous_bytes_per_watch: watch(anonymous),
            hold_seconds,
            server_cpu_percent: cpu_us.map(|us| us / 1e4 / hold_seconds),
            server_cpu_us_per_session_second: cpu_us.map(|us| us / hold_seconds / ratio(count, 1)),
        },
        remarks,
    }
}

/// The server's memory after a rest.
fn settled(stage: &mut Stage, swarm: &mut Swarm<()>, args: &IdleArgs) -> Result<Option<Memory>> {
    rest(stage, swarm, args.settle)?;
    Memory::of(&stage.target.pids).context("--pid")
}

/// Holds what there is; nothing but pings may happen.
fn rest(stage: &mut Stage, swarm: &mut Swarm<()>, time: Duration) -> Result<()> {
    let until = Instant::now() + time;
    while Instant::now() < until && !stage.stopped() {
        let left = until.saturating_duration_since(Instant::now());
        if let Some(event) = swarm.poll(left.min(POLL))?.first() {
            bail!("session {}: {:?} while all are idle", event.peer, event.what);
        }
        stage.progress.now_and_then(|| format!("holding, {:.0} s to go", left.as_secs_f64()));
    }
    Ok(())
}

/// Sets the watches of every session, a batch at a time.
fn set_watches(stage: &mut Stage, swarm: &mut Swarm<()>, args: &IdleArgs, sessions: &[usize]) -> Result<()> {
    for (nth, session) in (0_u64..).zip(sessions) {
        // Every session another stretch of the znodes, so that they are all watched by about as many.
        let first = nth * u64::from(args.watches);
        let keys: Vec<u64> = (first..first + u64::from(args.watches)).map(|at| at % u64::from(args.keys)).collect();
        for batch in keys.chunks(WATCH_BATCH) {
            let now_ns = swarm.now_ns();
            for key in batch {
                let path = encoded_path(&stage.path(&format!("{key:08}")));
                swarm.push(*session, (), now_ns, |out, xid| push_frame(out, xid, OpCode::GetData, &path, &[1]));
            }
            swarm.flush(*session)?;
            swarm.replies(batch.len(), |(), error, _| granted_or("getData with a watch", error))?;
        }
        stage.progress.now_and_then(|| format!("watches of {nth} of {} sessions", args.sessions));
        ensure!(!stage.stopped(), "interrupted");
    }
    Ok(())
}
