//! Many seeds, on one thread or several: tells how far it is, and stops at the first that fails.
//!
//! Part of the program `corral-sim`. A seed is one world on one thread; the threads share nothing but the number of the next
//! seed, so that what a seed does depends on nothing but the seed.

use std::cell::Cell;
use std::io::Write as _;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use corral_sim::canaries::Seed;
use corral_sim::limits::TRACE_LINES;
use corral_sim::{Counts, Tracing};

use crate::{commit, report, say};

/// How it is called.
pub(crate) const USAGE: &str =
    "usage: corral-sim [ensembles | damaged] --seeds FROM..TO | --replay FROM..TO [--threads N] [--for SECONDS]
       corral-sim [ensembles | damaged] --trace SEED";

/// Between two words on how far it is.
const PROGRESS: Duration = Duration::from_secs(15);

thread_local! {
    static SEED: Cell<u64> = const { Cell::new(0) };
}

/// See the module.
pub(crate) struct Campaign {
    seeds: Range<u64>,
    /// Each seed runs twice and must take the same course.
    replay: bool,
    threads: usize,
    /// No seed begins after this.
    time: Option<Duration>,
}

/// Dropped by a thread that panics: no seed begins any more.
struct EndsAll<'a>(&'a AtomicBool);

impl Drop for EndsAll<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// What a thread tells of a seed.
enum Told {
    Passed(Box<Counts>),
    Failed(u64),
    AnotherCourse(u64),
}

/// `None` where the words say nothing that this program knows.
pub(crate) fn parse(words: &[&str]) -> Option<Campaign> {
    let [how, range, options @ ..] = words else { return None };
    let (from, to) = range.split_once("..")?;
    let mut campaign =
        Campaign { seeds: from.parse().ok()?..to.parse().ok()?, replay: *how == "--replay", threads: 1, time: None };
    for option in options.chunks(2) {
        match option {
            ["--threads", count] => campaign.threads = count.parse().ok().filter(|count| (1..=1024).contains(count))?,
            ["--for", seconds] => campaign.time = Some(Duration::from_secs(seconds.parse().ok()?)),
            _ => return None,
        }
    }
    Some(campaign)
}

impl Campaign {
    /// Whether all seeds passed.
    pub(crate) fn run(&self, of: Seed) -> bool {
        tell_panics();
        let started = Instant::now();
        let (next, over) = (AtomicU64::new(self.seeds.start), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let (told, hears) = channel();
            for _ in 0..self.threads {
                let told = told.clone();
                let (next, over) = (&next, &over);
                scope.spawn(move || self.work(of, next, over, &told));
            }
            drop(told);
            let (mut total, mut ran, mut passed) = (Counts::default(), 0_u64, true);
            let mut shown = started;
            loop {
                match hears.recv_timeout(PROGRESS.saturating_sub(shown.elapsed())) {
                    Ok(Told::Passed(counts)) => {
                        total.add(&counts);
                        ran += 1;
                    }
                    Ok(failed) => {
                        over.store(true, Ordering::Relaxed);
                        if std::mem::take(&mut passed) {
                            show(of, &failed);
                        }
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
                over.fetch_or(self.time.is_some_and(|time| started.elapsed() >= time), Ordering::Relaxed);
                if shown.elapsed() >= PROGRESS {
                    shown = Instant::now();
                    self.show_progress(ran, started.elapsed());
                }
            }
            let how = if self.replay { " twice, each with one trace," } else { "" };
            say(&format!("{ran} seeds{how} in {} ms", started.elapsed().as_millis()));
            say(&format!("{total:#?}"));
            passed
        })
    }

    /// One thread's part.
    fn work(&self, of: Seed, next: &AtomicU64, over: &AtomicBool, told: &Sender<Told>) {
        let _ends_all = EndsAll(over);
        while !over.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= self.seeds.end {
                return;
            }
            begins(seed);
            let tracing = if self.replay { Tracing::Hash } else { Tracing::Nothing };
            let outcome = of(seed, None, tracing);
            let tells = match () {
                () if outcome.violation.is_some() => Told::Failed(seed),
                () if self.replay && of(seed, None, tracing).trace_hash != outcome.trace_hash => {
                    Told::AnotherCourse(seed)
                }
                () => Told::Passed(Box::new(outcome.counts)),
            };
            // Nobody hears only when the run has ended.
            let _ = told.send(tells);
        }
    }

    fn show_progress(&self, ran: u64, time: Duration) {
        let of = self.seeds.end.saturating_sub(self.seeds.start);
        let rate = u128::from(ran) * 1000 / time.as_millis().max(1);
        // A closed pipe ends nothing.
        let _ = writeln!(std::io::stderr(), "{ran} of {of} seeds from {} on, {rate} a second", self.seeds.start);
    }
}

fn show(of: Seed, told: &Told) {
    match told {
        Told::Passed(_) => {}
        Told::Failed(seed) => {
            begins(*seed);
            report(*seed, &of(*seed, None, Tracing::HashAndLines), TRACE_LINES);
        }
        Told::AnotherCourse(seed) => {
            say(&format!("seed {seed}, commit {}: FAILED: a second run took another course", commit()));
        }
    }
}

/// This thread's seed from here on.
pub(crate) fn begins(seed: u64) {
    SEED.set(seed);
}

/// A run that panics says which seed it was.
pub(crate) fn tell_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        say(&format!("seed {}, commit {}: panicked", SEED.get(), commit()));
        usual(info);
    }));
}

#[cfg(test)]
mod tests {
    use corral_sim::{Bug, Outcome};

    use super::*;

    fn panics(seed: u64, _: Option<Bug>, _: Tracing) -> Outcome {
        panic!("seed {seed} ends here");
    }

    #[test]
    fn a_seed_that_panics_ends_the_campaign() {
        let campaign = Campaign { seeds: 0..u64::MAX, replay: false, threads: 1, time: None };
        let (next, over) = (AtomicU64::new(7), AtomicBool::new(false));
        let ended = std::thread::scope(|scope| {
            scope.spawn(|| campaign.work(panics, &next, &over, &channel().0)).join().is_err()
        });
        assert!(ended && over.into_inner(), "the others begin no seed any more");
        assert_eq!(next.into_inner(), 8);
    }
}
