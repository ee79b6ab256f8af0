//! addWatch: a persistent watch, of one path or of all below it (protocol chapter 14).

use super::context::{Failed, ReadContext, undecodable};
use super::context::{PERSISTENT, RECURSIVE};
use crate::path;
use alloc::vec::Vec;
use corral_wire::consts::AddWatchMode;
use corral_wire::records::{AddWatchRequest, ErrorResponse};
use corral_wire::{ErrorCode, Reader};

/// Any path may be watched; whether its events may be seen is decided when they happen.
pub(super) fn add_watch(
    context: &mut ReadContext<'_>,
    out: &mut Vec<u8>,
    xid: i32,
    reader: &mut Reader<'_>,
) -> Result<(), Failed> {
    let request = AddWatchRequest::decode(reader).map_err(undecodable)?;
    // ZooKeeper lets the null path be watched too; no znode's event ever fires that.
    let path = request.path.unwrap_or(path::NULL);
    let places = match AddWatchMode::from_i32(request.mode).ok_or(ErrorCode::MarshallingError)? {
        AddWatchMode::Persistent => PERSISTENT,
        AddWatchMode::PersistentRecursive => RECURSIVE,
    };
    context.register(path, places)?;
    context.reply(out, xid, |writer| ErrorResponse { err: 0 }.encode(writer));
    Ok(())
}
