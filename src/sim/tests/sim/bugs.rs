//! Each planted bug is caught at a stored seed, by the checker of the property it breaks or by an assertion of the
//! actors.

use clap::ValueEnum;
use corral_sim::Kind::{Alone, Builds, Damaged, Ensemble, LostPages};
use corral_sim::{Bug, Kind, Tracing, WorldId};

/// Seeds tried for a bug that its stored seed does not show any more.
const TRIES: u64 = 120;

/// Where each bug shows, and the properties that may name it there; any if the list is empty.
const SHOWN: [(Bug, Kind, u64, &[&str]); 42] = [
    (Bug::AckBeforeSync, Alone, 1, &["writes", "recovery"]),
    (Bug::DropEvent, Alone, 0, &["watches"]),
    (Bug::DoubleEvent, Alone, 0, &["watches"]),
    (Bug::ApplyTwice, Alone, 0, &["assertion"]),
    (Bug::MissBatch, Alone, 0, &["reads", "trees", "watches", "writes", "assertion"]),
    (Bug::EarlyRead, Alone, 0, &["reads"]),
    (Bug::KeepEphemerals, Alone, 0, &["reads", "trees", "watches", "writes", "assertion"]),
    (Bug::ForgetUsage, Alone, 0, &["reads", "trees", "assertion"]),
    (Bug::ReapEarly, Alone, 3, &["reaping"]),
    (Bug::ExpireEarly, Alone, 0, &["sessions"]),
    (Bug::HearAnybody, Alone, 5, &["sessions"]),
    (Bug::LoseReply, Alone, 0, &["replies"]),
    (Bug::WrongStat, Alone, 0, &["reads", "writes"]),
    (Bug::IgnoreFailedSync, Alone, 0, &["writes", "recovery"]),
    (Bug::AckBeforeSync, Ensemble, 4, &[]),
    (Bug::VoteTwice, Ensemble, 0, &["elections"]),
    (Bug::SkipMajority, Ensemble, 0, &["members"]),
    (Bug::ForwardTwice, Ensemble, 6, &[]),
    (Bug::UninitialisedVotes, Ensemble, 7, &[]),
    (Bug::FoundAlone, Ensemble, 13, &["elections", "members", "writes", "logs"]),
    (Bug::LosePiece, Ensemble, 0, &["liveness"]),
    (Bug::StaleSync, Ensemble, 6, &["reads"]),
    (Bug::BeginAtOnce, Ensemble, 3, &["liveness"]),
    (Bug::AnswerAtOnce, Ensemble, 0, &["members", "assertion"]),
    (Bug::RemovedCounts, Ensemble, 0, &["members", "liveness"]),
    (Bug::Diverge, Ensemble, 0, &["digests"]),
    (Bug::ApplyTwice, Ensemble, 0, &[]),
    (Bug::MissBatch, Ensemble, 21, &[]),
    (Bug::ExpireEarly, Ensemble, 3, &["sessions"]),
    (Bug::HearAnybody, Ensemble, 54, &["sessions"]),
    (Bug::EarlyRead, Ensemble, 0, &["reads"]),
    (Bug::DropEvent, Ensemble, 0, &["watches"]),
    (Bug::DoubleEvent, Ensemble, 0, &["watches"]),
    (Bug::KeepEphemerals, Ensemble, 1, &[]),
    (Bug::ForgetUsage, Ensemble, 1, &[]),
    (Bug::ReapEarly, Ensemble, 10, &[]),
    (Bug::LoseReply, Ensemble, 0, &[]),
    (Bug::WrongStat, Ensemble, 0, &[]),
    (Bug::IgnoreFailedSync, Ensemble, 28, &[]),
    (Bug::RepairReplacesLog, Damaged, 5, &["logs", "members", "writes"]),
    (Bug::JudgeAtReplay, Builds, 14, &["digests"]),
    (Bug::NoDurableFile, LostPages, 14, &["writes"]),
];

fn property(bug: Bug, world: WorldId) -> Option<&'static str> {
    world.play(Some(bug), Tracing::Nothing).violation.map(|violation| violation.property)
}

#[test]
fn every_bug_is_caught() {
    let mut missed = Vec::new();
    for (bug, kind, seed, properties) in SHOWN {
        let found = property(bug, WorldId { kind, seed });
        if !found.is_some_and(|found| properties.is_empty() || properties.contains(&found)) {
            let now = (0..TRIES).find_map(|seed| Some((seed, property(bug, WorldId { kind, seed })?)));
            missed
                .push(format!("{bug:?}, {kind} {seed}: {found:?}; the first of {TRIES} seeds that shows it: {now:?}"));
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
    for bug in Bug::value_variants() {
        assert!(SHOWN.iter().any(|(shown, ..)| shown == bug), "no world shows {bug:?}");
    }
}
