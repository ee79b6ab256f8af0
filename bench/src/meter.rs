//! A client thread's side of measuring: one histogram for each kind of request, handed over interval by interval.
//!
//! The histograms are exchanged for empty ones by way of channels, so that the client thread neither adds nor looks
//! through them: merging is the coordinator's work. To which interval a reply belongs is decided by the moment it was
//! read, against a window that all threads share. Knows no socket.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::connection::{Answer, Pace};
use crate::limits::LATENCY_MAX;
use crate::mix::Kind;

/// Cells of a meter: every measured kind, for connections of either pace.
pub(crate) const CELLS: usize = 2 * Kind::MEASURED.len();

/// The place of a kind of request in tables.
pub(crate) fn cell(pace: Pace, kind: Kind) -> usize {
    let group = match pace {
        Pace::Closed => 0,
        Pace::Open => 1,
    };
    group * Kind::MEASURED.len() + kind as usize
}

/// An empty histogram: three significant digits up to `LATENCY_MAX`.
pub(crate) fn histogram() -> Histogram<u64> {
    let max = u64::try_from(LATENCY_MAX.as_nanos()).unwrap_or(u64::MAX);
    Histogram::new_with_bounds(1, max, 3).expect("the bounds are constants and valid")
}

/// What the coordinator and the client threads share. Times are nanoseconds since `start`.
#[derive(Debug)]
pub(crate) struct Shared {
    start: Instant,
    /// The measured window; `u64::MAX` until it is known.
    begin_ns: AtomicU64,
    end_ns: AtomicU64,
    interval_ns: u64,
    /// The window has no more intervals than this; the last is as long as it takes.
    intervals_max: u32,
    /// Operations completed in the window so far, all threads.
    measured: AtomicU64,
    /// A thread gave up: everyone is to stop.
    failed: AtomicBool,
}

impl Shared {
    pub(crate) fn new(interval: Duration, intervals_max: u32) -> Self {
        Self {
            start: Instant::now(),
            begin_ns: AtomicU64::new(u64::MAX),
            end_ns: AtomicU64::new(u64::MAX),
            interval_ns: u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX),
            intervals_max,
            measured: AtomicU64::new(0),
            failed: AtomicBool::new(false),
        }
    }

    /// Starts the window now.
    pub(crate) fn begin(&self) -> u64 {
        let now_ns = self.now_ns();
        self.begin_ns.store(now_ns, Ordering::SeqCst);
        now_ns
    }

    /// Ends the window now; the client threads then wait for what is in flight and stop.
    pub(crate) fn end(&self) -> u64 {
        let now_ns = self.now_ns();
        self.end_ns.store(now_ns, Ordering::SeqCst);
        now_ns
    }

    pub(crate) fn end_ns(&self) -> u64 {
        self.end_ns.load(Ordering::Relaxed)
    }

    pub(crate) fn interval_ns(&self) -> u64 {
        self.interval_ns
    }

    pub(crate) fn measured(&self) -> u64 {
        self.measured.load(Ordering::Relaxed)
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
}

/// What one thread measured in one interval.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) thread: usize,
    /// `None` for what was answered after the window.
    pub(crate) interval: Option<u32>,
    /// Latency in nanoseconds by cell; only those with samples.
    pub(crate) cells: Vec<(usize, Histogram<u64>)>,
    /// Tolerated errors by code.
    pub(crate) errors: Vec<(i32, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Before,
    Within(u32),
    After,
}

/// The histograms of one client thread.
#[derive(Debug)]
pub(crate) struct Meter {
    thread: usize,
    cells: Vec<Option<Histogram<u64>>>,
    errors: Vec<(i32, u64)>,
    place: Place,
    /// When the current interval ends.
    next_ns: u64,
    batches: Sender<Batch>,
    /// Empty histograms that come back.
    empty: Receiver<Histogram<u64>>,
}

impl Meter {
    /// `cells` are those that will be needed.
    pub(crate) fn new(
        thread: usize,
        cells: impl Iterator<Item = usize>,
        batches: Sender<Batch>,
        empty: Receiver<Histogram<u64>>,
    ) -> Self {
        let mut table: Vec<Option<Histogram<u64>>> = (0..CELLS).map(|_| None).collect();
        for cell in cells {
            table[cell] = Some(histogram());
        }
        Self { thread, cells: table, errors: Vec::new(), place: Place::Before, next_ns: 0, batches, empty }
    }

    /// Follows the window; call it with the clock's reading before recording anything read at that moment.
    pub(crate) fn follow(&mut self, shared: &Shared, now_ns: u64) {
        if self.place == Place::Before && now_ns >= shared.begin_ns.load(Ordering::Relaxed) {
            self.cells.iter_mut().flatten().for_each(Histogram::reset);
            self.errors.clear();
            self.place = Place::Within(0);
            self.next_ns = shared.begin_ns.load(Ordering::Relaxed) + shared.interval_ns;
        }
        if let Place::Within(mut interval) = self.place {
            let ended = now_ns >= shared.end_ns();
            while now_ns >= self.next_ns && self.next_ns < shared.end_ns() && interval + 1 < shared.intervals_max {
                self.hand_over(Some(interval));
                interval += 1;
                self.next_ns += shared.interval_ns;
                self.place = Place::Within(interval);
            }
            if ended {
                self.hand_over(Some(interval));
                self.place = Place::After;
            }
        }
    }

    /// Whether the window is over.
    pub(crate) fn is_after(&self) -> bool {
        self.place == Place::After
    }

    /// Enters a reply read at `now_ns`.
    pub(crate) fn record(&mut self, pace: Pace, answer: Answer, now_ns: u64) {
        match answer.error {
            None => self.record_ns(pace, answer.kind, now_ns.saturating_sub(answer.since_ns)),
            Some(code) => match self.errors.iter_mut().find(|(known, _)| *known == code) {
                Some((_, count)) => *count += 1,
                None => self.errors.push((code, 1)),
            },
        }
    }

    /// Enters a latency.
    pub(crate) fn record_ns(&mut self, pace: Pace, kind: Kind, latency_ns: u64) {
        let cell = &mut self.cells[cell(pace, kind)];
        cell.get_or_insert_with(histogram).saturating_record(latency_ns);
    }

    /// Counts operations of this thread for the progress lines; only those in the window.
    pub(crate) fn publish(&self, shared: &Shared, operations: u64) {
        if operations > 0 && matches!(self.place, Place::Within(_)) {
            shared.measured.fetch_add(operations, Ordering::Relaxed);
        }
    }

    /// Hands over what came after the window.
    pub(crate) fn finish(mut self) {
        self.hand_over(None);
    }

    fn hand_over(&mut self, interval: Option<u32>) {
        let used = self.cells.iter_mut().enumerate().filter_map(|(at, cell)| {
            let full = cell.as_mut().filter(|cell| !cell.is_empty())?;
            let empty = self.empty.try_recv().unwrap_or_else(|_| histogram());
            Some((at, std::mem::replace(full, empty)))
        });
        let cells = used.collect();
        let errors = std::mem::take(&mut self.errors);
        // The receiver is gone only if the run has failed; its figures are not needed then.
        let _ = self.batches.send(Batch { thread: self.thread, interval, cells, errors });
    }
}
