//! `corral snapshot inspect`: checks image files and prints what they hold. The main thread only; reads, never writes.
//!
//! It knows the container (header, section table, checksums), and the digest of the tree that the last section begins with.
//! The file is read into memory.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use corral_core::digest::{DIGEST_VERSION, read_stored};
use corral_storage::{ImageError, ImageFile, MmapDisk, list_images};

use crate::cli::Output;
use crate::exit::{ExitCode, Fault};

/// Arguments of `corral snapshot inspect`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// An image file, or a data directory with images
    #[arg(value_name = "FILE|DIR", default_value = "data")]
    path: PathBuf,
}

/// Prints header, sections and the result of every checksum, newest image first.
///
/// # Errors
/// A `DataDamaged` fault when any image is damaged, after all were printed; others when a file cannot be read.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Fault> {
    let listed = arguments.path.is_dir();
    let (directory, files) = if listed {
        let files = images(&arguments.path)?;
        (arguments.path.clone(), files)
    } else {
        split(&arguments.path)?
    };
    let disk = MmapDisk::open_read_only(&directory)?;
    let mut out = Output::new();
    if files.is_empty() {
        out.line(&format!(
            "{}: no image yet; one is written when enough has changed, on SIGUSR1, and when the server stops: until then \
             everything is in the log (corral log dump)",
            directory.display()
        ))?;
    }
    let mut faults = Vec::new();
    for file in files {
        match ImageFile::open(&disk, &file) {
            Ok(image) => faults.extend(inspect(&image, &mut out)?),
            // A server that runs has removed it since the directory was listed.
            Err(ImageError::Io { source, .. }) if listed && source.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                out.line(&error.to_string())?;
                faults.push(error);
            }
        }
    }
    out.finish()?;
    faults.into_iter().next().map_or(Ok(()), |first| Err(first.into()))
}

/// The images of a data directory.
fn images(directory: &Path) -> Result<Vec<String>, Fault> {
    let disk = MmapDisk::open_read_only(directory)?;
    let found = list_images(&disk).map_err(|error| {
        Fault::new(ExitCode::StorageUnavailable, format!("{}: cannot be listed: {error}", directory.display()))
    })?;
    Ok(found.into_iter().map(|image| image.file).collect())
}

/// Directory and name of an image file.
fn split(path: &Path) -> Result<(PathBuf, Vec<String>), Fault> {
    let fault = |reason: &str| Fault::new(ExitCode::StorageUnavailable, format!("{}: {reason}", path.display()));
    if !path.is_file() {
        return Err(fault("is no file; name an image file or a data directory"));
    }
    let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| fault("the file's name is not UTF-8"))?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((directory.to_owned(), vec![name.to_owned()]))
}

/// Prints one image; answers the damage found in its sections.
fn inspect(image: &ImageFile, out: &mut Output) -> Result<Vec<ImageError>, Fault> {
    let head = image.head();
    out.line(&format!(
        "{}: {} bytes, zxid 0x{:x}, term {}, index {}, {} sections",
        image.name(),
        image.bytes().as_slice().len(),
        head.zxid,
        head.term,
        head.index,
        image.section_count()
    ))?;
    let mut damaged = Vec::new();
    for section in 0..image.section_count() {
        let range = image.section_range(section).unwrap_or_default();
        let state = match image.verify_section(section) {
            Ok(()) => "checksum ok",
            Err(error) => {
                damaged.push(error);
                "DAMAGED: the checksum does not match"
            }
        };
        let kind = image.section_kind(section).unwrap_or_default();
        out.line(&format!(
            "  section {section:>4} kind {kind:>3} offset {:>14} bytes {:>14} {state}",
            range.start,
            range.len()
        ))?;
    }
    let (bytes, last) = (image.bytes(), image.section_count().saturating_sub(1));
    let stored = image.section_range(last).and_then(|range| bytes.as_slice().get(range)).and_then(read_stored);
    out.line(&match stored {
        Some(digest) => format!("  digest of the tree {digest} (ZooKeeper's definition, version {DIGEST_VERSION})"),
        None => "  no digest of the tree: written by an earlier version".to_owned(),
    })?;
    Ok(damaged)
}
