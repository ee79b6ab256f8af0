//! One file of the transaction log.

use std::fs::File;
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use crate::input::{Fault, Input};
use crate::txn;
use crate::{BUFFER_BYTES, SourceError};

/// `ZKLG`.
const MAGIC: i32 = 0x5A4B_4C47;
/// Version and database id, which ZooKeeper does not look at.
const HEADER_REST_BYTES: usize = 12;
/// Behind each record.
const END: u8 = b'B';
/// The longest record that ZooKeeper reads by default (`jute.maxbuffer`). A longer one beyond the end of the file is damage.
const RECORD_BYTES_MAX: u64 = 2 << 20;

/// The records of a file, in order.
pub(crate) struct LogFile {
    path: PathBuf,
    input: Input<BufReader<File>>,
    file_bytes: u64,
    record: Vec<u8>,
}

/// The next part of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<'a> {
    /// A record, and its offset.
    Record(u64, &'a [u8]),
    /// The end of the file, or the zeros that ZooKeeper allocates ahead, from this offset on.
    End(u64),
    /// A record that was not written whole, at this offset.
    Torn(u64),
}

impl LogFile {
    /// Opens a file. `None` when it has no header.
    ///
    /// # Errors
    /// When it is no log.
    pub(crate) fn open(path: &Path) -> Result<Option<LogFile>, SourceError> {
        let io = |error: io::Error| SourceError::Io { file: path.to_owned(), error };
        let file = File::open(path).map_err(io)?;
        let file_bytes = file.metadata().map_err(io)?.len();
        if file_bytes == 0 {
            return Ok(None);
        }
        let mut input = Input::new(path, BufReader::with_capacity(BUFFER_BYTES, file));
        let magic = match input.int().and_then(|magic| input.array::<HEADER_REST_BYTES>().map(|_| magic)) {
            // The file was created, and its header was not written whole.
            Err(Fault::End) => return Ok(None),
            magic => magic.map_err(|fault| input.fault(0, fault))?,
        };
        match magic {
            MAGIC => Ok(Some(LogFile { path: path.to_owned(), input, file_bytes, record: Vec::new() })),
            _ => Err(input.damaged(0, "this is no transaction log: the magic number ZKLG is not")),
        }
    }

    /// The next record.
    ///
    /// # Errors
    /// When a whole record does not match its checksum, as in ZooKeeper.
    pub(crate) fn next(&mut self) -> Result<Next<'_>, SourceError> {
        let offset = self.input.offset();
        let rest = self.file_bytes.saturating_sub(offset);
        let (checksum, length) = match self.input.long().and_then(|checksum| Ok((checksum, self.input.int()?))) {
            Ok(head) => head,
            Err(Fault::End) if rest == 0 => return Ok(Next::End(offset)),
            Err(Fault::End) => return Ok(Next::Torn(offset)),
            Err(fault) => return Err(self.input.fault(offset, fault)),
        };
        let Ok(length) = u64::try_from(length) else {
            return Err(self.input.damaged(offset, format!("a record of {length} bytes")));
        };
        if length == 0 {
            return Ok(if checksum == 0 { Next::End(offset) } else { Next::Torn(offset) });
        }
        if length > self.file_bytes.saturating_sub(self.input.offset()) {
            return if length <= RECORD_BYTES_MAX {
                Ok(Next::Torn(offset))
            } else {
                Err(self.input.damaged(offset, format!("a record of {length} bytes, which are not there,")))
            };
        }
        self.record.clear();
        match self.input.bytes(length, &mut self.record).and_then(|()| self.input.array::<1>()) {
            Ok([END]) => {}
            Ok(_) | Err(Fault::End) => return Ok(Next::Torn(offset)),
            Err(fault) => return Err(self.input.fault(offset, fault)),
        }
        if i64::from(simd_adler32::adler32(&self.record.as_slice())) != checksum {
            return Err(self.input.damaged(offset, "a record that does not match its checksum"));
        }
        Ok(Next::Record(offset, &self.record))
    }

    /// The offset of a whole record behind the end, or behind a torn one. As a rule only damage leaves one.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn whole_record_behind(&self, end: u64) -> Result<Option<u64>, SourceError> {
        let read = || {
            let mut file = File::open(&self.path)?;
            file.seek(SeekFrom::Start(end))?;
            let mut rest = Vec::new();
            file.read_to_end(&mut rest)?;
            let zeros = rest.iter().rev().take_while(|byte| **byte == 0).count();
            rest.truncate(rest.len() - zeros);
            Ok(rest)
        };
        let rest = read().map_err(|error| SourceError::Io { file: self.path.clone(), error })?;
        let found = (1..rest.len()).find(|at| is_record(&rest[*at..]));
        Ok(found.map(|at| end + at as u64))
    }
}

/// Whether a whole record begins here.
fn is_record(bytes: &[u8]) -> bool {
    let Some((checksum, rest)) = bytes.split_first_chunk() else { return false };
    let Some((length, rest)) = rest.split_first_chunk() else { return false };
    let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0);
    length > 0
        && rest.get(length) == Some(&END)
        && txn::may_begin(rest)
        && i64::from(simd_adler32::adler32(&&rest[..length])) == i64::from_be_bytes(*checksum)
}
