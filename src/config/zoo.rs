//! Reads an unchanged ZooKeeper `zoo.cfg` into a draft configuration.
//!
//! Start-up only, on the main thread. It knows the format's entries and the rule of each key, not the TOML format.
//! Entries with a meaning here are mapped. Wrong values are problems with their line, and so are keys of corral's own.
//! Keys that demand protection which this server does not give are problems, too. Everything else is named once: keys
//! without meaning in a note, keys of features not offered and unknown keys in a warning each. An unknown key that
//! resembles a known one has a warning of its own.

use std::collections::BTreeMap;
use std::mem;

use crate::config::file::ReadFile;
use crate::config::four_letter;
use crate::config::keys;
use crate::config::problem::{Draft, Source, nearest};
use crate::config::properties::{self, Keys, Property, flag, items, port, whole};
use crate::config::value::{Raw, Rejection, every_address, resolve, shortened};
use crate::config::zoo_auth;
use crate::config::zoo_ensemble::{Found, is_membership, protection_meant};
use crate::config::zoo_http;
use crate::config::zoo_keys::{self, OFF, Rule};
use crate::config::zoo_tls;

/// Values that gather over the whole file before they can be judged.
#[derive(Default)]
struct Gathered {
    client_port: Option<(u16, u32)>,
    client_address: Option<(String, u32)>,
    ensemble: Found,
    tls: Keys,
    enforced: Keys,
    http: Keys,
    meaningless: Vec<String>,
    ensemble_only: Vec<String>,
    not_offered: Vec<String>,
    unknown: Vec<String>,
    /// Unknown keys so far.
    looked_up: usize,
}

/// Reads the whole file. `read_file` gives the text of a further file, `dynamicConfigFile`.
pub(crate) fn read(text: &str, draft: &mut Draft, read_file: ReadFile<'_>) {
    zookeeper_defaults(draft);
    let Some(entries) = entries(text, draft) else {
        return;
    };
    let known = |property: &Property| is_membership(&property.key) || zoo_keys::rule(&property.key).is_some();
    if !entries.iter().any(known) {
        let reason = "no line has a key that ZooKeeper 3.9 or this server knows, so it is no configuration";
        let remedy = "name a zoo.cfg, or a file of this server's (`corral check-config --template`)";
        return draft.problem_at(draft.file_name(), "", Rejection::new(reason, remedy));
    }
    let mut gathered = Gathered::default();
    for property in &entries {
        if is_membership(&property.key) {
            gathered.ensemble.line(property, draft);
        } else {
            read_property(property, draft, &mut gathered, read_file);
        }
    }
    client_addr(draft, &gathered);
    if draft.source("server.data_dir") == Source::Default {
        draft.sources.insert("server.data_dir", Source::ZooKeeperDefault);
    }
    zoo_auth::Found { keys: mem::take(&mut gathered.enforced) }.judge(draft);
    gathered.meaningless.append(&mut zoo_tls::Found { keys: mem::take(&mut gathered.tls) }.judge(draft));
    gathered.not_offered.append(&mut zoo_http::Found { keys: mem::take(&mut gathered.http) }.judge(draft));
    let standalone = mem::take(&mut gathered.ensemble).judge(draft);
    if draft.config.ensemble.servers.is_ensemble() {
        gathered.not_offered.append(&mut gathered.ensemble_only);
    }
    gathered.ensemble_only.extend(standalone);
    warn(draft, "zoo.cfg keys that a standalone server ignores, as ZooKeeper's does", &gathered.ensemble_only);
    if let Some(note) = listed("zoo.cfg keys without a meaning in this server are ignored", &gathered.meaningless) {
        draft.notes.push(note);
    }
    warn(draft, "zoo.cfg keys of features that this version does not offer are ignored", &gathered.not_offered);
    warn(draft, "zoo.cfg keys that neither ZooKeeper 3.9 nor this server knows are ignored", &gathered.unknown);
}

/// ZooKeeper's defaults, where clients see a difference to this server's.
fn zookeeper_defaults(draft: &mut Draft) {
    draft.config.server.tick_time_ms = 3000;
    draft.config.features.extended_types = false;
    for path in ["server.tick_time_ms", "features.extended_types"] {
        let key = keys::key(path).expect("the key is in the table");
        draft.sources.insert(key.path, Source::ZooKeeperDefault);
    }
}

/// The entries of the file, of doubles the last one, in the order of their lines.
fn entries(text: &str, draft: &mut Draft) -> Option<Vec<Property>> {
    let all = match properties::parse(text) {
        Ok(all) => all,
        Err(bad) => {
            let rejection = Rejection::new(bad.to_string(), "write \\\\ for a backslash");
            draft.problem(&Source::Line(bad.line), "", rejection);
            return None;
        }
    };
    let mut last: BTreeMap<&str, &Property> = BTreeMap::new();
    for property in &all {
        if let Some(earlier) = last.insert(&property.key, property) {
            draft.warn(format!(
                "{}: {} is given again; the value of line {} is not used",
                draft.place(&Source::Line(property.line)),
                shortened(&property.key),
                earlier.line
            ));
        }
    }
    let mut kept: Vec<Property> = last.into_values().cloned().collect();
    kept.sort_by_key(|property| property.line);
    Some(kept)
}

fn read_property(property: &Property, draft: &mut Draft, gathered: &mut Gathered, read_file: ReadFile<'_>) {
    let Property { key, value, line } = property;
    let source = Source::Line(*line);
    let outcome = match zoo_keys::rule(key) {
        None => return unknown(property, draft, gathered),
        Some(Rule::Demand { off, what, remedy }) => demanded(property, off, what, remedy),
        Some(Rule::Ensemble(_)) => return gathered.ensemble.key(property),
        Some(Rule::Tls(_)) => return property.gather(&mut gathered.tls),
        Some(Rule::Enforce(_)) => return property.gather(&mut gathered.enforced),
        Some(Rule::Http(_)) => return property.gather(&mut gathered.http),
        Some(Rule::Meaningless | Rule::NotOffered)
            if !zoo_keys::is_listed(key) && protection_meant(key, value).is_some() =>
        {
            return unknown(property, draft, gathered);
        }
        Some(Rule::Meaningless) => return gathered.meaningless.push(shortened(key)),
        Some(Rule::EnsembleOnly) => return gathered.ensemble_only.push(shortened(key)),
        Some(Rule::NotOffered) => return gathered.not_offered.push(shortened(key)),
        Some(Rule::Number { to, scale, clamp }) => scaled(value, scale).map(|number| {
            let number = if clamp { clamped(draft, key, to, number, &source) } else { number };
            draft.assign(to, &Raw::Integer(number), source.clone(), key);
        }),
        Some(Rule::Positive { to }) => {
            whole(value).map(|number| draft.assign(to, &Raw::Boolean(number > 0), source.clone(), key))
        }
        Some(Rule::Flag { to }) => flag(value).map(|flag| draft.assign(to, &Raw::Boolean(flag), source.clone(), key)),
        Some(Rule::Text { .. }) if value.is_empty() => {
            Err(Rejection::new("the value is empty", "give a value, or drop the line"))
        }
        Some(Rule::Text { to }) => {
            draft.assign(to, &Raw::Text(value.clone()), source.clone(), key);
            Ok(())
        }
        Some(Rule::DigestAlgorithm) => {
            draft.assign("security.digest_algorithm", &Raw::Text(hash_name(value)), source.clone(), key);
            Ok(())
        }
        Some(Rule::Words { to }) => {
            let list = four_letter_commands(value, draft, &source);
            draft.assign(to, &Raw::List(list), source.clone(), key);
            Ok(())
        }
        Some(Rule::ClientPort) => port(value).map(|port| gathered.client_port = Some((port, *line))),
        Some(Rule::ClientAddress) => {
            gathered.client_address = Some((value.clone(), *line));
            Ok(())
        }
        Some(Rule::AuthProvider) => match auth_provider(value) {
            Some(Some(to)) => {
                draft.assign(to, &Raw::Boolean(true), source.clone(), key);
                Ok(())
            }
            Some(None) => Ok(()),
            None => {
                let what = "an authentication provider that this server does not have";
                demanded(property, &[], what, "drop the line, if no ACL has the provider's scheme")
            }
        },
        Some(Rule::DynamicFile) => gathered.ensemble.dynamic_file(value, draft, read_file),
        Some(Rule::Only { value: only, reason }) if !value.eq_ignore_ascii_case(only) => Err(Rejection::new(
            format!("{:?} is refused: {reason}", shortened(value)),
            format!("give {only}, or drop the line"),
        )),
        Some(Rule::Only { .. }) => Ok(()),
    };
    if let Err(rejection) = outcome {
        draft.problem(&source, key, rejection);
    }
}

/// A key that demands protection which this server does not give. To go on without it would be worse than not to start.
fn demanded(property: &Property, off: &[&str], what: &str, remedy: &str) -> Result<(), Rejection> {
    let Property { key, value, .. } = property;
    if off.iter().any(|off| value.trim().eq_ignore_ascii_case(off)) {
        return Ok(());
    }
    let is_misspelled = key.starts_with("ssl.") && !zoo_keys::is_listed(key);
    if let Some(near) = nearest(key, zoo_keys::names()).filter(|_| is_misspelled) {
        return Err(Rejection::new("the key is not known", format!("write {near}, or drop the line")));
    }
    // Messages go to logs, and passwords must not: those of key stores are such keys.
    let is_secret = key.to_ascii_lowercase().starts_with("ssl");
    let shown = if is_secret { "the line".to_owned() } else { format!("{:?}", shortened(value)) };
    Err(Rejection::new(format!("{shown} asks for {what}, which is not served"), remedy))
}

/// A key that ZooKeeper does not know. It is ignored as ZooKeeper ignores it, unless protection is meant.
fn unknown(property: &Property, draft: &mut Draft, gathered: &mut Gathered) {
    /// Keys for which the nearest one is looked for: a file can hold a hundred thousand.
    const LOOKED_UP_MAX: usize = 1000;
    let Property { key, value, line } = property;
    let (name, source) = (zoo_keys::without_prefix(key), Source::Line(*line));
    if keys::key(key).is_some() {
        let remedy = format!("give it to the command as --set {key}=VALUE, and drop the line");
        let rejection = Rejection::new("a key of corral's own, where ZooKeeper's keys are read", remedy);
        return draft.problem(&source, key, rejection);
    }
    gathered.looked_up += 1;
    let near = match zoo_keys::rule(name) {
        Some(_) if zoo_keys::is_listed(name) => Some(name),
        Some(_) => protection_meant(name, value).or(Some(name)),
        None if gathered.looked_up > LOOKED_UP_MAX => None,
        None => nearest(name, zoo_keys::names()),
    };
    if let Some(meant) = protection_meant(name, value).filter(|meant| near == Some(meant)) {
        return gathered.ensemble.misspelled(property, meant);
    }
    let refused = match near.and_then(zoo_keys::rule) {
        Some(Rule::Demand { off, what, remedy }) => demanded(property, off, what, remedy).err(),
        Some(Rule::Tls(_) | Rule::Enforce(_)) => {
            let is_off = value.is_empty() || OFF.iter().any(|off| value.trim().eq_ignore_ascii_case(off));
            let remedy = format!("write {}, or drop the line", near.unwrap_or_default());
            (!is_off).then(|| Rejection::new("the line asks for protection of clients", remedy))
        }
        Some(Rule::Only { value: only, reason }) if !value.eq_ignore_ascii_case(only) => {
            Some(Rejection::new(format!("{:?} is refused: {reason}", shortened(value)), "drop the line"))
        }
        _ => None,
    };
    match (near, refused) {
        (Some(near), Some(rejection)) => {
            let reason = format!("the key is not known, and taken for {}: {}", shortened(near), rejection.reason);
            draft.problem(&source, &shortened(key), Rejection::new(reason, rejection.remedy));
        }
        (Some(near), None) => {
            let (place, key, near) = (draft.place(&source), shortened(key), shortened(near));
            draft.warn(format!("{place}: {key}: the key is not known and is ignored; did you mean {near}?"));
        }
        (None, _) => gathered.unknown.push(shortened(key)),
    }
}

/// The key that a provider of ZooKeeper switches on, if its scheme is not always there; `None` for unknown ones.
fn auth_provider(class: &str) -> Option<Option<&'static str>> {
    match class.trim().strip_prefix("org.apache.zookeeper.server.auth.")? {
        "SASLAuthenticationProvider" => Some(Some("security.sasl_acls")),
        "X509AuthenticationProvider" => Some(Some("security.x509_acls")),
        "DigestAuthenticationProvider" | "IPAuthenticationProvider" => Some(None),
        _ => None,
    }
}

fn scaled(value: &str, scale: u32) -> Result<i128, Rejection> {
    let number = whole(value)?;
    Ok(if number == -1 { 0 } else { i128::from(number) * i128::from(scale) })
}

/// The number moved into the limits of its key, with a warning if it had to be.
fn clamped(draft: &mut Draft, zoo_key: &str, to: &str, number: i128, source: &Source) -> i128 {
    let limits = keys::key(to).expect("targets exist, a test checks it").limits;
    let moved = number.clamp(i128::from(limits.min), i128::from(limits.max));
    if moved != number {
        draft
            .warnings
            .push(format!("{}: {zoo_key}: {to} = {number} is out of range; {moved} is used", draft.place(source)));
    }
    moved
}

/// The words of the list that exist; the others are named in a warning, because ZooKeeper ignores them.
fn four_letter_commands(value: &str, draft: &mut Draft, source: &Source) -> Vec<String> {
    let (known, unknown): (Vec<&str>, Vec<&str>) =
        items(value).partition(|name| *name == "*" || four_letter::is_known(name));
    if !unknown.is_empty() {
        let shown: Vec<String> = unknown.iter().map(|name| shortened(name)).collect();
        draft.warn(format!("{}: no four-letter commands, ignored: {}", draft.place(source), shown.join(", ")));
    }
    known.into_iter().map(str::to_owned).collect()
}

/// Joins port and address; without an address every network is served, as ZooKeeper does.
fn client_addr(draft: &mut Draft, gathered: &Gathered) {
    let (port, line) = match (&gathered.client_port, &gathered.client_address) {
        (Some(port), _) => *port,
        (None, Some((_, line))) => {
            let rejection = Rejection::new("there is no clientPort", "add a line such as clientPort=2181");
            return draft.problem(&Source::Line(*line), "clientPortAddress", rejection);
        }
        (None, None) => {
            draft.sources.insert("server.client_addr", Source::ZooKeeperDefault);
            return;
        }
    };
    let address = match &gathered.client_address {
        None => Ok((every_address(port), line)),
        Some((host, line)) => resolve(host.trim_matches(['[', ']']), port)
            .map(|address| (address, *line))
            .map_err(|rejection| (rejection, Source::Line(*line))),
    };
    match address {
        Ok((address, line)) => {
            draft.assign("server.client_addr", &Raw::Text(address.to_string()), Source::Line(line), "clientPort");
        }
        Err((rejection, source)) => draft.problem(&source, "clientPortAddress", rejection),
    }
}

/// One warning that names all keys of a kind, the first hundred if there are more.
fn warn(draft: &mut Draft, what: &str, keys: &[String]) {
    if let Some(warning) = listed(what, keys) {
        draft.warn(warning);
    }
}

/// `what` with the keys behind it, if there are any.
fn listed(what: &str, keys: &[String]) -> Option<String> {
    const NAMED_MAX: usize = 100;
    let named = keys.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = if keys.len() > NAMED_MAX { format!(", and {} more", keys.len() - NAMED_MAX) } else { String::new() };
    (!keys.is_empty()).then(|| format!("{what}: {named}{more}"))
}

/// The first of Java's names of a hash: it also knows `SHA`, and SHA-2 without the hyphen, in any case.
fn hash_name(name: &str) -> String {
    let name = name.to_ascii_uppercase();
    match name.as_str() {
        "SHA" | "SHA-1" => "SHA1".to_owned(),
        "SHA256" | "SHA384" | "SHA512" => name.replace("SHA", "SHA-"),
        _ => name,
    }
}
