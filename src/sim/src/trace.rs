//! The trace of a run: a hash over everything that happened, and, when wanted, the same as lines of text.
//!
//! Two runs of one seed must come to the same hash; a run that fails is run again with lines.

use std::fmt::Write as _;

use xxhash_rust::xxh3::Xxh3;

/// See the module.
pub(crate) struct Trace {
    hash: Xxh3,
    events: u64,
    lines: Option<Vec<String>>,
    scratch: String,
}

impl Trace {
    pub(crate) fn new(with_lines: bool) -> Trace {
        Trace { hash: Xxh3::new(), events: 0, lines: with_lines.then(Vec::new), scratch: String::new() }
    }

    /// Something happened at this time.
    pub(crate) fn note(&mut self, at: u64, what: std::fmt::Arguments<'_>) {
        self.scratch.clear();
        write!(self.scratch, "{} ms  {what}", Milliseconds(at)).expect("a string takes everything");
        self.hash.update(self.scratch.as_bytes());
        self.events += 1;
        if let Some(lines) = &mut self.lines {
            lines.push(self.scratch.clone());
        }
    }

    pub(crate) fn digest(&self) -> u64 {
        self.hash.digest()
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// The last lines, if they were kept.
    pub(crate) fn tail(&self, count: usize) -> &[String] {
        let lines = self.lines.as_deref().unwrap_or_default();
        &lines[lines.len().saturating_sub(count)..]
    }
}

/// Microseconds, shown as milliseconds without a float.
struct Milliseconds(u64);

impl std::fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = format!("{}.{:03}", self.0 / 1000, self.0 % 1000);
        write!(f, "{text:>12}")
    }
}
