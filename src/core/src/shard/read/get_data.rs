//! getData: data and Stat of a znode.

use super::context::{Failed, ReadContext, undecodable};
use crate::shard::watch::Kind;
use crate::tree::acl::READ;
use alloc::vec::Vec;
use corral_wire::records::GetDataRequest;
use corral_wire::{ErrorCode, Reader};

pub(super) fn get_data(
    context: &mut ReadContext<'_>,
    out: &mut Vec<u8>,
    xid: i32,
    reader: &mut Reader<'_>,
) -> Result<(), Failed> {
    let request = GetDataRequest::decode(reader).map_err(undecodable)?;
    let path = request.path.ok_or(ErrorCode::MarshallingError)?;
    let hash = context.view.hasher().hash(path);
    let node = context.readable(path, hash, READ)?;
    context.fits(node.data().map_or(0, <[u8]>::len))?;
    context.reply(out, xid, |writer| {
        writer.buffer(node.data());
        node.wire_stat().encode(writer);
    });
    context.watch(Kind::Data, path, hash, request.watch)
}
