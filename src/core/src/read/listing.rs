//! ClickHouse Keeper's lists of children: filtered by kind, with the children's Stat and data (protocol chapter 38).

use super::{Failed, ReadContext, undecodable};
use crate::acl::READ;
use crate::path;
use crate::view::NodeRef;
use crate::watch::Kind;
use crate::znode::Owner;
use alloc::format;
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

impl ReadContext<'_> {
    pub(super) fn filtered_list(&mut self, out: &mut Vec<u8>, xid: i32, reader: &mut Reader<'_>) -> Result<(), Failed> {
        let request = FilteredListRequest::decode(reader).map_err(undecodable)?;
        let path = request.path.ok_or(ErrorCode::MarshallingError)?;
        let listed = Listed::from_wire(request.list_type)?;
        let hash = self.view.hasher().hash(path);
        let node = self.readable(path, hash, READ)?;
        let children = self.listed(path, listed, listed != Listed::All)?;
        self.reply(out, xid, |writer| {
            encode_names(writer, &children);
            node.wire_stat().encode(writer);
        });
        self.watch(Kind::Child, path, hash, request.watch)
    }

    /// # Errors
    /// THROTTLEDOP besides a read's own, when the children's data is more than a reply may hold.
    pub(super) fn filtered_list_whole(
        &mut self,
        out: &mut Vec<u8>,
        xid: i32,
        reader: &mut Reader<'_>,
    ) -> Result<(), Failed> {
        let request = FilteredListWithStatsAndDataRequest::decode(reader).map_err(undecodable)?;
        let path = request.path.ok_or(ErrorCode::MarshallingError)?;
        let listed = Listed::from_wire(request.list_type)?;
        let hash = self.view.hasher().hash(path);
        let node = self.readable(path, hash, READ)?;
        let whole = request.with_stat || request.with_data;
        let children = self.listed(path, listed, whole || listed != Listed::All)?;
        let nodes = || children.iter().filter_map(|(_, node)| node.as_ref());
        if request.with_data {
            let bytes: usize = nodes().map(|node| node.data().map_or(0, <[u8]>::len)).sum();
            if bytes > self.reply_bytes_max {
                return Err(ErrorCode::ThrottledOp);
            }
        }
        self.reply(out, xid, |writer| {
            encode_names(writer, &children);
            node.wire_stat().encode(writer);
            let mut stats = VectorEncoder::new(writer);
            nodes().filter(|_| request.with_stat).for_each(|node| stats.push(&node.wire_stat()));
            stats.finish();
            let mut data = VectorEncoder::new(writer);
            nodes().filter(|_| request.with_data).for_each(|node| data.push(&node.data()));
            data.finish();
        });
        self.watch(Kind::Child, path, hash, request.watch)
    }

    /// The children of a znode. Where more than names is told, each child's own ACL counts.
    fn listed(&self, path: &str, listed: Listed, nodes: bool) -> Result<Vec<Child<'_>>, Failed> {
        let names = self.children(path);
        if !nodes {
            return Ok(names.map(|name| (name, None)).collect());
        }
        let up = if path == path::ROOT { "" } else { path };
        let mut children = Vec::new();
        for name in names {
            let Some(node) = self.view.get(&format!("{up}/{name}")) else { continue };
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

fn encode_names(writer: &mut Writer<'_>, children: &[Child<'_>]) {
    let mut names = ChildrenEncoder::new(writer);
    children.iter().for_each(|(name, _)| names.push(name));
    names.finish();
}
