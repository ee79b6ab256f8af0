//! ClickHouse Keeper's lists of children: filtered by kind, with the children's Stat and data (protocol chapter 38).

use super::{Failed, ReadContext, undecodable};
use crate::acl::READ;
use crate::path;
use crate::view::NodeRef;
use crate::watch::Kind;
use crate::znode::Owner;
use alloc::vec::Vec;
use corral_wire::records::{FilteredListRequest, FilteredListWithStatsAndDataRequest};
use corral_wire::vector::{ChildrenEncoder, VectorEncoder};
use corral_wire::{ErrorCode, Reader, Writer};

/// Which children are listed, `listType` on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listed {
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

    fn admits(self, child: &NodeRef<'_>) -> bool {
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
    /// Whether the children's Stat, and their data, is told; of a plain filtered list neither is even empty.
    whole: Option<(bool, bool)>,
}

impl ReadContext<'_> {
    pub(super) fn filtered_list(&mut self, out: &mut Vec<u8>, xid: i32, reader: &mut Reader<'_>) -> Result<(), Failed> {
        let request = FilteredListRequest::decode(reader).map_err(undecodable)?;
        let listing = self.list(&request)?;
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
        self.reply(out, xid, |writer| listing.encode(writer));
        self.watch_children(request.path, request.watch)
    }

    fn watch_children(&mut self, path: Option<&str>, wanted: bool) -> Result<(), Failed> {
        let path = path.unwrap_or_default();
        self.watch(Kind::Child, path, self.view.hasher().hash(path), wanted)
    }

    pub(super) fn list(&self, request: &FilteredListRequest<'_>) -> Result<Listing<'_>, Failed> {
        let listed = Listed::from_wire(request.list_type)?;
        let (parent, children) = self.parent_and_listed(request.path, listed, listed != Listed::All)?;
        Ok(Listing { parent, children, whole: None })
    }

    /// # Errors
    /// THROTTLEDOP besides a read's own, when the children's data is more than a reply may hold.
    pub(super) fn list_whole(&self, request: &FilteredListWithStatsAndDataRequest<'_>) -> Result<Listing<'_>, Failed> {
        let listed = Listed::from_wire(request.list_type)?;
        let nodes = request.with_stat || request.with_data || listed != Listed::All;
        let (parent, children) = self.parent_and_listed(request.path, listed, nodes)?;
        let data = |(_, node): &Child<'_>| node.as_ref().and_then(NodeRef::data).map_or(0, <[u8]>::len);
        if request.with_data && children.iter().map(data).sum::<usize>() > self.reply_bytes_max {
            return Err(ErrorCode::ThrottledOp);
        }
        Ok(Listing { parent, children, whole: Some((request.with_stat, request.with_data)) })
    }

    fn parent_and_listed(
        &self,
        path: Option<&str>,
        listed: Listed,
        nodes: bool,
    ) -> Result<(NodeRef<'_>, Vec<Child<'_>>), Failed> {
        let path = path.ok_or(ErrorCode::MarshallingError)?;
        let parent = self.readable(path, self.view.hasher().hash(path), READ)?;
        Ok((parent, self.listed(path, listed, nodes)?))
    }

    /// The children of a znode. Where more than names is told, each child's own ACL counts.
    fn listed(&self, path: &str, listed: Listed, nodes: bool) -> Result<Vec<Child<'_>>, Failed> {
        let names = self.children(path);
        if !nodes {
            return Ok(names.map(|name| (name, None)).collect());
        }
        let parent = path::or_root(path);
        let mut children = Vec::new();
        for name in names {
            let Some(node) = self.view.get(&path::child(parent, name)) else { continue };
            if listed.admits(&node) {
                if !self.allows(&node, READ) {
                    return Err(ErrorCode::NoAuth);
                }
                children.push((name, Some(node)));
            }
        }
        Ok(children)
    }
}

impl Listing<'_> {
    pub(super) fn encode(&self, writer: &mut Writer<'_>) {
        let mut names = ChildrenEncoder::new(writer);
        self.children.iter().for_each(|(name, _)| names.push(name));
        names.finish();
        self.parent.wire_stat().encode(writer);
        let Some((with_stat, with_data)) = self.whole else { return };
        let nodes = || self.children.iter().filter_map(|(_, node)| node.as_ref());
        let mut stats = VectorEncoder::new(writer);
        nodes().filter(|_| with_stat).for_each(|node| stats.push(&node.wire_stat()));
        stats.finish();
        let mut data = VectorEncoder::new(writer);
        nodes().filter(|_| with_data).for_each(|node| data.push(&node.data()));
        data.finish();
    }
}
