//! `corral version`: the version and the protocol served. The main thread only.

use crate::cli::output;
use crate::exit::Fault;

/// Prints the version.
pub(crate) fn run() -> Result<(), Fault> {
    output::print(concat!(
        "corral ",
        env!("CARGO_PKG_VERSION"),
        " (ZooKeeper 3.9 protocol), built on ",
        env!("CORRAL_BUILT"),
        "\n"
    ))
}
