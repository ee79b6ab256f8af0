//! `corral-sim --seeds 0..1000`: runs seeds, prints what they did, stops at the first that fails. `--replay` runs each seed
//! twice and compares the traces; `--trace SEED` prints one. With `ensembles` in front the seeds are those of ensembles.
//! `canaries` puts bugs in on purpose and tells who saw them. `fuzz` runs the fuzz targets, see `fuzzing`.

mod fuzzing;

use std::io::Write as _;
use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

use corral_sim::canaries::{Seed, hunt};
use corral_sim::limits::TRACE_LINES;
use corral_sim::{Bug, Counts, Outcome, run_ensemble_seed, run_seed};

/// The fuzz targets measure what an input makes them hold.
#[global_allocator]
static ALLOCATOR: corral_sim::fuzz::memory::Counting = corral_sim::fuzz::memory::Counting;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (of, rest): (Seed, &[&str]) = match words.as_slice() {
        ["ensembles", rest @ ..] => (run_ensemble_seed as Seed, rest),
        rest => (run_seed as Seed, rest),
    };
    let done = match rest {
        ["--seeds", range] => range_of(range).map(|seeds| run(of, seeds, false)),
        ["--replay", range] => range_of(range).map(|seeds| run(of, seeds, true)),
        ["--trace", seed] => seed.parse().ok().map(|seed| trace(of, seed)),
        ["canaries"] => Some(canaries()),
        ["fuzz", options @ ..] => fuzzing::run(options),
        _ => None,
    };
    match done {
        Some(true) => ExitCode::SUCCESS,
        Some(false) => ExitCode::FAILURE,
        None => {
            say("usage: corral-sim [ensembles] --seeds FROM..TO | --replay FROM..TO | --trace SEED");
            say("       corral-sim canaries");
            say(fuzzing::USAGE);
            ExitCode::from(2)
        }
    }
}

fn range_of(text: &str) -> Option<Range<u64>> {
    let (from, to) = text.split_once("..")?;
    Some(from.parse().ok()?..to.parse().ok()?)
}

fn say(text: &str) {
    // A closed pipe ends the run in its own way.
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn run(of: Seed, seeds: Range<u64>, replay: bool) -> bool {
    let started = Instant::now();
    let mut total = Counts::default();
    let mut ran = 0_u64;
    for seed in seeds {
        let failed_in = PanicNote::of(seed);
        let outcome = of(seed, None, false);
        drop(failed_in);
        if outcome.violation.is_some() {
            report(seed, &of(seed, None, true), TRACE_LINES);
            return false;
        }
        if replay && of(seed, None, false).trace_hash != outcome.trace_hash {
            say(&format!("seed {seed}, commit {}: FAILED: a second run took another course", commit()));
            return false;
        }
        total.add(&outcome.counts);
        ran += 1;
    }
    let how = if replay { " twice, each with one trace," } else { "" };
    say(&format!("{ran} seeds{how} in {} ms", started.elapsed().as_millis()));
    say(&format!("{total:#?}"));
    true
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
    let note = PanicNote::of(seed);
    let outcome = of(seed, None, true);
    drop(note);
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

/// Says which seed it was, should the run panic.
struct PanicNote;

impl PanicNote {
    fn of(seed: u64) -> PanicNote {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            say(&format!("seed {seed}, commit {}: panicked", commit()));
            usual(info);
        }));
        PanicNote
    }
}

impl Drop for PanicNote {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            drop(std::panic::take_hook());
        }
    }
}
