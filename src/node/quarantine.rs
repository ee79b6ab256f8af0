//! Damaged data of a server of an ensemble: they are put aside at the start, and the server begins without data, to be given
//! everything by the others.
//!
//! Such a server has lost its promises with its data. It comes back as one whose disk was emptied: the leader takes it out of
//! the members and lets it in again. It founds no new ensemble, whatever the other servers say: the file [`MARK`] stands until
//! another server's image is here.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use corral_storage::{Disk as _, MmapDisk};

use crate::config::Config;
use crate::exit::{ExitCode, Fault};

/// Where the damaged files are put; those of an earlier time are removed.
const ASIDE: &str = "damaged";
/// Present while this server waits for another one's image.
const MARK: &str = "HEALING";

/// Puts images and log aside, and marks the directory. The server holds no data then.
///
/// # Errors
/// When that cannot be done; a part may have been put aside. Started again, the rest is.
pub(crate) fn put_aside(config: &Config) -> Result<(), Fault> {
    let (data, log) = (&config.server.data_dir, &config.server.log_dir);
    // First: what was put aside in part is never taken for a server that is new.
    fs::write(data.join(MARK), "damaged data were put aside: this server waits for another server's image\n")
        .and_then(|()| fs::File::open(data.join(MARK))?.sync_all())
        .and_then(|()| fs::File::open(data)?.sync_all())
        .map_err(|error| fault(data, &error))?;
    aside(data).map_err(|error| fault(data, &error))?;
    if log != data {
        aside(log).map_err(|error| fault(log, &error))?;
    }
    Ok(())
}

fn fault(path: &Path, error: &io::Error) -> Fault {
    let sentence = format!("{}: damaged data cannot be put aside: {error}", path.display());
    Fault::new(ExitCode::StorageUnavailable, sentence)
}

fn aside(path: &Path) -> io::Result<()> {
    let to = path.join(ASIDE);
    if to.try_exists()? && holds_state(path)? {
        fs::remove_dir_all(&to)?;
    }
    // As the data directory: the files hold session passwords.
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&to)?;
    for name in files(path)? {
        fs::rename(path.join(&name), to.join(&name))?;
    }
    fs::File::open(&to)?.sync_all()?;
    fs::File::open(path)?.sync_all()
}

/// Whether anything is to be put aside.
fn holds_state(path: &Path) -> io::Result<bool> {
    Ok(!files(path)?.is_empty())
}

fn files(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        let Ok(name) = entry?.file_name().into_string() else { continue };
        let state = ["image-", "log-", "spare-"].iter().any(|prefix| name.starts_with(prefix)) || name == "DURABLE";
        if state {
            names.push(name);
        }
    }
    Ok(names)
}

/// Puts one file of the data directory aside.
///
/// # Errors
/// When that cannot be done.
pub(crate) fn put_file_aside(disk: &MmapDisk, name: &str) -> io::Result<()> {
    let to = disk.path().join(ASIDE);
    fs::create_dir_all(&to)?;
    fs::rename(disk.path().join(name), to.join(name))?;
    disk.sync_dir()
}

/// Whether this server waits for another one's image because its data were damaged. `has_data`: it has come.
///
/// # Errors
/// When the mark cannot be removed.
pub(crate) fn waits(disk: &MmapDisk, has_data: bool) -> Result<bool, Fault> {
    let fault = |error| fault(disk.path(), &error);
    if !disk.path().join(MARK).try_exists().map_err(fault)? {
        return Ok(false);
    }
    if has_data {
        disk.remove(MARK).map_err(fault)?;
    }
    Ok(!has_data)
}
