//! The verbs of quotas. The limits of a path are in znodes below `/zookeeper/quota`.

use std::collections::BTreeMap;

use corral_client::{Acl, Client, CreateMode, Creation, Error, ErrorCode};
use serde_json::json;

use crate::cli::shell::paths::{check, refused, usage};
use crate::cli::shell::znodes::Call;
use crate::exit::{ExitCode, Fault};

const QUOTAS: &str = "/zookeeper/quota";
const LIMITS: &str = "zookeeper_limits";
const STATS: &str = "zookeeper_stats";
const COUNT: &str = "count";
const BYTES: &str = "bytes";
const COUNT_HARD: &str = "countHardLimit";
const BYTES_HARD: &str = "byteHardLimit";
/// Options, and their limits.
const OPTIONS: [(&str, &str); 4] = [("n", COUNT), ("b", BYTES), ("N", COUNT_HARD), ("B", BYTES_HARD)];

/// Limits or use, as ZooKeeper's `StatsTrack`: `count=5,bytes=-1=;countHardLimit=7`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Track(BTreeMap<String, i64>);

impl Track {
    fn parse(data: Option<&[u8]>) -> Track {
        let text = String::from_utf8_lossy(data.unwrap_or_default()).into_owned();
        let pairs = text.split([',', ';']).filter_map(|pair| {
            let mut parts = pair.split('=');
            let (name, value) = (parts.next()?, parts.next()?);
            Some((name.to_owned(), value.parse().unwrap_or(-1)))
        });
        Track(pairs.collect())
    }

    fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(-1)
    }

    fn text(&self) -> String {
        let mut text = format!("{COUNT}={},{BYTES}={}", self.get(COUNT), self.get(BYTES));
        let others: Vec<String> = self
            .0
            .iter()
            .filter(|(name, _)| *name != COUNT && *name != BYTES)
            .map(|(name, value)| format!(";{name}={value}"))
            .collect();
        if !others.is_empty() {
            // Old servers read up to here.
            text.push('=');
        }
        text + &others.concat()
    }
}

/// `setquota`.
pub(super) async fn set(call: &Call<'_>) -> Result<(), Fault> {
    let (path, client) = (call.path(), call.client);
    if path.starts_with(QUOTAS) {
        return Err(usage(&format!("cannot set a quota under the path: {QUOTAS}")));
    }
    let mut wanted = Vec::new();
    for (option, name) in OPTIONS {
        let Some(value) = call.words.value(option) else { continue };
        let is_count = name == COUNT || name == COUNT_HARD;
        let parsed = if is_count { value.parse::<i32>().map(i64::from) } else { value.parse::<i64>() };
        let refusal = match parsed {
            Err(_) => "NumberFormatException happens when parsing the option value",
            Ok(value) if is_count && value <= 0 => "the num quota must be greater than zero",
            Ok(value) if value < 0 => "the bytes quota must be greater than or equal to zero",
            Ok(value) => {
                wanted.push((name, value));
                continue;
            }
        };
        return Err(usage(refusal));
    }
    check(path)?;
    let illegal = |sentence: String| Fault::new(ExitCode::NoZnode, sentence);
    client
        .exists(path, None)
        .await
        .map_err(|error| refused(&error, path))?
        .ok_or_else(|| illegal(format!("{path} does not exist.")))?;
    alone(client, path).await?;
    let base = format!("{QUOTAS}{path}");
    for (at, _) in base.match_indices('/').skip(1).chain([(base.len(), "")]) {
        create(client, &base[..at], None).await?;
    }
    let (limits, stats) = (format!("{base}/{LIMITS}"), format!("{base}/{STATS}"));
    let known = read(client, &limits).await?;
    let mut track = known.clone().unwrap_or_else(|| {
        let all = OPTIONS.iter().map(|(_, name)| ((*name).to_owned(), -1));
        Track(all.collect())
    });
    track.0.extend(wanted.into_iter().map(|(name, value)| (name.to_owned(), value)));
    if known.is_none() {
        create(client, &limits, Some(track.text())).await?;
        create(client, &stats, Some(Track(BTreeMap::from([(COUNT.into(), 0), (BYTES.into(), 0)])).text())).await?;
    }
    let used = read(client, &stats).await?.unwrap_or_default();
    for (name, hard, what) in [(COUNT, COUNT_HARD, "count"), (BYTES, BYTES_HARD, "bytes")] {
        let is_over = |limit: &str| (0..used.get(name)).contains(&track.get(limit));
        if is_over(name) || is_over(hard) {
            let (used, word) = (used.get(name), what);
            call.screen
                .note(&format!("[Warning]: the {word} quota you create is less than the existing {word}:{used}"));
        }
    }
    if known.is_some() {
        let text = track.text();
        client.set_data(&limits, Some(text.as_bytes()), None).await.map_err(|error| refused(&error, &limits))?;
    }
    Ok(())
}

/// Refuses a path that has a quota above or below it.
async fn alone(client: &Client, path: &str) -> Result<(), Fault> {
    let base = format!("{QUOTAS}{path}");
    check(&base)?;
    let illegal = |kind: &str, other: &str| {
        let other = &other[QUOTAS.len()..];
        Fault::new(ExitCode::Conflict, format!("{path} has a {kind} {other} which has a quota"))
    };
    let mut waiting = vec![base.trim_end_matches('/').to_owned()];
    while let Some(at) = waiting.pop() {
        let Some(children) = children(client, &at).await? else { continue };
        if at != base && children.iter().any(|name| name == LIMITS) {
            return Err(illegal("child", &at));
        }
        waiting.extend(
            children.iter().filter(|name| *name != LIMITS && *name != STATS).map(|name| format!("{at}/{name}")),
        );
    }
    for (at, _) in base.match_indices('/').skip(3) {
        let above = &base[..at];
        match children(client, above).await? {
            None => return Ok(()),
            Some(children) if children.iter().any(|name| name == LIMITS) => return Err(illegal("parent", above)),
            Some(_) => {}
        }
    }
    Ok(())
}

async fn children(client: &Client, path: &str) -> Result<Option<Vec<String>>, Fault> {
    match client.get_children(path, None).await {
        Ok((names, _)) => Ok(Some(names)),
        Err(Error { code: ErrorCode::NoNode, .. }) => Ok(None),
        Err(error) => Err(refused(&error, path)),
    }
}

async fn read(client: &Client, path: &str) -> Result<Option<Track>, Fault> {
    match client.get_data(path, None).await {
        Ok((data, _)) => Ok(Some(Track::parse(data.as_deref()))),
        Err(Error { code: ErrorCode::NoNode, .. }) => Ok(None),
        Err(error) => Err(refused(&error, path)),
    }
}

async fn create(client: &Client, path: &str, text: Option<String>) -> Result<(), Fault> {
    // Perhaps nothing may be created there.
    let known = client.exists(path, None).await.map_err(|error| refused(&error, path))?;
    if known.is_some() {
        return Ok(());
    }
    let (data, mode) = (text.as_ref().map(String::as_bytes), CreateMode::Persistent);
    let created = client.create(path, &Creation { data, acl: &[Acl::open()], mode, ttl_ms: 0 }).await;
    match created {
        Ok(_) | Err(Error { code: ErrorCode::NodeExists, .. }) => Ok(()),
        Err(error) => Err(refused(&error, path)),
    }
}

/// `listquota`.
pub(super) async fn list(call: &Call<'_>) -> Result<(), Fault> {
    let (path, client) = (call.path(), call.client);
    let base = format!("{QUOTAS}{path}");
    let limits = format!("{base}/{LIMITS}");
    call.screen.error(&format!("absolute path is {limits}"));
    check(&limits)?;
    let (quota, stat) = (read(client, &limits).await?, read(client, &format!("{base}/{STATS}")).await?);
    let (Some(quota), Some(stat)) = (quota, stat) else {
        return Err(Fault::new(ExitCode::NoZnode, format!("quota for {path} does not exist.")));
    };
    let text = || format!("Output quota for {path} {}\nOutput stat for {path} {}\n", quota.text(), stat.text());
    call.screen.show(text, || json!({"path": path, "quota": quota.0, "stat": stat.0}));
    Ok(())
}

/// `delquota`.
pub(super) async fn delete(call: &Call<'_>) -> Result<(), Fault> {
    let (path, client) = (call.path(), call.client);
    let base = format!("{QUOTAS}{path}");
    let limits = format!("{base}/{LIMITS}");
    check(&limits)?;
    let Some(mut track) = read(client, &limits).await? else {
        call.screen.note(&format!("Quota does not exist for {path}"));
        return Ok(());
    };
    let removed: Vec<&str> =
        OPTIONS.iter().filter(|(option, _)| call.words.has(option)).map(|(_, name)| *name).collect();
    if !removed.is_empty() {
        track.0.extend(removed.into_iter().map(|name| (name.to_owned(), -1)));
        let text = track.text();
        client.set_data(&limits, Some(text.as_bytes()), None).await.map_err(|error| refused(&error, &limits))?;
        return Ok(());
    }
    let own = children(client, &base).await?.unwrap_or_default().into_iter().map(|name| format!("{base}/{name}"));
    for path in own {
        client.delete(&path, None).await.map_err(|error| refused(&error, &path))?;
    }
    // The paths above, as far as they have no other quota.
    let mut at = base.as_str();
    while at != QUOTAS && children(client, at).await?.is_some_and(|names| names.is_empty()) {
        client.delete(at, None).await.map_err(|error| refused(&error, at))?;
        at = corral_core::path::parent(at);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_as_zookeeper_writes_them() {
        let text = "count=5,bytes=-1=;byteHardLimit=9;countHardLimit=-1";
        let track = Track::parse(Some(text.as_bytes()));
        assert_eq!((track.get(COUNT), track.get(BYTES), track.get(BYTES_HARD)), (5, -1, 9));
        assert_eq!(track.text(), text);
        assert_eq!(Track::parse(Some(b"count=1,bytes=2")).text(), "count=1,bytes=2");
        assert_eq!(Track::parse(None).text(), "count=-1,bytes=-1");
    }
}
