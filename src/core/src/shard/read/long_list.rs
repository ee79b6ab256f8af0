//! The begin of a list in pieces.

use super::context::{Failed, ReadContext, undecodable};
use super::gradual::GradualList;
use super::list_format::ListFormat;
use crate::limits::REPLY_FRAME_BYTES_MAX;
use crate::path;
use crate::shard::watch::{Kind, Mode};
use crate::tree::acl::READ;
use corral_wire::records::{FilteredListRequest, FilteredListWithStatsAndDataRequest, GetChildrenRequest};
use corral_wire::{ErrorCode, OpCode, Reader};

/// Begins a list in pieces, after [`PutOff::Long`](super::context::PutOff::Long); also its watch, which fires from now on.
pub(crate) fn begin_list(
    context: &mut ReadContext<'_>,
    xid: i32,
    op: OpCode,
    reader: &mut Reader<'_>,
) -> Result<GradualList, Failed> {
    let (path, watch, format) = match op {
        OpCode::FilteredList => {
            let request = FilteredListRequest::decode(reader).map_err(undecodable)?;
            (request.path, request.watch, ListFormat::filtered(&request)?)
        }
        OpCode::FilteredListWithStatsAndData => {
            let request = FilteredListWithStatsAndDataRequest::decode(reader).map_err(undecodable)?;
            (request.path, request.watch, ListFormat::whole(&request)?)
        }
        OpCode::GetChildren | OpCode::GetChildren2 => {
            let request = GetChildrenRequest::decode(reader).map_err(undecodable)?;
            let format = ListFormat { parent_stat: op == OpCode::GetChildren2, ..ListFormat::NAMES };
            (request.path, request.watch, format)
        }
        _ => return Err(ErrorCode::Unimplemented),
    };
    let path = path.ok_or(ErrorCode::MarshallingError)?;
    let hash = context.view.hasher().hash(path);
    let size = context.children_size(path, hash);
    let parent = context.readable(path, hash, READ)?;
    let bytes = format.bytes_max(size);
    if bytes > REPLY_FRAME_BYTES_MAX {
        return Err(ErrorCode::ThrottledOp);
    }
    context.fits(bytes)?;
    let at = path::or_root(path);
    let mut list = GradualList::begin(xid, context.zxid(), at, context.view.hasher().hash(at), &parent, format, size);
    if watch && !context.watches.holds(Kind::Child, context.conn, path, hash, Mode::Standard) {
        context.watch(Kind::Child, path, hash, true)?;
        list.has_set_watch(path, hash);
    }
    Ok(list)
}
