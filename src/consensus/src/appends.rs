//! The appends that are not durable yet, and when the next batch follows them.

use std::collections::VecDeque;

use crate::grouping::{GroupDecision, Grouping, Load};
use crate::leadership_transfer::Behind;
use crate::outputs::Append;
use crate::types::{Index, Micros};

/// An append with entries that is not durable yet.
#[derive(Debug)]
struct AppendInFlight {
    number: u64,
    /// Number of commands of this leader in it.
    commands: usize,
    /// Its last entry.
    last: Index,
    since: Micros,
}

/// Appends in flight, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Appends {
    in_flight: VecDeque<AppendInFlight>,
    /// Number of commands in the batch that the next append holds.
    batch_commands: usize,
    grouping: Grouping,
}

impl Appends {
    /// Whether the queued commands, of which there is at least one, go to the log now.
    pub(crate) fn decide(&mut self, now: Micros, queued: usize) -> GroupDecision {
        self.grouping.decide(now, Load { writes: queued, appends: self.in_flight.len() })
    }

    /// A batch with so many commands was proposed.
    pub(crate) fn batch_proposed(&mut self, commands: usize) {
        self.batch_commands = commands;
    }

    /// An append goes to the log.
    pub(crate) fn begin(&mut self, now: Micros, append: &Append) {
        if let Some(last) = append.entries.last() {
            let commands = std::mem::take(&mut self.batch_commands);
            self.in_flight.push_back(AppendInFlight { number: append.number, commands, last: last.index, since: now });
        }
    }

    /// The append of this number, and all before it, are durable. So many commands are queued.
    pub(crate) fn durable(&mut self, now: Micros, number: u64, queued: usize) {
        let (mut answered, mut since) = (0, None);
        while self.in_flight.front().is_some_and(|first| first.number <= number) {
            let append = self.in_flight.pop_front().expect("just seen");
            answered += append.commands;
            since = Some(append.since);
        }
        if let Some(since) = since {
            let under_way: usize = self.in_flight.iter().map(|append| append.commands).sum();
            self.grouping.durable(now, now.since(since), answered + under_way + queued);
        }
    }

    /// The oldest append, with the index of its last entry.
    pub(crate) fn oldest(&self) -> Option<(Behind, Index)> {
        let of = |append: &AppendInFlight| (Behind { number: append.number, begun: append.since }, append.last);
        self.in_flight.front().map(of)
    }
}
