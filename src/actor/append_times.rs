//! Times of appends: until the log is synced, and until their entries are committed and evaluated.

use std::collections::VecDeque;
use std::sync::Arc;

use corral_consensus::{Append, Micros};

use crate::gauges::latencies::{Latencies, Stage};

/// Appends that are timed at once. Further ones are not.
const IN_FLIGHT_MAX: usize = 4096;

/// An append with entries.
struct InFlight {
    number: u64,
    /// Index of its last entry.
    last: u64,
    begun: Micros,
    is_synced: bool,
}

/// The appends that are not committed.
pub(super) struct AppendTimes {
    in_flight: VecDeque<InFlight>,
    latencies: Arc<Latencies>,
}

impl AppendTimes {
    pub(super) fn new(latencies: Arc<Latencies>) -> AppendTimes {
        AppendTimes { in_flight: VecDeque::new(), latencies }
    }

    /// Commands of a shard reached the consensus actor after this time.
    pub(super) fn queued(&self, us: u64) {
        self.latencies.stage(Stage::Queue, us);
    }

    /// The log thread is given an append. It replaces entries that another leader appended.
    pub(super) fn begin(&mut self, now: Micros, append: &Append) {
        let (Some(first), Some(last)) = (append.entries.first(), append.entries.last()) else { return };
        while self.in_flight.back().is_some_and(|before| before.last >= first.index.0) {
            self.in_flight.pop_back();
        }
        if self.in_flight.len() < IN_FLIGHT_MAX {
            let (number, last) = (append.number, last.index.0);
            self.in_flight.push_back(InFlight { number, last, begun: now, is_synced: false });
        }
    }

    /// All appends up to this number are synced.
    pub(super) fn synced(&mut self, now: Micros, number: u64) {
        for append in self.in_flight.iter_mut().filter(|append| !append.is_synced && append.number <= number) {
            append.is_synced = true;
            self.latencies.stage(Stage::Sync, now.since(append.begun).0);
        }
    }

    /// The entries up to this index are evaluated.
    pub(super) fn applied(&mut self, now: Micros, index: u64) {
        while let Some(append) = self.in_flight.front().filter(|append| append.last <= index) {
            self.latencies.stage(Stage::Commit, now.since(append.begun).0);
            self.in_flight.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use corral_consensus::{Entry, EntryKind, Index, Term};

    use super::*;
    use crate::gauges::latencies::sum;

    fn append(number: u64, indexes: std::ops::RangeInclusive<u64>) -> Append {
        let entry =
            |at| Entry { index: Index(at), term: Term(1), kind: EntryKind::Normal, payload: Bytes::from_static(b"x") };
        Append { number, entries: indexes.map(entry).collect(), hard_state: None, must_sync: true }
    }

    #[test]
    fn an_append_is_timed_once_for_each_stage() {
        let latencies = Arc::new(Latencies::default());
        let mut times = AppendTimes::new(Arc::clone(&latencies));
        times.begin(Micros(100), &append(1, 1..=3));
        times.begin(Micros(200), &append(2, 4..=4));
        times.synced(Micros(300), 1);
        times.synced(Micros(400), 2);
        times.applied(Micros(500), 3);
        // Another leader replaces the entry that is not committed.
        times.begin(Micros(600), &append(3, 4..=5));
        times.applied(Micros(700), 5);
        let facts = sum(&[latencies]);
        let counts: Vec<(&str, u64, u64)> =
            facts.stages.iter().map(|(name, times)| (*name, times.count, times.us_sum)).collect();
        assert_eq!(counts[0].0, "sync");
        assert_eq!((counts[0].1, counts[1].0, counts[1].1), (2, "commit", 2));
        assert!((498..=502).contains(&counts[1].2), "{counts:?}");
        assert!(times.in_flight.is_empty());
    }
}
