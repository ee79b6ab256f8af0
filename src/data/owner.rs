//! The owner of a data directory: the small file `OWNER` beside `FORMAT`, which names the server and its cluster.
//!
//! Start and rescue, before any actor runs. A server's promises to others are kept under its id. Its data directory in
//! the hands of another server would break those promises, so a start that finds another name ends.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Display, Path};

use corral_storage::log::DURABLE_NAME;
use corral_storage::{DATA_PREFIXES, DIRECTORY_MODE, Disk as _, MmapDisk};

use crate::config::Config;
use crate::data::{directories, write_marker};
use crate::exit::{ExitCode, Fault};
use corral_peer::ClusterName;

/// The file's name.
const NAME: &str = "OWNER";
/// Its content while an import into the directory is not complete.
const UNFINISHED: &str = "import\n";
/// Files that an empty data directory may hold.
const EMPTY: [&str; 6] = ["FORMAT", "LOCK", "OWNER.tmp", "initialize", "lost+found", "myid"];
/// Bytes that are read of it; what this program writes is shorter.
const BYTES_MAX: u64 = 256;

/// Checks that the directory is this server's; a new directory without an owner gets this server as its owner.
///
/// # Errors
/// When it is another server's, does not say so in a way that can be read, or cannot be read or written.
pub(crate) fn claim(disk: &MmapDisk, config: &Config) -> Result<(), Fault> {
    let own = text(config);
    let Some(found) = read(disk.path())? else {
        if holds_data(disk)? {
            tracing::warn!("{} holds data and no file {NAME}: taken for the data of {}", at(disk), one_line(&own));
        }
        return take(disk, config);
    };
    if is_unfinished(&found) { Err(unfinished(disk.path())) } else { compare(disk.path(), &found, &own) }
}

/// Checks as a start does that the directory is this server's. Nothing is written. A directory without an owner that can be
/// read passes, and so does an unfinished import.
///
/// # Errors
/// When it is another server's, or does not say so in a way that can be read.
pub(crate) fn check(directory: &Path, config: &Config) -> Result<(), Fault> {
    match read(directory) {
        Ok(Some(found)) if !is_unfinished(&found) => compare(directory, &found, &text(config)),
        _ => Ok(()),
    }
}

fn compare(directory: &Path, found: &str, own: &str) -> Result<(), Fault> {
    if found == own {
        return Ok(());
    }
    let at = directory.display();
    if !is_owner(found) {
        let sentence = format!(
            "{at}/{NAME} is damaged, it says {found:?}: if the data are those of {}, remove that file, the start writes it anew",
            one_line(own)
        );
        return Err(Fault::new(ExitCode::DataDamaged, sentence));
    }
    let sentence = format!(
        "{at}: the data are of {}, and this is {}: correct server.server_id (or the file myid) and ensemble.cluster, or choose \
         another directory; a server of an ensemble may also start with this one emptied but for `myid`, and receives all data; without any \
         other server, give the data to this one with `corral rescue`",
        one_line(found),
        one_line(own)
    );
    Err(Fault::new(ExitCode::DataDirForeign, sentence))
}

/// Checks that no import into the directory ended half-way.
///
/// # Errors
/// When one did, or the file cannot be read.
pub(crate) fn refuse_unfinished(disk: &MmapDisk) -> Result<(), Fault> {
    match read(disk.path())? {
        Some(found) if is_unfinished(&found) => Err(unfinished(disk.path())),
        _ => Ok(()),
    }
}

fn unfinished(directory: &Path) -> Fault {
    let sentence =
        format!("{}: an import or restore into it did not finish: run the same command again", directory.display());
    Fault::new(ExitCode::DataDirForeign, sentence)
}

/// Whether this content of the file says that an import or restore into the directory ended half-way.
pub(crate) fn is_unfinished(found: &str) -> bool {
    found.starts_with(UNFINISHED)
}

/// Checks, before anything is read, that an import may write here.
///
/// # Errors
/// When one of the directories holds data.
pub(crate) fn check_new(config: &Config) -> Result<(), Fault> {
    let (data_dir, log_dir) = (&config.server.data_dir, &config.server.log_dir);
    let found = |directory: &Path| fs::read_to_string(directory.join(NAME)).unwrap_or_default();
    if !is_unfinished(&found(data_dir)) {
        check_empty(data_dir)?;
    }
    // The log directory gets its owner shortly before the data directory.
    let is_begun = found(data_dir) == begun(config) || is_unfinished(&found(log_dir));
    if is_begun { Ok(()) } else { check_empty(log_dir) }
}

/// Checks that the directory, as far as it can be listed, holds nothing but the files of an empty one.
///
/// # Errors
/// When it holds others.
pub(crate) fn check_empty(directory: &Path) -> Result<(), Fault> {
    let names = fs::read_dir(directory).into_iter().flatten();
    let mut names: Vec<String> = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names.iter().find(|name| !EMPTY.contains(&&***name)).map_or(Ok(()), |found| Err(holds_others(directory, found)))
}

/// The content of the file while an import is not complete: with the log directory, which was empty when it began.
fn begun(config: &Config) -> String {
    format!("{UNFINISHED}{}\n", config.server.log_dir.display())
}

/// Creates the directories, and marks them as those of an unfinished import before any other file exists.
///
/// # Errors
/// When that cannot be written.
pub(crate) fn announce_import(config: &Config) -> Result<(), Fault> {
    for directory in directories(config) {
        let write = || {
            DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)?;
            write_marker(directory, NAME, &begun(config))
        };
        write().map_err(|error| {
            let sentence = format!("{}: cannot be written: {error}", directory.display());
            Fault::new(ExitCode::StorageUnavailable, sentence)
        })?;
    }
    Ok(())
}

fn holds_others(directory: &Path, found: &str) -> Fault {
    let sentence = format!(
        "{}: holds data ({found}): an import or restore makes a new data directory, choose another",
        directory.display()
    );
    Fault::new(ExitCode::DataDirForeign, sentence)
}

/// Removes the files of an import that did not finish, in a directory that [`announce_import`] has marked.
///
/// # Errors
/// When it is not marked, or cannot be written.
pub(crate) fn begin_import(disk: &MmapDisk) -> Result<(), Fault> {
    let failed = |error: io::Error| {
        Fault::new(ExitCode::StorageUnavailable, format!("{}: cannot be written: {error}", at(disk)))
    };
    if !read(disk.path())?.is_some_and(|found| is_unfinished(&found)) {
        return Err(holds_others(disk.path(), NAME));
    }
    let is_ours = |name: &&String| DATA_PREFIXES.iter().chain(&[DURABLE_NAME]).any(|prefix| name.starts_with(prefix));
    disk.list().and_then(|names| names.iter().filter(is_ours).try_for_each(|name| disk.remove(name))).map_err(failed)
}

/// Makes this server the owner of the directory, in place of any other.
///
/// # Errors
/// When that cannot be written.
pub(crate) fn take(disk: &MmapDisk, config: &Config) -> Result<(), Fault> {
    disk.write_file(NAME, text(config).as_bytes()).map_err(|error| {
        let sentence = format!("{}: cannot write {NAME}: {error}", at(disk));
        Fault::new(ExitCode::StorageUnavailable, sentence)
    })
}

/// The content of the file, if there is one.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn read(directory: &Path) -> Result<Option<String>, Fault> {
    let mut bytes = Vec::new();
    let read = File::open(directory.join(NAME)).and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let sentence = format!("{}: cannot read {NAME}: {error}", directory.display());
            Err(Fault::new(ExitCode::StorageUnavailable, sentence))
        }
    }
}

fn text(config: &Config) -> String {
    format!("server {}\ncluster {}\n", config.server.server_id, config.ensemble.cluster.as_str())
}

/// Whether a server has written this.
fn is_owner(text: &str) -> bool {
    let mut lines = text.lines();
    let server = lines.next().and_then(|line| line.strip_prefix("server ")?.parse::<u8>().ok());
    let cluster = lines.next().and_then(|line| line.strip_prefix("cluster ")).and_then(ClusterName::new);
    server.is_some() && cluster.is_some() && lines.next().is_none() && text.ends_with('\n')
}

/// Whether it holds more than a new directory.
fn holds_data(disk: &MmapDisk) -> Result<bool, Fault> {
    let names = disk.list().map_err(|error| {
        Fault::new(ExitCode::StorageUnavailable, format!("{}: cannot be listed: {error}", at(disk)))
    })?;
    Ok(names.iter().any(|name| name.starts_with("image-") || name.starts_with("log-")))
}

fn at(disk: &MmapDisk) -> Display<'_> {
    disk.path().display()
}

fn one_line(text: &str) -> String {
    text.trim_end().replace('\n', ", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_or_overwritten_names_nobody() {
        assert!(is_owner("server 7\ncluster a-b\n"));
        for damaged in [
            "",
            "\n",
            "server 7\n",
            "server 7\ncluster a-b",
            "server 700\ncluster a\n",
            "\0\0",
            "server 7\ncluster a\nx\n",
        ] {
            assert!(!is_owner(damaged), "{damaged:?}");
        }
    }
}
