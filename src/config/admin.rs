//! HTTP for administration: the keys that need each other, and the stores of its TLS.
//!
//! Start-up only. It reads no file: whether a key store can be read shows at the start.

use std::path::Path;

use crate::config::keys::{Admin, Config, Tls};
use crate::config::problem::Draft;
use crate::config::value::{ClientAuth, OnClientAddr, Rejection};

/// The settings of TLS on the port for administration, with the stores of `[tls]` or of `[ensemble]`; `None` if it serves none.
pub(crate) fn tls(config: &Config) -> Option<Tls> {
    let Config { admin, ensemble, .. } = config;
    if !admin.enabled || admin.tls == OnClientAddr::None {
        return None;
    }
    let mut tls = Tls { client_auth: admin.client_auth, ..config.tls.clone() };
    // A key store is one file.
    if is_empty(&tls.key_store) && ensemble.tls_cert == ensemble.tls_key {
        tls.key_store.clone_from(&ensemble.tls_key);
        tls.key_store_password = ensemble.tls_key_password.clone();
        tls.key_store_password_file.clone_from(&ensemble.tls_key_password_file);
    }
    if is_empty(&tls.trust_store) {
        tls.trust_store.clone_from(&ensemble.tls_ca);
        tls.trust_store_password = ensemble.tls_ca_password.clone();
        tls.trust_store_password_file.clone_from(&ensemble.tls_ca_password_file);
    }
    Some(tls)
}

fn is_empty(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

/// Whether commands can be served below this path.
fn is_url(path: &str) -> bool {
    const TAKEN: [&str; 5] = ["/metrics", "/livez", "/readyz", "/healthz", "/top"];
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    let is_absolute = path.starts_with('/') && !path.ends_with('/') && !path.contains("//");
    let has_dots = path.split('/').any(|part| matches!(part, "." | ".."));
    is_absolute && !has_dots && path.bytes().all(is_plain) && !TAKEN.contains(&path)
}

/// Two keys cannot have one address: the second one to listen there would fail at the start.
pub(crate) fn check_addresses(draft: &mut Draft) {
    let config = &draft.config;
    let mut known = vec![("server.client_addr", config.server.client_addr)];
    let others = [
        ("tls.client_addr", config.tls.client_addr),
        ("metrics.http_addr", config.metrics.http_addr),
        ("admin.http_addr", Some(config.admin.http_addr).filter(|_| config.admin.enabled)),
    ];
    let mut doubles = Vec::new();
    for (key, address) in others.into_iter().filter_map(|(key, address)| Some((key, address?))) {
        let same = known.iter().find(|(_, other)| *other == address && address.port() > 0);
        doubles.extend(same.map(|(other, _)| (key, format!("{address} is the address of {other}, too"))));
        known.push((key, address));
    }
    for (key, reason) in doubles {
        let source = draft.source(key);
        draft.problem(&source, key, Rejection::new(reason, "give another port"));
    }
}

pub(crate) fn check(draft: &mut Draft) {
    let config = draft.config.clone();
    let Admin { command_url, client_auth, allow_changes, token_file, .. } = &config.admin;
    if !config.admin.enabled {
        return;
    }
    let mut problem = |key: &'static str, reason: &str, remedy: &str| {
        let source = draft.source(key);
        draft.problem(&source, key, Rejection::new(reason, remedy));
    };
    if !is_url(&command_url.0) {
        problem(
            "admin.command_url",
            "it is no path of a URL, or another thing is served there",
            "give a path such as /commands",
        );
    }
    let tls = tls(&config);
    if let Some(tls) = &tls {
        if is_empty(&tls.key_store) {
            let remedy = "name the file of this server's key and certificate in tls.key_store, or one file in ensemble.tls_cert and ensemble.tls_key";
            problem("admin.tls", "no key store is named", remedy);
        }
        if *client_auth != ClientAuth::None && is_empty(&tls.trust_store) {
            let remedy = "name the file of the authorities in tls.trust_store";
            problem("admin.client_auth", "no trust store is named", remedy);
        }
    } else if *client_auth != ClientAuth::None {
        let remedy = "set admin.tls to also or only (admin.portUnification, admin.forceHttps)";
        problem("admin.client_auth", "certificates are asked for, and the port serves no TLS", remedy);
    }
    let security = &config.security;
    let has_certificates = tls.is_some() && *client_auth != ClientAuth::None;
    let has_super_user = !security.super_digest.0.is_empty() && security.digest_scheme
        || !security.x509_super_user.0.is_empty() && has_certificates;
    if *allow_changes && is_empty(token_file) && !has_super_user {
        problem(
            "admin.allow_changes",
            "no client can prove that it may change something",
            "name a file of tokens in admin.token_file",
        );
    }
}
