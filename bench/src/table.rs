//! The figures of a load as a table for people.
//!
//! Knows the report and nothing else.

use std::fmt::Write as _;

use crate::figures::{Latency, ratio};
use crate::report::Report;

/// Rows of a name and a value, aligned.
#[derive(Debug, Default)]
pub(crate) struct Table(String);

impl Table {
    pub(crate) fn row(&mut self, name: &str, value: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{name:<22}{value}");
    }

    pub(crate) fn latency(&mut self, name: &str, latency: &Latency) {
        let Latency { mean, p50, p90, p99, p99_9, max } = latency;
        // Nothing takes no time at all: nothing was measured.
        if *max == 0.0 {
            return self.row(name, "-");
        }
        let text = format!("mean {mean:.0}  p50 {p50:.0}  p90 {p90:.0}  p99 {p99:.0}  p99.9 {p99_9:.0}  max {max:.0}");
        self.row(name, &text);
    }

    /// What a reader must know, one line each.
    pub(crate) fn notes(&mut self, remarks: &[String]) {
        for remark in remarks {
            self.row("note", remark);
        }
    }

    pub(crate) fn into_text(self) -> String {
        self.0
    }
}

impl Report {
    /// The table for people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut table = Table::default();
        let pace = self.offered_rate.map_or("closed loop".to_owned(), |rate| format!("open loop at {rate:.0}/s"));
        let Self { connections, depth, value_bytes, value_bytes_min, .. } = self;
        let op = if self.op == "mix" { &self.mix } else { &self.op };
        let sizes = if value_bytes_min == value_bytes { String::new() } else { format!("{value_bytes_min} to ") };
        let keys =
            if self.keys_distribution == "uniform" { String::new() } else { format!(" {},", self.keys_distribution) };
        let load =
            format!("{op},{keys} {connections} connections x {depth} in flight, {sizes}{value_bytes} B values, {pace}");
        table.row("load", &load);
        table.row("machine", &self.machine.to_string());
        let measured = format!("{} operations in {:.2} s, every reply checked", self.operations, self.seconds);
        table.row("measured", &measured);
        table.row("throughput", &format!("{:.0} operations/s{}", self.throughput, self.steadiness()));
        table.latency("latency us", &self.latency_us);
        if self.by_op.len() > 1 {
            for (name, of) in &self.by_op {
                table.row(&format!("  {name}"), &format!("{} operations, {:.0}/s", of.operations, of.throughput));
                table.latency("", &of.latency_us);
            }
        }
        if let (Some(cpu), Some(busy)) = (self.server_cpu_us_per_op, self.server_cpus_busy) {
            table.row("server CPU", &format!("{cpu:.3} us/operation ({busy:.2} CPUs busy)"));
        }
        if let Some(kib) = self.server_resident_kib {
            table.row("server memory", &format!("{:.1} MiB resident", ratio(kib, 1024)));
        }
        let (cpu, busy) = (self.client_cpu_us_per_op, self.client_cpus_busy);
        table.row("client CPU", &format!("{cpu:.3} us/operation ({busy:.2} CPUs busy)"));
        if self.backlog > 0 {
            table.row("backlog", &format!("{} requests were due and unsent at the end", self.backlog));
        }
        for (name, count) in &self.errors {
            table.row("errors", &format!("{count} {name}"));
        }
        for remark in &self.remarks {
            table.row("note", remark);
        }
        table.into_text()
    }

    /// The slowest and the fastest full interval.
    fn steadiness(&self) -> String {
        let longest = self.timeline.first().map_or(0.0, |first| first.seconds);
        let full = || self.timeline.iter().filter(|row| row.seconds >= longest * 0.9).map(|row| row.throughput);
        if full().count() < 2 {
            return String::new();
        }
        let (min, max) = (full().fold(f64::MAX, f64::min), full().fold(0.0, f64::max));
        format!(" ({min:.0} to {max:.0} by intervals of {longest} s)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::histogram;

    #[test]
    fn what_was_not_measured_has_no_latency() {
        let (mut table, mut some) = (Table::default(), histogram());
        table.latency("none", &Latency::of(&some));
        some.saturating_record(5000);
        table.latency("some", &Latency::of(&some));
        let text = table.into_text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["none", "-"]);
        assert!(lines[1].contains("p50 5 "), "{text}");
    }
}
