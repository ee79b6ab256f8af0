//! The table of the worst costs of every operation: each construction three times, the least time of each turn.

use std::collections::BTreeMap;

use super::constructions::{self, Construction};
use super::lab::{self, Bill, Lab};

/// A core does nothing else for so long at most.
pub const TURN_NS_MAX: u64 = 50_000_000;

const RUNS: usize = 3;
/// A turn that took longer than that is not run again.
const LONG_NS: u64 = 2_000_000_000;

pub struct Row {
    pub construction: Construction,
    pub bill: Bill,
}

impl Row {
    /// Longest turn of any core, ns.
    pub fn longest_ns(&self) -> u64 {
        self.bill.longest_ns.into_iter().max().unwrap_or(0)
    }

    pub fn line(&self) -> String {
        let Row { construction: Construction { op, what, .. }, bill } = self;
        let Bill { messages, bytes, most_units, largest_reply, .. } = bill;
        let of_bytes = |amount: u64| ratio(amount, *bytes);
        let [shard_ms, consensus_ms] = bill.longest_ns.map(|ns| ratio(ns, 1_000_000));
        let [shard, consensus] = bill.ns.map(of_bytes);
        let [logged, others, held] = [bill.logged, bill.others, bill.held].map(of_bytes);
        format!(
            "| {op} | {what} | {messages} | {bytes} | {shard_ms:.2} | {consensus_ms:.2} | {shard:.0} | {consensus:.0} \
             | {most_units} | {logged:.1} | {others:.1} | {held:.1} | {largest_reply} |"
        )
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn ratio(amount: u64, by: u64) -> f64 {
    amount as f64 / by.max(1) as f64
}

pub const HEADING: &str = "\
| operation | construction | requests | bytes sent | longest shard turn, ms | longest consensus turn, ms | shard ns/B | \
consensus ns/B | units of one log entry | logged B/B | to others B/B | held B/B | largest reply, B |
|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|";

/// Measures the constructions of which operation or text contain `which`, and tells of each as it is done.
///
/// # Panics
/// When what prepares a construction fails, so that it measures nothing.
pub fn measure(which: &str, mut tell: impl FnMut(&Row)) -> Vec<Row> {
    let chosen = constructions::all().into_iter().filter(|one| one.op.contains(which) || one.what.contains(which));
    let mut snapshots = BTreeMap::new();
    chosen
        .map(|construction| {
            let snapshot = snapshots.entry(construction.tree).or_insert_with(|| lab::snapshot(construction.tree));
            let run = || {
                let mut lab = Lab::new(snapshot);
                let prepared = lab.measure(&construction.prepare);
                assert!(prepared.failed == 0, "{}: {}: preparing it failed", construction.op, construction.what);
                lab.measure(&construction.steps)
            };
            let mut bill = run();
            for _ in 1..RUNS {
                if bill.ns.iter().sum::<u64>() < LONG_NS {
                    bill.least(&run());
                }
            }
            let row = Row { construction, bill };
            tell(&row);
            row
        })
        .collect()
}
