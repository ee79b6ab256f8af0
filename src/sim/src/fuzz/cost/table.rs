//! The table of what every operation costs at worst: each construction three times, the least time of each turn.

use std::fmt::Write as _;

use corral_core::limits::NAMES_BYTES_MAX;

use super::Reach;
use super::bill::{Bill, ratio};
use super::constructions::{self, Construction};
use super::search::{CEILINGS, run};

/// Everything of a construction counts; only nonsense is cut off.
const REACH: Reach =
    Reach { bytes_max: 1 << 30, requests_max: 1_000_000, ns_max: 20_000_000_000, names_bytes_max: NAMES_BYTES_MAX };
const RUNS: usize = 3;
/// What took longer than that is not run again.
const LONG_NS: u64 = 2_000_000_000;

/// A line of the table.
pub struct Row {
    pub construction: Construction,
    pub bill: Bill,
}

impl Row {
    /// Longest turn of any core, ns.
    pub fn longest_ns(&self) -> u64 {
        self.bill.longest_ns.into_iter().max().unwrap_or(0)
    }

    /// Whether a core does nothing else for longer than it may.
    pub fn is_too_long(&self) -> bool {
        self.longest_ns() > CEILINGS.turn_ns
    }

    /// The line, in Markdown.
    pub fn line(&self) -> String {
        let Row { construction, bill } = self;
        let ms = |ns: u64| ratio(ns, 1_000_000);
        let of_bytes = |amount: u64| ratio(amount, bill.bytes);
        format!(
            "| {} | {} | {} | {} | {:.2} | {:.2} | {:.0} | {:.0} | {} | {:.1} | {:.1} | {:.1} | {} |",
            construction.op,
            construction.what,
            bill.messages,
            bill.bytes,
            ms(bill.longest_ns[0]),
            ms(bill.longest_ns[1]),
            of_bytes(bill.shard_ns),
            of_bytes(bill.core_ns),
            bill.most_units,
            of_bytes(bill.logged),
            of_bytes(bill.others),
            of_bytes(bill.held),
            bill.largest.reply,
        )
    }
}

/// The heading of the table.
pub const HEADING: &str = "\
| operation | construction | requests | bytes sent | longest shard turn, ms | longest consensus turn, ms | shard ns/B | \
consensus ns/B | units of one log entry | logged B/B | to others B/B | held B/B | largest reply, B |
|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|";

/// Measures the constructions of which operation or text contain `which`, and tells of each as it is done.
pub fn measure(which: &str, mut tell: impl FnMut(&Row)) -> Vec<Row> {
    let chosen = constructions::all().into_iter().filter(|one| one.op.contains(which) || one.what.contains(which));
    chosen
        .map(|construction| {
            let mut bill = run(&construction.genome, None, REACH);
            for _ in 1..RUNS {
                if bill.ns() < LONG_NS {
                    bill.least(&run(&construction.genome, None, REACH));
                }
            }
            let row = Row { construction, bill };
            let prepared = row.bill.failed_before == 0;
            assert!(prepared, "what prepares this row failed, so it measures nothing: {}", row.line());
            tell(&row);
            row
        })
        .collect()
}

/// The lines as a table, and what breaks the ceiling.
pub fn text(rows: &[Row]) -> String {
    let mut text = format!("{HEADING}\n");
    for row in rows {
        writeln!(text, "{}", row.line()).expect("a string takes everything");
    }
    text
}
