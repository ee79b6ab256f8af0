//! Damaged data of a server of an ensemble. They are put aside at the start, and the server begins without data. The
//! other servers then send it everything.
//!
//! Such a server has lost its promises with its data. It comes back as a server with an emptied disk: the leader takes
//! it out of the members and lets it in again. It founds no new ensemble, whatever the other servers say: the file
//! [`MARK`] stands until another server's snapshot is here.
//!
//! A state that differs from the other servers' leaves snapshots with matching checksums. The file [`DISTRUSTED`]
//! stands from then until another server's snapshot has taken its place. A server that is started with it serves
//! nothing before, and goes on voting with its log.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use corral_storage::{Disk as _, Dump, DumpItem, MmapDisk, RecordKind};

use crate::config::Config;
use crate::data::write_marker;
use crate::exit::{ExitCode, Fault};

/// Where the damaged files are put.
pub(crate) const ASIDE: &str = "damaged";
/// Where those of the time before are; still earlier ones are removed.
const ASIDE_BEFORE: &str = "damaged-before";
/// Present while this server waits for another one's snapshot.
const MARK: &str = "HEALING";
/// Present while the snapshots here are of a state that is not to be trusted, although their checksums are right; holds
/// why.
pub(super) const DISTRUSTED: &str = "DISTRUSTED";
/// Of that file more is not read.
const REASON_BYTES_MAX: u64 = 4096;

/// Puts snapshots and log aside, and marks the directory. The server holds no data then.
///
/// # Errors
/// When that cannot be done; a part may have been put aside. Started again, the rest is.
pub(crate) fn put_aside(config: &Config) -> Result<(), Fault> {
    let (data, log) = (&config.server.data_dir, &config.server.log_dir);
    // First: what was put aside in part is never taken for a server that is new.
    write_marker(data, MARK, "damaged data were put aside: this server waits for another server's snapshot\n")
        .map_err(|error| fault(data, &error))?;
    aside(data).map_err(|error| fault(data, &error))?;
    if log != data {
        aside(log).map_err(|error| fault(log, &error))?;
    }
    // The state that it speaks of is gone.
    remove(data, DISTRUSTED).map_err(|error| fault(data, &error))
}

fn fault(path: &Path, error: &io::Error) -> Fault {
    let sentence = format!("{}: damaged data cannot be put aside: {error}", path.display());
    Fault::new(ExitCode::StorageUnavailable, sentence)
}

fn aside(path: &Path) -> io::Result<()> {
    let to = path.join(ASIDE);
    if to.try_exists()? && holds_state(path)? {
        if is_bare(path)? {
            // It takes the place of nothing that was put aside before, which may be the only copy of entries.
            return files(path)?.iter().try_for_each(|name| fs::remove_file(path.join(name)));
        }
        let before = path.join(ASIDE_BEFORE);
        match fs::remove_dir_all(&before) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => fs::rename(&to, before)?,
        }
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

/// Whether the files here hold no snapshot and no log entry, as far as can be told with certainty. Such files are of a
/// server that began without data.
fn is_bare(path: &Path) -> io::Result<bool> {
    if files(path)?.iter().any(|name| name.starts_with("image-")) {
        return Ok(false);
    }
    let Ok(disk) = MmapDisk::open_read_only(path) else { return Ok(false) };
    let is_empty = |item: DumpItem| match item {
        DumpItem::Record(record) => !matches!(record.kind, RecordKind::Entry | RecordKind::Membership),
        DumpItem::Segment { fault, .. } => fault.is_none(),
        DumpItem::Gap { zero, .. } => zero,
        DumpItem::Durable { .. } | DumpItem::Mark { .. } => true,
        _ => false,
    };
    Ok(Dump::new(disk)?.all(is_empty))
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

/// Marks the state as not trusted from here on, also for later processes, for this reason.
///
/// # Errors
/// When that cannot be made durable.
pub(crate) fn mark_distrusted(data: &Path, reason: &str) -> io::Result<()> {
    let path = data.join(DISTRUSTED);
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    writeln!(file, "{reason}")?;
    file.sync_all()?;
    fs::File::open(data)?.sync_all()
}

/// Another server's snapshot has taken the place of the state: no file says any more that it is missing or not to be
/// trusted.
///
/// # Errors
/// When a mark cannot be removed.
pub(crate) fn clear_marks(data: &Path) -> io::Result<()> {
    remove(data, DISTRUSTED)?;
    remove(data, MARK)
}

/// Why the state here is not to be trusted, if that is known from an earlier process.
///
/// # Errors
/// When the mark cannot be read.
pub(crate) fn distrusted(data: &Path) -> Result<Option<String>, Fault> {
    let file = match fs::File::open(data.join(DISTRUSTED)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fault(data, &error)),
    };
    let reason = io::read_to_string(io::Read::take(file, REASON_BYTES_MAX)).map_err(|error| fault(data, &error))?;
    Ok(Some(reason.trim().to_owned()))
}

/// For a server without others.
///
/// # Errors
/// When the state here is not to be trusted.
pub(crate) fn refuse_distrusted(data: &Path) -> Result<(), Fault> {
    let Some(reason) = distrusted(data)? else { return Ok(()) };
    let sentence = format!(
        "{}: the state in this data directory is not to be trusted: {reason}; start it as a server of its ensemble, which replaces \
         it, or use the data of another server",
        data.join(DISTRUSTED).display()
    );
    Err(Fault::new(ExitCode::DataDamaged, sentence))
}

fn remove(path: &Path, name: &str) -> io::Result<()> {
    match fs::remove_file(path.join(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => fs::File::open(path)?.sync_all(),
    }
}

/// Puts one file of the data directory aside.
///
/// # Errors
/// When that cannot be done.
pub(crate) fn put_file_aside(disk: &MmapDisk, name: &str) -> io::Result<()> {
    let to = disk.path().join(ASIDE);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&to)?;
    fs::rename(disk.path().join(name), to.join(name))?;
    disk.sync_dir()
}

/// Whether this server waits for another one's snapshot because its data were damaged. `has_data`: it has come.
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

#[cfg(test)]
mod tests {
    use super::*;
    use corral_storage::{Log, LogConfig, SyncRecipe};
    use corral_types::{EntryKind, HardState, Index, Record, ServerId, StoredEntry, Term};

    #[test]
    fn distrust_lasts_until_it_is_cleared() {
        let directory = tempfile::tempdir().expect("a directory");
        let data = directory.path();
        assert_eq!(distrusted(data), Ok(None));
        assert_eq!(refuse_distrusted(data), Ok(()));
        for reason in ["another digest", "one more"] {
            mark_distrusted(data, reason).expect("it is written");
            assert_eq!(distrusted(data), Ok(Some(reason.to_owned())));
            assert_eq!(refuse_distrusted(data).map_err(|fault| fault.code), Err(ExitCode::DataDamaged));
        }
        fs::write(data.join(MARK), "").expect("it is written");
        clear_marks(data).expect("they are removed");
        clear_marks(data).expect("they are gone already");
        assert_eq!(distrusted(data), Ok(None));
        assert!(!data.join(MARK).exists());
    }

    #[test]
    fn what_was_put_aside_last_is_kept_beside_what_was_before() {
        let directory = tempfile::tempdir().expect("a directory");
        let data = directory.path();
        for time in ["first", "second", "third"] {
            fs::write(data.join("image-1.img"), time).expect("it is written");
            aside(data).expect("it is put aside");
        }
        let read = |folder: &str| fs::read_to_string(data.join(folder).join("image-1.img")).expect("it is there");
        assert_eq!((read(ASIDE).as_str(), read(ASIDE_BEFORE).as_str()), ("third", "second"));
        aside(data).expect("nothing is to be put aside");
        assert_eq!(read(ASIDE), "third");
    }

    #[test]
    fn a_log_without_entries_takes_the_place_of_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let data = directory.path();
        let disk = MmapDisk::open(data, SyncRecipe::default()).expect("the directory is free");
        let begin = |entry: Option<Record<'_>>| {
            let config = LogConfig { segment_bytes: 1 << 20, ..LogConfig::default() };
            let (mut log, _) = Log::open(disk.clone(), config, &mut |_| {}).expect("the log begins");
            let voted = Record::HardState(HardState { term: Term(3), vote: Some(ServerId(1)), commit: Index(0) });
            let records: Vec<_> = [voted].into_iter().chain(entry).collect();
            log.append(&records).expect("there is room");
            log.sync().expect("it is durable");
        };
        fs::write(data.join("image-1.img"), "the only copy").expect("it is written");
        aside(data).expect("it is put aside");
        for _ in 0..3 {
            begin(None);
            aside(data).expect("it holds nothing");
            assert_eq!(files(data).expect("it is listed"), [""; 0]);
        }
        assert!(data.join(ASIDE).join("image-1.img").exists() && !data.join(ASIDE_BEFORE).exists());
        begin(Some(Record::Entry(StoredEntry {
            term: Term(3),
            index: Index(1),
            kind: EntryKind::Normal,
            first_zxid: 1,
            payload: b"x",
        })));
        aside(data).expect("it holds an entry");
        assert!(data.join(ASIDE_BEFORE).join("image-1.img").exists());
    }
}
