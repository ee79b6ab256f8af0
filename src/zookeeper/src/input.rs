//! Jute's primitives from a stream, with the offset and the Adler-32 of all bytes so far.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use corral_core::ids::Zxid;
use corral_core::shared::Text;
use corral_core::tree::acl::AclEntry;
use simd_adler32::Adler32;

use crate::SourceError;
use crate::java;

/// The longest data of a znode, and the longest path or part of an ACL. ZooKeeper takes 1 MiB by default.
const BUFFER_BYTES_MAX: u64 = 1 << 30;
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// A stream with its place.
pub(crate) struct Input<R> {
    from: R,
    file: PathBuf,
    offset: u64,
    checksum: Adler32,
    scratch: Vec<u8>,
}

/// Why a primitive was not read.
pub(crate) enum Fault {
    /// The stream ends within it.
    End,
    /// It is none, or the system refuses it. A sentence.
    Bad(String),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        if error.kind() == io::ErrorKind::UnexpectedEof { Fault::End } else { Fault::Bad(error.to_string()) }
    }
}

impl<R: Read> Input<R> {
    pub(crate) fn new(file: &Path, from: R) -> Input<R> {
        Input { from, file: file.to_owned(), offset: 0, checksum: Adler32::new(), scratch: Vec::new() }
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The Adler-32 of all bytes so far.
    pub(crate) fn checksum(&self) -> u32 {
        self.checksum.finish()
    }

    pub(crate) fn damaged(&self, offset: u64, what: impl Into<String>) -> SourceError {
        SourceError::Damaged { file: self.file.clone(), offset, what: what.into() }
    }

    /// The fault of reading what begins at `offset`.
    pub(crate) fn fault(&self, offset: u64, fault: Fault) -> SourceError {
        match fault {
            Fault::End => self.damaged(offset, "the file ends in the middle of the part that begins"),
            Fault::Bad(what) => self.damaged(offset, what),
        }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes)?;
        self.count(&bytes);
        Ok(bytes)
    }

    pub(crate) fn int(&mut self) -> Result<i32, Fault> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn long(&mut self) -> Result<i64, Fault> {
        self.array().map(i64::from_be_bytes)
    }

    pub(crate) fn zxid(&mut self) -> Result<Zxid, Fault> {
        self.long().map(|number| Zxid(number.cast_unsigned()))
    }

    /// A number of records.
    pub(crate) fn count_of(&mut self) -> Result<u32, Fault> {
        let number = self.int()?;
        u32::try_from(number).map_err(|_| Fault::Bad(format!("a list of {number} elements")))
    }

    /// A buffer; `None` is jute's null.
    pub(crate) fn buffer(&mut self) -> Result<Option<&[u8]>, Fault> {
        self.buffer_of(BUFFER_BYTES_MAX)
    }

    fn buffer_of(&mut self, bytes_max: u64) -> Result<Option<&[u8]>, Fault> {
        let length = match self.int()? {
            -1 => return Ok(None),
            length => {
                let fits = u64::try_from(length).ok().filter(|length| *length <= bytes_max);
                fits.ok_or_else(|| Fault::Bad(format!("a length of {length} bytes")))?
            }
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let read = self.bytes(length, &mut scratch);
        self.scratch = scratch;
        read?;
        Ok(Some(&self.scratch))
    }

    /// The bytes up to the end, at most so many, and the checksum of those before them.
    pub(crate) fn rest(&mut self, bytes_max: u64) -> Result<(Vec<u8>, Adler32), Fault> {
        let (mut rest, checksum) = (Vec::new(), self.checksum.clone());
        self.from.by_ref().take(bytes_max).read_to_end(&mut rest)?;
        self.count(&rest);
        Ok((rest, checksum))
    }

    /// So many bytes. The memory grows with the bytes that are there, not with the length.
    pub(crate) fn bytes(&mut self, length: u64, into: &mut Vec<u8>) -> Result<(), Fault> {
        let begin = into.len();
        let read = self.from.by_ref().take(length).read_to_end(into)? as u64;
        self.count(&into[begin..]);
        if read == length { Ok(()) } else { Err(Fault::End) }
    }

    /// A string; null is read as the empty one.
    pub(crate) fn text(&mut self) -> Result<Text, Fault> {
        let bytes = self.buffer_of(TEXT_BYTES_MAX)?.unwrap_or_default();
        Ok(Text::from(&*java::text(bytes)))
    }

    /// A list of ACL entries.
    pub(crate) fn acl(&mut self) -> Result<Vec<AclEntry>, Fault> {
        // Null is the empty list.
        let count = self.int()?.max(0);
        let entry = |_| Ok(AclEntry { perms: self.int()?, scheme: self.text()?, id: self.text()? });
        (0..count).map(entry).collect()
    }

    fn count(&mut self, bytes: &[u8]) {
        self.checksum.write(bytes);
        self.offset += bytes.len() as u64;
    }
}
