//! This host, for a server with a configuration: limits, files and certificates.
//!
//! The main thread. It reads what `serve` reads, and changes nothing.

use std::path::Path;

use indicatif::HumanBytes;
use rustix::process::{Resource, getrlimit};
use serde_json::json;

use super::pages;
use super::report::{Fact, Finding, Section};
use crate::cli::check_config;
use crate::cli::security::{self, Certificate, DAYS_LEFT_MIN};
use crate::config::cores::cpu_list;
use crate::config::{self, Config, Loaded};
use crate::data::{directories, owner};
use crate::exit::{ExitCode, Fault};
use crate::preflight;

/// The section of this host, and the configuration in the file, if it can be used.
pub(super) fn examine(file: &Path) -> (Section, Option<Config>) {
    let mut section = Section {
        kind: "host",
        target: file.display().to_string(),
        is_examined: true,
        facts: limits(),
        findings: Vec::new(),
    };
    let loaded = match config::load(Some(file), &[]) {
        Ok(loaded) => loaded,
        Err(fault) => {
            section.findings.extend(of_fault(&fault, file));
            return (section, None);
        }
    };
    section.facts.push(Fact::new(
        "configuration",
        format!("{} warnings, which corral check-config shows", loaded.warnings.len()),
        json!({"warnings": loaded.warnings}),
    ));
    let (faults, warnings) = problems(&loaded, &mut section.facts);
    section.findings.extend(faults.iter().flat_map(|fault| of_fault(fault, file)));
    section.findings.extend(warnings.into_iter().map(|warning| Finding::warning("limits", warning, pages::LIMITS)));
    match check_config::files(&loaded.config).and_then(|()| security::certificates(&loaded.config)) {
        Ok(certificates) => {
            section.facts.extend(certificates.iter().map(of_certificate));
            section.findings.extend(certificates.iter().flat_map(expiry));
        }
        Err(fault) => section.findings.extend(of_fault(&fault, file)),
    }
    for directory in directories(&loaded.config) {
        if let Err(fault) = owner::check(directory, &loaded.config) {
            section.findings.push(Finding::critical("owner", fault.sentence, pages::MEMBERS));
        }
    }
    let mut risks = Vec::new();
    security::files(&loaded, &mut risks);
    section.findings.extend(risks.iter().map(|risk| of_risk(risk, file)));
    (section, Some(loaded.config))
}

/// The limits of this process, which a server has that it starts.
fn limits() -> Vec<Fact> {
    let [files, memory] = [Resource::Nofile, Resource::Memlock].map(|resource| getrlimit(resource).maximum);
    let shown = |limit: Option<String>| limit.unwrap_or_else(|| "no limit".to_owned());
    vec![
        Fact::new(
            "open files",
            format!("{}, by the limit of this shell", shown(files.map(|files| files.to_string()))),
            files,
        ),
        Fact::new(
            "locked memory",
            format!("{}, by the limit of this shell", shown(memory.map(|bytes| HumanBytes(bytes).to_string()))),
            memory,
        ),
    ]
}

/// Faults that would keep a server from running here, and its warnings.
fn problems(loaded: &Loaded, facts: &mut Vec<Fact>) -> (Vec<Fault>, Vec<String>) {
    let plan = preflight::usable_cpus().and_then(|cpus| {
        facts.push(Fact::text("CPUs", cpu_list(&cpus)));
        loaded.core_plan(&cpus)
    });
    match plan {
        Ok(plan) => preflight::problems(&loaded.config, &plan),
        Err(fault) => (vec![fault], Vec::new()),
    }
}

/// A finding for each line.
fn of_fault(fault: &Fault, file: &Path) -> Vec<Finding> {
    let (check, advice) = match fault.code {
        ExitCode::MemlockTooLow | ExitCode::NofileTooLow | ExitCode::IoUringMissing => {
            ("limits", pages::LIMITS.to_owned())
        }
        _ => ("configuration", format!("corral check-config --config {}", file.display())),
    };
    fault.sentence.lines().map(|line| Finding::critical(check, line, &*advice)).collect()
}

fn of_certificate(certificate: &Certificate) -> Fact {
    let (key, days) = (certificate.key, certificate.days_left);
    let shown = days.map_or_else(|| "its end is not known".to_owned(), |days| format!("expires in {days} days"));
    Fact::new(key, shown, json!({"days": days}))
}

fn expiry(certificate: &Certificate) -> Vec<Finding> {
    let Certificate { key, days_left, expired } = certificate;
    let soon = days_left.filter(|days| (0..DAYS_LEFT_MIN).contains(days));
    let soon = soon.map(|days| format!("{key}: the certificate expires in {days} days"));
    let soon = soon.map(|sentence| Finding::warning("certificates", sentence, pages::CERTIFICATES));
    let expired = expired.iter().map(|sentence| {
        let (cause, _) = sentence.split_once(';').unwrap_or((sentence, ""));
        Finding::critical("certificates", cause, pages::CERTIFICATES)
    });
    soon.into_iter().chain(expired).collect()
}

/// A risk has its remedy at its end.
fn of_risk(risk: &str, file: &Path) -> Finding {
    match risk.rsplit_once("; ") {
        Some((cause, remedy)) if remedy.starts_with("chmod ") => Finding::warning("secrets", cause, remedy),
        _ => Finding::warning("secrets", risk, format!("corral check-config --security --config {}", file.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Severity;
    use super::*;

    #[test]
    fn certificates_are_judged_by_their_days() {
        let judge = |days_left, expired: &[&str]| {
            let expired = expired.iter().map(|sentence| (*sentence).to_owned()).collect();
            let findings = expiry(&Certificate { key: "tls.key_store", days_left, expired });
            findings.into_iter().map(|finding| finding.severity).collect::<Vec<_>>()
        };
        assert_eq!(judge(Some(30), &[]), []);
        assert_eq!(judge(None, &[]), []);
        assert_eq!(judge(Some(29), &[]), [Severity::Warning]);
        assert_eq!(judge(Some(-1), &["a: the certificate expired 1 days ago; renew it"]), [Severity::Critical]);
    }

    #[test]
    fn a_fault_and_a_risk_become_findings() {
        let file = Path::new("/c.toml");
        let found = of_fault(&Fault::new(ExitCode::Config, "/c.toml:1: one; do\n/c.toml:2: two; do"), file);
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[1].sentence.as_str(), found[1].advice.as_str()),
            ("/c.toml:2: two; do", "corral check-config --config /c.toml")
        );
        assert_eq!(of_fault(&Fault::new(ExitCode::NofileTooLow, "few"), file)[0].advice, pages::LIMITS);
        let risk = of_risk("key holds a key or a password, and has mode 644; chmod 600 key", file);
        assert_eq!(
            (risk.sentence.as_str(), risk.advice.as_str()),
            ("key holds a key or a password, and has mode 644", "chmod 600 key")
        );
        assert!(of_risk("a secret given by --set", file).advice.starts_with("corral check-config --security"));
    }
}
