//! The wall clock of this server beside the leader's, which stamps every log entry.

use crate::ids::{Millis, WallMillis};

/// Least time between two entries that are compared.
const APART_MS: u64 = 1000;
/// Between these, both clocks must have advanced by the same time: entries of a server that catches up are old.
const TOLERANCE_MS: u64 = 500;

/// Compares the times of committed entries with this server's clock.
#[derive(Debug, Default)]
pub(super) struct ClockComparison {
    /// Time of an earlier entry, and when it was applied here.
    last: Option<(WallMillis, Millis)>,
    ahead_ms: Option<i64>,
}

impl ClockComparison {
    /// An entry with this time is applied now.
    pub(super) fn observe(&mut self, stamped: WallMillis, now: Millis, wall: WallMillis) {
        let Some((before, at)) = self.last else {
            self.last = Some((stamped, now));
            return;
        };
        let passed = now.since(at);
        if passed < APART_MS {
            return;
        }
        let by_leader = u64::try_from(stamped.0.saturating_sub(before.0)).unwrap_or(0);
        if by_leader.abs_diff(passed) <= TOLERANCE_MS {
            self.ahead_ms = Some(wall.0.saturating_sub(stamped.0));
        }
        self.last = Some((stamped, now));
    }

    /// Another leader may have another clock.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Milliseconds by which this server's clock is ahead, the time of a commit included. `None` while it is not known.
    pub(super) const fn ahead_ms(&self) -> Option<i64> {
        self.ahead_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_entries_of_now_are_compared() {
        let mut clock = ClockComparison::default();
        let mut observe = |stamped, now, wall| {
            clock.observe(WallMillis(stamped), Millis(now), WallMillis(wall));
            clock.ahead_ms()
        };
        // It catches up on entries of an hour.
        assert_eq!(observe(0, 0, 9_000_000), None);
        assert_eq!(observe(1_800_000, 1000, 9_001_000), None);
        assert_eq!(observe(3_600_000, 2000, 9_002_000), None);
        assert_eq!(observe(8_990_000, 3000, 9_003_000), None);
        // From here on it has what the leader writes.
        assert_eq!(observe(8_990_900, 3900, 9_003_900), None, "too soon");
        assert_eq!(observe(8_991_100, 4100, 9_004_100), Some(13_000));
        // The clock is set right.
        assert_eq!(observe(8_993_000, 6000, 8_993_010), Some(10));
        clock.forget();
        assert_eq!(clock.ahead_ms(), None);
    }
}
