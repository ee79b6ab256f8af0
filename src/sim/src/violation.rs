//! The report of a checker when a property does not hold.

use std::fmt;

/// A broken property, named after the checker that found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub property: &'static str,
    pub detail: String,
}

/// The verdict of a checker.
pub type Checked = Result<(), Violation>;

impl Violation {
    /// For use in `Err(..)`.
    pub(crate) fn of(property: &'static str, detail: impl Into<String>) -> Violation {
        Violation { property, detail: detail.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.property, self.detail)
    }
}

/// Refuses unless the condition holds; the detail is only made then.
pub(crate) fn require(holds: bool, property: &'static str, detail: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(Violation::of(property, detail())) }
}
