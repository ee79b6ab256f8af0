//! The progress of a replay at a start, or of a follower that catches up, for the log.
//!
//! Pure: time comes in. Recovery uses one [`CatchUp`], the engine another one at its ticks.

use std::time::Duration;

use corral_consensus::Replica;

/// Time between two lines, and before the first one.
const EVERY: Duration = Duration::from_secs(3);

/// How far the committed log is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPosition {
    /// Index of the last entry applied.
    pub applied: u64,
    /// Index of the last entry committed.
    pub committed: u64,
    /// Bytes of all entries applied.
    pub bytes: u64,
}

/// How far the log of this server is applied.
#[must_use]
pub fn log_position_of(replica: &Replica) -> LogPosition {
    LogPosition { applied: replica.applied().0, committed: replica.raft().commit().0, bytes: replica.applied_bytes() }
}

/// One report, to be logged.
#[must_use = "a report that is not logged is lost"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The replay goes on.
    Running {
        /// Entries applied.
        done: u64,
        /// Entries to apply in all.
        of: u64,
        /// MiB applied.
        mib: u64,
        /// Seconds that remain at this pace.
        left_s: u64,
    },
    /// All entries are applied.
    Finished {
        /// Entries applied.
        entries: u64,
        /// MiB applied.
        mib: u64,
        /// Milliseconds from the first observation on.
        took_ms: u64,
    },
}

impl Progress {
    /// Logs it.
    pub fn log(self) {
        match self {
            Progress::Running { done, of, mib, left_s } => {
                tracing::info!(
                    entries_done = done,
                    entries = of,
                    mib_done = mib,
                    left_s,
                    "replaying the log; clients wait until it is applied"
                );
            }
            Progress::Finished { entries, mib, took_ms } => tracing::info!(entries, mib, took_ms, "log replayed"),
        }
    }
}

/// Entries that were committed and not applied at the first observation.
#[derive(Clone, Copy, Debug)]
struct Lag {
    begun: Duration,
    first: LogPosition,
    reported_at: Duration,
    has_reported: bool,
}

/// Observes the log position over time.
#[derive(Debug, Default)]
pub struct CatchUp {
    lag: Option<Lag>,
}

impl CatchUp {
    /// Observes the position at `now`, a monotonic time. Called at every tick, or for every entry. Gives the report to
    /// log, if one is due: none before three seconds, then one every three seconds, then the end.
    pub fn observe(&mut self, now: Duration, position: LogPosition) -> Option<Progress> {
        const MIB: u64 = 1 << 20;
        let Some(lag) = &mut self.lag else {
            if position.committed > position.applied {
                self.lag = Some(Lag { begun: now, first: position, reported_at: now, has_reported: false });
            }
            return None;
        };
        let done = position.applied - lag.first.applied;
        let mib = (position.bytes - lag.first.bytes) / MIB;
        let took = now.saturating_sub(lag.begun);
        // Entries that have been committed since are not waited for: there are always some.
        if position.applied >= lag.first.committed {
            let has_reported = lag.has_reported;
            self.lag = None;
            let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            return has_reported.then_some(Progress::Finished { entries: done, mib, took_ms });
        }
        if now.saturating_sub(lag.reported_at) < EVERY {
            return None;
        }
        (lag.reported_at, lag.has_reported) = (now, true);
        let of = lag.first.committed - lag.first.applied;
        let left_s = took.as_secs().saturating_mul(of - done).checked_div(done).unwrap_or(0);
        Some(Progress::Running { done, of, mib, left_s })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_replay_is_reported_until_it_is_finished() {
        let mut catch_up = CatchUp::default();
        let at = |ms: u64, applied: u64| {
            (Duration::from_millis(ms), LogPosition { applied, committed: 1100 + applied % 100, bytes: applied << 16 })
        };
        let mut look = |ms, applied| {
            let (now, position) = at(ms, applied);
            catch_up.observe(now, position)
        };
        assert_eq!((look(500, 100), look(1000, 150), look(3499, 349)), (None, None, None));
        assert_eq!(look(3500, 350), Some(Progress::Running { done: 250, of: 1000, mib: 15, left_s: 9 }));
        assert_eq!(look(6400, 500), None);
        assert_eq!(look(6500, 600), Some(Progress::Running { done: 500, of: 1000, mib: 31, left_s: 6 }));
        assert_eq!(look(9000, 1100), Some(Progress::Finished { entries: 1000, mib: 62, took_ms: 8500 }));
        assert_eq!(look(20_000, 1200), None);
    }

    #[test]
    fn a_quick_replay_is_not_reported() {
        let mut catch_up = CatchUp::default();
        let mut look = |ms, applied, committed| {
            catch_up.observe(Duration::from_millis(ms), LogPosition { applied, committed, bytes: 0 })
        };
        // Each tick finds something under way, and each time it is done soon.
        for tick in 0..100 {
            assert_eq!(look(tick * 1000, tick, tick + tick % 2), None);
        }
    }
}
