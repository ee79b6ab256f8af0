//! Java's own key store format, JKS: certificates, and keys that are hidden by a password.
//!
//! Pure. The format is that of `sun.security.provider.JavaKeyStore` and `KeyProtector`. Nothing is allocated by a length that the file
//! states and does not have.

use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sha1::{Digest as _, Sha1};

/// First bytes of a store.
pub(super) const MAGIC: [u8; 4] = [0xfe, 0xed, 0xfe, 0xed];
const DIGEST_BYTES: usize = 20;
/// Text between password and store in the digest of a store.
const WHITENER: &[u8] = b"Mighty Aphrodite";

/// Why a store is not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("it is damaged or not complete")]
    Damaged,
    #[error("the password is wrong, or the file is damaged")]
    Password,
    #[error("it has version {0}")]
    Version(u32),
}

/// Content of a store.
#[derive(Debug, Default)]
pub(super) struct Entries {
    /// Each key with its certificates, those of the subject first.
    pub(super) keys: Vec<(PrivateKeyDer<'static>, Vec<CertificateDer<'static>>)>,
    pub(super) trusted: Vec<CertificateDer<'static>>,
}

/// Reads a whole store. The keys have the password of the store.
///
/// # Errors
/// When the password is wrong or the bytes are not a store.
pub(super) fn read(bytes: &[u8], password: &str) -> Result<Entries, Unreadable> {
    let password: Vec<u8> = password.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let (store, digest) = bytes.split_last_chunk::<DIGEST_BYTES>().ok_or(Unreadable::Damaged)?;
    let found = Sha1::new().chain_update(&password).chain_update(WHITENER).chain_update(store).finalize();
    if found[..] != digest[..] {
        return Err(Unreadable::Password);
    }
    let mut rest = store.strip_prefix(&MAGIC).ok_or(Unreadable::Damaged)?;
    let version = number(&mut rest)?;
    if !matches!(version, 1 | 2) {
        return Err(Unreadable::Version(version));
    }
    let mut entries = Entries::default();
    for _ in 0..number(&mut rest)? {
        let tag = number(&mut rest)?;
        text(&mut rest)?;
        let _created = take(&mut rest, 8)?;
        match tag {
            1 => {
                let length = number(&mut rest)? as usize;
                let key = reveal(take(&mut rest, length)?, &password)?;
                let chain: Result<Vec<_>, _> =
                    (0..number(&mut rest)?).map(|_| certificate(&mut rest, version)).collect();
                entries.keys.push((PrivatePkcs8KeyDer::from(key).into(), chain?));
            }
            2 => entries.trusted.push(certificate(&mut rest, version)?),
            _ => return Err(Unreadable::Damaged),
        }
    }
    if rest.is_empty() { Ok(entries) } else { Err(Unreadable::Damaged) }
}

fn take<'b>(rest: &mut &'b [u8], count: usize) -> Result<&'b [u8], Unreadable> {
    rest.split_off(..count).ok_or(Unreadable::Damaged)
}

fn number(rest: &mut &[u8]) -> Result<u32, Unreadable> {
    let bytes = take(rest, 4)?;
    bytes.first_chunk().map(|bytes| u32::from_be_bytes(*bytes)).ok_or(Unreadable::Damaged)
}

fn text<'b>(rest: &mut &'b [u8]) -> Result<&'b [u8], Unreadable> {
    let length = take(rest, 2)?;
    take(rest, usize::from(length[0]) << 8 | usize::from(length[1]))
}

fn certificate(rest: &mut &[u8], version: u32) -> Result<CertificateDer<'static>, Unreadable> {
    if version == 2 {
        text(rest)?;
    }
    let length = number(rest)? as usize;
    Ok(CertificateDer::from(take(rest, length)?.to_vec()))
}

/// The PKCS#8 key in an `EncryptedPrivateKeyInfo`: salt, the key under a stream of SHA-1, and a digest of the key.
fn reveal(sealed: &[u8], password: &[u8]) -> Result<Vec<u8>, Unreadable> {
    let outer = content(&mut { sealed }, 0x30)?;
    let mut inner = outer;
    content(&mut inner, 0x30)?;
    let sealed = content(&mut inner, 0x04)?;
    let (salt, rest) = sealed.split_first_chunk::<DIGEST_BYTES>().ok_or(Unreadable::Damaged)?;
    let (hidden, digest) = rest.split_last_chunk::<DIGEST_BYTES>().ok_or(Unreadable::Damaged)?;
    let mut stream = *salt;
    let mut key = Vec::with_capacity(hidden.len());
    for block in hidden.chunks(DIGEST_BYTES) {
        stream = Sha1::new().chain_update(password).chain_update(stream).finalize().into();
        key.extend(block.iter().zip(stream).map(|(byte, mask)| byte ^ mask));
    }
    let found = Sha1::new().chain_update(password).chain_update(&key).finalize();
    if found[..] == digest[..] { Ok(key) } else { Err(Unreadable::Password) }
}

/// The content of a DER value of this tag, which is taken off the front.
fn content<'b>(rest: &mut &'b [u8], tag: u8) -> Result<&'b [u8], Unreadable> {
    let head = take(rest, 2)?;
    if head[0] != tag {
        return Err(Unreadable::Damaged);
    }
    let short = usize::from(head[1]);
    let length = match short {
        ..=0x7f => short,
        long @ 0x81..=0x83 => take(rest, long - 0x80)?.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)),
        _ => return Err(Unreadable::Damaged),
    };
    take(rest, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWORD: &str = "secret";

    fn sealed(mut store: Vec<u8>) -> Vec<u8> {
        let password: Vec<u8> = PASSWORD.encode_utf16().flat_map(u16::to_be_bytes).collect();
        let digest = Sha1::new().chain_update(password).chain_update(WHITENER).chain_update(&store).finalize();
        store.extend_from_slice(&digest);
        store
    }

    /// Version 2: an invalid key with one certificate, and a trusted certificate.
    fn store() -> Vec<u8> {
        let mut store = MAGIC.to_vec();
        store.extend([0, 0, 0, 2, 0, 0, 0, 2]);
        store.extend([0, 0, 0, 1, 0, 1, b'k', 0, 0, 0, 0, 0, 0, 0, 0]);
        // SEQUENCE { SEQUENCE {}, OCTET STRING of salt, three bytes, and their digest }.
        let key: Vec<u8> = [&[0x30, 47, 0x30, 0, 0x04, 43][..], &[7; 43]].concat();
        store.extend([0, 0, 0, 49]);
        store.extend(key);
        let certificate = [0, 0, 0, 1, 0, 5, b'X', b'.', b'5', b'0', b'9', 0, 0, 0, 2, 0x30, 0];
        store.extend(certificate);
        store.extend([0, 0, 0, 2, 0, 1, b't', 0, 0, 0, 0, 0, 0, 0, 0]);
        store.extend(&certificate[4..]);
        store
    }

    #[test]
    fn no_byte_of_a_store_is_trusted() {
        assert!(matches!(read(&sealed(store()), "other"), Err(Unreadable::Password)));
        // The digest of the key is wrong: all before it was read.
        assert!(matches!(read(&sealed(store()), PASSWORD), Err(Unreadable::Password)));
        for at in 0..store().len() {
            assert!(read(&sealed(store()[..at].to_vec()), PASSWORD).is_err());
            for byte in [0, 0x7f, 0x80, 0xff] {
                let mut changed = store();
                changed[at] = byte;
                assert!(read(&sealed(changed), PASSWORD).is_err());
            }
        }
    }
}
