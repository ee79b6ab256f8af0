//! One load from the command line to the report: checks the flags, runs the plan, prints and writes the figures.
//!
//! The main thread. It does not know how a load runs.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};

use crate::plan::{Args, Plan};
use crate::report::Report;
use crate::run::execute;
use crate::{charts, files};

/// Runs the load and returns the figures; prints only progress.
///
/// It handles SIGINT, SIGTERM and SIGHUP for the rest of the process, to remove its znodes before it ends.
///
/// # Errors
/// A flag out of its limits, a server that cannot be reached, does not reply in time or replies wrongly, Ctrl-C.
pub fn measure(args: &Args) -> Result<Report> {
    measured(args, &Plan::of(args)?)
}

fn measured(args: &Args, plan: &Plan) -> Result<Report> {
    let measured = execute(plan)?;
    Ok(Report::of(args.common.label.as_ref(), plan, &measured))
}

/// Runs the load and prints the figures on standard output, as a table or with `--json` as one line.
///
/// The files of `--csv` and `--svg` are opened before anything is sent, and written after the figures are printed.
///
/// # Errors
/// Those of [`measure`], and if standard output is closed or a file cannot be written.
pub fn run(args: &Args) -> Result<()> {
    let plan = Plan::of(args)?;
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
