//! Key stores and trust stores: PEM, PKCS#12 and JKS files. The content tells the format, not the name of the file.
//!
//! Any thread that may block. It judges no certificate.

use std::fmt;
use std::path::{Path, PathBuf};

use p12_keystore::Pkcs12Archive;
use pkcs8::{EncryptedPrivateKeyInfoRef, SecretDocument};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use x509_parser::prelude::FromDer as _;
use x509_parser::revocation_list::CertificateRevocationList;

use super::jks;
use crate::config::file::read_regular;

/// Largest files that are read, bytes.
const STORE_BYTES_MAX: u64 = 1 << 20;
const CRL_BYTES_MAX: u64 = 32 << 20;
const PASSWORD_FILE_BYTES_MAX: u64 = 4096;
/// Certificates in one file at most.
const CERTIFICATES_MAX: usize = 1000;

/// A certificate with those between it and its authority, and its key.
pub(crate) struct KeyAndChain {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

/// A key store or trust store as it is configured.
#[derive(Clone, Default)]
pub(crate) struct Store {
    pub(crate) path: PathBuf,
    pub(crate) password: String,
    /// Its content is the password, if it is not empty.
    pub(crate) password_file: PathBuf,
}

impl Store {
    /// A store as it is configured.
    pub(crate) fn new(path: &Path, password: &str, password_file: &Path) -> Store {
        Store { path: path.to_owned(), password: password.to_owned(), password_file: password_file.to_owned() }
    }

    /// The password, from the file if one is named. A line end behind it does not count, as in ZooKeeper.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn password(&self) -> Result<String, String> {
        if self.password_file.as_os_str().is_empty() {
            return Ok(self.password.clone());
        }
        let path = &self.password_file;
        let bytes = read_regular(path, PASSWORD_FILE_BYTES_MAX)
            .map_err(|cause| format!("{} {cause}; name a readable file with the password", path.display()))?;
        let text = String::from_utf8(bytes)
            .map_err(|_| format!("{}: the password is no UTF-8; correct it", path.display()))?;
        Ok(text.strip_suffix('\n').map_or(&*text, |text| text.strip_suffix('\r').unwrap_or(text)).to_owned())
    }
}

enum Format {
    Pem,
    Pkcs12,
    Jks,
}

/// Reads the key and its certificates.
///
/// # Errors
/// A sentence that names the file, the cause and the remedy.
pub(crate) fn read_key_store(path: &Path, password: &str) -> Result<KeyAndChain, String> {
    let bytes = read(path, STORE_BYTES_MAX)?;
    let none = || format!("{}: no private key is in it; name the file that holds the key", path.display());
    let found = match format(path, &bytes)? {
        Format::Pem => return pem_key_store((path, &bytes), (path, &bytes), password),
        Format::Jks => jks_entries(path, &bytes, password)?.keys.into_iter().next(),
        Format::Pkcs12 => pkcs12_key(path, &bytes, password)?,
    };
    let (key, chain) = found.ok_or_else(none)?;
    if chain.is_empty() {
        return Err(no_certificate(path));
    }
    Ok(KeyAndChain { chain, key })
}

/// Reads a key and its certificates that are in two files, which may be one.
///
/// # Errors
/// As [`read_key_store`].
pub(crate) fn read_pair(cert: &Path, key: &Path, password: &str) -> Result<KeyAndChain, String> {
    if cert == key {
        return read_key_store(cert, password);
    }
    let (certificates, keys) = (read(cert, STORE_BYTES_MAX)?, read(key, STORE_BYTES_MAX)?);
    match (format(cert, &certificates)?, format(key, &keys)?) {
        (Format::Pem, Format::Pem) => pem_key_store((cert, &certificates), (key, &keys), password),
        _ => Err(format!(
            "{} and {}: a PKCS#12 or JKS file holds the key and its certificates; name the same file twice",
            cert.display(),
            key.display()
        )),
    }
}

/// Reads the certificates of authorities. At least one is there.
///
/// # Errors
/// As [`read_key_store`].
pub(crate) fn read_trust_store(path: &Path, password: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = read(path, STORE_BYTES_MAX)?;
    let found = match format(path, &bytes)? {
        Format::Pem => pem_certificates(path, &bytes)?,
        Format::Jks => {
            let entries = jks_entries(path, &bytes, password)?;
            let of_keys = entries.keys.into_iter().filter_map(|(_, chain)| chain.into_iter().next());
            entries.trusted.into_iter().chain(of_keys).collect()
        }
        Format::Pkcs12 => {
            // As Java: certificates that the store says to be trusted, not whatever came with a key.
            let trusted = pkcs12(path, &bytes, password)?.certs.into_iter().filter(|bag| bag.trusted);
            let found: Vec<_> = trusted.map(|bag| CertificateDer::from(bag.cert.as_der().to_vec())).collect();
            if found.is_empty() {
                return Err(format!(
                    "{path}: no trusted certificate is in it; add the authority: keytool -importcert -keystore {path} -file CA.pem",
                    path = path.display()
                ));
            }
            found
        }
    };
    if found.is_empty() { Err(no_certificate(path)) } else { Ok(found) }
}

/// Certificate revocation lists of a file, the newest first.
pub(crate) struct RevocationLists {
    pub(crate) lists: Vec<CertificateRevocationListDer<'static>>,
    /// When the first of them expires, Unix seconds. `None`: never.
    pub(crate) expires: Option<i64>,
}

/// Reads certificate revocation lists: PEM, or one in DER. Of an authority with several lists the first counts, which is the newest.
///
/// # Errors
/// As [`read_key_store`].
pub(crate) fn read_crls(path: &Path) -> Result<RevocationLists, String> {
    let none = || format!("{}: no revocation list is in it; name a PEM or DER file of X509 CRL", path.display());
    let bytes = read(path, CRL_BYTES_MAX)?;
    let found: Vec<CertificateRevocationListDer<'static>> = match bytes.first() {
        Some(0x30) => vec![CertificateRevocationListDer::from(bytes)],
        _ => CertificateRevocationListDer::pem_slice_iter(&bytes)
            .take(CERTIFICATES_MAX)
            .collect::<Result<_, _>>()
            .map_err(|_| none())?,
    };
    let mut dated = Vec::new();
    for list in found {
        let (_, parsed) = CertificateRevocationList::from_der(&list).map_err(|_| none())?;
        let made = (parsed.last_update().timestamp(), parsed.crl_number().cloned());
        let (issuer, expires) = (parsed.issuer().to_string(), parsed.next_update().map(|time| time.timestamp()));
        dated.push((made, issuer, expires, list));
    }
    dated.sort_by(|(one, ..), (other, ..)| other.cmp(one));
    let is_newest = |at: usize| dated[..at].iter().all(|(_, newer, ..)| *newer != dated[at].1);
    let expires = (0..dated.len()).filter(|at| is_newest(*at)).filter_map(|at| dated[at].2).min();
    let lists: Vec<_> = dated.into_iter().map(|(.., list)| list).collect();
    if lists.is_empty() { Err(none()) } else { Ok(RevocationLists { lists, expires }) }
}

fn no_certificate(path: &Path) -> String {
    format!("{}: no certificate is in it; name a PEM, PKCS#12 or JKS file", path.display())
}

fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, String> {
    let bytes = read_regular(path, bytes_max)
        .map_err(|cause| format!("{} {cause}; name a readable key store or PEM file", path.display()))?;
    if bytes.is_empty() {
        return Err(format!("{} is empty; name a key store or a PEM file", path.display()));
    }
    Ok(bytes)
}

fn format(path: &Path, bytes: &[u8]) -> Result<Format, String> {
    if bytes.starts_with(&jks::MAGIC) {
        Ok(Format::Jks)
    } else if bytes.first() == Some(&0x30) {
        Ok(Format::Pkcs12)
    } else if std::str::from_utf8(bytes).is_ok() {
        Ok(Format::Pem)
    } else {
        // JCEKS, BCFKS and others that Java alone reads.
        Err(unreadable(path, &"its format is not PEM, PKCS#12 or JKS"))
    }
}

const NO_PASSWORD: &str = "no password is given (the keys end in _password and _password_file, those of a zoo.cfg in .password and \
                           .passwordPath)";

/// With the command that converts any store of Java to PKCS#12.
fn unreadable(path: &Path, why: &dyn fmt::Display) -> String {
    let path = path.display();
    format!(
        "{path} cannot be read as a key store: {why}; check the password, or convert it: \
         keytool -importkeystore -srckeystore {path} -destkeystore NEW.p12 -deststoretype PKCS12"
    )
}

fn jks_entries(path: &Path, bytes: &[u8], password: &str) -> Result<jks::Entries, String> {
    jks::read(bytes, password).map_err(|error| match password {
        "" => unreadable(path, &NO_PASSWORD),
        _ => unreadable(path, &error),
    })
}

fn pkcs12(path: &Path, bytes: &[u8], password: &str) -> Result<Pkcs12Archive, String> {
    Pkcs12Archive::from_pkcs12(bytes, password).map_err(|error| match (password, error) {
        ("", _) => unreadable(path, &NO_PASSWORD),
        (_, p12_keystore::error::Error::MacError(_)) => unreadable(path, &"the password is wrong"),
        (_, error) => unreadable(path, &error),
    })
}

type Found = Option<(PrivateKeyDer<'static>, Vec<CertificateDer<'static>>)>;

/// The first key, its certificate, and that one's issuers as far as they are in the file.
fn pkcs12_key(path: &Path, bytes: &[u8], password: &str) -> Result<Found, String> {
    let archive = pkcs12(path, bytes, password)?;
    let Some(key) = archive.keys.into_iter().next() else { return Ok(None) };
    let certs: Vec<_> = archive.certs.iter().collect();
    let of_key = certs.iter().find(|bag| {
        bag.local_key_id.is_some() && bag.local_key_id.as_ref() == key.local_key_id.as_ref().map(|id| &id.0)
    });
    let mut chain = Vec::new();
    let mut next = of_key.or(certs.first()).map(|bag| &bag.cert);
    while let Some(cert) = next.filter(|cert| !chain.contains(cert) && chain.len() < CERTIFICATES_MAX) {
        chain.push(cert);
        next = certs.iter().map(|bag| &bag.cert).find(|other| other.subject() == cert.issuer());
    }
    let chain = chain.into_iter().map(|cert| CertificateDer::from(cert.as_der().to_vec())).collect();
    Ok(Some((PrivatePkcs8KeyDer::from(key.key.as_der().to_vec()).into(), chain)))
}

fn pem_certificates(path: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).take(CERTIFICATES_MAX).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(no_certificate(path)),
        Err(error) => {
            Err(format!("{}: it cannot be read as PEM: {}; name a PEM file", path.display(), pem_fault(&error)))
        }
    }
}

/// The library shows the text of a missing end as numbers.
fn pem_fault(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a section has no END line".to_owned(),
        error => error.to_string(),
    }
}

type PemFile<'f> = (&'f Path, &'f [u8]);

fn pem_key_store(certs: PemFile<'_>, keys: PemFile<'_>, password: &str) -> Result<KeyAndChain, String> {
    Ok(KeyAndChain { chain: pem_certificates(certs.0, certs.1)?, key: pem_key(keys.0, keys.1, password)? })
}

fn pem_key(path: &Path, text: &[u8], password: &str) -> Result<PrivateKeyDer<'static>, String> {
    const BEGIN: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----";
    const END: &str = "-----END ENCRYPTED PRIVATE KEY-----";
    let text_of_key = String::from_utf8_lossy(text);
    let sealed = text_of_key.find(BEGIN).map(|from| &text_of_key[from..]);
    let Some(sealed) = sealed.and_then(|rest| rest.find(END).map(|end| &rest[..end + END.len()])) else {
        if text_of_key.contains("Proc-Type: 4,ENCRYPTED") {
            let path = path.display();
            return Err(format!(
                "{path}: the key is encrypted in OpenSSL's traditional form, which is not read; convert it: openssl pkcs8 -topk8 -in {path} -out NEW.pem"
            ));
        }
        return PrivateKeyDer::from_pem_slice(text).map_err(|error| {
            format!("{}: no private key is in it: {}; name a PEM file with the key", path.display(), pem_fault(&error))
        });
    };
    if password.is_empty() {
        return Err(format!("{}: the key is encrypted, and {NO_PASSWORD}", path.display()));
    }
    let refused = |why: &dyn fmt::Display| {
        format!(
            "{path}: the key cannot be decrypted: {why}; check the password, or decrypt it: openssl pkey -in {path} -out NEW.pem",
            path = path.display()
        )
    };
    let (_, document) = SecretDocument::from_pem(sealed).map_err(|error| refused(&error))?;
    let info = EncryptedPrivateKeyInfoRef::try_from(document.as_bytes()).map_err(|error| refused(&error))?;
    let key = info.decrypt(password).map_err(|error| refused(&error))?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}
