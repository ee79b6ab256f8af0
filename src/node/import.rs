//! Import: the state of another system becomes the data of a new server.
//!
//! Main thread, no actor runs. The data directory must be empty. Until the import is complete, the file `OWNER` says so: no server
//! starts with a half of it, and another import begins anew.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use corral_consensus::{BOOTSTRAP_INDEX, BOOTSTRAP_TERM};
use corral_core::ids::SessionId;
use corral_core::sequencer::FrozenState;
use corral_core::session::{Ephemerals, Session, SessionTable};
use corral_core::tree::snapshot::{TreeBuilder, initial_snapshot};
use corral_engine::Purpose;
use corral_peer::Generation;
use corral_storage::MmapDisk;
use corral_zookeeper::password;
use corral_zookeeper::tree::Tree;

use crate::actor::snapshot_writer::write_alone;
use crate::config::Config;
use crate::data::owner;
use crate::exit::{ExitCode, Fault};
use crate::node::membership;
use crate::node::recovery::{Opened, open};
use crate::runtime::random::random;

/// Log index and term of the snapshot. A member at those of a new ensemble would count as one without data. The first leader begins
/// an epoch above that of the zxid.
const PLACE: (u64, u64) = (BOOTSTRAP_INDEX.0 + 1, BOOTSTRAP_TERM.0 + 1);

/// Writes the state into the data directory of the configuration, for this server alone, or as the only voter of its
/// ensemble. Durable when it returns.
///
/// # Errors
/// If the directory holds data, is in use, or cannot be written. An import that did not finish can be done again.
pub(crate) fn write(config: &Config, tree: Tree) -> Result<(), Fault> {
    let new = NewData::begin(config, "import on a participant")?;
    new.write(frozen(tree)?)?;
    new.finish()
}

/// Directories that are no server's yet.
pub(super) struct NewData<'c> {
    config: &'c Config,
    opened: Opened,
    /// The membership.
    extra: Vec<u8>,
}

impl NewData<'_> {
    /// Marks the directories as unfinished, and empties what an earlier attempt left. On an observer the sentence ends with `remedy`.
    ///
    /// # Errors
    /// If they hold data, are in use, or cannot be written.
    pub(super) fn begin<'c>(config: &'c Config, remedy: &str) -> Result<NewData<'c>, Fault> {
        let extra = membership::only_voter(config, Generation::FIRST, remedy)?;
        owner::check_new(config)?;
        owner::announce_import(config)?;
        let mut opened = open(config, 1, &AtomicU64::new(0), Purpose::Rescue, |disk, _| owner::begin_import(disk))?;
        opened.log.go_on_behind(&mut opened.found, PLACE)?;
        Ok(NewData { config, opened, extra })
    }

    pub(super) fn disk(&self) -> &MmapDisk {
        &self.opened.disk
    }

    /// Writes the state as the newest snapshot, and gives its file name.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn write(&self, state: FrozenState) -> Result<String, Fault> {
        let state = FrozenState { index: PLACE.0, term: PLACE.1, extra: self.extra.clone(), ..state };
        write_alone(&self.opened.disk, state).map_err(|reason| {
            Fault::new(ExitCode::StorageUnavailable, format!("the data are not complete: {}", reason.text()))
        })
    }

    /// Gives the directories to the server.
    ///
    /// # Errors
    /// If they cannot be written.
    pub(super) fn finish(self) -> Result<(), Fault> {
        // Last: from here on the data are whole.
        owner::take(&self.opened.log_disk, self.config)?;
        owner::take(&self.opened.disk, self.config)
    }
}

fn frozen(tree: Tree) -> Result<FrozenState, Fault> {
    let below = initial_snapshot(u64::from_le_bytes(random()?));
    let mut builder = TreeBuilder::new(below.seed());
    let (zxid, digest, nodes, sessions) = (tree.zxid(), tree.digest(), tree.nodes().len() as u64, sessions(&tree));
    tree.into_nodes().for_each(|(path, node)| builder.add(path, node));
    Ok(FrozenState {
        delta: Arc::new(builder.finish(zxid, Some(digest))),
        snapshot: Arc::new(below),
        sessions,
        zxid,
        index: PLACE.0,
        term: PLACE.1,
        nodes,
        extra: Vec::new(),
    })
}

/// Clients keep the passwords that ZooKeeper gave them.
fn sessions(tree: &Tree) -> SessionTable {
    let session = |(id, timeout_ms, paths): (i64, i32, _)| {
        let ephemerals: Ephemerals = Iterator::cloned(paths).collect();
        (SessionId(id), Session { timeout_ms, password: password(id), owner: None, ephemerals })
    };
    tree.sessions().map(session).collect()
}
