//! Worlds in which a page of the log is lost whenever a process was killed, alone and in ensembles: nothing that was acknowledged
//! is missing, no vote is forgotten, and no log that is whole is refused.

use corral_sim::canaries::{self, Seed};
use corral_sim::{Bug, Counts, Tracing, run_lost_pages_ensemble_seed, run_lost_pages_seed};

/// Worlds run of each kind; more with `CORRAL_SIM_SEEDS`.
const SEEDS: u64 = 120;

fn all_pass(of: Seed, divisor: u64) {
    let wanted = std::env::var("CORRAL_SIM_SEEDS").ok().and_then(|text| text.parse().ok());
    let mut total = Counts::default();
    for seed in 0..wanted.unwrap_or(SEEDS / divisor) {
        let outcome = of(seed, None, Tracing::Nothing);
        assert_eq!(outcome.violation, None, "seed {seed}");
        total.add(&outcome.counts);
    }
    let enough = total.lost_pages >= 100 && total.refused_logs >= 40 && total.lost_pages > total.refused_logs + 20;
    assert!(enough, "{} pages lost, {} logs refused", total.lost_pages, total.refused_logs);
}

#[test]
fn a_server_alone_loses_pages() {
    all_pass(run_lost_pages_seed, 1);
}

#[test]
fn servers_of_an_ensemble_lose_pages() {
    all_pass(run_lost_pages_ensemble_seed, 2);
}

#[test]
fn without_the_file_of_the_durable_point_a_loss_is_seen() {
    let caught = canaries::hunt(run_lost_pages_seed, Bug::NoDurableFile);
    assert!(caught.is_some(), "the checkers miss it");
}
