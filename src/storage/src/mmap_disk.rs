//! The real disk: a data directory on a local file system, its lock, its format marker, its mapped segments.
//!
//! Used by the log thread, the snapshot writer thread and, at start, the main thread. It does not know what is in a file.
//! `LOCK` keeps a second server out (flock, released by the kernel however the process ends). `FORMAT` marks a directory of
//! corral. A directory with other content and without the marker is refused and left untouched.
//!
//! The files hold session passwords and digests: they are readable by their owner alone, and so is a directory that is
//! made here. Files of an earlier version are restricted at open. A directory that was there before keeps its mode.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::{Mmap, MmapMut};
use nix::libc;

use crate::disk::{AlignedBytes, Bytes, Disk, NewFile, PieceReader, Segment, TEMPORARY_SUFFIX};
use crate::field::wide;
use crate::limits::{FILL_SYNC_BYTES, PAGE_BYTES};
use crate::log::DURABLE_NAME;
use crate::mapping;

/// First line of the `FORMAT` file.
const FORMAT_TEXT: &str = "corral data directory, format 1\n";
const FORMAT_NAME: &str = "FORMAT";
const LOCK_NAME: &str = "LOCK";
/// Mode of every file that is made here.
const FILE_MODE: u32 = 0o600;
/// Mode of every directory that is made here.
pub const DIRECTORY_MODE: u32 = 0o700;
/// Mode bits of users that are not the owner.
const OTHERS_MODE: u32 = 0o077;
/// Beginnings of the names of files with data.
pub const DATA_PREFIXES: [&str; 3] = ["log-", "spare-", "image-"];
const OWN_NAMES: [&str; 5] = [FORMAT_NAME, LOCK_NAME, DURABLE_NAME, "OWNER", "SERVERS"];
/// Identifies the boot of the kernel, and with it the content of the page cache.
const BOOT_ID_PATH: &str = "/proc/sys/kernel/random/boot_id";
/// Names an otherwise empty directory may hold and still count as empty; the last two are made by hand for a ZooKeeper
/// server.
const HARMLESS_NAMES: [&str; 7] = [LOCK_NAME, "lost+found", "FORMAT.tmp", "OWNER", "OWNER.tmp", "myid", "initialize"];

/// Why a data directory was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// A call of the file system failed.
    #[error("{}: {what}: {source}", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// What failed.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// Another process holds the lock.
    #[error("{}: in use by another server (process {holder}); stop it or configure another data directory", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
        /// Process id of the holder; empty if it is not known.
        holder: String,
    },
    /// The directory is to be read, and holds no data.
    #[error("{}: the directory is empty; give the one with the data", path.display())]
    Empty {
        /// The directory.
        path: PathBuf,
    },
    /// The directory holds files of corral, and no marker.
    #[error("{}: holds {found:?} but no FORMAT file; if FORMAT alone was lost, copy it from another server's data directory", path.display())]
    NoFormat {
        /// The directory.
        path: PathBuf,
        /// One of the files.
        found: String,
    },
    /// The directory holds other files, and no marker of corral.
    #[error("{}: not a corral data directory: holds {found:?}; give an empty directory, or one with data of corral", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// One of the other files.
        found: String,
    },
    /// The marker differs from the marker that this program writes.
    #[error("{}: FORMAT says {found:?}, this program reads {expected:?}; use the version that wrote it, or, if that file alone is damaged, write the line anew", path.display())]
    WrongFormat {
        /// The directory.
        path: PathBuf,
        /// Content of the marker.
        found: String,
        /// Content that this program writes.
        expected: &'static str,
    },
}

/// How a segment's mapped bytes are made durable.
///
/// Both make the same durable: `msync` waits for the same sync of the file, limited to its range. `examples/sync_recipes.rs`
/// finds no difference beyond noise. The default needs no descriptor, so that a log takes none for its segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncRecipe {
    /// `msync` of the pages written.
    #[default]
    Msync,
    /// `fdatasync` of the file, with a descriptor that stays open for that.
    Fdatasync,
}

/// A data directory, held by this process. Clones are handles on the same directory and keep the lock.
#[derive(Debug, Clone)]
pub struct MmapDisk {
    directory: Arc<Directory>,
    recipe: SyncRecipe,
}

#[derive(Debug)]
struct Directory {
    path: PathBuf,
    handle: File,
    /// `None` when opened for reading only. Held for the lock alone.
    lock: Option<File>,
    access: Access,
    boot: u128,
}

/// Access of users other than the owner to a data directory when it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Access {
    /// Mode of the directory, if users other than its owner have any access to it. It is not changed.
    pub directory_mode: Option<u32>,
    /// Files that other users could read or write, and cannot any more.
    pub files_restricted: usize,
    /// Files with a mode that could not be changed: how many, and why for the first.
    pub files_left: Option<(usize, String)>,
}

impl MmapDisk {
    /// Opens `path` for a server, and makes it if it is not there.
    ///
    /// It takes the lock, checks or writes `FORMAT`, restricts the modes of corral's files, and removes files left under
    /// construction.
    ///
    /// # Errors
    /// [`DiskError`]; a directory of another program is left untouched.
    pub fn open(path: &Path, recipe: SyncRecipe) -> Result<MmapDisk, DiskError> {
        let fault = |what| move |source| DiskError::Io { path: path.to_owned(), what, source };
        let make = || DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path);
        make().map_err(fault("cannot make the data directory"))?;
        check_format(path, true)?;
        let lock = take_lock(path)?;
        let handle = File::open(path).map_err(fault("cannot open the data directory"))?;
        let access = restrict(path).map_err(fault("cannot read the modes of the data directory"))?;
        let (path_kept, lock) = (path.to_owned(), Some(lock));
        let directory = Directory { path: path_kept, handle, lock, access, boot: boot_id() };
        let disk = MmapDisk { directory: Arc::new(directory), recipe };
        if !check_format(path, true)? {
            // With FORMAT the directory counts as durable, up to the root.
            sync_ancestors(path).map_err(fault("cannot sync the directories above the data directory"))?;
            disk.write_file(FORMAT_NAME, FORMAT_TEXT.as_bytes()).map_err(fault("cannot write FORMAT"))?;
        }
        for name in disk.list().map_err(fault("cannot list the data directory"))? {
            if name.ends_with(TEMPORARY_SUFFIX) {
                disk.remove(&name).map_err(fault("cannot remove an unfinished file"))?;
            }
        }
        disk.sync_dir().map_err(fault("cannot sync the data directory"))?;
        Ok(disk)
    }

    /// Opens `path` for reading only: takes no lock, changes nothing, refuses every write.
    ///
    /// Files are copied into memory instead of mapped, because a running server may be writing them.
    ///
    /// # Errors
    /// [`DiskError`], of its content or of the file system.
    pub fn open_read_only(path: &Path) -> Result<MmapDisk, DiskError> {
        check_format(path, false)?;
        let handle = File::open(path).map_err(|source| DiskError::Io {
            path: path.to_owned(),
            what: "cannot open the data directory",
            source,
        })?;
        let (path, lock, access, boot) = (path.to_owned(), None, Access::default(), boot_id());
        let directory = Arc::new(Directory { path, handle, lock, access, boot });
        Ok(MmapDisk { directory, recipe: SyncRecipe::default() })
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.directory.path
    }

    /// Access of other users to the directory when it was opened.
    #[must_use]
    pub fn access(&self) -> &Access {
        &self.directory.access
    }

    /// Bytes that this process may still write to the file system of the directory.
    ///
    /// # Errors
    /// If the file system does not report it.
    pub fn free_bytes(&self) -> io::Result<u64> {
        let stat = nix::sys::statvfs::fstatvfs(&self.directory.handle)?;
        let is_root = nix::unistd::geteuid().is_root();
        let blocks = if is_root { stat.blocks_free() } else { stat.blocks_available() };
        Ok(blocks.saturating_mul(stat.fragment_size()))
    }

    fn full(&self, name: &str) -> PathBuf {
        self.directory.path.join(name)
    }

    fn temporary(&self, name: &str) -> PathBuf {
        self.full(&format!("{name}{TEMPORARY_SUFFIX}"))
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.directory.lock.is_some() { Ok(()) } else { Err(io::ErrorKind::ReadOnlyFilesystem.into()) }
    }
}

impl Disk for MmapDisk {
    type Segment = MmapSegment;
    type NewFile = TemporaryFile;

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.directory.path)? {
            // A name that is not UTF-8 is none of ours.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn create_segment(&self, name: &str, bytes: usize) -> io::Result<MmapSegment> {
        self.check_writable()?;
        let target = self.full(name);
        if target.try_exists()? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let temporary = self.temporary(name);
        let filled = fill_with_zeros(&temporary, bytes);
        if filled.is_err() {
            // The first error is the one to report; what stays behind is removed at the next open.
            let _ = fs::remove_file(&temporary);
        }
        let file = filled?;
        fs::rename(&temporary, &target)?;
        self.sync_dir()?;
        let mapping = mapping::map_for_writing(&file, bytes).inspect_err(|_| {
            // A later try makes another file.
            let _ = fs::remove_file(&target);
        })?;
        Ok(MmapSegment::new(file, mapping, self.recipe))
    }

    fn open_segment(&self, name: &str) -> io::Result<MmapSegment> {
        self.check_writable()?;
        let file = OpenOptions::new().read(true).write(true).open(self.full(name))?;
        let bytes = file_bytes(&file)?;
        let mapping = mapping::map_for_writing(&file, bytes)?;
        Ok(MmapSegment::new(file, mapping, self.recipe))
    }

    fn create_file(&self, name: &str) -> io::Result<TemporaryFile> {
        self.check_writable()?;
        let path = self.temporary(name);
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(FILE_MODE).open(&path)?;
        Ok(TemporaryFile { disk: self.clone(), file, path, target: self.full(name), committed: false })
    }

    fn map(&self, name: &str) -> io::Result<Arc<dyn Bytes>> {
        let mut file = File::open(self.full(name))?;
        if self.directory.lock.is_none() {
            let mut copy = Vec::new();
            file.read_to_end(&mut copy)?;
            return Ok(Arc::new(AlignedBytes::copy_of(&copy)));
        }
        let bytes = file_bytes(&file)?;
        Ok(Arc::new(ReadMapping(mapping::map_for_reading(&file, bytes)?)))
    }

    fn open_pieces(&self, name: &str) -> io::Result<Box<dyn PieceReader>> {
        let file = File::open(self.full(name))?;
        let length = file.metadata()?.len();
        Ok(Box::new(FilePieces { file, length }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.check_writable()?;
        fs::rename(self.full(from), self.full(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.check_writable()?;
        fs::remove_file(self.full(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.directory.handle.sync_all()
    }

    fn boot(&self) -> u128 {
        self.directory.boot
    }
}

/// A segment file mapped shared and writable.
#[derive(Debug)]
pub struct MmapSegment {
    mapping: MmapMut,
    /// For `fdatasync`. `None` if `msync` is used.
    file: Option<File>,
}

impl MmapSegment {
    fn new(file: File, mapping: MmapMut, recipe: SyncRecipe) -> MmapSegment {
        MmapSegment { mapping, file: (recipe == SyncRecipe::Fdatasync).then_some(file) }
    }
}

impl Segment for MmapSegment {
    fn bytes(&self) -> &[u8] {
        &self.mapping
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.mapping
    }

    fn sync(&mut self, from: usize, to: usize) -> io::Result<()> {
        match &self.file {
            None => self.mapping.flush_range(from, to.saturating_sub(from)),
            Some(file) => file.sync_data(),
        }
    }

    fn warm(&self, from: usize, to: usize) -> io::Result<()> {
        mapping::warm(&self.mapping, from, to)
    }

    fn release(&self, from: usize, to: usize) -> io::Result<()> {
        mapping::release(&self.mapping, from, to)
    }
}

struct ReadMapping(Mmap);

impl Bytes for ReadMapping {
    fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

struct FilePieces {
    file: File,
    length: u64,
}

impl PieceReader for FilePieces {
    fn length(&self) -> u64 {
        self.length
    }

    fn read(&self, mut offset: u64, mut into: &mut [u8]) -> io::Result<usize> {
        let mut done: usize = 0;
        while !into.is_empty() {
            let count = match self.file.read_at(into, offset) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            (done, offset) = (done.saturating_add(count), offset.saturating_add(wide(count)));
            into = into.get_mut(count..).unwrap_or_default();
        }
        Ok(done)
    }
}

/// A file under its temporary name.
#[derive(Debug)]
pub struct TemporaryFile {
    disk: MmapDisk,
    file: File,
    path: PathBuf,
    target: PathBuf,
    committed: bool,
}

impl NewFile for TemporaryFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn push(&mut self, offset: u64, bytes: usize) -> io::Result<()> {
        match mapping::write_back(&self.file, offset, wide(bytes)) {
            // A file system that writes no ranges.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ESPIPE | libc::ENOSYS)) => {
                self.file.sync_data()
            }
            done => done,
        }
    }

    fn commit(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.path, &self.target)?;
        self.committed = true;
        self.disk.sync_dir()
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if !self.committed {
            // Nothing can be done about an error here; the next open removes what stays.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether the directory carries our marker; `Ok(false)` for an empty one if `may_be_empty`.
fn check_format(path: &Path, may_be_empty: bool) -> Result<bool, DiskError> {
    let fault = |what| move |source| DiskError::Io { path: path.to_owned(), what, source };
    let mut text = Vec::new();
    match File::open(path.join(FORMAT_NAME)) {
        Ok(file) => {
            // The marker is one short line; whatever else lies there is cut off here.
            let limit = wide(FORMAT_TEXT.len()).saturating_add(64);
            file.take(limit).read_to_end(&mut text).map_err(fault("cannot read FORMAT"))?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let list = || fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>();
            let names = list().map_err(fault("cannot list the data directory"))?;
            let names = names.iter().map(|name| name.to_string_lossy().into_owned());
            let mut names: Vec<String> = names.filter(|name| !HARMLESS_NAMES.contains(&&**name)).collect();
            let path = path.to_owned();
            return match names.iter().position(|name| is_own(name)) {
                Some(own) => Err(DiskError::NoFormat { path, found: names.swap_remove(own) }),
                None => match names.pop() {
                    Some(found) => Err(DiskError::Foreign { path, found }),
                    None if may_be_empty => Ok(false),
                    None => Err(DiskError::Empty { path }),
                },
            };
        }
        Err(error) => return Err(fault("cannot read FORMAT")(error)),
    }
    if text == FORMAT_TEXT.as_bytes() {
        return Ok(true);
    }
    let found = String::from_utf8_lossy(&text).into_owned();
    Err(DiskError::WrongFormat { path: path.to_owned(), found, expected: FORMAT_TEXT })
}

/// Whether only this program makes files of this name.
fn is_own(name: &str) -> bool {
    let is_data = [".seg", ".img"].iter().any(|end| name.ends_with(end));
    OWN_NAMES.contains(&name) || is_data && DATA_PREFIXES.iter().any(|begin| name.starts_with(begin))
}

/// Removes the access of other users to this program's files. A file of another owner is left, and counted.
fn restrict(path: &Path) -> io::Result<Access> {
    let mode = fs::metadata(path)?.mode();
    let directory_mode = (mode & OTHERS_MODE != 0).then_some(mode & 0o7777);
    let mut access = Access { directory_mode, ..Access::default() };
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        let ours = |name: &str| OWN_NAMES.contains(&name) || DATA_PREFIXES.iter().any(|own| name.starts_with(own));
        let metadata = entry.metadata()?;
        if !name.to_str().is_some_and(ours) || !metadata.is_file() || metadata.mode() & OTHERS_MODE == 0 {
            continue;
        }
        match fs::set_permissions(entry.path(), Permissions::from_mode(FILE_MODE)) {
            Ok(()) => access.files_restricted = access.files_restricted.saturating_add(1),
            Err(error) => {
                let (left, _) = access.files_left.get_or_insert_with(|| (0, format!("{}: {error}", name.display())));
                *left = left.saturating_add(1);
            }
        }
    }
    Ok(access)
}

/// Makes the name of a directory durable, and the names of all directories above it.
fn sync_ancestors(path: &Path) -> io::Result<()> {
    for directory in fs::canonicalize(path)?.ancestors().skip(1) {
        match File::open(directory).and_then(|handle| handle.sync_all()) {
            // This program made no directory that this user may not read, nor any that cannot be synced.
            Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput) => {}
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {}
            done => done?,
        }
    }
    Ok(())
}

/// The kernel's boot as a number; 0 if it cannot be read.
fn boot_id() -> u128 {
    let text = fs::read_to_string(BOOT_ID_PATH).unwrap_or_default();
    u128::from_str_radix(&text.trim().replace('-', ""), 16).unwrap_or(0)
}

fn take_lock(path: &Path) -> Result<File, DiskError> {
    let fault = |source| DiskError::Io { path: path.to_owned(), what: "cannot lock the data directory", source };
    let mut lock = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(FILE_MODE)
        .open(path.join(LOCK_NAME))
        .map_err(fault)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // The process id only helps the reader of the message.
            let _ = (&lock).take(32).read_to_string(&mut holder);
            return Err(DiskError::InUse { path: path.to_owned(), holder: holder.trim().to_owned() });
        }
        Err(fs::TryLockError::Error(source)) => return Err(fault(source)),
    }
    lock.set_len(0).map_err(fault)?;
    writeln!(lock, "{}", std::process::id()).map_err(fault)?;
    Ok(lock)
}

/// Makes a file of zeros. Written in 4 KiB pieces: larger writes make large folios in the page cache, and then one
/// small mapped store writes back a megabyte. Reserving first gives a clean `StorageFull` and few extents.
fn fill_with_zeros(path: &Path, bytes: usize) -> io::Result<File> {
    const ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(FILE_MODE).open(path)?;
    let length = i64::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    match nix::fcntl::fallocate(&file, nix::fcntl::FallocateFlags::empty(), 0, length) {
        // A file system without reservation: writing the zeros allocates as well.
        Ok(()) | Err(nix::errno::Errno::EOPNOTSUPP) => {}
        Err(errno) => return Err(errno.into()),
    }
    let mut left = bytes;
    while left > 0 {
        let piece = ZEROS.get(..left.min(PAGE_BYTES)).unwrap_or(&ZEROS);
        file.write_all(piece)?;
        left = left.saturating_sub(piece.len());
        if left.is_multiple_of(FILL_SYNC_BYTES) {
            // In small portions, so that the log's own syncs do not queue behind one large one.
            file.sync_data()?;
        }
    }
    file.sync_all()?;
    Ok(file)
}

fn file_bytes(file: &File) -> io::Result<usize> {
    usize::try_from(file.metadata()?.len()).map_err(|_| io::ErrorKind::FileTooLarge.into())
}
