//! Reads: served from the shard's own view, in one go, straight from the stored bytes (protocol chapter 12).

mod listing;
mod multi;
mod nodes;
mod watching;

use crate::acl;
use crate::command::Identity;
use crate::ids::{ConnId, Zxid};
use crate::path;
use crate::reply;
use crate::shared::Text;
use crate::view::{NodeRef, View};
use crate::watch::{Kind, Mode, WatchTable};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use corral_wire::records::ReplyHeader;
use corral_wire::{ErrorCode, OpCode, Reader, Writer};

/// Everything a read may look at, and the one table it may add to.
pub(crate) struct ReadContext<'s> {
    pub(crate) view: &'s View,
    pub(crate) watches: &'s mut WatchTable,
    pub(crate) conn: ConnId,
    pub(crate) identities: &'s [Identity],
    /// The session's ephemerals, sorted; `None` when it has none.
    pub(crate) ephemerals: Option<&'s BTreeSet<Text>>,
    pub(crate) skip_acl: bool,
    /// Whether ClickHouse Keeper's operations are served.
    pub(crate) keeper: bool,
    /// A multiRead whose reply outgrows this is refused; a single read's reply is bounded by what one node holds.
    pub(crate) reply_bytes_max: usize,
}

/// A read that is not served here: UNIMPLEMENTED, and the connection ends.
#[derive(Debug)]
pub(crate) struct NotServed;

type Failed = ErrorCode;

impl ReadContext<'_> {
    /// Appends the reply (and, for setWatches, the events before it) to `out`.
    pub(crate) fn serve(
        &mut self,
        out: &mut Vec<u8>,
        xid: i32,
        op: OpCode,
        reader: &mut Reader<'_>,
    ) -> Result<(), NotServed> {
        let start = out.len();
        let served = match op {
            OpCode::GetData => self.get_data(out, xid, reader),
            OpCode::Exists => self.exists(out, xid, reader),
            OpCode::GetChildren => self.get_children(out, xid, reader, false),
            OpCode::GetChildren2 => self.get_children(out, xid, reader, true),
            OpCode::GetAcl => self.get_acl(out, xid, reader),
            OpCode::FilteredList => self.filtered_list(out, xid, reader),
            OpCode::FilteredListWithStatsAndData => self.filtered_list_whole(out, xid, reader),
            OpCode::GetEphemerals => self.get_ephemerals(out, xid, reader),
            OpCode::SetWatches => self.set_watches(out, xid, reader),
            OpCode::SetWatches2 => self.set_watches2(out, xid, reader),
            OpCode::AddWatch => self.add_watch(out, xid, reader),
            OpCode::CheckWatches => self.check_watches(out, xid, reader),
            OpCode::RemoveWatches => self.remove_watches(out, xid, reader),
            OpCode::MultiRead => self.multi_read(out, xid, reader),
            OpCode::WhoAmI => {
                self.who_am_i(out, xid);
                Ok(())
            }
            _ => return Err(NotServed),
        };
        if let Err(code) = served {
            out.truncate(start);
            reply::error(out, xid, self.zxid(), code);
        }
        Ok(())
    }

    const fn zxid(&self) -> Zxid {
        self.view.zxid()
    }

    fn reply(&self, out: &mut Vec<u8>, xid: i32, body: impl FnOnce(&mut Writer<'_>)) {
        let zxid = self.zxid().wire();
        reply::frame(out, |writer| {
            ReplyHeader::ok(xid, zxid).encode(writer);
            body(writer);
        });
    }

    /// The znode of a path. The empty path is the root's second name, in reads alone, as in ZooKeeper.
    fn find(&self, path: &str, hash: u64) -> Option<NodeRef<'_>> {
        if path.is_empty() { self.view.get(path::ROOT) } else { self.view.get_hashed(path, hash) }
    }

    fn children(&self, path: &str) -> impl Iterator<Item = &str> {
        self.view.children(path::or_root(path)).into_iter().flatten()
    }

    fn readable(&self, path: &str, hash: u64, wanted: i32) -> Result<NodeRef<'_>, Failed> {
        let node = self.find(path, hash).ok_or(ErrorCode::NoNode)?;
        if self.allows(&node, wanted) { Ok(node) } else { Err(ErrorCode::NoAuth) }
    }

    fn allows(&self, node: &NodeRef<'_>, wanted: i32) -> bool {
        self.skip_acl || acl::allows(node, wanted, self.identities)
    }

    fn watch(&mut self, kind: Kind, path: &str, hash: u64, wanted: bool) -> Result<(), Failed> {
        if !wanted {
            return Ok(());
        }
        self.watches.add(kind, self.conn, path, hash, Mode::Standard).map_err(|_| ErrorCode::ThrottledOp)
    }
}

fn undecodable(_: corral_wire::DecodeError) -> ErrorCode {
    ErrorCode::MarshallingError
}
