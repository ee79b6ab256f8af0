//! The thread that writes an image which another server sends, checks it and maps it.
//!
//! Everything here may block. One image at a time: a new one ends the one before. It knows neither Raft nor links.

use std::sync::atomic::AtomicU64;

use corral_storage::{ImageReceiver, MmapDisk, remove_incoming};

use crate::actor::messages::{Incoming, ToConsensus, ToImagesIn};
use crate::node::images::load;
use crate::node::quarantine::{clear_marks, mark_distrusted};
use crate::runtime::mailbox::Post;

/// The image that comes in.
struct Taking {
    index: u64,
    receiver: ImageReceiver<MmapDisk>,
}

/// Runs until every sender is gone. What an earlier process left unfinished goes first.
/// `mismatches` counts those whose znodes do not have the digest that was stored.
pub(crate) fn run(
    disk: &MmapDisk,
    inbox: &flume::Receiver<ToImagesIn>,
    consensus: &Post<ToConsensus>,
    mismatches: &AtomicU64,
) {
    if let Err(error) = remove_incoming(disk) {
        tracing::warn!("what is left of an earlier transfer cannot be removed: {error}");
    }
    let mut taking: Option<Taking> = None;
    for message in inbox {
        let (index, told) = match message {
            ToImagesIn::Distrusted(reason) => {
                noted(mark_distrusted(disk.path(), &reason));
                continue;
            }
            ToImagesIn::Trusted => {
                noted(clear_marks(disk.path()));
                continue;
            }
            ToImagesIn::Begin { index, zxid, bytes } => {
                // Its file goes before another of the same name may come.
                drop(taking.take());
                let begun = ImageReceiver::begin(disk, zxid, bytes).map_err(|error| error.to_string());
                (index, begun.map(|receiver| taking = Some(Taking { index, receiver })).map(|()| None))
            }
            ToImagesIn::Piece { index, bytes } => {
                if taking.as_ref().is_none_or(|one| one.index != index) {
                    continue;
                }
                (index, piece(disk, &mut taking, &bytes, mismatches).map(Some))
            }
        };
        let told = match told {
            Ok(None) => continue,
            Ok(Some(told)) => told,
            Err(reason) => {
                taking = None;
                Incoming::Failed { index, reason }
            }
        };
        if consensus.send(ToConsensus::Incoming(told)).is_err() {
            return;
        }
    }
}

fn noted(done: std::io::Result<()>) {
    if let Err(error) = done {
        tracing::error!("whether the state is to be trusted cannot be noted in the data directory: {error}");
    }
}

/// Writes a piece; after the last one the image is durable, checked and mapped.
fn piece(
    disk: &MmapDisk,
    taking: &mut Option<Taking>,
    bytes: &[u8],
    mismatches: &AtomicU64,
) -> Result<Incoming, String> {
    let Some(mut one) = taking.take() else { return Err("no image has begun".to_owned()) };
    one.receiver.take(bytes).map_err(|error| error.to_string())?;
    let index = one.index;
    if !one.receiver.is_whole() {
        let upto = one.receiver.received();
        *taking = Some(one);
        return Ok(Incoming::Written { index, upto });
    }
    let name = one.receiver.finish().map_err(|error| error.to_string())?;
    let loaded = load(disk, &name.file, 1, mismatches).map_err(|unusable| unusable.to_string())?;
    if loaded.head.index != index {
        return Err(format!("{}: it ends at entry {}, not at {index}", name.file, loaded.head.index));
    }
    Ok(Incoming::Whole { index, loaded: Box::new(loaded) })
}
