//! corral-bench: a small, honest load generator for any server that speaks the ZooKeeper protocol.
//!
//! One epoll loop per client thread drives sessions in a closed loop (connections x depth) or an open one (a fixed
//! rate, latency counted from when a request was due), checks every reply, and accounts the server's CPU time per
//! operation from the scheduler's nanosecond counters. Uses `corral-wire` and nothing else of the server, whose `bench`
//! sub-command calls [`run`]; the binary `corral-bench` is the same thing alone.

mod args;
mod charts;
mod check;
mod compare;
mod connection;
mod console;
mod cpu;
mod due;
pub mod echo;
mod files;
mod keys;
mod limits;
mod link;
mod listener;
mod machine;
mod meter;
mod mix;
mod plan;
mod plot;
pub mod report;
mod run;
mod scenario;
mod session;
mod swarm;
mod table;
mod timeline;
mod worker;
mod workload;

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};

pub use args::{CommonArgs, WrongFlag};
pub use check::BadReply;
pub use compare::{CompareArgs, compare};
pub use cpu::CpuClock;
pub use keys::Distribution;
pub use machine::Machine;
pub use mix::Operation;
pub use plan::Args;
pub use report::Report;
pub use scenario::Scenario;
pub use workload::value;

/// Everything the load generator can be asked for: a load, or a sub-command.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Bench {
    #[command(subcommand)]
    scenario: Option<Scenario>,
    #[command(flatten)]
    load: Args,
}

/// Does what the command line asks for.
///
/// # Errors
/// As [`run`], [`compare`] and [`Scenario::run`].
pub fn dispatch(bench: &Bench) -> Result<()> {
    match &bench.scenario {
        Some(scenario) => scenario.run(),
        None => run(&bench.load),
    }
}

/// Runs the load and gives the figures; prints only progress.
///
/// Takes SIGINT, SIGTERM and SIGHUP over for the rest of the process, to remove its znodes before it ends.
///
/// # Errors
/// A flag out of its limits, a server that cannot be reached, falls silent or answers wrongly, Ctrl-C.
pub fn measure(args: &Args) -> Result<Report> {
    measured(args, &plan::Plan::of(args)?)
}

fn measured(args: &Args, plan: &plan::Plan) -> Result<Report> {
    let measured = run::execute(plan)?;
    Ok(Report::of(args.common.label.as_ref(), plan, &measured))
}

/// Runs the load and prints the figures on standard output, as a table or with `--json` as one line.
///
/// The files of `--csv` and `--svg` are tried before anything is sent, and written after the figures are printed.
///
/// # Errors
/// As [`measure`], and if standard output is closed or a file cannot be written.
pub fn run(args: &Args) -> Result<()> {
    let plan = plan::Plan::of(args)?;
    let named = |flag: &str, path: &Path| format!("{flag} {}", path.display());
    let (csv, svg) = (args.csv.as_deref(), args.svg.as_deref());
    if let Some(file) = csv {
        files::try_out(file).with_context(|| named("--csv", file))?;
    }
    if let Some(folder) = svg {
        charts::try_out(folder).with_context(|| named("--svg", folder))?;
    }
    let report = measured(args, &plan)?;
    let printed = print(args, &report);
    // Whatever cannot be written, the rest is not lost with it.
    let listed = csv.map_or(Ok(()), |file| fs::write(file, report.csv()).with_context(|| named("--csv", file)));
    let drawn = svg.map_or(Ok(()), |folder| charts::write(folder, &report).with_context(|| named("--svg", folder)));
    printed.and(listed).and(drawn)
}

fn print(args: &Args, report: &Report) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let written = if args.common.json { writeln!(out, "{}", report.json()) } else { write!(out, "{}", report.table()) };
    written.and_then(|()| out.flush()).context("the report cannot be printed")
}
