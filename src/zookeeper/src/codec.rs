//! The compressions of snapshots: none, gzip, and snappy in the blocks of Java's `SnappyOutputStream`.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use crate::BUFFER_BYTES;

/// Of `SnappyOutputStream`: a magic number, then version and compatible version.
const SNAPPY_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const SNAPPY_HEADER_BYTES: usize = SNAPPY_MAGIC.len() + 8;
/// The largest block that is accepted, decompressed. Java writes 32 KiB by default, and 512 MiB at most.
const SNAPPY_BLOCK_MAX: usize = 512 << 20;

/// The decompressed bytes of a snapshot. The suffix of the name decides, as in ZooKeeper.
///
/// # Errors
/// Those of the system.
pub(crate) fn open(file: &Path) -> io::Result<Box<dyn Read>> {
    let bytes = BufReader::with_capacity(BUFFER_BYTES, File::open(file)?);
    Ok(match file.extension().and_then(|suffix| suffix.to_str()) {
        Some("gz") => Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(bytes))),
        Some("snappy") => Box::new(BufReader::with_capacity(BUFFER_BYTES, Snappy::new(bytes))),
        _ => Box::new(bytes),
    })
}

/// Decompresses block by block.
struct Snappy<R> {
    from: R,
    begun: bool,
    block: Vec<u8>,
    at: usize,
}

impl<R: Read> Snappy<R> {
    fn new(from: R) -> Snappy<R> {
        Snappy { from, begun: false, block: Vec::new(), at: 0 }
    }

    fn begin(&mut self) -> io::Result<()> {
        let mut header = [0; SNAPPY_HEADER_BYTES];
        self.from.read_exact(&mut header)?;
        if !header.starts_with(&SNAPPY_MAGIC) {
            return Err(invalid("it does not begin as snappy's streams do"));
        }
        self.begun = true;
        Ok(())
    }

    /// False at the end.
    fn next_block(&mut self) -> io::Result<bool> {
        let mut length = [0; 4];
        if self.from.read(&mut length[..1])? == 0 {
            return Ok(false);
        }
        self.from.read_exact(&mut length[1..])?;
        let length = u64::from(u32::from_be_bytes(length));
        let mut packed = Vec::new();
        self.from.by_ref().take(length).read_to_end(&mut packed)?;
        if packed.len() as u64 != length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let plain = snap::raw::decompress_len(&packed).map_err(io::Error::other)?;
        if plain > SNAPPY_BLOCK_MAX {
            return Err(invalid("a block is longer than 512 MiB"));
        }
        self.block = snap::raw::Decoder::new().decompress_vec(&packed).map_err(io::Error::other)?;
        self.at = 0;
        Ok(true)
    }
}

impl<R: Read> Read for Snappy<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if !self.begun {
            self.begin()?;
        }
        while self.at == self.block.len() {
            if !self.next_block()? {
                return Ok(0);
            }
        }
        let read = (&self.block[self.at..]).read(into)?;
        self.at += read;
        Ok(read)
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
