//! The program `corral-sim`: plays simulated worlds, runs the fuzz targets, and makes the table of costs.

mod console;
mod costing;
mod fuzzing;

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use corral_sim::campaign::{self, List, Summary};
use corral_sim::fuzz::runner::{current, to_hex};
use corral_sim::limits::TRACE_LINES;
use corral_sim::{Bug, Kind, Tracing, Violation, WorldId};

use crate::console::{clock_seed, commit, say};

/// The fuzz targets measure what an input makes them hold.
#[global_allocator]
static ALLOCATOR: corral_sim::fuzz::memory::Counting = corral_sim::fuzz::memory::Counting;

/// Plays simulated worlds, runs fuzz targets, measures what requests cost. Exit code 0: passed, 1: something failed.
#[derive(Parser)]
enum Command {
    /// Plays the worlds of a list; fails if a world fails or an expected event is too rare
    Worlds {
        /// The list: a line each with kind, seed or range, and the earlier findings of the world
        file: PathBuf,
        #[arg(long, default_value_t = cores())]
        threads: usize,
    },
    /// Plays one world and prints its trace
    World {
        kind: Kind,
        seed: u64,
        /// A bug put in on purpose
        #[arg(long)]
        bug: Option<Bug>,
    },
    /// Plays new worlds, mostly ensembles, until the time is over or one fails
    Seeds {
        /// The first seed
        #[arg(long, default_value_t = clock_seed())]
        seed: u64,
        /// Seconds after which no world begins
        #[arg(long = "for", value_name = "SECONDS", default_value_t = 60)]
        seconds: u64,
        #[arg(long, default_value_t = cores())]
        threads: usize,
    },
    /// Runs fuzz targets over inputs made from a seed, in turn, until the time is over or one fails
    Fuzz(fuzzing::Options),
    /// Measures the dearest known request of each operation; exit code 1 if a ceiling is broken
    Costs(costing::Options),
}

fn main() -> ExitCode {
    tell_panics();
    let passed = match Command::parse() {
        Command::Worlds { file, threads } => worlds(&file, threads),
        Command::World { kind, seed, bug } => world(WorldId { kind, seed }, bug),
        Command::Seeds { seed, seconds, threads } => seeds(seed, Duration::from_secs(seconds), threads),
        Command::Fuzz(options) => fuzzing::run(&options),
        Command::Costs(options) => Ok(costing::run(&options)),
    };
    match passed {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "corral-sim: {error}");
            ExitCode::from(2)
        }
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Where a panic aborts, the hook is the last chance to print which world or input it was.
fn tell_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let input = to_hex(&current());
        match corral_sim::played() {
            Some(world) => say(&format!("panicked in world {world}; {}", repeat(world))),
            None if !input.is_empty() => say(&format!("panicked at input {input}")),
            None => {}
        }
        usual(info);
    }));
}

fn repeat(world: WorldId) -> String {
    format!("repeat: cargo run --profile ci -p corral-sim -- world {world}")
}

struct Printer {
    list: List,
    begun: Instant,
    /// The campaign ends at the first failure, with the last lines of its trace.
    is_search: bool,
}

impl Printer {
    fn rate(&self, played: u64) -> String {
        let ms = self.begun.elapsed().as_millis().max(1);
        format!("{} s, {} a second", ms / 1000, u128::from(played) * 1000 / ms)
    }

    fn play(&self, worlds: impl Iterator<Item = WorldId> + Send, threads: usize) -> Summary {
        let report = |so_far: &Summary, failed: Option<(WorldId, &Violation)>| self.report(so_far, failed);
        let summary = campaign::play_all(worlds, campaign::play_checked, threads, report);
        for (kind, counts) in &summary.counts {
            say(&format!("{kind}: {counts:?}"));
        }
        let played = summary.passed + summary.failed;
        say(&format!("{played} worlds in {}", self.rate(played)));
        summary
    }

    /// Prints the progress, or the failure of a world. True if the campaign goes on.
    fn report(&self, summary: &Summary, failed: Option<(WorldId, &Violation)>) -> bool {
        let Some((world, violation)) = failed else {
            let of = if self.is_search { String::new() } else { format!(" of {}", self.list.len()) };
            let (played, failed) = (summary.passed + summary.failed, summary.failed);
            say(&format!("{played}{of} worlds, {failed} failed, {}", self.rate(played)));
            return true;
        };
        if self.is_search {
            let lines = world.play(None, Tracing::HashAndLines).lines;
            lines[lines.len().saturating_sub(TRACE_LINES)..].iter().for_each(|line| say(line));
        }
        say(&format!("FAIL {world}: {violation}"));
        if let Some(Some(showed)) = self.list.get(&world) {
            say(&format!("     it once showed: {showed}"));
        }
        say(&format!("     {} (commit {})", repeat(world), commit()));
        !self.is_search
    }
}

fn worlds(file: &PathBuf, threads: usize) -> Result<bool, String> {
    let told = |error: String| format!("{}: {error}", file.display());
    let text = fs::read_to_string(file).map_err(|error| told(error.to_string()))?;
    let list = campaign::parse_list(&text).map_err(told)?;
    let worlds: Vec<WorldId> = list.keys().copied().collect();
    let printer = Printer { list, begun: Instant::now(), is_search: false };
    let summary = printer.play(worlds.into_iter(), threads);
    let shortfalls = campaign::shortfalls(&summary.counts);
    shortfalls.iter().for_each(|line| say(&format!("FAIL {line}")));
    let failed = summary.failed + shortfalls.len() as u64;
    say(&format!("{} passed, {failed} failed, 0 skipped", summary.passed));
    Ok(failed == 0)
}

fn seeds(from: u64, time: Duration, threads: usize) -> Result<bool, String> {
    say(&format!("seeds from {from} on, commit {}", commit()));
    let printer = Printer { list: List::new(), begun: Instant::now(), is_search: true };
    let begun = printer.begun;
    let worlds = campaign::new_worlds(from).take_while(|_| begun.elapsed() < time);
    let summary = printer.play(worlds, threads);
    say(&format!("{} passed, {} failed, 0 skipped", summary.passed, summary.failed));
    Ok(summary.failed == 0)
}

fn world(world: WorldId, bug: Option<Bug>) -> Result<bool, String> {
    let outcome = world.play(bug, Tracing::HashAndLines);
    outcome.lines.iter().for_each(|line| say(line));
    say(&format!("{world}, commit {}, trace {:016x}", commit(), outcome.trace_hash));
    match &outcome.violation {
        Some(violation) => say(&format!("FAILED: {violation}")),
        None => say(&format!("passed: {:?}", outcome.counts)),
    }
    Ok(outcome.violation.is_none())
}
