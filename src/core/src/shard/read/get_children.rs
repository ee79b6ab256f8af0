//! getChildren and getChildren2: the names of a znode's children, with its Stat or without.

use super::context::{Failed, ReadContext, undecodable};
use crate::shard::watch::Kind;
use crate::tree::acl::READ;
use alloc::vec::Vec;
use corral_wire::records::GetChildrenRequest;
use corral_wire::vector::ChildrenEncoder;
use corral_wire::{ErrorCode, Reader};

pub(super) fn get_children(
    context: &mut ReadContext<'_>,
    out: &mut Vec<u8>,
    xid: i32,
    reader: &mut Reader<'_>,
    stat: bool,
) -> Result<(), Failed> {
    let request = GetChildrenRequest::decode(reader).map_err(undecodable)?;
    let path = request.path.ok_or(ErrorCode::MarshallingError)?;
    let hash = context.view.hasher().hash(path);
    let node = context.readable(path, hash, READ)?;
    let size = context.children_size(path, hash);
    context.affords(size, None)?;
    context.fits(size.bytes + 4 * size.entries)?;
    let children = context.children(path, hash);
    context.reply(out, xid, |writer| {
        let mut names = ChildrenEncoder::new(writer);
        for name in children {
            names.push(name);
        }
        names.finish();
        if stat {
            node.wire_stat().encode(writer);
        }
    });
    context.watch(Kind::Child, path, hash, request.watch)
}
