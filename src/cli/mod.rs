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
mod doctor;
mod export;
mod health;
mod http;
mod import;
pub(crate) mod log;
mod logging;
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
mod verify;
mod version;
mod zookeeper_dir;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

pub(crate) use crate::cli::output::print_fault;
use crate::cli::recipes::examples::{COUNTER, ELECT, LOCK, SEMAPHORE};
use crate::cli::subtree::Format;
use crate::exit::{self, ExitCode, Fault};

const ABOUT: &str = "A coordination service that speaks the ZooKeeper 3.9 protocol";

const EXAMPLES: &str = "\
First steps:
  corral serve                          serve on 127.0.0.1:2181, data in ./data
  zkCli.sh -server 127.0.0.1:2181       connect with any ZooKeeper client
  corral check-config --config zoo.cfg  see what becomes of a ZooKeeper configuration

Data:
  Everything is kept in the data directory (--data-dir): snapshots and the log.
  An acknowledged write is on disk. Stop the server with SIGTERM; started again with the
  same directory it continues where it was.

Next:
  corral check-config --template > corral.toml   a file with every key, to edit
  corral serve --config corral.toml              serve with it
  corral serve --help                            flags that override the file
  corral health                                  check a running server
  corral doctor                                  find faults, with a remedy for each
  corral bench --op mix                          measure a running server
";

const SERVE_EXAMPLES: &str = "\
Examples:
  corral serve                                          data in ./data, clients on 127.0.0.1:2181
  corral serve --config /etc/corral/corral.toml         a TOML file or a zoo.cfg
  corral serve --set 'commands.four_letter_whitelist=[\"*\"]'
  RUST_LOG=info,corral_engine=debug corral serve        more log lines of one module";

const CHECK_CONFIG_EXAMPLES: &str = "\
Examples:
  corral check-config --config zoo.cfg                  effective values, and every problem
  corral check-config --template > corral.toml          a file with every key
  corral check-config --config zoo.cfg --security       its risks, with a remedy each
  corral check-config --set limits.connections_max=10   try a value";

const HEALTH_EXAMPLES: &str = "\
Exit codes, as those of plugins for Nagios:
  0  OK        every check passes
  1  WARNING   it serves, and a check needs an operator
  2  CRITICAL  it accepts no sessions or no writes
  3  UNKNOWN   it does not answer

Examples:
  corral health                                         the server of this host
  corral health 10.0.0.1:8080                           another one
  corral health https://10.0.0.1:8080 --ca ca.pem       over TLS";

const DOCTOR_EXAMPLES: &str = "\
Nothing is changed. Each finding has a command or a page, which is in the repository.

Exit codes, as those of plugins for Nagios:
  0  no findings
  1  the worst finding is a WARNING
  2  the worst finding is CRITICAL
  3  nothing could be examined

Examples:
  corral doctor                                         the server of this host
  corral doctor 10.0.0.1:8080 10.0.0.2:8080 10.0.0.3:8080
  corral doctor /var/lib/corral                         a data directory, also of a stopped server
  corral doctor --config /etc/corral/corral.toml        this host and the directories of its server
  corral doctor --json | jq .findings                   for a script";

const TOP_EXAMPLES: &str = "\
Each server shows its own clients, over its last two seconds: addresses, sessions with their addresses, and
paths of two levels. Work is the share of the
server's work for requests, as it estimates that.

Examples:
  corral top                                            the server of this host
  watch -n 2 corral top 10.0.0.1:8080                   another one, again and again
  corral top --json | jq .addresses[0]                  the address with the most requests";

const RESCUE_EXAMPLES: &str = "\
Examples, with the server stopped:
  corral rescue --config /etc/corral/corral.toml        print the zxid of its data, and change nothing
  corral rescue --config /etc/corral/corral.toml --yes  make it the only voter";

const IMPORT_EXAMPLES: &str = "\
ZooKeeper must be stopped. Nothing is written into its directories. The same clients go on with their
sessions, ephemerals and ACLs, if they find the new server within their timeouts.

Examples:
  corral import zookeeper /var/lib/zookeeper --dry-run               what is there; write nothing
  corral import zookeeper /var/lib/zookeeper --data-dir data         then: corral serve --data-dir data
  corral import zookeeper /zk/data --log-dir /zk/log -d data         a zoo.cfg with a dataLogDir
  corral import zookeeper /zk/data --config corral.toml              the first server of an ensemble";

const EXPORT_EXAMPLES: &str = "\
The server must be stopped. Of an ensemble, take the server with the highest zxid, and give the same
directory to each ZooKeeper server. Sessions that began on ZooKeeper go on there. Others expire.

Examples:
  corral export zookeeper /tmp/zk --data-dir data                    then dataDir=/tmp/zk in the zoo.cfg
  corral export zookeeper /tmp/zk --config /etc/corral/corral.toml   of a server of an ensemble";

const SUBTREE_EXPORT_EXAMPLES: &str = "\
The server runs, corral or ZooKeeper. Znodes are read one after the other. Writes meanwhile may be there in part.

Examples:
  corral export jsonl /app --out app.jsonl                           of the server of this host
  corral export json --server 10.0.0.1:2181 | jq .znodes[].path      the paths of all znodes
  corral export tar /app --auth-file identity --out app.tar          with an identity";

const SUBTREE_IMPORT_EXAMPLES: &str = "\
The file is checked whole, and a plan is shown, before anything is written. Run it again after it stopped: it goes on.

Examples:
  corral import jsonl app.jsonl --dry-run                            the plan; write nothing
  corral import jsonl app.jsonl /copy --yes                          to another path, without a question
  corral import tar app.tar --delete --server 10.0.0.1:2181          and delete what the file does not hold";

const GET_EXAMPLES: &str = "\
The server needs admin.token_file, and the file given here holds one of its tokens.

Examples:
  corral snapshot get --token-file token --out backup            of the server of this host
  corral snapshot get 10.0.0.1:8080 --token-file token --out backup
  corral import zookeeper backup --data-dir data                 make a data directory of it";

const BACKUP_EXAMPLES: &str = "\
A backup holds the state of one zxid: znodes, sessions, ephemerals, ACLs and quotas. A running server of any role
sends it to the holder of a token, and serves meanwhile.

Examples:
  corral backup --token-file token --out backups/                of the server of this host
  corral backup 10.0.0.1:8080 --token-file token --out - | ssh store 'cat > corral.zst'
  corral backup --data-dir data --out data.zst                   of a stopped server
  corral backup --token-file token --out s3://bucket/corral.zst       to an object store, by AWS_* of the environment
  corral backup --token-file token --out backups/ --encrypt age1...   for the holder of the key of age-keygen";

const ARCHIVE_EXAMPLES: &str = "\
An archive has backups, and all log entries between and behind them.
`corral restore` makes a data directory of any moment.
Started again, the command goes on where the archive ends.

Examples:
  corral archive --token-file token --to /mnt/archive            of the server of this host
  corral archive 10.0.0.1:8080 --token-file token --to s3://bucket/corral --encrypt age1...
  corral archive --token-file token --to /mnt/archive --once     what there is now, for cron
  corral restore /mnt/archive --to-time 2026-11-24T02:49 --dry-run";

const CLI_EXAMPLES: &str = "\
On a terminal Tab completes verbs, options and paths. `help` lists the verbs, and `help VERB` explains one.
zkCli's options before the verb are known too: -server, -timeout, -r, -waitforconnection.

Examples:
  corral cli                                            a shell at 127.0.0.1:2181
  corral cli --server a:2181,b:2181/app ls -s /         one command, with a chroot
  corral cli --output json get /app                     for a script
  echo 'create /app text' | corral cli                  commands from a pipe";

const RESTORE_EXAMPLES: &str = "\
Stop all servers of the ensemble first. Restore on one of them, and empty the data directories of the others.

Examples:
  corral restore backup.zst --dry-run                            check it, and say what it holds
  corral restore backup.zst --data-dir data                      then: corral serve --data-dir data
  corral restore backup.zst --config corral.toml                 the first server of an ensemble
  corral restore /mnt/archive --to-zxid 0x500000a1c --data-dir data   one moment of an archive
  corral restore backup.zst.age --identity key --data-dir data   an encrypted one";

const VERIFY_EXAMPLES: &str = "\
Examples:
  corral verify backup.zst                              a backup
  corral verify backup.zst.age --identity key           an encrypted one
  corral verify /mnt/archive                            an archive
  corral verify /mnt/archive --max-age 3600             and its last moment is of the last hour
  corral verify data                                    a data directory, also beside its server";

const INSPECT_EXAMPLES: &str = "\
Examples:
  corral snapshot inspect data                          all snapshots of a data directory
  corral snapshot inspect data --json | jq .znodes      counts and checksums for a script
  corral snapshot inspect data/image-0000000100000005-0000000000000007.img";

const DIFF_EXAMPLES: &str = "\
Of a data directory the newest snapshot is compared, not the log behind it.

Examples:
  corral snapshot diff monday.zst tuesday.zst           what a day changed
  corral snapshot diff monday.zst data --data-only      without versions, zxids, times and sessions
  corral snapshot diff a.zst b.zst --json | jq -r '.path // empty'";

const DUMP_EXAMPLES: &str = "\
Examples:
  corral log dump data | tail -1                        whether the log is whole, and where it ends
  corral log dump data | grep ' delete /config'         the sessions that deleted these znodes
  corral log dump data --path /config --since 2026-11-24T02:00
  corral log dump data --session 0x100000300000729      what one client asked for
  corral log dump /mnt/archive --path /config           the same of an archive
  corral log dump data --json | jq 'select(.kind == \"operation\")'";

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
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(serve::Arguments),
    /// Print the effective configuration, where each value came from, and the plan of cores; change nothing
    #[command(after_help = CHECK_CONFIG_EXAMPLES)]
    CheckConfig(check_config::Arguments),
    /// Ask a running server for its health; print one line
    #[command(after_help = HEALTH_EXAMPLES)]
    Health(health::Arguments),
    /// Examine servers, data directories and this host, and name for each finding the command to run
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(doctor::Arguments),
    /// A shell for the znodes of running servers, with the verbs of zkCli.sh
    #[command(after_help = CLI_EXAMPLES)]
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
    #[command(subcommand)]
    Barrier(Box<recipes::barrier::Command>),
    /// Add items to a queue, and take each once
    #[command(subcommand)]
    Queue(Box<recipes::queue::Command>),
    /// Print and change a whole number
    #[command(after_help = COUNTER)]
    Counter(Box<recipes::counter::Arguments>),
    /// Join a group, and list or watch its members
    #[command(subcommand)]
    Group(Box<recipes::group::Command>),
    /// Print, set and watch the value of a znode
    #[command(subcommand)]
    Kv(Box<recipes::kv::Command>),
    /// Commit or abort a transaction together with other sites
    #[command(name = "2pc", subcommand)]
    TwoPhase(Box<recipes::two_phase::Command>),
    /// The beginning of a recipe's command
    #[command(hide = true)]
    RunBelow(recipes::child::Arguments),
    /// Show the clients and paths that load a running server most
    #[command(after_help = TOP_EXAMPLES)]
    Top(top::Arguments),
    /// Make a new data directory from the files of ZooKeeper, or write a subtree into a running server
    #[command(subcommand)]
    Import(ImportCommand),
    /// Write the data of a stopped server for ZooKeeper, or a subtree of a running server into a file
    #[command(subcommand)]
    Export(ExportCommand),
    /// Write the state of a running or stopped server into one compressed file
    #[command(after_help = BACKUP_EXAMPLES)]
    Backup(Box<backup::Arguments>),
    /// Ship everything that a running server commits into an archive, until it is stopped
    #[command(after_help = ARCHIVE_EXAMPLES)]
    Archive(Box<archive::Arguments>),
    /// Make a new data directory from a backup, or from any moment of an archive
    #[command(after_help = RESTORE_EXAMPLES)]
    Restore(restore::Arguments),
    /// Read a backup, an archive or a data directory, and check everything in it
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(verify::Arguments),
    /// Inspect snapshots
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// Inspect the log
    #[command(subcommand)]
    Log(LogCommand),
    /// Make one stopped server the only voter with its data, when a majority of the servers is lost permanently
    #[command(after_help = RESCUE_EXAMPLES)]
    Rescue(rescue::Arguments),
    /// Put a load on a server, this one or another, and measure it
    Bench(Box<bench::Arguments>),
    /// Print every operation of the wire protocol and how this server differs, in Markdown
    #[command(after_help = "Examples:\n  corral protocol > protocol.md")]
    Protocol,
    /// Print the version
    Version,
}

#[derive(Subcommand)]
enum ImportCommand {
    /// Read the snapshots and logs of a stopped ZooKeeper server, of versions 3.4 to 3.9
    #[command(name = "zookeeper", after_help = IMPORT_EXAMPLES)]
    ZooKeeper(import::Arguments),
    /// Write the subtree in a JSON document into a running server
    #[command(after_help = SUBTREE_IMPORT_EXAMPLES)]
    Json(subtree::import::Arguments),
    /// Write the subtree in a file of JSON lines into a running server
    #[command(after_help = SUBTREE_IMPORT_EXAMPLES)]
    Jsonl(subtree::import::Arguments),
    /// Write the subtree in a tar file into a running server
    #[command(after_help = SUBTREE_IMPORT_EXAMPLES)]
    Tar(subtree::import::Arguments),
}

#[derive(Subcommand)]
enum ExportCommand {
    /// Write a snapshot that ZooKeeper 3.6 to 3.9 starts from, of a stopped server
    #[command(name = "zookeeper", after_help = EXPORT_EXAMPLES)]
    ZooKeeper(export::Arguments),
    /// Write a subtree of a running server as one JSON document
    #[command(after_help = SUBTREE_EXPORT_EXAMPLES)]
    Json(subtree::export::Arguments),
    /// Write a subtree of a running server as JSON lines, one for each znode
    #[command(after_help = SUBTREE_EXPORT_EXAMPLES)]
    Jsonl(subtree::export::Arguments),
    /// Write a subtree of a running server as a tar file, a directory for each znode
    #[command(after_help = SUBTREE_EXPORT_EXAMPLES)]
    Tar(subtree::export::Arguments),
}

#[derive(Subcommand)]
enum SnapshotCommand {
    /// Check a snapshot file, or all of a data directory, and print header, sections and checksums
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(snapshot::Arguments),
    /// Print the difference between two states, and end with 1 if there is one
    #[command(after_help = DIFF_EXAMPLES)]
    Diff(snapshot_diff::Arguments),
    /// Take the present state of a running server, as a snapshot that ZooKeeper and `corral import` read
    #[command(after_help = GET_EXAMPLES)]
    Get(snapshot_get::Arguments),
}

#[derive(Subcommand)]
enum LogCommand {
    /// Print every record of a log directory, below each entry the operations asked for, and where the log ends
    #[command(after_help = DUMP_EXAMPLES)]
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
    let command = Arguments::command().after_help(format!("{EXAMPLES}\n{}", exit::help_text()));
    let given = shell::respelled(std::env::args_os().collect());
    let matches = command.try_get_matches_from(given).unwrap_or_else(|error| error.exit());
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
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
        Command::RunBelow(arguments) => return recipes::child::run(&arguments),
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
