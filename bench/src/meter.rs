//! The measurements of a load: each client thread enters latencies into histograms of its own, which the coordinator
//! takes interval by interval.
//!
//! A reply belongs to the interval in which it was entered; the coordinator decides when one ends, and an interval's length is what
//! it was. Histograms are added, never averaged: every percentile is that of all samples of all threads. Knows no socket.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::histogram::{histogram, ratio, us};
use crate::mix::Kind;

/// How a connection comes to its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// A reply is followed by a request.
    Closed,
    /// Requests fall due at the rate of the thread's schedule.
    Open,
}

/// Latencies in nanoseconds by pace and kind of request, and tolerated errors by code.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    latencies: Vec<((Pace, Kind), Histogram<u64>)>,
    pub(crate) errors: BTreeMap<i32, u64>,
}

impl Cells {
    fn cell(&mut self, of: (Pace, Kind)) -> &mut Histogram<u64> {
        let at = self.latencies.iter().position(|(cell, _)| *cell == of).unwrap_or_else(|| {
            self.latencies.push((of, histogram()));
            self.latencies.len() - 1
        });
        &mut self.latencies[at].1
    }

    /// Enters a latency of so many requests.
    pub(crate) fn record(&mut self, pace: Pace, kind: Kind, latency_ns: u64, count: u64) {
        self.cell((pace, kind)).saturating_record_n(latency_ns, count);
    }

    pub(crate) fn refused(&mut self, code: i32) {
        *self.errors.entry(code).or_default() += 1;
    }

    fn add(&mut self, other: &Self) {
        for (of, latency) in &other.latencies {
            self.cell(*of).add(latency).expect("all histograms have the same bounds");
        }
        for (code, count) in &other.errors {
            *self.errors.entry(*code).or_default() += count;
        }
    }

    /// The latencies that `of` selects, together.
    fn total(&self, of: impl Fn(Pace, Kind) -> bool) -> Histogram<u64> {
        let mut sum = histogram();
        for (_, latency) in self.latencies.iter().filter(|((pace, kind), _)| of(*pace, *kind)) {
            sum.add(latency).expect("all histograms have the same bounds");
        }
        sum
    }
}

/// The state that the coordinator and the client threads share. Times are nanoseconds since `start`.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) start: Instant,
    /// When the window ended; `u64::MAX` until it has.
    end_ns: AtomicU64,
    operations: AtomicU64,
    /// A thread failed: all are to stop.
    failed: AtomicBool,
    cells: Vec<Mutex<Cells>>,
}

impl Shared {
    pub(crate) fn new(start: Instant, threads: u32) -> Self {
        let cells = (0..threads).map(|_| Mutex::default()).collect();
        let (end_ns, operations, failed) = (AtomicU64::new(u64::MAX), AtomicU64::new(0), AtomicBool::new(false));
        Self { start, end_ns, operations, failed, cells }
    }

    /// Ends the window now; the client threads then wait for their requests in flight and stop.
    pub(crate) fn end(&self) -> u64 {
        let now_ns = self.now_ns();
        self.end_ns.store(now_ns, Ordering::SeqCst);
        now_ns
    }

    pub(crate) fn end_ns(&self) -> u64 {
        self.end_ns.load(Ordering::Relaxed)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.end_ns() != u64::MAX
    }

    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Operations of all threads so far, those of the warm-up included.
    pub(crate) fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self, operations: u64) {
        self.operations.fetch_add(operations, Ordering::Relaxed);
    }

    /// The histograms of a thread's latencies.
    pub(crate) fn cells(&self, thread: usize) -> MutexGuard<'_, Cells> {
        self.cells[thread].lock().expect("a thread that panics aborts the process")
    }

    /// Takes what all threads have entered since the last time.
    pub(crate) fn take(&self) -> Cells {
        let mut all = Cells::default();
        (0..self.cells.len()).for_each(|thread| all.add(&std::mem::take(&mut *self.cells(thread))));
        all
    }
}

/// The figures of some requests at the end.
#[derive(Debug)]
pub(crate) struct Total {
    /// Latency in nanoseconds of the window's requests, those in flight at its end included.
    pub(crate) latency: Histogram<u64>,
    /// Those answered within the window.
    pub(crate) operations: u64,
}

/// One interval of the window; an operation belongs to the one in which its reply was entered. Latency in microseconds, 0 if there
/// was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Interval {
    /// Seconds from the window's start to the interval's.
    pub(crate) start: f64,
    /// Its length in seconds.
    pub(crate) seconds: f64,
    pub(crate) operations: u64,
    pub(crate) throughput: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p99_9_us: f64,
    pub(crate) max_us: f64,
    /// Replies with a tolerated error.
    pub(crate) errors: u64,
}

/// All that was measured. An interval's histograms are given up for one row, so that a week's run takes little memory.
#[derive(Debug)]
pub(crate) struct Gathered {
    /// The pace of the requests that make the rows; `None` for all.
    rows_of: Option<Pace>,
    pub(crate) rows: Vec<Interval>,
    within: Cells,
    late: Cells,
}

impl Gathered {
    pub(crate) fn new(rows_of: Option<Pace>) -> Self {
        Self { rows_of, rows: Vec::new(), within: Cells::default(), late: Cells::default() }
    }

    /// Adds an interval, from the end of the one before to `end` after the window's start.
    pub(crate) fn interval(&mut self, cells: &Cells, end: Duration) {
        let latency = cells.total(|pace, _| self.rows_of.is_none_or(|of| of == pace));
        let at = |quantile| us(latency.value_at_quantile(quantile));
        let (start, operations) = (self.rows.last().map_or(0.0, |row| row.start + row.seconds), latency.len());
        let seconds = end.as_secs_f64() - start;
        self.rows.push(Interval {
            start,
            seconds,
            operations,
            throughput: if seconds > 0.0 { ratio(operations, 1) / seconds } else { 0.0 },
            p50_us: at(0.5),
            p99_us: at(0.99),
            p99_9_us: at(0.999),
            max_us: us(latency.max()),
            errors: cells.errors.values().sum(),
        });
        self.within.add(cells);
    }

    /// Adds what was answered after the window.
    pub(crate) fn finish(&mut self, late: Cells) {
        self.late = late;
    }

    /// Tolerated errors by code.
    pub(crate) fn errors(&self) -> BTreeMap<i32, u64> {
        let mut all = self.within.errors.clone();
        self.late.errors.iter().for_each(|(code, count)| *all.entry(*code).or_default() += count);
        all
    }

    /// The requests that are asked for, together.
    pub(crate) fn total(&self, of: impl Fn(Pace, Kind) -> bool) -> Total {
        let mut latency = self.within.total(&of);
        let operations = latency.len();
        latency.add(self.late.total(&of)).expect("all histograms have the same bounds");
        Total { latency, operations }
    }
}
