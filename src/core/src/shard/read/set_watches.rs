//! setWatches and setWatches2: sets watches again after a reconnect (protocol chapter 14).

use super::context::{Failed, ReadContext, undecodable};
use super::context::{PERSISTENT, RECURSIVE};
use crate::ids::Zxid;
use crate::limits::{REWATCH_BYTES_AT_ONCE, WATCH_COST};
use crate::path;
use crate::shard::reply;
use crate::shard::watch::Kind;
use crate::tree::view::NodeRef;
use alloc::vec::Vec;
use corral_wire::consts::EventType;
use corral_wire::records::{SetWatches, SetWatches2};
use corral_wire::vector::Strings;
use corral_wire::{ErrorCode, Reader};

pub(super) fn set_watches(
    context: &mut ReadContext<'_>,
    out: &mut Vec<u8>,
    xid: i32,
    reader: &mut Reader<'_>,
) -> Result<(), Failed> {
    begin(context, reader)?;
    let SetWatches { relative_zxid, data_watches, exist_watches, child_watches } =
        SetWatches::decode(reader).map_err(undecodable)?;
    let done = catch_up_all(context, out, relative_zxid, [data_watches, exist_watches, child_watches]);
    finish(context, out, xid, done)
}

pub(super) fn set_watches2(
    context: &mut ReadContext<'_>,
    out: &mut Vec<u8>,
    xid: i32,
    reader: &mut Reader<'_>,
) -> Result<(), Failed> {
    begin(context, reader)?;
    let request = SetWatches2::decode(reader).map_err(undecodable)?;
    let (Some(persistent), Some(recursive)) = (request.persistent_watches, request.persistent_recursive_watches) else {
        return Err(ErrorCode::MarshallingError);
    };
    let lists = [request.data_watches, request.exist_watches, request.child_watches];
    let done = catch_up_all(context, out, request.relative_zxid, lists).and_then(|()| {
        let persistent = persistent.iter().map(|path| (path.unwrap_or(path::NULL), PERSISTENT));
        let recursive = recursive.iter().map(|path| (path.unwrap_or(path::NULL), RECURSIVE));
        persistent.chain(recursive).try_for_each(|(path, places)| context.register(path, places))
    });
    finish(context, out, xid, done)
}

/// Goes on if so many paths can be looked at in this turn, and counts the work.
fn begin(context: &ReadContext<'_>, reader: &Reader<'_>) -> Result<(), Failed> {
    context.at_once(reader.remaining() <= REWATCH_BYTES_AT_ONCE)?;
    context.spend(reader.remaining() * WATCH_COST);
    Ok(())
}

/// The reply behind the events: those have been told, whatever became of the rest.
fn finish(context: &ReadContext<'_>, out: &mut Vec<u8>, xid: i32, done: Result<(), Failed>) -> Result<(), Failed> {
    match done {
        Ok(()) => reply::done(out, xid, context.zxid()),
        Err(code) => reply::error(out, xid, context.zxid(), code),
    }
    Ok(())
}

/// Registers a reconnecting client's one-shot watches (data, exists, child), or tells at once what changed meanwhile.
fn catch_up_all(
    context: &mut ReadContext<'_>,
    out: &mut Vec<u8>,
    relative_zxid: i64,
    lists: [Option<Strings<'_>>; 3],
) -> Result<(), Failed> {
    let [Some(data), Some(exist), Some(child)] = lists else { return Err(ErrorCode::MarshallingError) };
    for (number, list) in [data, exist, child].iter().enumerate() {
        for path in list.iter() {
            rewatch(context, out, relative_zxid, number, path)?;
        }
    }
    Ok(())
}

/// Sets one path's watch of the data (0), exists (1) or child (2) list again.
pub(super) fn rewatch(
    context: &mut ReadContext<'_>,
    out: &mut Vec<u8>,
    relative_zxid: i64,
    list: usize,
    path: Option<&str>,
) -> Result<(), Failed> {
    // Below 0 everything has changed since: the numbers are compared with their signs.
    let after = |zxid: Zxid| zxid.wire() > relative_zxid;
    match list {
        0 => {
            let changed = |node: &NodeRef<'_>| after(node.stat().mzxid).then_some(EventType::NodeDataChanged);
            catch_up(context, out, Kind::Data, path, Some(EventType::NodeDeleted), changed)
        }
        1 => catch_up(context, out, Kind::Data, path, None, |_| Some(EventType::NodeCreated)),
        _ => {
            let changed = |node: &NodeRef<'_>| after(node.stat().pzxid).then_some(EventType::NodeChildrenChanged);
            catch_up(context, out, Kind::Child, path, Some(EventType::NodeDeleted), changed)
        }
    }
}

fn catch_up(
    context: &mut ReadContext<'_>,
    out: &mut Vec<u8>,
    kind: Kind,
    path: Option<&str>,
    if_missing: Option<EventType>,
    if_present: impl FnOnce(&NodeRef<'_>) -> Option<EventType>,
) -> Result<(), Failed> {
    let path = path.ok_or(ErrorCode::MarshallingError)?;
    let hash = context.view.hasher().hash(path);
    let missed = match context.find(path, hash) {
        None => if_missing,
        Some(node) => if_present(&node),
    };
    match missed {
        Some(event) => reply::event(out, -1, event, path),
        None => context.watch(kind, path, hash, true)?,
    }
    Ok(())
}
