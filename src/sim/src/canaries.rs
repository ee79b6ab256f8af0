//! The hunt for bugs put in on purpose: which checker sees each, and after how many seeds.
//!
//! What the tests demand and what `corral-sim canaries` prints. A bug that an assertion of the actors stops counts as
//! caught; for that the program must unwind, so that the release build, which aborts, is of no use here.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{Bug, Outcome, Tracing};

/// Seeds tried for one bug.
pub const TRIES: u64 = 120;

/// Runs a seed, of a server alone or of an ensemble.
pub type Seed = fn(u64, Option<Bug>, Tracing) -> Outcome;

/// How a bug was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caught {
    /// The first seed that failed, beginning at 0.
    pub seed: u64,
    /// The property that it names, or `"assertion"`.
    pub property: &'static str,
}

/// `None` when no seed failed.
#[must_use]
pub fn hunt(of: Seed, bug: Bug) -> Option<Caught> {
    (0..TRIES).find_map(|seed| match catch_unwind(AssertUnwindSafe(|| of(seed, Some(bug), Tracing::Nothing))) {
        Err(_) => Some(Caught { seed, property: "assertion" }),
        Ok(outcome) => outcome.violation.map(|violation| Caught { seed, property: violation.property }),
    })
}
