//! Watches asked for by themselves: set again after a reconnect, added, looked for, taken back (protocol chapter 14).

use super::{Failed, ReadContext, undecodable};
use crate::ids::Zxid;
use crate::limits::{REWATCH_BYTES_AT_ONCE, WATCH_COST};
use crate::path;
use crate::shard::reply;
use crate::shard::watch::{Kind, Mode};
use crate::tree::view::NodeRef;
use alloc::vec::Vec;
use corral_wire::consts::{AddWatchMode, EventType, WatcherType};
use corral_wire::records::{
    AddWatchRequest, CheckWatchesRequest, ErrorResponse, RemoveWatchesRequest, SetWatches, SetWatches2,
};
use corral_wire::vector::Strings;
use corral_wire::{ErrorCode, Reader};

/// The tables of a persistent watch. A recursive watch is in the data table alone.
pub(super) const PERSISTENT: &[(Kind, Mode)] = &[(Kind::Data, Mode::Persistent), (Kind::Child, Mode::Persistent)];
pub(super) const RECURSIVE: &[(Kind, Mode)] = &[(Kind::Data, Mode::PersistentRecursive)];

impl ReadContext<'_> {
    pub(super) fn set_watches(&mut self, out: &mut Vec<u8>, xid: i32, reader: &mut Reader<'_>) -> Result<(), Failed> {
        self.at_once(reader.remaining() <= REWATCH_BYTES_AT_ONCE)?;
        self.spend(reader.remaining() * WATCH_COST);
        let SetWatches { relative_zxid, data_watches, exist_watches, child_watches } =
            SetWatches::decode(reader).map_err(undecodable)?;
        let done = self.catch_up_all(out, relative_zxid, [data_watches, exist_watches, child_watches]);
        self.finish(out, xid, done)
    }

    pub(super) fn set_watches2(&mut self, out: &mut Vec<u8>, xid: i32, reader: &mut Reader<'_>) -> Result<(), Failed> {
        self.at_once(reader.remaining() <= REWATCH_BYTES_AT_ONCE)?;
        self.spend(reader.remaining() * WATCH_COST);
        let request = SetWatches2::decode(reader).map_err(undecodable)?;
        let (Some(persistent), Some(recursive)) = (request.persistent_watches, request.persistent_recursive_watches)
        else {
            return Err(ErrorCode::MarshallingError);
        };
        let lists = [request.data_watches, request.exist_watches, request.child_watches];
        let done = self.catch_up_all(out, request.relative_zxid, lists).and_then(|()| {
            let persistent = persistent.iter().map(|path| (path.unwrap_or(path::NULL), PERSISTENT));
            let recursive = recursive.iter().map(|path| (path.unwrap_or(path::NULL), RECURSIVE));
            persistent.chain(recursive).try_for_each(|(path, places)| self.register(path, places))
        });
        self.finish(out, xid, done)
    }

    /// The reply behind the events: those have been told, whatever became of the rest.
    fn finish(&self, out: &mut Vec<u8>, xid: i32, done: Result<(), Failed>) -> Result<(), Failed> {
        match done {
            Ok(()) => reply::done(out, xid, self.zxid()),
            Err(code) => reply::error(out, xid, self.zxid(), code),
        }
        Ok(())
    }

    /// Registers a reconnecting client's one-shot watches (data, exists, child), or tells at once what changed meanwhile.
    fn catch_up_all(
        &mut self,
        out: &mut Vec<u8>,
        relative_zxid: i64,
        lists: [Option<Strings<'_>>; 3],
    ) -> Result<(), Failed> {
        let [Some(data), Some(exist), Some(child)] = lists else { return Err(ErrorCode::MarshallingError) };
        for (number, list) in [data, exist, child].iter().enumerate() {
            for path in list.iter() {
                self.rewatch(out, relative_zxid, number, path)?;
            }
        }
        Ok(())
    }

    /// Sets one path's watch of the data (0), exists (1) or child (2) list again.
    pub(super) fn rewatch(
        &mut self,
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
                self.catch_up(out, Kind::Data, path, Some(EventType::NodeDeleted), changed)
            }
            1 => self.catch_up(out, Kind::Data, path, None, |_| Some(EventType::NodeCreated)),
            _ => {
                let changed = |node: &NodeRef<'_>| after(node.stat().pzxid).then_some(EventType::NodeChildrenChanged);
                self.catch_up(out, Kind::Child, path, Some(EventType::NodeDeleted), changed)
            }
        }
    }

    fn catch_up(
        &mut self,
        out: &mut Vec<u8>,
        kind: Kind,
        path: Option<&str>,
        if_missing: Option<EventType>,
        if_present: impl FnOnce(&NodeRef<'_>) -> Option<EventType>,
    ) -> Result<(), Failed> {
        let path = path.ok_or(ErrorCode::MarshallingError)?;
        let hash = self.view.hasher().hash(path);
        let missed = match self.find(path, hash) {
            None => if_missing,
            Some(node) => if_present(&node),
        };
        match missed {
            Some(event) => reply::event(out, -1, event, path),
            None => self.watch(kind, path, hash, true)?,
        }
        Ok(())
    }

    /// Any path may be watched; whether its events may be seen is decided when they happen.
    pub(super) fn add_watch(&mut self, out: &mut Vec<u8>, xid: i32, reader: &mut Reader<'_>) -> Result<(), Failed> {
        let request = AddWatchRequest::decode(reader).map_err(undecodable)?;
        // ZooKeeper lets the null path be watched too; no znode's event ever fires that.
        let path = request.path.unwrap_or(path::NULL);
        let places = match AddWatchMode::from_i32(request.mode).ok_or(ErrorCode::MarshallingError)? {
            AddWatchMode::Persistent => PERSISTENT,
            AddWatchMode::PersistentRecursive => RECURSIVE,
        };
        self.register(path, places)?;
        self.reply(out, xid, |writer| ErrorResponse { err: 0 }.encode(writer));
        Ok(())
    }

    pub(super) fn register(&mut self, path: &str, places: &[(Kind, Mode)]) -> Result<(), Failed> {
        let hash = self.view.hasher().hash(path);
        for (kind, mode) in places {
            self.watches.add(*kind, self.conn, path, hash, *mode).map_err(|_| ErrorCode::ThrottledOp)?;
        }
        Ok(())
    }

    pub(super) fn check_watches(&self, out: &mut Vec<u8>, xid: i32, reader: &mut Reader<'_>) -> Result<(), Failed> {
        let request = CheckWatchesRequest::decode(reader).map_err(undecodable)?;
        let path = request.path.unwrap_or(path::NULL);
        let hash = self.view.hasher().hash(path);
        let mut places = places_of(request.watcher_type)?.iter();
        if !places.any(|(kind, mode)| self.watches.holds(*kind, self.conn, path, hash, *mode)) {
            return Err(ErrorCode::NoWatcher);
        }
        reply::done(out, xid, self.zxid());
        Ok(())
    }

    pub(super) fn remove_watches(
        &mut self,
        out: &mut Vec<u8>,
        xid: i32,
        reader: &mut Reader<'_>,
    ) -> Result<(), Failed> {
        let request = RemoveWatchesRequest::decode(reader).map_err(undecodable)?;
        let path = request.path.unwrap_or(path::NULL);
        let hash = self.view.hasher().hash(path);
        let mut removed = false;
        for (kind, mode) in places_of(request.watcher_type)? {
            removed |= self.watches.remove(*kind, self.conn, path, hash, *mode);
        }
        if !removed {
            return Err(ErrorCode::NoWatcher);
        }
        reply::done(out, xid, self.zxid());
        Ok(())
    }
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
