//! Reports: the fields that a run found out, printed as one line of JSON or as a table with the same names.
//!
//! A report begins with the settings, time and place of the run. Knows no socket and not what was measured.

use std::fs;
use std::io::Write as _;

use anyhow::{Context, Result};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::args::{CommonArgs, unix_time};

/// An open loop that completes less than this share of its offered rate was overloaded.
const RATE_KEPT: f64 = 0.98;

/// Fields with their values, in the order of the report.
pub(crate) type Fields = Vec<(&'static str, Value)>;

/// Makes [`Fields`]: `fields! { seconds: 1.5, operations }`.
macro_rules! fields {
    ($($name:ident $(: $value:expr)?),* $(,)?) => {
        vec![$((stringify!($name), serde_json::json!(fields!(@ $name $(, $value)?)))),*]
    };
    (@ $name:ident) => { $name };
    (@ $name:ident, $value:expr) => { $value };
}
pub(crate) use fields;

/// Everything one run found out. Times in microseconds, rates per second, unless a name says otherwise.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) scenario: &'static str,
    /// The run in one line, for people.
    pub(crate) headline: String,
    /// The settings of the run.
    pub(crate) load: Fields,
    /// The results.
    pub(crate) figures: Fields,
    /// Facts that a reader of the figures must know.
    pub(crate) remarks: Vec<String>,
}

impl Report {
    /// Prints the report on standard output.
    pub(crate) fn print(&self, args: &CommonArgs) -> Result<()> {
        let text = if args.json { self.json(args)? } else { self.table() };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{text}").and_then(|()| out.flush()).context("the report cannot be printed")
    }

    fn json(&self, args: &CommonArgs) -> Result<String> {
        let (scenario, label, command, machine) = (self.scenario, &args.label, command(std::env::args()), machine());
        let head: Fields = fields! { scenario, label, unix_time: unix_time(), command, machine: Object(machine) };
        let remarks = fields! { remarks: self.remarks };
        let all = [head, self.load.clone(), self.figures.clone(), remarks].concat();
        serde_json::to_string(&Object(all)).context("the report holds only strings and numbers")
    }

    fn table(&self) -> String {
        let mut rows = vec![(self.scenario.to_owned(), self.headline.clone())];
        let machine: Vec<String> = machine().iter().map(|(name, value)| format!("{name} {}", plain(value))).collect();
        rows.push(("machine".to_owned(), machine.join(", ")));
        self.figures.iter().for_each(|(name, value)| push_rows(&mut rows, name, value, ""));
        rows.extend(self.remarks.iter().map(|remark| ("note".to_owned(), remark.clone())));
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 2;
        rows.iter().map(|(name, text)| format!("{name:<width$}{text}")).collect::<Vec<_>>().join("\n")
    }
}

/// Serialises fields as an object in their order.
struct Object(Fields);

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// The rows of one field: latencies in one row, objects of objects in several, lists in none.
fn push_rows(rows: &mut Vec<(String, String)>, name: &str, value: &Value, indent: &str) {
    const LATENCY: [&str; 6] = ["mean", "p50", "p90", "p99", "p99_9", "max"];
    let title = format!("{indent}{}", name.replace('_', " "));
    let pair = |name: &str, value: &Value| format!("{} {}", name.replace("99_9", "99.9"), plain(value));
    match value {
        Value::Object(of) if LATENCY.iter().all(|name| of.contains_key(*name)) => {
            let all = LATENCY.map(|name| pair(name, &of[name])).join("  ");
            // Nothing takes no time at all: nothing was measured.
            rows.push((title, if of["max"] == 0.0 { "-".to_owned() } else { all }));
        }
        Value::Object(of) if of.is_empty() || (name == "by_op" && of.len() == 1) => {}
        Value::Object(of) if of.values().any(Value::is_object) => {
            rows.push((title, String::new()));
            of.iter().for_each(|(name, value)| push_rows(rows, name, value, &format!("{indent}  ")));
        }
        Value::Object(of) => {
            rows.push((title, of.iter().map(|(name, value)| pair(name, value)).collect::<Vec<_>>().join("  ")));
        }
        Value::Array(of) if name == "timeline" => {
            let longest = of.first().map_or(0.0, |row| row["seconds"].as_f64().unwrap_or(0.0));
            let full = of.iter().filter(|row| row["seconds"].as_f64() >= Some(longest * 0.9));
            let of: Vec<f64> = full.filter_map(|row| row["throughput"].as_f64()).collect();
            let (min, max) = (of.iter().copied().fold(f64::MAX, f64::min), of.iter().copied().fold(0.0, f64::max));
            if of.len() > 1 {
                rows.push(("by intervals".to_owned(), format!("{min:.0} to {max:.0} per second, {longest} s each")));
            }
        }
        Value::Null | Value::Array(_) => {}
        _ => rows.push((title, plain(value))),
    }
}

/// A value without quotes, a figure with three digits or more.
fn plain(value: &Value) -> String {
    match (value, value.as_f64()) {
        (Value::String(text), _) => text.clone(),
        (Value::Number(number), Some(figure)) if number.is_f64() => {
            let digits = if figure.abs() >= 100.0 { 0 } else { 3 };
            format!("{figure:.digits$}")
        }
        _ => value.to_string(),
    }
}

/// Where a run took place. A congestion control that paces (bbr) makes every send dearer.
fn machine() -> Fields {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    fields! {
        cpu: model.map_or("unknown", |(_, name)| name.trim()),
        cpus: cpuinfo.lines().filter(|line| line.starts_with("processor")).count(),
        kernel: line("/proc/sys/kernel/osrelease"),
        congestion: line("/proc/sys/net/ipv4/tcp_congestion_control"),
    }
}

/// The words of a command line; the program without its directory, which should not be in published figures.
fn command(words: impl Iterator<Item = String>) -> String {
    let mut words = words.map(|word| if word.contains(' ') { format!("'{word}'") } else { word });
    let program = words.next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default().to_owned();
    [program].into_iter().chain(words).collect::<Vec<_>>().join(" ")
}

/// The remark for a reader of an open loop's figures if the server did not keep up.
pub(crate) fn overloaded(offered: f64, throughput: f64) -> Option<String> {
    // Small rates have decimals that matter.
    let digits = if offered < 10.0 { 3 } else { 0 };
    (throughput < offered * RATE_KEPT)
        .then(|| format!("overloaded: {throughput:.digits$} of {offered:.digits$} per second offered were served"))
}
