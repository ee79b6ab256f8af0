//! `corral snapshot inspect`: checks snapshot files and prints what they hold. The main thread only; reads, never
//! writes.
//!
//! Counts are shown of a whole snapshot. The file is read into memory.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use clap::Args;
use corral_core::tree::digest::{DIGEST_VERSION, read_stored};
use corral_storage::{MmapDisk, SnapshotError, SnapshotFile, list_snapshots};
use serde_json::json;

use crate::cli::output::Output;
use crate::data::snapshots::load;
use crate::exit::{ExitCode, Fault};

/// Arguments of `corral snapshot inspect`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// A snapshot file, or a data directory with snapshots
    #[arg(value_name = "FILE|DIR", default_value = "data")]
    path: PathBuf,
    /// Print JSON Lines: one object for each snapshot
    #[arg(long)]
    json: bool,
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
    if files.is_empty() && !arguments.json {
        out.line(&format!(
            "{}: no snapshot yet; one is written when enough has changed, on SIGUSR1, and when the server stops: until then \
             everything is in the log (corral log dump)",
            directory.display()
        ))?;
    }
    let mut faults = Vec::new();
    for file in files {
        match SnapshotFile::open(&disk, &file) {
            Ok(snapshot) => faults.extend(inspect(&disk, &snapshot, arguments.json, &mut out)?),
            // A server that runs has removed it since the directory was listed.
            Err(SnapshotError::Io { source, .. }) if listed && source.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                out.line(&if arguments.json {
                    json!({"file": file, "error": error.to_string()}).to_string()
                } else {
                    error.to_string()
                })?;
                faults.push(error);
            }
        }
    }
    out.finish()?;
    faults.into_iter().next().map_or(Ok(()), |first| Err(first.into()))
}

/// The snapshots of a data directory, the newest first.
pub(super) fn snapshots(directory: &Path) -> Result<Vec<String>, Fault> {
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

/// Prints one snapshot. Gives the damage in its sections.
fn inspect(
    disk: &MmapDisk,
    snapshot: &SnapshotFile,
    is_json: bool,
    out: &mut Output,
) -> Result<Vec<SnapshotError>, Fault> {
    let head = snapshot.head();
    // This checks all of it. The sections of a damaged file are then checked one by one.
    let loaded = load(disk, snapshot.name(), 1, &AtomicU64::new(0)).ok();
    let fault = |section| if loaded.is_some() { None } else { snapshot.verify_section(section).err() };
    let checked: Vec<_> = (0..snapshot.section_count())
        .map(|section| {
            let (kind, range) = (snapshot.section_kind(section), snapshot.section_range(section));
            (kind.unwrap_or_default(), range.unwrap_or_default(), fault(section))
        })
        .collect();
    let (bytes, last) = (snapshot.bytes(), snapshot.section_count().saturating_sub(1));
    let digest = snapshot.section_range(last).and_then(|range| bytes.as_slice().get(range)).and_then(read_stored);
    let counts = loaded.as_ref().map(|loaded| (loaded.snapshot.stats(), loaded.snapshot.sessions().count()));
    let size = bytes.as_slice().len();
    if is_json {
        let sections = checked.iter().map(|(kind, range, fault)| {
            json!({"kind": kind, "offset": range.start, "bytes": range.len(), "is_whole": fault.is_none()})
        });
        let mut object = json!({
            "file": snapshot.name(), "bytes": size, "zxid": format!("0x{:x}", head.zxid), "term": head.term,
            "index": head.index, "sections": sections.collect::<Vec<_>>(), "digest": digest.map(|digest| digest.to_string()),
            "digest_version": DIGEST_VERSION,
        });
        if let Some((stats, sessions)) = counts {
            object["znodes"] = json!(stats.nodes);
            object["data_bytes"] = json!(stats.data_bytes);
            object["ephemerals"] = json!(stats.ephemerals);
            object["sessions"] = json!(sessions);
        }
        out.line(&object.to_string())?;
        return Ok(checked.into_iter().filter_map(|(_, _, fault)| fault).collect());
    }
    out.line(&format!(
        "{}: {size} bytes, zxid 0x{:x}, term {}, index {}, {} sections",
        snapshot.name(),
        head.zxid,
        head.term,
        head.index,
        checked.len()
    ))?;
    for (section, (kind, range, fault)) in checked.iter().enumerate() {
        let state = if fault.is_none() { "checksum ok" } else { "DAMAGED: the checksum does not match" };
        let (start, length) = (range.start, range.len());
        out.line(&format!("  section {section:>4} kind {kind:>3} offset {start:>14} bytes {length:>14} {state}"))?;
    }
    if let Some((stats, sessions)) = counts {
        let (nodes, data, ephemerals) = (stats.nodes, stats.data_bytes, stats.ephemerals);
        out.line(&format!("  {nodes} znodes with {data} bytes of data, {ephemerals} ephemerals, {sessions} sessions"))?;
    }
    out.line(&match digest {
        Some(digest) => format!("  digest of the tree {digest} (ZooKeeper's definition, version {DIGEST_VERSION})"),
        None => "  no digest of the tree: written by an earlier version".to_owned(),
    })?;
    Ok(checked.into_iter().filter_map(|(_, _, fault)| fault).collect())
}
