//! A file of lines, and its predecessors, which have numbers: of the audit log, or of the log.
//!
//! For the thread that writes it. Every call leaves whole lines in the file.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The file that is written now, if it is open.
pub(crate) struct RollingFile {
    path: PathBuf,
    /// At this length another file begins; 0: at none.
    bytes_max: u64,
    /// Predecessors that are kept.
    retained: u16,
    /// The key of the configuration that gives `bytes_max`.
    key: &'static str,
    /// With its length.
    open: Option<(File, u64)>,
}

impl RollingFile {
    /// Opens the file. It and its directory are made if they are missing, for their owner alone.
    ///
    /// # Errors
    /// When it cannot be opened, or is no regular file.
    pub(crate) fn open(path: PathBuf, bytes_max: u64, retained: u16, key: &'static str) -> io::Result<RollingFile> {
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        let mut file = RollingFile { path, bytes_max, retained, key, open: None };
        file.opened()?;
        file.check_directory()?;
        Ok(file)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The next line goes to the file that has the path then.
    pub(crate) fn close(&mut self) {
        self.open = None;
    }

    /// Appends lines, in further files if one is full. Written lines are taken off the front.
    ///
    /// # Errors
    /// When the rest cannot be written. It may be tried again.
    pub(crate) fn append(&mut self, lines: &mut Vec<u8>) -> io::Result<()> {
        while !lines.is_empty() {
            let whole = lines.len();
            let bytes_max = self.bytes_max;
            let (file, length) = self.opened()?;
            let room = if bytes_max == 0 { u64::MAX } else { bytes_max.saturating_sub(*length) };
            let room = usize::try_from(room).unwrap_or(usize::MAX).min(whole);
            let end = |at: usize| at + 1;
            let mut fit = lines[..room].iter().rposition(|byte| *byte == b'\n').map_or(0, end);
            if fit == 0 && *length > 0 {
                self.rotate()?;
                continue;
            }
            if fit == 0 {
                fit = lines.iter().position(|byte| *byte == b'\n').map_or(whole, end);
            }
            if let Err(error) = file.write_all(&lines[..fit]) {
                // Of a line that is not written whole, nothing stays.
                let _ = file.set_len(*length);
                self.open = None;
                return Err(error);
            }
            *length += fit as u64;
            lines.drain(..fit);
        }
        Ok(())
    }

    /// A full file is renamed, which needs the right to write in its directory.
    fn check_directory(&self) -> io::Result<()> {
        use rustix::fs::{Access, access};
        let parent = self.path.parent().filter(|directory| !directory.as_os_str().is_empty());
        let may_rename = access(parent.unwrap_or(Path::new(".")), Access::WRITE_OK | Access::EXEC_OK);
        match may_rename {
            Err(error) if self.bytes_max > 0 => Err(io::Error::other(format!(
                "full files cannot be renamed in its directory ({error}); give the right to write there, or set {} = 0",
                self.key
            ))),
            _ => Ok(()),
        }
    }

    fn opened(&mut self) -> io::Result<&mut (File, u64)> {
        let opened = match self.open.take() {
            Some(open) => open,
            None => open(&self.path)?,
        };
        Ok(self.open.insert(opened))
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.open = None;
        let numbered = |number: u16| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        for number in (1..self.retained).rev() {
            rename(&numbered(number), &numbered(number + 1))?;
        }
        rename(&self.path, &numbered(1))
    }
}

fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        renamed => renamed,
    }
}

fn open(path: &Path) -> io::Result<(File, u64)> {
    // A pipe would wait for a reader.
    let flags = nix::fcntl::OFlag::O_NONBLOCK.bits();
    let mut file =
        OpenOptions::new().read(true).append(true).create(true).mode(0o600).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut length = meta.len();
    let mut last = [b'\n'];
    if length > 0 {
        file.read_exact_at(&mut last, length - 1)?;
    }
    if last != [b'\n'] {
        // A line that a crash of the host cut short.
        file.write_all(b"\n")?;
        length += 1;
    }
    Ok((file, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "audit.file_bytes_max";

    fn texts(path: &Path) -> Vec<String> {
        let numbered = (0..5).map(|number| if number == 0 { String::new() } else { format!(".{number}") });
        let paths = numbered.map(|end| PathBuf::from(format!("{}{end}", path.display())));
        paths.map_while(|path| fs::read_to_string(path).ok()).collect()
    }

    #[test]
    fn full_files_are_numbered_and_the_oldest_goes() {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let path = dir.path().join("audit.log");
        let mut file = RollingFile::open(path.clone(), 8, 2, KEY).expect("the directory is writable");
        let mut append = |text: &str| {
            let mut lines = text.as_bytes().to_vec();
            file.append(&mut lines).expect("the directory is writable");
            assert!(lines.is_empty());
            texts(&path)
        };
        assert_eq!(append("one\ntwo\n"), ["one\ntwo\n"]);
        assert_eq!(append("3\n4\nfive\nsix\n"), ["six\n", "five\n", "3\n4\n"], "a line stays whole");
        assert_eq!(append("longer than may be\n7\n"), ["7\n", "longer than may be\n", "six\n"]);
    }

    #[test]
    fn a_line_that_was_cut_short_is_ended_first() {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let path = dir.path().join("audit.log");
        fs::write(&path, "whole\ncut").expect("the directory is writable");
        let mut file = RollingFile::open(path.clone(), 0, 1, KEY).expect("the directory is writable");
        file.append(&mut b"next\n".to_vec()).expect("the directory is writable");
        assert_eq!(texts(&path), ["whole\ncut\nnext\n"]);
    }

    #[test]
    fn a_file_that_was_moved_away_is_made_anew_after_it_is_closed() {
        let dir = tempfile::tempdir().expect("a directory can be made");
        let path = dir.path().join("audit.log");
        let mut file = RollingFile::open(path.clone(), 0, 1, KEY).expect("the directory is writable");
        file.append(&mut b"one\n".to_vec()).expect("the directory is writable");
        fs::rename(&path, dir.path().join("audit.log.1")).expect("it is there");
        file.close();
        file.append(&mut b"two\n".to_vec()).expect("the directory is writable");
        assert_eq!(texts(&path), ["two\n", "one\n"]);
    }

    #[test]
    fn only_a_regular_file_is_written() {
        let dir = tempfile::tempdir().expect("a directory can be made");
        assert!(RollingFile::open(dir.path().to_owned(), 0, 1, KEY).is_err());
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("the directory is writable");
        assert!(RollingFile::open(pipe, 0, 1, KEY).is_err());
    }
}
