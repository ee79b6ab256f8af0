//! Figures that every report is made of: latencies, percentiles, quotients.
//!
//! Pure arithmetic on histograms of nanoseconds. Does not know what was measured.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::limits::LATENCY_MAX;

/// An empty histogram: three significant digits up to `LATENCY_MAX`.
pub(crate) fn histogram() -> Histogram<u64> {
    let max = u64::try_from(LATENCY_MAX.as_nanos()).unwrap_or(u64::MAX);
    Histogram::new_with_bounds(1, max, 3).expect("the bounds are constants and valid")
}

/// Latency in microseconds, from when a request was sent (closed loop) or due (open loop) to when its reply was read.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Latency {
    pub(crate) mean: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p99_9: f64,
    pub(crate) max: f64,
}

impl Latency {
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile: f64| us(histogram.value_at_quantile(quantile));
        let (mean, max) = (histogram.mean() / 1e3, us(histogram.max()));
        Self { mean, p50: at(0.5), p90: at(0.9), p99: at(0.99), p99_9: at(0.999), max }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Percentile {
    /// Percent of the operations that took at most `us`, 0 to 100.
    pub(crate) percent: f64,
    pub(crate) us: f64,
}

/// Percentiles of the latency curve. Percentiles that the number of samples does not support are left out.
const PERCENTS: [f64; 22] = [
    0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 97.5, 99.0, 99.5, 99.75, 99.9, 99.95, 99.99,
    99.995, 99.999, 99.9995, 99.9999,
];

/// The latency curve, ascending; the last point is the maximum.
pub(crate) fn percentiles(histogram: &Histogram<u64>) -> Vec<Percentile> {
    let samples = ratio(histogram.len(), 1);
    if histogram.is_empty() {
        return Vec::new();
    }
    let supported =
        PERCENTS.into_iter().filter(|percent| (100.0 - percent) / 100.0 * samples >= 0.999 || *percent == 0.0);
    let point = |percent: f64| Percentile { percent, us: us(histogram.value_at_quantile(percent / 100.0)) };
    supported.map(point).chain([Percentile { percent: 100.0, us: us(histogram.max()) }]).collect()
}

/// A quotient for display; 0 when there is nothing to divide by.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn ratio(numerator: u64, denominator: u64) -> f64 {
    if denominator == 0 { 0.0 } else { numerator as f64 / denominator as f64 }
}

pub(crate) fn us(ns: u64) -> f64 {
    ratio(ns, 1000)
}
