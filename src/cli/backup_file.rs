//! Where a backup is written to, and read from: a file, a standard stream, or an object store.

use std::fmt::Display;
use std::fs::{File, Permissions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::mem;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use corral_backup::envelope::Head;
use corral_backup::pack::{Keys, Packer, PublicKey, read_keys};
use tempfile::TempDir;

use crate::cli::new_file::NewFile;
use crate::cli::object_store::{Download, SCHEME, Upload};
use crate::cli::time::in_name;
use crate::exit::{ExitCode, Fault};

/// Names a standard stream.
pub(super) const STANDARD: &str = "-";

/// Where its bytes go.
struct Target {
    out: PathBuf,
    place: Destination,
    extension: &'static str,
}

enum Destination {
    Standard,
    File(NewFile),
    Object(Upload),
}

impl Target {
    fn create(out: &Path, is_encrypted: bool) -> Result<Target, Fault> {
        let extension = extension(is_encrypted);
        if out == Path::new(STANDARD) {
            return Ok(Target { out: out.to_owned(), place: Destination::Standard, extension });
        }
        if let Some(url) = object(out) {
            let upload = Upload::begin(url).map_err(|error| unwritable(out, &error))?;
            return Ok(Target { out: out.to_owned(), place: Destination::Object(upload), extension });
        }
        if out.is_file() {
            let sentence = format!("{}: it is there already; choose another name, or a directory", out.display());
            return Err(Fault::new(ExitCode::Config, sentence));
        }
        if out.as_os_str().as_bytes().ends_with(b"/") && !out.is_dir() {
            let out = out.display();
            let sentence = format!("{out}: there is no such directory; make it with mkdir -p {out}");
            return Err(Fault::new(ExitCode::Config, sentence));
        }
        let name = if out.is_dir() { out.join(format!("corral-{}", std::process::id())) } else { out.to_owned() };
        let file = NewFile::create(&name).map_err(|error| unwritable(&name, &error))?;
        Ok(Target { out: out.to_owned(), place: Destination::File(file), extension })
    }

    fn finish(mut self, head: &Head) -> Result<Option<PathBuf>, Fault> {
        let file = match mem::replace(&mut self.place, Destination::Standard) {
            Destination::Standard => return Ok(None),
            Destination::Object(upload) => {
                upload.finish().map_err(|error| unwritable(&self.out, &error))?;
                return Ok(Some(self.out));
            }
            Destination::File(file) => file,
        };
        let name = if self.out.is_dir() {
            self.out.join(format!("corral-{}-{:016x}.{}", in_name(head.time_ms), head.zxid, self.extension))
        } else {
            self.out.clone()
        };
        file.finish(&name).map_err(|error| unwritable(&name, &error))?;
        Ok(Some(name))
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.place {
            Destination::Standard => io::stdout().write(bytes),
            Destination::File(file) => file.write(bytes),
            Destination::Object(upload) => upload.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if matches!(self.place, Destination::Standard) { io::stdout().flush() } else { Ok(()) }
    }
}

/// Ends the name of a backup.
pub(super) fn extension(is_encrypted: bool) -> &'static str {
    if is_encrypted { "zst.age" } else { "zst" }
}

/// A backup that is written, compressed, and encrypted if there are keys.
pub(super) struct NewBackup {
    out: PathBuf,
    packer: Packer<BufWriter<Target>>,
}

impl NewBackup {
    /// `out` is a file or object that is not there, a directory, or `-`.
    ///
    /// # Errors
    /// If it is there, or cannot be made.
    pub(super) fn begin(out: &Path, keys: &[PublicKey]) -> Result<NewBackup, Fault> {
        let target = Target::create(out, !keys.is_empty())?;
        let packer = Packer::new(BufWriter::new(target), keys).map_err(|error| unwritable(out, &error))?;
        Ok(NewBackup { out: out.to_owned(), packer })
    }

    /// Writes what `content` writes.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn write(&mut self, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Fault> {
        content(&mut self.packer).map_err(|error| unwritable(&self.out, &error))
    }

    /// Gives the whole backup its name, and returns that; `None` for standard output.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn finish(self, head: &Head) -> Result<Option<PathBuf>, Fault> {
        let unwritable = |error| unwritable(&self.out, &error);
        let written = self.packer.finish().and_then(|out| out.into_inner().map_err(io::IntoInnerError::into_error));
        let mut target = written.map_err(unwritable)?;
        target.flush().map_err(unwritable)?;
        target.finish(head)
    }
}

/// A directory for a copy of all data, which is removed at the end.
///
/// # Errors
/// If it cannot be made.
pub(super) fn scratch() -> Result<TempDir, Fault> {
    let permissions = Permissions::from_mode(0o700);
    tempfile::Builder::new().prefix("corral-").permissions(permissions).tempdir().map_err(|error| {
        Fault::new(ExitCode::StorageUnavailable, format!("no temporary directory: {error}; set TMPDIR"))
    })
}

/// The fault of writing.
pub(super) fn unwritable(path: &Path, error: &dyn Display) -> Fault {
    Fault::new(ExitCode::StorageUnavailable, format!("{}: cannot be written: {error}", path.display()))
}

/// The URL of an object.
pub(super) fn object(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| text.starts_with(SCHEME))
}

/// Which backup is read.
#[derive(Args)]
pub(super) struct Source {
    /// A backup or an archive: a file or directory, s3://BUCKET/KEY, or - for standard input
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
    /// File of the keys that decrypt it, as age-keygen writes them
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
}

impl Source {
    pub(super) fn new(backup: &Path, identity: Option<&Path>) -> Source {
        Source { backup: backup.to_owned(), identity: identity.map(Path::to_owned) }
    }

    /// Another file, with the same keys.
    pub(super) fn at(&self, path: &Path) -> Source {
        Source::new(path, self.identity.as_deref())
    }

    /// # Errors
    /// If it cannot be opened.
    pub(super) fn open(&self) -> Result<Box<dyn Read>, Fault> {
        if self.backup == Path::new(STANDARD) {
            return Ok(Box::new(io::stdin()));
        }
        let opened: Result<Box<dyn Read>, String> = match object(&self.backup) {
            Some(url) => Download::begin(url).map(|object| -> Box<dyn Read> { Box::new(object) }),
            None if self.backup.is_dir() => Err("it is a data directory; give a backup or an archive".to_owned()),
            None => File::open(&self.backup)
                .map(|file| -> Box<dyn Read> { Box::new(BufReader::new(file)) })
                .map_err(|error| error.to_string()),
        };
        opened.map_err(|error| {
            Fault::new(ExitCode::StorageUnavailable, format!("{}: cannot be read: {error}", self.backup.display()))
        })
    }

    /// # Errors
    /// If the file of the keys cannot be used.
    pub(super) fn keys(&self) -> Result<Keys, Fault> {
        let Some(path) = &self.identity else { return Ok(Keys::new()) };
        let read = File::open(path).map_err(|error| error.to_string()).and_then(|file| read_keys(BufReader::new(file)));
        read.map_err(|error| Fault::new(ExitCode::Config, format!("{}: {error}", path.display())))
    }

    pub(super) fn path(&self) -> &Path {
        &self.backup
    }

    /// A fault of this backup.
    pub(super) fn named(&self, fault: Fault) -> Fault {
        Fault { sentence: format!("{}: {}", self.backup.display(), fault.sentence), ..fault }
    }
}
