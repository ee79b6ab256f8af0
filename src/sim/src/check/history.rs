//! The log as it was committed: the same on every server, as far as each has come.

use std::collections::BTreeMap;

use crate::check::entry::CommittedEntry;
use crate::violation::{Checked, Violation, require};

#[derive(Debug, Default)]
pub(super) struct History {
    /// Of each entry from index 1 on. The start of the founders takes the place of the first.
    pub(super) entries: Vec<(u64, Option<u64>)>,
    /// The last sequence number below each parent, by path and czxid.
    pub(super) sequences: BTreeMap<(String, u64), i32>,
}

impl History {
    /// A snapshot holds committed entries only. A server that is alone must recover all of them.
    pub(super) fn comes_back(&self, snapshot: u64, upto: Option<u64>) -> Checked {
        let known = self.entries.len() as u64;
        require(snapshot <= known, "writes", || {
            format!("the snapshot ends at {snapshot}, only {known} entries were committed")
        })?;
        let whole = upto.is_none_or(|upto| upto >= known);
        require(whole, "writes", || format!("entries up to {upto:?} came back, {known} had been committed"))
    }

    /// True when the entry is new; a known one must be what it was, and lead to the tree that it led to.
    pub(super) fn is_new(&mut self, entry: &CommittedEntry) -> Result<bool, Violation> {
        let digest = xxhash_rust::xxh3::xxh3_64(&entry.payload);
        let at = usize::try_from(entry.index - 1).expect("runs are short");
        match self.entries.get(at) {
            Some((known, tree)) if *known == digest => {
                let same = *tree == entry.digest;
                require(same, "digests", || format!("behind entry {} {:?}, was {tree:?}", entry.index, entry.digest))?;
                Ok(false)
            }
            Some(_) => Err(Violation::of("writes", format!("entry {} is not what it was", entry.index))),
            None if at == self.entries.len() => {
                self.entries.push((digest, entry.digest));
                Ok(true)
            }
            None => Err(Violation::of("writes", format!("entry {} after {}", entry.index, self.entries.len()))),
        }
    }
}
