//! Restore: a backup becomes the data of a new server.
//!
//! Main thread, no actor runs.

use std::io::Read;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::thread;

use corral_backup::envelope::Head;
use corral_backup::pack::Keys;
use corral_engine::LoadedSnapshot;
use corral_storage::{Disk as _, MmapDisk, SyncRecipe};

use crate::config::Config;
use crate::data::{backups, snapshots};
use crate::exit::{ExitCode, Fault};
use crate::node::import::NewData;
use crate::node::roll_forward::State;

/// Changes the state of a backup before it is written.
pub(crate) type Change<'c> = dyn FnMut(&Head, &mut State) -> Result<(), Fault> + 'c;

/// Is told the head, and bytes of the snapshot so far.
pub(crate) type Progress<'p> = dyn FnMut(&Head, u64) + 'p;

/// Reads a backup, and writes it into the data directory of the configuration, for this server alone, or as the only voter
/// of its ensemble. Durable when it returns.
///
/// # Errors
/// If the backup is damaged, or the directory holds data, is in use, or cannot be written. A restore that did not finish can
/// be done again. Those of `change`.
pub(crate) fn write(
    config: &Config,
    from: impl Read,
    keys: &Keys,
    change: &mut Change<'_>,
    progress: &mut Progress<'_>,
) -> Result<(Head, State), Fault> {
    let new = NewData::begin(config, "restore on a participant")?;
    let disk = new.disk().clone();
    let Received { head, loaded, file } = Received::read(&disk, from, keys, progress)?;
    let mut state = State::of(&head, &loaded)?;
    change(&head, &mut state)?;
    let written = new.write(state.freeze())?;
    if written != file {
        disk.remove(&file)
            .map_err(|error| Fault::new(ExitCode::StorageUnavailable, format!("{file} cannot be removed: {error}")))?;
    }
    new.finish()?;
    Ok((head, state))
}

/// A backup, with its snapshot in a directory.
pub(crate) struct Received {
    pub(crate) head: Head,
    pub(crate) loaded: LoadedSnapshot,
    /// Name of the snapshot.
    file: String,
}

impl Received {
    /// Reads a backup into a directory that is removed afterwards.
    ///
    /// # Errors
    /// If the backup is damaged, or there is no space for the snapshot in it.
    pub(crate) fn in_scratch(
        scratch: &Path,
        from: impl Read,
        keys: &Keys,
        progress: &mut Progress<'_>,
    ) -> Result<Received, Fault> {
        Received::read(&MmapDisk::open(scratch, SyncRecipe::default())?, from, keys, progress)
    }

    fn read(disk: &MmapDisk, from: impl Read, keys: &Keys, progress: &mut Progress<'_>) -> Result<Received, Fault> {
        let (head, file) = backups::receive(disk, from, keys, progress)?;
        let loaded = load(disk, &file)?;
        Ok(Received { head, loaded, file })
    }
}

/// Maps a snapshot, and checks all of it.
///
/// # Errors
/// If it is damaged, or cannot be read.
pub(crate) fn load(disk: &MmapDisk, file: &str) -> Result<LoadedSnapshot, Fault> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    snapshots::load(disk, file, threads, &AtomicU64::new(0)).map_err(|unusable| match unusable {
        snapshots::Unusable::Damaged(damage) => Fault::new(ExitCode::DataDamaged, damage.to_string()),
        snapshots::Unusable::Unread(fault) => fault,
    })
}
