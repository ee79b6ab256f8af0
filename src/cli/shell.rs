//! `corral cli`: a shell with ZooKeeper's verbs, on a terminal, in a pipe, or for one command.
//!
//! The main thread, with a runtime of tokio for the session.

mod apply;
mod compare;
mod copy;
mod driver;
mod edit;
mod ensemble;
mod follow;
mod paths;
mod quota;
mod remote_path;
mod scan;
mod screen;
mod search;
mod session;
mod terminal;
mod verbs;
mod words;
mod znodes;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};

use clap::{Args, Command};
use corral_client::watcher;

use crate::cli::client::Connection;
use crate::cli::output::in_session_runtime;
use crate::cli::shell::driver::Driver;
use crate::cli::shell::screen::{Format, Screen};
use crate::cli::shell::session::{Link, Shell};
use crate::cli::signals::Stops;
use crate::config::nearest;
use crate::exit::{ExitCode, Fault};

/// Arguments of `corral cli`.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    /// Also use a server that is read-only, because it has no leader
    #[arg(long)]
    read_only: bool,
    /// Wait for the connection before the first command
    #[arg(long)]
    wait_for_connection: bool,
    /// How results are shown
    #[arg(long, value_enum, default_value_t = Format::Text, env = "CORRAL_OUTPUT")]
    output: Format,
    /// A verb with its arguments. Without it lines are read from the terminal or from standard input
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// zkCli's spelling of options, before the verb.
const SPELLINGS: [(&str, &str); 4] = [
    ("-server", "--server"),
    ("-timeout", "--session-timeout"),
    ("-r", "--read-only"),
    ("-waitforconnection", "--wait-for-connection"),
];

/// Options without a value.
const FLAGS: [&str; 3] = ["--read-only", "--wait-for-connection", "--help"];

/// Replaces zkCli's spelling of options behind `corral cli`.
pub(super) fn respelled(arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.get(1).is_none_or(|command| command != "cli") {
        return arguments;
    }
    let (mut respelled, mut is_value, mut has_verb) = (Vec::new(), false, false);
    for (at, word) in arguments.into_iter().enumerate() {
        has_verb |= at > 1 && !is_value && !word.as_encoded_bytes().starts_with(b"-");
        let is_option = at > 1 && !is_value && !has_verb;
        let new = SPELLINGS.iter().find(|(old, _)| is_option && *old == word).map(|(_, new)| OsString::from(new));
        let word = new.unwrap_or(word);
        let text = word.to_string_lossy();
        let takes_value = text.starts_with("--") && !text.contains('=') && !FLAGS.contains(&&*text);
        is_value = is_option && takes_value;
        respelled.push(word);
    }
    respelled
}

/// Whether the terminal has no cursor that moves. Then lines are read as from a pipe.
fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|kind| kind.is_empty() || kind == "dumb")
}

/// Runs one command, or all lines of standard input.
///
/// # Errors
/// If the arguments cannot be used or standard output cannot be written. Faults of commands are shown as they come, and give the
/// exit code.
pub(crate) fn run(arguments: &Arguments) -> Result<u8, Fault> {
    if let Some(option) = arguments.command.first().filter(|word| word.starts_with('-')) {
        let known = Arguments::augment_args(Command::new("cli"));
        let similar =
            nearest(option.trim_start_matches('-'), known.get_arguments().filter_map(|argument| argument.get_long()));
        let advice = similar.map_or_else(String::new, |name| format!(", but --{name} is"));
        let sentence = format!("{option} is no option of the shell{advice}; `corral cli --help` lists them");
        return Err(Fault::new(ExitCode::Usage, sentence));
    }
    in_session_runtime(async {
        let (watcher, events) = watcher();
        let link = Link {
            connection: &arguments.connection,
            read_only: arguments.read_only,
            waits: arguments.wait_for_connection,
        };
        let shell = Shell::new(Screen::new(arguments.output), link, watcher);
        let mut driver = Driver::new(&shell, events, Stops::new()?);
        driver.take(shell.connect()).await;
        if driver.code() != ExitCode::Ok {
            return Ok(driver.code().number());
        }
        if let [words] = &arguments.command[..]
            && words.contains(' ')
        {
            shell.screen.error("give verb and arguments as words of their own, without quotes around all");
        }
        if !arguments.command.is_empty() {
            driver.take(shell.run(&arguments.command)).await;
        } else if io::stdin().is_terminal() && io::stdout().is_terminal() && !is_dumb() {
            terminal::run(&mut driver).await?;
        } else {
            driver.take_lines().await;
        }
        shell.close().await;
        shell.screen.flush();
        shell.screen.fault().map_or(Ok(driver.code().number()), Err)
    })
}
