//! A few hundred worlds, the seeds that failed once, and that a seed always tells the same story.

use corral_sim::{Outcome, Tracing, run_seed};

/// Worlds run by this test; more with `CORRAL_SIM_SEEDS`.
const SEEDS: u64 = 300;

fn passes(seed: u64) -> Outcome {
    let outcome = run_seed(seed, None, Tracing::Hash);
    assert_eq!(outcome.violation, None, "seed {seed}: run `cargo run -p corral-sim -- --trace {seed}`");
    outcome
}

#[test]
fn every_seed_passes() {
    let wanted = std::env::var("CORRAL_SIM_SEEDS").ok().and_then(|text| text.parse().ok());
    let mut total = corral_sim::Counts::default();
    for seed in 0..wanted.unwrap_or(SEEDS) {
        total.add(&passes(seed).counts);
    }
    // The worlds are worth something only if all this happened in them.
    for (what, count) in [
        ("operations", total.operations),
        ("events", total.events),
        ("expiries", total.expiries),
        ("attaches refused at once", total.refused),
        ("crashes", total.crashes),
        ("stops", total.stops),
        ("cuts", total.cuts),
        ("snapshots", total.snapshots),
        ("failed syncs", total.failed_syncs),
        ("full disks", total.full_disks),
        ("replayed entries", total.replayed),
    ] {
        assert!(count >= 20, "{what}: {count}");
    }
}

#[test]
fn a_seed_tells_the_same_story() {
    for seed in 1_000..1_030 {
        let (first, second) = (passes(seed), passes(seed));
        assert_eq!(first, second, "seed {seed}");
        assert!(first.events > 0);
    }
    assert_ne!(passes(1_000).trace_hash, passes(1_001).trace_hash);
}

#[test]
fn seeds_that_failed_once_pass() {
    let seeds = include_str!("../regressions.txt").lines().filter(|line| !line.starts_with('#'));
    let mut count = 0;
    for line in seeds {
        let seed = line.split(' ').next().and_then(|word| word.parse().ok());
        passes(seed.unwrap_or_else(|| panic!("{line:?} begins with no seed")));
        count += 1;
    }
    assert!(count > 0, "the list is not empty");
}
