//! Plays many worlds on several threads: those of a list, or new ones.
//!
//! A world belongs to one thread. The threads share nothing but the order in which worlds are taken. So the course of a
//! world depends on its kind and seed alone.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::play::{Kind, Outcome, WorldId};
use crate::trace::Tracing;
use crate::violation::Violation;
use crate::world::counts::Counts;

/// Longest time between two reports on progress.
pub const PROGRESS: Duration = Duration::from_secs(10);
/// Of so many worlds one is played twice, and must take the same course.
const TWICE_EVERY: u64 = 32;
/// How many kinds of new worlds are counted off. It has no common divisor with the numbers that divide the seed for
/// other draws.
const MIX: u64 = 11;

/// New worlds without end, mostly ensembles.
pub fn new_worlds(from: u64) -> impl Iterator<Item = WorldId> {
    let kind = |seed: u64| match seed % MIX {
        2 => Kind::Damaged,
        4 => Kind::Builds,
        5 => Kind::Alone,
        7 => Kind::LostPagesEnsemble,
        8 => Kind::Scarce,
        10 => Kind::LostPages,
        _ => Kind::Ensemble,
    };
    (from..).map(move |seed| WorldId { kind: kind(seed), seed })
}

/// Worlds; for a world that failed once, what it showed.
pub type List = BTreeMap<WorldId, Option<String>>;

/// Reads a list: a line each, `kind seed-or-range what it showed`. Lines of one world become one.
///
/// # Errors
/// The first malformed line, with its number.
pub fn parse_list(text: &str) -> Result<List, String> {
    let mut list = List::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let malformed = || format!("line {}: `{line}` is not `kind seed` or `kind from..to`", at + 1);
        let (kind, seeds, showed) = parse_line(line).ok_or_else(malformed)?;
        for seed in seeds {
            let known = list.entry(WorldId { kind, seed }).or_default();
            *known = known.take().or_else(|| showed.map(str::to_owned));
        }
    }
    Ok(list)
}

fn parse_line(line: &str) -> Option<(Kind, std::ops::Range<u64>, Option<&str>)> {
    let mut words = line.splitn(3, ' ');
    let kind = Kind::from_str(words.next()?, false).ok()?;
    let seeds = words.next()?;
    let range = match seeds.split_once("..") {
        Some((from, to)) => from.parse().ok()?..to.parse().ok()?,
        None => seeds.parse().ok()?..seeds.parse::<u64>().ok()?.checked_add(1)?,
    };
    Some((kind, range, words.next()))
}

#[derive(Debug, Default)]
pub struct Summary {
    pub passed: u64,
    pub failed: u64,
    /// Of worlds that passed.
    pub counts: BTreeMap<Kind, Counts>,
}

/// Plays worlds in order with `play` on so many threads. `report` is called for each world that fails, and every ten seconds.
/// The campaign ends with the last world, or at a failure for which `report` returns false.
pub fn play_all(
    worlds: impl Iterator<Item = WorldId> + Send,
    play: impl Fn(WorldId) -> Outcome + Sync,
    threads: usize,
    mut report: impl FnMut(&Summary, Option<(WorldId, &Violation)>) -> bool,
) -> Summary {
    let (worlds, is_over) = (Mutex::new(worlds), AtomicBool::new(false));
    let mut summary = Summary::default();
    std::thread::scope(|scope| {
        let (sender, outcomes) = channel();
        for _ in 0..threads.max(1) {
            let sender = sender.clone();
            let (worlds, play, is_over) = (&worlds, &play, &is_over);
            scope.spawn(move || {
                let next = || worlds.lock().unwrap_or_else(PoisonError::into_inner).next();
                while let Some(world) = next().filter(|_| !is_over.load(Ordering::Relaxed)) {
                    if sender.send((world, play(world))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut shown = Instant::now();
        loop {
            match outcomes.recv_timeout(PROGRESS.saturating_sub(shown.elapsed())) {
                Ok((world, Outcome { violation: Some(violation), .. })) => {
                    summary.failed += 1;
                    if !is_over.load(Ordering::Relaxed) && !report(&summary, Some((world, &violation))) {
                        is_over.store(true, Ordering::Relaxed);
                    }
                }
                Ok((world, outcome)) => {
                    summary.passed += 1;
                    summary.counts.entry(world.kind).or_default().add(&outcome.counts);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if shown.elapsed() >= PROGRESS {
                shown = Instant::now();
                report(&summary, None);
            }
        }
    });
    summary
}

/// Plays a world; a few are played twice.
pub fn play_checked(world: WorldId) -> Outcome {
    if world.seed % TWICE_EVERY != TWICE_EVERY - 1 {
        return world.play(None, Tracing::Nothing);
    }
    let mut outcome = world.play(None, Tracing::Hash);
    if outcome.violation.is_none() && world.play(None, Tracing::Hash) != outcome {
        outcome.violation = Some(Violation::of("determinism", "a second run took another course"));
    }
    outcome
}

/// Events that must happen in the listed worlds of a kind, and how often; without them the worlds prove little.
macro_rules! demands {
    ($($kind:ident { $($name:ident >= $least:literal),* })*) => {
        &[$($((Kind::$kind, stringify!($name), |counts| counts.$name, $least)),*),*]
    };
}

type Demand = (Kind, &'static str, fn(&Counts) -> u64, u64);

const DEMANDS: &[Demand] = demands! {
    Alone {
        operations >= 20, events >= 20, expiries >= 20, refused >= 20, crashes >= 20, stops >= 20, cuts >= 20,
        snapshots >= 20, failed_syncs >= 20, full_disks >= 20, replayed >= 20
    }
    Ensemble {
        operations >= 15, events >= 15, expiries >= 15, refused >= 15, crashes >= 15, stops >= 15, snapshots >= 15,
        failed_syncs >= 15, leaders >= 15, uncertain >= 15, broken_wires >= 15, installs >= 15, emptied >= 15, lists >= 15,
        moves >= 15
    }
    Damaged { distrusted >= 60, installs >= 60, emptied >= 5, found >= 12, passed_over >= 6, silenced >= 20 }
    Builds { too_costly >= 60, crashes >= 15, leaders >= 15, installs >= 15 }
    Scarce { growth_refused >= 60, snapshots >= 60, leaders >= 15, crashes >= 15 }
    LostPages { lost_pages >= 60, refused_logs >= 20 }
    LostPagesEnsemble { lost_pages >= 60, refused_logs >= 15 }
};

/// A line for each event that happened too seldom in the worlds of a list.
pub fn shortfalls(counts: &BTreeMap<Kind, Counts>) -> Vec<String> {
    let mut lines = Vec::new();
    for (kind, name, count, least) in DEMANDS {
        let count = counts.get(kind).map_or(0, count);
        if count < *least {
            lines.push(format!("{kind} worlds: {name} is {count}, at least {least} is wanted"));
        }
    }
    for (kind, counts) in counts {
        // Most losses are of pages that hold nothing that was acknowledged.
        if counts.lost_pages > 0 && counts.lost_pages < counts.refused_logs + 10 {
            lines.push(format!("{kind} worlds: of {} lost pages {} are seen", counts.lost_pages, counts.refused_logs));
        }
    }
    lines
}
