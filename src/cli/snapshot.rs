//! `corral snapshot inspect`: checks snapshot files and prints what they hold. The main thread only; reads, never
//! writes.
//!
//! It knows the container (header, section table, checksums), and the digest of the tree that the last section begins
//! with. The file is read into memory.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use corral_core::digest::{DIGEST_VERSION, read_stored};
use corral_storage::{MmapDisk, SnapshotError, SnapshotFile, list_snapshots};

use crate::cli::output::Output;
use crate::exit::{ExitCode, Fault};

/// Arguments of `corral snapshot inspect`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// A snapshot file, or a data directory with snapshots
    #[arg(value_name = "FILE|DIR", default_value = "data")]
    path: PathBuf,
}

/// Prints header, sections and the result of every checksum, newest snapshot first.
///
/// # Errors
/// A `DataDamaged` fault when any snapshot is damaged, after all were printed; others when a file cannot be read.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Fault> {
    let listed = arguments.path.is_dir();
    let (directory, files) = if listed {
        let files = snapshots(&arguments.path)?;
        (arguments.path.clone(), files)
    } else {
        split(&arguments.path)?
    };
    let disk = MmapDisk::open_read_only(&directory)?;
    let mut out = Output::new();
    if files.is_empty() {
        out.line(&format!(
            "{}: no snapshot yet; one is written when enough has changed, on SIGUSR1, and when the server stops: until then \
             everything is in the log (corral log dump)",
            directory.display()
        ))?;
    }
    let mut faults = Vec::new();
    for file in files {
        match SnapshotFile::open(&disk, &file) {
            Ok(snapshot) => faults.extend(inspect(&snapshot, &mut out)?),
            // A server that runs has removed it since the directory was listed.
            Err(SnapshotError::Io { source, .. }) if listed && source.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                out.line(&error.to_string())?;
                faults.push(error);
            }
        }
    }
    out.finish()?;
    faults.into_iter().next().map_or(Ok(()), |first| Err(first.into()))
}

/// The snapshots of a data directory.
fn snapshots(directory: &Path) -> Result<Vec<String>, Fault> {
    let disk = MmapDisk::open_read_only(directory)?;
    let found = list_snapshots(&disk).map_err(|error| {
        Fault::new(ExitCode::StorageUnavailable, format!("{}: cannot be listed: {error}", directory.display()))
    })?;
    Ok(found.into_iter().map(|snapshot| snapshot.file).collect())
}

/// Directory and name of a snapshot file.
fn split(path: &Path) -> Result<(PathBuf, Vec<String>), Fault> {
    let fault = |reason: &str| Fault::new(ExitCode::StorageUnavailable, format!("{}: {reason}", path.display()));
    if !path.is_file() {
        return Err(fault("is no file; name a snapshot file or a data directory"));
    }
    let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| fault("the file's name is not UTF-8"))?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((directory.to_owned(), vec![name.to_owned()]))
}

/// Prints one snapshot; answers the damage found in its sections.
fn inspect(snapshot: &SnapshotFile, out: &mut Output) -> Result<Vec<SnapshotError>, Fault> {
    let head = snapshot.head();
    out.line(&format!(
        "{}: {} bytes, zxid 0x{:x}, term {}, index {}, {} sections",
        snapshot.name(),
        snapshot.bytes().as_slice().len(),
        head.zxid,
        head.term,
        head.index,
        snapshot.section_count()
    ))?;
    let mut damaged = Vec::new();
    for section in 0..snapshot.section_count() {
        let range = snapshot.section_range(section).unwrap_or_default();
        let state = match snapshot.verify_section(section) {
            Ok(()) => "checksum ok",
            Err(error) => {
                damaged.push(error);
                "DAMAGED: the checksum does not match"
            }
        };
        let kind = snapshot.section_kind(section).unwrap_or_default();
        out.line(&format!(
            "  section {section:>4} kind {kind:>3} offset {:>14} bytes {:>14} {state}",
            range.start,
            range.len()
        ))?;
    }
    let (bytes, last) = (snapshot.bytes(), snapshot.section_count().saturating_sub(1));
    let stored = snapshot.section_range(last).and_then(|range| bytes.as_slice().get(range)).and_then(read_stored);
    out.line(&match stored {
        Some(digest) => format!("  digest of the tree {digest} (ZooKeeper's definition, version {DIGEST_VERSION})"),
        None => "  no digest of the tree: written by an earlier version".to_owned(),
    })?;
    Ok(damaged)
}
