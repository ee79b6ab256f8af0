//! checkWatches and removeWatches (protocol chapter 14).

use super::context::{Failed, ReadContext, undecodable};
use super::context::{PERSISTENT, RECURSIVE};
use crate::path;
use crate::shard::reply;
use crate::shard::watch::{Kind, Mode};
use alloc::vec::Vec;
use corral_wire::consts::WatcherType;
use corral_wire::records::{CheckWatchesRequest, RemoveWatchesRequest};
use corral_wire::{ErrorCode, Reader};

pub(super) fn check_watches(
    context: &ReadContext<'_>,
    out: &mut Vec<u8>,
    xid: i32,
    reader: &mut Reader<'_>,
) -> Result<(), Failed> {
    let request = CheckWatchesRequest::decode(reader).map_err(undecodable)?;
    let path = request.path.unwrap_or(path::NULL);
    let hash = context.view.hasher().hash(path);
    let mut places = places_of(request.watcher_type)?.iter();
    if !places.any(|(kind, mode)| context.watches.holds(*kind, context.conn, path, hash, *mode)) {
        return Err(ErrorCode::NoWatcher);
    }
    reply::done(out, xid, context.zxid());
    Ok(())
}

pub(super) fn remove_watches(
    context: &mut ReadContext<'_>,
    out: &mut Vec<u8>,
    xid: i32,
    reader: &mut Reader<'_>,
) -> Result<(), Failed> {
    let request = RemoveWatchesRequest::decode(reader).map_err(undecodable)?;
    let path = request.path.unwrap_or(path::NULL);
    let hash = context.view.hasher().hash(path);
    let mut removed = false;
    for (kind, mode) in places_of(request.watcher_type)? {
        removed |= context.watches.remove(*kind, context.conn, path, hash, *mode);
    }
    if !removed {
        return Err(ErrorCode::NoWatcher);
    }
    reply::done(out, xid, context.zxid());
    Ok(())
}

/// Where checkWatches and removeWatches look for a type of watch (protocol chapter 14.5).
fn places_of(watcher_type: i32) -> Result<&'static [(Kind, Mode)], Failed> {
    Ok(match WatcherType::from_i32(watcher_type).ok_or(ErrorCode::MarshallingError)? {
        WatcherType::Children => &[(Kind::Child, Mode::Standard)],
        WatcherType::Data => &[(Kind::Data, Mode::Standard)],
        WatcherType::Persistent => PERSISTENT,
        WatcherType::PersistentRecursive => RECURSIVE,
        WatcherType::Any => &[
            (Kind::Data, Mode::Standard),
            (Kind::Child, Mode::Standard),
            (Kind::Data, Mode::Persistent),
            (Kind::Child, Mode::Persistent),
            (Kind::Data, Mode::PersistentRecursive),
        ],
    })
}
