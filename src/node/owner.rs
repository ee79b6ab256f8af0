//! Whose a data directory is: the small file `OWNER` beside `FORMAT`, which names the server and its cluster.
//!
//! Start and rescue, before any actor runs. What a server has promised to others is kept under its id: its data directory in
//! the hands of another server would break those promises, so a start that finds another name ends.

use std::fs::File;
use std::io::{ErrorKind, Read as _};

use corral_storage::{Disk as _, MmapDisk};

use crate::config::Config;
use crate::exit::{ExitCode, Fault};

/// The file's name.
const NAME: &str = "OWNER";
/// Bytes that are read of it; what this program writes is shorter.
const BYTES_MAX: u64 = 256;

/// Checks that the directory is this server's; one that has no owner, because it is new, gets it.
///
/// # Errors
/// When it is another server's, or cannot be read or written.
pub(crate) fn claim(disk: &MmapDisk, config: &Config) -> Result<(), Fault> {
    let own = text(config);
    let found = read(disk)?;
    if found.as_ref().is_some_and(|found| *found == own) {
        return Ok(());
    }
    let Some(found) = found else { return take(disk, config) };
    let sentence = format!(
        "{}: the data are of {}, and this is {}: correct server.server_id (or the file myid) and ensemble.cluster, choose \
         another directory, or give the data to this server with `corral rescue`",
        disk.path().display(),
        one_line(&found),
        one_line(&own)
    );
    Err(Fault::new(ExitCode::DataDirForeign, sentence))
}

/// Makes the directory this server's, whoever had it.
///
/// # Errors
/// When that cannot be written.
pub(crate) fn take(disk: &MmapDisk, config: &Config) -> Result<(), Fault> {
    disk.write_file(NAME, text(config).as_bytes()).map_err(|error| {
        let sentence = format!("{}: cannot write {NAME}: {error}", disk.path().display());
        Fault::new(ExitCode::StorageUnavailable, sentence)
    })
}

fn read(disk: &MmapDisk) -> Result<Option<String>, Fault> {
    let mut bytes = Vec::new();
    let read = File::open(disk.path().join(NAME)).and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let sentence = format!("{}: cannot read {NAME}: {error}", disk.path().display());
            Err(Fault::new(ExitCode::StorageUnavailable, sentence))
        }
    }
}

fn text(config: &Config) -> String {
    format!("server {}\ncluster {}\n", config.server.server_id, config.ensemble.cluster.as_str())
}

fn one_line(text: &str) -> String {
    let shown: String = text.trim_end().chars().filter(|one| *one == '\n' || !one.is_control()).collect();
    shown.replace('\n', ", ")
}
