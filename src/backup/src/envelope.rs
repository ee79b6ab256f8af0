//! The envelope of a snapshot: a head, the bytes of the snapshot file, and their SHA-256.
//!
//! The head has 72 bytes, little endian. It begins with `CORRALBK`, version u32 and server u32. Index, term and zxid follow, each u64.
//! Then come the time as i64, bytes of the body as u64, kind, CRC and salt as u32, and the CRC-32C of all that. The time is in milliseconds since 1970. The SHA-256 covers head and body.

use std::io::{self, Read, Write};

use sha2::{Digest as _, Sha256};

use crate::entries::Place;
use crate::error::BackupError;

/// Version of the format.
pub const VERSION: u32 = 1;
/// Bytes of a head.
pub const HEAD_BYTES: usize = 72;
/// Bytes behind the body.
const HASH_BYTES: usize = 32;
const MAGIC: [u8; 8] = *b"CORRALBK";
/// Kinds of a body.
const SNAPSHOT: u32 = 0;
const ENTRIES: u32 = 1;
/// Bytes that are read at once.
const PIECE_BYTES: usize = 256 << 10;

/// Kind of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A snapshot file: the state of one zxid.
    Snapshot,
    /// [Entries](crate::entries) of the log.
    Entries,
}

/// Origin and size of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Kind of the body.
    pub content: Content,
    /// Id of the server that made it.
    pub server: u8,
    /// Log index of the state, or of the last entry.
    pub index: u64,
    /// Log term of the state, or of the last entry.
    pub term: u64,
    /// CRC-32C of the payload of the log entry with this index. 0 if that is unknown.
    pub crc: u32,
    /// A number that distinguishes the log from that of any other server or history. 0 if that is unknown.
    pub salt: u32,
    /// The state has every transaction up to this one, and none after it. Of entries it is 0.
    pub zxid: u64,
    /// When it was made, in milliseconds since 1970, by the server's clock.
    pub time_ms: i64,
    /// Bytes of the body.
    pub bytes: u64,
}

impl Head {
    /// The log entry with which the state or the entries end.
    #[must_use]
    pub fn place(&self) -> Place {
        Place { index: self.index, term: self.term, crc: self.crc }
    }

    /// Bytes of the whole envelope.
    #[must_use]
    pub fn envelope_bytes(&self) -> u64 {
        self.bytes.saturating_add((HEAD_BYTES + HASH_BYTES) as u64)
    }

    fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = Vec::with_capacity(HEAD_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(u32::from(self.server).to_le_bytes());
        for number in [self.index, self.term, self.zxid, self.time_ms.cast_unsigned(), self.bytes] {
            bytes.extend(number.to_le_bytes());
        }
        let kind = match self.content {
            Content::Snapshot => SNAPSHOT,
            Content::Entries => ENTRIES,
        };
        for number in [kind, self.crc, self.salt] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        bytes.try_into().unwrap_or([0; HEAD_BYTES])
    }

    fn decode(bytes: &[u8; HEAD_BYTES]) -> Result<Head, BackupError> {
        let u32_at = |at: usize| u32::from_le_bytes(array(bytes, at));
        let u64_at = |at: usize| u64::from_le_bytes(array(bytes, at));
        if array(bytes, 0) != MAGIC {
            return Err(BackupError::Foreign);
        }
        let damaged = || BackupError::Damaged("its head does not match its checksum".to_owned());
        if u32_at(HEAD_BYTES - 4) != crc32c::crc32c(&bytes[..HEAD_BYTES - 4]) {
            return Err(damaged());
        }
        if u32_at(8) != VERSION {
            return Err(BackupError::Version(u32_at(8)));
        }
        let content = match u32_at(56) {
            SNAPSHOT => Content::Snapshot,
            ENTRIES => Content::Entries,
            _ => return Err(damaged()),
        };
        Ok(Head {
            content,
            server: u8::try_from(u32_at(12)).map_err(|_| damaged())?,
            index: u64_at(16),
            term: u64_at(24),
            crc: u32_at(60),
            salt: u32_at(64),
            zxid: u64_at(32),
            time_ms: u64_at(40).cast_signed(),
            bytes: u64_at(48),
        })
    }
}

fn array<const N: usize>(bytes: &[u8; HEAD_BYTES], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

/// Writes the envelope of a body.
///
/// # Errors
/// Those of the writer.
pub fn write(head: &Head, body: &[u8], to: impl Write) -> io::Result<()> {
    debug_assert_eq!(head.bytes, body.len() as u64);
    let mut envelope = Envelope::begin(head, to)?;
    body.chunks(PIECE_BYTES).try_for_each(|piece| envelope.write(piece))?;
    envelope.finish().map(drop)
}

/// An envelope that is written piece by piece.
pub struct Envelope<W: Write> {
    to: W,
    hash: Sha256,
}

impl<W: Write> Envelope<W> {
    /// Writes the head.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn begin(head: &Head, to: W) -> io::Result<Envelope<W>> {
        let mut envelope = Envelope { to, hash: Sha256::new() };
        envelope.write(&head.encode())?;
        Ok(envelope)
    }

    /// Writes a piece of the body. All pieces have as many bytes as the head says.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.hash.update(piece);
        self.to.write_all(piece)
    }

    /// Writes the end.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.to.write_all(&self.hash.finalize())?;
        Ok(self.to)
    }
}

/// Is given the pieces of a body.
pub type Take<'t, E> = dyn FnMut(&Head, &[u8]) -> Result<(), E> + 't;

/// Takes an envelope apart, in pieces of any size.
#[derive(Default)]
pub struct Parser {
    /// Of a head that is not whole.
    begin: Vec<u8>,
    head: Option<Head>,
    /// Bytes of the body so far.
    body: u64,
    hash: Sha256,
    /// Bytes behind the body.
    end: Vec<u8>,
}

impl Parser {
    /// Takes the next bytes, and gives those of the body to `take`. They are good only if [`Parser::finish`] says so.
    ///
    /// # Errors
    /// If this is no envelope, or more than one. Those of `take`.
    pub fn push<E: From<BackupError>>(&mut self, mut bytes: &[u8], take: &mut Take<'_, E>) -> Result<(), E> {
        if self.head.is_none() {
            let (missing, rest) = bytes.split_at(bytes.len().min(HEAD_BYTES - self.begin.len()));
            self.begin.extend(missing);
            bytes = rest;
            let Ok(begin) = <&[u8; HEAD_BYTES]>::try_from(&self.begin[..]) else { return Ok(()) };
            self.head = Some(Head::decode(begin)?);
            self.hash.update(begin);
        }
        let Some(head) = self.head else { return Ok(()) };
        let left = usize::try_from(head.bytes.saturating_sub(self.body)).unwrap_or(usize::MAX);
        let (body, end) = bytes.split_at(bytes.len().min(left));
        if !body.is_empty() {
            self.hash.update(body);
            self.body += body.len() as u64;
            take(&head, body)?;
        }
        if self.end.len() + end.len() > HASH_BYTES {
            return Err(BackupError::Damaged("there is more behind its end".to_owned()).into());
        }
        self.end.extend(end);
        Ok(())
    }

    /// The head of a whole envelope that matches its checksum.
    ///
    /// # Errors
    /// If it is damaged or ends early.
    pub fn finish(self) -> Result<Head, BackupError> {
        let damaged = |what: &str| Err(BackupError::Damaged(what.to_owned()));
        let Some(head) = self.head else {
            return if MAGIC.starts_with(&self.begin[..self.begin.len().min(MAGIC.len())]) && !self.begin.is_empty() {
                damaged("it ends within its head")
            } else {
                Err(BackupError::Foreign)
            };
        };
        if self.body < head.bytes || self.end.len() < HASH_BYTES {
            return damaged(&format!("it ends early, after {} of {} bytes", self.body, head.bytes));
        }
        if self.end != self.hash.finalize()[..] {
            return damaged("it does not match its SHA-256");
        }
        Ok(head)
    }
}

/// Reads a whole envelope, and gives its body to `take` in pieces.
///
/// # Errors
/// If it is damaged, and those of reader and `take`.
pub fn read<E: From<BackupError>>(mut from: impl Read, take: &mut Take<'_, E>) -> Result<Head, E> {
    let (mut parser, mut piece) = (Parser::default(), vec![0; PIECE_BYTES]);
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(parser.finish()?),
            Ok(count) => parser.push(&piece[..count], take)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Decompression and decryption fail like this at damage.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::Other
                ) =>
            {
                return Err(BackupError::Damaged(error.to_string()).into());
            }
            Err(error) => return Err(BackupError::Io(error).into()),
        }
    }
}
