//! TLS for clients in a `zoo.cfg`: the secure port, and the `ssl.` keys that mean something only with it.
//!
//! Start-up only, on the main thread. Everything is gathered first, because the port may be on the last line.

use crate::config::problem::{Draft, Source};
use crate::config::properties::{Keys, flag, items, port, whole};
use crate::config::tls::{CIPHER_SUITES, PROTOCOLS};
use crate::config::value::{Raw, Rejection, every_address, resolve, shortened};

/// The keys of TLS.
pub(crate) struct Found {
    pub(crate) keys: Keys,
}

/// Keys that are taken as they are.
const TEXTS: [(&str, &str); 6] = [
    ("ssl.keyStore.location", "tls.key_store"),
    ("ssl.keyStore.password", "tls.key_store_password"),
    ("ssl.keyStore.passwordPath", "tls.key_store_password_file"),
    ("ssl.trustStore.location", "tls.trust_store"),
    ("ssl.trustStore.password", "tls.trust_store_password"),
    ("ssl.trustStore.passwordPath", "tls.trust_store_password_file"),
];

impl Found {
    /// Judges what was found. Gives the keys that mean nothing, because no port serves TLS.
    pub(crate) fn judge(self, draft: &mut Draft) -> Vec<String> {
        let is_served = self.keys.contains_key("secureClientPort")
            || self.keys.get("client.portUnification").is_some_and(|(value, _)| flag(value) != Ok(false));
        if !is_served && !self.keys.contains_key("secureClientPortAddress") {
            return self.keys.into_keys().map(|key| shortened(&key)).collect();
        }
        for (key, (value, line)) in &self.keys {
            let source = Source::Line(*line);
            if let Err(rejection) = self.take(key, value, &source, draft) {
                draft.problem(&source, key, rejection);
            }
        }
        Vec::new()
    }

    /// Without a plain port the secure one is the port for clients, as the list of servers and `conf` show it.
    pub(crate) fn secure_alone(draft: &mut Draft) {
        if draft.source("server.client_addr") != Source::ZooKeeperDefault {
            return;
        }
        let Some(address) = draft.config.tls.client_addr.take() else { return };
        let source = draft.source("tls.client_addr");
        draft.sources.remove("tls.client_addr");
        draft.assign("server.client_addr", &Raw::Text(address.to_string()), source.clone(), "secureClientPort");
        draft.assign("tls.on_client_addr", &Raw::Text("only".to_owned()), source, "secureClientPort");
    }

    fn take(&self, key: &str, value: &str, source: &Source, draft: &mut Draft) -> Result<(), Rejection> {
        if let Some((_, to)) = TEXTS.iter().find(|(name, _)| *name == key) {
            if !value.is_empty() {
                draft.assign(to, &Raw::Text(value.to_owned()), source.clone(), key);
            }
            return Ok(());
        }
        let names_no_crl_file = draft.config.tls.crl_file.as_os_str().is_empty();
        let mut assign = |to: &'static str, raw: Raw| draft.assign(to, &raw, source.clone(), key);
        match key {
            "secureClientPort" => {
                let port = port(value)?;
                let host = self.keys.get("secureClientPortAddress").map(|(host, _)| host.trim_matches(['[', ']']));
                let address = host.map_or(Ok(every_address(port)), |host| resolve(host, port))?;
                assign("tls.client_addr", Raw::Text(address.to_string()));
            }
            "secureClientPortAddress" if !self.keys.contains_key("secureClientPort") => {
                return Err(Rejection::new("there is no secureClientPort", "add a line such as secureClientPort=2281"));
            }
            "client.portUnification" => {
                let word = if flag(value)? { "also" } else { "none" };
                assign("tls.on_client_addr", Raw::Text(word.to_owned()));
            }
            "client.certReload" => assign("tls.watch", Raw::Boolean(flag(value)?)),
            "ssl.clientAuth" if !value.is_empty() => {
                assign("tls.client_auth", Raw::Text(value.to_ascii_lowercase()));
            }
            "ssl.keyStore.type" | "ssl.trustStore.type" => known_type(value)?,
            "ssl.enabledProtocols" => assign("tls.protocols", Raw::List(protocols(value)?)),
            "ssl.protocol" => match value {
                "" | "TLS" | "TLSv1.3" => {}
                "TLSv1.2" if self.keys.contains_key("ssl.enabledProtocols") => {}
                "TLSv1.2" => assign("tls.protocols", Raw::List(vec!["TLSv1.2".to_owned()])),
                _ => return Err(Rejection::new(format!("{:?} is not served", shortened(value)), GIVE_PROTOCOLS)),
            },
            "ssl.ciphersuites" if !value.is_empty() => cipher_suites(value, source, draft)?,
            "ssl.crl" if flag(value)? && names_no_crl_file => {
                let remedy = "give the list's file with --set tls.crl_file=FILE, or drop the line";
                draft.needs_crl_file =
                    Some((source.clone(), Rejection::new("no file of revocation lists is named", remedy)));
            }
            "ssl.ocsp" | "ssl.clientHostnameVerification" if flag(value)? => {
                return Err(Rejection::new(
                    "this check of clients' certificates is not offered",
                    "give false, or drop the line",
                ));
            }
            "ssl.authProvider" if value != "x509" => {
                return Err(Rejection::new(
                    format!("{:?} is not offered", shortened(value)),
                    "give x509, or drop the line",
                ));
            }
            "ssl.handshakeDetectionTimeoutMillis" => {
                assign("tls.detection_ms", Raw::Integer(whole(value)?.into()));
            }
            "netty.server.outstandingHandshake.limit" => {
                if let limit @ 1.. = whole(value)? {
                    assign("tls.handshakes_max", Raw::Integer(limit.into()));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Reads the suites that are served. A warning names the others.
fn cipher_suites(value: &str, source: &Source, draft: &mut Draft) -> Result<(), Rejection> {
    let (served, others): (Vec<_>, Vec<_>) =
        items(value).map(str::to_owned).partition(|name| CIPHER_SUITES.contains(&name.as_str()));
    if served.is_empty() {
        let remedy = format!("name some of {}", CIPHER_SUITES.join(", "));
        return Err(Rejection::new("none of the cipher suites is served", remedy));
    }
    draft.assign("tls.cipher_suites", &Raw::List(served), source.clone(), "ssl.ciphersuites");
    if !others.is_empty() {
        let place = draft.place(source);
        draft.warn(format!("{place}: cipher suites that are not served: {}", shortened(&others.join(", "))));
    }
    Ok(())
}

const GIVE_PROTOCOLS: &str = "give TLSv1.2 or TLSv1.3";

fn protocols(value: &str) -> Result<Vec<String>, Rejection> {
    let known: Vec<String> = items(value).filter(|name| PROTOCOLS.contains(name)).map(str::to_owned).collect();
    if known.is_empty() {
        return Err(Rejection::new(format!("{:?} names no protocol that is served", shortened(value)), GIVE_PROTOCOLS));
    }
    Ok(known)
}

/// Whether stores of this type are read.
///
/// # Errors
/// With the command that converts others.
pub(crate) fn known_type(value: &str) -> Result<(), Rejection> {
    if value.is_empty() || ["JKS", "PEM", "PKCS12"].iter().any(|known| value.eq_ignore_ascii_case(known)) {
        return Ok(());
    }
    let remedy =
        "convert the store: keytool -importkeystore -srckeystore FILE -destkeystore NEW.p12 -deststoretype PKCS12";
    Err(Rejection::new(format!("stores of type {:?} are not read", shortened(value)), remedy))
}
