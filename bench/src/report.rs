//! The figures of a run: as a table for people, as one line of JSON for scripts.
//!
//! Derives rates and percentiles from what was measured and says when a figure deserves doubt. Knows no socket.

use std::fmt::Write as _;
use std::fs;

use serde::Serialize;

use crate::args::{Args, Plan};
use crate::run::{Measured, writes};

/// Above this share of its CPUs the client, not the server, sets the pace.
const CLIENT_BUSY: f64 = 0.97;

/// An open loop that completes less than this share of its offered rate was overloaded.
const RATE_KEPT: f64 = 0.98;

/// Everything one run found out. Times in microseconds, rates per second.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The text of `--label`.
    pub label: Option<String>,
    /// Seconds since 1970 at the end of the run.
    pub unix_time: u64,
    /// The command line, without the directory of the program.
    pub command: String,
    /// The machine it ran on.
    pub machine: Machine,
    /// The operation's name.
    pub op: &'static str,
    /// Sessions.
    pub connections: u32,
    /// Requests in flight on each.
    pub depth: u32,
    /// Client threads.
    pub threads: u32,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// Requests offered per second in an open loop.
    pub offered_rate: Option<f64>,
    /// Length of the measured window in seconds.
    pub seconds: f64,
    /// Operations completed in the window, each reply checked.
    pub operations: u64,
    /// Operations per second.
    pub throughput: f64,
    /// Requests of an open loop that were due at the end but had found no place.
    pub backlog: u64,
    /// Latency in microseconds.
    pub latency_us: Latency,
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

/// Latency from when a request was sent (closed loop) or due (open loop) to when its reply was read.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)]
pub struct Latency {
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p99_9: f64,
    pub max: f64,
}

/// Where a run took place.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Model name of the first CPU.
    pub cpu: String,
    /// Online CPUs.
    pub cpus: usize,
    /// Kernel release.
    pub kernel: String,
    /// TCP congestion control of new sockets; one that paces (bbr) makes every send dearer.
    pub congestion: String,
}

impl Machine {
    /// This machine.
    #[must_use]
    pub fn here() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let line = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        Self {
            cpu: model.map_or("unknown", |(_, name)| name.trim()).to_owned(),
            cpus: cpuinfo.lines().filter(|line| line.starts_with("processor")).count(),
            kernel: line("/proc/sys/kernel/osrelease"),
            congestion: line("/proc/sys/net/ipv4/tcp_congestion_control"),
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {} CPUs, kernel {}, TCP {}", self.cpu, self.cpus, self.kernel, self.congestion)
    }
}

impl Report {
    pub(crate) fn of(args: &Args, plan: &Plan, measured: &Measured) -> Self {
        let seconds = measured.window.as_secs_f64();
        let throughput = ratio(measured.operations, 1) / seconds;
        let client_cpus_busy = ratio(measured.client_cpu_ns, 1) / 1e9 / seconds;
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let mut report = Self {
            label: args.label.clone(),
            unix_time: since.as_secs(),
            command: command(std::env::args()),
            machine: Machine::here(),
            op: plan.op.name(),
            connections: plan.connections,
            depth: plan.depth,
            threads: plan.threads,
            value_bytes: plan.value_bytes,
            offered_rate: plan.rate,
            seconds,
            operations: measured.operations,
            throughput,
            backlog: measured.backlog,
            latency_us: Latency::of(&measured.latency),
            server_cpu_us_per_op: measured.server_cpu_ns.map(|ns| ratio(ns, measured.operations) / 1e3),
            server_cpus_busy: measured.server_cpu_ns.map(|ns| ratio(ns, 1) / 1e9 / seconds),
            server_resident_kib: measured.server_resident_kib,
            client_cpu_us_per_op: ratio(measured.client_cpu_ns, measured.operations) / 1e3,
            client_cpus_busy,
            remarks: Vec::new(),
        };
        report.remark(plan);
        report
    }

    fn remark(&mut self, plan: &Plan) {
        let mut say = |text: String| self.remarks.push(text);
        if self.operations == 0 {
            say("no operation was completed in the window".to_owned());
        }
        if let Some(offered) = self.offered_rate {
            if self.throughput < offered * RATE_KEPT {
                say(format!("overloaded: {:.0} of {offered:.0} per second offered were served", self.throughput));
            }
        } else if self.client_cpus_busy > f64::from(self.threads) * CLIENT_BUSY {
            say("the client was the bottleneck: throughput is a lower bound, more --threads may find more".to_owned());
        }
        if writes(plan.op) && plan.op != crate::Operation::Create && plan.keys < 100 {
            say("few keys: writes to one znode may be cheaper than real ones".to_owned());
        }
    }

    /// The table for people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut out = String::new();
        let mut row = |name: &str, value: String| {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{name:<22}{value}");
        };
        let pace = self.offered_rate.map_or("closed loop".to_owned(), |rate| format!("open loop at {rate:.0}/s"));
        let Self { op, connections, depth, value_bytes, .. } = self;
        row("load", format!("{op}, {connections} connections x {depth} in flight, {value_bytes} B values, {pace}"));
        row("machine", self.machine.to_string());
        row("measured", format!("{} operations in {:.2} s, every reply checked", self.operations, self.seconds));
        row("throughput", format!("{:.0} operations/s", self.throughput));
        let Latency { mean, p50, p90, p99, p99_9, max } = self.latency_us;
        row(
            "latency us",
            format!("mean {mean:.0}  p50 {p50:.0}  p90 {p90:.0}  p99 {p99:.0}  p99.9 {p99_9:.0}  max {max:.0}"),
        );
        if let (Some(cpu), Some(busy)) = (self.server_cpu_us_per_op, self.server_cpus_busy) {
            row("server CPU", format!("{cpu:.3} us/operation ({busy:.2} CPUs busy)"));
        }
        if let Some(kib) = self.server_resident_kib {
            row("server memory", format!("{:.1} MiB resident", ratio(kib, 1024)));
        }
        let (cpu, busy) = (self.client_cpu_us_per_op, self.client_cpus_busy);
        row("client CPU", format!("{cpu:.3} us/operation ({busy:.2} CPUs busy)"));
        if self.backlog > 0 {
            row("backlog", format!("{} requests were due and unsent at the end", self.backlog));
        }
        for remark in &self.remarks {
            row("note", remark.clone());
        }
        out
    }

    /// One line of JSON, without the line end.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("the report holds only strings and numbers")
    }
}

impl Latency {
    fn of(histogram: &hdrhistogram::Histogram<u64>) -> Self {
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

/// A quotient for display; 0 when there is nothing to divide by.
#[allow(clippy::cast_precision_loss)]
fn ratio(numerator: u64, denominator: u64) -> f64 {
    if denominator == 0 { 0.0 } else { numerator as f64 / denominator as f64 }
}

/// The words of a command line; the program without its directory, which is nobody's business in a published figure.
fn command(words: impl Iterator<Item = String>) -> String {
    let mut words = words.map(|word| if word.contains(' ') { format!("'{word}'") } else { word });
    let program = words.next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default().to_owned();
    std::iter::once(program).chain(words).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::histogram;

    #[test]
    fn percentiles_are_those_of_the_samples() {
        let mut samples = histogram();
        for us in 1..=1000_u64 {
            samples.saturating_record(us * 1000);
        }
        let latency = Latency::of(&samples);
        let near = |found: f64, expect: f64| assert!((found / expect - 1.0).abs() < 0.002, "{found} for {expect}");
        near(latency.p50, 500.0);
        near(latency.p90, 900.0);
        near(latency.p99, 990.0);
        near(latency.p99_9, 999.0);
        near(latency.max, 1000.0);
        near(latency.mean, 500.5);
    }

    #[test]
    fn the_command_is_shown_without_directories() {
        fn check(words: &[&str], expect: &str) {
            assert_eq!(command(words.iter().map(ToString::to_string)), expect);
        }
        check(&["/a/b/corral-bench", "-o", "set"], "corral-bench -o set");
        check(&["x", "--label", "a b"], "x --label 'a b'");
        check(&[], "");
    }
}
