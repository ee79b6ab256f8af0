//! A directory for ZooKeeper with one snapshot, which appears whole and durable or not at all.
//!
//! The main thread only.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use corral_core::ids::Zxid;
use corral_zookeeper::directory::VERSION_DIRECTORY;
use corral_zookeeper::export::file_name;

use crate::cli::new_file::NewFile;
use crate::exit::{ExitCode, Fault};

/// A file that is not whole.
const UNFINISHED: &str = "unfinished";

/// The directory, while its snapshot is written.
pub(super) struct ZooKeeperDir(PathBuf);

impl ZooKeeperDir {
    /// `out` is the dataDir. Of two snapshots ZooKeeper would start with the newer one, so there must be none.
    ///
    /// # Errors
    /// If it holds files of ZooKeeper, or cannot be read.
    pub(super) fn new(out: &Path) -> Result<ZooKeeperDir, Fault> {
        let directory = out.join(VERSION_DIRECTORY);
        let refused =
            |what: String| Err(Fault::new(ExitCode::DataDirForeign, format!("{}: {what}", directory.display())));
        match fs::read_dir(&directory) {
            Ok(entries) => {
                if let Some(found) = entries.flatten().map(|entry| entry.file_name()).find(|name| name != UNFINISHED) {
                    return refused(format!("holds {}: choose another directory", found.to_string_lossy()));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return refused(error.to_string()),
        }
        Ok(ZooKeeperDir(directory))
    }

    /// Begins the snapshot. Its owner alone may read it, because it holds all data.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn begin(&self) -> Result<NewFile, Fault> {
        let create = || {
            fs::create_dir_all(&self.0)?;
            NewFile::create_as(self.0.join(UNFINISHED))
        };
        create().map_err(|error| self.failed(&error))
    }

    /// Gives the whole file its name, and returns that.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn finish(&self, file: NewFile, zxid: Zxid) -> Result<PathBuf, Fault> {
        let name = self.0.join(file_name(zxid));
        file.finish(&name).map_err(|error| self.failed(&error))?;
        Ok(name)
    }

    /// The fault of writing.
    pub(super) fn failed(&self, error: &io::Error) -> Fault {
        Fault::new(ExitCode::StorageUnavailable, format!("{}: cannot be written: {error}", self.0.display()))
    }
}
