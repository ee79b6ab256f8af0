//! exists: the Stat of a znode, or a watch for its creation.

use super::context::{Failed, ReadContext, undecodable};
use crate::shard::watch::Kind;
use crate::tree::acl::READ;
use alloc::vec::Vec;
use corral_wire::records::ExistsRequest;
use corral_wire::{ErrorCode, Reader};

pub(super) fn exists(
    context: &mut ReadContext<'_>,
    out: &mut Vec<u8>,
    xid: i32,
    reader: &mut Reader<'_>,
) -> Result<(), Failed> {
    let request = ExistsRequest::decode(reader).map_err(undecodable)?;
    let path = request.path.ok_or(ErrorCode::MarshallingError)?;
    if path.contains('\0') {
        return Err(ErrorCode::BadArguments);
    }
    let hash = context.view.hasher().hash(path);
    match context.readable(path, hash, READ) {
        Ok(node) => context.reply(out, xid, |writer| node.wire_stat().encode(writer)),
        Err(ErrorCode::NoNode) => {
            context.watch(Kind::Data, path, hash, request.watch)?;
            return Err(ErrorCode::NoNode);
        }
        Err(code) => return Err(code),
    }
    context.watch(Kind::Data, path, hash, request.watch)
}
