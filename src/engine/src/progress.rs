//! Reports a replay, or the entries that a server which lagged is given at once: how far it is, and what remains.
//!
//! One for the replay at a start, one for the engine's ticks.

use std::time::Duration;

use corral_consensus::Replica;

use crate::machine::Replicated;

/// So often at most, and not before it has gone on for so long.
const EVERY: Duration = Duration::from_secs(3);

/// How far the committed log is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Of the last entry applied.
    pub applied: u64,
    /// Of the last one committed.
    pub committed: u64,
    /// Of all entries that were applied.
    pub bytes: u64,
}

/// How far this server is.
pub fn place_of<M: Replicated>(replica: &Replica<M>) -> Place {
    Place { applied: replica.applied().0, committed: replica.raft().commit().0, bytes: replica.applied_bytes() }
}

/// A line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// So many entries of so many are applied, and so many MiB; at this pace it takes so many seconds more.
    GoesOn { done: u64, of: u64, mib: u64, left_s: u64 },
    /// All are; it took so long.
    Over { entries: u64, mib: u64, took_ms: u64 },
}

impl Progress {
    /// Writes it into the server's log.
    pub fn log(self) {
        match self {
            Progress::GoesOn { done, of, mib, left_s } => {
                tracing::info!(
                    entries_done = done,
                    entries = of,
                    mib_done = mib,
                    left_s,
                    "applying the log; clients wait for it"
                );
            }
            Progress::Over { entries, mib, took_ms } => tracing::info!(entries, mib, took_ms, "the log is applied"),
        }
    }
}

/// Entries that were committed and not applied when they were first looked at.
#[derive(Clone, Copy, Debug)]
struct Lag {
    begun: Duration,
    first: Place,
    told: Duration,
    has_told: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct CatchUp {
    lag: Option<Lag>,
}

impl CatchUp {
    /// To be called again and again: what to log, if anything.
    pub fn look(&mut self, now: Duration, place: Place) -> Option<Progress> {
        const MIB: u64 = 1 << 20;
        let Some(lag) = &mut self.lag else {
            if place.committed > place.applied {
                self.lag = Some(Lag { begun: now, first: place, told: now, has_told: false });
            }
            return None;
        };
        let done = place.applied - lag.first.applied;
        let mib = (place.bytes - lag.first.bytes) / MIB;
        let took = now.saturating_sub(lag.begun);
        // What has been committed since is not waited for: there is always something.
        if place.applied >= lag.first.committed {
            let has_told = lag.has_told;
            self.lag = None;
            let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            return has_told.then_some(Progress::Over { entries: done, mib, took_ms });
        }
        if now.saturating_sub(lag.told) < EVERY {
            return None;
        }
        (lag.told, lag.has_told) = (now, true);
        let of = lag.first.committed - lag.first.applied;
        let left_s = took.as_secs().saturating_mul(of - done).checked_div(done).unwrap_or(0);
        Some(Progress::GoesOn { done, of, mib, left_s })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_replay_says_how_far_it_is_and_that_it_is_over() {
        let mut catch_up = CatchUp::default();
        let at = |ms: u64, applied: u64| {
            (Duration::from_millis(ms), Place { applied, committed: 1100 + applied % 100, bytes: applied << 16 })
        };
        let mut look = |ms, applied| {
            let (now, place) = at(ms, applied);
            catch_up.look(now, place)
        };
        assert_eq!((look(500, 100), look(1000, 150), look(3499, 349)), (None, None, None));
        assert_eq!(look(3500, 350), Some(Progress::GoesOn { done: 250, of: 1000, mib: 15, left_s: 9 }));
        assert_eq!(look(6400, 500), None);
        assert_eq!(look(6500, 600), Some(Progress::GoesOn { done: 500, of: 1000, mib: 31, left_s: 6 }));
        assert_eq!(look(9000, 1100), Some(Progress::Over { entries: 1000, mib: 62, took_ms: 8500 }));
        assert_eq!(look(20_000, 1200), None);
    }

    #[test]
    fn a_quick_one_says_nothing() {
        let mut catch_up = CatchUp::default();
        let mut look =
            |ms, applied, committed| catch_up.look(Duration::from_millis(ms), Place { applied, committed, bytes: 0 });
        // Each tick finds something under way, and each time it is done soon.
        for tick in 0..100 {
            assert_eq!(look(tick * 1000, tick, tick + tick % 2), None);
        }
    }
}
