//! `corral-sim costs`: the table of the dearest known request of each operation.

use std::fmt::Write as _;

use corral_sim::fuzz::cost::table::{self, TURN_NS_MAX};
use corral_sim::fuzz::memory::is_counted;

use crate::console::{commit, say};

const BEGIN: &str = "<!-- costs: begin, written by corral-sim costs --write -->\n";
const END: &str = "<!-- costs: end -->\n";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only constructions with this text in the operation or description
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Writes the table into this page, between its marks
    #[arg(long, value_name = "FILE", conflicts_with = "only")]
    write: Option<String>,
}

/// Prints the table, and writes it into the documentation if there is a file. Whether no ceiling was broken.
pub(crate) fn run(options: &Options) -> bool {
    assert!(is_counted(), "the counting allocator is installed in this program");
    say(table::HEADING);
    let rows = table::measure(&options.only, |row| say(&row.line()));
    let mut good = true;
    for row in rows.iter().filter(|row| row.longest_ns() > TURN_NS_MAX) {
        good = false;
        let (op, what) = (row.construction.op, row.construction.what);
        let (ms, ceiling) = (row.longest_ns() / 1_000_000, TURN_NS_MAX / 1_000_000);
        say(&format!("FAIL {op}, {what}: a core does nothing else for {ms} ms, {ceiling} ms at most"));
    }
    if let Some(file) = &options.write {
        let mut text = format!("{}\n", table::HEADING);
        for row in &rows {
            writeln!(text, "{}", row.line()).expect("a string takes everything");
        }
        good &= write(file, &text).inspect_err(|error| say(&format!("{file}: {error}"))).is_ok();
    }
    good
}

fn write(file: &str, table: &str) -> std::io::Result<()> {
    let text = std::fs::read_to_string(file)?;
    let missing = || std::io::Error::other("the marks of the table are missing");
    let (before, rest) = text.split_once(BEGIN).ok_or_else(missing)?;
    let (_, behind) = rest.split_once(END).ok_or_else(missing)?;
    let note = format!("Measured at commit {} on {}.\n", commit(), machine());
    std::fs::write(file, format!("{before}{BEGIN}{note}\n{table}{END}{behind}"))
}

fn machine() -> String {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let count = cpus.lines().filter(|line| line.starts_with("processor")).count();
    format!("{count} CPUs, {}", model.trim_start_matches([' ', '\t', ':']))
}
