//! `corral doctor`: examines servers, data directories and this host, and prints findings with a command for each.
//!
//! The main thread, and a thread for each server that is asked. Facts become findings in pure functions of the files below.

mod clock;
mod directory;
mod ensemble;
mod files;
mod host;
mod pages;
mod report;
mod server;
mod sync;

use std::path::{Path, PathBuf};
use std::thread;

use clap::Args;

use self::report::{Fact, Finding, Section};
use self::server::Server;
use crate::cli::http::{Connect, LOCAL, NOT_REACHED};
use crate::cli::output;
use crate::config::Config;
use crate::config::value::OnClientAddr;
use crate::exit::{ExitCode, Fault};
use crate::net::tls::unix_time;

/// Servers that are asked at once.
const ASKED_AT_ONCE: usize = 16;

/// Arguments of `corral doctor`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// A data directory, or a server's admin address: HOST, HOST:PORT, or https://HOST:PORT [default: the server of this host]
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// Configuration file: examine this host for its server, with the directories, keys and certificates that it names
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: Connect,
}

/// Prints facts and findings. Gives the exit code.
///
/// # Errors
/// If no thread can be started, or standard output cannot be written.
pub(crate) fn run(arguments: &Arguments) -> Result<u8, Fault> {
    let (directories, mut servers): (Vec<String>, Vec<String>) =
        arguments.targets.iter().cloned().partition(|target| Path::new(target).exists());
    let mut directories: Vec<PathBuf> = directories.into_iter().map(PathBuf::from).collect();
    let host = arguments.config.as_deref().map(host::examine);
    let config = host.as_ref().and_then(|(_, config)| config.as_ref());
    if arguments.targets.is_empty() {
        servers.extend(config.map_or_else(|| Some(LOCAL.to_owned()), admin_address));
    }
    for path in config.into_iter().flat_map(|config| [&config.server.data_dir, &config.server.log_dir]) {
        if !directories.contains(path) {
            directories.push(path.clone());
        }
    }
    let mut sections = examine_servers(&servers, &arguments.connect)?;
    sections.extend(host.map(|(section, _)| section));
    sections.extend(directories.iter().map(|path| examine_directory(path)));
    if arguments.json {
        output::print(&format!("{:#}\n", report::document(&sections)))?;
    } else {
        output::print(&report::text(&sections))?;
    }
    Ok(report::exit_code(&sections))
}

/// Of the server with this configuration, if it has one.
fn admin_address(config: &Config) -> Option<String> {
    let admin = &config.admin;
    let scheme = if admin.tls == OnClientAddr::Only { "https://" } else { "" };
    admin.enabled.then(|| format!("{scheme}{}", admin.http_addr))
}

/// A section for each server, and one for all together.
fn examine_servers(targets: &[String], connect: &Connect) -> Result<Vec<Section>, Fault> {
    let failed = |error: std::io::Error| Fault::new(ExitCode::Internal, format!("no thread can be started: {error}"));
    let mut answers = Vec::new();
    for targets in targets.chunks(ASKED_AT_ONCE) {
        let asked: std::io::Result<Vec<_>> = thread::scope(|scope| {
            let start =
                targets.iter().map(|target| thread::Builder::new().spawn_scoped(scope, || ask(target, connect)));
            let threads = start.collect::<std::io::Result<Vec<_>>>()?;
            Ok(threads.into_iter().map(|thread| thread.join().expect("a panic ends the process")).collect())
        });
        answers.extend(asked.map_err(failed)?);
    }
    let mut sections: Vec<Section> =
        targets.iter().zip(&answers).map(|(target, answer)| of_server(target, answer)).collect();
    let unreached = answers.iter().filter(|answer| answer.is_err()).count();
    let servers: Vec<Server> = answers.into_iter().flatten().collect();
    if servers.len() > 1 || servers.iter().any(|server| server.id.is_some()) {
        sections.push(Section {
            kind: "servers",
            target: "all servers".to_owned(),
            is_examined: true,
            facts: ensemble::facts(&servers),
            findings: ensemble::findings(&servers, unreached),
        });
    }
    Ok(sections)
}

/// The server, or the finding that nothing is known of it.
fn ask(target: &str, connect: &Connect) -> Result<Server, Finding> {
    let unusable = |fault: Fault| Finding::critical("target", fault.sentence, "corral doctor --help");
    let (address, answers) = connect.ask(target, &server::PATHS).map_err(unusable)?;
    let server = answers.and_then(|answers| Server::of(address, &answers, unix_time()));
    server.map_err(|reason| {
        let is_down = [NOT_REACHED, "no answer within"].iter().any(|begin| reason.starts_with(begin));
        let cause = reason.split("; start the server").next().unwrap_or_default();
        Finding::critical("reached", cause, if is_down { pages::ENDED } else { pages::LISTENS })
    })
}

fn of_server(target: &str, answer: &Result<Server, Finding>) -> Section {
    let (facts, findings) = match answer {
        Ok(server) => (server.facts(), server.findings()),
        Err(finding) => (vec![Fact::new("answer", "none", None::<u64>)], vec![finding.clone()]),
    };
    Section { kind: "server", target: target.to_owned(), is_examined: answer.is_ok(), facts, findings }
}

fn examine_directory(path: &Path) -> Section {
    let target = path.display().to_string();
    let (is_examined, facts, findings) = match files::read(path) {
        Ok(Some(found)) => (true, directory::facts(&found), directory::findings(&found)),
        Ok(None) => (true, vec![Fact::new("data", "none yet", None::<u64>)], Vec::new()),
        Err(fault) => (false, Vec::new(), vec![unusable(&target, &fault)]),
    };
    Section { kind: "directory", target, is_examined, facts, findings }
}

fn unusable(target: &str, fault: &Fault) -> Finding {
    let cause = fault.sentence.strip_prefix(&format!("{target}: ")).unwrap_or(&fault.sentence);
    let (cause, advice) = match cause.rsplit_once("; ") {
        Some(parts) if fault.code == ExitCode::DataDirForeign => parts,
        _ => (cause, "run this command as the user of the server"),
    };
    Finding::critical("directory", cause, advice)
}
