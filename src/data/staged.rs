//! Data that take the place of a server's data at its next start.
//!
//! They are in the directory `restore` below the data directory, and below the log directory if that is another one. From the moment that
//! the file `RESTORE` is there, a start moves the former data aside, and then the new data to their place. Each step can be done again.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use corral_storage::log::DURABLE_NAME;
use corral_storage::{DATA_PREFIXES, DIRECTORY_MODE, MmapDisk, SyncRecipe};

use crate::config::Config;
use crate::data::quarantine::DISTRUSTED;
use crate::data::{directories, write_marker};
use crate::exit::{ExitCode, Fault};

/// Holds the new data.
const DIRECTORY: &str = "restore";
/// Says what is to be done, and the name of the directory for the former data.
const MARKER: &str = "RESTORE";
/// Former data are moved aside, or new data to their place.
const ASIDE: &str = "aside ";
const IN_PLACE: &str = "in place ";
/// Begins the name of a directory with former data.
const FORMER: &str = "before-restore-";
/// The configuration of a server that has the new data alone.
pub(crate) fn config(config: &Config) -> Config {
    let mut staged = config.clone();
    staged.server.data_dir.push(DIRECTORY);
    staged.server.log_dir.push(DIRECTORY);
    staged
}

/// Removes what an earlier restore left that was not announced.
///
/// # Errors
/// Those of the system. If data are announced.
pub(crate) fn begin(config: &Config) -> Result<(), Fault> {
    if is_announced(config) {
        let sentence = "a restore waits for the next start of this server";
        return Err(Fault::new(ExitCode::DataDirForeign, sentence.to_owned()));
    }
    for directory in directories(config) {
        let staged = directory.join(DIRECTORY);
        match fs::remove_dir_all(&staged) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(&staged, &error)),
            _ => {}
        }
    }
    Ok(())
}

/// Says that the new data are whole. `former` distinguishes the former data from those of other restores.
///
/// # Errors
/// Those of the system.
pub(crate) fn announce(config: &Config, former: &str) -> Result<(), Fault> {
    let directory = &config.server.data_dir;
    write_marker(directory, MARKER, &format!("{ASIDE}{FORMER}{former}")).map_err(|error| failed(directory, &error))
}

/// Whether new data wait for the next start.
pub(crate) fn is_announced(config: &Config) -> bool {
    config.server.data_dir.join(MARKER).exists()
}

/// Gives new data their place, if they are announced. Gives the directory with the former data. No server runs.
///
/// # Errors
/// If a server runs on the directories. Those of the system. It is done again at the next start then.
pub(crate) fn put_in_place(config: &Config) -> Result<Option<PathBuf>, Fault> {
    let data_dir = &config.server.data_dir;
    let path = data_dir.join(MARKER);
    let damaged = || {
        let sentence = format!(
            "{} is damaged: if `{FORMER}...` is not beside it, remove it, and the server has its former data; else use \
             `corral restore`",
            path.display()
        );
        Fault::new(ExitCode::DataDamaged, sentence)
    };
    let marker = match fs::symlink_metadata(&path) {
        Ok(meta) if meta.is_file() => fs::read_to_string(&path).map_err(|_| damaged())?,
        Ok(_) => return Err(damaged()),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(data_dir, &error)),
    };
    let _lock = MmapDisk::open(data_dir, SyncRecipe::default())?;
    let (is_aside, former) = match (marker.strip_prefix(ASIDE), marker.strip_prefix(IN_PLACE)) {
        (Some(former), _) => (false, former),
        (_, Some(former)) => (true, former),
        _ => return Err(damaged()),
    };
    if !former.starts_with(FORMER) || former.contains('/') {
        return Err(damaged());
    }
    let all = |step: fn(&Path, &str) -> io::Result<()>| {
        directories(config).try_for_each(|directory| step(directory, former).map_err(|error| failed(directory, &error)))
    };
    if !is_aside {
        all(move_aside)?;
        write_marker(data_dir, MARKER, &format!("{IN_PLACE}{former}")).map_err(|error| failed(data_dir, &error))?;
    }
    all(move_in_place)?;
    let end = || {
        fs::remove_file(data_dir.join(MARKER))?;
        File::open(data_dir)?.sync_all()
    };
    end().map_err(|error| failed(data_dir, &error))?;
    Ok(Some(data_dir.join(former)))
}

fn move_aside(directory: &Path, former: &str) -> io::Result<()> {
    let to = directory.join(former);
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(&to)?;
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        if name.to_str().is_some_and(is_data) {
            fs::rename(directory.join(&name), to.join(&name))?;
        }
    }
    File::open(&to)?.sync_all()?;
    File::open(directory)?.sync_all()
}

fn move_in_place(directory: &Path, _: &str) -> io::Result<()> {
    let from = directory.join(DIRECTORY);
    let entries = match fs::read_dir(&from) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name();
        if name != "LOCK" {
            fs::rename(from.join(&name), directory.join(&name))?;
        }
    }
    File::open(directory)?.sync_all()?;
    fs::remove_dir_all(&from)
}

/// Whether a file has data, or a judgement on them. The file `OWNER` stays, so that the directory is always this server's.
fn is_data(name: &str) -> bool {
    name == DURABLE_NAME || name == DISTRUSTED || DATA_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn failed(path: &Path, error: &io::Error) -> Fault {
    Fault::new(ExitCode::StorageUnavailable, format!("{}: the restore does not go on: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server with former data and announced ones. The log is on another disk.
    fn announced(root: &Path) -> Config {
        let mut config = Config::default();
        config.server.data_dir = root.join("data");
        config.server.log_dir = root.join("log");
        for directory in directories(&config) {
            drop(MmapDisk::open(directory, SyncRecipe::default()).expect("it is made"));
            fs::create_dir(directory.join(DIRECTORY)).expect("it is made");
            fs::write(directory.join("image-1.img"), "former").expect("it is written");
            fs::write(directory.join("myid"), "1").expect("it is written");
            fs::write(directory.join(DIRECTORY).join("image-2.img"), "new").expect("it is written");
        }
        announce(&config, "1").expect("it is announced");
        config
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).expect("it is there");
        let mut names: Vec<_> = entries.map(|entry| entry.expect("it is there").file_name()).collect();
        names.sort();
        names.into_iter().map(|name| name.into_string().expect("it is text")).collect()
    }

    fn check(config: &Config) {
        assert!(!is_announced(config));
        for directory in directories(config) {
            let found: Vec<_> =
                names(directory).into_iter().filter(|name| name != "LOCK" && name != "FORMAT").collect();
            assert_eq!(found, ["before-restore-1", "image-2.img", "myid"]);
            assert!(names(&directory.join("before-restore-1")).contains(&"image-1.img".to_owned()));
        }
    }

    #[test]
    fn an_interrupted_restore_goes_on_at_the_next_start() {
        for interrupted in 0..4 {
            let root = tempfile::tempdir().expect("a temporary directory can be made");
            let config = announced(root.path());
            let data_dir = &config.server.data_dir;
            if interrupted > 0 {
                move_aside(data_dir, "before-restore-1").expect("it is moved");
            }
            if interrupted > 1 {
                move_aside(&config.server.log_dir, "before-restore-1").expect("it is moved");
                write_marker(data_dir, MARKER, "in place before-restore-1").expect("it is written");
            }
            if interrupted > 2 {
                move_in_place(data_dir, "").expect("it is moved");
            }
            assert_eq!(put_in_place(&config).expect("it goes on"), Some(data_dir.join("before-restore-1")));
            check(&config);
            assert_eq!(put_in_place(&config).expect("nothing is left"), None);
            check(&config);
        }
    }
}
