//! `corral health`: asks the probes of a server by HTTP, and prints its health in one line.
//!
//! The main thread.

use std::fmt;

use clap::Args;

use crate::cli::http::{Answer, Server};
use crate::cli::output;
use crate::exit::Fault;

/// Characters of the line behind the server.
const TEXT_MAX: usize = 2000;

/// Arguments of `corral health`.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    server: Server,
}

/// Health, by the codes of plugins for Nagios: 0, 1, 2 and 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Ok,
    /// It serves, and needs an operator.
    Warning,
    /// It accepts no sessions or no writes.
    Critical,
    /// It did not answer.
    Unknown,
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Health::Ok => "OK",
            Health::Warning => "WARNING",
            Health::Critical => "CRITICAL",
            Health::Unknown => "UNKNOWN",
        })
    }
}

/// Prints one line. Gives the exit code.
///
/// # Errors
/// If the arguments cannot be used.
pub(crate) fn run(arguments: &Arguments) -> Result<u8, Fault> {
    let (target, answers) = arguments.server.ask(&["/readyz?verbose", "/healthz?verbose"])?;
    let (health, text) = match answers.as_deref() {
        Ok([ready, healthy]) => judge(ready, healthy),
        Ok(_) => (Health::Unknown, "not all probes were answered".to_owned()),
        Err(reason) => (Health::Unknown, reason.clone()),
    };
    let text: String = output::plain(&text).chars().take(TEXT_MAX).collect();
    output::print(&format!("{health} {target}: {text}\n"))?;
    Ok(health as u8)
}

/// Judges the answers of `/readyz?verbose` and `/healthz?verbose`.
fn judge(ready: &Answer, healthy: &Answer) -> (Health, String) {
    let (ready, healthy) = match (Probe::of(ready, "readyz"), Probe::of(healthy, "healthz")) {
        (Ok(ready), Ok(healthy)) => (ready, healthy),
        (Err(reason), _) | (_, Err(reason)) => return (Health::Unknown, reason),
    };
    match (ready.faults.is_empty(), healthy.faults.is_empty()) {
        (true, true) => (Health::Ok, format!("{} are well", healthy.passed.join(", "))),
        (true, false) => (Health::Warning, healthy.faults.join(" | ")),
        (false, _) => (Health::Critical, ready.faults.join(" | ")),
    }
}

/// The checks of a probe.
pub(super) struct Probe<'a> {
    pub(super) passed: Vec<&'a str>,
    pub(super) faults: Vec<&'a str>,
}

impl Probe<'_> {
    /// The checks in an answer of the probe of this name.
    ///
    /// # Errors
    /// If it is no answer of the probe.
    pub(super) fn of<'a>((status, text): &'a Answer, name: &str) -> Result<Probe<'a>, String> {
        let lines = |mark| text.lines().filter_map(move |line: &str| line.strip_prefix(mark));
        let passed: Vec<&str> = lines("[+]").filter_map(|line| line.strip_suffix(" ok")).collect();
        let mut faults: Vec<&str> = lines("[-]").collect();
        let is_whole = |end: &str| text.lines().next_back() == Some(&format!("{name} check {end}"));
        match status {
            503 if text.starts_with("the server stops") => faults = vec!["the server stops"],
            200 if is_whole("passed") && faults.is_empty() && !passed.is_empty() => {}
            503 if is_whole("failed") && !faults.is_empty() => {}
            _ => {
                let first = text.lines().next().unwrap_or("no text");
                return Err(format!(
                    "/{name} answers with status {status}: {first}; is it the admin address of corral?"
                ));
            }
        }
        Ok(Probe { passed, faults })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_follows_from_both_probes() {
        let ready = (200, "[+]has-leader ok\n[+]serving ok\nreadyz check passed\n".to_owned());
        let well = (200, "[+]has-leader ok\n[+]serving ok\nhealthz check passed\n".to_owned());
        let needy = (503, "[+]has-leader ok\n[-]data failed: it differs; look\nhealthz check failed\n".to_owned());
        let down = (503, "[-]has-leader failed: none leads\n[-]serving failed: none\nreadyz check failed\n".to_owned());
        let stops = (503, "the server stops\n".to_owned());
        assert_eq!(judge(&ready, &well), (Health::Ok, "has-leader, serving are well".to_owned()));
        assert_eq!(judge(&ready, &needy), (Health::Warning, "data failed: it differs; look".to_owned()));
        let expect = "has-leader failed: none leads | serving failed: none";
        assert_eq!(judge(&down, &needy), (Health::Critical, expect.to_owned()));
        assert_eq!(judge(&stops, &stops), (Health::Critical, "the server stops".to_owned()));
        let others = [
            (404, ""),
            (200, ""),
            (200, "<html>"),
            (200, "[-]has-leader failed\nreadyz check passed\n"),
            (503, "busy"),
        ];
        for (status, text) in others {
            let (health, reason) = judge(&(status, text.to_owned()), &well);
            assert_eq!(health, Health::Unknown);
            assert!(reason.starts_with(&format!("/readyz answers with status {status}: ")), "{reason}");
        }
        assert_eq!(judge(&ready, &(404, String::new())).0, Health::Unknown);
    }
}
