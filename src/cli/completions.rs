//! `corral completions`: prints a script that completes the command line in a shell.
//!
//! The main thread only. The verbs behind `corral cli` are not completed.

use std::any::TypeId;

use clap::{Args, ValueHint};
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
pub(crate) fn run(arguments: &Arguments, command: clap::Command) -> Result<(), Fault> {
    let mut command = without_files(command);
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "corral", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}

/// The command without completion of texts by files. Most texts are paths of znodes.
fn without_files(command: clap::Command) -> clap::Command {
    let is_text = |arg: &clap::Arg| arg.get_value_parser().type_id() == TypeId::of::<String>();
    command
        .mut_args(|arg| if is_text(&arg) { arg.value_hint(ValueHint::Other) } else { arg })
        .mut_subcommands(without_files)
}
