//! The load generator as a program of its own: parses flags, runs, prints. Everything else is in the library.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

/// A load generator for any server that speaks the ZooKeeper protocol.
///
/// Without a sub-command it keeps DEPTH requests in flight on each of SESSIONS sessions. It reports throughput, latency
/// percentiles and, with --pid, the server's CPU time per operation.
#[derive(Parser)]
#[command(name = "corral-bench", version)]
struct Cli {
    #[command(flatten)]
    bench: corral_bench::Bench,
}

fn main() -> ExitCode {
    match corral_bench::dispatch(&Cli::parse().bench) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If standard error is closed too, the exit code is left.
            let _ = writeln!(std::io::stderr(), "corral-bench: {error:#}");
            if error.is::<corral_bench::WrongFlag>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}
