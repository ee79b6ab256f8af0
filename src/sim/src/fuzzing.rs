//! `corral-sim fuzz`: runs fuzz targets over inputs made from a seed, prints figures and the first input that fails.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use corral_sim::fuzz::memory::is_counted;
use corral_sim::fuzz::runner::{Corpus, Summary, campaign, from_hex, parse_corpus, to_hex};
use corral_sim::fuzz::{TARGETS, Target};

use crate::console::{clock_seed, say};

/// The share of a short run's inputs that a target gets in one turn.
const TURN: u64 = 10;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// One target, or `all`
    #[arg(long, default_value = "all")]
    target: String,
    /// The first seed
    #[arg(long, default_value_t = clock_seed())]
    seed: u64,
    /// Seconds after which no target begins; each has one turn in any case
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 60)]
    seconds: u64,
    /// Inputs to begin with: a line each, target and hexadecimal digits
    #[arg(long)]
    corpus: Option<PathBuf>,
    /// Runs this input alone, in hexadecimal digits
    #[arg(long, value_name = "HEX")]
    replay: Option<String>,
}

/// Whether everything passed.
///
/// # Errors
/// An option that cannot be used.
pub(crate) fn run(options: &Options) -> Result<bool, String> {
    assert!(is_counted(), "the counting allocator is installed in this program");
    let is_chosen = |target: &&Target| options.target == "all" || options.target == target.name;
    let targets: Vec<&Target> = TARGETS.iter().filter(is_chosen).collect();
    if targets.is_empty() {
        let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        return Err(format!("there is no target {}; there are all, {}", options.target, names.join(", ")));
    }
    if let Some(hex) = &options.replay {
        let input = from_hex(hex).ok_or("the input is not hexadecimal")?;
        return Ok(targets.iter().all(|target| replay(target, &input)));
    }
    let mut corpus = match &options.corpus {
        Some(file) => {
            let text = std::fs::read_to_string(file).map_err(|error| error.to_string());
            let corpus = text.and_then(|text| parse_corpus(&text));
            let corpus = corpus.map_err(|error| format!("{}: {error}", file.display()))?;
            let is_known = |name: &&String| TARGETS.iter().any(|target| target.name == **name);
            if corpus.is_empty() || !corpus.keys().all(|name| is_known(&name)) {
                return Err(format!("{}: no input, or one of no target", file.display()));
            }
            corpus
        }
        None => Corpus::new(),
    };
    let begun = Instant::now();
    say(&format!("seeds from {} on", options.seed));
    let (mut turns, mut seed) = (0, options.seed);
    while turns < targets.len() || begun.elapsed() < Duration::from_secs(options.seconds) {
        let target = targets[turns % targets.len()];
        // The corpus comes first, and once.
        let known = corpus.remove(target.name).unwrap_or_default();
        if !run_target(target, &known, seed) {
            return Ok(false);
        }
        turns += 1;
        seed += u64::from(turns.is_multiple_of(targets.len()));
    }
    say(&format!("{turns} turns of {} targets in {} s", targets.len(), begun.elapsed().as_secs()));
    Ok(true)
}

fn run_target(target: &Target, corpus: &[Vec<u8>], seed: u64) -> bool {
    let started = Instant::now();
    match campaign(target, corpus, corpus.len() as u64 + target.inputs_quick / TURN, seed) {
        Ok(done) => {
            let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
            let (Summary { inputs, bytes, tally, peak: (held, of) }, known) = (done, corpus.len());
            let (name, rate, allowed) = (target.name, inputs * 1000 / ms, target.memory_max(of));
            say(&format!(
                "ok   {name:9} seed {seed}: {inputs} inputs ({known} of the corpus), {bytes} bytes, {rate} a second; {tally:?}; \
                 at most {held} bytes held, for an input of {of}, {allowed} allowed"
            ));
            true
        }
        Err(failure) => {
            say(&format!("FAIL {} seed {seed}: {}", target.name, failure.reason));
            let (inputs, bytes) = (failure.inputs, failure.input.len());
            say(&format!(
                "     after {inputs} inputs; shortened to {bytes} bytes. To keep it, add to tests/fuzz/corpus.txt:"
            ));
            let (name, hex) = (target.name, to_hex(&failure.input));
            say(&format!("{name} {hex}"));
            say(&format!("repeat: cargo run --profile ci -p corral-sim -- fuzz --target {name} --replay {hex}"));
            false
        }
    }
}

fn replay(target: &Target, input: &[u8]) -> bool {
    let done = target.run(input);
    match &done {
        Ok((tally, peak)) => say(&format!("ok   {}: {tally:?}, {peak} bytes held", target.name)),
        Err(violation) => say(&format!("FAIL {}: {violation}", target.name)),
    }
    done.is_ok()
}
