//! One load from the command line to the report: runs the plan, prints and writes the figures.
//!
//! The main thread. Does not know how a load runs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::charts::{Panel, Plot, Scale};
use crate::histogram::{Latency, Percentile, percentiles, ratio};
use crate::meter::{Interval, Total};
use crate::mix::Kind;
use crate::plan::{Args, Plan};
use crate::report::{Report, fields, overloaded};
use crate::run::{Measured, execute};
use crate::swarm::error_name;

/// The names of the two plots.
const PLOTS: [&str; 2] = ["throughput.svg", "latency.svg"];
/// Above this share of its CPUs the client, not the server, sets the pace.
const CLIENT_BUSY: f64 = 0.97;

/// Runs the load and prints the figures on standard output, as a table or with `--json` as one line.
///
/// The file of `--csv` and the directory of `--svg` are made before anything is sent, and filled after the figures are printed.
pub(crate) fn run(args: &Args) -> Result<()> {
    let plan = Plan::of(args, None)?;
    let named = |flag: &str, path: &Path| format!("{flag} {}", path.display());
    let (csv, svg) = (args.csv.as_deref(), args.svg.as_deref());
    let file = csv.map(|path| File::create(path).with_context(|| named("--csv", path))).transpose()?;
    svg.map_or(Ok(()), |folder| fs::create_dir_all(folder).with_context(|| named("--svg", folder)))?;
    let measured = execute(&plan)?;
    let printed = report(&plan, &measured).print(&args.common);
    // If one output cannot be written, the others are not lost with it.
    let rows = || timeline(&measured.gathered.rows);
    let listed = csv
        .zip(file)
        .map_or(Ok(()), |(path, mut file)| file.write_all(rows().as_bytes()).with_context(|| named("--csv", path)));
    let drawn = svg.map_or(Ok(()), |folder| draw(folder, &plan, &measured).with_context(|| named("--svg", folder)));
    printed.and(listed).and(drawn)
}

/// One operation of a mix.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct ByOp {
    /// Operations answered in the window.
    operations: u64,
    throughput: f64,
    /// Their latency, those in flight at the window's end included.
    latency_us: Latency,
}

impl ByOp {
    pub(crate) fn of(total: &Total, seconds: f64) -> Self {
        let throughput = ratio(total.operations, 1) / seconds;
        Self { operations: total.operations, throughput, latency_us: Latency::of(&total.latency) }
    }
}

/// The run in one line, for people.
fn headline(plan: &Plan) -> String {
    let (args, sizes) = (&plan.args, plan.args.value_bytes);
    let pace = args.rate.map_or("closed loop".to_owned(), |rate| format!("open loop at {rate:.0}/s"));
    let keys = plan.theta.map(|theta| format!("zipf {theta}, ")).unwrap_or_default();
    let least = if sizes.min == sizes.max { String::new() } else { format!("{} to ", sizes.min) };
    let (mix, connections, depth) = (plan.mix.title(), args.connections, args.depth);
    format!("{mix}, {keys}{connections} connections x {depth} in flight, {least}{} B values, {pace}", sizes.max)
}

fn report(plan: &Plan, measured: &Measured) -> Report {
    let (args, seconds) = (&plan.args, measured.window.as_secs_f64());
    let of_kind = |kind| (kind, measured.gathered.total(|_, of| of == kind));
    let by_kind: Vec<(Kind, Total)> =
        Kind::ALL.into_iter().map(of_kind).filter(|(_, total)| !total.latency.is_empty()).collect();
    let all = measured.gathered.total(|_, _| true);
    let (operations, throughput) = (all.operations, ratio(all.operations, 1) / seconds);
    let errors: BTreeMap<_, _> =
        measured.gathered.errors().iter().map(|(code, count)| (error_name(*code), *count)).collect();
    let busy = |ns: u64| ratio(ns, 1) / 1e9 / seconds;
    let each = |ns: u64| ratio(ns, operations) / 1e3;
    Report {
        scenario: "load",
        headline: format!("{}, every reply checked", headline(plan)),
        load: fields! {
            op: plan.mix.name(),
            mix: plan.mix.text(),
            connections: args.connections,
            depth: args.depth,
            threads: args.threads,
            value_bytes: args.value_bytes.max,
            value_bytes_min: args.value_bytes.min,
            keys: args.keys,
            keys_distribution: plan.theta.map_or("uniform".to_owned(), |theta| format!("zipf {theta}")),
            offered_rate: args.rate,
        },
        figures: fields! {
            seconds,
            operations,
            throughput,
            timeline: measured.gathered.rows,
            backlog: measured.backlog,
            latency_us: Latency::of(&all.latency),
            percentiles: percentiles(&all.latency),
            by_op: by_kind.iter().map(|(kind, total)| (kind.name(), ByOp::of(total, seconds))).collect::<BTreeMap<_, _>>(),
            errors,
            server_cpu_us_per_op: measured.server_cpu_ns.map(each),
            server_cpus_busy: measured.server_cpu_ns.map(busy),
            server_resident_kib: measured.server_resident_kib,
            client_cpu_us_per_op: each(measured.client_cpu_ns),
            client_cpus_busy: busy(measured.client_cpu_ns),
        },
        remarks: remarks(plan, measured, throughput, busy(measured.client_cpu_ns)),
    }
}

fn remarks(plan: &Plan, measured: &Measured, throughput: f64, client_busy: f64) -> Vec<String> {
    let mut remarks = measured.doubts.clone();
    let mut say = |text: String| remarks.push(text);
    if throughput == 0.0 {
        say("no operation was completed in the window".to_owned());
    }
    if let Some(offered) = plan.args.rate {
        overloaded(offered, throughput).into_iter().for_each(&mut say);
    } else if client_busy > f64::from(plan.args.threads) * CLIENT_BUSY {
        say("the client was the bottleneck: throughput is a lower bound, more --threads may find more".to_owned());
    }
    if plan.mix.kinds().any(|kind| kind.writes() && kind.uses_keys()) && plan.args.keys < 100 {
        say("few keys: writes to one znode may be cheaper than real ones".to_owned());
    }
    let creates = measured.gathered.total(|_, kind| kind == Kind::Create).operations;
    if !plan.mix.has(Kind::Create) && creates > 0 {
        say(format!("{creates} creates were needed, because nothing was left to delete"));
    }
    let errors: u64 = measured.gathered.errors().values().sum();
    if errors > 0 {
        say(format!("{errors} replies were errors; they are no operations and have no latency here"));
    }
    remarks
}

/// The timeline as comma-separated values with a line of names in front.
fn timeline(rows: &[Interval]) -> String {
    let mut out = "start_s,seconds,operations,throughput,p50_us,p99_us,p99_9_us,max_us,errors\n".to_owned();
    for row in rows {
        let Interval { start, seconds, operations, throughput, p50_us, p99_us, p99_9_us, max_us, errors } = row;
        // Writing to a String cannot fail.
        let _ = write!(out, "{start:.3},{seconds:.3},{operations},{throughput:.1},");
        let _ = writeln!(out, "{p50_us:.1},{p99_us:.1},{p99_9_us:.1},{max_us:.1},{errors}");
    }
    out
}

/// Draws throughput and latency over time, and latency by percentile.
fn draw(folder: &Path, plan: &Plan, measured: &Measured) -> Result<()> {
    let label = plan.args.common.label.as_ref().map(|label| format!("{label}: ")).unwrap_or_default();
    let title = format!("{label}{}", headline(plan));
    let series = |name: &str, figure: fn(&Interval) -> f64| {
        // An interval's figures stand in its middle.
        let point = |row: &Interval| (row.start + row.seconds / 2.0, figure(row));
        (name.to_owned(), measured.gathered.rows.iter().map(point).collect())
    };
    let panel = |title: &str, x: (&str, Scale), y: (&str, Scale), series| {
        let (x, y) = ((x.0.to_owned(), x.1), (y.0.to_owned(), y.1));
        Panel { title: title.to_owned(), x, y, series }
    };
    let time = || ("time, s", Scale::Linear);
    let throughput = vec![series("operations/s", |row| row.throughput)];
    let over_time =
        vec![series("p50", |row| row.p50_us), series("p99", |row| row.p99_us), series("p99.9", |row| row.p99_9_us)];
    let curve = percentiles(&measured.gathered.total(|_, _| true).latency);
    let point = |point: &Percentile| (point.percent / 100.0, point.us);
    let below_all = curve.iter().filter(|point| point.percent < 100.0).map(point).collect();
    let by_percentile = vec![(plan.mix.title(), below_all)];
    let panels = [
        vec![
            panel("throughput", time(), ("operations/s", Scale::Linear), throughput),
            panel("latency of each interval", time(), ("latency, us", Scale::Log), over_time),
        ],
        vec![panel(
            "latency by percentile",
            ("share of the operations", Scale::Quantile),
            ("latency at most, us", Scale::Log),
            by_percentile,
        )],
    ];
    let draw = |(name, panels)| Plot { file: folder.join(name), title: title.clone(), panels }.write();
    PLOTS.into_iter().zip(panels).try_for_each(draw)
}
