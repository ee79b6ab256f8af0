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

#[cfg(test)]
mod tests {
    use super::*;

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
