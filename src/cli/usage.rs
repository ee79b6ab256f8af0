//! Errors of usage: they name what was meant, and the command that shows how.
//!
//! The main thread only, before anything else is done.

use std::ffi::OsString;

use clap::Command;
use clap::error::{Error, ErrorKind};

/// Writes `corral help x y` as `corral x y --help`, because only that names a similar sub-command.
pub(super) fn help_as_flag(mut given: Vec<OsString>) -> Vec<OsString> {
    if given.len() > 2 && given[1] == "help" && given[2] != "help" {
        given.remove(1);
        given.push("--help".into());
    }
    given
}

/// Ends the process as clap does, but the last sentence has the sub-command before `--help`.
pub(super) fn exit(error: &Error, command: &Command, given: &[OsString]) -> ! {
    let text = error.render().ansi().to_string();
    let is_help = !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    // clap writes the first word, `error:`, again, and removes colours if there is no terminal.
    match text.split_once(' ').and_then(|(_, text)| text.rsplit_once("--help")) {
        Some((before, after)) if !is_help => {
            <Error>::raw(error.kind(), format!("{before}{} --help{after}", named(command, given)))
                .with_cmd(command)
                .exit()
        }
        _ => error.exit(),
    }
}

/// The program with the sub-commands that a command line begins with.
fn named(mut command: &Command, given: &[OsString]) -> String {
    let mut named = command.get_name().to_owned();
    for word in given.iter().skip(1) {
        let Some(inner) = command.find_subcommand(word) else { break };
        command = inner;
        named = format!("{named} {}", command.get_name());
    }
    named
}
