//! The ensemble in ZooKeeper's files: `server.N`, `group.N` and `weight.N`, here or in the dynamic file, and the keys that
//! mean something only then.
//!
//! Start-up only, on the main thread. Everything is gathered first, because the dynamic file may be named on the last
//! line. It is judged once it is known whether there is an ensemble at all. `ensemble.rs` handles the settings that
//! depend on the id of this server.

use std::path::Path;

use crate::config::ensemble::client_addr;
use crate::config::file::ReadFile;
use crate::config::members::{Member, Members, id_of, role_of};
use crate::config::problem::{Draft, Source, nearest};
use crate::config::properties::{self, Keys, Property, flag};
use crate::config::value::{Raw, Rejection, shortened};
use crate::config::zoo_tls::known_type;

/// The settings of the ensemble that were found.
#[derive(Default)]
pub(crate) struct Found {
    /// Lines of membership in the main file, with their places.
    here: Vec<(Property, String)>,
    /// Those of the dynamic file, if one is named.
    there: Option<Vec<(Property, String)>>,
    /// Values and lines of the other keys.
    keys: Keys,
    /// Unknown keys, each with the similar key of an ensemble that would give the wanted protection.
    misspelled: Vec<(Property, &'static str)>,
}

/// Keys that ask for protection between servers, which a standalone server does not need.
const PROTECTS: [&str; 6] = [
    "sslQuorum",
    "quorum.auth.enableSasl",
    "quorum.auth.serverRequireSasl",
    "quorum.auth.learnerRequireSasl",
    "ssl.quorum.crl",
    "ssl.quorum.ocsp",
];

/// The known key with the protection that this unknown key and its value ask for.
pub(crate) fn protection_meant(key: &str, value: &str) -> Option<&'static str> {
    if value.is_empty() || flag(value) == Ok(false) { None } else { nearest(key, PROTECTS) }
}

/// Whether the key is one of membership, which may stand in the dynamic file.
pub(crate) fn is_membership(key: &str) -> bool {
    key == "version" || ["server.", "group.", "weight."].iter().any(|prefix| key.starts_with(prefix))
}

impl Found {
    /// A line of membership in the main file.
    pub(crate) fn line(&mut self, property: &Property, draft: &Draft) {
        self.here.push((property.clone(), draft.place(&Source::Line(property.line))));
    }

    /// A key that means something in an ensemble.
    pub(crate) fn key(&mut self, property: &Property) {
        property.gather(&mut self.keys);
    }

    /// An unknown key that resembles `near`; see [`protection_meant`].
    pub(crate) fn misspelled(&mut self, property: &Property, near: &'static str) {
        self.misspelled.push((property.clone(), near));
    }

    /// Reads the file that `dynamicConfigFile` names.
    pub(crate) fn dynamic_file(
        &mut self,
        name: &str,
        draft: &mut Draft,
        read_file: ReadFile<'_>,
    ) -> Result<(), Rejection> {
        let remedy = "correct the file, or drop the line";
        let text = read_file(Path::new(name)).map_err(|error| Rejection::new(error.to_string(), remedy))?;
        let entries = properties::parse(&text)
            .map_err(|bad| Rejection::new(format!("{}:{}: {bad}", shortened(name), bad.line), remedy))?;
        let mut found = Vec::new();
        for property in entries {
            let place = format!("{}:{}", shortened(name), property.line);
            if is_membership(&property.key) {
                found.push((property, place));
            } else {
                let rejection = Rejection::new(
                    "only server.N, group.N, weight.N and version can be in this file",
                    "move the line to the main file",
                );
                draft.problem_at(place, &shortened(&property.key), rejection);
            }
        }
        self.there = Some(found);
        Ok(())
    }

    /// Judges what was found. Gives the keys that a standalone server ignores, if this is one.
    pub(crate) fn judge(self, draft: &mut Draft) -> Vec<String> {
        let lines = match self.there {
            None => self.here,
            Some(there) => {
                for (property, place) in self.here {
                    let rejection = Rejection::new(
                        "with a dynamicConfigFile the servers are listed there alone",
                        "move the line to that file",
                    );
                    draft.problem_at(place, &shortened(&property.key), rejection);
                }
                there
            }
        };
        let servers = lines.iter().filter(|(property, _)| property.key.starts_with("server."));
        let problems_before = draft.problems.len();
        let mut members = Members::default();
        for (property, place) in servers {
            if let Err(rejection) = add(&mut members, property, place, draft) {
                draft.problem_at(place.clone(), &shortened(&property.key), rejection);
            }
        }
        if draft.problems.len() > problems_before {
            return Vec::new();
        }
        if !members.is_ensemble() {
            if let Some(member) = members.0.first() {
                let place = draft.quorum.places.get(&member.id).cloned().unwrap_or_default();
                let is_needed = draft.source("server.client_addr") == Source::ZooKeeperDefault;
                if is_needed {
                    client_addr(draft, member);
                }
                let id = member.id;
                let rest = if is_needed && member.client.is_some() { ", but for its address for clients" } else { "" };
                draft.warn(format!(
                    "{place}: only one server is listed: it runs alone, and server.{id} is ignored{rest}"
                ));
            }
            for (Property { key, line, .. }, near) in &self.misspelled {
                let place = draft.place(&Source::Line(*line));
                let key = shortened(key);
                draft.warn(format!("{place}: {key}: the key is not known and is ignored; did you mean {near}?"));
            }
            return self.keys.into_keys().map(|key| shortened(&key)).collect();
        }
        hierarchy(&lines, draft);
        quorum(&members, draft);
        draft.config.ensemble.servers = members;
        draft.sources.insert("ensemble.servers", Source::Elsewhere("server.N lines".to_owned()));
        keys(&self.keys, draft);
        for (Property { key, value, line }, near) in &self.misspelled {
            let value = shortened(value);
            let reason =
                format!("the key is not known, and taken for {near}: {value:?} asks for protection between servers");
            let rejection = Rejection::new(reason, format!("write {near}, or drop the line"));
            draft.problem(&Source::Line(*line), &shortened(key), rejection);
        }
        Vec::new()
    }
}

fn add(members: &mut Members, property: &Property, place: &str, draft: &mut Draft) -> Result<(), Rejection> {
    let id = id_of(property.key.strip_prefix("server.").unwrap_or_default())?;
    let (member, warning) = Member::of_zookeeper(id, &property.value)?;
    members.add(member)?;
    draft.quorum.places.insert(id, place.to_owned());
    if let Some(warning) = warning {
        draft.warn(format!("{place}: {warning}"));
    }
    Ok(())
}

/// Groups and weights change what a quorum is, so they cannot be ignored.
fn hierarchy(lines: &[(Property, String)], draft: &mut Draft) {
    let weighted = |key: &str| key.starts_with("group.") || key.starts_with("weight.");
    let found: Vec<_> = lines.iter().filter(|(property, _)| weighted(&property.key)).collect();
    if let Some((_, place)) = found.first() {
        let names: Vec<&str> = found.iter().map(|(property, _)| property.key.as_str()).collect();
        let rejection = Rejection::new(
            "quorums of groups and weights are not offered: here a majority of the participants decides",
            format!("drop the lines {}", shortened(&names.join(", "))),
        );
        draft.problem_at(place.clone(), "group.N", rejection);
    }
}

/// Refuses ensembles that ZooKeeper refuses too.
fn quorum(members: &Members, draft: &mut Draft) {
    let rejection = match members.voters() {
        0 => Rejection::new("all servers are observers", "make three of them participants"),
        1 => Rejection::new(
            "there are observers, and only one participant",
            "make three servers participants, or list one server alone",
        ),
        _ => return,
    };
    draft.problem_at(draft.file_name(), "server.N", rejection);
}

fn keys(keys: &Keys, draft: &mut Draft) {
    for (key, (value, line)) in keys {
        let source = Source::Line(*line);
        let done = match key.as_str() {
            "electionAlg" => only(value, "3", "no other election is there"),
            "portUnification" => only(value, "false", "the port for servers is encrypted or it is not"),
            "quorum.auth.enableSasl" => only(value, "false", "servers authenticate each other by TLS (sslQuorum)"),
            "ssl.quorum.hostnameVerification" | "ssl.quorum.clientHostnameVerification" => {
                only(value, "true", "the names of certificates always count")
            }
            "ssl.quorum.clientAuth" => only(value, "need", "both sides authenticate"),
            "quorum.auth.serverRequireSasl" | "quorum.auth.learnerRequireSasl" => {
                only(value, "false", "servers authenticate each other without SASL")
            }
            "ssl.quorum.crl" | "ssl.quorum.ocsp" => {
                only(value, "false", "it is not checked whether a certificate was revoked")
            }
            "peerType" => role_of(value).map(|role| draft.quorum.role = Some((role, draft.place(&source)))),
            "quorumListenOnAllIPs" => flag(value).map(|all| draft.quorum.listen_on_all = all.then(|| source.clone())),
            _ => Ok(()),
        };
        if let Err(rejection) = done {
            draft.problem(&source, key, rejection);
        }
    }
    let ssl = keys.get("sslQuorum");
    match ssl.map(|(value, _)| flag(value)) {
        Some(Ok(true)) => ssl_quorum(keys, draft),
        Some(Err(rejection)) => draft.problem(&Source::Line(ssl.map_or(0, |(_, line)| *line)), "sslQuorum", rejection),
        Some(Ok(false)) | None => {}
    }
}

fn only(value: &str, only: &str, reason: &str) -> Result<(), Rejection> {
    if value.eq_ignore_ascii_case(only) {
        return Ok(());
    }
    let reason = format!("{:?} is refused: {reason}", shortened(value));
    Err(Rejection::new(reason, format!("give {only}, or drop the line")))
}

/// Takes over the stores of quorum TLS.
fn ssl_quorum(keys: &Keys, draft: &mut Draft) {
    let stores = [
        ("keyStore", &["ensemble.tls_cert", "ensemble.tls_key"][..], "ensemble.tls_key"),
        ("trustStore", &["ensemble.tls_ca"][..], "ensemble.tls_ca"),
    ];
    let line_of_ssl = keys.get("sslQuorum").map_or(0, |(_, line)| *line);
    for (store, targets, protected) in stores {
        let location = format!("ssl.quorum.{store}.location");
        let Some((path, line)) = keys.get(&location) else {
            let rejection = Rejection::new(
                format!("sslQuorum is true, and {location} is missing"),
                format!("add the line {location}=FILE, or give --set {}=FILE", targets[0]),
            );
            if targets.iter().any(|target| draft.source(target) == Source::Default) {
                draft.problem(&Source::Line(line_of_ssl), &location, rejection);
            }
            continue;
        };
        for target in targets {
            draft.assign(target, &Raw::Text(path.clone()), Source::Line(*line), &location);
        }
        for (name, suffix) in [("password", "_password"), ("passwordPath", "_password_file")] {
            let key = format!("ssl.quorum.{store}.{name}");
            if let Some((value, line)) = keys.get(&key).filter(|(value, _)| !value.is_empty()) {
                draft.assign(&format!("{protected}{suffix}"), &Raw::Text(value.clone()), Source::Line(*line), &key);
            }
        }
        let kind = format!("ssl.quorum.{store}.type");
        if let Some((value, line)) = keys.get(&kind)
            && let Err(rejection) = known_type(value)
        {
            draft.problem(&Source::Line(*line), &kind, rejection);
        }
    }
}
