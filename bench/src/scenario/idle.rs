//! Idle sessions and watches: what each costs the server in memory, and what keeping them alive costs in CPU.
//!
//! Memory is read from the server's smaps_rollup: before, with the sessions, with the watches, after. What the kernel
//! keeps for the sockets belongs to no process and is not in it. RSS and PSS hold mapped files too, such as a log that is
//! mapped ahead; the anonymous part is what the server has allocated. The sessions ping at a third of their timeout. One
//! thread.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use corral_wire::OpCode;
use serde::Serialize;

use super::stage::{Heading, Stage, print, us};
use crate::args::{CommonArgs, flags, program, seconds, up_to};
use crate::cpu::Memory;
use crate::figures::ratio;
use crate::limits::{CONNECTIONS_MAX, KEYS_MAX, WATCHES_MAX};
use crate::run::left_behind;
use crate::swarm::{What, granted};
use crate::table::Table;
use crate::workload::{encoded, value};

/// Ends the help.
fn help() -> String {
    let program = program();
    format!(
        "\
What it does:
  It opens sessions, sets their watches, waits, and reads the server's memory and CPU time. The sessions only send pings.

How to read it:
  RSS and PSS include mapped files: a log mapped ahead, snapshots. 'anonymous' is what the server has allocated itself.
  Memory of socket buffers belongs to the kernel and is in none of them. A JVM's heap grows freely: only figures after a full
  collection are comparable.

Before it:
  Start a server for this alone: memory that an earlier load has freed is used again, and does not show. Choose many sessions,
  so that what the server allocates ahead is divided by many.

Examples:
  {program} idle -n 10000 --pid PID                 bytes for each session, CPU of keeping them
  {program} idle -n 1000 --watches 200 --pid PID    bytes for each watch"
    )
}

/// Flags of `idle`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = help())]
pub struct IdleArgs {
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
    #[arg(long, visible_alias = "duration", default_value_t = 5.0, value_name = "SECONDS")]
    hold: f64,
    /// Seconds to wait before the server's memory is read
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS")]
    settle: f64,
    #[command(flatten)]
    common: CommonArgs,
}

/// The report of `idle`. Memory in KiB as the kernel reports it, per session and watch in bytes; without `--pid` none.
#[derive(Debug, Serialize)]
struct IdleReport {
    #[serde(flatten)]
    heading: Heading,
    sessions: u32,
    watches_per_session: u32,
    keys: u32,
    memory_before: Option<Memory>,
    memory_with_sessions: Option<Memory>,
    memory_with_watches: Option<Memory>,
    memory_after: Option<Memory>,
    rss_bytes_per_session: Option<f64>,
    pss_bytes_per_session: Option<f64>,
    anonymous_bytes_per_session: Option<f64>,
    rss_bytes_per_watch: Option<f64>,
    pss_bytes_per_watch: Option<f64>,
    anonymous_bytes_per_watch: Option<f64>,
    /// Length of the time in which CPU was counted.
    hold_seconds: f64,
    /// Share of one CPU, in percent.
    server_cpu_percent: Option<f64>,
    server_cpu_us_per_session_second: Option<f64>,
    /// What a reader of the figures must know.
    remarks: Vec<String>,
}

const TAG_WATCH: u32 = 1;
/// Requests of one session on their way while watches are set.
const WATCH_BATCH: u32 = 256;

/// Checks the flags. Returns how long to hold and to settle.
fn checked(args: &IdleArgs) -> Result<(Duration, Duration)> {
    ensure!(
        args.watches <= args.keys,
        "--watches {} is more than --keys {}: a session has one on each",
        args.watches,
        args.keys
    );
    let watches = u64::from(args.watches) * u64::from(args.sessions);
    ensure!(watches <= WATCHES_MAX, "--watches x --sessions is {watches}; at most {WATCHES_MAX}");
    Ok((seconds("--hold", args.hold, 0.0)?, seconds("--settle", args.settle, 0.0)?))
}

pub(super) fn run(args: &IdleArgs) -> Result<()> {
    let (hold, settle) = flags(checked(args))?;
    let mut stage = Stage::set(&args.common, args.sessions)?;
    let names: Vec<String> = if args.watches > 0 { (0..args.keys).map(name).collect() } else { Vec::new() };
    stage.prepare(names, &value(100))?;
    let target = stage.target.clone();
    let (mut stage, report) = left_behind(measure(stage, args, hold, settle), &target.chroot)?;
    stage.clean_up()?;
    print(&args.common, &report, table(&report))
}

fn name(key: u32) -> String {
    format!("{key:08}")
}

fn measure(mut stage: Stage, args: &IdleArgs, hold: Duration, settle: Duration) -> Result<(Stage, IdleReport)> {
    rest(&mut stage, settle)?;
    let memory_before = memory(&stage)?;
    let sessions = stage.open_sessions(args.sessions)?;
    rest(&mut stage, settle)?;
    let memory_with_sessions = memory(&stage)?;
    let memory_with_watches = if args.watches > 0 {
        set_watches(&mut stage, args, &sessions)?;
        rest(&mut stage, settle)?;
        memory(&stage)?
    } else {
        None
    };
    stage.restart_cpu()?;
    let begun = Instant::now();
    rest(&mut stage, hold)?;
    let hold_seconds = begun.elapsed().as_secs_f64();
    let cpu_us = stage.server_cpu_ns()?.map(us);
    stage.close_sessions(&sessions)?;
    rest(&mut stage, settle)?;
    let memory_after = memory(&stage)?;
    let count = u64::from(args.sessions);
    let growth = |from: Option<Memory>, to: Option<Memory>, of: fn(Memory) -> u64, by: u64| {
        Some((ratio(of(to?), 1) - ratio(of(from?), 1)) * 1024.0 / ratio(by, 1))
    };
    let session = |of| growth(memory_before, memory_with_sessions, of, count);
    let watch = |of| growth(memory_with_sessions, memory_with_watches, of, count * u64::from(args.watches));
    let report = IdleReport {
        heading: Heading::of("idle", &args.common),
        sessions: args.sessions,
        watches_per_session: args.watches,
        keys: args.keys,
        rss_bytes_per_session: session(|memory| memory.rss_kib),
        pss_bytes_per_session: session(|memory| memory.pss_kib),
        anonymous_bytes_per_session: session(|memory| memory.anonymous_kib),
        rss_bytes_per_watch: watch(|memory| memory.rss_kib),
        pss_bytes_per_watch: watch(|memory| memory.pss_kib),
        anonymous_bytes_per_watch: watch(|memory| memory.anonymous_kib),
        memory_before,
        memory_with_sessions,
        memory_with_watches,
        memory_after,
        hold_seconds,
        server_cpu_percent: cpu_us.map(|us| us / 1e4 / hold_seconds),
        server_cpu_us_per_session_second: cpu_us.map(|us| us / hold_seconds / ratio(count, 1)),
        remarks: Vec::new(),
    };
    let doubts = stage.doubts.clone();
    Ok((stage, IdleReport { remarks: remarks(args, &report, &doubts), ..report }))
}

fn remarks(args: &IdleArgs, report: &IdleReport, doubts: &[String]) -> Vec<String> {
    let mut remarks = doubts.to_vec();
    let mut say = |text: &str| remarks.push(text.to_owned());
    if report.server_cpu_percent.is_none() {
        say("without --pid neither memory nor CPU of the server is measured");
    }
    if report.hold_seconds < f64::from(args.common.session_timeout_ms) / 3e3 {
        say("held for less than a third of the session timeout: not every session has pinged, the CPU lacks its pings");
    }
    let shrank = |bytes: Option<f64>| bytes.is_some_and(|bytes| bytes <= 0.0);
    if shrank(report.rss_bytes_per_session) || shrank(report.rss_bytes_per_watch) {
        say(
            "the server reused memory that an earlier load had freed: start a server for this run, and hold more sessions",
        );
    }
    remarks
}

fn memory(stage: &Stage) -> Result<Option<Memory>> {
    Memory::of_all(&stage.target.pids).context("--pid")
}

/// Holds what there is; nothing but pings may happen.
fn rest(stage: &mut Stage, time: Duration) -> Result<()> {
    let until = Instant::now() + time;
    while Instant::now() < until && !stage.stopped() {
        if let Some(event) = stage.poll()?.first() {
            bail!("session {}: {:?} while all are idle", event.peer, event.what);
        }
        let left = until.saturating_duration_since(Instant::now());
        stage.progress.now_and_then(|| format!("holding, {:.0} s to go", left.as_secs_f64()));
    }
    Ok(())
}

/// Sets the watches of every session, a batch at a time.
fn set_watches(stage: &mut Stage, args: &IdleArgs, sessions: &[usize]) -> Result<()> {
    let watched = encoded(|writer| writer.bool(true));
    for (nth, session) in (0_u32..).zip(sessions) {
        // Every session another stretch of the znodes, so that they are all watched by about as many.
        let first = u64::from(nth) * u64::from(args.watches);
        for begin in (0..args.watches).step_by(WATCH_BATCH as usize) {
            let batch = (args.watches - begin).min(WATCH_BATCH);
            for at in begin..begin + batch {
                let key = u32::try_from((first + u64::from(at)) % u64::from(args.keys)).unwrap_or(0);
                let path = encoded(|writer| writer.str(&stage.path(&name(key))));
                stage.swarm.push(*session, OpCode::GetData, &[&path, &watched], TAG_WATCH);
            }
            stage.swarm.flush(*session)?;
            let mut left = batch;
            while left > 0 {
                for event in stage.poll()? {
                    match event.what {
                        What::Reply(TAG_WATCH, error) => granted("getData with a watch", error)?,
                        what => bail!("session {}: {what:?}, which was not requested", event.peer),
                    }
                    left -= 1;
                }
            }
        }
        stage.progress.now_and_then(|| format!("watches of {nth} of {} sessions", args.sessions));
        ensure!(!stage.stopped(), "interrupted");
    }
    Ok(())
}

fn table(report: &IdleReport) -> Table {
    let mut table = Table::default();
    let watches = report.watches_per_session;
    table.row("idle", &format!("{} sessions, {watches} watches each on {} znodes", report.sessions, report.keys));
    table.row("machine", &report.heading.machine.to_string());
    for (name, memory) in [
        ("memory before", report.memory_before),
        ("with the sessions", report.memory_with_sessions),
        ("with the watches", report.memory_with_watches),
        ("after", report.memory_after),
    ] {
        if let Some(Memory { rss_kib, pss_kib, anonymous_kib }) = memory {
            table.row(name, &format!("RSS {rss_kib} KiB  PSS {pss_kib} KiB  anonymous {anonymous_kib} KiB"));
        }
    }
    let per = |[rss, pss, anonymous]: [Option<f64>; 3]| {
        Some(format!("RSS {:.0} B  PSS {:.0} B  anonymous {:.0} B", rss?, pss?, anonymous?))
    };
    let IdleReport { rss_bytes_per_session: rss, pss_bytes_per_session: pss, .. } = report;
    if let Some(text) = per([*rss, *pss, report.anonymous_bytes_per_session]) {
        table.row("per session", &text);
    }
    let IdleReport { rss_bytes_per_watch: rss, pss_bytes_per_watch: pss, .. } = report;
    if let Some(text) = per([*rss, *pss, report.anonymous_bytes_per_watch]) {
        table.row("per watch", &text);
    }
    if let (Some(percent), Some(each)) = (report.server_cpu_percent, report.server_cpu_us_per_session_second) {
        let held = report.hold_seconds;
        table.row("server CPU", &format!("{percent:.2} % of a CPU over {held:.1} s, {each:.2} us/s for each session"));
    }
    table.notes(&report.remarks);
    table
}
