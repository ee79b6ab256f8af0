//! The trace of a run: a hash over everything that happened, and, when wanted, the same as lines of text.
//!
//! Two runs of one seed must come to the same hash; a run that fails is run again with lines. Whoever wants neither saves a
//! tenth of the time.

use std::fmt::Write as _;

use xxhash_rust::xxh3::Xxh3;

/// What is kept of a run's course.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracing {
    Nothing,
    Hash,
    HashAndLines,
}

pub(crate) struct Trace {
    hash: Option<Xxh3>,
    pub(crate) events: u64,
    pub(crate) lines: Option<Vec<String>>,
    scratch: String,
}

impl Trace {
    pub(crate) fn new(tracing: Tracing) -> Trace {
        let hash = (tracing != Tracing::Nothing).then(Xxh3::new);
        let lines = (tracing == Tracing::HashAndLines).then(Vec::new);
        Trace { hash, events: 0, lines, scratch: String::new() }
    }

    /// Something happened at this time.
    pub(crate) fn note(&mut self, at: u64, what: std::fmt::Arguments<'_>) {
        self.events += 1;
        let Some(hash) = &mut self.hash else { return };
        self.scratch.clear();
        write!(self.scratch, "{:>8}.{:03} ms  {what}", at / 1000, at % 1000).expect("a string takes everything");
        hash.update(self.scratch.as_bytes());
        if let Some(lines) = &mut self.lines {
            lines.push(self.scratch.clone());
        }
    }

    /// 0 if no hash was wanted.
    pub(crate) fn digest(&self) -> u64 {
        self.hash.as_ref().map_or(0, Xxh3::digest)
    }
}
