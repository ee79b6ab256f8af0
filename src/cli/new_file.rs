//! A file that appears under its name when it is whole, for its owner alone.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Ends the name of a file that is not whole.
const UNFINISHED: &str = ".unfinished";

/// The file, while it is written. It is removed unless it is finished.
pub(super) struct NewFile {
    file: File,
    unfinished: PathBuf,
}

impl NewFile {
    /// Begins a file beside its later name. Another process that writes the same has a file of its own.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn create(name: &Path) -> io::Result<NewFile> {
        let mut unfinished = name.as_os_str().to_owned();
        unfinished.push(format!(".{}{UNFINISHED}", std::process::id()));
        NewFile::create_as(unfinished.into())
    }

    /// Begins a file under the name that it has until it is finished.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn create_as(unfinished: PathBuf) -> io::Result<NewFile> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        Ok(NewFile { file, unfinished })
    }

    /// Makes the file durable, and gives it its name in the same directory.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn finish(self, name: &Path) -> io::Result<()> {
        let directory = name.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        self.file.sync_all()?;
        fs::rename(&self.unfinished, name)?;
        File::open(directory)?.sync_all()
    }
}

impl io::Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // Its name says that it is not whole. After the end it has another name.
        let _ = fs::remove_file(&self.unfinished);
    }
}
