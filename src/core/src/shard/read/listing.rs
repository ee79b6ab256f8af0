//! ClickHouse Keeper's lists of children: filtered by kind, with the children's Stat and data (protocol chapter 38).

use super::gradual::Told;
use super::{Failed, GradualList, ReadContext, undecodable};
use crate::limits::{LIST_BYTES_AT_ONCE, REPLY_FRAME_BYTES_MAX};
use crate::path;
use crate::shard::watch::{Kind, Mode};
use crate::tree::acl::READ;
use crate::tree::view::{ChildrenSize, NodeRef};
use crate::tree::znode::Owner;
use alloc::vec::Vec;
use corral_wire::records::{FilteredListRequest, FilteredListWithStatsAndDataRequest, GetChildrenRequest};
use corral_wire::vector::{ChildrenEncoder, VectorEncoder};
use corral_wire::{ErrorCode, OpCode, Reader, Writer};

/// Which children are listed, `listType` on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    All,
    Persistent,
    Ephemeral,
}

impl Listed {
    fn from_wire(number: u8) -> Result<Self, Failed> {
        match number {
            0 => Ok(Self::All),
            1 => Ok(Self::Persistent),
            2 => Ok(Self::Ephemeral),
            _ => Err(ErrorCode::MarshallingError),
        }
    }

    pub(super) fn admits(self, child: &NodeRef<'_>) -> bool {
        let ephemeral = Owner::from_bits(child.stat().owner).is_ephemeral();
        match self {
            Self::All => true,
            Self::Persistent => !ephemeral,
            Self::Ephemeral => ephemeral,
        }
    }
}

/// A child that is listed, with its znode where more than the name is asked for.
type Child<'v> = (&'v str, Option<NodeRef<'v>>);

/// The answer to a list, before it is written.
pub(super) struct Listing<'v> {
    parent: NodeRef<'v>,
    children: Vec<Child<'v>>,
    told: Told,
    size: ChildrenSize,
}

impl Told {
    fn filtered(request: &FilteredListRequest<'_>) -> Result<Self, Failed> {
        Ok(Self { listed: Listed::from_wire(request.list_type)?, parent_stat: true, whole: None })
    }

    fn whole(request: &FilteredListWithStatsAndDataRequest<'_>) -> Result<Self, Failed> {
        let listed = Listed::from_wire(request.list_type)?;
        Ok(Self { listed, parent_stat: true, whole: Some((request.with_stat, request.with_data)) })
    }
}

impl ReadContext<'_> {
    pub(super) fn filtered_list(&mut self, out: &mut Vec<u8>, xid: i32, reader: &mut Reader<'_>) -> Result<(), Failed> {
        let request = FilteredListRequest::decode(reader).map_err(undecodable)?;
        let listing = self.list(&request)?;
        self.fits(listing.bytes_max())?;
        self.reply(out, xid, |writer| listing.encode(writer));
        self.watch_children(request.path, request.watch)
    }

    pub(super) fn filtered_list_whole(
        &mut self,
        out: &mut Vec<u8>,
        xid: i32,
        reader: &mut Reader<'_>,
    ) -> Result<(), Failed> {
        let request = FilteredListWithStatsAndDataRequest::decode(reader).map_err(undecodable)?;
        let listing = self.list_whole(&request)?;
        self.at_once(listing.data_bytes() <= LIST_BYTES_AT_ONCE)?;
        self.fits(listing.bytes_max())?;
        self.reply(out, xid, |writer| listing.encode(writer));
        self.watch_children(request.path, request.watch)
    }

    fn watch_children(&mut self, path: Option<&str>, wanted: bool) -> Result<(), Failed> {
        let path = path.unwrap_or_default();
        self.watch(Kind::Child, path, self.view.hasher().hash(path), wanted)
    }

    pub(super) fn list(&self, request: &FilteredListRequest<'_>) -> Result<Listing<'_>, Failed> {
        self.listed(request.path, Told::filtered(request)?)
    }

    /// # Errors
    /// THROTTLEDOP besides a read's own, when the children's data is more than a reply may hold.
    pub(super) fn list_whole(&self, request: &FilteredListWithStatsAndDataRequest<'_>) -> Result<Listing<'_>, Failed> {
        let listing = self.listed(request.path, Told::whole(request)?)?;
        if listing.data_bytes() > self.reply_bytes_max {
            return Err(ErrorCode::ThrottledOp);
        }
        Ok(listing)
    }

    /// The children of a znode. Where more than names is told, each child's own ACL counts.
    fn listed(&self, path: Option<&str>, told: Told) -> Result<Listing<'_>, Failed> {
        let path = path.ok_or(ErrorCode::MarshallingError)?;
        let hash = self.view.hasher().hash(path);
        let parent = self.readable(path, hash, READ)?;
        let size = self.children_size(path, hash);
        let nodes = told.needs_nodes();
        self.affords(size, nodes.then_some(path))?;
        let mut children = Vec::new();
        for name in self.children(path, hash) {
            if !nodes {
                children.push((name, None));
                continue;
            }
            let Some(node) = self.view.get(&path::child(path::or_root(path), name)) else { continue };
            if told.listed.admits(&node) {
                if !self.allows(&node, READ) {
                    return Err(ErrorCode::NoAuth);
                }
                self.is_affordable()?;
                children.push((name, Some(node)));
            }
        }
        Ok(Listing { parent, children, told, size })
    }

    /// Begins a list in pieces, after [`PutOff::Long`](super::PutOff::Long); also its watch, which fires from now on.
    pub(crate) fn begin_list(&mut self, xid: i32, op: OpCode, reader: &mut Reader<'_>) -> Result<GradualList, Failed> {
        let (path, watch, told) = match op {
            OpCode::FilteredList => {
                let request = FilteredListRequest::decode(reader).map_err(undecodable)?;
                (request.path, request.watch, Told::filtered(&request)?)
            }
            OpCode::FilteredListWithStatsAndData => {
                let request = FilteredListWithStatsAndDataRequest::decode(reader).map_err(undecodable)?;
                (request.path, request.watch, Told::whole(&request)?)
            }
            _ => {
                let request = GetChildrenRequest::decode(reader).map_err(undecodable)?;
                let told = Told { parent_stat: op == OpCode::GetChildren2, ..Told::NAMES };
                (request.path, request.watch, told)
            }
        };
        let path = path.ok_or(ErrorCode::MarshallingError)?;
        let hash = self.view.hasher().hash(path);
        let size = self.children_size(path, hash);
        let parent = self.readable(path, hash, READ)?;
        let bytes = told.bytes_max(size);
        if bytes > REPLY_FRAME_BYTES_MAX {
            return Err(ErrorCode::ThrottledOp);
        }
        self.fits(bytes)?;
        let at = path::or_root(path);
        let mut list = GradualList::begin(xid, self.zxid(), at, self.view.hasher().hash(at), &parent, told, size);
        if watch && !self.watches.holds(Kind::Child, self.conn, path, hash, Mode::Standard) {
            self.watch(Kind::Child, path, hash, true)?;
            list.has_set_watch(path, hash);
        }
        Ok(list)
    }
}

impl Listing<'_> {
    /// Bytes of the children's data, if it is told.
    fn data_bytes(&self) -> usize {
        let data = |(_, node): &Child<'_>| node.as_ref().and_then(NodeRef::data).map_or(0, <[u8]>::len);
        if matches!(self.told.whole, Some((_, true))) { self.children.iter().map(data).sum() } else { 0 }
    }

    pub(super) fn bytes_max(&self) -> usize {
        self.told.bytes_max(self.size) + 4 * self.children.len() + self.data_bytes()
    }

    pub(super) fn encode(&self, writer: &mut Writer<'_>) {
        let mut names = ChildrenEncoder::new(writer);
        self.children.iter().for_each(|(name, _)| names.push(name));
        names.finish();
        self.parent.wire_stat().encode(writer);
        let Some((with_stat, with_data)) = self.told.whole else { return };
        let nodes = || self.children.iter().filter_map(|(_, node)| node.as_ref());
        let mut stats = VectorEncoder::new(writer);
        nodes().filter(|_| with_stat).for_each(|node| stats.push(&node.wire_stat()));
        stats.finish();
        let mut data = VectorEncoder::new(writer);
        nodes().filter(|_| with_data).for_each(|node| data.push(&node.data()));
        data.finish();
    }
}
