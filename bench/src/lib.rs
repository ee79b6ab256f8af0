//! corral-bench: a load generator for any server that speaks the ZooKeeper protocol.
//!
//! One epoll loop per client thread drives sessions in a closed loop (connections x depth) or an open loop (a fixed
//! rate). An open loop counts latency from the time at which a request was due. It checks every reply, and accounts the
//! server's CPU time per operation from the scheduler's nanosecond counters. It uses `corral-wire` alone. The server's
//! `bench` sub-command calls [`dispatch`], and the binary `corral-bench` is the same without a server.

#![warn(missing_docs)]

mod args;
mod charts;
mod check;
mod console;
mod cpu;
mod due;
pub mod echo;
mod frames;
mod histogram;
mod limits;
mod link;
mod load;
mod meter;
mod mix;
mod plan;
mod report;
mod run;
mod scenario;
mod stage;
mod swarm;
mod tls;
mod worker;
mod workload;

use anyhow::Result;

pub use args::WrongFlag;
pub use frames::value;

/// The command line of the load generator: a load, or a sub-command.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Bench {
    #[command(subcommand)]
    scenario: Option<scenario::Scenario>,
    #[command(flatten)]
    load: plan::Args,
}

/// Runs the load or the sub-command of a command line, and prints the figures on standard output.
///
/// It handles SIGINT, SIGTERM and SIGHUP for the rest of the process, to remove its znodes before it ends.
///
/// # Errors
/// Flags that do not fit together ([`WrongFlag`]), Ctrl-C, a closed standard output, or a file that cannot be written.
/// Also a server that cannot be reached, does not reply in time or replies wrongly.
pub fn dispatch(bench: &Bench) -> Result<()> {
    match &bench.scenario {
        Some(scenario) => scenario.run(),
        None => load::run(&bench.load),
    }
}
