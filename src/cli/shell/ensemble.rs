//! ZooKeeper's verbs for the session's identities and the ensemble.

use std::fs;

use serde_json::{Value, json};

use crate::cli::shell::paths::{refused, usage};
use crate::cli::shell::screen::{stat_json, stat_text};
use crate::cli::shell::znodes::Call;
use crate::exit::Fault;

/// Begins each line of a member.
const SERVER: &str = "server.";
const VERSION: &str = "version=";

pub(super) async fn add_auth(call: &Call<'_>) -> Result<(), Fault> {
    let (scheme, credentials) = (call.path(), call.words.at(1).map(str::as_bytes));
    call.client.authenticate(scheme, credentials).await.map_err(|error| refused(&error, ""))
}

pub(super) async fn who_am_i(call: &Call<'_>) -> Result<(), Fault> {
    let found = call.client.who_am_i().await.map_err(|error| refused(&error, ""))?;
    let text = || {
        let lines = found.iter().map(|(scheme, user)| format!("{scheme}: {user}\n"));
        format!("Auth scheme: User\n{}", lines.collect::<String>())
    };
    let entry = |(scheme, user): &(String, String)| json!({"scheme": scheme, "user": user});
    call.screen.show(text, || found.iter().map(entry).collect::<Value>());
    Ok(())
}

pub(super) async fn config(call: &Call<'_>) -> Result<(), Fault> {
    let watcher = call.words.has("w").then_some(call.watcher);
    let (data, stat) = call.client.get_config(watcher).await.map_err(|error| refused(&error, ""))?;
    let config = String::from_utf8_lossy(data.as_deref().unwrap_or(b"null")).into_owned();
    let text = || {
        let shown = if call.words.has("c") { addresses(&config) } else { config.clone() };
        format!("{shown}\n{}", if call.words.has("s") { stat_text(&stat) } else { String::new() })
    };
    call.screen.show(text, || json!({"config": config, "clients": addresses(&config), "stat": stat_json(&stat)}));
    Ok(())
}

/// The version and the client addresses of a config, as `ConfigUtils.getClientConfigStr`.
fn addresses(config: &str) -> String {
    let client = |line: &str| {
        let address = line.strip_prefix(SERVER)?.split_once('=')?.1.split_once(';')?.1.trim();
        Some(if address.contains(':') { address.to_owned() } else { format!("0.0.0.0:{address}") })
    };
    let version = config.lines().find_map(|line| line.strip_prefix(VERSION)).unwrap_or_default();
    format!("{version} {}", config.lines().filter_map(client).collect::<Vec<String>>().join(","))
}

pub(super) async fn reconfig(call: &Call<'_>) -> Result<(), Fault> {
    let words = call.words;
    let (joining, leaving, file) = (words.value("add"), words.value("remove"), words.value("file"));
    let members = words.value("members");
    let not_hexadecimal = |_| usage("-v must be followed by a long (configuration version)");
    let version = words.value("v").map(|text| i64::from_str_radix(text, 16).map_err(not_hexadecimal)).transpose()?;
    if (file.is_some() || members.is_some()) && (joining.is_some() || leaving.is_some()) {
        return Err(usage(
            "Can't use -file or -members together with -add or -remove (mixing incremental and non-incremental modes is not allowed)",
        ));
    }
    if file.is_some() && members.is_some() {
        return Err(usage("Can't use -file and -members together (conflicting non-incremental modes)"));
    }
    let unreadable = |name: &str, error: std::io::Error| usage(&format!("Error processing {name}: {error}"));
    let read = |name: &str| {
        let text = fs::read_to_string(name).map_err(|error| unreadable(name, error))?;
        let lines = text.lines().map(str::trim).filter(|line| line.starts_with(SERVER));
        Ok::<String, Fault>(lines.collect::<Vec<&str>>().join(","))
    };
    let members = file.map(read).transpose()?.or_else(|| members.map(str::to_lowercase));
    let (joining, leaving) = (joining.map(str::to_lowercase), leaving.map(str::to_lowercase));
    let done = call.client.reconfig(joining.as_deref(), leaving.as_deref(), members.as_deref(), version).await;
    let (data, stat) = done.map_err(|error| refused(&error, ""))?;
    let config = String::from_utf8_lossy(data.as_deref().unwrap_or_default()).into_owned();
    let text = || {
        let with_stat = if words.has("s") { stat_text(&stat) } else { String::new() };
        format!("Committed new configuration:\n{config}\n{with_stat}")
    };
    call.screen.show(text, || json!({"config": config, "stat": stat_json(&stat)}));
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn client_addresses_of_a_config() {
        let config = "server.1=10.0.0.1:2888:3888:participant;10.0.0.1:2181\nserver.2=b:2888:3888:observer;2182\nversion=500000007";
        assert_eq!(super::addresses(config), "500000007 10.0.0.1:2181,0.0.0.0:2182");
        assert_eq!(super::addresses("null"), " ");
    }
}
