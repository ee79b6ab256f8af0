//! The thread that writes the snapshot of another server, piece by piece.

use corral_engine::{Event, Incoming, LoadedSnapshot, Receive};
use corral_storage::{Disk as _, SimDisk, SnapshotReceiver, snapshot_name};

use crate::options::Bug;
use crate::server::ending;
use crate::server::snapshot_file::{load, text};
use crate::world::World;
use crate::world::event::{Channel, Inner};
use crate::world::server::Receiving;

pub(crate) fn receive(world: &mut World, receive: Receive) {
    let loses = world.options.bug == Some(Bug::LosePiece);
    let node = &mut world.nodes[world.at];
    let Some(server) = &mut node.server else { return };
    let (index, told) = match receive {
        Receive::Forget { index, zxid } => {
            // Fails where its disk has just stopped.
            let _ = node.disk.remove(&snapshot_name(zxid, index));
            return;
        }
        Receive::Begin { index, zxid, bytes } => {
            drop(server.receiving.take());
            let begun = SnapshotReceiver::begin(&node.disk, zxid, bytes).map_err(text);
            (index, begun.map(|receiver| server.receiving = Some((index, receiver))).map(|()| None))
        }
        Receive::Piece { index, bytes } if loses && world.faults.per_mille(100) => {
            (index, Ok(Some(Incoming::Written { index, upto: bytes.len() as u64 })))
        }
        Receive::Piece { index, bytes } => {
            let Some(one) = server.receiving.take().filter(|one| one.0 == index) else { return };
            let told = take(&node.disk, one, &bytes).map(|(goes_on, told)| {
                server.receiving = goes_on;
                Some(told)
            });
            (index, told)
        }
    };
    let told = match told {
        Ok(None) => return,
        Ok(Some(told)) => told,
        Err(reason) if world.nodes[world.at].disk_stops => return ending::disk_failed(world, &reason),
        Err(reason) => {
            world.note(format_args!("the snapshot up to {index} cannot be taken: {reason}"));
            Incoming::Failed { index, reason }
        }
    };
    world.mail(Channel::ReceiverToConsensus, Inner::ToConsensus(Event::Incoming(told)));
}

/// Writes a piece; after the last one the snapshot is durable and checked.
fn take(disk: &SimDisk, (index, mut file): Receiving, bytes: &[u8]) -> Result<(Option<Receiving>, Incoming), String> {
    file.take(bytes).map_err(text)?;
    if !file.is_whole() {
        let upto = file.received();
        return Ok((Some((index, file)), Incoming::Written { index, upto }));
    }
    let name = file.finish().map_err(text)?;
    let loaded: LoadedSnapshot = load(disk, &name.file).inspect_err(|_| drop(disk.remove(&name.file)))?;
    Ok((None, Incoming::Whole { index, snapshot: loaded.into() }))
}
