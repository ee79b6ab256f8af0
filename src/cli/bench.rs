//! `corral bench`: the load generator, for any server that speaks the protocol.
//!
//! The main thread of a client process; it shares nothing with the server but the wire crate.

use clap::Args;

use crate::exit::{ExitCode, Fault};

/// Arguments of `corral bench`.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    bench: corral_bench::Bench,
}

/// Puts a load on a server and prints what it measured.
///
/// # Errors
/// A wrong flag, a server that cannot be reached, or that answers wrongly.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Fault> {
    corral_bench::dispatch(&arguments.bench).map_err(|error| {
        let code = if error.is::<corral_bench::WrongFlag>() { ExitCode::Usage } else { ExitCode::Internal };
        Fault::new(code, format!("{error:#}"))
    })
}
