//! The figures of a load: the public, serialisable record of everything one run found out.
//!
//! Derives rates and percentiles from what was measured and adds a remark if a figure is doubtful. `table` prints it for
//! people, [`Report::json`] for scripts, [`Report::csv`] the timeline for spreadsheets. Knows no socket.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::check::error_name;
use crate::connection::Pace;
use crate::figures::{merged, percentiles, ratio};
use crate::limits::BACKLOG_RECORDED_MAX;
use crate::machine::{Machine, command_line, unix_time};
use crate::meter::cell;
use crate::mix::Kind;
use crate::plan::Plan;
use crate::run::Measured;
use crate::timeline::{Total, intervals};

pub use crate::figures::{Interval, Latency, Percentile};

/// Everything one load found out. Times in microseconds, rates per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Which sub-command made it: `load`.
    pub scenario: String,
    /// The text of `--label`.
    pub label: Option<String>,
    /// Seconds since 1970 at the end of the run.
    pub unix_time: u64,
    /// The command line, without the directory of the program.
    pub command: String,
    /// The machine it ran on.
    pub machine: Machine,
    /// The operation's name; `mix` if there are several.
    pub op: String,
    /// The weights of the operations, as `get=90,set=10`.
    pub mix: String,
    /// Sessions.
    pub connections: u32,
    /// Requests in flight on each.
    pub depth: u32,
    /// Client threads.
    pub threads: u32,
    /// Bytes of each value, the largest if it is a range.
    pub value_bytes: usize,
    /// Bytes of the smallest value.
    pub value_bytes_min: usize,
    /// Number of keys.
    pub keys: u32,
    /// `uniform` or `zipf 0.99`.
    pub keys_distribution: String,
    /// Requests offered per second in an open loop.
    pub offered_rate: Option<f64>,
    /// Length of the measured window in seconds.
    pub seconds: f64,
    /// Operations answered in the window, each reply checked. Those of `errors` are not among them.
    pub operations: u64,
    /// Operations per second.
    pub throughput: f64,
    /// Requests of an open loop that were due at the end but had found no place.
    pub backlog: u64,
    /// Latency of all operations.
    pub latency_us: Latency,
    /// Latency at many percentiles, for plotting; ascending, the last is the maximum.
    pub percentiles: Vec<Percentile>,
    /// The same by operation.
    pub by_op: BTreeMap<String, ByOp>,
    /// Replies with an error that was to be tolerated, by the error's name.
    pub errors: BTreeMap<String, u64>,
    /// The window cut into intervals, in order and without gaps.
    pub timeline: Vec<Interval>,
    /// On-CPU time of all the server's threads per operation.
    pub server_cpu_us_per_op: Option<f64>,
    /// CPUs the server kept busy on average.
    pub server_cpus_busy: Option<f64>,
    /// The server's resident memory at the end.
    pub server_resident_kib: Option<u64>,
    /// On-CPU time of the load generator per operation.
    pub client_cpu_us_per_op: f64,
    /// CPUs the load generator kept busy on average.
    pub client_cpus_busy: f64,
    /// What a reader of the figures must know.
    pub remarks: Vec<String>,
}

/// One operation of a mix.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ByOp {
    /// Operations answered in the window.
    pub operations: u64,
    /// Operations per second.
    pub throughput: f64,
    /// Their latency, those in flight at the window's end included.
    pub latency_us: Latency,
}

/// Above this share of its CPUs the client, not the server, sets the pace.
const CLIENT_BUSY: f64 = 0.97;

/// An open loop that completes less than this share of its offered rate was overloaded.
const RATE_KEPT: f64 = 0.98;

impl Report {
    pub(crate) fn of(label: Option<&String>, plan: &Plan, measured: &Measured) -> Self {
        let seconds = measured.window.as_secs_f64();
        let window_ns = u64::try_from(measured.window.as_nanos()).unwrap_or(u64::MAX);
        let interval_ns = u64::try_from(plan.interval.as_nanos()).unwrap_or(u64::MAX);
        let by_kind = by_kind(&measured.totals);
        let operations = by_kind.values().map(|total| total.operations).sum();
        let all = merged(by_kind.values().map(|total| &total.latency));
        let mut report = Self {
            scenario: "load".to_owned(),
            label: label.cloned(),
            unix_time: unix_time(),
            command: command_line(),
            machine: Machine::here(),
            op: plan.mix.name().to_owned(),
            mix: plan.mix.text(),
            connections: plan.connections,
            depth: plan.depth,
            threads: plan.threads,
            value_bytes: plan.value_bytes_max,
            value_bytes_min: plan.value_bytes_min,
            keys: plan.keys,
            keys_distribution: plan.theta.map_or("uniform".to_owned(), |theta| format!("zipf {theta}")),
            offered_rate: plan.rate,
            seconds,
            operations,
            throughput: ratio(operations, 1) / seconds,
            backlog: measured.backlog,
            latency_us: Latency::of(&all),
            percentiles: percentiles(&all),
            by_op: by_kind.into_iter().map(|(name, total)| (name.to_owned(), ByOp::of(&total, seconds))).collect(),
            errors: measured.errors.iter().map(|(code, count)| (error_name(*code).to_owned(), *count)).collect(),
            timeline: intervals(&measured.rows, interval_ns, window_ns),
            server_cpu_us_per_op: measured.server_cpu_ns.map(|ns| ratio(ns, operations) / 1e3),
            server_cpus_busy: measured.server_cpu_ns.map(|ns| ratio(ns, 1) / 1e9 / seconds),
            server_resident_kib: measured.server_resident_kib,
            client_cpu_us_per_op: ratio(measured.client_cpu_ns, operations) / 1e3,
            client_cpus_busy: ratio(measured.client_cpu_ns, 1) / 1e9 / seconds,
            remarks: Vec::new(),
        };
        report.remarks.clone_from(&measured.doubts);
        report.remark(plan, measured.unrecorded);
        report
    }

    fn remark(&mut self, plan: &Plan, unrecorded: u64) {
        let mut say = |text: String| self.remarks.push(text);
        if self.operations == 0 {
            say("no operation was completed in the window".to_owned());
        }
        if let Some(offered) = self.offered_rate {
            open_loop_remarks(offered, self.throughput, unrecorded).into_iter().for_each(&mut say);
        } else if self.client_cpus_busy > f64::from(self.threads) * CLIENT_BUSY {
            say("the client was the bottleneck: throughput is a lower bound, more --threads may find more".to_owned());
        }
        if plan.mix.kinds().any(|kind| kind.writes() && kind.uses_keys()) && plan.keys < 100 {
            say("few keys: writes to one znode may be cheaper than real ones".to_owned());
        }
        let of = |name: &str| self.by_op.get(name).map_or(0, |of| of.operations);
        if !plan.mix.has(Kind::Create) && of("create") > 0 {
            say(format!("{} creates were needed, because nothing was left to delete", of("create")));
        }
        let errors: u64 = self.errors.values().sum();
        if errors > 0 {
            say(format!("{errors} replies were errors; they are no operations and have no latency here"));
        }
    }

    /// One line of JSON, without the line end.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("the report holds only strings and numbers")
    }

    /// The timeline as comma-separated values with a line of names in front.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut out = "start_s,seconds,operations,throughput,p50_us,p99_us,p99_9_us,max_us,errors\n".to_owned();
        for row in &self.timeline {
            let Interval { start, seconds, operations, throughput, p50_us, p99_us, p99_9_us, max_us, errors } = row;
            // Writing to a String cannot fail.
            let _ = writeln!(
                out,
                "{start:.3},{seconds:.3},{operations},{throughput:.1},{p50_us:.1},{p99_us:.1},{p99_9_us:.1},{max_us:.1},{errors}"
            );
        }
        out
    }
}

impl ByOp {
    pub(crate) fn of(total: &Total, seconds: f64) -> Self {
        Self {
            operations: total.operations,
            throughput: ratio(total.operations, 1) / seconds,
            latency_us: Latency::of(&total.latency),
        }
    }
}

/// What a reader of an open loop's figures must know. `unrecorded` of the backlog are not in the latency.
pub(crate) fn open_loop_remarks(offered: f64, throughput: f64, unrecorded: u64) -> Vec<String> {
    let mut remarks = Vec::new();
    if throughput < offered * RATE_KEPT {
        // Small rates have decimals that matter.
        let digits = if offered < 10.0 { 3 } else { 0 };
        remarks.push(format!("overloaded: {throughput:.digits$} of {offered:.digits$} per second offered were served"));
    }
    if unrecorded > 0 {
        remarks.push(format!(
            "{unrecorded} of the backlog are not in the latency, which takes the first {BACKLOG_RECORDED_MAX} of each \
             thread: percentiles are not those of all"
        ));
    }
    remarks
}

/// Both paces together.
fn by_kind(totals: &[Option<Total>]) -> BTreeMap<&'static str, Total> {
    let mut found = BTreeMap::new();
    for kind in Kind::MEASURED {
        let cells = || [Pace::Closed, Pace::Open].into_iter().filter_map(|pace| totals[cell(pace, kind)].as_ref());
        let operations = cells().map(|total| total.operations).sum();
        let latency = merged(cells().map(|total| &total.latency));
        if !latency.is_empty() {
            found.insert(kind.name(), Total { latency, operations });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_loop_says_what_it_could_not_do() {
        assert_eq!(open_loop_remarks(100.0, 99.0, 0), Vec::<String>::new());
        assert_eq!(open_loop_remarks(100.0, 40.0, 0), ["overloaded: 40 of 100 per second offered were served"]);
        assert_eq!(open_loop_remarks(0.5, 0.25, 0), ["overloaded: 0.250 of 0.500 per second offered were served"]);
        let remarks = open_loop_remarks(100.0, 100.0, 7);
        assert!(remarks[0].starts_with("7 of the backlog are not in the latency"), "{remarks:?}");
    }
}
