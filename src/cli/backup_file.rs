//! Where a backup is written to, and read from: a file or a standard stream.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use corral_backup::envelope::Head;
use corral_backup::pack::{Keys, read_keys};
use time::UtcDateTime;

use crate::exit::{ExitCode, Fault};

/// Ends the name of a file that is not whole.
const UNFINISHED: &str = ".unfinished";
/// Names a standard stream.
pub(super) const STANDARD: &str = "-";

/// A backup that is written.
pub(super) struct Target {
    out: PathBuf,
    /// `None` for standard output.
    file: Option<(File, PathBuf)>,
    extension: &'static str,
}

impl Target {
    /// `out` is a file that is not there, a directory, or `-`.
    ///
    /// # Errors
    /// If the file is there, or cannot be made.
    pub(super) fn create(out: &Path, is_encrypted: bool) -> Result<Target, Fault> {
        let extension = if is_encrypted { "zst.age" } else { "zst" };
        if out == Path::new(STANDARD) {
            return Ok(Target { out: out.to_owned(), file: None, extension });
        }
        if out.is_file() {
            let sentence = format!("{}: it is there already; choose another name, or a directory", out.display());
            return Err(Fault::new(ExitCode::Config, sentence));
        }
        let unfinished = match out.file_name().filter(|_| !out.is_dir()) {
            Some(name) => out.with_file_name(format!("{}{UNFINISHED}", name.to_string_lossy())),
            None => out.join(format!("corral-{}{UNFINISHED}", std::process::id())),
        };
        // Its owner alone may read it, because it holds all data.
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished);
        let file = file.map_err(|error| failed(&unfinished, &error))?;
        Ok(Target { out: out.to_owned(), file: Some((file, unfinished)), extension })
    }

    /// Gives the whole backup its name, and returns that; `None` for standard output.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn finish(mut self, head: &Head) -> Result<Option<PathBuf>, Fault> {
        let Some((file, unfinished)) = self.file.take() else { return Ok(None) };
        let name = if self.out.is_dir() {
            let time = stamp(head.time_ms, ["", ""]);
            self.out.join(format!("corral-{time}-{:016x}.{}", head.zxid, self.extension))
        } else {
            self.out.clone()
        };
        let directory = name.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let finish = || {
            file.sync_all()?;
            fs::rename(&unfinished, &name)?;
            File::open(directory)?.sync_all()
        };
        finish().map_err(|error| failed(&name, &error))?;
        Ok(Some(name))
    }

    /// The fault of writing.
    pub(super) fn failed(&self, error: &io::Error) -> Fault {
        failed(&self.out, error)
    }
}

impl Write for &Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.file {
            Some((file, _)) => (&mut &*file).write(bytes),
            None => io::stdout().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.file.is_none() { io::stdout().flush() } else { Ok(()) }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some((_, unfinished)) = &self.file {
            // Its name says that it is not whole.
            let _ = fs::remove_file(unfinished);
        }
    }
}

fn failed(path: &Path, error: &io::Error) -> Fault {
    Fault::new(ExitCode::StorageUnavailable, format!("{}: cannot be written: {error}", path.display()))
}

/// Which backup is read.
#[derive(Args)]
pub(super) struct Source {
    /// A backup that `corral backup` wrote, or - for standard input
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
    /// File of the keys that decrypt it, as age-keygen writes them
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
}

impl Source {
    /// # Errors
    /// If it cannot be opened.
    pub(super) fn open(&self) -> Result<Box<dyn Read>, Fault> {
        if self.backup == Path::new(STANDARD) {
            return Ok(Box::new(io::stdin()));
        }
        let file = File::open(&self.backup).map_err(|error| {
            Fault::new(ExitCode::StorageUnavailable, format!("{}: cannot be read: {error}", self.backup.display()))
        })?;
        Ok(Box::new(BufReader::new(file)))
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

/// A time in UTC, with separators in date and time.
pub(super) fn stamp(time_ms: i64, [date, time]: [&str; 2]) -> String {
    let at = UtcDateTime::from_unix_timestamp(time_ms.div_euclid(1000)).unwrap_or(UtcDateTime::UNIX_EPOCH);
    let (day, (hour, minute, second)) = (at.date(), at.as_hms());
    let (year, month, day) = (day.year(), u8::from(day.month()), day.day());
    format!("{year:04}{date}{month:02}{date}{day:02}T{hour:02}{time}{minute:02}{time}{second:02}Z")
}
