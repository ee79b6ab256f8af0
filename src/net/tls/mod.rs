//! TLS of clients and servers: key stores, reloading, subjects of certificates, and the settings for clients.
//!
//! The record layer of a client's connection is in `net/client`, the connections between servers are in `net/peers`.

pub(crate) mod certificates;
pub(crate) mod clients;
mod jks;
pub(crate) mod stores;
pub(crate) mod subject;

use std::fs::metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use stores::KeyAndChain;

pub(crate) const DAY_S: i64 = 86_400;

/// State of files by their directory entries. Another stamp means that a file was replaced or written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(Vec<Option<(u64, i64, i64, u64)>>);

impl Stamp {
    /// Of these files as they are now. May block.
    pub(crate) fn of<'p>(paths: impl IntoIterator<Item = &'p Path>) -> Stamp {
        let of = |path: &Path| {
            let meta = metadata(path).ok()?;
            Some((meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.len()))
        };
        Stamp(paths.into_iter().map(of).collect())
    }
}

/// When the first certificate of a chain expires, Unix seconds; `None` if none can be parsed.
pub(crate) fn expiry(chain: &[CertificateDer<'_>]) -> Option<i64> {
    chain.iter().filter_map(|one| not_after(one)).min()
}

/// The sentence of a certificate that has expired; `None` if it has not, or its end is not known.
pub(crate) fn expired(what: &str, path: &Path, expires: Option<i64>) -> Option<String> {
    let past = unix_time() - expires?;
    (past >= 0).then(|| format!("{}: the {what} expired {} days ago; renew it", path.display(), past / DAY_S))
}

/// Settings of a client that trusts the authorities in a file, with the certificate and key of another.
///
/// # Errors
/// A sentence that names the file, the cause and the remedy.
pub(crate) fn outgoing(authorities: &Path, certificate: Option<&Path>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(stores::read_trust_store(authorities, "")?);
    let provider = Arc::new(default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| format!("TLS cannot be used: {error}"))?.with_root_certificates(roots);
    let Some(path) = certificate else { return Ok(builder.with_no_client_auth()) };
    let KeyAndChain { chain, key } = stores::read_key_store(path, "")?;
    let unusable = |error: rustls::Error| format!("{} cannot be used: {}", path.display(), key_fault(&error));
    builder.with_client_auth_cert(chain, key).map_err(unusable)
}

/// Now, in seconds since 1970.
pub(crate) fn unix_time() -> i64 {
    i64::try_from(UnixTime::now().as_secs()).unwrap_or(i64::MAX)
}

/// Whether a certificate is refused because it is of X.509 version 1. The library has no value for that.
pub(crate) fn is_of_version_1(error: &CertificateError) -> bool {
    error.to_string().contains("UnsupportedCertVersion")
}

/// The reason why a key and its chain cannot be used.
pub(crate) fn key_fault(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(reason) if is_of_version_1(reason) => {
            "the certificate is X.509 version 1, so sign it with extensions (openssl x509 -req -extfile)".to_owned()
        }
        rustls::Error::InconsistentKeys(_) => "the key belongs to another certificate".to_owned(),
        error => error.to_string(),
    }
}

/// The end of a certificate's validity, Unix seconds; `None` if the certificate cannot be parsed.
pub(crate) fn not_after(certificate: &[u8]) -> Option<i64> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(certificate.validity().not_after.timestamp())
}
