//! corral-bench: a load generator for any server that speaks the ZooKeeper protocol.
//!
//! One epoll loop per client thread drives sessions in a closed loop (connections x depth) or an open one (a fixed
//! rate, latency counted from when a request was due), checks every reply, and accounts the server's CPU time per
//! operation from the scheduler's nanosecond counters. Uses `corral-wire` and nothing else of the server, whose `bench`
//! sub-command calls [`run`]; the binary `corral-bench` is the same thing alone.

#![warn(missing_docs)]

mod args;
mod charts;
mod check;
mod connection;
mod console;
mod cpu;
mod due;
pub mod echo;
mod figures;
mod files;
mod keys;
mod limits;
mod link;
mod listener;
mod load;
mod machine;
mod meter;
mod mix;
mod own_znodes;
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

use anyhow::Result;

pub use args::{CommonArgs, WrongFlag};
pub use check::BadReply;
pub use cpu::CpuClock;
pub use keys::Distribution;
pub use load::{measure, run};
pub use machine::Machine;
pub use mix::Operation;
pub use plan::Args;
pub use report::Report;
pub use scenario::Scenario;
pub use workload::value;

/// The command line of the load generator: a load, or a sub-command.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Bench {
    #[command(subcommand)]
    scenario: Option<Scenario>,
    #[command(flatten)]
    load: Args,
}

/// Runs the load or the sub-command of a command line, and prints the figures on standard output.
///
/// # Errors
/// As [`run`] and [`Scenario::run`].
pub fn dispatch(bench: &Bench) -> Result<()> {
    match &bench.scenario {
        Some(scenario) => scenario.run(),
        None => run(&bench.load),
    }
}
