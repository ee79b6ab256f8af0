//! The command line: one file per sub-command, help that teaches, and plain output to the standard streams.
//!
//! The main thread only. It turns arguments into calls and faults into one message; it does not know how the server
//! works.

mod archive;
mod backup;
mod backup_file;
mod bench;
mod check_config;
mod client;
mod completions;
mod doctor;
mod examples;
mod export;
mod health;
mod http;
mod import;
pub(crate) mod log;
mod logging;
mod man;
mod names;
mod new_data_dir;
mod new_file;
mod object_store;
mod output;
mod protocol;
mod recipes;
mod reload;
mod rescue;
mod restore;
mod security;
mod serve;
mod shell;
mod signals;
mod snapshot;
mod snapshot_diff;
mod snapshot_get;
mod subtree;
mod time;
mod top;
mod usage;
mod verify;
mod version;
mod zookeeper_dir;

use std::ffi::OsString;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

pub(crate) use crate::cli::output::print_fault;
use crate::cli::recipes::examples::{
    BARRIER_ENTER, COORDINATE, COUNTER, ELECT, GROUP_JOIN, KV_SET, LOCK, QUEUE_TAKE, SEMAPHORE,
};
use crate::cli::subtree::Format;
use crate::exit::{self, ExitCode, Fault};

const ABOUT: &str = "A coordination service that speaks the ZooKeeper 3.9 protocol";

/// The command line of `corral`.
#[derive(Parser)]
#[command(name = "corral", version, about = ABOUT, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the server in the foreground until SIGTERM or SIGINT
    #[command(after_help = examples::SERVE)]
    Serve(serve::Arguments),
    /// Print the effective configuration, where each value came from, and the plan of cores; change nothing
    #[command(after_help = examples::CHECK_CONFIG)]
    CheckConfig(check_config::Arguments),
    /// Ask a running server for its health; print one line
    #[command(after_help = examples::HEALTH)]
    Health(health::Arguments),
    /// Examine servers, data directories and this host, and name for each finding the command to run
    #[command(after_help = examples::DOCTOR)]
    Doctor(doctor::Arguments),
    /// A shell for the znodes of running servers, with the verbs of zkCli.sh
    #[command(after_help = examples::CLI)]
    Cli(Box<shell::Arguments>),
    /// Run a command while a lock is held
    #[command(after_help = LOCK)]
    Lock(Box<recipes::lock::Arguments>),
    /// Run a command while this process is the leader, or show the leader
    #[command(after_help = ELECT)]
    Elect(Box<recipes::elect::Arguments>),
    /// Run a command while one of a number of leases is held
    #[command(after_help = SEMAPHORE)]
    Semaphore(Box<recipes::semaphore::Arguments>),
    /// Begin and end a piece of work together with others, or wait until a barrier is removed
    #[command(subcommand, after_help = BARRIER_ENTER)]
    Barrier(Box<recipes::barrier::Command>),
    /// Add items to a queue, and take each once
    #[command(subcommand, after_help = QUEUE_TAKE)]
    Queue(Box<recipes::queue::Command>),
    /// Print and change a whole number
    #[command(after_help = COUNTER)]
    Counter(Box<recipes::counter::Arguments>),
    /// Join a group, and list or watch its members
    #[command(subcommand, after_help = GROUP_JOIN)]
    Group(Box<recipes::group::Command>),
    /// Print, set and watch the value of a znode
    #[command(subcommand, after_help = KV_SET)]
    Kv(Box<recipes::kv::Command>),
    /// Commit or abort a transaction together with other sites
    #[command(name = "2pc", subcommand, after_help = COORDINATE)]
    TwoPhase(Box<recipes::two_phase::Command>),
    /// Show the clients and paths that load a running server most
    #[command(after_help = examples::TOP)]
    Top(top::Arguments),
    /// Make a new data directory from the files of ZooKeeper, or write a subtree into a running server
    #[command(subcommand, after_help = examples::IMPORT)]
    Import(ImportCommand),
    /// Write the data of a stopped server for ZooKeeper, or a subtree of a running server into a file
    #[command(subcommand, after_help = examples::EXPORT)]
    Export(ExportCommand),
    /// Write the state of a running or stopped server into one compressed file
    #[command(after_help = examples::BACKUP)]
    Backup(Box<backup::Arguments>),
    /// Ship everything that a running server commits into an archive, until it is stopped
    #[command(after_help = examples::ARCHIVE)]
    Archive(Box<archive::Arguments>),
    /// Make a new data directory from a backup, or from any moment of an archive
    #[command(after_help = examples::RESTORE)]
    Restore(restore::Arguments),
    /// Read a backup, an archive or a data directory, and check everything in it
    #[command(after_help = examples::VERIFY)]
    Verify(verify::Arguments),
    /// Inspect snapshots
    #[command(subcommand, after_help = examples::SNAPSHOT)]
    Snapshot(SnapshotCommand),
    /// Inspect the log
    #[command(subcommand, after_help = examples::LOG)]
    Log(LogCommand),
    /// Make one stopped server the only voter with its data, when a majority of the servers is lost permanently
    #[command(after_help = examples::RESCUE)]
    Rescue(rescue::Arguments),
    /// Put a load on a server, this one or another, and measure it
    Bench(Box<bench::Arguments>),
    /// Print every operation of the wire protocol and how this server differs, in Markdown
    #[command(after_help = examples::PROTOCOL)]
    Protocol,
    /// Print a script that completes commands and flags in a shell
    #[command(after_help = examples::COMPLETIONS)]
    Completions(completions::Arguments),
    /// Print or write manual pages
    #[command(after_help = examples::MAN)]
    Man(man::Arguments),
    /// Print the version
    #[command(after_help = examples::VERSION)]
    Version,
}

#[derive(Subcommand)]
enum ImportCommand {
    /// Read the snapshots and logs of a stopped ZooKeeper server, of versions 3.4 to 3.9
    #[command(name = "zookeeper", after_help = examples::IMPORT_ZOOKEEPER)]
    ZooKeeper(import::Arguments),
    /// Write the subtree in a JSON document into a running server
    #[command(after_help = examples::IMPORT_SUBTREE)]
    Json(subtree::import::Arguments),
    /// Write the subtree in a file of JSON lines into a running server
    #[command(after_help = examples::IMPORT_SUBTREE)]
    Jsonl(subtree::import::Arguments),
    /// Write the subtree in a tar file into a running server
    #[command(after_help = examples::IMPORT_SUBTREE)]
    Tar(subtree::import::Arguments),
}

#[derive(Subcommand)]
enum ExportCommand {
    /// Write a snapshot that ZooKeeper 3.6 to 3.9 starts from, of a stopped server
    #[command(name = "zookeeper", after_help = examples::EXPORT_ZOOKEEPER)]
    ZooKeeper(export::Arguments),
    /// Write a subtree of a running server as one JSON document
    #[command(after_help = examples::EXPORT_SUBTREE)]
    Json(subtree::export::Arguments),
    /// Write a subtree of a running server as JSON lines, one for each znode
    #[command(after_help = examples::EXPORT_SUBTREE)]
    Jsonl(subtree::export::Arguments),
    /// Write a subtree of a running server as a tar file, a directory for each znode
    #[command(after_help = examples::EXPORT_SUBTREE)]
    Tar(subtree::export::Arguments),
}

#[derive(Subcommand)]
enum SnapshotCommand {
    /// Check a snapshot file, or all of a data directory, and print header, sections and checksums
    #[command(after_help = examples::SNAPSHOT_INSPECT)]
    Inspect(snapshot::Arguments),
    /// Print the difference between two states, and end with 1 if there is one
    #[command(after_help = examples::SNAPSHOT_DIFF)]
    Diff(snapshot_diff::Arguments),
    /// Take the present state of a running server, as a snapshot that ZooKeeper and `corral import` read
    #[command(after_help = examples::SNAPSHOT_GET)]
    Get(snapshot_get::Arguments),
}

#[derive(Subcommand)]
enum LogCommand {
    /// Print every record of a log directory, below each entry the operations asked for, and where the log ends
    #[command(after_help = examples::LOG_DUMP)]
    Dump(log::Arguments),
}

impl ImportCommand {
    fn run(&self) -> Result<(), Fault> {
        match self {
            ImportCommand::ZooKeeper(arguments) => import::run(arguments),
            ImportCommand::Json(arguments) => subtree::import::run(arguments, Format::Json),
            ImportCommand::Jsonl(arguments) => subtree::import::run(arguments, Format::Jsonl),
            ImportCommand::Tar(arguments) => subtree::import::run(arguments, Format::Tar),
        }
    }
}

impl ExportCommand {
    fn run(&self) -> Result<(), Fault> {
        match self {
            ExportCommand::ZooKeeper(arguments) => export::run(arguments),
            ExportCommand::Json(arguments) => subtree::export::run(arguments, Format::Json),
            ExportCommand::Jsonl(arguments) => subtree::export::run(arguments, Format::Jsonl),
            ExportCommand::Tar(arguments) => subtree::export::run(arguments, Format::Tar),
        }
    }
}

/// Reads the process's arguments and runs what they ask for. Gives the exit code.
///
/// # Errors
/// The fault of the sub-command. A command line that is not understood leaves the process with the code for usage, and
/// `--help` or `--version` with success, both from here.
pub(crate) fn run() -> Result<u8, Fault> {
    let given: Vec<OsString> = std::env::args_os().collect();
    recipes::child::become_command(&given)?;
    let given = usage::help_as_flag(shell::respelled(given));
    let command = Arguments::command().after_help(format!("{}\n{}", examples::FIRST_STEPS, exit::help_text()));
    let parsed = command.try_get_matches_from(&given).and_then(|matches| Arguments::from_arg_matches(&matches));
    let arguments = parsed.unwrap_or_else(|error| usage::exit(error, Arguments::command(), &given));
    let done = match arguments.command {
        Command::Health(arguments) => return health::run(&arguments),
        Command::Doctor(arguments) => return doctor::run(&arguments),
        Command::Cli(arguments) => return shell::run(&arguments),
        Command::Lock(arguments) => return recipes::lock::run(&arguments),
        Command::Elect(arguments) => return recipes::elect::run(&arguments),
        Command::Semaphore(arguments) => return recipes::semaphore::run(&arguments),
        Command::Barrier(command) => return recipes::barrier::run(&command),
        Command::Queue(command) => return recipes::queue::run(&command),
        Command::Counter(arguments) => return recipes::counter::run(&arguments),
        Command::Group(command) => return recipes::group::run(&command),
        Command::Kv(command) => return recipes::kv::run(&command),
        Command::TwoPhase(command) => return recipes::two_phase::run(&command),
        Command::Top(arguments) => top::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::CheckConfig(arguments) => check_config::run(&arguments),
        Command::Export(command) => command.run(),
        Command::Import(command) => command.run(),
        Command::Snapshot(SnapshotCommand::Diff(arguments)) => return snapshot_diff::run(&arguments),
        Command::Snapshot(SnapshotCommand::Inspect(arguments)) => snapshot::run(&arguments),
        Command::Snapshot(SnapshotCommand::Get(arguments)) => snapshot_get::run(&arguments),
        Command::Log(LogCommand::Dump(arguments)) => log::run(&arguments),
        Command::Backup(arguments) => backup::run(&arguments),
        Command::Archive(arguments) => archive::run(&arguments),
        Command::Restore(arguments) => restore::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Rescue(arguments) => rescue::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Protocol => protocol::run(),
        Command::Completions(arguments) => completions::run(&arguments, Arguments::command()),
        Command::Man(arguments) => man::run(&arguments, Arguments::command().after_help(examples::FIRST_STEPS)),
        Command::Version => version::run(),
    };
    done.map(|()| ExitCode::Ok.number())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_sub_command_has_three_examples_that_parse() {
        fn check(command: &clap::Command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let lines = help.lines().skip_while(|line| !line.starts_with("Examples")).skip(1);
            let examples: Vec<&str> = lines.filter_map(|line| line.find("corral ").map(|at| &line[at..])).collect();
            assert!(examples.len() >= 3, "{}: {examples:?}", command.get_name());
            for example in examples {
                let parsed = Arguments::command().try_get_matches_from(words(example));
                let error = parsed.err().filter(clap::Error::use_stderr);
                assert!(error.is_none(), "{example}: {}", error.map_or_else(String::new, |error| error.to_string()));
            }
            below(command);
        }
        fn below(command: &clap::Command) {
            command.get_subcommands().filter(|command| !command.is_hide_set()).for_each(check);
        }
        below(&Arguments::command());
    }

    const AGE_KEY: &str = "age1zvqe5z06zkrmhcfkfz964sk9kta0qncy7cx23e7fglhcyr7csersnyxw0t";

    /// The words of a line as a shell finds them, up to a pipe, a redirection, a bracket, a comment or two spaces.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut quote) = (vec![String::new()], None);
        for letter in line.replace("$(pidof corral)", "1").replace("$(age-keygen -y key)", AGE_KEY).chars() {
            let last = words.last_mut().expect("there is one at least");
            match letter {
                _ if quote == Some(letter) => quote = None,
                _ if quote.is_some() => last.push(letter),
                '\'' | '"' => quote = Some(letter),
                '|' | '#' | '<' | '>' | ')' => break,
                ' ' if last.is_empty() => break,
                ' ' => words.push(String::new()),
                _ => last.push(letter),
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }

    #[test]
    fn a_short_flag_has_one_meaning_in_all_sub_commands() {
        fn collect(command: &clap::Command, found: &mut BTreeMap<char, BTreeSet<String>>) {
            for argument in command.get_arguments() {
                let longs = argument.get_long().map(str::to_owned);
                argument
                    .get_short()
                    .into_iter()
                    .for_each(|short| found.entry(short).or_default().extend(longs.clone()));
            }
            command.get_subcommands().for_each(|command| collect(command, found));
        }
        let mut command = Arguments::command();
        command.build();
        let mut found = BTreeMap::new();
        collect(&command, &mut found);
        let found: Vec<(char, Vec<&str>)> =
            found.iter().map(|(short, longs)| (*short, longs.iter().map(String::as_str).collect())).collect();
        let expected = [
            ('V', vec!["version"]),
            ('a', vec!["client-addr"]),
            ('c', vec!["config"]),
            ('d', vec!["data-dir"]),
            ('h', vec!["help"]),
            ('l', vec!["log-level"]),
            // How many sessions.
            ('n', vec!["connections", "contenders", "count", "sessions"]),
            ('o', vec!["op"]),
            ('q', vec!["quiet"]),
            ('s', vec!["server"]),
            ('t', vec!["threads"]),
        ];
        assert_eq!(found, expected);
    }
}
