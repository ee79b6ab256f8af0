//! `corral version`: the version and the protocol served. The main thread only.

use crate::exit::Fault;

/// Prints the version.
pub(crate) fn run() -> Result<(), Fault> {
    super::print(concat!(
        "corral ",
        env!("CARGO_PKG_VERSION"),
        " (ZooKeeper 3.9 protocol), built on ",
        env!("CORRAL_BUILT"),
        "\n"
    ))
}
