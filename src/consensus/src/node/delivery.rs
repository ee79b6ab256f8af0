//! Committed entries on their way to the state machine.
//!
//! Invariants:
//! - Entries are delivered in the order of their indices, without a gap.
//! - A membership change is delivered when its commit is durable here, and no entry after it is delivered before. A
//!   server that lost the commit in a crash would count votes by the former membership. It could be elected beside the
//!   leader of the new one.

use std::collections::VecDeque;

use crate::types::{Entry, EntryKind, Index};

/// The point up to which entries were delivered, and the entries that wait.
pub(super) struct Delivery {
    /// Index of the last entry delivered or installed.
    delivered: Index,
    /// Entries that wait, with the number of the append that holds their commit.
    held: VecDeque<(u64, Entry)>,
}

impl Delivery {
    /// Everything up to `applied` was delivered in an earlier process.
    pub(super) fn new(applied: Index) -> Delivery {
        Delivery { delivered: applied, held: VecDeque::new() }
    }

    /// Index of the last entry delivered or installed.
    pub(super) fn delivered(&self) -> Index {
        self.delivered
    }

    /// Adds a committed entry to `out`, or holds it until append `number` is durable, which holds the commit index.
    pub(super) fn deliver_or_hold(&mut self, number: u64, entry: Entry, out: &mut Vec<Entry>) {
        if self.held.is_empty() && entry.kind != EntryKind::ConfChange {
            self.deliver(entry, out);
        } else {
            self.held.push_back((number, entry));
        }
    }

    /// Adds the entries to `out` that waited for appends up to `durable`.
    pub(super) fn release(&mut self, durable: u64, out: &mut Vec<Entry>) {
        while self.held.front().is_some_and(|(number, _)| *number <= durable) {
            let (_, entry) = self.held.pop_front().expect("just seen");
            self.deliver(entry, out);
        }
    }

    fn deliver(&mut self, entry: Entry, out: &mut Vec<Entry>) {
        assert!(entry.index.0 == self.delivered.0 + 1, "entry {} follows {}", entry.index, self.delivered);
        self.delivered = entry.index;
        out.push(entry);
    }

    /// A snapshot that ends at `index` replaces everything: entries that wait are in it.
    pub(super) fn installed(&mut self, index: Index) {
        self.delivered = index;
        self.held.clear();
    }
}
