//! When the requests or sessions of an open loop are due, and the number that was due and not begun when the window
//! ended.
//!
//! Due times are computed, never stored: a server that stalls costs no memory however long the line behind it grows. Used
//! by a client thread for requests and by the storm of sessions. Knows no socket and no clock.

/// Steps in which a backlog is charged at most; more would keep the client busy for minutes.
const CHARGES_MAX: u64 = 1_000_000;

/// Due times at equal distances, in nanoseconds of the user's clock.
#[derive(Debug)]
pub(crate) struct Due {
    start_ns: u64,
    interval_ns: f64,
    taken: u64,
}

impl Due {
    /// The first is due at `start_ns`, every other `interval_ns` after the one before.
    pub(crate) fn new(start_ns: u64, interval_ns: f64) -> Self {
        Self { start_ns, interval_ns, taken: 0 }
    }

    /// When the next one is due.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    pub(crate) fn next_ns(&self) -> u64 {
        // A float holds the product exactly enough: 2^53 ns are 104 days.
        self.start_ns.saturating_add((self.taken as f64 * self.interval_ns) as u64)
    }

    /// Whole milliseconds until the next one, at most `max`: then one polls, because the wait must not round up.
    pub(crate) fn wait_ms(&self, now_ns: u64, max: u16) -> u16 {
        u16::try_from(self.next_ns().saturating_sub(now_ns) / 1_000_000).unwrap_or(max).min(max)
    }

    /// Begins the next one. Returns when it was due.
    pub(crate) fn take(&mut self) -> u64 {
        let due_ns = self.next_ns();
        self.taken += 1;
        due_ns
    }

    /// Takes all that were due before `end_ns` off the schedule, and returns their number. `charge` gets their waiting
    /// time by `now_ns`, each with the number of requests that had waited about as long.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    pub(crate) fn backlog(&mut self, now_ns: u64, end_ns: u64, mut charge: impl FnMut(u64, u64)) -> u64 {
        // As a float the number may be off by one in some millions.
        let all = (end_ns.saturating_sub(self.next_ns()) as f64 / self.interval_ns).ceil() as u64;
        let mut left = all;
        while left > 0 {
            let count = left.min(all.div_ceil(CHARGES_MAX));
            charge(now_ns.saturating_sub(self.next_ns()), count);
            self.taken += count;
            left -= count;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_due_and_not_begun_is_charged_what_it_waited() {
        let mut due = Due::new(1000, 10.0);
        assert_eq!((due.take(), due.take(), due.next_ns()), (1000, 1010, 1020));
        let mut waited = Vec::new();
        let backlog = due.backlog(1070, 1050, |ns, count| waited.push((ns, count)));
        assert_eq!(waited, [(50, 1), (40, 1), (30, 1)], "what is due at the end or later is not");
        assert_eq!((backlog, due.taken), (3, 5));
        let (mut due, mut charged, all) = (Due::new(0, 2.0), 0, 2 * CHARGES_MAX + 500);
        assert_eq!((due.backlog(2 * all, 2 * all, |_, count| charged += count), charged), (all, all));
        let mut due = Due::new(u64::MAX - 5, 1e300);
        assert_eq!((due.take(), due.take()), (u64::MAX - 5, u64::MAX), "due times do not overflow");
    }
}
