//! The trace of a run: a hash over everything that happened, and, when wanted, the same as lines of text.
//!
//! Two runs of one seed must come to the same hash; a run that fails is run again with lines. A run that needs neither
//! saves a tenth of the time.

use xxhash_rust::xxh3::Xxh3;

/// The kept record of a run's course.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracing {
    Nothing,
    Hash,
    HashAndLines,
}

pub(crate) struct Trace {
    tracing: Tracing,
    pub(crate) hash: Xxh3,
    pub(crate) lines: Vec<String>,
}

impl Trace {
    pub(crate) fn new(tracing: Tracing) -> Trace {
        Trace { tracing, hash: Xxh3::new(), lines: Vec::new() }
    }

    /// Something happened at this time.
    pub(crate) fn note(&mut self, at: u64, what: std::fmt::Arguments<'_>) {
        if self.tracing != Tracing::Nothing {
            let line = format!("{:>8}.{:03} ms  {what}", at / 1000, at % 1000);
            self.hash.update(line.as_bytes());
            self.lines.extend((self.tracing == Tracing::HashAndLines).then_some(line));
        }
    }
}
