//! Errors of usage: they name what was meant, and the command that shows how.
//!
//! The main thread only, before anything else is done.

use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// Writes `corral help x y` as `corral x y --help`, because only that names a similar sub-command.
pub(super) fn help_as_flag(mut given: Vec<OsString>) -> Vec<OsString> {
    if given.len() > 2 && given[1] == "help" && given[2] != "help" {
        given.remove(1);
        given.push("--help".into());
    }
    given
}

/// Ends the process as clap does, with the sub-command before `--help` in the last sentence. The usage is that of `--help`, because
/// clap shows an option as required if the environment gives it.
pub(super) fn exit(mut error: Error, mut command: Command, given: &[OsString]) -> ! {
    command.build();
    let (used, named) = used(&mut command, given);
    if error.kind() == ErrorKind::MissingRequiredArgument {
        error.insert(ContextKind::Usage, ContextValue::StyledStr(used.render_usage()));
    }
    let text = error.render().ansi().to_string();
    let is_help = !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    // clap writes the first word, `error:`, again, and removes colours if there is no terminal.
    match text.split_once(' ').and_then(|(_, text)| text.rsplit_once("--help")) {
        Some((before, after)) if !is_help => {
            <Error>::raw(error.kind(), format!("{before}{named} --help{after}")).with_cmd(&command).exit()
        }
        _ => error.exit(),
    }
}

/// The sub-command that a command line begins with, and its name with those above it.
fn used<'a>(mut command: &'a mut Command, given: &[OsString]) -> (&'a mut Command, String) {
    let mut named = command.get_name().to_owned();
    for word in given.iter().skip(1) {
        if command.find_subcommand(word).is_none() {
            break;
        }
        command = command.find_subcommand_mut(word).expect("it is there");
        named = format!("{named} {}", command.get_name());
    }
    (command, named)
}
