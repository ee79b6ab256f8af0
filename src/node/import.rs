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
use corral_core::snapshot::{TreeBuilder, initial_snapshot};
use corral_peer::Generation;
use corral_zookeeper::password;
use corral_zookeeper::tree::Tree;

use crate::actor::snapshot_writer::{self, SnapshotSettings};
use crate::config::Config;
use crate::data::owner;
use crate::exit::{ExitCode, Fault};
use crate::gauges::Stopwatch;
use crate::node::membership;
use crate::node::recovery::{Purpose, open};
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
    let extra = membership::only_voter(config, Generation::FIRST, "import on a participant")?;
    owner::check_new(config)?;
    owner::announce_import(config)?;
    let mut opened = open(config, 1, &AtomicU64::new(0), Purpose::Rescue, |disk, _| owner::begin_import(disk))?;
    opened.log.go_on_behind(&mut opened.found, PLACE)?;
    let settings = SnapshotSettings { retained: 1, purge: false, paced: false };
    snapshot_writer::write(&opened.disk, &settings, &Stopwatch::default(), frozen(tree, extra)?).map_err(|reason| {
        Fault::new(ExitCode::StorageUnavailable, format!("the import is not complete: {}", reason.text()))
    })?;
    // Last: from here on the data are whole.
    owner::take(&opened.log_disk, config)?;
    owner::take(&opened.disk, config)
}

fn frozen(tree: Tree, extra: Vec<u8>) -> Result<FrozenState, Fault> {
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
        extra,
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
