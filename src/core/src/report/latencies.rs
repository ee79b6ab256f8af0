//! Histograms of times, as they are shown.

/// Upper bounds of the buckets in Prometheus, in microseconds. One more bucket has no bound.
pub const BOUNDS_US: [u64; 17] = [
    20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000,
    5_000_000,
];

/// Times of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Number of times.
    pub count: u64,
    /// Sum of the times, microseconds.
    pub us_sum: u64,
    /// Times up to each of [`BOUNDS_US`].
    pub upto: [u64; BOUNDS_US.len()],
    /// Quantiles of the times.
    pub quantiles: Quantiles,
}

/// Times in microseconds that this share of all times does not exceed, within 1 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quantiles {
    /// The median.
    pub p50: u64,
    /// 90 % of the times do not exceed it.
    pub p90: u64,
    /// 95 % of the times do not exceed it.
    pub p95: u64,
    /// 99 % of the times do not exceed it.
    pub p99: u64,
    /// 99.9 % of the times do not exceed it.
    pub p999: u64,
}

impl Histogram {
    /// Ten-thousandths of a millisecond.
    pub fn average(&self) -> u64 {
        self.us_sum.saturating_mul(10) / self.count.max(1)
    }
}
