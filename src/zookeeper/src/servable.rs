//! States that corral does not serve.

use std::collections::HashSet;

use corral_core::ids::Zxid;
use corral_core::limits::{
    EPHEMERALS_BYTES_MAX, EPHEMERALS_PER_SESSION_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX, PATH_LEVELS_MAX,
};
use corral_core::path;
use corral_core::tree::znode::Owner;

use crate::SourceError;
use crate::tree::Tree;

/// Epochs that a state must leave to later leaders.
const EPOCHS_LEFT: u32 = 1_000_000;
/// Characters of a path that an error shows.
const SHOWN: usize = 100;

/// Refuses states beyond the limits of corral, and states that no version of ZooKeeper makes.
///
/// # Errors
/// The first fault found, as [`SourceError::Unfit`].
pub fn check(tree: &Tree) -> Result<(), SourceError> {
    match fault(tree) {
        None => Ok(()),
        Some(sentence) => Err(SourceError::Unfit(sentence)),
    }
}

fn fault(tree: &Tree) -> Option<String> {
    let shown = |path: &str| path.chars().take(SHOWN).collect::<String>();
    let mut ephemerals: HashSet<&str> = HashSet::new();
    for (path, node) in tree.nodes() {
        let levels = path.bytes().filter(|byte| *byte == b'/').count();
        if path.len() > PATH_BYTES_MAX || levels > PATH_LEVELS_MAX || path::name(path).len() > NAME_BYTES_MAX {
            return Some(format!(
                "a path has {} bytes and {levels} levels, and corral takes {PATH_BYTES_MAX} bytes, {PATH_LEVELS_MAX} levels and \
                 {NAME_BYTES_MAX} bytes of a name: it begins with {:?}",
                path.len(),
                shown(path)
            ));
        }
        if Owner::from_bits(node.stat.owner).is_ephemeral() {
            ephemerals.insert(path);
        }
    }
    if let Some((path, _)) = tree.nodes().find(|(path, _)| ephemerals.contains(path::parent(path))) {
        return Some(format!("the parent of {:?} is an ephemeral, which no version of ZooKeeper allows", shown(path)));
    }
    if tree.zxid().epoch() > Zxid::EPOCH_MAX - EPOCHS_LEFT {
        return Some(format!("the last zxid is {}: its epoch leaves too few for later leaders", tree.zxid()));
    }
    tree.sessions().find_map(|(id, _, paths)| {
        let (count, bytes) = paths.fold((0, 0), |(count, bytes), path| (count + 1, bytes + path.len()));
        (count > EPHEMERALS_PER_SESSION_MAX || bytes > EPHEMERALS_BYTES_MAX).then(|| {
            format!(
                "session 0x{id:x} has {count} ephemerals with {bytes} bytes of paths, and corral takes {EPHEMERALS_PER_SESSION_MAX} with \
                 {EPHEMERALS_BYTES_MAX} bytes: end this client, and stop ZooKeeper after that"
            )
        })
    })
}
