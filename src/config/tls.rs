//! TLS and authentication of clients: the values that are served, and the keys that need each other.
//!
//! Start-up only. It reads no file: whether a key store can be read shows at the start.

use crate::config::keys::{Config, Tls};
use crate::config::problem::{Draft, Source};
use crate::config::users::files;
use crate::config::value::{ClientAuth, OnClientAddr, Rejection};

/// Versions that are served.
pub(crate) const PROTOCOLS: [&str; 2] = ["TLSv1.2", "TLSv1.3"];

/// Cipher suites that are served, in the order of preference.
pub(crate) const CIPHER_SUITES: [&str; 9] = [
    "TLS_AES_256_GCM_SHA384",
    "TLS_AES_128_GCM_SHA256",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];

/// Whether some port serves TLS to clients.
pub(crate) fn is_served(config: &Config) -> bool {
    config.tls.client_addr.is_some() || config.tls.on_client_addr != OnClientAddr::None
}

/// With TLS, ACLs may name the subjects of certificates, as with ZooKeeper's secure port. With SASL users they may name these.
pub(crate) fn derive(draft: &mut Draft) {
    if !files(&draft.config.security).is_empty() && !draft.config.security.sasl_acls {
        draft.config.security.sasl_acls = true;
        draft.sources.insert("security.sasl_acls", Source::Derived("SASL users are configured"));
    }
    let proves = is_served(&draft.config) && draft.config.tls.client_auth != ClientAuth::None;
    if proves && !draft.config.security.x509_acls {
        draft.config.security.x509_acls = true;
        draft.sources.insert("security.x509_acls", Source::Derived("clients prove certificates"));
    }
}

pub(crate) fn check(draft: &mut Draft) {
    let Tls { key_store, trust_store, client_auth, protocols, cipher_suites, crl_file, .. } = draft.config.tls.clone();
    let mut problem = |key: &'static str, reason: &str, remedy: String| {
        let source = draft.source(key);
        draft.problem(&source, key, Rejection::new(reason, remedy));
    };
    if protocols.0.iter().any(|name| !PROTOCOLS.contains(&name.as_str())) {
        problem("tls.protocols", "a protocol is not served", format!("name some of {}", PROTOCOLS.join(", ")));
    }
    if cipher_suites.0.iter().any(|name| !CIPHER_SUITES.contains(&name.as_str())) {
        problem(
            "tls.cipher_suites",
            "a cipher suite is not served",
            format!("name some of {}", CIPHER_SUITES.join(", ")),
        );
    }
    let is_named = |path: &std::path::Path| !path.as_os_str().is_empty();
    if is_served(&draft.config) {
        let mut problem = |key: &'static str, reason: &str, remedy: &str| {
            let source = draft.source(key);
            draft.problem(&source, key, Rejection::new(reason, remedy));
        };
        if !is_named(&key_store) {
            let remedy =
                "name the PEM, PKCS#12 or JKS file of this server's key and certificate (ssl.keyStore.location)";
            problem("tls.key_store", "TLS is served, and no key store is named", remedy);
        }
        if client_auth != ClientAuth::None && !is_named(&trust_store) {
            let remedy =
                "name the file of the authorities (ssl.trustStore.location), or set tls.client_auth to \"none\"";
            problem("tls.trust_store", "clients are asked for certificates, and no trust store is named", remedy);
        }
    } else if is_named(&key_store) && super::admin::tls(&draft.config).is_none() {
        draft.warn(
            "tls.key_store is named, and no port serves TLS; set tls.client_addr, tls.on_client_addr or admin.tls"
                .to_owned(),
        );
    }
    if draft.config.security.sasl_any_user.0 == "super" {
        let (key, reason) =
            ("security.sasl_any_user", "super passes every ACL for SASL users, so every SASL user would");
        let source = draft.source(key);
        draft.problem(&source, key, Rejection::new(reason, "name a user that has no rights of its own"));
    }
    let security = &draft.config.security;
    if security.sasl_acls && files(security).is_empty() {
        draft.warn(
            "ACLs may name SASL users, and none is configured: clients that send a SASL user go on without one; give \
             --set security.sasl_jaas_file=FILE, the file of ZooKeeper's java.security.auth.login.config"
                .to_owned(),
        );
    }
    check_schemes(draft);
    if let Some((source, rejection)) = draft.needs_crl_file.take().filter(|_| !is_named(&crl_file)) {
        draft.problem(&source, "ssl.crl", rejection);
    }
}

/// A scheme that no client can prove would keep all clients out.
fn check_schemes(draft: &mut Draft) {
    const KEY: &str = "security.enforce_schemes";
    let (config, source) = (draft.config.clone(), draft.source(KEY));
    let security = &config.security;
    let mut problem = |reason: String, remedy: &str| draft.problem(&source, KEY, Rejection::new(reason, remedy));
    for scheme in &security.enforce_schemes.0 {
        match scheme.as_str() {
            "digest" if !security.digest_scheme => {
                problem("there is no digest scheme".to_owned(), "set security.digest_scheme = true");
            }
            "digest" | "ip" => {}
            "sasl" if !files(security).is_empty() => {}
            "sasl" => problem(
                "no SASL user is configured".to_owned(),
                "give --set security.sasl_jaas_file=FILE, the file of ZooKeeper's java.security.auth.login.config",
            ),
            "x509" if is_served(&config) && config.tls.client_auth != ClientAuth::None => {}
            "x509" => problem("no client is asked for a certificate".to_owned(), "serve TLS, see [tls]"),
            other => problem(format!("{other:?} is not a scheme of this server"), "name some of digest, sasl, x509"),
        }
    }
}
