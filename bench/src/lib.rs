//! corral-bench: a small, honest load generator for any server that speaks the ZooKeeper protocol.
//!
//! One epoll loop per client thread drives sessions in a closed loop (connections x depth) or an open one (a fixed
//! rate, latency counted from when a request was due), checks every reply, and accounts the server's CPU time per
//! operation from the scheduler's nanosecond counters. Uses `corral-wire` and nothing else of the server, whose `bench`
//! sub-command calls [`run`]; the binary `corral-bench` is the same thing alone.

mod args;
mod check;
mod connection;
mod cpu;
mod limits;
mod report;
mod run;
mod session;
mod worker;
mod workload;

use std::io::Write;

use anyhow::{Context, Result};

pub use args::{Args, Operation};
pub use check::BadReply;
pub use cpu::CpuClock;
pub use report::{Latency, Machine, Report};
pub use workload::value;

/// Runs the load and gives the figures; prints only progress.
///
/// Takes SIGINT and SIGTERM over for the rest of the process, to remove its znodes before it ends.
///
/// # Errors
/// A flag out of its limits, a server that cannot be reached, falls silent or answers wrongly, Ctrl-C.
pub fn measure(args: &Args) -> Result<Report> {
    let plan = args::Plan::of(args)?;
    let measured = run::execute(&plan)?;
    Ok(Report::of(args, &plan, &measured))
}

/// Runs the load and prints the figures on standard output, as a table or with `--json` as one line.
///
/// # Errors
/// As [`measure`], and if standard output is closed.
pub fn run(args: &Args) -> Result<()> {
    let report = measure(args)?;
    let mut out = std::io::stdout().lock();
    let written = if args.json { writeln!(out, "{}", report.json()) } else { write!(out, "{}", report.table()) };
    written.context("the report cannot be printed")
}
