//! Keeps the log short when the same thing goes wrong again and again.
//!
//! Plain data of one thread.

use std::time::{Duration, Instant};

/// The same complaint is logged when it comes for the 1st, 2nd, 4th, 8th ... time, and once in this time.
const COMPLAINT_EVERY: Duration = Duration::from_secs(60);

/// How often one thing went wrong.
#[derive(Debug, Default)]
pub(crate) struct Complaint {
    count: u64,
    told: Option<Instant>,
}

impl Complaint {
    /// How often so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// It happened again: how often so far, if that is to be logged.
    pub(crate) fn again(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        let long_ago = self.told.is_none_or(|told| now.duration_since(told) >= COMPLAINT_EVERY);
        if !self.count.is_power_of_two() && !long_ago {
            return None;
        }
        self.told = Some(now);
        Some(self.count)
    }
}

/// Bounds the lines that clients cause, however many they are: so many in a second, and a count of the others.
#[derive(Debug)]
pub(crate) struct Allowance {
    lines_per_second: u32,
    second: u64,
    lines: u32,
    left_out: u64,
}

impl Allowance {
    pub(crate) fn of(lines_per_second: u32) -> Allowance {
        Allowance { lines_per_second, second: 0, lines: 0, left_out: 0 }
    }

    /// So many more are left out.
    pub(crate) fn leave_out(&mut self, count: u64) {
        self.left_out += count;
    }

    /// A line more at `now_ms`: `None` if it is to be left out. Otherwise it gives how many were left out since the
    /// last line.
    pub(crate) fn line(&mut self, now_ms: u64) -> Option<u64> {
        if self.second != now_ms / 1000 {
            (self.second, self.lines) = (now_ms / 1000, 0);
        }
        if self.lines >= self.lines_per_second {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_in_each_second_and_none_is_lost_from_sight() {
        let mut allowance = Allowance::of(100);
        let told: Vec<Option<u64>> = (0..1000).map(|line| allowance.line(5000 + line / 2)).collect();
        assert_eq!(told.iter().flatten().count(), 100);
        assert_eq!(allowance.line(6000), Some(900));
        assert_eq!(allowance.line(6001), Some(0));
    }

    #[test]
    fn powers_of_two_and_once_a_minute() {
        let mut complaint = Complaint::default();
        let begin = Instant::now();
        let told: Vec<u64> = (0..10).filter_map(|_| complaint.again(begin)).collect();
        assert_eq!(told, [1, 2, 4, 8]);
        assert_eq!(complaint.again(begin + COMPLAINT_EVERY), Some(11));
        assert_eq!(complaint.again(begin + COMPLAINT_EVERY), None);
    }
}
