//! Worlds and lists of them.

use clap::ValueEnum;
use corral_sim::campaign::{List, new_worlds, parse_list, play_all, play_checked, shortfalls};
use corral_sim::{Bug, Kind, Tracing, WorldId};

#[test]
fn a_seed_tells_the_same_story() {
    let mut hashes = Vec::new();
    for kind in Kind::value_variants() {
        for seed in [1_000, 1_001] {
            let world = WorldId { kind: *kind, seed };
            let (first, second) = (world.play(None, Tracing::Hash), world.play(None, Tracing::Hash));
            assert_eq!(first, second, "{world}");
            assert_eq!(first.violation, None, "{world}");
            assert!(!hashes.contains(&first.trace_hash), "{world}");
            hashes.push(first.trace_hash);
        }
    }
}

#[test]
fn a_list_is_read_and_malformed_lines_are_named() {
    let list = parse_list("# kinds\n\nalone 1..3\nlost-pages 7 it was lost\nlost-pages 6..8\n").expect("a list");
    let world = |kind, seed| WorldId { kind, seed };
    let expect = [
        (world(Kind::Alone, 1), None),
        (world(Kind::Alone, 2), None),
        (world(Kind::LostPages, 6), None),
        (world(Kind::LostPages, 7), Some("it was lost".to_owned())),
    ];
    assert_eq!(list, List::from(expect));
    let list = parse_list(include_str!("../../worlds.txt")).expect("a list");
    let is_listed = |kind: &Kind| list.keys().any(|world| world.kind == *kind);
    assert!(Kind::value_variants().iter().all(is_listed), "the list in the repository lacks a kind");
    for line in ["alone", "lonely 1", "alone x", "alone 1..", "alone 1-3"] {
        let error = parse_list(line).expect_err(line);
        assert!(error.contains("line 1") && error.contains(line), "{error}");
    }
}

#[test]
fn a_failure_ends_a_campaign_and_names_its_world() {
    let mut failures = Vec::new();
    let worlds = (0..).map(|seed| WorldId { kind: Kind::Alone, seed });
    let bug = |seed| (seed >= 2).then_some(Bug::WrongStat);
    let play = |world: WorldId| world.play(bug(world.seed), Tracing::Nothing);
    let summary = play_all(worlds, play, 1, |_, failed| {
        failures.extend(failed.map(|(world, violation)| (world, violation.property)));
        failed.is_none()
    });
    let expected = matches!(failures[..], [(WorldId { kind: Kind::Alone, seed: 2.. }, "reads" | "writes")]);
    assert!(expected, "{failures:?}");
    assert!(summary.passed >= 2 && summary.failed >= 1, "{summary:?}");
}

#[test]
fn a_campaign_plays_each_world_once_and_says_what_did_not_happen() {
    let worlds: Vec<WorldId> = new_worlds(5).take(3).collect();
    let summary = play_all(worlds.iter().copied(), play_checked, 2, |_, _| true);
    assert_eq!((summary.passed, summary.failed), (3, 0));
    let alone = summary.counts[&Kind::Alone];
    assert_eq!(alone, worlds[0].play(None, Tracing::Nothing).counts);
    let missing = shortfalls(&summary.counts).join("\n");
    assert!(missing.contains("damaged worlds: distrusted is 0, at least 60 is wanted"), "{missing}");
}
