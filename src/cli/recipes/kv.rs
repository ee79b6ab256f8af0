//! `corral kv`: values by path, for scripts.

use std::ffi::OsString;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use corral_client::{CreateMode, Error, ErrorCode, Stat, Write, watcher};
use serde_json::{Value, json};

use crate::cli::client::{Connection, failed};
use crate::cli::output::{in_session_runtime, note, print};
use crate::cli::recipes::child::Child;
use crate::cli::recipes::examples::{KV_GET, KV_SET, KV_WATCH};
use crate::cli::recipes::item::{read_all, show, write};
use crate::cli::recipes::session::{self, Current, Session, creation, renewed, run_on, stopped};
use crate::cli::signals::Stops;
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
    /// Print a value, and the newest one after each change, or give them to a command
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
    /// The value. Without it standard input is read, and the end of its last line belongs to the value
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
    /// Gets the value as standard input, and CORRAL_ZXID. Values that come while it runs are left out, but for the last one
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
                    (true, _) => write(value).await,
                    (_, true) => print(&format!("{}\n", record(path, Some((&value, &stat))))),
                    _ => show(value).await,
                }
            })
        }
        Command::Set(Set { connection, path, value, version }) => {
            session::run(connection, None, path, async |session, stops| {
                let set = async {
                    let value = match value {
                        Some(value) => value.clone().into_bytes(),
                        None => read_all().await?,
                    };
                    set(session, path, &value, *version).await
                };
                session.within(stops, set).await
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
        let write = match known {
            Some(_) => Write::SetData { path, data: Some(value), version: known },
            None => Write::Create { path, creation: creation(Some(value), CreateMode::Persistent) },
        };
        let is_done = async || match session.retry(|client| client.get_data(path, None)).await {
            Ok((data, _)) if data.as_deref() == Some(value) => Ok(true),
            Ok((_, stat)) if Some(stat.version) == known => Ok(false),
            Err(Error { code: ErrorCode::NoNode, .. }) if known.is_none() => Ok(false),
            Err(error) if error.code != ErrorCode::NoNode => Err(error),
            Ok(_) | Err(_) => Err(Error::new(ErrorCode::ConnectionLoss, "another process changed the znode since")),
        };
        match session.once(&[write], is_done).await {
            Ok(()) => return Ok(()),
            Err(Error { code: ErrorCode::NoNode, .. }) if known.is_none() => session.make_parent(path).await?,
            Err(Error { code: ErrorCode::BadVersion | ErrorCode::NodeExists | ErrorCode::NoNode, .. })
                if version.is_none() => {}
            Err(error) => return Err(fault(error)),
        }
    }
}

fn watch(arguments: &Watch) -> Result<u8, Fault> {
    let Watch { connection, path, json, command } = arguments;
    if command.is_empty() {
        let mut shown = None;
        return run_on(connection, path, async |session| {
            follow(session, path, &mut shown, async |found| match found {
                found if *json => {
                    let found = found.as_ref().map(|(value, stat)| (value.as_slice(), stat));
                    show(record(path, found).to_string().into_bytes()).await
                }
                Some((value, _)) => show(value).await,
                None => missing(path),
            })
            .await
        });
    }
    session::check(path)?;
    in_session_runtime(async {
        let (mut stops, current, mut shown) = (Stops::new()?, Current::default(), None);
        let (newest, mut values) = tokio::sync::watch::channel(None);
        let result = {
            let followed = renewed(connection, &current, async |session| {
                follow(session, path, &mut shown, async |found| match found {
                    Some(found) => {
                        newest.send_replace(Some(found));
                        Ok(())
                    }
                    None => missing(path),
                })
                .await
            });
            tokio::select! {
                biased;
                result = followed => result.map(|()| ExitCode::Ok.number()),
                result = run_each(&mut stops, path, command, &mut values) => result,
            }
        };
        current.close().await;
        result
    })
}

type Found = (Vec<u8>, Stat);

fn missing(path: &str) -> Result<(), Fault> {
    note(&format!("{path}: no such znode"));
    Ok(())
}

/// Gives the value and each change of it to `take`. `shown` is the zxid of the last one.
async fn follow(
    session: &Session,
    path: &str,
    shown: &mut Option<Option<i64>>,
    mut take: impl AsyncFnMut(Option<Found>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    loop {
        let (watcher, mut events) = watcher();
        let found = session.watched(path, &watcher, |client| client.get_data(path, Some(&watcher))).await;
        let found = found.map_err(|error| failed(path, &error))?.map(|(value, stat)| (value.unwrap_or_default(), stat));
        let zxid = found.as_ref().map(|(_, stat)| stat.mzxid);
        if *shown != Some(zxid) {
            *shown = Some(zxid);
            take(found).await?;
        }
        events.next().await;
    }
}

/// Runs the command for the newest value, again and again. A signal goes to it, and ends this after it.
async fn run_each(
    stops: &mut Stops,
    path: &str,
    command: &[OsString],
    values: &mut tokio::sync::watch::Receiver<Option<Found>>,
) -> Result<u8, Fault> {
    loop {
        let next = async { values.changed().await.map_err(|_| Fault::new(ExitCode::SessionLost, "no session")) };
        tokio::select! {
            biased;
            changed = next => changed?,
            signal = stops.next() => return stopped(signal),
        }
        let Some((value, stat)) = values.borrow_and_update().clone() else { continue };
        let zxid = format!("{:#x}", stat.mzxid);
        let mut child = Child::start(command, &[("CORRAL_PATH", path), ("CORRAL_ZXID", &zxid)], Some(value))?;
        let mut last = None;
        let code = loop {
            tokio::select! {
                biased;
                code = child.wait() => break code?,
                signal = stops.next() => {
                    child.forward(signal);
                    last = Some(signal);
                }
            }
        };
        if let Some(signal) = last {
            return stopped(signal);
        }
        if code != ExitCode::Ok.number() {
            note(&format!("{path}: the command ended with {code}"));
        }
    }
}
