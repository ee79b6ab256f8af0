//! The page of `corral doctor`: facts by target, then findings. As text or as one JSON document.
//!
//! Pure.

use serde_json::{Map, Value, json};

use crate::cli::output::plain;

/// Exit code if no target could be examined, as that of plugins for Nagios.
const UNKNOWN: u8 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// It works, and needs an operator.
    Warning,
    /// Clients are not served, or data are in danger.
    Critical,
}

impl Severity {
    fn word(self) -> &'static str {
        match self {
            Severity::Warning => "WARNING",
            Severity::Critical => "CRITICAL",
        }
    }
}

/// Something to do for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    /// The same word for the same cause, for scripts.
    pub(super) check: String,
    pub(super) sentence: String,
    /// A command to run, or a page to read.
    pub(super) advice: String,
}

impl Finding {
    pub(super) fn warning(check: &str, sentence: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding {
            severity: Severity::Warning,
            check: check.to_owned(),
            sentence: sentence.into(),
            advice: advice.into(),
        }
    }

    pub(super) fn critical(check: &str, sentence: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { severity: Severity::Critical, ..Finding::warning(check, sentence, advice) }
    }
}

/// A line of the page.
pub(super) struct Fact {
    name: &'static str,
    shown: String,
    value: Value,
}

impl Fact {
    /// `value` is what JSON holds.
    pub(super) fn new(name: &'static str, shown: impl Into<String>, value: impl Into<Value>) -> Fact {
        Fact { name, shown: shown.into(), value: value.into() }
    }

    /// The same text on the page and in JSON.
    pub(super) fn text(name: &'static str, text: impl Into<String>) -> Fact {
        let text = text.into();
        Fact::new(name, text.clone(), text)
    }
}

/// A target with its facts and findings.
pub(super) struct Section {
    /// A word for its kind, the name of the first line.
    pub(super) kind: &'static str,
    pub(super) target: String,
    /// `false` if nothing is known of it.
    pub(super) is_examined: bool,
    pub(super) facts: Vec<Fact>,
    pub(super) findings: Vec<Finding>,
}

/// The page as text.
pub(super) fn text(sections: &[Section]) -> String {
    let mut lines = Vec::new();
    for section in sections {
        lines.push(line(section.kind, &section.target));
        lines.extend(section.facts.iter().map(|fact| line(fact.name, &fact.shown)));
        lines.push(String::new());
    }
    if sections.iter().all(|section| section.findings.is_empty()) {
        lines.push("no findings".to_owned());
    } else {
        lines.push("findings:".to_owned());
    }
    for section in sections {
        lines.extend(section.findings.iter().map(|Finding { severity, sentence, advice, .. }| {
            plain(&format!("{} {}: {sentence}; do: {advice}", severity.word(), section.target))
        }));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn line(name: &str, value: &str) -> String {
    plain(&format!("{name:<14}{value}"))
}

/// The same as one JSON document.
pub(super) fn document(sections: &[Section]) -> Value {
    let target = |section: &Section| {
        let facts: Map<String, Value> =
            section.facts.iter().map(|fact| (fact.name.replace(' ', "_"), fact.value.clone())).collect();
        json!({"kind": section.kind, "target": section.target, "is_examined": section.is_examined, "facts": facts})
    };
    let finding = |target: &str, finding: &Finding| {
        json!({
            "severity": finding.severity.word(), "target": target, "check": finding.check, "sentence": finding.sentence,
            "do": finding.advice,
        })
    };
    let findings =
        sections.iter().flat_map(|section| section.findings.iter().map(move |one| finding(&section.target, one)));
    json!({"targets": sections.iter().map(target).collect::<Vec<_>>(), "findings": findings.collect::<Vec<_>>()})
}

/// The exit code: 0, 1 and 2 by the worst finding, 3 if nothing could be examined.
pub(super) fn exit_code(sections: &[Section]) -> u8 {
    if !sections.iter().any(|section| section.is_examined) {
        return UNKNOWN;
    }
    match sections.iter().flat_map(|section| &section.findings).map(|finding| finding.severity).max() {
        None => 0,
        Some(Severity::Warning) => 1,
        Some(Severity::Critical) => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(is_examined: bool, findings: Vec<Finding>) -> Section {
        let facts = vec![Fact::new("log end", "entry 5", 5)];
        Section { kind: "directory", target: "/data".to_owned(), is_examined, facts, findings }
    }

    #[test]
    fn a_page_has_facts_and_findings() {
        let whole = [section(true, Vec::new())];
        assert_eq!(text(&whole), "directory     /data\nlog end       entry 5\n\nno findings\n");
        let two = [section(true, vec![Finding::warning("space", "no \x1broom", "df /data")])];
        assert!(text(&two).ends_with("\nfindings:\nWARNING /data: no ?room; do: df /data\n"));
        let document = document(&two);
        assert_eq!(document["targets"][0]["facts"]["log_end"], 5);
        assert_eq!(
            (&document["findings"][0]["check"], &document["findings"][0]["do"]),
            (&json!("space"), &json!("df /data"))
        );
    }

    #[test]
    fn the_worst_finding_gives_the_code() {
        let (warning, critical) = (Finding::warning("a", "b", "c"), Finding::critical("a", "b", "c"));
        assert_eq!(exit_code(&[section(true, Vec::new())]), 0);
        assert_eq!(exit_code(&[section(true, vec![warning.clone()])]), 1);
        assert_eq!(exit_code(&[section(false, vec![critical.clone()]), section(true, vec![warning])]), 2);
        assert_eq!(exit_code(&[section(false, vec![critical])]), 3);
        assert_eq!(exit_code(&[]), 3);
    }
}
