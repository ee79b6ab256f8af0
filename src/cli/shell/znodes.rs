//! ZooKeeper's verbs for znodes and their watches.

use std::collections::VecDeque;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use corral_client::{
    Acl, AddWatchMode, Client, CreateMode, Creation, Error, ErrorCode, Stat, Watcher, WatcherType, Write,
};
use corral_core::path;
use serde_json::{Value, json};

use crate::cli::client::Connection;
use crate::cli::shell::paths::{self, check, refused, usage};
use crate::cli::shell::screen::{Screen, data_json, hexdump, stat_json, stat_text};
use crate::cli::shell::words::Words;
use crate::exit::Fault;

/// Requests for children that are under way at once.
const IN_FLIGHT_MAX: usize = 32;
/// Deletes of one transaction, if `-b` does not say it.
const BATCH: usize = 1000;
/// The largest TTL, in milliseconds.
const TTL_MS_MAX: i64 = 0xff_ffff_ffff;

/// As Java's decoder: the padding may be left out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The surroundings of a verb that runs.
pub(super) struct Call<'a> {
    pub(super) screen: &'a Screen,
    /// How the shell connects, for other servers.
    pub(super) connection: &'a Connection,
    pub(super) client: &'a Client,
    pub(super) watcher: &'a Watcher,
    pub(super) words: &'a Words,
}

impl Call<'_> {
    pub(super) fn path(&self) -> &str {
        self.words.at(0).unwrap_or_default()
    }

    fn watcher(&self) -> Option<&Watcher> {
        self.words.has("w").then_some(self.watcher)
    }

    /// The version after `-v`, `None` for any.
    fn version(&self) -> Result<Option<i32>, Fault> {
        let parse = |text: &str| text.parse::<i32>().map_err(|_| usage("-v argument must be an int value"));
        Ok(self.words.value("v").map(parse).transpose()?.filter(|version| *version != -1))
    }

    /// An ACL in the arguments.
    fn acl(&self, text: &str) -> Vec<Acl> {
        let (acl, complaints) = paths::acl(text);
        complaints.iter().for_each(|complaint| self.screen.error(complaint));
        acl
    }

    /// The Stat, if `-s` asks for it.
    fn show_stat(&self, stat: &Stat) {
        if self.words.has("s") {
            self.screen.show(|| stat_text(stat), || stat_json(stat));
        }
    }
}

pub(super) async fn ls(call: &Call<'_>) -> Result<(), Fault> {
    let (root, screen) = (call.path(), call.screen);
    check(root)?;
    let failed = |error| refused(&error, root);
    if !call.words.has("R") {
        let (mut names, stat) = call.client.get_children(root, call.watcher()).await.map_err(failed)?;
        names.sort_unstable();
        let with_stat = call.words.has("s");
        let text = || {
            format!(
                "[{}]\n{}",
                screen.name(&names.join(", ")),
                if with_stat { stat_text(&stat) } else { String::new() }
            )
        };
        screen.show(text, || json!({"path": root, "children": names, "stat": stat_json(&stat)}));
        return Ok(());
    }
    screen.begin_list();
    in_order(call.client, root, call.watcher(), |path| {
        screen.show(|| format!("{}\n", screen.name(path)), || json!(path));
    })
    .await
}

/// Gives the paths of a subtree: all children of a znode, then what is below the first, and so on.
async fn in_order(
    client: &Client,
    root: &str,
    watcher: Option<&Watcher>,
    mut show: impl FnMut(&str),
) -> Result<(), Fault> {
    client.get_data(root, watcher).await.map_err(|error| refused(&error, root))?;
    show(root);
    let mut waiting = vec![root.to_owned()];
    while let Some(at) = waiting.pop() {
        let mut names = match client.get_children(&at, watcher).await {
            Ok((names, _)) => names,
            Err(error) if error.code == ErrorCode::NoNode => continue,
            Err(error) => return Err(refused(&error, &at)),
        };
        names.sort_unstable();
        let children: Vec<String> = names.iter().map(|name| path::child(&at, name)).collect();
        children.iter().for_each(|path| show(path));
        waiting.extend(children.into_iter().rev());
    }
    Ok(())
}

pub(super) async fn get(call: &Call<'_>) -> Result<(), Fault> {
    let path = call.path();
    check(path)?;
    let (data, stat) = call.client.get_data(path, call.watcher()).await.map_err(|error| refused(&error, path))?;
    let text = || {
        let bytes = data.as_deref().unwrap_or(b"null");
        let shown = match () {
            () if call.words.has("x") => hexdump(bytes),
            () if call.words.has("b") => STANDARD.encode(bytes),
            () => call.screen.data(bytes),
        };
        format!("{shown}\n{}", if call.words.has("s") { stat_text(&stat) } else { String::new() })
    };
    call.screen.show(text, || {
        let mut value = data_json(data.as_deref());
        value["path"] = json!(path);
        value["stat"] = stat_json(&stat);
        value
    });
    Ok(())
}

pub(super) async fn stat(call: &Call<'_>) -> Result<(), Fault> {
    let path = call.path();
    check(path)?;
    let found = call.client.exists(path, call.watcher()).await.map_err(|error| refused(&error, path))?;
    let stat = found.ok_or_else(|| refused(&ErrorCode::NoNode.into(), path))?;
    call.screen.show(|| stat_text(&stat), || stat_json(&stat));
    Ok(())
}

pub(super) async fn set(call: &Call<'_>) -> Result<(), Fault> {
    let (path, text) = (call.path(), call.words.at(1).unwrap_or_default());
    let data = match call.words.has("b") {
        true => BASE64.decode(text).map_err(|error| usage(&format!("the data are no base64: {error}")))?,
        false => text.as_bytes().to_vec(),
    };
    let version = call.version()?;
    check(path)?;
    let stat = call.client.set_data(path, Some(&data), version).await.map_err(|error| refused(&error, path))?;
    call.show_stat(&stat);
    Ok(())
}

pub(super) async fn create(call: &Call<'_>) -> Result<(), Fault> {
    let has = |name| call.words.has(name);
    let (e, s, c, ttl) = (has("e"), has("s"), has("c"), call.words.value("t"));
    if c && (e || s) {
        return Err(usage("-c cannot be combined with -s or -e. Containers cannot be ephemeral or sequential."));
    }
    let ttl_ms = ttl.map(|text| text.parse::<i64>().map_err(|_| usage("-t argument must be a long value")));
    let ttl_ms = ttl_ms.transpose()?;
    let mode = match (e, s, c, ttl_ms) {
        (true, _, _, Some(_)) => return Err(usage("TTLs cannot be used with Ephemeral znodes")),
        (_, _, true, Some(_)) => return Err(usage("TTLs cannot be used with Container znodes")),
        (true, true, ..) => CreateMode::EphemeralSequential,
        (true, false, ..) => CreateMode::Ephemeral,
        (_, true, _, Some(_)) => CreateMode::PersistentSequentialWithTtl,
        (_, true, _, None) => CreateMode::PersistentSequential,
        (_, _, true, _) => CreateMode::Container,
        (.., Some(_)) => CreateMode::PersistentWithTtl,
        _ => CreateMode::Persistent,
    };
    if ttl_ms.is_some_and(|ms| !(1..=TTL_MS_MAX).contains(&ms)) {
        return Err(usage(&format!("ttl must be positive and cannot be larger than: {TTL_MS_MAX}")));
    }
    let (path, data) = (call.path(), call.words.at(1).map(str::as_bytes));
    // The number of a sequential one follows, so its path may end with a slash.
    let whole = if mode.is_sequential() { format!("{path}1") } else { path.to_owned() };
    let refuse = |error: &Error, of_path: &str, path: &str| {
        if error.code == ErrorCode::InvalidAcl {
            call.screen.error(&format!("KeeperErrorCode = InvalidACL{of_path}"));
        }
        refused(error, path)
    };
    let acl = call.words.at(2).map_or_else(|| vec![Acl::open()], |text| call.acl(text));
    check(&whole)?;
    if acl.is_empty() {
        return Err(refuse(&ErrorCode::InvalidAcl.into(), "", "null"));
    }
    let creation = Creation { data, acl: &acl, mode, ttl_ms: ttl_ms.unwrap_or_default() };
    let created = call.client.create(path, &creation).await;
    let (created, _) = created.map_err(|error| refuse(&error, &format!(" for {path}"), path))?;
    if call.screen.is_text() {
        call.screen.aside(&format!("Created {created}"));
    } else {
        call.screen.show(String::new, || json!({"created": created}));
    }
    Ok(())
}

pub(super) async fn delete(call: &Call<'_>) -> Result<(), Fault> {
    let (path, version) = (call.path(), call.version()?);
    check(path)?;
    call.client.delete(path, version).await.map_err(|error| refused(&error, path))
}

pub(super) async fn delete_all(call: &Call<'_>) -> Result<(), Fault> {
    let batch =
        call.words.value("b").map(|text| text.parse::<i32>().map_err(|_| usage("-b argument must be an int value")));
    // Without a positive number each delete is a request of its own, with an error of its own.
    let batch = batch.transpose()?.map_or(BATCH, |size| usize::try_from(size).unwrap_or_default());
    let root = call.path();
    check(root)?;
    let tree = subtree(call.client, root).await?;
    // Children first.
    let reversed: Vec<&str> = tree.iter().rev().map(String::as_str).collect();
    for paths in reversed.chunks(batch.max(1)) {
        let deletes: Vec<Write<'_>> = paths.iter().map(|path| Write::Delete { path, version: None }).collect();
        if let Err(error) = call.client.multi(&deletes).await {
            if batch == 0 {
                return Err(refused(&error, paths[0]));
            }
            call.screen.error("Failed to delete some node(s) in the subtree!");
            return Err(Fault { sentence: String::new(), ..refused(&error, root) });
        }
    }
    Ok(())
}

/// The paths of a subtree, parents before their children.
pub(super) async fn subtree(client: &Client, root: &str) -> Result<Vec<String>, Fault> {
    let (mut tree, mut asked, mut next) = (vec![root.to_owned()], VecDeque::new(), 0);
    loop {
        while asked.len() < IN_FLIGHT_MAX && next < tree.len() {
            asked.push_back((next, client.get_children(&tree[next], None)));
            next += 1;
        }
        let Some((at, answer)) = asked.pop_front() else { return Ok(tree) };
        match answer.await {
            Ok((names, _)) => {
                let children: Vec<String> = names.iter().map(|name| path::child(&tree[at], name)).collect();
                tree.extend(children);
            }
            Err(Error { code: ErrorCode::NoNode, .. }) if at > 0 => {}
            Err(error) => return Err(refused(&error, &tree[at])),
        }
    }
}

pub(super) async fn get_acl(call: &Call<'_>) -> Result<(), Fault> {
    let path = call.path();
    check(path)?;
    let (acl, stat) = call.client.get_acl(path).await.map_err(|error| refused(&error, path))?;
    let with_stat = call.words.has("s");
    let text = || {
        let entries = acl.iter().map(|one| format!("'{},'{}\n: {}\n", csv(&one.scheme), csv(&one.id), one.letters()));
        entries.collect::<String>() + &if with_stat { stat_text(&stat) } else { String::new() }
    };
    call.screen.show(text, || {
        let entry = |one: &Acl| json!({"perms": one.letters(), "scheme": one.scheme, "id": one.id});
        json!({"path": path, "acl": acl.iter().map(entry).collect::<Vec<Value>>(), "stat": stat_json(&stat)})
    });
    Ok(())
}

/// As jute writes a string into text.
fn csv(text: &str) -> String {
    text.chars().fold(String::new(), |mut all, one| {
        match one {
            '\0' | '\n' | '\r' | '%' | ',' | '}' => all += &format!("%{:02X}", u32::from(one)),
            one => all.push(one),
        }
        all
    })
}

pub(super) async fn set_acl(call: &Call<'_>) -> Result<(), Fault> {
    let (root, acl) = (call.path(), call.acl(call.words.at(1).unwrap_or_default()));
    let version = call.version()?;
    check(root)?;
    if acl.is_empty() {
        return Err(refused(&ErrorCode::InvalidAcl.into(), "null"));
    }
    if !call.words.has("R") {
        let stat = call.client.set_acl(root, &acl, version).await.map_err(|error| refused(&error, root))?;
        call.show_stat(&stat);
        return Ok(());
    }
    let mut paths = Vec::new();
    let mut result = in_order(call.client, root, None, |path| paths.push(path.to_owned())).await;
    for path in paths {
        match call.client.set_acl(&path, &acl, version).await {
            Err(error) if error.code != ErrorCode::NoNode => {
                let fault = refused(&error, &path);
                call.screen.error(&fault.sentence);
                result = result.and(Err(Fault { sentence: String::new(), ..fault }));
            }
            _ => {}
        }
    }
    result
}

pub(super) async fn add_watch(call: &Call<'_>) -> Result<(), Fault> {
    let mode = match call.words.value("m").map(str::to_uppercase).as_deref() {
        Some("PERSISTENT") => AddWatchMode::Persistent,
        _ => AddWatchMode::PersistentRecursive,
    };
    let path = call.path();
    check(path)?;
    call.client.add_watch(path, mode, call.watcher).await.map_err(|error| refused(&error, path))
}

pub(super) async fn remove_watches(call: &Call<'_>) -> Result<(), Fault> {
    let path = call.path();
    let kinds = [
        ("c", WatcherType::Children),
        ("d", WatcherType::Data),
        ("p", WatcherType::Persistent),
        ("r", WatcherType::PersistentRecursive),
    ];
    let which = kinds.iter().find(|(option, _)| call.words.has(option)).map_or(WatcherType::Any, |(_, kind)| *kind);
    check(path)?;
    let removed = call.client.remove_watches(path, which, call.words.has("l")).await;
    removed.map_err(|error| refused(&error, path))
}

pub(super) async fn sync(call: &Call<'_>) -> Result<(), Fault> {
    let path = call.path();
    check(path)?;
    call.client.sync(path).await.map_err(|error| refused(&error, path))?;
    call.screen.show(|| "Sync is OK\n".to_owned(), || json!({"path": path, "synced": true}));
    Ok(())
}

pub(super) async fn get_ephemerals(call: &Call<'_>) -> Result<(), Fault> {
    let prefix = call.words.at(0).unwrap_or(path::ROOT);
    check(prefix)?;
    let found = call.client.get_ephemerals(prefix).await.map_err(|error| refused(&error, prefix))?;
    call.screen.show(|| format!("[{}]\n", found.join(", ")), || json!(found));
    Ok(())
}

pub(super) async fn get_all_children_number(call: &Call<'_>) -> Result<(), Fault> {
    let path = call.path();
    check(path)?;
    let count = call.client.get_all_children_number(path).await.map_err(|error| refused(&error, path))?;
    call.screen.show(|| format!("{count}\n"), || json!({"path": path, "count": count}));
    Ok(())
}
