//! Standard output, and the facts that a run prints: its commit and its first seed.

use std::io::Write as _;
use std::process::Command;
use std::time::SystemTime;

/// Prints a line.
pub(crate) fn say(text: &str) {
    // A closed pipe ends the run in its own way.
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// A seed that no earlier run has used.
pub(crate) fn clock_seed() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs() * 1000)
}

/// The commit that is checked out. Empty if there is none.
pub(crate) fn commit() -> String {
    let asked = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    asked.map_or_else(|_| String::new(), |out| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}
