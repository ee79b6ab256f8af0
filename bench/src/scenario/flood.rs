//! A flood beside polite connections: a few sessions keep a deep queue of requests in flight, others ask a little at a
//! fixed rate. What becomes of the polite ones?
//!
//! The same engine as a load: the polite connections are an open loop, so that every delay counts from when a request
//! was due; the flood is a closed one. On one thread the polite sockets are always served first.

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use super::stage::{Heading, print};
use crate::args::{CommonArgs, flags, program, rate, up_to, within};
use crate::connection::Pace;
use crate::figures::{Interval, Percentile, merged, percentiles, ratio};
use crate::keys::Distribution;
use crate::limits::{CONNECTIONS_MAX, DEPTH_MAX, KEYS_MAX};
use crate::meter::cell;
use crate::mix::{Kind, Operation};
use crate::plan::{Args, Flood, Plan, in_flight_fits};
use crate::report::{ByOp, open_loop_remarks};
use crate::run::{self, Measured};
use crate::table::Table;
use crate::timeline::{Total, intervals};

/// Ends the help.
fn help() -> String {
    let program = program();
    format!(
        "\
What it does:
  Some connections keep a deep queue of requests in flight: the flood. The polite connections send at a fixed rate. The run
  measures the latency of the polite ones.

How to read it:
  Compare with --flooders 0, the polite connections alone: the difference is the effect of the flood. Latency of the polite
  connections counts from when a request was due. On one client thread their sockets are served first, but the thread's work
  for the flood still delays them by some tens of microseconds; with a CPU to spare use --threads 2. Give the client another
  CPU than the server: otherwise it measures the scheduler.

Examples:
  {program} flood --pid PID --cpu 1
  {program} flood --flooders 0 --pid PID --cpu 1      the same without the flood
  {program} flood --op set --polite-rate 5"
    )
}

/// Flags of `flood`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = help())]
pub struct FloodArgs {
    /// Connections with a deep queue; 0 measures the polite connections alone
    #[arg(long, default_value_t = 1)]
    flooders: u32,
    /// Requests in flight on each flooding connection
    #[arg(long, default_value_t = 1000, value_parser = up_to(DEPTH_MAX))]
    flood_depth: u32,
    /// Polite connections, which send at a fixed rate
    #[arg(long, default_value_t = 50, value_parser = up_to(CONNECTIONS_MAX))]
    polite: u32,
    /// Requests per second of each polite connection
    #[arg(long, default_value_t = 20.0, value_name = "PER_SECOND")]
    polite_rate: f64,
    /// Operation of each request, of both
    #[arg(short, long = "op", value_enum, default_value_t = Operation::Get)]
    op: Operation,
    /// Client threads; with more than one the last one drives only the flood
    #[arg(short, long, default_value_t = 1)]
    threads: u32,
    /// Znodes prepared
    #[arg(long, default_value_t = 1000, value_parser = up_to(KEYS_MAX))]
    keys: u32,
    /// Bytes of each value written
    #[arg(long, default_value = "100", value_name = "BYTES|MIN..MAX")]
    value_bytes: String,
    /// Seconds to measure
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    duration: f64,
    /// Seconds of the same load before measuring
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS")]
    warmup: f64,
    #[command(flatten)]
    common: CommonArgs,
}

/// The report of `flood`.
#[derive(Debug, Serialize)]
struct FloodReport {
    #[serde(flatten)]
    heading: Heading,
    op: &'static str,
    flooders: u32,
    flood_depth: u32,
    polite_connections: u32,
    polite_rate: f64,
    seconds: f64,
    /// The polite connections; latency from when a request was due.
    polite: ByOp,
    polite_percentiles: Vec<Percentile>,
    /// The polite connections over time.
    timeline: Vec<Interval>,
    /// Requests of the polite ones that were due and unsent at the end.
    backlog: u64,
    /// The flooding connections.
    flood: ByOp,
    server_cpu_us_per_op: Option<f64>,
    client_cpus_busy: f64,
    /// What a reader of the figures must know.
    remarks: Vec<String>,
}

pub(super) fn run(args: &FloodArgs) -> Result<()> {
    let plan = flags(plan(args))?;
    let measured = run::execute(&plan)?;
    let report = report(args, &plan, &measured);
    print(&args.common, &report, table(&report))
}

fn plan(args: &FloodArgs) -> Result<Plan> {
    within("--polite", args.polite, CONNECTIONS_MAX)?;
    within("--flood-depth", args.flood_depth, DEPTH_MAX)?;
    rate("--polite-rate", args.polite_rate)?;
    ensure!(args.flooders <= CONNECTIONS_MAX, "--flooders {} is above {CONNECTIONS_MAX}", args.flooders);
    let load = Args {
        op: args.op,
        read_percent: None,
        mix: None,
        connections: args.polite,
        depth: 4,
        threads: args.threads,
        value_bytes: args.value_bytes.clone(),
        keys: args.keys,
        keys_distribution: Distribution::Uniform,
        zipf_theta: None,
        seed: 1,
        children: 100,
        multi_ops: 4,
        duration: args.duration,
        ops: None,
        warmup: args.warmup,
        rate: Some(args.polite_rate * f64::from(args.polite)),
        interval: 1.0,
        tolerate: Vec::new(),
        csv: None,
        svg: None,
        common: args.common.clone(),
    };
    let mut plan = Plan::of(&load).context("--polite-rate is the --rate of each")?;
    in_flight_fits(u64::from(args.flooders) * u64::from(args.flood_depth), plan.value_bytes_max + 64)?;
    plan.flood = Some(Flood { connections: args.flooders, depth: args.flood_depth });
    Ok(plan)
}

fn report(args: &FloodArgs, plan: &Plan, measured: &Measured) -> FloodReport {
    let seconds = measured.window.as_secs_f64();
    let of = |pace: Pace| {
        let totals = || Kind::MEASURED.into_iter().filter_map(|kind| measured.totals[cell(pace, kind)].as_ref());
        let operations = totals().map(|total| total.operations).sum();
        Total { latency: merged(totals().map(|total| &total.latency)), operations }
    };
    let (polite, flood) = (of(Pace::Open), of(Pace::Closed));
    let operations = polite.operations + flood.operations;
    let ns = |duration: std::time::Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let offered = args.polite_rate * f64::from(args.polite);
    FloodReport {
        heading: Heading::of("flood", &args.common),
        op: plan.mix.name(),
        flooders: args.flooders,
        flood_depth: args.flood_depth,
        polite_connections: args.polite,
        polite_rate: args.polite_rate,
        seconds,
        polite: ByOp::of(&polite, seconds),
        polite_percentiles: percentiles(&polite.latency),
        timeline: intervals(&measured.rows, ns(plan.interval), ns(measured.window)),
        backlog: measured.backlog,
        remarks: [
            measured.doubts.clone(),
            open_loop_remarks(offered, ratio(polite.operations, 1) / seconds, measured.unrecorded),
        ]
        .concat(),
        flood: ByOp::of(&flood, seconds),
        server_cpu_us_per_op: measured.server_cpu_ns.map(|ns| ratio(ns, operations) / 1e3),
        client_cpus_busy: ratio(measured.client_cpu_ns, 1) / 1e9 / seconds,
    }
}

fn table(report: &FloodReport) -> Table {
    let mut table = Table::default();
    let FloodReport { op, flooders, flood_depth, polite_connections, polite_rate, .. } = report;
    let flood = format!("{flooders} connections x {flood_depth} in flight");
    table.row("flood", &format!("{op}, {flood}, beside {polite_connections} polite ones at {polite_rate}/s each"));
    table.row("machine", &report.heading.machine.to_string());
    let all = report.polite.operations + report.flood.operations;
    table.row("measured", &format!("{all} operations in {:.2} s, every reply checked", report.seconds));
    for (name, of) in [("polite", &report.polite), ("flood", &report.flood)] {
        let text = format!("{} operations in {:.2} s, {:.0}/s", of.operations, report.seconds, of.throughput);
        table.row(name, &text);
        table.latency("  latency us", &of.latency_us);
    }
    if let Some(cpu) = report.server_cpu_us_per_op {
        table.row("server CPU", &format!("{cpu:.3} us/operation"));
    }
    table.row("client CPU", &format!("{:.2} CPUs busy", report.client_cpus_busy));
    if report.backlog > 0 {
        table.row("backlog", &format!("{} polite requests were due and unsent at the end", report.backlog));
    }
    table.notes(&report.remarks);
    table
}
