//! `corral top`: the clients and paths that load a server most.
//!
//! The main thread, with a runtime of tokio for the one connection.

use clap::Args;

use crate::cli::http::Server;
use crate::cli::output;
use crate::exit::{ExitCode, Fault};

/// Arguments of `corral top`.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    server: Server,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Prints the server's answer.
///
/// # Errors
/// If the server cannot be asked.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Fault> {
    let failed = |sentence: String| Fault::new(ExitCode::Internal, sentence);
    let path = if arguments.json { "/top" } else { "/top?text" };
    let (target, answers) = arguments.server.ask(&[path])?;
    let answers = answers.map_err(|reason| failed(format!("{target}: {reason}")))?;
    match &answers[..] {
        [(200, text)] => text.lines().try_for_each(|line| output::print(&format!("{}\n", output::plain(line)))),
        [(status, _), ..] => Err(failed(format!(
            "{target}: the answer has status {status} and is no answer of `top`; is it the admin address of corral?"
        ))),
        [] => Err(failed(format!("{target}: no answer"))),
    }
}
