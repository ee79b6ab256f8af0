//! Mutual TLS between servers: one certificate, one key and one authority for both directions, and the check of a
//! certificate's peer.
//!
//! TLS 1.3 alone, no resumption and no tickets. Made at start, then shared by the connections' threads; files that are
//! read again count for the connections that begin from then on. A certificate is valid for a peer if one of its
//! alternative names (SAN) is the peer's configured host, a name or an IP address. The name `server-N` with the peer's
//! id is valid, too. The common name does not count and nothing is looked up backwards.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct,
    RootCertStore, ServerConfig, ServerConnection, SignatureScheme,
};

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

use crate::net::peers::PeerAddress;
use crate::net::tls::certificates::Certificates;
use crate::net::tls::stores::{KeyAndChain, Store, read_pair, read_trust_store};
use crate::net::tls::{Stamp, expired, expiry, key_fault};

/// Names of a certificate that a message shows at most.
const NAMES_SHOWN_MAX: usize = 8;

/// The TLS configuration between servers, read from files. A clone is the same one.
#[derive(Clone)]
pub(crate) struct Tls {
    files: Arc<Files>,
    /// Written when the files are read again, and read by each connection that begins; no thread holds it for long.
    current: Arc<RwLock<Current>>,
    /// The server that the certificate must be for, if it is known. Written when the membership changes.
    own: Arc<RwLock<Option<PeerAddress>>>,
}

/// Where it comes from.
#[derive(Clone)]
pub(crate) struct Files {
    /// This server's certificate with those between it and the authority. In a PKCS#12 or JKS file the key is there as well.
    pub(crate) cert: PathBuf,
    pub(crate) key: Store,
    /// The authorities that sign the certificates of peers.
    pub(crate) ca: Store,
}

/// The TLS configuration of new connections.
#[derive(Clone, Debug)]
struct Current {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    /// When the first certificate of the own chain expires, Unix seconds; `None` where that cannot be read.
    expires: Option<i64>,
    stamp: Stamp,
    shown: Shown,
}

impl Files {
    /// PEM files without passwords.
    #[cfg(test)]
    pub(crate) fn pem(cert: &std::path::Path, key: &std::path::Path, ca: &std::path::Path) -> Files {
        let store = |path: &std::path::Path| Store { path: path.to_owned(), ..Store::default() };
        Files { cert: cert.to_owned(), key: store(key), ca: store(ca) }
    }

    fn stamp(&self) -> Stamp {
        let Files { cert, key, ca } = self;
        Stamp::of([cert, &key.path, &key.password_file, &ca.path, &ca.password_file].map(PathBuf::as_path))
    }
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// A sentence that names the file, the cause and the remedy.
    pub(crate) fn load(files: Files) -> Result<Tls, String> {
        let current = Arc::new(RwLock::new(Current::read(&files)?));
        Ok(Tls { files: Arc::new(files), current, own: Arc::default() })
    }

    /// From now on only a certificate is taken that other servers accept from this one.
    ///
    /// # Errors
    /// As [`Tls::load`], when they would refuse the present one. Its dates do not count: clocks may be wrong at a
    /// start.
    pub(crate) fn of_server(self, own: PeerAddress) -> Result<Tls, String> {
        match self.current().shown.fault() {
            Some(fault) if !is_of_dates(&fault) => return Err(self.would_be_refused(&words(&fault))),
            _ => {}
        }
        self.check_name(&self.current(), &own)?;
        self.known_as(&own);
        Ok(self)
    }

    /// Other servers find this one there from now on: a certificate that is read again is to be for that host.
    pub(crate) fn known_as(&self, own: &PeerAddress) {
        *self.own.write().unwrap_or_else(PoisonError::into_inner) = Some(own.clone());
    }

    /// Checks the certificate's name. That is impossible for a server with an unspecified address in its own line of
    /// the list.
    fn check_name(&self, read: &Current, own: &PeerAddress) -> Result<(), String> {
        if own.host.parse().is_ok_and(|address: IpAddr| address.is_unspecified()) {
            return Ok(());
        }
        is_certificate_for(read.shown.chain.first(), own).map_err(|reason| self.would_be_refused(&reason))
    }

    fn would_be_refused(&self, reason: &str) -> String {
        format!("{}: the other servers would refuse this one: {reason}", self.files.cert.display())
    }

    fn current(&self) -> Current {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The side that dials.
    ///
    /// # Errors
    /// When the host is no name TLS can ask for.
    pub(crate) fn dial(&self, peer: &PeerAddress) -> Result<Connection, String> {
        let name = ServerName::try_from(peer.host.clone())
            .map_err(|_| format!("{:?} is no name that a certificate can be for; correct the host", peer.host))?;
        let connection = ClientConnection::new(self.current().client, name);
        connection.map(Connection::Client).map_err(|error| format!("TLS cannot begin: {error}"))
    }

    /// The side that listens.
    ///
    /// # Errors
    /// When there is no random bytes.
    pub(crate) fn accept(&self) -> Result<Connection, rustls::Error> {
        ServerConnection::new(self.current().server).map(Connection::Server)
    }
}

impl Certificates for Tls {
    fn whose(&self) -> &'static str {
        "servers"
    }

    fn expires(&self) -> Option<i64> {
        self.current().expires
    }

    fn expired(&self) -> Vec<String> {
        expired("certificate", &self.files.cert, self.expires()).into_iter().collect()
    }

    fn stamp(&self) -> Stamp {
        self.files.stamp()
    }

    fn stamp_in_use(&self) -> Stamp {
        self.current().stamp
    }

    fn reload(&self) -> Result<(), String> {
        let read = Current::read(&self.files)?;
        if let Some(sentence) = expired("certificate", &self.files.cert, read.expires) {
            return Err(sentence);
        }
        let own = self.own.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(own) = &own {
            if let Some(fault) = read.shown.fault() {
                return Err(self.would_be_refused(&words(&fault)));
            }
            self.check_name(&read, own)?;
        }
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(())
    }
}

impl Current {
    fn read(files: &Files) -> Result<Current, String> {
        let (Files { cert, key, ca }, stamp) = (files, files.stamp());
        let KeyAndChain { chain, key: private } = read_pair(cert, &key.path, &key.password()?)?;
        let mut roots = RootCertStore::empty();
        for authority in read_trust_store(&ca.path, &ca.password()?)? {
            roots.add(authority).map_err(|error| {
                format!(
                    "{}: a certificate in it is no authority: {error}; name the file of the authority",
                    ca.path.display()
                )
            })?;
        }
        let expires = expiry(&chain);
        let (client, server, shown) = configs(chain, private, roots).map_err(|error| {
            let what = key_fault(&error);
            format!(
                "{} and {} cannot be used: {what}; the key must be that of the first certificate",
                cert.display(),
                key.path.display()
            )
        })?;
        Ok(Current { client, server, expires, stamp, shown })
    }
}

/// The configurations for accepting and for dialling.
fn configs(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    roots: RootCertStore,
) -> Result<(Arc<ClientConfig>, Arc<ServerConfig>, Shown), rustls::Error> {
    let (provider, roots) = (Arc::new(rustls::crypto::ring::default_provider()), Arc::new(roots));
    let versions = &[&rustls::version::TLS13];
    let verifier = Arc::new(ChainVerifier::new(&provider, Arc::clone(&roots)));
    let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&verifier) as Arc<dyn ServerCertVerifier>)
        .with_client_auth_cert(chain.clone(), key.clone_key())?;
    client.resumption = Resumption::disabled();
    let dialled = verifier;
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
        .build()
        .map_err(|error| rustls::Error::General(error.to_string()))?;
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)?
        .with_client_cert_verifier(Arc::clone(&verifier))
        .with_single_cert(chain.clone(), key)?;
    // The accepting side sends nothing after the handshake and the answer.
    server.send_tls13_tickets = 0;
    server.session_storage = Arc::new(NoServerSessionStorage {});
    Ok((Arc::new(client), Arc::new(server), Shown { chain, dialled, dials: verifier }))
}

/// The certificates that other servers receive, and how they judge them if they trust the same authorities.
#[derive(Clone, Debug)]
struct Shown {
    chain: Vec<CertificateDer<'static>>,
    dialled: Arc<ChainVerifier>,
    dials: Arc<dyn ClientCertVerifier>,
}

impl Shown {
    /// Why servers that dial this one, or that it dials, would refuse it. The peer that it is for is not checked.
    fn fault(&self) -> Option<rustls::Error> {
        let (first, between) = self.chain.split_first()?;
        let now = UnixTime::now();
        let dialled = self.dialled.verify(first, between, now);
        dialled.and_then(|()| self.dials.verify_client_cert(first, between, now).map(drop)).err()
    }
}

fn is_of_dates(error: &rustls::Error) -> bool {
    use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    matches!(
        error,
        rustls::Error::InvalidCertificate(Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. })
    )
}

/// Whether the certificate that the other side has proven is for this peer.
///
/// # Errors
/// The fault of the certificate, and the remedy.
pub(crate) fn is_for(connection: &Connection, peer: &PeerAddress) -> Result<(), String> {
    is_certificate_for(connection.peer_certificates().and_then(<[_]>::first), peer)
}

fn is_certificate_for(certificate: Option<&CertificateDer<'_>>, peer: &PeerAddress) -> Result<(), String> {
    let id = format!("server-{}", peer.id.0);
    let parsed = certificate.and_then(|certificate| ParsedCertificate::try_from(certificate).ok());
    let Some(parsed) = parsed else { return Err("it presents no certificate that can be read".to_owned()) };
    let is_for = |name: &str| ServerName::try_from(name).is_ok_and(|name| verify_server_name(&parsed, &name).is_ok());
    if is_for(&peer.host) || is_for(&id) {
        return Ok(());
    }
    let found = certificate.map(|certificate| names(certificate)).unwrap_or_default();
    let found = if found.is_empty() { "nothing".to_owned() } else { found.join(", ") };
    Err(format!(
        "its certificate is neither for {:?}, the host that server {} is configured with, nor for {id:?}, but for {found}; give \
         it one with such an alternative name (SAN), or correct the list of servers",
        peer.host, peer.id.0
    ))
}

/// The host names and IP addresses among a certificate's alternative names, as a message shows them: the first
/// `NAMES_SHOWN_MAX`, escaped.
fn names(certificate: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return Vec::new() };
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return Vec::new() };
    let shown = names.value.general_names.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(format!("{name:?}")),
        GeneralName::IPAddress(bytes) => {
            let address = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let address = address.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
            address.ok().map(|address| format!("\"{address}\""))
        }
        _ => None,
    });
    shown.take(NAMES_SHOWN_MAX).collect()
}

/// The words for an error of a connection, if it is one of TLS.
pub(crate) fn sentence(error: &io::Error) -> Option<String> {
    error.get_ref()?.downcast_ref::<rustls::Error>().map(words)
}

fn words(error: &rustls::Error) -> String {
    use AlertDescription as Alert;
    use rustls::Error;
    const TRUSTED: &str = "name the authority that signed the certificates of all servers in ensemble.tls_ca";
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            format!("its certificate is not signed by an authority this server trusts; {TRUSTED}")
        }
        Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            format!("its certificate has expired ({error}); renew it, or correct the clocks")
        }
        Error::InvalidCertificate(CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }) => {
            format!("its certificate is not valid yet ({error}); correct the clocks")
        }
        Error::InvalidCertificate(
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. },
        ) => format!(
            "its certificate is not for this use ({error}); give servers certificates for serverAuth and clientAuth"
        ),
        Error::NoCertificatesPresented | Error::AlertReceived(Alert::CertificateRequired) => {
            "a certificate is demanded of both sides, and one has none; set ensemble.tls_cert on all servers".to_owned()
        }
        Error::AlertReceived(Alert::UnknownCA | Alert::DecryptError) => {
            format!("it does not trust the authority that signed this server's certificate; {TRUSTED}")
        }
        Error::AlertReceived(Alert::CertificateExpired) => {
            "it finds this server's certificate expired; renew it, or correct the clocks".to_owned()
        }
        Error::AlertReceived(Alert::BadCertificate | Alert::CertificateUnknown | Alert::UnsupportedCertificate) => {
            format!("it refuses this server's certificate ({error}); its log says why")
        }
        Error::InvalidMessage(_) => {
            "it does not speak TLS, and this server does; set [ensemble] tls_cert, tls_key and tls_ca on all servers"
                .to_owned()
        }
        Error::InvalidCertificate(CertificateError::Other(other))
            if format!("{other:?}").contains("CaUsedAsEndEntity") =>
        {
            "its certificate is that of an authority; give servers certificates that an authority signed (CA:FALSE)"
                .to_owned()
        }
        Error::InvalidCertificate(reason) => {
            format!(
                "its certificate is not accepted ({reason}); make it as the documentation shows, or as the others' were"
            )
        }
        _ => format!("TLS failed: {error}"),
    }
}

/// Checks that a server's certificate comes from the authorities. `is_for` checks its peer, on both sides alike.
#[derive(Debug)]
struct ChainVerifier {
    roots: Arc<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ChainVerifier {
    fn new(provider: &CryptoProvider, roots: Arc<RootCertStore>) -> ChainVerifier {
        ChainVerifier { roots, algorithms: provider.signature_verification_algorithms }
    }

    fn verify(
        &self,
        first: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        let certificate = ParsedCertificate::try_from(first)?;
        verify_server_cert_signed_by_trust_anchor(&certificate, &self.roots, between, now, self.algorithms.all)
    }
}

impl ServerCertVerifier for ChainVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verify(end_entity, intermediates, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is not spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::tls::not_after;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    #[test]
    fn the_end_of_certificates() {
        for (year, month, day, expect) in [
            (1970, 1, 1, 0),
            (2000, 2, 29, 951_782_400),
            (2021, 1, 1, 1_609_459_200),
            (2049, 12, 31, 2_524_521_600),
            (2050, 1, 1, 2_524_608_000),
            (2096, 2, 29, 3_981_312_000),
        ] {
            let mut params = CertificateParams::new(vec!["a.example".to_owned()]).expect("the name is legal");
            params.not_after = date_time_ymd(year, month, day);
            let key = KeyPair::generate().expect("there is randomness");
            let certificate = params.self_signed(&key).expect("it can be signed");
            assert_eq!(not_after(certificate.der()), Some(expect), "{year}");
            for end in 0..certificate.der().len() {
                // Wherever it is truncated: nothing, or the same.
                assert!(not_after(&certificate.der()[..end]).is_none_or(|found| found == expect));
            }
        }
    }

    #[test]
    fn the_names_of_a_certificate_are_shown() {
        let shown = |given: &[&str]| {
            let given: Vec<String> = given.iter().map(|&name| name.to_owned()).collect();
            let params = CertificateParams::new(given).expect("the names are legal");
            let certificate = params.self_signed(&KeyPair::generate().expect("there is randomness"));
            names(certificate.expect("it can be signed").der()).join(", ")
        };
        assert_eq!(shown(&["a.example", "10.0.0.9", "::1"]), "\"a.example\", \"10.0.0.9\", \"::1\"");
        assert_eq!(shown(&[]), "");
        assert_eq!(shown(&["a"; 20]).matches('a').count(), NAMES_SHOWN_MAX);
        assert!(names(b"no certificate").is_empty());
    }
}
