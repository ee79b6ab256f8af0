//! Ensembles of one, three and five under seeded faults: one order of entries everywhere, nothing acknowledged lost.
//!
//! A failing seed is printed; put it into `REGRESSIONS`.

use std::io::Write;

use crate::net::{self, Faults, Net};

/// Seeds per size in the ordinary run.
const SEEDS: u64 = 200;
/// Steps of trouble before the network is healed.
const STEPS: u64 = 700;
/// Steps after which a healed ensemble must be whole.
const SETTLE_STEPS: u64 = 5000;

/// Seeds that once failed, with the number of voters.
const REGRESSIONS: &[(u64, u64)] = &[];

/// Names the seed when a run fails.
struct Told(u64, u64);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Nothing can be done about a closed stream.
            let _ = writeln!(std::io::stderr(), "failing seed: {} with {} voters", self.0, self.1);
        }
    }
}

fn run(seed: u64, voters: u64, learners: u64, change: impl Fn(&mut Faults)) -> Net {
    let _told = Told(seed, voters);
    let mut faults = Faults::drawn(&mut net::random(!seed));
    change(&mut faults);
    let mut net = Net::new(seed, voters, learners, faults);
    net.run(STEPS);
    net.settle(SETTLE_STEPS);
    net
}

fn many(voters: u64, learners: u64, change: impl Fn(&mut Faults)) -> (usize, usize, usize, usize) {
    let mut sums = (0, 0, 0, 0);
    for seed in net::seeds(SEEDS) {
        let net = run(seed, voters, learners, &change);
        sums.0 += net.committed.len();
        sums.1 += net.reads_answered;
        sums.2 += net.installs;
        sums.3 += net.transfers;
    }
    sums
}

#[test]
fn one_server() {
    let (committed, reads, ..) = many(1, 0, |_| {});
    assert!(committed > 5000 && reads > 500, "the run did too little: {committed} {reads}");
}

#[test]
fn one_voter_and_a_learner() {
    let (committed, _, installs, _) = many(1, 1, |_| {});
    assert!(committed > 5000 && installs > 10, "the run did too little: {committed} {installs}");
}

#[test]
fn three_servers() {
    let (committed, reads, installs, transfers) = many(3, 0, |_| {});
    assert!(committed > 3000 && reads > 300 && installs > 3 && transfers > 10, "the run did too little");
}

#[test]
fn five_servers() {
    let (committed, reads, installs, transfers) = many(5, 0, |_| {});
    assert!(committed > 3000 && reads > 300 && installs > 3 && transfers > 10, "the run did too little");
}

#[test]
fn membership_changes() {
    let mut applied = 0;
    for seed in net::seeds(SEEDS) {
        applied += run(seed, 3, 2, |faults| faults.conf_changes = true).conf_applied;
    }
    assert!(applied > 500, "the run did too little: {applied}");
}

#[test]
fn entries_larger_than_what_is_kept_for_followers() {
    let mut installs = 0;
    for seed in 0..20 {
        installs += run(seed, 3, 0, |faults| faults.big_entries = true).installs;
    }
    assert!(installs > 0, "nobody needed a snapshot");
}

#[test]
fn seeds_that_once_failed() {
    for (seed, voters) in REGRESSIONS {
        run(*seed, *voters, 0, |_| {});
    }
}

#[test]
fn equal_seeds_replay_exactly() {
    let mut traces = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let traced = |changes: bool| run(seed, 3, 2, |faults| faults.conf_changes = changes).trace;
        for changes in [false, true] {
            assert_eq!(traced(changes), traced(changes), "seed {seed}");
            traces.insert(traced(changes));
        }
    }
    assert!(traces.len() >= 39, "different seeds give different traces");
}
