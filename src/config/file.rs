//! Reads the text of a configuration file, to a limit.
//!
//! Start-up only, on the main thread; it may block. It does not know the formats.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Largest configuration file that is read, bytes.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 20;

/// Gives the text of a further file that a configuration names.
pub(crate) type ReadFile<'a> = &'a dyn Fn(&Path) -> Result<String, FileError>;

/// Why a file is not read: path and cause.
#[derive(Debug, thiserror::Error)]
#[error("{} {cause}", path.display())]
pub(crate) struct FileError {
    pub(crate) path: PathBuf,
    pub(crate) cause: FileCause,
}

/// The second half of the message of a `FileError`, for messages that show the path before it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileCause {
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    #[error("is larger than {0} bytes")]
    TooLarge(u64),
    #[error("is no regular file")]
    NoFile,
}

/// The text of a file. Bytes that are no UTF-8 are taken as Latin-1, as Java does.
///
/// # Errors
/// When the file cannot be read, or is larger than `FILE_BYTES_MAX`.
pub(crate) fn read_text(path: &Path) -> Result<String, FileError> {
    let read = File::open(path).map_err(FileCause::from).and_then(|file| read_to_limit(file, FILE_BYTES_MAX));
    read.map(text_of).map_err(|cause| FileError { path: path.to_owned(), cause })
}

/// The text of these bytes, as [`read_text`] takes it.
pub(crate) fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| error.into_bytes().into_iter().map(char::from).collect())
}

/// The bytes of a file with secrets, which only its owner may use.
///
/// # Errors
/// Cause and remedy, for a message that shows the path before it.
pub(crate) fn read_private(path: &Path, bytes_max: u64) -> Result<Vec<u8>, String> {
    let unreadable = |error: io::Error| format!("it cannot be read: {error}; name a file that this user may read");
    let file = open(path).map_err(unreadable)?;
    let meta = file.metadata().map_err(unreadable)?;
    if !meta.is_file() {
        return Err("it is no regular file; name a file with a secret".to_owned());
    }
    let mode = meta.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(format!("others than its owner may use it (mode {mode:04o}); chmod 600 {}", path.display()));
    }
    read_to_limit(file, bytes_max).map_err(|cause| match cause {
        FileCause::Unreadable(error) => unreadable(error),
        cause => format!("it {cause}; name a file with a secret"),
    })
}

/// The bytes of a regular file. Others could keep the reader waiting, or never end.
///
/// # Errors
/// When the file is no regular one, cannot be read, or is larger than `bytes_max`.
pub(crate) fn read_regular(path: &Path, bytes_max: u64) -> Result<Vec<u8>, FileCause> {
    let file = open(path)?;
    if !file.metadata()?.is_file() {
        return Err(FileCause::NoFile);
    }
    read_to_limit(file, bytes_max)
}

/// Opens a file to read it. Of a pipe it does not wait for the other side.
fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path)
}

fn read_to_limit(file: File, bytes_max: u64) -> Result<Vec<u8>, FileCause> {
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max { Err(FileCause::TooLarge(bytes_max)) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// To read one of these would take for ever.
    #[test]
    fn pipes_and_devices_are_not_read() {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("the directory is writable");
        for path in [&*pipe, Path::new("/dev/zero"), dir.path()] {
            assert!(matches!(read_regular(path, 10), Err(FileCause::NoFile)), "{}", path.display());
            assert!(read_private(path, 10).is_err());
        }
        let file = dir.path().join("file");
        std::fs::write(&file, "12345678901").expect("the directory is writable");
        assert!(matches!(read_regular(&file, 10), Err(FileCause::TooLarge(10))));
        assert_eq!(read_regular(&file, 11).expect("it fits").len(), 11);
    }
}
