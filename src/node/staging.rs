//! A snapshot of ZooKeeper becomes data for the next start of this server, while it runs.
//!
//! Blocks, on a thread of its own.

use std::path::Path;
use std::sync::Arc;

use corral_core::ids::Zxid;
use corral_zookeeper::{SourceError, directory, servable};

use crate::config::Config;
use crate::control::admin::restore::Stage;
use crate::data::staged;
use crate::exit::{ExitCode, Fault};
use crate::node::import;
use crate::runtime::clock::Clock;

/// Gives staged data their place, before anything is read.
///
/// # Errors
/// Those of the system.
pub(super) fn put_in_place(config: &Config) -> Result<(), Fault> {
    if let Some(former) = staged::put_in_place(config)? {
        let former = former.display().to_string();
        tracing::info!(
            former,
            "the data are those of a restore: delete the former ones when these are as they should be"
        );
    }
    Ok(())
}

/// Stages snapshots for this server, if it runs alone.
pub(super) fn stage_by(config: &Config) -> Option<Stage> {
    let of = config.clone();
    config.own_member().is_none().then(|| -> Stage { Arc::new(move |snapshot| stage(&of, snapshot)) })
}

/// Reads the snapshot, and writes its state. Durable when it returns: the next start takes it. Gives its last zxid.
///
/// # Errors
/// If the snapshot is damaged, or cannot be written.
fn stage(config: &Config, snapshot: &Path) -> Result<Zxid, Fault> {
    staged::begin(config)?;
    let unfit = |error: SourceError| Fault::new(ExitCode::DataDamaged, error.to_string());
    let unread = |error: SourceError| match error {
        SourceError::Damaged { offset: 0, .. } => {
            let sentence =
                format!("{error}; restore a backup of corral with `corral restore`, while the server is stopped");
            Fault::new(ExitCode::DataDamaged, sentence)
        }
        _ => unfit(error),
    };
    let tree = directory::load_snapshot(snapshot).map_err(unread)?.tree;
    servable::check(&tree).map_err(unfit)?;
    let zxid = tree.zxid();
    import::write(&staged::config(config), tree)?;
    staged::announce(config, &Clock::start().wall().0.to_string())?;
    Ok(zxid)
}
