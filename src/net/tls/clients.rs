//! TLS for clients: this server's certificate, which certificates of clients are accepted, and which versions and ciphers.
//!
//! Made at the start, and again when the files are reloaded. A connection uses what was there when its handshake began. Resumption is
//! by tickets, which die with a reload: the server stores no sessions.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
    SupportedProtocolVersion,
};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use super::certificates::Certificates;
use super::stores::{KeyAndChain, RevocationLists, Store, read_crls, read_key_store, read_trust_store};
use super::{Stamp, expired, expiry, is_of_version_1, key_fault};
use crate::config::admin;
use crate::config::tls::is_served;
use crate::config::value::ClientAuth;
use crate::config::{Config, TlsSection as Settings};
use crate::exit::{ExitCode, Fault};

/// TLS for clients. A clone is the same one.
#[derive(Clone)]
pub(crate) struct ClientTls(Arc<Inner>);

struct Inner {
    settings: Settings,
    /// The other side, for the log.
    whose: &'static str,
    current: RwLock<Current>,
}

#[derive(Clone)]
struct Current {
    config: Arc<ServerConfig>,
    expires: Option<i64>,
    /// When the first revocation list expires, Unix seconds.
    lists_expire: Option<i64>,
    stamp: Stamp,
}

fn stamp(settings: &Settings) -> Stamp {
    let files = [
        &settings.key_store,
        &settings.key_store_password_file,
        &settings.trust_store,
        &settings.trust_store_password_file,
        &settings.crl_file,
    ];
    Stamp::of(files.map(PathBuf::as_path))
}

impl ClientTls {
    /// As it is configured; `None` if no port serves TLS.
    ///
    /// # Errors
    /// A `Config` fault that names the file or key, the cause and the remedy.
    pub(crate) fn configured(config: &Config) -> Result<Option<ClientTls>, Fault> {
        if !is_served(config) {
            return Ok(None);
        }
        let loaded = ClientTls::load(config.tls.clone(), "clients").map(Some);
        loaded.map_err(|sentence| Fault::new(ExitCode::Config, sentence))
    }

    /// As it is configured for administration; `None` if that port serves no TLS.
    ///
    /// # Errors
    /// As [`ClientTls::configured`].
    pub(crate) fn for_admin(config: &Config) -> Result<Option<ClientTls>, Fault> {
        let Some(settings) = admin::tls(config) else { return Ok(None) };
        let loaded = ClientTls::load(settings, "administrators").map(Some);
        loaded.map_err(|sentence| Fault::new(ExitCode::Config, format!("admin.tls: {sentence}")))
    }

    /// Reads the files.
    ///
    /// # Errors
    /// A sentence that names the file or key, the cause and the remedy.
    fn load(settings: Settings, whose: &'static str) -> Result<ClientTls, String> {
        let current = RwLock::new(Current::read(&settings)?);
        Ok(ClientTls(Arc::new(Inner { settings, whose, current })))
    }

    /// The settings of handshakes that begin now.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.current().config
    }

    fn current(&self) -> Current {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Certificates for ClientTls {
    fn whose(&self) -> &'static str {
        self.0.whose
    }

    fn expires(&self) -> Option<i64> {
        self.current().expires
    }

    fn expired(&self) -> Vec<String> {
        let (Current { expires, lists_expire, .. }, settings) = (self.current(), &self.0.settings);
        let certificate = expired("certificate", &settings.key_store, expires);
        certificate.into_iter().chain(expired("revocation list", &settings.crl_file, lists_expire)).collect()
    }

    fn stamp(&self) -> Stamp {
        stamp(&self.0.settings)
    }

    fn stamp_in_use(&self) -> Stamp {
        self.current().stamp
    }

    fn reload(&self) -> Result<(), String> {
        let read = Current::read(&self.0.settings)?;
        if let Some(sentence) = expired("certificate", &self.0.settings.key_store, read.expires) {
            return Err(sentence);
        }
        *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(())
    }
}

impl Current {
    fn read(settings: &Settings) -> Result<Current, String> {
        let stamp = stamp(settings);
        let path = &settings.key_store;
        let store = Store::new(path, &settings.key_store_password.0, &settings.key_store_password_file);
        let password = store.password().map_err(of_key("tls.key_store_password_file"))?;
        let KeyAndChain { chain, key } = read_key_store(path, &password).map_err(of_key("tls.key_store"))?;
        let provider = Arc::new(provider(&settings.cipher_suites.0));
        let lists = revocation_lists(settings)?;
        let lists_expire = lists.as_ref().and_then(|lists| lists.expires);
        let verifier = verifier(settings, lists, &provider)?;
        let expires = expiry(&chain);
        let unusable = |error: rustls::Error| {
            let what = key_fault(&error);
            format!(
                "{} cannot be used: {what}; the key must be RSA, ECDSA or Ed25519, and that of the first certificate",
                path.display()
            )
        };
        let protocols = protocols(&settings.protocols.0);
        let builder =
            ServerConfig::builder_with_provider(provider).with_protocol_versions(&protocols).map_err(|error| {
                format!(
                    "tls.protocols and tls.cipher_suites leave no cipher: {error}; add a cipher suite of each protocol"
                )
            })?;
        let builder = match verifier {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(unusable)?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = Ticketer::new().map_err(|error| format!("no random bytes: {error}"))?;
        config.send_tls13_tickets = 1;
        Ok(Current { config: Arc::new(config), expires, lists_expire, stamp })
    }
}

/// Puts the key that names a file in front of the sentence about it.
fn of_key(key: &'static str) -> impl Fn(String) -> String {
    move |sentence| format!("{key}: {sentence}")
}

/// The versions of these names; both without one.
fn protocols(names: &[String]) -> Vec<&'static SupportedProtocolVersion> {
    let all = [("TLSv1.3", &rustls::version::TLS13), ("TLSv1.2", &rustls::version::TLS12)];
    all.into_iter()
        .filter(|(name, _)| names.is_empty() || names.iter().any(|given| given == name))
        .map(|(_, version)| version)
        .collect()
}

/// The name of a cipher suite as IANA and Java have it.
fn suite_name(suite: &rustls::SupportedCipherSuite) -> String {
    let name = format!("{:?}", suite.suite());
    name.strip_prefix("TLS13_").map_or(name.clone(), |rest| format!("TLS_{rest}"))
}

/// The cipher suites of these names, in this order; all without one. The configuration refuses other names.
fn provider(names: &[String]) -> CryptoProvider {
    let mut provider = default_provider();
    if !names.is_empty() {
        provider.cipher_suites.retain(|suite| names.contains(&suite_name(suite)));
        provider.cipher_suites.sort_by_key(|suite| names.iter().position(|name| *name == suite_name(suite)));
    }
    provider
}

fn revocation_lists(settings: &Settings) -> Result<Option<RevocationLists>, String> {
    let path = &settings.crl_file;
    let is_used = settings.client_auth != ClientAuth::None && !path.as_os_str().is_empty();
    is_used.then(|| read_crls(path).map_err(|sentence| format!("tls.crl_file: {sentence}"))).transpose()
}

fn verifier(
    settings: &Settings,
    lists: Option<RevocationLists>,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
    if settings.client_auth == ClientAuth::None {
        return Ok(None);
    }
    let path = &settings.trust_store;
    let store = Store::new(path, &settings.trust_store_password.0, &settings.trust_store_password_file);
    let password = store.password().map_err(of_key("tls.trust_store_password_file"))?;
    let trusted = read_trust_store(path, &password).map_err(of_key("tls.trust_store"))?;
    let mut roots = RootCertStore::empty();
    // As Java: a certificate that cannot be an authority may still be trusted itself.
    let (added, _) = roots.add_parsable_certificates(trusted.iter().cloned());
    if added == 0 {
        return Err(format!("{}: no certificate in it can be parsed; name a trust store", path.display()));
    }
    let mut crls = String::new();
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    if let Some(lists) = lists {
        // As Java: a list that has expired says nothing, and its authority's clients are refused.
        builder = builder.with_crls(lists.lists).enforce_revocation_expiration();
        crls = format!(" and {}", settings.crl_file.display());
    }
    if settings.client_auth == ClientAuth::Want {
        builder = builder.allow_unauthenticated();
    }
    let authorities = builder.build().map_err(|error| {
        format!(
            "{}{crls} cannot be used: {error}; name authorities, and revocation lists of version 2 (crlnumber in openssl.cnf)",
            path.display()
        )
    })?;
    Ok(Some(Arc::new(Verifier { authorities, trusted })))
}

/// Accepts certificates that an authority signed, and certificates of the trust store.
#[derive(Debug)]
struct Verifier {
    authorities: Arc<dyn ClientCertVerifier>,
    trusted: Vec<CertificateDer<'static>>,
}

impl ClientCertVerifier for Verifier {
    fn client_auth_mandatory(&self) -> bool {
        self.authorities.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.authorities.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        is_for_signatures(end_entity)?;
        if self.trusted.iter().any(|trusted| trusted == end_entity) {
            return is_in_force(end_entity, now).map(|()| ClientCertVerified::assertion());
        }
        self.authorities.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authorities.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authorities.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}

/// As Java: the key of a client signs the handshake, so a certificate that names uses of the key must name this one.
fn is_for_signatures(certificate: &[u8]) -> Result<(), rustls::Error> {
    let (_, certificate) = X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    match certificate.key_usage() {
        Ok(Some(usage)) if !usage.value.digital_signature() => Err(CertificateError::InvalidPurpose.into()),
        Ok(_) => Ok(()),
        Err(_) => Err(CertificateError::BadEncoding.into()),
    }
}

fn is_in_force(certificate: &[u8], now: UnixTime) -> Result<(), rustls::Error> {
    let (_, certificate) = X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let (validity, now) = (certificate.validity(), i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    if now < validity.not_before.timestamp() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > validity.not_after.timestamp() {
        return Err(CertificateError::Expired.into());
    }
    Ok(())
}

/// The reason of a failed handshake, for the log.
pub(crate) fn why_failed(error: &rustls::Error) -> String {
    use rustls::{AlertDescription as Alert, Error};
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "no authority of tls.trust_store signed the client's certificate".to_owned()
        }
        Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "the client's certificate has expired".to_owned()
        }
        Error::InvalidCertificate(CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }) => {
            "the client's certificate is not valid yet".to_owned()
        }
        Error::InvalidCertificate(CertificateError::Revoked) => "the client's certificate is revoked".to_owned(),
        Error::InvalidCertificate(
            CertificateError::ExpiredRevocationList | CertificateError::ExpiredRevocationListContext { .. },
        ) => "the revocation list of the client's authority has expired; renew tls.crl_file".to_owned(),
        Error::InvalidCertificate(
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. },
        ) => "the client's certificate is not for clients (its key usage or extended key usage)".to_owned(),
        Error::InvalidCertificate(reason) if is_of_version_1(reason) => {
            "the client's certificate is X.509 version 1; sign it with extensions (openssl x509 -req -extfile)"
                .to_owned()
        }
        Error::InvalidCertificate(CertificateError::UnknownRevocationStatus) => {
            "tls.crl_file has no list of the authority that signed the client's certificate".to_owned()
        }
        Error::InvalidCertificate(reason) => format!("the client's certificate is not accepted ({reason})"),
        Error::NoCertificatesPresented => "the client has no certificate (tls.client_auth)".to_owned(),
        Error::AlertReceived(
            Alert::UnknownCA | Alert::CertificateUnknown | Alert::BadCertificate | Alert::DecryptError,
        ) => "the client does not trust this server's certificate".to_owned(),
        Error::AlertReceived(Alert::CertificateExpired) => {
            "the client finds this server's certificate expired".to_owned()
        }
        Error::AlertReceived(alert) => format!("the client ended the handshake ({alert:?})"),
        Error::InvalidMessage(_) => "plaintext or HTTP on the port for TLS".to_owned(),
        Error::PeerIncompatible(reason) => {
            format!("the client offers no protocol or cipher of tls.protocols and tls.cipher_suites ({reason:?})")
        }
        error => error.to_string(),
    }
}

/// The identity of a client's certificate: its subject in the form of ZooKeeper. `None` without a certificate.
///
/// # Errors
/// When the certificate cannot be parsed, or is not valid now: a ticket that it was proven for may be older.
pub(crate) fn identity(certificates: Option<&[CertificateDer<'_>]>) -> Result<Option<String>, rustls::Error> {
    let Some(certificate) = certificates.and_then(<[_]>::first) else { return Ok(None) };
    is_in_force(certificate, UnixTime::now())?;
    let subject = super::subject::subject(certificate).ok_or(CertificateError::BadEncoding)?;
    Ok(Some(subject))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tls::CIPHER_SUITES;

    /// A certificate with this validity in years and this use of the key.
    fn certificate((from, to): (i32, i32), usage: rcgen::KeyUsagePurpose) -> CertificateDer<'static> {
        let mut params = rcgen::CertificateParams::default();
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(from, 1, 1), rcgen::date_time_ymd(to, 1, 1));
        params.key_usages = vec![usage];
        let key = rcgen::KeyPair::generate().expect("a key can be made");
        params.self_signed(&key).expect("it can be signed").der().clone()
    }

    /// A ticket may be older than the certificate, and a handshake that resumes looks at no certificate.
    #[test]
    fn a_certificate_that_has_expired_is_no_identity() {
        use rcgen::KeyUsagePurpose::DigitalSignature;
        let identity = |years| identity(Some(&[certificate(years, DigitalSignature)]));
        assert!(identity((2020, 2090)).is_ok_and(|subject| subject.is_some()));
        assert!(identity((2020, 2021)).is_err());
    }

    #[test]
    fn the_key_of_a_client_is_for_signatures() {
        use rcgen::KeyUsagePurpose::{DigitalSignature, KeyEncipherment};
        let is_accepted = |usage| is_for_signatures(&certificate((2020, 2090), usage)).is_ok();
        assert!(is_accepted(DigitalSignature) && !is_accepted(KeyEncipherment));
    }

    #[test]
    fn every_cipher_suite_that_can_be_configured_is_served() {
        let served: Vec<String> = default_provider().cipher_suites.iter().map(suite_name).collect();
        assert_eq!(served, CIPHER_SUITES);
        let chosen = [CIPHER_SUITES[8].to_owned(), CIPHER_SUITES[1].to_owned()];
        assert_eq!(provider(&chosen).cipher_suites.iter().map(suite_name).collect::<Vec<_>>(), chosen);
    }
}
