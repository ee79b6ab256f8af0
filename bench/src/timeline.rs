//! The coordinator's side of measuring: merges what the client threads hand over, interval by interval.
//!
//! Histograms are added, never averaged, so that every percentile is that of all samples of all threads. An interval is
//! done when every thread has handed it over; its histogram is then given up for one row, so that a week's run takes
//! little memory. Runs on the coordinating thread.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

use crate::connection::Pace;
use crate::figures::Interval;
use crate::meter::{Batch, CELLS, cell, histogram};
use crate::mix::Kind;

/// What is known of one cell at the end.
#[derive(Debug)]
pub(crate) struct Total {
    /// Latency in nanoseconds of the window's requests, those in flight at its end included.
    pub(crate) latency: Histogram<u64>,
    /// Those answered within the window.
    pub(crate) operations: u64,
}

/// One interval of the window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Row {
    pub(crate) operations: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p99_9_ns: u64,
    pub(crate) max_ns: u64,
    pub(crate) errors: u64,
}

#[derive(Debug)]
struct Pending {
    threads: usize,
    latency: Histogram<u64>,
    errors: u64,
}

/// Merges batches.
#[derive(Debug)]
pub(crate) struct Gatherer {
    threads: usize,
    /// Whose requests make the rows; `None` for all.
    rows_of: Option<Pace>,
    batches: Receiver<Batch>,
    inlet: Option<Sender<Batch>>,
    returns: Vec<Sender<Histogram<u64>>>,
    pending: BTreeMap<u32, Pending>,
    pub(crate) rows: Vec<Row>,
    totals: Vec<Option<Total>>,
    pub(crate) errors: BTreeMap<i32, u64>,
    spare: Vec<Histogram<u64>>,
}

impl Gatherer {
    pub(crate) fn new(rows_of: Option<Pace>) -> Self {
        let (inlet, batches) = channel();
        Self {
            threads: 0,
            rows_of,
            batches,
            inlet: Some(inlet),
            returns: Vec::new(),
            pending: BTreeMap::new(),
            rows: Vec::new(),
            totals: (0..CELLS).map(|_| None).collect(),
            errors: BTreeMap::new(),
            spare: Vec::new(),
        }
    }

    /// The two ends of one more client thread: where it sends its batches, whence it takes empty histograms.
    pub(crate) fn join(&mut self) -> (usize, Sender<Batch>, Receiver<Histogram<u64>>) {
        let (back, empty) = channel();
        self.returns.push(back);
        self.threads += 1;
        let inlet = self.inlet.clone().expect("threads join before the run");
        (self.threads - 1, inlet, empty)
    }

    /// Takes in what has come so far. Returns the number of rows that were completed by it.
    pub(crate) fn look(&mut self) -> Result<usize> {
        let before = self.rows.len();
        while let Ok(batch) = self.batches.try_recv() {
            self.absorb(batch)?;
        }
        Ok(self.rows.len() - before)
    }

    /// Takes in everything, after the last client thread has ended.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.inlet = None;
        self.look()?;
        while let Some((_, pending)) = self.pending.pop_first() {
            self.complete(pending);
        }
        Ok(())
    }

    fn absorb(&mut self, batch: Batch) -> Result<()> {
        let errors: u64 = batch.errors.iter().map(|(_, count)| count).sum();
        for (code, count) in batch.errors {
            *self.errors.entry(code).or_default() += count;
        }
        let mut pending = batch.interval.map(|interval| {
            let spare = &mut self.spare;
            let pending = self.pending.entry(interval).or_insert_with(|| Pending {
                threads: 0,
                latency: spare.pop().unwrap_or_else(histogram),
                errors: 0,
            });
            pending.threads += 1;
            pending.errors += errors;
            pending
        });
        for (at, mut cell) in batch.cells {
            let total = self.totals[at].get_or_insert_with(|| Total { latency: histogram(), operations: 0 });
            total.latency.add(&cell).context("histograms have the same bounds")?;
            if let Some(pending) = &mut pending {
                total.operations += cell.len();
                if self.rows_of.is_none_or(|pace| is_of(at, pace)) {
                    pending.latency.add(&cell).context("histograms have the same bounds")?;
                }
            }
            cell.reset();
            // The thread may have ended.
            let _ = self.returns[batch.thread].send(cell);
        }
        while self.pending.first_key_value().is_some_and(|(_, pending)| pending.threads == self.threads) {
            if let Some((_, done)) = self.pending.pop_first() {
                self.complete(done);
            }
        }
        Ok(())
    }

    fn complete(&mut self, pending: Pending) {
        let Pending { mut latency, errors, .. } = pending;
        self.rows.push(Row {
            operations: latency.len(),
            p50_ns: latency.value_at_quantile(0.5),
            p99_ns: latency.value_at_quantile(0.99),
            p99_9_ns: latency.value_at_quantile(0.999),
            max_ns: latency.max(),
            errors,
        });
        latency.reset();
        self.spare.push(latency);
    }

    /// The totals by cell.
    pub(crate) fn into_totals(self) -> (Vec<Option<Total>>, Vec<Row>, BTreeMap<i32, u64>) {
        (self.totals, self.rows, self.errors)
    }
}

fn is_of(at: usize, pace: Pace) -> bool {
    Kind::MEASURED.into_iter().any(|kind| cell(pace, kind) == at)
}

/// Puts rows on the clock: each begins where the one before ends, the last ends with the window.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn intervals(rows: &[Row], interval_ns: u64, window_ns: u64) -> Vec<Interval> {
    let us = |ns: u64| ns as f64 / 1e3;
    let place = |(nth, row): (usize, &Row)| {
        let start_ns = nth as u64 * interval_ns;
        let end_ns = if nth + 1 == rows.len() { window_ns } else { start_ns + interval_ns };
        let seconds = end_ns.saturating_sub(start_ns) as f64 / 1e9;
        Interval {
            start: start_ns as f64 / 1e9,
            seconds,
            operations: row.operations,
            throughput: if seconds > 0.0 { row.operations as f64 / seconds } else { 0.0 },
            p50_us: us(row.p50_ns),
            p99_us: us(row.p99_ns),
            p99_9_us: us(row.p99_9_ns),
            max_us: us(row.max_ns),
            errors: row.errors,
        }
    };
    rows.iter().enumerate().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Answer;
    use crate::meter::{Meter, Shared};
    use std::time::Duration;

    #[test]
    fn threads_are_merged_exactly_interval_by_interval() {
        let mut gatherer = Gatherer::new(None);
        let shared = Shared::new(Duration::from_nanos(1000), 3);
        let mut meters: Vec<Meter> = (0..2)
            .map(|_| {
                let (thread, batches, empty) = gatherer.join();
                Meter::new(thread, std::iter::empty(), batches, empty)
            })
            .collect();
        let answer = |kind, error| Answer { kind, since_ns: 0, error };
        // Before the window: forgotten.
        meters[0].record(Pace::Closed, answer(Kind::Get, None), 7);
        let begin = shared.begin();
        for (at, meter) in meters.iter_mut().enumerate() {
            meter.follow(&shared, begin);
            let get = Answer { since_ns: begin, ..answer(Kind::Get, None) };
            (1..=100).for_each(|ns| meter.record(Pace::Closed, get, begin + ns + 100 * at as u64));
            meter.record(Pace::Closed, answer(Kind::Set, Some(-127)), begin);
        }
        // The first thread's third interval begins: it skips the second. The second thread is late.
        meters[0].follow(&shared, begin + 2500);
        assert_eq!(gatherer.look().unwrap(), 0, "one thread is missing");
        meters[1].follow(&shared, begin + 1500);
        assert_eq!(gatherer.look().unwrap(), 1);
        let row = gatherer.rows[0];
        assert_eq!((row.operations, row.p50_ns, row.p99_ns, row.max_ns, row.errors), (200, 100, 198, 200, 2));
        // More intervals than planned do not come to be: the last one takes the rest.
        meters[0].follow(&shared, begin + 9000);
        let end = shared.end();
        for meter in &mut meters {
            meter.follow(&shared, end.max(begin + 10_000));
            assert!(meter.is_after());
            meter.record(Pace::Closed, Answer { since_ns: 0, ..answer(Kind::Get, None) }, 5);
        }
        meters.into_iter().for_each(Meter::finish);
        gatherer.finish().unwrap();
        let (totals, rows, errors) = gatherer.into_totals();
        assert_eq!(rows.iter().map(|row| row.operations).collect::<Vec<_>>(), [200, 0, 0]);
        let total = totals[cell(Pace::Closed, Kind::Get)].as_ref().unwrap();
        assert_eq!((total.operations, total.latency.len()), (200, 202), "late ones count for the latency alone");
        assert_eq!(errors, BTreeMap::from([(-127, 2)]));
    }

    #[test]
    fn the_last_interval_ends_with_the_window() {
        let rows = [Row { operations: 10, ..Row::default() }; 3];
        let placed = intervals(&rows, 1_000_000_000, 2_500_000_000);
        let found: Vec<(f64, f64, f64)> = placed.iter().map(|row| (row.start, row.seconds, row.throughput)).collect();
        assert_eq!(found, [(0.0, 1.0, 10.0), (1.0, 1.0, 10.0), (2.0, 0.5, 20.0)]);
    }
}
