//! `corral kv`: values by path, for scripts.

use std::ffi::OsString;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use corral_client::{CreateMode, Error, ErrorCode, Stat, watcher};
use corral_core::path;
use serde_json::{Value, json};

use crate::cli::client::{Connection, failed};
use crate::cli::output::print;
use crate::cli::recipes::child::Child;
use crate::cli::recipes::examples::{KV_GET, KV_SET, KV_WATCH};
use crate::cli::recipes::item::{read_all, show, write};
use crate::cli::recipes::session::{self, Session, creation, note, run_on};
use crate::exit::{ExitCode, Fault};

/// Sub-commands of `corral kv`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Print a value
    #[command(after_help = KV_GET)]
    Get(Get),
    /// Set a value, and create its znode and those above it if they are missing
    #[command(after_help = KV_SET)]
    Set(Set),
    /// Print a value and each later one, or give them to a command
    #[command(after_help = KV_WATCH)]
    Watch(Watch),
}

/// Arguments of `corral kv get`.
#[derive(Args)]
pub(crate) struct Get {
    #[command(flatten)]
    connection: Connection,
    /// The znode
    path: String,
    /// Print the value as it is, without a line end behind it
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    /// Print JSON with version and zxid
    #[arg(long)]
    json: bool,
}

/// Arguments of `corral kv set`.
#[derive(Args)]
pub(crate) struct Set {
    #[command(flatten)]
    connection: Connection,
    /// The znode
    path: String,
    /// The value. Without it standard input is read
    value: Option<String>,
    /// Only if the znode has this version, else end with 17
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(i32).range(0..))]
    version: Option<i32>,
}

/// Arguments of `corral kv watch`.
#[derive(Args)]
pub(crate) struct Watch {
    #[command(flatten)]
    connection: Connection,
    /// The znode
    path: String,
    /// Print JSON lines with version and zxid
    #[arg(long)]
    json: bool,
    /// Gets each value as standard input. CORRAL_EVENT says whether the znode is `present` or `missing`
    #[arg(value_name = "COMMAND", last = true, conflicts_with = "json")]
    command: Vec<OsString>,
}

/// Runs the sub-command.
///
/// # Errors
/// If the servers cannot be asked, or the znode does not exist or has another version.
pub(crate) fn run(command: &Command) -> Result<u8, Fault> {
    let done = match command {
        Command::Watch(arguments) => return watch(arguments),
        Command::Get(Get { connection, path, raw, json }) => {
            session::run(connection, None, path, async |session, stops| {
                let get = async {
                    let got = session.retry(|client| client.get_data(path, None)).await;
                    got.map_err(|error| failed(path, &error))
                };
                let (value, stat) = session.within(stops, get).await?;
                let value = value.unwrap_or_default();
                match (raw, json) {
                    (true, _) => write(&value),
                    (_, true) => print(&format!("{}\n", record(path, Some((&value, &stat))))),
                    _ => show(&value),
                }
            })
        }
        Command::Set(Set { connection, path, value, version }) => {
            session::run(connection, None, path, async |session, stops| {
                let value = value.clone().map_or_else(read_all, |value| Ok(value.into_bytes()))?;
                session.within(stops, set(session, path, &value, *version)).await
            })
        }
    };
    done.map(|()| ExitCode::Ok.number())
}

fn record(path: &str, found: Option<(&[u8], &Stat)>) -> Value {
    let Some((value, stat)) = found else { return json!({"path": path, "value": null}) };
    let zxid = format!("{:#x}", stat.mzxid);
    match std::str::from_utf8(value) {
        Ok(text) => json!({"path": path, "value": text, "version": stat.version, "zxid": zxid}),
        Err(_) => json!({"path": path, "base64": STANDARD.encode(value), "version": stat.version, "zxid": zxid}),
    }
}

/// Sets the value once. After a lost connection the znode is read: its value or its version tells what happened.
async fn set(session: &Session, path: &str, value: &[u8], version: Option<i32>) -> Result<(), Fault> {
    let fault = |error: Error| failed(path, &error);
    loop {
        let before = session.stat(path).await.map_err(fault)?;
        let known = match (before.as_ref(), version) {
            (Some(_), Some(version)) => Some(version),
            (Some(stat), None) => Some(stat.version),
            (None, Some(_)) => return Err(fault(ErrorCode::NoNode.into())),
            (None, None) => None,
        };
        let done = match known {
            Some(version) => session.client.set_data(path, Some(value), Some(version)).await.map(drop),
            None => {
                let creation = creation(Some(value), CreateMode::Persistent);
                session.client.create(path, &creation).await.map(drop)
            }
        };
        match done {
            Ok(()) => return Ok(()),
            Err(Error { code: ErrorCode::NoNode, .. }) if path::has_parent(path) && known.is_none() => {
                session.make(path::parent(path)).await?;
            }
            Err(Error { code: ErrorCode::BadVersion | ErrorCode::NodeExists | ErrorCode::NoNode, .. })
                if version.is_none() => {}
            Err(error) if session::is_of_connection(&error) => {
                session.retry(|client| client.sync(path)).await.map_err(fault)?;
                match session.retry(|client| client.get_data(path, None)).await {
                    Ok((data, _)) if data.as_deref() == Some(value) => return Ok(()),
                    Ok((_, stat)) if Some(stat.version) == known => {}
                    Err(Error { code: ErrorCode::NoNode, .. }) if known.is_none() => {}
                    Err(error) if error.code != ErrorCode::NoNode => return Err(fault(error)),
                    Ok(_) | Err(_) => {
                        let sentence = format!(
                            "{path}: the connection was lost, and another process changed the znode since; read it"
                        );
                        return Err(Fault::new(ExitCode::SessionLost, sentence));
                    }
                }
            }
            Err(error) => return Err(fault(error)),
        }
    }
}

fn watch(arguments: &Watch) -> Result<u8, Fault> {
    let Watch { connection, path, json, command } = arguments;
    let mut shown = None;
    run_on(connection, path, async |session| {
        loop {
            let (watcher, mut events) = watcher();
            let found = match session.retry(|client| client.get_data(path, Some(&watcher))).await {
                Ok((value, stat)) => Some((value.unwrap_or_default(), stat)),
                Err(Error { code: ErrorCode::NoNode, .. }) => {
                    let stat = session.retry(|client| client.exists(path, Some(&watcher))).await;
                    if stat.map_err(|error| failed(path, &error))?.is_some() {
                        continue;
                    }
                    None
                }
                Err(error) => return Err(failed(path, &error)),
            };
            let zxid = found.as_ref().map(|(_, stat)| stat.mzxid);
            if shown != Some(zxid) {
                shown = Some(zxid);
                match &found {
                    found if *json => {
                        let found = found.as_ref().map(|(value, stat)| (value.as_slice(), stat));
                        print(&format!("{}\n", record(path, found)))?;
                    }
                    found if !command.is_empty() => execute(command, path, found.as_ref()).await?,
                    Some((value, _)) => show(value)?,
                    None => note(&format!("{path}: no such znode")),
                }
            }
            events.next().await;
        }
    })
}

async fn execute(command: &[OsString], path: &str, found: Option<&(Vec<u8>, Stat)>) -> Result<(), Fault> {
    let zxid = found.map(|(_, stat)| format!("{:#x}", stat.mzxid)).unwrap_or_default();
    let event = if found.is_some() { "present" } else { "missing" };
    let environment = [("CORRAL_PATH", path), ("CORRAL_EVENT", event), ("CORRAL_ZXID", &zxid)];
    let input = found.map(|(value, _)| value.clone()).unwrap_or_default();
    let code = Child::start(command, &environment, Some(input))?.wait().await?;
    if code != ExitCode::Ok.number() {
        note(&format!("{path}: the command ended with {code}"));
    }
    Ok(())
}
