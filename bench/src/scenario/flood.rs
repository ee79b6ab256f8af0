//! A flood beside polite connections: a few sessions keep a deep queue of requests in flight, others ask a little at a
//! fixed rate. What happens to the polite ones?
//!
//! The same engine as a load. The polite connections are an open loop, so that every delay counts from when a request
//! was due. The flood is a closed one. On one thread the polite sockets are always served first.

use std::time::Duration;

use anyhow::Result;
use clap::value_parser;

use crate::args::{CommonArgs, rate, seconds, some_seconds, up_to};
use crate::histogram::{percentiles, ratio};
use crate::limits::{CONNECTIONS_MAX, DEPTH_MAX, THREADS_MAX};
use crate::load::ByOp;
use crate::meter::Pace;
use crate::mix::Operation;
use crate::plan::{Args, Flood, Plan};
use crate::report::{Report, fields, overloaded};
use crate::run::{Measured, execute};

const HELP: &str = "\
How it works:
  Some connections keep a deep queue of requests in flight: the flood. The polite connections send at a fixed rate. The run
  measures the latency of the polite ones.

How to read it:
  Compare with --flooders 0, the polite connections alone: the difference is the effect of the flood. Latency of the polite
  connections counts from when a request was due. On one client thread their sockets are served first, but the thread's work
  for the flood still delays them by some tens of microseconds; with a CPU to spare use --threads 2. Give the client another
  CPU than the server: otherwise it measures the scheduler.

Examples:
  corral bench flood                                     deep queues of reads beside polite connections
  corral bench flood --flooders 0 --cpu 1                the same without the flood, on CPU 1
  corral bench flood --op set --polite-rate 5            a flood of writes";

/// Flags of `flood`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct FloodArgs {
    /// Connections with a deep queue; 0 measures the polite connections alone
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(0..=i64::from(CONNECTIONS_MAX)))]
    flooders: u32,
    /// Requests in flight on each flooding connection
    #[arg(long, default_value_t = 1000, value_parser = up_to(DEPTH_MAX))]
    flood_depth: u32,
    /// Polite connections, which send at a fixed rate
    #[arg(long, default_value_t = 50, value_parser = up_to(CONNECTIONS_MAX))]
    polite: u32,
    /// Requests per second of each polite connection
    #[arg(long, default_value = "20", value_name = "PER_SECOND", value_parser = rate)]
    polite_rate: f64,
    /// Operation of each request, of both
    #[arg(short, long = "op", value_enum, default_value_t = Operation::Get)]
    op: Operation,
    /// Client threads; with more than one the last one drives only the flood
    #[arg(short, long, default_value_t = 1, value_parser = up_to(THREADS_MAX))]
    threads: u32,
    /// Seconds to measure
    #[arg(long, default_value = "10", value_name = "SECONDS", value_parser = some_seconds)]
    duration: Duration,
    /// Seconds of the same load before measuring
    #[arg(long, default_value = "2", value_name = "SECONDS", value_parser = seconds)]
    warmup: Duration,
    #[command(flatten)]
    common: CommonArgs,
}

pub(super) fn run(args: &FloodArgs) -> Result<()> {
    let load = Args {
        op: args.op,
        tolerate: Vec::new(),
        connections: args.polite,
        depth: 4,
        threads: args.threads,
        duration: args.duration,
        warmup: args.warmup,
        rate: Some(args.polite_rate * f64::from(args.polite)),
        common: args.common.clone(),
        ..Args::parse("")?
    };
    let plan = Plan::of(&load, Some(Flood { connections: args.flooders, depth: args.flood_depth }))?;
    report(args, &plan, &execute(&plan)?).print(&args.common)
}

fn report(args: &FloodArgs, plan: &Plan, measured: &Measured) -> Report {
    let seconds = measured.window.as_secs_f64();
    let of = |pace| measured.gathered.total(|other, _| other == pace);
    let (polite, flood) = (of(Pace::Open), of(Pace::Closed));
    let operations = polite.operations + flood.operations;
    let offered = args.polite_rate * f64::from(args.polite);
    let rate = ratio(polite.operations, 1) / seconds;
    let FloodArgs { flooders, flood_depth, polite: connections, polite_rate, .. } = args;
    let op = plan.mix.name();
    Report {
        scenario: "flood",
        headline: format!(
            "{op}, {flooders} connections x {flood_depth} in flight, beside {connections} polite ones at {polite_rate}/s \
             each, every reply checked"
        ),
        load: fields! { op, flooders, flood_depth, polite_connections: connections, polite_rate },
        figures: fields! {
            seconds,
            polite: ByOp::of(&polite, seconds),
            polite_percentiles: percentiles(&polite.latency),
            timeline: measured.gathered.rows,
            backlog: measured.backlog,
            flood: ByOp::of(&flood, seconds),
            server_cpu_us_per_op: measured.server_cpu_ns.map(|ns| ratio(ns, operations) / 1e3),
            client_cpus_busy: ratio(measured.client_cpu_ns, 1) / 1e9 / seconds,
        },
        remarks: measured.doubts.iter().cloned().chain(overloaded(offered, rate)).collect(),
    }
}
