//! The data directory beside log and snapshots: its owner, quarantined data, the last known membership; and snapshots
//! between files and the core.
//!
//! Files alone. Knows no actor.

pub(crate) mod backups;
pub(crate) mod committed;
pub(crate) mod damage;
pub(crate) mod lenders;
pub(crate) mod owner;
pub(crate) mod quarantine;
pub(crate) mod remembered;
pub(crate) mod snapshots;
pub(crate) mod staged;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::config::Config;

/// The data directory, and the log directory if that is another one.
pub(crate) fn directories(config: &Config) -> impl Iterator<Item = &Path> {
    let (data_dir, log_dir) = (&config.server.data_dir, &config.server.log_dir);
    [Some(data_dir), Some(log_dir).filter(|log_dir| *log_dir != data_dir)].into_iter().flatten().map(PathBuf::as_path)
}

/// Writes a small file that marks the directory. It is there as a whole, and durable, or not at all: a crash leaves at
/// most a `.tmp` file.
fn write_marker(directory: &Path, name: &str, text: &str) -> io::Result<()> {
    let unfinished = directory.join(format!("{name}.tmp"));
    fs::write(&unfinished, text)?;
    File::open(&unfinished)?.sync_all()?;
    fs::rename(&unfinished, directory.join(name))?;
    File::open(directory)?.sync_all()
}
