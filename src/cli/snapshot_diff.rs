//! `corral snapshot diff`: the difference between two states. The main thread only. It writes nothing but a temporary copy of a
//! backup's snapshot.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use corral_core::path;
use corral_core::tree::view::{NodeRef, View};
use corral_engine::LoadedSnapshot;
use corral_storage::{MmapDisk, SyncRecipe};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::cli::backup_file::{Source, scratch};
use crate::cli::output::{Output, plain};
use crate::cli::snapshot::snapshots;
use crate::exit::{ExitCode, Fault};
use crate::node::restore::{Received, load};

/// Exit code of a difference.
const DIFFERS: u8 = 1;

/// Arguments of `corral snapshot diff`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The state before: a backup, a snapshot file, or a data directory with its newest snapshot
    #[arg(value_name = "A")]
    before: PathBuf,
    /// The state after
    #[arg(value_name = "B")]
    after: PathBuf,
    /// Compare paths, data and ACLs alone
    #[arg(long)]
    data_only: bool,
    /// Print JSON Lines: one object for each difference, and one with the counts
    #[arg(long)]
    json: bool,
    /// File of the keys that decrypt backups, as age-keygen writes them
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
}

/// One of the two states.
struct State {
    /// Where it was read.
    source: String,
    view: View,
    /// Timeouts in milliseconds.
    sessions: BTreeMap<i64, i32>,
    _scratch: Option<TempDir>,
}

/// Name of a field, its value before and after.
type Change = (&'static str, Value, Value);

/// Prints each difference, and the counts. Gives the exit code.
///
/// # Errors
/// If one of the two cannot be read, or is damaged.
pub(crate) fn run(arguments: &Arguments) -> Result<u8, Fault> {
    let open = |name, path| {
        arguments.open(path).map_err(|fault| Fault { sentence: format!("{name}: {}", fault.sentence), ..fault })
    };
    let (before, after) = (open("A", &arguments.before)?, open("B", &arguments.after)?);
    let mut printer = Printer { out: Output::new(), is_json: arguments.json, counts: BTreeMap::new(), fault: None };
    printer.state("A", &before)?;
    printer.state("B", &after)?;
    before.view.walk(path::ROOT, |path, node| {
        match after.view.get(path) {
            None => printer.print("deleted", "path", path, &[]),
            Some(other) => match changes(&node, &other, arguments.data_only) {
                changes if changes.is_empty() => printer.count("equal"),
                changes => printer.print("changed", "path", path, &changes),
            },
        }
        printer.fault.is_none()
    });
    after.view.walk(path::ROOT, |path, _| {
        if before.view.get(path).is_none() {
            printer.print("created", "path", path, &[]);
        }
        printer.fault.is_none()
    });
    if !arguments.data_only {
        printer.sessions(&before.sessions, &after.sessions);
    }
    printer.finish()
}

impl Arguments {
    fn open(&self, path: &Path) -> Result<State, Fault> {
        let source = path.display().to_string();
        if path.is_dir() {
            let disk = MmapDisk::open_read_only(path)?;
            let newest = snapshots(path)?.into_iter().next().ok_or_else(|| {
                let sentence = format!("{source}: it has no snapshot; make a backup of it");
                Fault::new(ExitCode::StorageUnavailable, sentence)
            })?;
            let source = format!("{source}/{newest}, without the log behind it");
            return Ok(State::of(source, &load(&disk, &newest)?, None));
        }
        let scratch = scratch()?;
        let is_snapshot = |name: &&str| name.starts_with("image-") && name.ends_with(".img");
        let name = path.file_name().and_then(|name| name.to_str()).filter(is_snapshot);
        let loaded = if let Some(name) = name {
            let disk = MmapDisk::open(scratch.path(), SyncRecipe::default())?;
            fs::copy(path, scratch.path().join(name)).map_err(|error| {
                Fault::new(ExitCode::StorageUnavailable, format!("{source}: cannot be copied to TMPDIR: {error}"))
            })?;
            load(&disk, name)?
        } else {
            let backup = Source::new(path, self.identity.as_deref());
            let received = Received::in_scratch(scratch.path(), backup.open()?, &backup.keys()?, &mut |_, _| {});
            received.map_err(|fault| backup.named(fault))?.loaded
        };
        Ok(State::of(source, &loaded, Some(scratch)))
    }
}

impl State {
    fn of(source: String, loaded: &LoadedSnapshot, scratch: Option<TempDir>) -> State {
        let sessions = loaded.snapshot.sessions().map(|session| (session.id.0, session.timeout_ms)).collect();
        State { source, view: View::new(loaded.snapshot.clone()), sessions, _scratch: scratch }
    }
}

fn changes(before: &NodeRef<'_>, after: &NodeRef<'_>, data_only: bool) -> Vec<Change> {
    let mut changes = Vec::new();
    if before.data() != after.data() {
        changes.push(("bytes", json!(before.data_len()), json!(after.data_len())));
    }
    if before.acl() != after.acl() {
        changes.push(("acl_entries", json!(before.acl().len()), json!(after.acl().len())));
    }
    if data_only {
        return changes;
    }
    let (one, two) = (before.stat(), after.stat());
    let mut add = |name, one: Value, two: Value| {
        if one != two {
            changes.push((name, one, two));
        }
    };
    add("version", json!(one.version), json!(two.version));
    add("cversion", json!(one.cversion), json!(two.cversion));
    add("aversion", json!(one.aversion), json!(two.aversion));
    add("owner", json!(format!("0x{:x}", one.owner)), json!(format!("0x{:x}", two.owner)));
    add("czxid", json!(one.czxid.to_string()), json!(two.czxid.to_string()));
    add("mzxid", json!(one.mzxid.to_string()), json!(two.mzxid.to_string()));
    add("pzxid", json!(one.pzxid.to_string()), json!(two.pzxid.to_string()));
    add("ctime", json!(one.ctime), json!(two.ctime));
    add("mtime", json!(one.mtime), json!(two.mtime));
    changes
}

/// Prints differences, and counts them.
struct Printer {
    out: Output,
    is_json: bool,
    counts: BTreeMap<&'static str, u64>,
    fault: Option<Fault>,
}

impl Printer {
    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn state(&mut self, name: &str, state: &State) -> Result<(), Fault> {
        let (zxid, source) = (state.view.zxid(), &state.source);
        let line = if self.is_json {
            json!({"kind": "state", "state": name, "zxid": zxid.to_string(), "source": source}).to_string()
        } else {
            format!("{name} is {source}, zxid {zxid}")
        };
        self.out.line(&line).map(drop)
    }

    fn print(&mut self, what: &'static str, kind: &'static str, name: &str, changes: &[Change]) {
        self.count(what);
        let line = if self.is_json {
            let changes: Map<String, Value> =
                changes.iter().map(|(name, one, two)| ((*name).to_owned(), json!([one, two]))).collect();
            let object = if kind == "path" { "znode" } else { kind };
            json!({"kind": object, "difference": what, kind: name, "changes": changes}).to_string()
        } else {
            let sign = if what == "created" {
                '+'
            } else if what == "deleted" {
                '-'
            } else {
                '~'
            };
            let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let change = |(name, one, two): &Change| match (shown(one), shown(two)) {
                (one, two) if one == two => format!("other {name}, {one} as before"),
                (one, two) => format!("{name} {one} -> {two}"),
            };
            let changes: Vec<String> = changes.iter().map(change).collect();
            let changes = if changes.is_empty() { String::new() } else { format!(" ({})", changes.join(", ")) };
            let kind = if kind == "path" { "" } else { "session " };
            format!("{sign} {kind}{}{changes}", plain(name))
        };
        if let Err(fault) = self.out.line(&line) {
            self.fault.get_or_insert(fault);
        }
    }

    fn sessions(&mut self, before: &BTreeMap<i64, i32>, after: &BTreeMap<i64, i32>) {
        for (id, timeout_ms) in before {
            let name = format!("0x{id:x}");
            match after.get(id) {
                None => self.print("deleted", "session", &name, &[]),
                Some(other) if other != timeout_ms => {
                    self.print("changed", "session", &name, &[("timeout_ms", json!(timeout_ms), json!(other))]);
                }
                Some(_) => {}
            }
        }
        for id in after.keys().filter(|id| !before.contains_key(*id)) {
            self.print("created", "session", &format!("0x{id:x}"), &[]);
        }
    }

    fn finish(mut self) -> Result<u8, Fault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let count = |what| self.counts.get(what).copied().unwrap_or_default();
        let (created, deleted, changed, equal) = (count("created"), count("deleted"), count("changed"), count("equal"));
        self.out.line(&if self.is_json {
            json!({"kind": "end", "created": created, "deleted": deleted, "changed": changed, "equal": equal})
                .to_string()
        } else {
            format!("created {created}, deleted {deleted}, changed {changed}, equal {equal}")
        })?;
        self.out.finish()?;
        Ok(if created + deleted + changed == 0 { ExitCode::Ok.number() } else { DIFFERS })
    }
}
