//! The inputs of a read, what it may spend, and the steps that reads share.

use crate::ids::{ConnId, Zxid};
use crate::limits::{
    ACL_ENTRY_COST, ACL_IDENTITY_COST, BYTES_PER_COST, LIST_BYTES_AT_ONCE, LIST_ENTRIES_AT_ONCE, LOOK_UP_COST,
    LOOK_UPS_AT_ONCE, MULTI_READ_COST_MAX, NAME_COST,
};
use crate::path;
use crate::session::Ephemerals;
use crate::shard::reply;
use crate::shard::watch::{Kind, Mode, WatchTable};
use crate::tree::acl::{AclList, AnySaslUser, Identity};
use crate::tree::view::{ChildrenSize, NodeRef, View};
use alloc::vec::Vec;
use core::cell::Cell;
use corral_wire::records::ReplyHeader;
use corral_wire::{DecodeError, ErrorCode, Writer};

/// The tables of a persistent watch. A recursive watch is in the data table alone.
pub(super) const PERSISTENT: &[(Kind, Mode)] = &[(Kind::Data, Mode::Persistent), (Kind::Child, Mode::Persistent)];
pub(super) const RECURSIVE: &[(Kind, Mode)] = &[(Kind::Data, Mode::PersistentRecursive)];

/// Everything a read may look at, and the one table it may add to.
pub(crate) struct ReadContext<'s> {
    pub(crate) view: &'s View,
    pub(crate) watches: &'s mut WatchTable,
    pub(crate) conn: ConnId,
    pub(crate) identities: &'s [Identity],
    pub(crate) any_sasl_user: Option<&'s AnySaslUser>,
    /// The session's ephemerals, sorted; `None` when it has none.
    pub(crate) ephemerals: Option<&'s Ephemerals>,
    pub(crate) skip_acl: bool,
    /// Whether ClickHouse Keeper's operations are served.
    pub(crate) keeper: bool,
    /// A multiRead with a longer reply is refused. A single read's reply is bounded by the content of one node.
    pub(crate) reply_bytes_max: usize,
    /// Bytes of a reply for which there is memory now.
    pub(crate) room: usize,
    /// Whether a read may be put off for longer than until its turn: writes behind it would have to wait too. If not, it is
    /// refused.
    pub(crate) may_wait: bool,
    /// Whether it is the connection's turn for a costly read, or a write behind the read is about to be applied.
    pub(crate) has_turn: bool,
    /// A multiRead is served.
    pub(crate) multi: bool,
    /// Why the read is put off.
    pub(crate) put_off: Cell<Option<PutOff>>,
    /// Work that has been done, in the units of [`crate::limits::TURN_COST_MAX`].
    pub(crate) cost: Cell<usize>,
}

/// A read that is not answered at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PutOff {
    /// It takes more than a turn: it is to be done in pieces.
    Long,
    /// There is no memory for a reply of so many bytes.
    Room(usize),
    /// It is costly: it waits for the turn of its connection, so that the cheap reads of others go past it.
    Turn,
}

/// Why a read has no reply.
#[derive(Debug)]
pub(crate) enum Unserved {
    /// It is not served here: UNIMPLEMENTED, and the connection ends.
    Unknown,
    Later(PutOff),
}

pub(super) type Failed = ErrorCode;

/// Whether a list can be made in one turn. Its children are looked up below the path in `look_ups`, or not at all.
pub(crate) fn is_short(size: ChildrenSize, look_ups: Option<&str>) -> bool {
    let most = if look_ups.is_some() { LOOK_UPS_AT_ONCE * LOOK_UP_COST } else { LIST_ENTRIES_AT_ONCE * NAME_COST };
    list_cost(size, look_ups) <= most && size.bytes <= LIST_BYTES_AT_ONCE
}

/// The whole path of a child that is looked up is copied, hashed and compared.
pub(super) fn list_cost(size: ChildrenSize, look_ups: Option<&str>) -> usize {
    let each = look_ups.map_or(NAME_COST, |parent| LOOK_UP_COST + parent.len() / BYTES_PER_COST);
    size.entries.saturating_mul(each)
}

impl ReadContext<'_> {
    /// Counts work that is done.
    #[inline]
    pub(super) fn spend(&self, cost: usize) {
        self.cost.set(self.cost.get() + cost);
    }

    /// Goes on if a list can be made in this turn, as [`is_short`] decides. Within a multiRead it goes on as long as
    /// all its reads together are affordable.
    pub(super) fn affords(&self, size: ChildrenSize, look_ups: Option<&str>) -> Result<(), Failed> {
        if !self.multi {
            self.at_once(is_short(size, look_ups))?;
        }
        self.spend(list_cost(size, look_ups));
        self.is_affordable()
    }

    /// Goes on while the reads of a multiRead are affordable.
    pub(super) fn is_affordable(&self) -> Result<(), Failed> {
        if self.multi && self.cost.get() > MULTI_READ_COST_MAX { Err(ErrorCode::ThrottledOp) } else { Ok(()) }
    }

    /// Goes on if the read can be done in this turn; if not, it is put off, or refused where that cannot be.
    pub(super) fn at_once(&self, can: bool) -> Result<(), Failed> {
        if can { Ok(()) } else { self.put_off(PutOff::Long) }
    }

    /// Goes on if there is memory for a reply of so many bytes; likewise.
    #[inline]
    pub(super) fn fits(&self, bytes: usize) -> Result<(), Failed> {
        if bytes <= self.room { Ok(()) } else { self.put_off(PutOff::Room(bytes)) }
    }

    /// Goes on if a read that cannot be done in pieces is cheap, or has waited for its turn.
    pub(super) fn in_turn(&self, is_cheap: bool) -> Result<(), Failed> {
        if is_cheap || self.has_turn { Ok(()) } else { self.put_off(PutOff::Turn) }
    }

    #[cold]
    pub(super) fn put_off(&self, why: PutOff) -> Result<(), Failed> {
        self.put_off.set((self.may_wait || why == PutOff::Turn).then_some(why));
        Err(ErrorCode::ThrottledOp)
    }

    pub(super) const fn zxid(&self) -> Zxid {
        self.view.zxid()
    }

    pub(super) fn reply(&self, out: &mut Vec<u8>, xid: i32, body: impl FnOnce(&mut Writer<'_>)) {
        let zxid = self.zxid().wire();
        reply::frame(out, |writer| {
            ReplyHeader::ok(xid, zxid).encode(writer);
            body(writer);
        });
    }

    /// The znode of a path. The empty path is the root's second name, in reads alone, as in ZooKeeper.
    pub(super) fn find(&self, path: &str, hash: u64) -> Option<NodeRef<'_>> {
        if path.is_empty() { self.view.get(path::ROOT) } else { self.view.get_hashed(path, hash) }
    }

    /// Names and marks of a znode's children: the cost of reading them. The hash is the path's.
    pub(super) fn children_size(&self, path: &str, hash: u64) -> ChildrenSize {
        let (path, hash) = self.root_or(path, hash);
        self.view.children_size(path, hash).unwrap_or_default()
    }

    /// The children of a znode. Weigh [`ReadContext::children_size`] first: deleted names in front of the first child are
    /// passed over at once.
    pub(super) fn children(&self, path: &str, hash: u64) -> impl Iterator<Item = &str> {
        let (path, hash) = self.root_or(path, hash);
        self.view.children_hashed(path, hash).into_iter().flatten()
    }

    /// The empty path is the root's second name.
    pub(super) fn root_or<'p>(&self, path: &'p str, hash: u64) -> (&'p str, u64) {
        if path.is_empty() { (path::ROOT, self.view.hasher().hash(path::ROOT)) } else { (path, hash) }
    }

    #[inline]
    pub(super) fn readable(&self, path: &str, hash: u64, wanted: i32) -> Result<NodeRef<'_>, Failed> {
        let node = self.find(path, hash).ok_or(ErrorCode::NoNode)?;
        if self.allows(&node, wanted) { Ok(node) } else { Err(ErrorCode::NoAuth) }
    }

    #[inline]
    pub(super) fn allows(&self, node: &NodeRef<'_>, wanted: i32) -> bool {
        node.acl_list().is_none_or(|list| self.skip_acl || self.is_granted(list, wanted))
    }

    #[inline(never)]
    pub(super) fn is_granted(&self, list: &AclList, wanted: i32) -> bool {
        self.spend(ACL_ENTRY_COST * list.len() + ACL_IDENTITY_COST * self.identities.len());
        list.grants(wanted, self.identities)
    }

    /// Registers a one-shot watch, if it is wanted.
    pub(super) fn watch(&mut self, kind: Kind, path: &str, hash: u64, wanted: bool) -> Result<(), Failed> {
        if !wanted {
            return Ok(());
        }
        self.watches.add(kind, self.conn, path, hash, Mode::Standard).map_err(|_| ErrorCode::ThrottledOp)
    }

    /// Registers a watch in these tables.
    pub(super) fn register(&mut self, path: &str, places: &[(Kind, Mode)]) -> Result<(), Failed> {
        let hash = self.view.hasher().hash(path);
        for (kind, mode) in places {
            self.watches.add(*kind, self.conn, path, hash, *mode).map_err(|_| ErrorCode::ThrottledOp)?;
        }
        Ok(())
    }
}

/// The code for a record that cannot be decoded.
pub(super) fn undecodable(error: DecodeError) -> ErrorCode {
    match error {
        DecodeError::TooManyOps => ErrorCode::ThrottledOp,
        _ => ErrorCode::MarshallingError,
    }
}
