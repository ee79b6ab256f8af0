//! The `corral` binary: reads the command line, runs one sub-command, and leaves with a documented exit code.
//!
//! The main thread only. It knows sub-commands and faults, nothing of the server.

mod actor;
mod audit;
mod cli;
mod config;
mod control;
mod data;
mod descriptors;
mod exit;
mod gauges;
mod messages;
mod net;
mod node;
mod preflight;
mod runtime;
mod version;

use std::process::ExitCode;

/// Fast for many small blocks from many threads; glibc's allocator costs memory and tail latency there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    abort_on_panic();
    match cli::run() {
        Ok(code) => ExitCode::from(code),
        Err(fault) => {
            cli::print_fault(&fault);
            ExitCode::from(fault.code.number())
        }
    }
}

/// A panic is a bug of corral: it ends the whole process, in every build profile.
fn abort_on_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        std::process::abort();
    }));
}
