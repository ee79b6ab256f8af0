//! `corral verify`: reads a backup or a data directory wholly, and says whether it is whole. The main thread only; writes nothing
//! but a temporary copy of a backup's snapshot.

use std::io;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::thread;

use clap::Args;
use corral_storage::{Dump, DumpItem, MmapDisk, confirm_damage, list_snapshots};

use crate::cli::archive::{self, files::Archive};
use crate::cli::backup_file::Source;
use crate::cli::output::Output;
use crate::cli::restore;
use crate::cli::time::utc;
use crate::data::damage::Damage;
use crate::data::snapshots::Unusable;
use crate::data::{owner, snapshots};
use crate::exit::{ExitCode, Fault};
use crate::runtime::clock::Clock;

/// Arguments of `corral verify`.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    source: Source,
    /// End with 1 if the last moment of a backup or an archive is longer ago
    #[arg(long, value_name = "SECONDS")]
    max_age: Option<u32>,
}

/// Checks it, and prints what it holds.
///
/// # Errors
/// A `DataDamaged` fault if anything does not match its checksum. Others if it cannot be read, or is too old.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Fault> {
    let (mut out, path) = (Output::new(), arguments.source.path());
    let last_ms = if let Some(archive) = Archive::find(path)? {
        archive::restore::verify(&archive, &arguments.source, &mut out)?
    } else if !path.is_dir() {
        restore::verify(&arguments.source, &mut out)?
    } else if arguments.max_age.is_some() {
        let sentence = format!("{}: --max-age is for a backup or an archive", path.display());
        return Err(Fault::new(ExitCode::Config, sentence));
    } else {
        directory(path, &mut out)?;
        0
    };
    out.line("whole         yes")?;
    out.finish()?;
    let age_ms = Clock::start().wall().0.saturating_sub(last_ms);
    match arguments.max_age {
        Some(max) if age_ms > i64::from(max) * 1000 => Err(Fault::new(
            ExitCode::Internal,
            format!("{}: its last moment is {}, more than {max} s ago", path.display(), utc(last_ms)),
        )),
        _ => Ok(()),
    }
}

fn directory(path: &Path, out: &mut Output) -> Result<(), Fault> {
    let unreadable = |error: io::Error| {
        Fault::new(ExitCode::StorageUnavailable, format!("{}: cannot be read: {error}", path.display()))
    };
    let disk = MmapDisk::open_read_only(path)?;
    owner::refuse_unfinished(&disk)?;
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut faults = Vec::new();
    for name in list_snapshots(&disk).map_err(unreadable)? {
        match snapshots::load(&disk, &name.file, threads, &AtomicU64::new(0)) {
            Ok(_) => out.line(&format!("snapshot      {}, zxid 0x{:x}", name.file, name.zxid))?,
            Err(Unusable::Unread(fault)) => {
                faults.push(fault);
                out.line(&format!("snapshot      {}: not read", name.file))?
            }
            Err(Unusable::Damaged(damage)) => {
                faults.push(Fault::new(ExitCode::DataDamaged, damage.to_string()));
                out.line(&format!("snapshot      {}: DAMAGED", name.file))?
            }
        };
    }
    let (mut damage, mut records, mut segments) = (Damage::default(), 0_u64, 0_u64);
    for item in Dump::new(disk.clone()).map_err(unreadable)? {
        damage.add(&item);
        records += u64::from(matches!(item, DumpItem::Record(_)));
        segments += u64::from(matches!(item, DumpItem::Segment { .. }));
    }
    out.line(&format!("log           {records} records in {segments} segments"))?;
    let confirm = |file: &str, offset, durable| confirm_damage(&disk, file, offset, durable, &mut |_| {});
    faults.extend(
        damage.sentence(confirm).map_err(unreadable)?.map(|sentence| Fault::new(ExitCode::DataDamaged, sentence)),
    );
    out.finish()?;
    faults.into_iter().next().map_or(Ok(()), Err)
}
