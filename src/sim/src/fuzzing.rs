//! `corral-sim fuzz`: runs fuzz targets over inputs made from a seed, prints figures and the first input that fails.

use std::time::Instant;

use corral_sim::fuzz::runner::{self, Corpus, campaign, from_hex, parse_corpus, to_hex};
use corral_sim::fuzz::{TARGETS, Target};

use crate::say;

/// How to call it.
pub(crate) const USAGE: &str =
    "       corral-sim fuzz --target NAME|all [--inputs N | --times N] [--seed S] [--corpus FILE]
       corral-sim fuzz --target NAME --replay HEX";

struct Options<'a> {
    target: &'a str,
    inputs: Option<u64>,
    /// So many times the inputs of a short run.
    times: u64,
    seed: u64,
    corpus: Corpus,
    replay: Option<Vec<u8>>,
}

/// Runs what the words ask for. `None` if they make no sense, otherwise whether all went well.
pub(crate) fn run(words: &[&str]) -> Option<bool> {
    let options = parse(words)?;
    let chosen: Vec<&Target> =
        TARGETS.iter().filter(|target| options.target == "all" || options.target == target.name).collect();
    if chosen.is_empty() {
        return None;
    }
    assert!(runner::is_counted(), "the counting allocator is installed in this program");
    print_input_on_panic();
    if let Some(input) = &options.replay {
        return Some(chosen.iter().all(|target| replay(target, input)));
    }
    Some(chosen.iter().all(|target| run_target(target, &options)))
}

fn parse<'a>(words: &[&'a str]) -> Option<Options<'a>> {
    let mut options = Options { target: "all", inputs: None, times: 1, seed: 0, corpus: Corpus::new(), replay: None };
    for pair in words.chunks(2) {
        match *pair {
            ["--target", name] => options.target = name,
            ["--inputs", count] => options.inputs = Some(count.parse().ok()?),
            ["--times", count] => options.times = count.parse().ok()?,
            ["--seed", seed] => options.seed = seed.parse().ok()?,
            ["--replay", hex] => options.replay = Some(from_hex(hex)?),
            ["--corpus", file] => match std::fs::read_to_string(file).map_err(|error| error.to_string()) {
                Ok(text) => options.corpus = parse_corpus(&text).inspect_err(|error| say(error)).ok()?,
                Err(error) => {
                    say(&format!("{file}: {error}"));
                    return None;
                }
            },
            _ => return None,
        }
    }
    Some(options)
}

fn run_target(target: &Target, options: &Options<'_>) -> bool {
    let started = Instant::now();
    let corpus = options.corpus.get(target.name).map_or(&[][..], Vec::as_slice);
    let inputs = options.inputs.unwrap_or(target.inputs_quick * options.times);
    match campaign(target, corpus, inputs, options.seed) {
        Ok(done) => {
            let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
            let tally = done.tally;
            say(&format!(
                "ok   {:8} seed {}: {} inputs ({} of the corpus), {} bytes, {} a second; {} accepted, {} refused, {} events, \
                 {} closed; at most {} bytes held, for an input of {}, {} allowed",
                target.name,
                options.seed,
                done.inputs,
                corpus.len(),
                done.bytes,
                done.inputs * 1000 / ms,
                tally.accepted,
                tally.refused,
                tally.events,
                tally.closed,
                done.peak.0,
                done.peak.1,
                target.memory_max(done.peak.1),
            ));
            true
        }
        Err(failure) => {
            say(&format!("FAIL {} seed {}: {}", target.name, options.seed, failure.reason));
            say(&format!(
                "     after {} inputs; shrunk to {} bytes, run again with",
                failure.inputs,
                failure.input.len()
            ));
            say(&format!("     corral-sim fuzz --target {} --replay {}", target.name, to_hex(&failure.input)));
            false
        }
    }
}

fn replay(target: &Target, input: &[u8]) -> bool {
    match target.run(input) {
        Ok((tally, peak)) => say(&format!("ok   {}: {tally:?}, {peak} bytes held", target.name)),
        Err(violation) => {
            say(&format!("FAIL {}: {violation}", target.name));
            return false;
        }
    }
    true
}

/// Where a panic aborts, this is the last chance to say which input it was.
fn print_input_on_panic() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        say(&format!("panicked at input {}", to_hex(&runner::current())));
        usual(info);
    }));
}
