//! ClickHouse Keeper's filteredList and filteredListWithStatsAndData: children by kind, with their Stat and data (protocol chapter 38).

use super::context::{Failed, ReadContext, undecodable};
use super::list_format::ListFormat;
use crate::limits::LIST_BYTES_AT_ONCE;
use crate::path;
use crate::shard::watch::Kind;
use crate::tree::acl::READ;
use crate::tree::view::{ChildrenSize, NodeRef};
use alloc::vec::Vec;
use corral_wire::records::{FilteredListRequest, FilteredListWithStatsAndDataRequest};
use corral_wire::vector::{ChildrenEncoder, VectorEncoder};
use corral_wire::{ErrorCode, Reader, Writer};

/// A child that is listed, with its znode where more than the name is asked for.
type Child<'v> = (&'v str, Option<NodeRef<'v>>);

/// The answer to a list, before it is written.
pub(super) struct Listing<'v> {
    parent: NodeRef<'v>,
    children: Vec<Child<'v>>,
    format: ListFormat,
    size: ChildrenSize,
}

pub(super) fn filtered_list(
    context: &mut ReadContext<'_>,
    out: &mut Vec<u8>,
    xid: i32,
    reader: &mut Reader<'_>,
) -> Result<(), Failed> {
    let request = FilteredListRequest::decode(reader).map_err(undecodable)?;
    let listing = list(context, &request)?;
    context.fits(listing.bytes_max())?;
    context.reply(out, xid, |writer| listing.encode(writer));
    watch_children(context, request.path, request.watch)
}

pub(super) fn filtered_list_whole(
    context: &mut ReadContext<'_>,
    out: &mut Vec<u8>,
    xid: i32,
    reader: &mut Reader<'_>,
) -> Result<(), Failed> {
    let request = FilteredListWithStatsAndDataRequest::decode(reader).map_err(undecodable)?;
    let listing = list_whole(context, &request)?;
    context.at_once(listing.data_bytes() <= LIST_BYTES_AT_ONCE)?;
    context.fits(listing.bytes_max())?;
    context.reply(out, xid, |writer| listing.encode(writer));
    watch_children(context, request.path, request.watch)
}

fn watch_children(context: &mut ReadContext<'_>, path: Option<&str>, wanted: bool) -> Result<(), Failed> {
    let path = path.unwrap_or_default();
    context.watch(Kind::Child, path, context.view.hasher().hash(path), wanted)
}

pub(super) fn list<'v>(context: &'v ReadContext<'_>, request: &FilteredListRequest<'_>) -> Result<Listing<'v>, Failed> {
    listed(context, request.path, ListFormat::filtered(request)?)
}

/// # Errors
/// THROTTLEDOP besides a read's own, when the children's data is more than a reply may hold.
pub(super) fn list_whole<'v>(
    context: &'v ReadContext<'_>,
    request: &FilteredListWithStatsAndDataRequest<'_>,
) -> Result<Listing<'v>, Failed> {
    let listing = listed(context, request.path, ListFormat::whole(request)?)?;
    if listing.data_bytes() > context.reply_bytes_max {
        return Err(ErrorCode::ThrottledOp);
    }
    Ok(listing)
}

/// The children of a znode. In a list of more than names each child's own ACL counts.
fn listed<'v>(context: &'v ReadContext<'_>, path: Option<&str>, format: ListFormat) -> Result<Listing<'v>, Failed> {
    let path = path.ok_or(ErrorCode::MarshallingError)?;
    let hash = context.view.hasher().hash(path);
    let parent = context.readable(path, hash, READ)?;
    let size = context.children_size(path, hash);
    let nodes = format.needs_nodes();
    context.affords(size, nodes.then_some(path))?;
    let mut children = Vec::new();
    for name in context.children(path, hash) {
        if !nodes {
            children.push((name, None));
            continue;
        }
        let Some(node) = context.view.get(&path::child(path::or_root(path), name)) else { continue };
        if format.listed.admits(&node) {
            if !context.allows(&node, READ) {
                return Err(ErrorCode::NoAuth);
            }
            context.is_affordable()?;
            children.push((name, Some(node)));
        }
    }
    Ok(Listing { parent, children, format, size })
}

impl Listing<'_> {
    /// Bytes of the children's data, if the list holds them.
    fn data_bytes(&self) -> usize {
        let data = |(_, node): &Child<'_>| node.as_ref().and_then(NodeRef::data).map_or(0, <[u8]>::len);
        if matches!(self.format.whole, Some((_, true))) { self.children.iter().map(data).sum() } else { 0 }
    }

    pub(super) fn bytes_max(&self) -> usize {
        self.format.bytes_max(self.size) + 4 * self.children.len() + self.data_bytes()
    }

    pub(super) fn encode(&self, writer: &mut Writer<'_>) {
        let mut names = ChildrenEncoder::new(writer);
        self.children.iter().for_each(|(name, _)| names.push(name));
        names.finish();
        self.parent.wire_stat().encode(writer);
        let Some((with_stat, with_data)) = self.format.whole else { return };
        let nodes = || self.children.iter().filter_map(|(_, node)| node.as_ref());
        let mut stats = VectorEncoder::new(writer);
        nodes().filter(|_| with_stat).for_each(|node| stats.push(&node.wire_stat()));
        stats.finish();
        let mut data = VectorEncoder::new(writer);
        nodes().filter(|_| with_data).for_each(|node| data.push(&node.data()));
        data.finish();
    }
}
