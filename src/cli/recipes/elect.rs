//! `corral elect`: runs a command while this process leads, or shows the leader.

use std::ffi::OsString;

use clap::Args;
use corral_client::{Error, ErrorCode, watcher};
use corral_core::path;
use serde_json::json;

use crate::cli::client::{Connection, failed};
use crate::cli::output::plain;
use crate::cli::recipes::child::Holding;
use crate::cli::recipes::contenders::{Role, first};
use crate::cli::recipes::item::write;
use crate::cli::recipes::lock::protect;
use crate::cli::recipes::session::{Session, run_on};
use crate::exit::Fault;

/// Arguments of `corral elect`.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    connection: Connection,
    /// The election
    path: String,
    /// Do not take part. Print a line for the leader and each later one
    #[arg(long, conflicts_with_all = ["command", "timeout", "id", "on_lost"])]
    observe: bool,
    /// Print the present leader, and end
    #[arg(long, requires = "observe")]
    once: bool,
    /// Print JSON lines instead of text
    #[arg(long, requires = "observe")]
    json: bool,
    #[command(flatten)]
    holding: Holding,
    /// The command to run as leader
    #[arg(value_name = "COMMAND", required_unless_present = "observe", last = true)]
    command: Vec<OsString>,
}

/// Runs the command when this process leads, and gives its exit code.
///
/// # Errors
/// If the servers cannot be asked, or the leadership is lost while the command runs.
pub(crate) fn run(arguments: &Arguments) -> Result<u8, Fault> {
    let Arguments { connection, path, holding, command, .. } = arguments;
    if !arguments.observe {
        return protect(connection, path, Role::Candidate, holding, command);
    }
    let mut shown = None;
    run_on(connection, path, async |session| {
        loop {
            let (leader, changed) = leader(session, path).await?;
            if shown.as_ref() != Some(&leader) {
                write(line(leader.as_ref(), arguments.json).into_bytes()).await?;
                shown = Some(leader);
            }
            if arguments.once {
                return Ok(());
            }
            changed.await;
        }
    })
}

/// Name and fencing token.
type Leader = (String, i64);

fn line(leader: Option<&Leader>, as_json: bool) -> String {
    match leader {
        Some((id, token)) if as_json => format!("{}\n", json!({"leader": id, "token": token})),
        None if as_json => format!("{}\n", json!({"leader": null})),
        Some((id, token)) => format!("leader {} token {token}\n", plain(id)),
        None => "no leader\n".to_owned(),
    }
}

/// The leader, and when to look again.
async fn leader(session: &Session, path: &str) -> Result<(Option<Leader>, impl Future<Output = ()>), Fault> {
    let (watcher, mut events) = watcher();
    let fault = |error: Error| failed(path, &error);
    let leader = loop {
        let listed = session.watched(path, &watcher, |client| client.get_children(path, None)).await;
        let Some((names, _)) = listed.map_err(fault)? else { break None };
        if let Some(name) = first(&names) {
            let znode = path::child(path, name);
            match session.retry(|client| client.get_data(&znode, Some(&watcher))).await {
                Ok((id, stat)) => {
                    break Some((String::from_utf8_lossy(&id.unwrap_or_default()).into_owned(), stat.czxid));
                }
                Err(Error { code: ErrorCode::NoNode, .. }) => continue,
                Err(error) => return Err(failed(&znode, &error)),
            }
        }
        match session.retry(|client| client.get_children(path, Some(&watcher))).await {
            Ok((names, _)) if first(&names).is_none() => break None,
            Ok(_) | Err(Error { code: ErrorCode::NoNode, .. }) => {}
            Err(error) => return Err(fault(error)),
        }
    };
    Ok((leader, async move {
        events.next().await;
        drop(watcher);
    }))
}
