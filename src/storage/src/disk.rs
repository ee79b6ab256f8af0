//! The interface to a directory: what the log and the snapshots need of it, so that the simulator can use memory instead.
//!
//! One `Disk` is one flat directory. Names are plain file names made by this crate. All calls block; they are made by
//! the log thread and the snapshot writer thread, never on a core. [`crate::MmapDisk`] is the real one. [`crate::SimDisk`]
//! loses and tears whatever was not synced.

use std::io;
use std::sync::Arc;

use nix::libc;

use crate::limits::SNAPSHOT_ALIGN_BYTES;

/// A read-only mapping of a whole file; exactly as long as the file was when it was mapped.
pub trait Bytes: Send + Sync {
    /// All bytes of the file, beginning at a multiple of [`SNAPSHOT_ALIGN_BYTES`] in memory.
    fn as_slice(&self) -> &[u8];
}

/// A file that is read piece by piece instead of being mapped.
///
/// It needs no memory, and a place that the disk cannot read is an error instead of a signal.
pub trait PieceReader: Send {
    /// Bytes of the file when it was opened.
    fn length(&self) -> u64;

    /// Fills `into` from `offset` on. Returns how many bytes it read: fewer than asked for only at the end of the file.
    ///
    /// # Errors
    /// Those of the disk.
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;
}

/// A copy of a file in memory, aligned as a section of a snapshot must be.
#[derive(Debug)]
pub struct AlignedBytes {
    buffer: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBytes {
    /// Copies the content.
    #[must_use]
    pub fn copy_of(content: &[u8]) -> AlignedBytes {
        let mut buffer: Vec<u8> = Vec::with_capacity(content.len().saturating_add(SNAPSHOT_ALIGN_BYTES));
        let start = buffer.as_ptr().align_offset(SNAPSHOT_ALIGN_BYTES);
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
/// Bytes that were written through [`Segment::bytes_mut`] may reach the disk at any time, in any order and torn. It is
/// durable only once [`Segment::sync`] of its range has succeeded.
pub trait Segment: Send {
    /// All bytes of the file.
    fn bytes(&self) -> &[u8];

    /// All bytes of the file, for storing.
    fn bytes_mut(&mut self) -> &mut [u8];

    /// Makes the bytes `from..to` durable. Waits for the disk.
    ///
    /// # Errors
    /// Those of the disk. After an error nothing of the file's cached content may be trusted: the kernel reports a lost
    /// write once and calls the pages clean afterwards.
    fn sync(&mut self, from: usize, to: usize) -> io::Result<()>;

    /// Brings the bytes `from..to` into memory, so that their use waits for no disk. A segment begins with nothing in memory.
    ///
    /// # Errors
    /// If a page cannot be read.
    fn warm(&self, _from: usize, _to: usize) -> io::Result<()> {
        Ok(())
    }

    /// Gives the memory of the bytes `from..to` back. The content stays, and is read again when it is used again.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn release(&self, _from: usize, _to: usize) -> io::Result<()> {
        Ok(())
    }
}

/// A file being written under a temporary name. Dropped without [`NewFile::commit`] it leaves nothing behind.
pub trait NewFile: Send {
    /// Writes bytes at an offset; a gap before it reads as zeros.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`], and others of the disk.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Writes `bytes` bytes from `offset` on back to the disk and waits for it, but makes nothing durable.
    ///
    /// It leaves little to the final sync, so that the syncs of other files do not wait behind it.
    ///
    /// # Errors
    /// Those of the disk.
    fn push(&mut self, offset: u64, bytes: usize) -> io::Result<()>;

    /// Syncs the file, gives it its name and syncs the directory. A file that had the name is replaced.
    ///
    /// # Errors
    /// Those of the disk. The name then has its old content, or the new content, whole.
    fn commit(self) -> io::Result<()>;
}

/// One flat directory. Clones are handles on the same directory, for the different threads that use it.
pub trait Disk: Clone + Send {
    /// A file mapped for writing.
    type Segment: Segment;
    /// A file being written.
    type NewFile: NewFile;

    /// All file names, sorted.
    ///
    /// # Errors
    /// Those of the disk, here and in all calls below.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Creates a file of `bytes` bytes: fully allocated, filled with zeros, synced, its name durable.
    ///
    /// A crash or an error before the end leaves at most a `.tmp` file.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`], [`io::ErrorKind::AlreadyExists`], and others of the disk.
    fn create_segment(&self, name: &str, bytes: usize) -> io::Result<Self::Segment>;

    /// Maps an existing file for writing, all of its length.
    fn open_segment(&self, name: &str) -> io::Result<Self::Segment>;

    /// Starts a file that gets `name` on commit.
    fn create_file(&self, name: &str) -> io::Result<Self::NewFile>;

    /// Maps an existing file for reading, all of its length.
    ///
    /// It is in memory when this returns, so that later reads wait for no disk, and a read error is an error here.
    fn map(&self, name: &str) -> io::Result<Arc<dyn Bytes>>;

    /// Opens an existing file for reading in pieces. Nothing of it is read yet.
    fn open_pieces(&self, name: &str) -> io::Result<Box<dyn PieceReader>>;

    /// Renames a file, atomically; replaces `to`. Durable after [`Disk::sync_dir`].
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file. Durable after [`Disk::sync_dir`].
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes the names of all files durable.
    fn sync_dir(&self) -> io::Result<()>;

    /// Identifies the boot of the kernel, and with it the content of the page cache; 0 if it is not known.
    ///
    /// Two equal values other than 0 mean that everything that was stored in between is still there, synced or not.
    fn boot(&self) -> u128 {
        0
    }

    /// Writes a small file as a whole: after a crash it has either its old or its new content.
    fn write_file(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let mut file = self.create_file(name)?;
        file.write_at(0, content)?;
        file.commit()
    }
}

/// Suffix of files under construction; they are removed when the directory is opened.
pub(crate) const TEMPORARY_SUFFIX: &str = ".tmp";

/// Whether an error of a file means that the disk lost what the file held.
///
/// For a mapping the kernel reports `EFAULT` when its pages are brought into memory.
pub(crate) fn is_lost(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EFAULT | libc::EHWPOISON | libc::EUCLEAN))
}
