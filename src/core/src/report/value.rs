//! Values of metrics, and the lines that show them.

use super::facts::Timing;
use super::latencies::{Histogram, Quantiles};
use crate::shard::counters::Latency;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The value of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// The server has no such thing: there is no line.
    Absent,
    /// A whole number, in the unit of the metric.
    Whole(i64),
    /// A number of ten-thousandths.
    TenThousandths(u64),
    /// Of a metric of [`Kind::Summary`](super::kind::Kind::Summary).
    Summary(Summary),
    /// Of a metric of [`Kind::Histogram`](super::kind::Kind::Histogram).
    Histogram(Box<Histogram>),
    /// A word or a sentence.
    Text(String),
}

/// Durations in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Number of durations.
    pub count: u64,
    /// Sum of the durations.
    pub sum: u64,
    /// The shortest; 0 if there is none.
    pub min: u64,
    /// The longest; 0 if there is none.
    pub max: u64,
    /// The average in ten-thousandths of a millisecond.
    pub average_ten_thousandths: u64,
    /// Quantiles, in microseconds; `None` where only sums are kept.
    pub quantiles: Option<Quantiles>,
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Whole(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Value {
    fn from(yes: bool) -> Self {
        Self::Whole(i64::from(yes))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Absent, Into::into)
    }
}

impl From<&Latency> for Value {
    fn from(of: &Latency) -> Self {
        let average_ten_thousandths = of.average();
        Self::Summary(Summary {
            count: of.count,
            sum: of.ms_sum,
            min: of.ms_min(),
            max: of.ms_max,
            average_ten_thousandths,
            quantiles: None,
        })
    }
}

impl From<&Timing> for Value {
    fn from(of: &Timing) -> Self {
        let average_ten_thousandths = of.us_sum.saturating_mul(10) / of.count.max(1);
        let (sum, min, max) = (of.us_sum / 1000, of.us_min / 1000, of.us_max / 1000);
        Self::Summary(Summary { count: of.count, sum, min, max, average_ten_thousandths, quantiles: None })
    }
}

impl Value {
    /// The lines of a metric of this name: a name, and a number or a text. A summary has five, and four more if its quantiles are
    /// known. A histogram has six.
    pub(super) fn lines(self, name: String) -> Vec<(String, Self)> {
        let with = |part: &str, value| (format!("{part}_{name}"), value);
        match self {
            Self::Summary(of) => {
                let mut lines = Vec::from([
                    with("avg", Self::TenThousandths(of.average_ten_thousandths)),
                    with("min", of.min.into()),
                    with("max", of.max.into()),
                    with("cnt", of.count.into()),
                    with("sum", of.sum.into()),
                ]);
                lines.extend(of.quantiles.iter().flat_map(quantiles).map(|(part, value)| with(part, value)));
                lines
            }
            Self::Histogram(of) => {
                let average = Self::TenThousandths(of.average());
                let mut lines = Vec::from([with("cnt", of.count.into()), with("avg", average)]);
                lines.extend(quantiles(&of.quantiles).map(|(part, value)| with(part, value)));
                lines
            }
            value => Vec::from([(name, value)]),
        }
    }
}

/// As ZooKeeper names them, in milliseconds.
fn quantiles(of: &Quantiles) -> [(&'static str, Value); 4] {
    [("p50", of.p50), ("p95", of.p95), ("p99", of.p99), ("p999", of.p999)]
        .map(|(part, us)| (part, Value::TenThousandths(us.saturating_mul(10))))
}

/// Ten-thousandths as Java prints a double rounded to four digits: at least one after the point, no trailing zeros.
pub(super) fn decimal(ten_thousandths: u64) -> String {
    let mut text = alloc::format!("{}.{:04}", ten_thousandths / 10_000, ten_thousandths % 10_000);
    while text.ends_with('0') && !text.ends_with(".0") {
        text.pop();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_as_java_prints_them() {
        for (value, text) in [(0, "0.0"), (5000, "0.5"), (4217, "0.4217"), (120_000, "12.0"), (12_500, "1.25")] {
            assert_eq!(decimal(value), text);
        }
    }
}
