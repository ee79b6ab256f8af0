//! `corral check-config --security`: the risks of a configuration, each with a remedy.
//!
//! The main thread only; changes nothing. It looks at the configuration, at its files and at the root of the tree, not at the network.

use std::fs::metadata;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use corral_core::tree::acl;
use corral_core::tree::view::View;
use corral_storage::MmapDisk;

use crate::config::value::{ClientAuth, OnClientAddr, Secret};
use crate::config::{Config, Loaded, Source};
use crate::data::snapshots::{self, Found};
use crate::exit::Fault;
use crate::net::peers::setup;
use crate::net::tls::certificates::Certificates as _;
use crate::net::tls::clients::ClientTls;
use crate::net::tls::{DAY_S, unix_time};

/// A certificate should be valid for this many days more.
pub(super) const DAYS_LEFT_MIN: i64 = 30;

/// The risks of a configuration that `serve` accepts.
///
/// # Errors
/// When a file that the configuration names cannot be used.
pub(crate) fn risks(loaded: &Loaded) -> Result<Vec<String>, Fault> {
    let mut risks = Vec::new();
    let config = &loaded.config;
    clients(config, &mut risks);
    files(loaded, &mut risks);
    root(&config.server.data_dir, &mut risks);
    for Certificate { key, days_left, expired } in certificates(config)? {
        if let Some(days) = days_left.filter(|days| (0..DAYS_LEFT_MIN).contains(days)) {
            risks.push(format!("{key}: the certificate expires in {days} days; renew it"));
        }
        risks.extend(expired);
    }
    Ok(risks)
}

/// A certificate of the configuration.
pub(super) struct Certificate {
    pub(super) key: &'static str,
    /// Days until the first of its chain expires.
    pub(super) days_left: Option<i64>,
    /// A sentence for it, and for its revocation list, if they have expired.
    pub(super) expired: Vec<String>,
}

/// The certificates in use: for clients and administration, and for other servers.
///
/// # Errors
/// When a file cannot be used.
pub(super) fn certificates(config: &Config) -> Result<Vec<Certificate>, Fault> {
    let of_clients =
        ClientTls::configured(config)?.map_or_else(|| ClientTls::for_admin(config), |tls| Ok(Some(tls)))?;
    let of_servers = setup::check_files(config)?;
    let of = |key, expires: Option<i64>, expired| {
        // In its last second it has expired.
        let days_left = expires.map(|expires| (expires - unix_time() - 1).div_euclid(DAY_S));
        Certificate { key, days_left, expired }
    };
    let of_clients = of_clients.map(|tls| of("tls.key_store", tls.expires(), tls.expired()));
    let of_servers = of_servers.map(|tls| of("ensemble.tls_cert", tls.expires(), tls.expired()));
    Ok(of_clients.into_iter().chain(of_servers).collect())
}

/// Whether hosts other than this one can connect.
fn is_open(address: SocketAddr) -> bool {
    !matches!(address.ip().to_canonical(), ip @ (IpAddr::V4(_) | IpAddr::V6(_)) if ip.is_loopback())
}

fn clients(config: &Config, risks: &mut Vec<String>) {
    let (address, tls, security) = (config.server.client_addr, &config.tls, &config.security);
    let is_plain = is_open(address) && tls.on_client_addr != OnClientAddr::Only;
    let is_reached = is_open(address) || tls.client_addr.is_some_and(is_open);
    let proves = |scheme: &str| security.enforce_schemes.0.iter().any(|name| name == scheme);
    if is_plain {
        risks.push(format!(
            "server.client_addr: {address} serves plaintext to other hosts; set tls.on_client_addr = \"only\", or listen on 127.0.0.1"
        ));
        if proves("digest") || !security.super_digest.0.is_empty() {
            risks.push(
                "security: passwords of the digest scheme cross the network readable; serve TLS alone, or use the scheme sasl".to_owned(),
            );
        }
    }
    // Any user is one of digest, and every client has an address.
    let all_prove = !security.enforce_schemes.0.is_empty() && !proves("ip") && !proves("digest");
    let all_have_certificates = !is_plain && tls.client_auth == ClientAuth::Need;
    if is_reached && !all_prove && !all_have_certificates {
        risks.push(
            "security.enforce_schemes: a client need not authenticate, and can use every znode with an open ACL; name sasl or x509".to_owned(),
        );
    }
    if security.skip_acl {
        risks.push("security.skip_acl: no ACL is checked; remove the key (skipACL)".to_owned());
    }
    if is_reached && config.commands.four_letter_whitelist.names().count() > 1 {
        risks.push(
            "commands.four_letter_whitelist: commands ask for no user, and show sessions, paths and addresses; list the commands of your \
             monitoring alone, and filter the port"
                .to_owned(),
        );
    }
    if let Some(address) = config.metrics.http_addr.filter(|address| is_open(*address)) {
        risks.push(format!(
            "metrics.http_addr: {address} shows all metrics to every host that reaches it; let only the monitoring reach it, or listen on 127.0.0.1"
        ));
    }
    let admin = &config.admin;
    if admin.enabled && is_open(admin.http_addr) && admin.client_auth != ClientAuth::Need {
        risks.push(format!(
            "admin.http_addr: {} shows sessions, paths and addresses to every host that reaches it; set admin.tls = \"only\" and \
             admin.client_auth = \"need\", or listen on 127.0.0.1",
            admin.http_addr
        ));
    }
    if config.ensemble.allow_plaintext {
        risks.push(
            "ensemble.allow_plaintext: the secret alone protects the servers, and a secret that leaks opens recorded traffic; use TLS \
             between servers"
                .to_owned(),
        );
    }
}

/// The ACL of the root in the newest snapshot. Without a snapshot that can be read there is no finding.
fn root(data_dir: &Path, risks: &mut Vec<String>) {
    const CHANGES: i32 = acl::CREATE | acl::DELETE | acl::WRITE | acl::ADMIN;
    let Ok(disk) = MmapDisk::open_read_only(data_dir) else { return };
    let Ok(Found { newest: Some(newest), .. }) = snapshots::newest(&disk, 1, &AtomicU64::new(0)) else { return };
    let view = View::new(newest.snapshot);
    if view.get("/").is_some_and(|root| root.allows(CHANGES, &[])) {
        risks.push(
            "the tree: every client may make znodes below the root, or change it (by the newest snapshot); set an ACL on /".to_owned(),
        );
    }
}

/// Files that hold keys or passwords, and that others may read.
pub(super) fn files(loaded: &Loaded, risks: &mut Vec<String>) {
    let Config { tls, ensemble, security, .. } = &loaded.config;
    let secrets: [(&str, &Secret); 6] = [
        ("security.super_digest", &security.super_digest),
        ("security.sasl_super_password", &security.sasl_super_password),
        ("tls.key_store_password", &tls.key_store_password),
        ("tls.trust_store_password", &tls.trust_store_password),
        ("ensemble.tls_key_password", &ensemble.tls_key_password),
        ("ensemble.tls_ca_password", &ensemble.tls_ca_password),
    ];
    let given =
        |key: &str, is_there: bool| is_there.then(|| loaded.sources.get(key).cloned().unwrap_or(Source::Default));
    let sources: Vec<Source> = secrets.iter().filter_map(|(key, secret)| given(key, !secret.0.is_empty())).collect();
    if sources.iter().any(|source| matches!(source, Source::Flag(_))) {
        risks.push(
            "a secret given by --set is visible in the list of processes; put it into the configuration file"
                .to_owned(),
        );
    }
    let in_file = sources.iter().any(|source| matches!(source, Source::Line(_)));
    let configuration = loaded.file.as_deref().filter(|_| in_file);
    let held = [
        &tls.key_store,
        &tls.key_store_password_file,
        &tls.trust_store_password_file,
        &ensemble.tls_key,
        &ensemble.tls_key_password_file,
        &ensemble.tls_ca_password_file,
        &security.sasl_jaas_file,
        &security.sasl_users_file,
        &loaded.config.admin.token_file,
    ];
    let mut seen: Vec<&Path> = Vec::new();
    for path in configuration.into_iter().chain(held.into_iter().map(|path| path.as_path())) {
        if path.as_os_str().is_empty() || seen.contains(&path) {
            continue;
        }
        seen.push(path);
        let mode = metadata(path).map_or(0, |meta| meta.permissions().mode());
        if mode & 0o077 != 0 {
            let (path, mode) = (path.display(), mode & 0o777);
            risks.push(format!("{path} holds a key or a password, and has mode {mode:o}; chmod 600 {path}"));
        }
    }
    for path in
        [&tls.trust_store, &tls.crl_file, &ensemble.tls_ca].into_iter().filter(|path| !seen.contains(&path.as_path()))
    {
        let mode = metadata(path).map_or(0, |meta| meta.permissions().mode());
        if mode & 0o022 != 0 {
            let (path, mode) = (path.display(), mode & 0o777);
            risks.push(format!(
                "{path} decides which certificates are accepted, and has mode {mode:o}; chmod go-w {path}"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Override};

    fn risks_of(text: &str) -> Vec<String> {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let path = dir.path().join("corral.toml");
        std::fs::write(&path, text).expect("the directory is writable");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("it is ours");
        let loaded = config::load(Some(&path), &[] as &[Override]).expect("the configuration is good");
        risks(&loaded)
            .expect("it names no file")
            .iter()
            .map(|risk| risk.replace(&format!("{}/", dir.path().display()), ""))
            .collect()
    }

    #[test]
    fn risks_are_told_by_key() {
        let check = |text: &str, expect: &[&str]| {
            let found = risks_of(text);
            assert_eq!(found.len(), expect.len(), "{found:?}");
            for (found, expect) in found.iter().zip(expect) {
                assert!(found.starts_with(expect) && found.contains("; "), "{found}");
            }
        };
        check("[server]\nclient_addr = \"127.0.0.1:2181\"", &[]);
        check("[server]\nclient_addr = \"[::1]:2181\"\n[commands]\nfour_letter_whitelist = [\"*\"]", &[]);
        check(
            "[server]\nclient_addr = \"0.0.0.0:2181\"",
            &["server.client_addr: 0.0.0.0:2181", "security.enforce_schemes"],
        );
        check("[metrics]\nhttp_addr = \"127.0.0.1:7000\"", &[]);
        check("[metrics]\nhttp_addr = \"0.0.0.0:7000\"", &["metrics.http_addr: 0.0.0.0:7000 shows"]);
        check(
            "[server]\nclient_addr = \"[::]:2181\"\n[security]\nenforce_schemes = [\"digest\"]\nsuper_digest = \"super:x\"\n\
             skip_acl = true\n[commands]\nfour_letter_whitelist = [\"ruok\"]",
            &[
                "server.client_addr",
                "security: passwords",
                "security.enforce_schemes",
                "security.skip_acl",
                "commands.four_letter_whitelist",
                "corral.toml holds a key or a password, and has mode 644",
            ],
        );
    }
}
