//! Rescue: the data of one stopped server, with another membership than they were written with.
//!
//! Main thread, no actor runs. Everything in snapshot and log is taken for true, also entries that were never known to
//! be committed, and becomes one snapshot. Older snapshots go, because they keep the former membership. It reports the
//! lost and the kept data; the operator decides whether it is done. It raises the generation, so that those left behind
//! do not go on beside it.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use corral_consensus::Membership;
use corral_core::apply::StateMachine;
use corral_core::ids::Millis;
use corral_core::sequencer::Sequencer;
use corral_engine::Purpose;
use corral_engine::extra::Extra;
use corral_peer::Generation;
use corral_storage::log::ADVICE;
use corral_storage::{MmapDisk, SnapshotFile, SyncRecipe, purge};

use crate::actor::snapshot_writer::{NotWritten, write_alone};
use crate::config::Config;
use crate::data::owner;
use crate::data::remembered;
use crate::exit::{ExitCode, Fault};
use crate::node::membership;
use crate::node::recovery::{Opened, entry_bytes_max, open, sequencer_config, state_machine};
use crate::node::replay::{apply_alone, check_reach};

/// The content of a data directory, and the former members of its ensemble.
pub(crate) struct Survivor {
    opened: Opened,
    sequencer: Sequencer,
    /// As of its newest snapshot; `None` if it ran alone.
    pub(crate) members: Option<Membership>,
    generation: Generation,
    /// Its last log entry.
    pub(crate) index: u64,
    pub(crate) term: u64,
}

impl Survivor {
    /// Reads the data directory of a stopped server.
    ///
    /// # Errors
    /// When there is nothing, a server runs on it, or it is damaged.
    pub(crate) fn read(config: &Config, threads: usize) -> Result<Survivor, Fault> {
        let directory = &config.server.data_dir;
        let nothing = || {
            let sentence = format!("{}: it holds no data", directory.display());
            Fault::new(ExitCode::StorageUnavailable, sentence)
        };
        if !directory.exists() {
            return Err(nothing());
        }
        // Nothing is written into a directory without data.
        MmapDisk::open_read_only(directory)?;
        let mut opened =
            open(config, threads, &AtomicU64::new(0), Purpose::Rescue, |disk, _| owner::refuse_unfinished(disk))
                .map_err(without_others)?;
        let newest = opened.newest.take();
        let extra = newest.as_ref().map(|loaded| loaded.snapshot.extra().to_vec()).unwrap_or_default();
        let (members, generation) = match Extra::decode(&extra) {
            _ if extra.is_empty() => (None, Generation::FIRST),
            Ok(extra) => (Some(extra.members), extra.generation),
            // The former membership does not matter to a server that goes on alone.
            Err(_) => (Some(Membership::default()), Generation::FIRST),
        };
        let (machine, index, term) = state_machine(newest.as_ref())?;
        if members.is_some() {
            opened.log.go_on_behind(&mut opened.found, (index, term))?;
        }
        let held = (opened.found.first_index, opened.found.last_index);
        check_reach(Purpose::Rescue, held, index)?;
        let mut sequencer =
            Sequencer::new(sequencer_config(config, 0, entry_bytes_max(&opened.log)), machine, index, term);
        let mut last = (index, term);
        let visited = opened.log.visit((index + 1, held.1), |entry| {
            last = (entry.index.0, entry.term.0);
            apply_alone(&mut sequencer, &entry).map_or_else(ControlFlow::Break, ControlFlow::Continue)
        })?;
        if let ControlFlow::Break(fault) = visited {
            return Err(fault);
        }
        let (index, term) = last;
        if index == 0 { Err(nothing()) } else { Ok(Survivor { opened, sequencer, members, generation, index, term }) }
    }

    /// The state with everything in snapshot and log.
    pub(crate) fn machine(&self) -> &StateMachine {
        self.sequencer.machine()
    }

    /// Znodes, and the last zxid.
    pub(crate) fn extent(&self) -> (u64, u64) {
        let view = self.machine().view();
        (view.node_count(), view.zxid().0)
    }

    /// Writes all of it as one snapshot into another directory.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn copy(mut self, to: &Path) -> Result<SnapshotFile, Fault> {
        let disk = MmapDisk::open(to, SyncRecipe::default())?;
        let frozen = self.sequencer.freeze(Millis(0), Vec::new());
        let name =
            write_alone(&disk, frozen).map_err(|reason| Fault::new(ExitCode::StorageUnavailable, reason.text()))?;
        Ok(SnapshotFile::open(&disk, &name)?)
    }

    /// Writes it with the membership that the configuration asks for: this server alone, or this server as the only
    /// voter.
    ///
    /// # Errors
    /// When the snapshot cannot be written; then nothing is different.
    pub(crate) fn rescue(mut self, config: &Config) -> Result<(), Fault> {
        let members = membership::only_voter(config, self.generation, "make it a participant first")?;
        let frozen = self.sequencer.freeze(Millis(0), members);
        let place = (frozen.zxid.0, frozen.index);
        let failed = |reason: NotWritten| {
            Fault::new(ExitCode::StorageUnavailable, format!("nothing was changed: {}", reason.text()))
        };
        write_alone(&self.opened.disk, frozen).map_err(failed)?;
        let purged = purge(&self.opened.disk, place, 1);
        purged.map_err(|error| {
            let sentence = format!("it is done, but older snapshots cannot be removed: {error}; remove them by hand");
            Fault::new(ExitCode::StorageUnavailable, sentence)
        })?;
        // Last: the next owner finds a membership that has it as a member.
        owner::take(&self.opened.disk, config)?;
        owner::take(&self.opened.log_disk, config)?;
        remembered::forget(&self.opened.disk).map_err(|error| {
            let sentence = format!("it is done, but the file SERVERS cannot be removed: {error}; remove it by hand");
            Fault::new(ExitCode::StorageUnavailable, sentence)
        })
    }
}

/// Storage advises a server that has lost data to copy them from other servers, of which there are not enough here.
fn without_others(fault: Fault) -> Fault {
    Fault { sentence: fault.sentence.replace(ADVICE, Purpose::Rescue.remedy()), ..fault }
}
