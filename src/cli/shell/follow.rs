//! The verb `watch`: a line for each change below a path, and perhaps a command.

use std::process::Stdio;

use corral_client::{AddWatchMode, Client, Event, EventType, Status, WatcherType, watcher};
use jiff::Timestamp;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::cli::shell::paths::{check, refused, usage};
use crate::cli::shell::znodes::Call;
use crate::cli::time::utc;
use crate::exit::{ExitCode, Fault};

/// A watch that is removed at the end, also if the command is interrupted.
struct Watch<'a> {
    client: &'a Client,
    path: &'a str,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        // The request is sent now. Without a server the session ends, and its watches with it.
        drop(self.client.remove_watches(self.path, WatcherType::PersistentRecursive, true));
    }
}

pub(super) async fn watch(call: &Call<'_>) -> Result<(), Fault> {
    let (path, client) = (call.path(), call.client);
    check(path)?;
    let wrong = |_| usage("-c must be a number from 0 on");
    let mut rest = call.words.value("c").map(|text| text.parse::<u64>().map_err(wrong)).transpose()?;
    let (watcher, mut events) = watcher();
    let added = client.add_watch(path, AddWatchMode::PersistentRecursive, &watcher).await;
    added.map_err(|error| refused(&error, path))?;
    let _watch = Watch { client, path };
    let mut status = client.status();
    status.mark_unchanged();
    let mut is_connected = true;
    call.screen.begin_list();
    while rest != Some(0) {
        call.screen.flush();
        tokio::select! {
            biased;
            Some(event) = events.next() => {
                if events.is_full() {
                    call.screen.error("more changes came than were shown: some are left out");
                }
                if take(call, &event).await? {
                    rest = rest.map(|rest| rest - 1);
                }
            }
            _ = status.changed() => match status.borrow_and_update().clone() {
                Status::Connected { .. } => {
                    is_connected = true;
                    call.screen.aside("connected again: changes meanwhile are not known");
                }
                Status::Disconnected { reason, .. } => {
                    if std::mem::take(&mut is_connected) {
                        call.screen.aside(&format!("not connected: {reason}"));
                    }
                }
                Status::Ended(error) => {
                    return Err(Fault::new(ExitCode::SessionLost, format!("the session has ended: {error}")));
                }
            },
        }
    }
    Ok(())
}

/// Shows a change, and runs the command for it. False for an event that is no change of a znode.
async fn take(call: &Call<'_>, event: &Event) -> Result<bool, Fault> {
    let Event { kind, path, zxid, .. } = event;
    let name = match kind {
        EventType::NodeCreated => "created",
        EventType::NodeDataChanged => "changed",
        EventType::NodeDeleted => "deleted",
        _ => return Ok(false),
    };
    let now = utc(Timestamp::now().as_millisecond());
    // A later change, or a znode that may not be read, leaves no data.
    let found = if *kind == EventType::NodeDeleted { None } else { call.client.get_data(path, None).await.ok() };
    let data = found.map(|(data, _)| data.unwrap_or_default());
    let size = data.as_ref().map(Vec::len);
    let text = || {
        let size = size.map_or_else(String::new, |size| format!(" {size} bytes"));
        format!("{now} {name} {}{size} zxid {zxid:#x}\n", call.screen.name(path))
    };
    let record = || {
        let zxid = format!("{zxid:#x}");
        json!({"time": now, "event": format!("{kind:?}"), "path": path, "zxid": zxid, "data_length": size})
    };
    call.screen.show(text, record);
    if let Some(script) = call.words.value("exec") {
        call.screen.flush();
        execute(call, script, event, &data.unwrap_or_default()).await?;
    }
    Ok(true)
}

/// Runs a command with the data as its standard input.
async fn execute(call: &Call<'_>, script: &str, event: &Event, data: &[u8]) -> Result<(), Fault> {
    let failed = |error| Fault::new(ExitCode::Internal, format!("sh -c {script:?}: {error}"));
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).stdin(Stdio::piped()).kill_on_drop(true);
    command.env("CORRAL_EVENT", format!("{:?}", event.kind)).env("CORRAL_PATH", &event.path);
    let mut child = command.env("CORRAL_ZXID", format!("{:#x}", event.zxid)).spawn().map_err(failed)?;
    let input = child.stdin.take();
    let feed = async {
        if let Some(mut input) = input {
            // A command need not read its input.
            let _ = input.write_all(data).await;
        }
    };
    let ended = tokio::select! {
        ended = child.wait() => ended,
        () = feed => child.wait().await,
    };
    let ended = ended.map_err(failed)?;
    if !ended.success() {
        call.screen.error(&format!("{}: sh -c {script:?} failed: {ended}", event.path));
    }
    Ok(())
}
