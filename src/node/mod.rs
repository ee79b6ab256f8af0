//! The node: everything that runs between a checked configuration and the end of the process.

use crate::config::Config;
use crate::exit::{ExitCode, Fault};
use crate::preflight;

/// Runs the server until it is told to stop.
///
/// # Errors
/// Whatever keeps it from starting or ends it early.
pub(crate) fn run(config: Config) -> Result<(), Fault> {
    let address = config.server.client_addr;
    std::net::TcpListener::bind(address).map_err(|error| preflight::listen_fault(address, &error))?;
    Err(Fault::new(ExitCode::Internal, format!("nothing serves {address} in this build")))
}
