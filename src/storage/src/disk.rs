//! The disk seam: what the log and the images need of a directory, so that the simulator can put memory in its place.
//!
//! One `Disk` is one flat directory. Names are plain file names made by this crate. All calls block; they are made by
//! the log thread and the image writer thread, never on a core. [`crate::MmapDisk`] is the real one,
//! [`crate::SimDisk`] the one that loses and tears whatever was not synced.

use std::io;
use std::sync::Arc;

use crate::limits::IMAGE_ALIGN_BYTES;

/// A read-only mapping of a whole file; exactly as long as the file was when it was mapped.
pub trait Bytes: Send + Sync {
    fn as_slice(&self) -> &[u8];
}

/// A file that is read piece by piece instead of being mapped: it needs no memory, and a place that the disk cannot read is an
/// error and no signal.
pub trait Pieces: Send {
    /// Bytes of the file when it was opened.
    fn length(&self) -> u64;

    /// Fills `into` from `offset` on. Answers how many bytes that were: fewer than asked for at the end of the file alone.
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;
}

/// A copy of a file in memory, aligned as a section of an image must be.
#[derive(Debug)]
pub struct AlignedBytes {
    buffer: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBytes {
    #[must_use]
    pub fn copy_of(content: &[u8]) -> AlignedBytes {
        let mut buffer: Vec<u8> = Vec::with_capacity(content.len().saturating_add(IMAGE_ALIGN_BYTES));
        let start = buffer.as_ptr().align_offset(IMAGE_ALIGN_BYTES);
        // Within the capacity reserved, so the buffer stays where it is.
        buffer.resize(start, 0);
        buffer.extend_from_slice(content);
        AlignedBytes { buffer, start, length: content.len() }
    }
}

impl Bytes for AlignedBytes {
    fn as_slice(&self) -> &[u8] {
        let content = self.buffer.get(self.start..).unwrap_or_default();
        assert_eq!(content.len(), self.length, "the buffer never changes");
        content
    }
}

/// A log segment: a file of fixed, fully allocated size, mapped for writing.
///
/// What was written through [`Segment::bytes_mut`] may reach the disk at any time, in any order and torn. It is durable
/// only once [`Segment::sync`] of its range has said so.
pub trait Segment: Send {
    fn bytes(&self) -> &[u8];

    fn bytes_mut(&mut self) -> &mut [u8];

    /// Makes `from..to` durable. After an error nothing about the file's cached content may be trusted: the kernel
    /// reports a lost write once and calls the pages clean afterwards.
    fn sync(&mut self, from: usize, to: usize) -> io::Result<()>;

    /// Brings `from..to` into memory, so that its use waits for no disk and a page that cannot be read is an error here.
    /// A segment begins with nothing in memory.
    fn warm(&self, _from: usize, _to: usize) -> io::Result<()> {
        Ok(())
    }

    /// Gives the memory of `from..to` back; the content stays, and is read again when it is used again.
    fn release(&self, _from: usize, _to: usize) -> io::Result<()> {
        Ok(())
    }
}

/// A file being written under a temporary name. Dropped without [`NewFile::commit`] it leaves nothing behind.
pub trait NewFile: Send {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Pushes what was written to a range to the disk and waits for it, so that the final sync has little left and the
    /// syncs of other files do not wait behind it. Nothing is durable by this.
    fn push(&mut self, offset: u64, bytes: usize) -> io::Result<()>;

    /// Syncs the file, gives it its name (replacing a file of that name) and syncs the directory.
    fn commit(self) -> io::Result<()>;
}

/// One flat directory. Clones are handles on the same directory, for the different threads that use it.
pub trait Disk: Clone + Send {
    type Segment: Segment;
    type NewFile: NewFile;

    /// All file names, sorted.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Creates a file of `bytes` bytes: fully allocated, filled with zeros, synced, its name durable. A crash or an
    /// error before the end leaves at most a `.tmp` file. Errors: `StorageFull`, `AlreadyExists`.
    fn create_segment(&self, name: &str, bytes: usize) -> io::Result<Self::Segment>;

    /// Maps an existing file for writing at the length it has.
    fn open_segment(&self, name: &str) -> io::Result<Self::Segment>;

    /// Starts a file that gets `name` on commit.
    fn create_file(&self, name: &str) -> io::Result<Self::NewFile>;

    /// Maps an existing file for reading, exactly its length, brought into memory before this returns so that later
    /// reads take no disk fault and a read error is an error here.
    fn map(&self, name: &str) -> io::Result<Arc<dyn Bytes>>;

    /// Opens an existing file for reading in pieces. Nothing of it is read yet.
    fn open_pieces(&self, name: &str) -> io::Result<Box<dyn Pieces>>;

    /// Atomic; replaces `to`. Durable after [`Disk::sync_dir`].
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Durable after [`Disk::sync_dir`].
    fn remove(&self, name: &str) -> io::Result<()>;

    fn sync_dir(&self) -> io::Result<()>;

    /// Identifies the life of the page cache. Two equal values, neither of them 0, mean that everything that was stored in
    /// between is still there, synced or not. 0 if it is not known.
    fn boot(&self) -> u128 {
        0
    }

    /// Writes a small file whole: after a crash it has either its old or its new content.
    fn write_file(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let mut file = self.create_file(name)?;
        file.write_at(0, content)?;
        file.commit()
    }
}

/// Suffix of files under construction; they are removed when the directory is opened.
pub(crate) const TEMPORARY_SUFFIX: &str = ".tmp";
