//! Figures that every report is made of: latencies, percentiles, intervals, quotients.
//!
//! Pure arithmetic on histograms of nanoseconds. It does not know what was measured.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::meter::histogram;

/// Latency in microseconds, from when a request was sent (closed loop) or due (open loop) to when its reply was read.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p99_9: f64,
    /// The slowest operation.
    pub max: f64,
}

/// One point of a latency distribution.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Percentile {
    /// Percent of the operations that took at most `us`, 0 to 100.
    pub percent: f64,
    /// Microseconds.
    pub us: f64,
}

/// One interval of the measured window; an operation belongs to the one in which its reply was read.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Seconds from the window's start to the interval's.
    pub start: f64,
    /// Its length in seconds.
    pub seconds: f64,
    /// Operations answered within it.
    pub operations: u64,
    /// Operations per second.
    pub throughput: f64,
    /// Latency percentiles in microseconds of those operations; 0 if there are none.
    pub p50_us: f64,
    /// As `p50_us`.
    pub p99_us: f64,
    /// As `p50_us`.
    pub p99_9_us: f64,
    /// As `p50_us`.
    pub max_us: f64,
    /// Replies with a tolerated error.
    pub errors: u64,
}

/// Percentiles of the latency curve. Those that the number of samples does not support are left out.
const PERCENTS: [f64; 22] = [
    0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 97.5, 99.0, 99.5, 99.75, 99.9, 99.95, 99.99,
    99.995, 99.999, 99.9995, 99.9999,
];

impl Latency {
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile: f64| ratio(histogram.value_at_quantile(quantile), 1000);
        Self {
            mean: histogram.mean() / 1e3,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            max: ratio(histogram.max(), 1000),
        }
    }
}

pub(crate) fn merged<'h>(histograms: impl Iterator<Item = &'h Histogram<u64>>) -> Histogram<u64> {
    let mut all = histogram();
    for one in histograms {
        all.add(one).expect("all histograms have the same bounds");
    }
    all
}

pub(crate) fn percentiles(histogram: &Histogram<u64>) -> Vec<Percentile> {
    let samples = ratio(histogram.len(), 1);
    if histogram.is_empty() {
        return Vec::new();
    }
    let supported =
        PERCENTS.into_iter().filter(|percent| (100.0 - percent) / 100.0 * samples >= 0.999 || *percent == 0.0);
    let point = |percent: f64| Percentile { percent, us: ratio(histogram.value_at_quantile(percent / 100.0), 1000) };
    let last = Percentile { percent: 100.0, us: ratio(histogram.max(), 1000) };
    supported.map(point).chain([last]).collect()
}

/// A quotient for display; 0 when there is nothing to divide by.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn ratio(numerator: u64, denominator: u64) -> f64 {
    if denominator == 0 { 0.0 } else { numerator as f64 / denominator as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thousand() -> Histogram<u64> {
        let mut samples = histogram();
        for us in 1..=1000_u64 {
            samples.saturating_record(us * 1000);
        }
        samples
    }

    fn near(found: f64, expect: f64) {
        assert!((found / expect - 1.0).abs() < 0.002, "{found} for {expect}");
    }

    #[test]
    fn percentiles_are_those_of_the_samples() {
        let latency = Latency::of(&thousand());
        near(latency.p50, 500.0);
        near(latency.p90, 900.0);
        near(latency.p99, 990.0);
        near(latency.p99_9, 999.0);
        near(latency.max, 1000.0);
        near(latency.mean, 500.5);
    }

    #[test]
    fn the_curve_ends_where_the_samples_do() {
        let curve = percentiles(&thousand());
        assert_eq!(curve.first().map(|point| point.percent), Some(0.0));
        assert_eq!(curve[curve.len() - 2].percent, 99.9, "a thousand samples tell nothing beyond");
        near(curve[curve.len() - 1].us, 1000.0);
        assert!(curve.is_sorted_by(|a, b| a.percent < b.percent && a.us <= b.us), "{curve:?}");
        assert!(percentiles(&histogram()).is_empty());
    }
}
