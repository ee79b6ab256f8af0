//! `corral completions`: prints a script that completes the command line in a shell.
//!
//! The main thread only. The verbs behind `corral cli` are not completed.

use clap::Args;
use clap_complete::Shell;

use crate::cli::output;
use crate::exit::Fault;

/// Arguments of `corral completions`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The shell that reads the script
    shell: Shell,
}

/// Prints the script for a command.
///
/// # Errors
/// When standard output cannot be written.
pub(crate) fn run(arguments: &Arguments, mut command: clap::Command) -> Result<(), Fault> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "corral", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}
