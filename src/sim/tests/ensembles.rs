//! Some ensembles with everything that can break, and the bugs that must be caught in them.

use corral_sim::{Bug, Counts, Outcome, Tracing, canaries, run_damaged_seed, run_ensemble_seed};

/// Ensembles run by this test; more with `CORRAL_SIM_SEEDS`.
const SEEDS: u64 = 100;

/// Seeds that once failed, with what they found.
const FAILED_ONCE: [(u64, &str); 29] = [
    (11, "a read that waited for the leader's word stood in front of a write that came back"),
    (298, "a sync that the end of a turn kept waiting stood in front of a write that came back"),
    (623, "no snapshot was taken in the middle of a joint change for a voter that was needed for its end"),
    (2_880, "a snapshot of its own failed while another's was taken over"),
    (3_006, "the simulated start did not sync the directory"),
    (3_186, "nobody ended a simulated process that died while giving its snapshot"),
    (3_201, "what was written while a snapshot was on its way was gone when it was there"),
    (3_780, "entries that waited for their append came behind a snapshot that holds them"),
    (10_271, "the simulated start did not sync the directory"),
    (20_991, "a disk was emptied while another server was about to leave"),
    (22_343, "a leader let one leave that remembered nothing, and was left with another such"),
    (22_940, "a snapshot of its own took the place of one taken over, at the same zxid"),
    (24_697, "the word that a snapshot was there was lost, and its giver waited for it for ever"),
    (27_040, "an emptied observer was waited for as if it were to vote"),
    (4_503, "a reconfig that was ordered before the end of another was forgotten with that"),
    (206_020, "a reconfig that waited was made before one that had been looked at, and was lost with that"),
    (450_037, "who was to be an observer got its vote back between the order and the list that says so"),
    (473_648, "a simulated server that had slept led for a moment, and all sessions were taken to begin anew with it"),
    (
        504_634,
        "a watch for what is to be created was taken to end with that on the children, which were told of a deletion",
    ),
    (527_639, "a session was given a full timeout whenever the reports of its server were late"),
    (532_250, "who had acknowledged two changes of the members forgot in a crash that the first was in force"),
    (
        1_795_356_794_517,
        "a snapshot came just before a crash, and the log went on behind it with what it had held instead",
    ),
    (
        1_795_358_127_313,
        "a simulated server that was still given the new leader's snapshot was taken to report its sessions",
    ),
    (311_895, "a simulated rename gave its name to an earlier file of the temporary name"),
    (
        234_181_779_682_147,
        "linearizable reads behind an answered sync that the end of a turn kept were not excused before a write came back",
    ),
    (75_023_782_874_895, "an attach that a leader with a slow disk had not applied was taken to be known to it"),
    (269_544_159_262_693, "a count of 967 znodes was taken to be made in one piece, and was made in two"),
    (76_650_881_692_734, "the vote of a founder whose disk was emptied counted when it was a founder again"),
    (9_001_464_421_460, "a multi that fits no entry of a small segment was taken for another command"),
];

/// The same of worlds in which servers find their states damaged.
const FAILED_ONCE_DAMAGED: [(u64, &str); 7] = [
    (16, "a snapshot of a state that had been replaced was written late, and taken for one of the present state"),
    (39, "all servers distrusted their states, and the leader gave its damaged snapshot again and again"),
    (
        18,
        "a server that could not stand for election counted a silent leader as its own for ever, and refused its vote to the others",
    ),
    (77, "a leader that did not trust its state could neither hand over nor give the others what they lacked"),
    (116, "the only server with a vote did not trust its state"),
    (278, "what others had asked for in a former life kept a leader from giving them entries"),
    (20_055, "a server that heals found no space for the snapshot, and never asked for it again"),
];

/// Worlds with damaged states run by default; more with `CORRAL_SIM_SEEDS`.
const DAMAGED_SEEDS: u64 = 120;
/// In these a server leads and gets nowhere, which one world of fifty shows.
const STUCK_SEEDS: [u64; 4] = [239, 312, 414, 425];

fn passes(seed: u64) -> Outcome {
    let outcome = run_ensemble_seed(seed, None, Tracing::Hash);
    assert_eq!(outcome.violation, None, "seed {seed}: run `cargo run -p corral-sim -- ensembles --trace {seed}`");
    outcome
}

#[test]
fn every_seed_passes() {
    let wanted = std::env::var("CORRAL_SIM_SEEDS").ok().and_then(|text| text.parse().ok());
    let mut total = Counts::default();
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
        ("snapshots", total.snapshots),
        ("failed syncs", total.failed_syncs),
        ("leaderships", total.leaders),
        ("connections with an unknown outcome", total.uncertain),
        ("broken links", total.broken_wires),
        ("snapshots taken over", total.installs),
        ("emptied disks", total.emptied),
        ("membership changes", total.lists),
    ] {
        assert!(count >= 15, "{what}: {count}");
    }
}

fn heals(seed: u64) -> Outcome {
    let outcome = run_damaged_seed(seed, Tracing::Hash);
    assert_eq!(outcome.violation, None, "seed {seed}: run `cargo run -p corral-sim -- damaged --trace {seed}`");
    outcome
}

#[test]
fn servers_whose_states_are_damaged_heal() {
    let wanted = std::env::var("CORRAL_SIM_SEEDS").ok().and_then(|text| text.parse().ok());
    let mut total = Counts::default();
    for seed in (0..wanted.unwrap_or(DAMAGED_SEEDS)).chain(STUCK_SEEDS) {
        total.add(&heals(seed).counts);
    }
    assert!(total.distrusted > DAMAGED_SEEDS && total.installs > total.distrusted / 2, "too little: {total:?}");
    assert!(total.emptied > 15 && total.stuck > 0, "too little: {total:?}");
    assert!(total.found > 20 && total.passed_over > 10, "too few damaged snapshots: {total:?}");
}

#[test]
fn seeds_that_failed_once_pass() {
    for (seed, found) in FAILED_ONCE {
        println!("seed {seed}: {found}");
        passes(seed);
    }
    for (seed, found) in FAILED_ONCE_DAMAGED {
        println!("seed {seed}, with damaged states: {found}");
        heals(seed);
    }
}

#[test]
fn a_seed_tells_the_same_story() {
    for seed in 1_000..1_010 {
        let (first, second) = (passes(seed), passes(seed));
        assert_eq!(first, second, "seed {seed}");
        assert!(first.events > 0);
    }
}

#[test]
fn every_bug_is_caught() {
    for bug in Bug::OF_ENSEMBLES {
        let found = canaries::hunt(run_ensemble_seed, bug).map(|caught| caught.property);
        let right = match bug {
            Bug::VoteTwice => found == Some("elections"),
            Bug::FoundAlone => matches!(found, Some("elections" | "members" | "writes" | "logs")),
            Bug::Diverge => found == Some("digests"),
            Bug::DropEvent => found == Some("watches"),
            Bug::EarlyRead | Bug::StaleSync => found == Some("reads"),
            Bug::ExpireEarly | Bug::HearAnybody => found == Some("sessions"),
            Bug::BeginAtOnce | Bug::LosePiece => found == Some("liveness"),
            Bug::SkipMajority => found == Some("members"),
            Bug::RemovedCounts => matches!(found, Some("members" | "liveness")),
            Bug::AnswerAtOnce => matches!(found, Some("members" | "assertion")),
            _ => found.is_some(),
        };
        assert!(right, "{bug:?}: {found:?}");
    }
}
