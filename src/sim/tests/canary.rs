//! Proves that the checkers see what they are for: each known bug is put in on purpose and must be caught, by the
//! checker of the property it breaks or by an assertion of the actors.

use corral_sim::{Bug, canaries, run_seed};

#[test]
fn every_bug_is_caught() {
    let check = |bug: Bug, expect: &[&str]| {
        let found = canaries::hunt(run_seed, bug).map(|caught| caught.property);
        assert!(found.is_some_and(|property| expect.contains(&property)), "{bug:?}: {found:?}");
    };
    for bug in Bug::ALL {
        match bug {
            Bug::AckBeforeSync | Bug::IgnoreFailedSync => check(bug, &["writes", "recovery"]),
            Bug::DropEvent | Bug::DoubleEvent => check(bug, &["watches"]),
            Bug::ApplyTwice => check(bug, &["assertion"]),
            Bug::MissBatch | Bug::KeepEphemerals => check(bug, &["reads", "trees", "watches", "writes", "assertion"]),
            Bug::EarlyRead => check(bug, &["reads"]),
            Bug::ForgetUsage => check(bug, &["reads", "trees", "assertion"]),
            Bug::ReapEarly => check(bug, &["reaping"]),
            Bug::ExpireEarly | Bug::HearAnybody => check(bug, &["sessions"]),
            Bug::LoseReply => check(bug, &["replies"]),
            Bug::WrongStat => check(bug, &["reads", "writes"]),
            Bug::VoteTwice
            | Bug::SkipMajority
            | Bug::ForwardTwice
            | Bug::UninitialisedVotes
            | Bug::FoundAlone
            | Bug::LosePiece
            | Bug::StaleSync
            | Bug::BeginAtOnce
            | Bug::AnswerAtOnce
            | Bug::RemovedCounts
            | Bug::Diverge => unreachable!("they take an ensemble"),
            Bug::NoDurableFile => unreachable!("it takes a world that loses pages"),
        }
    }
}
