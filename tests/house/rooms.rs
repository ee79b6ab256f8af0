//! Which modules of the server and of core may name which others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{circles, none, read, root, rust_files};

/// What each room of the server's own crate may name, besides itself: arrows point down, and there is no circle.
#[test]
fn rooms_know_only_what_is_below() {
    let below = BTreeMap::from([
        ("exit", vec![]),
        ("gauges", vec![]),
        ("version", vec![]),
        ("config", vec!["exit"]),
        ("descriptors", vec!["config"]),
        ("preflight", vec!["config", "descriptors", "exit"]),
        ("runtime", vec!["config", "exit"]),
        ("audit", vec!["config", "exit", "runtime"]),
        ("data", vec!["config", "exit"]),
        ("net", vec!["config", "exit", "gauges", "runtime"]),
        ("messages", vec!["net"]),
        ("actor", vec!["audit", "data", "exit", "gauges", "messages", "net", "runtime"]),
        ("control", vec!["audit", "config", "data", "exit", "gauges", "messages", "net", "runtime", "version"]),
        (
            "node",
            vec![
                "actor",
                "audit",
                "config",
                "control",
                "data",
                "descriptors",
                "exit",
                "gauges",
                "messages",
                "net",
                "preflight",
                "runtime",
            ],
        ),
        ("cli", vec!["config", "control", "data", "exit", "net", "node", "preflight", "runtime", "version"]),
    ]);
    only_below("src", &below, str::to_owned);
}

/// What each wing of `src/core/src` may name, besides itself. The first ones are the ground, which every wing may use. Comments and
/// tests may name all.
#[test]
fn wings_of_core_know_only_what_is_below() {
    let ground = vec![
        ("cost", vec![]),
        ("features", vec![]),
        ("ids", vec![]),
        ("path", vec![]),
        ("sizes", vec![]),
        ("rate", vec!["ids"]),
        ("limits", vec!["rate"]),
        ("shared", vec!["path"]),
        ("servers", vec!["limits", "shared"]),
    ];
    let evaluation = ["command", "ops", "quota", "session", "tree"];
    let actors = [&evaluation[..], &["apply"]].concat();
    let wings = [
        ("tree", vec![]),
        ("encoding", vec!["tree"]),
        ("quota", vec!["tree"]),
        ("session", vec!["tree"]),
        ("ops", vec!["encoding", "quota", "session", "tree"]),
        ("command", vec!["encoding", "ops", "quota", "tree"]),
        ("apply", evaluation.to_vec()),
        ("sequencer", actors.clone()),
        ("shard", actors.clone()),
        ("forwarding", [&actors[..], &["sequencer", "shard"]].concat()),
        ("report", [&actors[..], &["forwarding", "sequencer", "shard"]].concat()),
    ];
    let names: Vec<&str> = ground.iter().map(|(name, _)| *name).collect();
    let wings = wings.map(|(wing, may)| (wing, [&names[..], &may].concat()));
    only_below("src/core/src", &ground.into_iter().chain(wings).collect(), circles::code);
}

/// In this folder no part of a file that counts names a module that is not in the list of its own module.
fn only_below(folder: &str, below: &BTreeMap<&str, Vec<&str>>, part: fn(&str) -> String) {
    let room_of = |path: &Path| {
        let name = path.strip_prefix(folder).ok()?.iter().next()?.to_str()?;
        Some(name.trim_end_matches(".rs").to_owned())
    };
    let (mut broken, mut seen) = (Vec::new(), BTreeSet::new());
    for path in rust_files() {
        let Some((room, may)) = room_of(&path).and_then(|room| below.get_key_value(room.as_str())) else { continue };
        seen.insert(*room);
        let text = part(&read(&root().join(&path)));
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
