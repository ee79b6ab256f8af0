//! `corral-sim --seeds 0..1000`: runs seeds, prints what they did, stops at the first that fails (`campaign`). `--replay` runs
//! each seed twice and compares the traces; `--trace SEED` prints one. With `ensembles` in front the seeds are those of ensembles,
//! with `damaged` those of ensembles whose servers find their states damaged.
//! `canaries` puts bugs in on purpose and tells who saw them. `fuzz` runs the fuzz targets, see `fuzzing`.

mod campaign;
mod costing;
mod fuzzing;

use std::io::Write as _;
use std::process::ExitCode;

use corral_sim::canaries::{Seed, hunt};
use corral_sim::{Bug, Outcome, Tracing, run_damaged_seed, run_ensemble_seed, run_seed};

/// The fuzz targets measure what an input makes them hold.
#[global_allocator]
static ALLOCATOR: corral_sim::fuzz::memory::Counting = corral_sim::fuzz::memory::Counting;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (of, rest): (Seed, &[&str]) = match words.as_slice() {
        ["ensembles", rest @ ..] => (run_ensemble_seed as Seed, rest),
        ["damaged", rest @ ..] => (damaged as Seed, rest),
        rest => (run_seed as Seed, rest),
    };
    let done = match rest {
        ["--seeds" | "--replay", ..] => campaign::parse(rest).map(|campaign| campaign.run(of)),
        ["--trace", seed] => seed.parse().ok().map(|seed| trace(of, seed)),
        ["canaries"] => Some(canaries()),
        ["fuzz", options @ ..] => fuzzing::run(options),
        ["costs", options @ ..] => costing::run(options),
        _ => None,
    };
    match done {
        Some(true) => ExitCode::SUCCESS,
        Some(false) => ExitCode::FAILURE,
        None => {
            say(campaign::USAGE);
            say("       corral-sim canaries");
            say(fuzzing::USAGE);
            say(costing::USAGE);
            ExitCode::from(2)
        }
    }
}

fn damaged(seed: u64, _: Option<Bug>, tracing: Tracing) -> Outcome {
    run_damaged_seed(seed, tracing)
}

fn say(text: &str) {
    // A closed pipe ends the run in its own way.
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// A table of who saw each bug, and at which seed. Whether all were seen.
fn canaries() -> bool {
    if cfg!(panic = "abort") {
        say(
            "a bug may be seen by an assertion, which ends this build: run `cargo run --profile ci -p corral-sim -- canaries`",
        );
        return false;
    }
    std::panic::set_hook(Box::new(|_| ()));
    let mut all = true;
    for (title, of, bugs) in [
        ("a server alone", run_seed as Seed, Bug::ALL.as_slice()),
        ("ensembles", run_ensemble_seed as Seed, Bug::OF_ENSEMBLES.as_slice()),
    ] {
        say(&format!("| in {title} | seen by | at seed |\n|---|---|---|"));
        for bug in bugs {
            match hunt(of, *bug) {
                Some(caught) => say(&format!("| {bug:?} | {} | {} |", caught.property, caught.seed)),
                None => {
                    all = false;
                    say(&format!("| {bug:?} | nobody | |"));
                }
            }
        }
    }
    all
}

fn trace(of: Seed, seed: u64) -> bool {
    campaign::tell_panics();
    campaign::begins(seed);
    let outcome = of(seed, None, Tracing::HashAndLines);
    report(seed, &outcome, usize::MAX);
    outcome.violation.is_none()
}

fn report(seed: u64, outcome: &Outcome, lines: usize) {
    let from = outcome.lines.len().saturating_sub(lines);
    for line in &outcome.lines[from..] {
        say(line);
    }
    say(&format!("seed {seed}, commit {}, trace {:016x}", commit(), outcome.trace_hash));
    match &outcome.violation {
        Some(violation) => say(&format!("FAILED: {violation}")),
        None => say(&format!("passed: {:?}", outcome.counts)),
    }
}

fn commit() -> String {
    let asked = std::process::Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    asked
        .ok()
        .and_then(|out| String::from_utf8(out.stdout).ok())
        .map_or_else(String::new, |text| text.trim().to_owned())
}
