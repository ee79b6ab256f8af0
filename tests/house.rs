//! The house's own rules as tests: who may depend on whom, where `unsafe` may stand, how large a file may grow.
//!
//! Each test prints every place that breaks the rule. `docs/architecture.md` tells the reasons.

#[path = "house/circles.rs"]
mod circles;
#[path = "house/rooms.rs"]
mod rooms;
#[path = "house/sentences.rs"]
mod sentences;
#[path = "house/tables.rs"]
mod tables;
#[path = "house/words.rs"]
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Lines of a Rust file at most.
const FILE_LINES_MAX: usize = 600;
/// Direct dependencies of the pure crates on other projects at most.
const PURE_DEPENDENCIES_MAX: usize = 9;
/// Files that may say `unsafe`, each place with its reason.
const UNSAFE_ALLOWED: [&str; 8] = [
    "src/storage/src/mapping.rs",
    "src/core/src/tree/snapshot/meta.rs",
    "src/core/src/tree/snapshot/section.rs",
    "src/data/snapshots.rs",
    "src/runtime/memory.rs",
    // Memory that the kernel writes to, and descriptors handed to it.
    "src/net/client/ring/queue.rs",
    // These two count allocations, for the promises that decoding makes none and that no input makes a server hold much.
    "src/wire/tests/all/properties.rs",
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
    let found = files(&["src", "bench", "tests"], &["rs"]);
    assert!(found.len() > 50, "the search finds the sources");
    found
}

/// The files below these folders whose names have one of these extensions, relative to the top, sorted.
fn files(folders: &[&str], extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the project") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
            if path.is_dir() && !name.starts_with('.') && !["target", "node_modules"].contains(&name) {
                folders.push(path);
            } else if extensions.contains(&extension) {
                found.push(path.strip_prefix(root()).expect("below the top").to_owned());
            }
        }
    }
    found.sort();
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
        "corral-types",
        "corral-peer",
        "corral-engine",
        "corral-storage",
        "corral-zookeeper",
        "corral-backup",
        "corral-client",
        "corral-bench",
        "corral-sim",
    ];
    let decides = vec!["corral-types", "corral-core", "corral-consensus", "corral-peer"];
    let all = [&decides[..], &["corral-wire", "corral-engine", "corral-storage"]].concat();
    let mut server = all.clone();
    server.extend(["corral-backup", "corral-bench", "corral-client", "corral-zookeeper"]);
    let allowed = BTreeMap::from([
        ("src/wire/Cargo.toml", vec![]),
        ("src/core/Cargo.toml", vec!["corral-types", "corral-wire"]),
        ("src/consensus/Cargo.toml", vec!["corral-types"]),
        ("src/types/Cargo.toml", vec![]),
        ("src/storage/Cargo.toml", vec!["corral-types"]),
        ("src/peer/Cargo.toml", vec![]),
        ("src/backup/Cargo.toml", vec![]),
        ("src/client/Cargo.toml", vec!["corral-core", "corral-wire"]),
        ("src/zookeeper/Cargo.toml", vec!["corral-core", "corral-wire"]),
        ("src/engine/Cargo.toml", decides),
        ("src/sim/Cargo.toml", all),
        ("bench/Cargo.toml", vec!["corral-types", "corral-wire"]),
        ("bench/micro/Cargo.toml", vec!["corral-core", "corral-storage", "corral-types", "corral-wire"]),
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
    for manifest in ["src/types", "src/wire", "src/core"] {
        let text = read(&root().join(manifest).join("src/lib.rs"));
        assert!(text.contains("#![no_std]"), "{manifest} is no_std");
        let dependencies = dependencies(&format!("{manifest}/Cargo.toml"));
        let direct = dependencies.iter().filter(|name| !name.starts_with("corral-")).count();
        assert!(direct <= PURE_DEPENDENCIES_MAX, "{manifest} has {direct} direct dependencies");
    }
    let mut broken = Vec::new();
    let pure = ["src/consensus/src", "src/engine/src"];
    for path in rust_files().iter().filter(|path| pure.iter().any(|folder| path.starts_with(folder))) {
        let text = read(&root().join(path));
        for word in ["std::time::Instant", "SystemTime", "std::fs", "std::net", "std::thread", "HashMap", "HashSet"] {
            if text.contains(word) {
                broken.push(format!("{}: {word}", path.display()));
            }
        }
    }
    // The server's build switches the clock of the crate `time` on, for its logger.
    let no_std = ["src/types/src", "src/wire/src", "src/core/src"];
    for path in rust_files().iter().filter(|path| no_std.iter().any(|folder| path.starts_with(folder))) {
        for word in ["::now_utc", "::now_local", "UtcDateTime::now"] {
            if read(&root().join(path)).contains(word) {
                broken.push(format!("{}: {word}", path.display()));
            }
        }
    }
    none(&broken, "what decides has no IO, no clock and no random order");
}

/// The server and the simulator drive the same engine: neither decides anything about elections, terms, snapshots or the membership.
#[test]
fn drivers_decide_nothing() {
    const DRIVERS: [&str; 8] = [
        "src/actor/consensus.rs",
        "src/actor/log_thread.rs",
        "src/actor/snapshot_receiver.rs",
        "src/sim/src/server/consensus.rs",
        "src/sim/src/server/dialing.rs",
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
        "Leadership",
        "BOOTSTRAP_TERM",
        "is_uninitialised",
        "is_leading",
        "is_state_corrupt",
        "transfer_leader",
        "may_bootstrap",
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
    none(&broken, "`unsafe` outside of mapping and snapshot access");
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

/// Two files that use each other, see `house/circles.rs`.
#[test]
fn no_two_files_use_each_other() {
    let names =
        |circle: Vec<PathBuf>| circle.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" ");
    let broken: Vec<String> = circles::circles(&root(), &rust_files()).into_iter().map(names).collect();
    none(&broken, "files that use each other");
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

/// A path in backticks in the README or below docs exists. What follows a blank is an argument of a command. A part with `*`, `{` or
/// `<`, or of capitals alone as in `bench/results/DATE-COMMIT`, is a placeholder: the path before it exists. What `.gitignore` names
/// is made by a run.
#[test]
fn pages_name_files_that_are_there() {
    const FOLDERS: [&str; 5] = ["src/", "tests/", "bench/", "docs/", "configs/"];
    let gitignore = read(&root().join(".gitignore"));
    let ignored: Vec<&str> = gitignore.lines().filter_map(|line| line.strip_prefix('/')).collect();
    let is_made_by_a_run = |path: &str| ignored.iter().any(|made| Path::new(path).starts_with(made));
    let mut pages = files(&["docs"], &["md"]);
    pages.push(PathBuf::from("README.md"));
    let (mut broken, mut named) = (Vec::new(), 0);
    for page in pages {
        let text = read(&root().join(&page));
        // Code may go on in the next line, but not behind an empty one.
        for code in text.split("\n\n").flat_map(|paragraph| paragraph.split('`').skip(1).step_by(2)) {
            let path = code.split_whitespace().next().unwrap_or_default();
            if !FOLDERS.iter().any(|folder| path.starts_with(folder)) || is_made_by_a_run(path) {
                continue;
            }
            named += 1;
            let exact: PathBuf = path.split('/').take_while(|part| !is_placeholder(part)).collect();
            if !root().join(exact).exists() {
                broken.push(format!("{}: {path}", page.display()));
            }
        }
    }
    none(&broken, "a page that names a file that is not there");
    assert!(named > 100, "the pages are read");
}

/// Whether a part of a path stands for names that are not written out. The empty part behind a last `/` does not matter.
fn is_placeholder(part: &str) -> bool {
    part.contains(['*', '{', '<']) || part.chars().all(|letter| letter.is_ascii_uppercase() || letter == '-')
}

/// Where the specification of the protocol is: a page a chapter.
const SPECIFICATION: &str = "docs/protocol";

/// Code cites the specification as `protocol chapter 14.3` or `protocol chapters 9 to 15 and 17`, on one line, so that a search
/// finds it. Pages cite it as `chapter 14.3`, or by links.
#[test]
fn chapters_that_are_cited_are_in_the_specification() {
    let anchors = anchors();
    let numbers: BTreeSet<&str> = anchors.values().flatten().map(String::as_str).collect();
    let (mut broken, mut cited) = (Vec::new(), 0);
    for path in files(&["src", "tests", "bench", "docs"], &["rs", "py", "md"]) {
        if path == Path::new("tests/house.rs") {
            continue;
        }
        let is_page = path.extension().is_some_and(|extension| extension == "md");
        for (at, line) in read(&root().join(&path)).lines().enumerate() {
            let place = format!("{}:{}", path.display(), at + 1);
            for citation in citations(line) {
                let wanted = citation.numbers;
                cited += wanted.len();
                if !is_page && !citation.is_whole {
                    broken.push(format!("{place}: write `protocol chapter N` on one line"));
                }
                let missing = wanted.iter().filter(|number| !numbers.contains(number.as_str()));
                broken.extend(missing.map(|number| format!("{place}: no chapter {number}")));
            }
            if is_page {
                let dead = links(&path, line).into_iter().filter(|link| !leads_somewhere(link, &anchors));
                broken.extend(dead.map(|(page, anchor)| format!("{place}: {} {anchor}", page.display())));
            }
        }
    }
    none(&broken, "a citation of the protocol that leads nowhere");
    assert!(cited > 50, "the search finds the citations");
}

#[test]
fn every_chapter_has_one_page_and_a_line_in_the_index() {
    let anchors = anchors();
    let index = read(&root().join(SPECIFICATION).join("README.md"));
    let (mut broken, mut seen) = (Vec::new(), BTreeSet::new());
    for (page, numbers) in anchors.iter().filter(|(page, _)| !page.ends_with("README.md")) {
        let name = page.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let chapter = name.split('-').next().unwrap_or_default().trim_start_matches('0');
        if !index.contains(&format!("\n| [{chapter}]({name}#{chapter}) |")) {
            broken.push(format!("{name}: not in the index"));
        }
        for number in numbers {
            if !seen.insert(number) || number.split('.').next() != Some(chapter) {
                broken.push(format!("{name}: {number} belongs elsewhere"));
            }
        }
    }
    none(&broken, "a chapter that is not where its number says");
    assert!(seen.len() > 100, "the anchors are read");
}

/// The numbers that each page of the specification has an anchor for.
fn anchors() -> BTreeMap<PathBuf, Vec<String>> {
    let anchors = |page: &PathBuf| {
        let text = read(&root().join(page));
        text.split("<a id=\"").skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect()
    };
    files(&[SPECIFICATION], &["md"]).into_iter().map(|page| (page.clone(), anchors(&page))).collect()
}

/// A place that cites the protocol.
#[derive(Debug, PartialEq, Eq)]
struct Citation {
    numbers: Vec<String>,
    /// Whether it says `protocol` in front, and its numbers behind.
    is_whole: bool,
}

/// The citations of one line. A line that ends with the word alone cites as well: its numbers are on the next one.
fn citations(line: &str) -> Vec<Citation> {
    let lower = line.to_ascii_lowercase();
    let cites = |(at, word): (usize, &str)| {
        let rest = &lower[at + word.len()..];
        let rest = rest.strip_prefix('s').unwrap_or(rest);
        let numbers = rest.strip_prefix(' ').map(cited_numbers).unwrap_or_default();
        let is_whole = lower[..at].ends_with("protocol ") && !numbers.is_empty();
        (!numbers.is_empty() || rest.trim().is_empty()).then_some(Citation { numbers, is_whole })
    };
    lower.match_indices("chapter").filter_map(cites).collect()
}

/// The numbers at the beginning of a text such as `9 to 11, 13.2 and 17)`; of a range all chapters.
fn cited_numbers(text: &str) -> Vec<String> {
    let (mut numbers, mut rest, mut from) = (Vec::new(), text, None::<u32>);
    loop {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number = rest[..end].trim_end_matches('.');
        if number.is_empty() {
            return numbers;
        }
        if let (Some(first), Ok(last)) = (from.take(), number.parse::<u32>()) {
            numbers.extend((first + 1..last).map(|chapter| chapter.to_string()));
        }
        numbers.push(number.to_owned());
        rest = &rest[number.len()..];
        let Some(separator) = [", ", " and ", " to "].into_iter().find(|separator| rest.starts_with(separator)) else {
            return numbers;
        };
        rest = &rest[separator.len()..];
        from = if separator == " to " { number.parse().ok() } else { None };
    }
}

/// The pages and anchors to which one line of a page links.
fn links(page: &Path, line: &str) -> Vec<(PathBuf, String)> {
    let targets = line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    targets
        .filter(|target| !target.contains("://") && (target.contains(".md") || target.starts_with('#')))
        .map(|target| {
            let (name, anchor) = target.split_once('#').unwrap_or((target, ""));
            let mut to = if name.is_empty() { page.to_owned() } else { page.parent().expect("a folder").to_owned() };
            for part in Path::new(name).components() {
                match part.as_os_str() {
                    up if up == ".." => to = to.parent().map(Path::to_owned).unwrap_or_default(),
                    name => to.push(name),
                }
            }
            (to, anchor.to_owned())
        })
        .collect()
}

/// Whether a link that leads into the specification has a page there, with that anchor. Others are not looked at.
fn leads_somewhere((page, anchor): &(PathBuf, String), anchors: &BTreeMap<PathBuf, Vec<String>>) -> bool {
    let known = |numbers: &Vec<String>| anchor.is_empty() || numbers.contains(anchor);
    !page.starts_with(SPECIFICATION) || page == Path::new(SPECIFICATION) || anchors.get(page).is_some_and(known)
}

#[test]
fn citations_are_found_in_each_form() {
    let cited = |line: &str| -> Vec<(String, bool)> {
        citations(line).into_iter().map(|citation| (citation.numbers.join(" "), citation.is_whole)).collect()
    };
    let found = |numbers: &str, is_whole| vec![(numbers.to_owned(), is_whole)];
    assert_eq!(cited("//! Watches (protocol chapter 14.3)."), found("14.3", true));
    assert_eq!(cited("//! Rules: protocol chapters 9 to 12, 13.2 and 17."), found("9 10 11 12 13.2 17", true));
    assert_eq!(cited("/// Chapter 8, as far as that goes."), found("8", false));
    assert_eq!(cited("//! The whole list (protocol chapters"), found("", false));
    assert_eq!(cited("//! chapters 4 and 12; the rest"), found("4 12", false));
    assert_eq!(cited("A chapter that has no number."), []);
}
