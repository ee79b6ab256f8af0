//! Compression and encryption around an envelope.

use std::io::{self, BufReader, Read, Write};

use age::stream::StreamWriter;
use age::{Decryptor, Encryptor, Identity, IdentityFile, NoCallbacks, Recipient, x25519};

use crate::error::BackupError;

const AGE_MAGIC: &[u8] = b"age-encryption.org/";
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// The default of zstd: a good ratio at several hundred MiB a second.
const LEVEL: i32 = 3;

/// A key for which a backup is encrypted, `age1...`.
pub type PublicKey = x25519::Recipient;
/// Keys that decrypt.
pub type Keys = Vec<Box<dyn Identity>>;

/// Reads the keys in a file that `age-keygen` wrote.
///
/// # Errors
/// If the file cannot be read, or holds none.
pub fn read_keys(from: impl io::BufRead) -> Result<Keys, String> {
    let keys = IdentityFile::from_buffer(from).map_err(|error| error.to_string())?;
    let keys = keys.with_callbacks(NoCallbacks).into_identities().map_err(|error| error.to_string())?;
    if keys.is_empty() { Err("it holds no key; age-keygen makes one".to_owned()) } else { Ok(keys) }
}

/// Compresses what is written, and encrypts it if there are keys.
pub struct Packer<W: Write>(zstd::Encoder<'static, Sink<W>>);

enum Sink<W: Write> {
    Plain(W),
    Encrypted(StreamWriter<W>),
}

impl<W: Write> Packer<W> {
    /// Begins. Each of the keys alone decrypts it.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn new(to: W, keys: &[PublicKey]) -> io::Result<Packer<W>> {
        let sink = if keys.is_empty() {
            Sink::Plain(to)
        } else {
            let keys = keys.iter().map(|key| -> &dyn Recipient { key });
            Sink::Encrypted(Encryptor::with_recipients(keys).map_err(io::Error::other)?.wrap_output(to)?)
        };
        let mut encoder = zstd::Encoder::new(sink, LEVEL)?;
        encoder.include_checksum(true)?;
        Ok(Packer(encoder))
    }

    /// Writes the end.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn finish(self) -> io::Result<W> {
        match self.0.finish()? {
            Sink::Plain(to) => Ok(to),
            Sink::Encrypted(to) => to.finish(),
        }
    }
}

impl<W: Write> Write for Packer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl<W: Write> Write for Sink<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Sink::Plain(to) => to.write(bytes),
            Sink::Encrypted(to) => to.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Sink::Plain(to) => to.flush(),
            Sink::Encrypted(to) => to.flush(),
        }
    }
}

/// Decrypts and decompresses, as far as that is needed.
///
/// # Errors
/// If it is encrypted and no key fits, or it cannot be read.
pub fn unpack<'r>(from: impl Read + 'r, keys: &Keys) -> Result<Box<dyn Read + 'r>, BackupError> {
    let (begin, from) = peek(from, AGE_MAGIC.len()).map_err(BackupError::Io)?;
    if begin != AGE_MAGIC {
        return decompress(from);
    }
    if keys.is_empty() {
        return Err(BackupError::Encrypted);
    }
    let decryptor = Decryptor::new(from).map_err(|error| BackupError::Damaged(error.to_string()))?;
    let decrypted = decryptor.decrypt(keys.iter().map(|key| &**key));
    decompress(decrypted.map_err(|error| BackupError::OtherKey(error.to_string()))?)
}

fn decompress<'r>(from: impl Read + 'r) -> Result<Box<dyn Read + 'r>, BackupError> {
    let (begin, from) = peek(from, ZSTD_MAGIC.len()).map_err(|error| BackupError::Damaged(error.to_string()))?;
    if begin != ZSTD_MAGIC {
        return Ok(Box::new(from));
    }
    Ok(Box::new(zstd::Decoder::with_buffer(BufReader::new(from)).map_err(BackupError::Io)?))
}

/// The first bytes, and the reader as if they had not been read.
fn peek(mut from: impl Read, count: usize) -> io::Result<(Vec<u8>, impl Read)> {
    let mut begin = Vec::new();
    from.by_ref().take(count as u64).read_to_end(&mut begin)?;
    Ok((begin.clone(), io::Cursor::new(begin).chain(from)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::{self, Content, Head};

    const BODY: &[u8] = &[7; 400];
    const HEAD: Head = Head {
        content: Content::Entries,
        server: 3,
        index: 70,
        term: 4,
        crc: 8,
        salt: 9,
        zxid: 1 << 33,
        time_ms: 5,
        bytes: BODY.len() as u64,
    };

    fn made(keys: &[PublicKey]) -> Vec<u8> {
        let mut packer = Packer::new(Vec::new(), keys).expect("it begins");
        envelope::write(&HEAD, BODY, &mut packer).expect("it is written");
        packer.finish().expect("it ends")
    }

    fn read(bytes: &[u8], keys: &Keys) -> Result<(Head, Vec<u8>), BackupError> {
        let mut body = Vec::new();
        let mut take = |_: &Head, piece: &[u8]| {
            body.extend_from_slice(piece);
            Ok(())
        };
        let head = envelope::read(unpack(bytes, keys)?, &mut take)?;
        Ok((head, body))
    }

    #[test]
    fn what_was_packed_comes_back_and_damage_never_does() {
        let key = x25519::Identity::generate();
        let keys: Keys = vec![Box::new(key.clone())];
        let mut plain = Vec::new();
        envelope::write(&HEAD, BODY, &mut plain).expect("it is written");
        let compressed = made(&[]);
        for whole in [plain, compressed.clone(), made(&[x25519::Identity::generate().to_public(), key.to_public()])] {
            assert_eq!(read(&whole, &keys).expect("it is whole"), (HEAD, BODY.to_vec()));
            for end in 0..whole.len() {
                assert!(read(&whole[..end], &keys).is_err(), "cut at {end}");
            }
            for at in 0..whole.len() {
                let mut damaged = whole.clone();
                damaged[at] ^= 0x10;
                let found = read(&damaged, &keys);
                assert!(found.as_ref().map_or(true, |found| *found == (HEAD, BODY.to_vec())), "at {at}: {found:?}");
            }
            assert!(read(&[&whole[..], b"x"].concat(), &keys).is_err(), "a byte too many");
        }
        assert!(matches!(
            read(b"something else, which is longer than a head of a backup, and not a backup", &keys),
            Err(BackupError::Foreign)
        ));
        let encrypted = made(&[key.to_public()]);
        assert!(matches!(read(&encrypted, &Keys::new()), Err(BackupError::Encrypted)));
        let other: Keys = vec![Box::new(x25519::Identity::generate())];
        assert!(matches!(read(&encrypted, &other), Err(BackupError::OtherKey(_))));
        assert!(compressed.len() < BODY.len() + envelope::HEAD_BYTES);
    }
}
