//! From raw runs to figures: what a run's report says, medians and spread over rounds, ratios between servers.
//!
//! A run is one line of `results.jsonl`. Only what is compared is looked at here; the raw report is kept as it came.
//! Pure arithmetic.

use serde::{Deserialize, Serialize};

/// One run as it is kept: one line of `results.jsonl`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Run {
    /// The server's name.
    pub(super) server: String,
    /// The cell's full name.
    pub(super) cell: String,
    /// From 1.
    pub(super) round: u32,
    /// How the server was started; none if it ran already.
    pub(super) server_command: Option<String>,
    /// CPUs the server was pinned to; empty if it was not, by this program.
    pub(super) server_cpus: Vec<usize>,
    /// One-minute load average before the round.
    pub(super) load_average: Option<f64>,
    /// What a durable write cost before the round.
    pub(super) fdatasync: Option<SyncProbe>,
    /// The load generator's report.
    pub(super) report: serde_json::Value,
}

/// Time of fdatasync after an append of 512 bytes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub(super) struct SyncProbe {
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    Cpu,
    Throughput,
    P50,
    P99,
    P999,
    Max,
}

impl Figure {
    pub(super) const ALL: [Self; 6] = [Self::Cpu, Self::Throughput, Self::P50, Self::P99, Self::P999, Self::Max];

    /// The head of its column.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Cpu => "CPU us/op",
            Self::Throughput => "ops/s",
            Self::P50 => "p50 us",
            Self::P99 => "p99 us",
            Self::P999 => "p99.9 us",
            Self::Max => "max us",
        }
    }

    /// Digits behind the point.
    pub(super) const fn digits(self) -> usize {
        if matches!(self, Self::Cpu) { 3 } else { 0 }
    }

    /// Its value in a run, if the run has it.
    pub(super) fn of(self, run: &Run) -> Option<f64> {
        let report = &run.report;
        let latency = |name: &str| report["latency_us"][name].as_f64();
        match self {
            Self::Cpu => report["server_cpu_us_per_op"].as_f64(),
            Self::Throughput => report["throughput"].as_f64(),
            Self::P50 => latency("p50"),
            Self::P99 => latency("p99"),
            Self::P999 => latency("p99_9"),
            Self::Max => latency("max"),
        }
    }
}

/// A figure over all rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) smallest: f64,
    pub(super) largest: f64,
}

impl Spread {
    /// None without any figure. The median of an even number lies between the two in the middle.
    pub(super) fn of(figures: impl Iterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = figures.filter(|figure| figure.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (smallest, largest) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) };
        Some(Self { median, smallest, largest })
    }
}

/// All runs of a comparison.
pub(super) struct Runs<'a>(pub(super) &'a [Run]);

impl Runs<'_> {
    /// The runs of a server in a cell, by round.
    pub(super) fn of<'b>(&'b self, server: &'b str, cell: &'b str) -> impl Iterator<Item = &'b Run> {
        self.0.iter().filter(move |run| run.server == server && run.cell == cell)
    }

    /// A figure over the rounds.
    pub(super) fn spread(&self, server: &str, cell: &str, figure: Figure) -> Option<Spread> {
        Spread::of(self.of(server, cell).filter_map(|run| figure.of(run)))
    }

    /// How many times another server's median a server's is.
    pub(super) fn ratio(&self, server: &str, other: &str, cell: &str, figure: Figure) -> Option<f64> {
        let divisor = self.spread(other, cell, figure)?.median;
        let ratio = self.spread(server, cell, figure)?.median / divisor;
        ratio.is_finite().then_some(ratio)
    }

    /// Points of the latency curve, (quantile, microseconds), each the median over the rounds; without the maximum.
    pub(super) fn percentiles(&self, server: &str, cell: &str) -> Vec<(f64, f64)> {
        let curve = |run: &Run| pairs(&run.report["percentiles"], "percent", "us");
        let curves: Vec<Vec<(f64, f64)>> = self.of(server, cell).map(curve).collect();
        let percents = curves.iter().find(|curve| !curve.is_empty()).into_iter().flatten().map(|(percent, _)| *percent);
        let at = |percent: f64| {
            let same = curves.iter().filter_map(move |curve| {
                curve.iter().find(|(there, _)| (there - percent).abs() < 1e-9).map(|(_, latency)| *latency)
            });
            Some((percent / 100.0, Spread::of(same)?.median))
        };
        percents.filter(|percent| *percent < 100.0).filter_map(at).collect()
    }

    /// Throughput over time, (seconds, operations per second), of the round whose throughput is nearest the median.
    pub(super) fn timeline(&self, server: &str, cell: &str) -> Vec<(f64, f64)> {
        let Some(spread) = self.spread(server, cell, Figure::Throughput) else { return Vec::new() };
        let distance = |run: &&Run| (Figure::Throughput.of(run).unwrap_or(f64::MAX) - spread.median).abs();
        let nearest = self.of(server, cell).min_by(|a, b| distance(a).total_cmp(&distance(b)));
        nearest.map(|run| pairs(&run.report["timeline"], "start", "throughput")).unwrap_or_default()
    }
}

/// Two numbers of each record of a list.
fn pairs(list: &serde_json::Value, first: &str, second: &str) -> Vec<(f64, f64)> {
    let pair = |entry: &serde_json::Value| Some((entry[first].as_f64()?, entry[second].as_f64()?));
    list.as_array().map(|entries| entries.iter().filter_map(pair).collect()).unwrap_or_default()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A made-up run.
    pub(in crate::compare) fn run(server: &str, cell: &str, round: u32, cpu: f64, throughput: f64) -> Run {
        let report = serde_json::json!({
            "server_cpu_us_per_op": cpu,
            "throughput": throughput,
            "latency_us": {"p50": 10.0 * cpu, "p99": 100.0 * cpu, "p99_9": 200.0 * cpu, "max": 1000.0 * cpu},
            "percentiles": [
                {"percent": 50.0, "us": 10.0 * cpu},
                {"percent": 99.0, "us": 100.0 * cpu},
                {"percent": 100.0, "us": 1000.0 * cpu},
            ],
            "timeline": [{"start": 0.0, "throughput": throughput}, {"start": 0.5, "throughput": throughput}],
            "remarks": [],
        });
        let (server, cell) = (server.to_owned(), cell.to_owned());
        Run {
            server,
            cell,
            round,
            server_command: None,
            server_cpus: vec![],
            load_average: None,
            fdatasync: None,
            report,
        }
    }

    #[test]
    fn medians_and_spread() {
        fn check(figures: &[f64], expect: Option<(f64, f64, f64)>) {
            let found = Spread::of(figures.iter().copied());
            assert_eq!(found.map(|spread| (spread.median, spread.smallest, spread.largest)), expect, "{figures:?}");
        }
        check(&[], None);
        check(&[3.0], Some((3.0, 3.0, 3.0)));
        check(&[9.0, 1.0, 2.0], Some((2.0, 1.0, 9.0)));
        check(&[4.0, 1.0, 2.0, 100.0], Some((3.0, 1.0, 100.0)));
        check(&[f64::NAN, 5.0], Some((5.0, 5.0, 5.0)));
    }

    #[test]
    fn ratios_are_those_of_the_medians() {
        let runs = [
            run("a", "get:1x1", 1, 1.0, 300.0),
            run("a", "get:1x1", 2, 2.0, 200.0),
            run("a", "get:1x1", 3, 9.0, 100.0),
            run("b", "get:1x1", 1, 8.0, 50.0),
            run("b", "set:1x1", 1, 1000.0, 1.0),
        ];
        let runs = Runs(&runs);
        assert_eq!(runs.ratio("a", "b", "get:1x1", Figure::Cpu), Some(0.25));
        assert_eq!(runs.ratio("a", "b", "get:1x1", Figure::Throughput), Some(4.0));
        assert_eq!(runs.ratio("a", "b", "set:1x1", Figure::Cpu), None);
        assert_eq!(runs.ratio("a", "nobody", "get:1x1", Figure::Cpu), None);
    }

    #[test]
    fn curves_are_medians_by_quantile_and_the_timeline_is_of_one_round() {
        let runs = [1.0, 3.0, 50.0].map(|cpu| run("a", "get:1x1", 1, cpu, 1000.0 / cpu));
        let runs = Runs(&runs);
        assert_eq!(runs.percentiles("a", "get:1x1"), [(0.5, 30.0), (0.99, 300.0)]);
        assert_eq!(runs.timeline("a", "get:1x1"), [(0.0, 1000.0 / 3.0), (0.5, 1000.0 / 3.0)]);
        assert!(runs.percentiles("a", "set:1x1").is_empty());
        assert!(runs.timeline("a", "set:1x1").is_empty());
    }
}
