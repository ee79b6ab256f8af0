//! The house's own rules as tests: who may depend on whom, where `unsafe` may stand, how large a file may grow.
//!
//! Each test prints every place that breaks the rule. `docs/architecture.md` tells the reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Lines of a Rust file at most.
const FILE_LINES_MAX: usize = 600;
/// Direct dependencies of the pure crates at most.
const PURE_DEPENDENCIES_MAX: usize = 10;
/// Files that may say `unsafe`, each place with its reason.
const UNSAFE_ALLOWED: [&str; 8] = [
    "src/storage/src/mapping.rs",
    "src/core/src/image.rs",
    "src/core/src/image/read.rs",
    "src/data/images.rs",
    "src/runtime/memory.rs",
    // Memory that the kernel writes to, and descriptors handed to it.
    "src/net/ring/queue.rs",
    // These two count allocations, for the promises that decoding makes none and that no input makes a server hold much.
    "src/wire/tests/properties.rs",
    "src/sim/src/fuzz/memory.rs",
];
/// Folders that may know the asynchronous runtime.
const RUNTIME_ALLOWED: [&str; 4] = ["src/actor", "src/net", "src/runtime", "bench/src"];
/// What the top of the repository may hold besides dot files.
const TOP_LEVEL: [&str; 9] =
    ["Cargo.toml", "Cargo.lock", "LICENSE", "README.md", "bench", "configs", "docs", "src", "tests"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every Rust file of the project, relative to its top.
fn rust_files() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join("src"), root().join("bench"), root().join("tests")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the project") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() && !name.starts_with('.') && name != "target" {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path.strip_prefix(root()).expect("below the top").to_owned());
            }
        }
    }
    found.sort();
    assert!(found.len() > 50, "the search finds the sources");
    found
}

/// Names in a `[dependencies]` section of a manifest.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let text = read(&root().join(manifest));
    let section = text.split("\n[").find(|part| part.starts_with("dependencies]")).unwrap_or_default();
    let names = section.lines().skip(1).filter_map(|line| line.split(['=', '.', ' ']).next());
    names.filter(|name| !name.is_empty() && !name.starts_with('#')).map(str::to_owned).collect()
}

fn none(broken: &[String], rule: &str) {
    assert!(broken.is_empty(), "{rule}:\n{}", broken.join("\n"));
}

#[test]
fn crates_depend_as_drawn() {
    let ours = [
        "corral-wire",
        "corral-core",
        "corral-consensus",
        "corral-members",
        "corral-link",
        "corral-engine",
        "corral-journal",
        "corral-storage",
        "corral-bench",
        "corral-sim",
    ];
    let decides = vec!["corral-core", "corral-consensus", "corral-members", "corral-link"];
    let all = [&decides[..], &["corral-wire", "corral-engine", "corral-journal", "corral-storage"]].concat();
    let mut server = all.clone();
    server.push("corral-bench");
    let allowed = BTreeMap::from([
        ("src/wire/Cargo.toml", vec![]),
        ("src/core/Cargo.toml", vec!["corral-wire"]),
        ("src/consensus/Cargo.toml", vec![]),
        ("src/members/Cargo.toml", vec!["corral-core", "corral-consensus"]),
        ("src/storage/Cargo.toml", vec![]),
        ("src/link/Cargo.toml", vec![]),
        ("src/engine/Cargo.toml", decides),
        ("src/journal/Cargo.toml", vec!["corral-consensus", "corral-core", "corral-engine", "corral-storage"]),
        ("src/sim/Cargo.toml", all),
        ("bench/Cargo.toml", vec!["corral-wire"]),
        ("bench/micro/Cargo.toml", vec!["corral-wire", "corral-core", "corral-storage"]),
        ("Cargo.toml", server),
    ]);
    let mut broken = Vec::new();
    for (manifest, may) in &allowed {
        let has = dependencies(manifest);
        broken.extend(
            ours.iter()
                .filter(|name| has.contains(**name) && !may.contains(name))
                .map(|name| format!("{manifest}: {name}")),
        );
    }
    none(&broken, "a dependency that is not drawn");
    assert!(dependencies("src/core/Cargo.toml").contains("corral-wire"), "the manifests are read");
}

/// What each room of the server's own crate may name, besides itself: arrows point down, and there is no circle.
#[test]
fn rooms_know_only_what_is_below() {
    let below = BTreeMap::from([
        ("exit", vec![]),
        ("gauges", vec![]),
        ("version", vec![]),
        ("config", vec!["exit"]),
        ("preflight", vec!["config", "exit"]),
        ("runtime", vec!["config", "exit"]),
        ("data", vec!["config", "exit"]),
        ("net", vec!["config", "exit", "gauges", "runtime"]),
        ("messages", vec!["net"]),
        ("actor", vec!["data", "exit", "gauges", "messages", "net", "runtime"]),
        ("control", vec!["config", "exit", "gauges", "messages", "net", "runtime", "version"]),
        (
            "node",
            vec!["actor", "config", "control", "data", "exit", "gauges", "messages", "net", "preflight", "runtime"],
        ),
        ("cli", vec!["config", "control", "data", "exit", "net", "node", "preflight"]),
    ]);
    let room_of = |path: &Path| {
        let name = path.strip_prefix("src").ok()?.iter().next()?.to_str()?;
        Some(name.trim_end_matches(".rs").to_owned())
    };
    let (mut broken, mut seen) = (Vec::new(), BTreeSet::new());
    for path in rust_files() {
        let Some((room, may)) = room_of(&path).and_then(|room| below.get_key_value(room.as_str())) else { continue };
        seen.insert(*room);
        let text = read(&root().join(&path));
        for named in text.split("crate::").skip(1) {
            let end = named.find(|letter: char| !letter.is_ascii_lowercase() && letter != '_').unwrap_or(named.len());
            let other = &named[..end];
            if below.contains_key(other) && other != *room && !may.contains(&other) {
                broken.push(format!("{}: {other}", path.display()));
            }
        }
    }
    none(&broken, "a room that is not below");
    assert_eq!(seen.len(), below.len(), "every room is looked at");
}

#[test]
fn the_load_generator_is_known_to_its_sub_command_alone() {
    let users: Vec<String> = rust_files()
        .iter()
        .filter(|path| !path.starts_with("bench") && **path != Path::new("tests/house.rs"))
        .filter(|path| read(&root().join(path)).contains("corral_bench"))
        .map(|path| path.display().to_string())
        .collect();
    assert_eq!(users, ["src/cli/bench.rs"]);
}

#[test]
fn pure_crates_cannot_name_a_clock_a_file_or_a_socket() {
    for manifest in ["src/wire", "src/core"] {
        let text = read(&root().join(manifest).join("src/lib.rs"));
        assert!(text.contains("#![no_std]"), "{manifest} is no_std");
        let direct = dependencies(&format!("{manifest}/Cargo.toml")).len();
        assert!(direct <= PURE_DEPENDENCIES_MAX, "{manifest} has {direct} direct dependencies");
    }
    let mut broken = Vec::new();
    let pure = ["src/consensus/src", "src/members/src", "src/engine/src"];
    for path in rust_files().iter().filter(|path| pure.iter().any(|folder| path.starts_with(folder))) {
        let text = read(&root().join(path));
        for word in ["std::time::Instant", "SystemTime", "std::fs", "std::net", "std::thread", "HashMap", "HashSet"] {
            if text.contains(word) {
                broken.push(format!("{}: {word}", path.display()));
            }
        }
    }
    none(&broken, "what decides has no IO, no clock and no random order");
}

/// The server and the simulator drive the same engine: neither decides anything about elections, terms, images or the membership.
#[test]
fn drivers_decide_nothing() {
    const DRIVERS: [&str; 7] = [
        "src/actor/consensus.rs",
        "src/actor/log_thread.rs",
        "src/actor/images_in.rs",
        "src/sim/src/server/consensus.rs",
        "src/sim/src/server/disk_threads.rs",
        "src/sim/src/server/peers.rs",
        "src/sim/src/server/shard_side.rs",
    ];
    const DECIDED: [&str; 14] = [
        "Role",
        "Term",
        "Install {",
        "InstallSnapshot",
        "Membership::",
        "PeerBody",
        "RoleChange",
        "Standing",
        "FORMED_TERM",
        "is_newborn",
        "is_leading",
        "is_distrusted",
        "transfer_leader",
        "may_begin",
    ];
    let mut broken = Vec::new();
    for path in DRIVERS {
        let text = read(&root().join(path));
        broken.extend(DECIDED.iter().filter(|name| text.contains(**name)).map(|name| format!("{path}: {name}")));
    }
    none(&broken, "a driver that decides");
}

#[test]
fn unsafe_stands_where_it_may() {
    let mut broken = Vec::new();
    for path in rust_files().iter().filter(|path| **path != Path::new("tests/house.rs")) {
        let text = read(&root().join(path));
        let allowed = UNSAFE_ALLOWED.iter().any(|file| path == Path::new(file));
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let says = code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe");
            if says && !allowed {
                broken.push(format!("{}:{}", path.display(), number + 1));
            }
        }
        let blocks = text.matches("unsafe {").count() + text.matches("unsafe impl").count();
        if allowed && text.matches("SAFETY").count() < blocks {
            broken.push(format!("{}: an unsafe place without its reason", path.display()));
        }
    }
    none(&broken, "`unsafe` outside of mapping and image access");
}

#[test]
fn the_runtime_is_named_where_it_may_be() {
    let mut broken = Vec::new();
    for path in rust_files().iter().filter(|path| path.starts_with("src")) {
        let allowed = RUNTIME_ALLOWED.iter().any(|folder| path.starts_with(folder));
        let used = read(&root().join(path)).contains("glommio::");
        // The node starts the two actors of one executor; that is all it knows.
        if used && !allowed && path != Path::new("src/node/mod.rs") {
            broken.push(path.display().to_string());
        }
    }
    none(&broken, "the runtime is named outside of actor, net and runtime");
}

#[test]
fn files_stay_readable() {
    let mut broken = Vec::new();
    for path in rust_files() {
        let text = read(&root().join(&path));
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            broken.push(format!("{}: {lines} lines", path.display()));
        }
        if !text.starts_with("//!") {
            broken.push(format!("{}: says nothing of itself at its top", path.display()));
        }
    }
    none(&broken, "a file that is hard to read");
}

#[test]
fn the_top_holds_what_was_asked_for() {
    let listed = fs::read_dir(root()).expect("the top").filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let ignored = ignored();
    let strange: Vec<String> = listed
        .filter(|name| !name.starts_with('.') && !TOP_LEVEL.contains(&name.as_str()))
        .filter(|name| !ignored.iter().any(|pattern| matches(pattern, name)))
        .collect();
    none(&strange, "something at the top that belongs elsewhere");
}

/// What `.gitignore` ignores at the top, as patterns with at most one `*`.
fn ignored() -> Vec<String> {
    let lines = read(&root().join(".gitignore"));
    lines
        .lines()
        .filter_map(|line| line.strip_prefix('/'))
        .filter(|line| !line.contains('/'))
        .map(str::to_owned)
        .collect()
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((front, end)) => name.len() >= front.len() + end.len() && name.starts_with(front) && name.ends_with(end),
    }
}

/// What the README's lines leave behind is ignored, here as by git; a test run after them passes.
#[test]
fn what_the_readme_leaves_behind_is_allowed() {
    let ignored = ignored();
    for name in ["target", "data", "ens", "ens-1.log", "ens-3.log", "plots", "corral.toml"] {
        assert!(ignored.iter().any(|pattern| matches(pattern, name)), "{name}");
    }
    for name in ["ens2", "ens-1.txt", "docs2", "plot"] {
        assert!(!ignored.iter().any(|pattern| matches(pattern, name)), "{name}");
    }
}
