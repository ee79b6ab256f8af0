//! `corral lock`: runs a command while a lock is held.

use std::ffi::OsString;

use clap::Args;

use crate::cli::client::Connection;
use crate::cli::recipes::child::{Holding, hold};
use crate::cli::recipes::contenders::{Contender, Role};
use crate::cli::recipes::session;
use crate::exit::Fault;

/// Arguments of `corral lock`.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    /// The lock
    path: String,
    /// Share the lock with others that share it
    #[arg(long)]
    shared: bool,
    #[command(flatten)]
    holding: Holding,
    /// The command to run
    #[arg(value_name = "COMMAND", required = true, last = true)]
    command: Vec<OsString>,
}

/// Runs the command, and gives its exit code.
///
/// # Errors
/// If the lock cannot be had, or is lost while the command runs.
pub(crate) fn run(arguments: &Arguments) -> Result<u8, Fault> {
    let role = if arguments.shared { Role::Shared } else { Role::Exclusive };
    let Arguments { connection, path, holding, command, .. } = arguments;
    protect(connection, path, role, holding, command)
}

/// Runs the command when it is this contender's turn.
///
/// # Errors
/// If the turn does not come, or is lost while the command runs.
pub(super) fn protect(
    connection: &Connection,
    path: &str,
    role: Role,
    holding: &Holding,
    command: &[OsString],
) -> Result<u8, Fault> {
    session::run(connection, holding.limit.timeout, path, async |session, stops| {
        let enter = async {
            let contender = Contender::enter(session, path, role, &holding.id()).await?;
            let place = contender.turn().await?;
            Ok((contender, place))
        };
        let (contender, place) = session.within(stops, enter).await?;
        let code = hold(session, stops, path, &place, holding.on_lost, command).await?;
        // If that fails, the session's end removes the znodes.
        let _ = session.within(stops, async { Ok(contender.leave().await) }).await;
        Ok(code)
    })
}
