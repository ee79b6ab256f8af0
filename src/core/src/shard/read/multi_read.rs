//! multiRead: several reads of one state, each with a result of its own (protocol chapter 13.3).

use super::context::{Failed, ReadContext, list_cost, undecodable};
use super::filtered_list;
use crate::limits::{
    BYTES_PER_COST, LOOK_UP_COST, MULTI_READ_BYTES_MAX, MULTI_READ_COST_MAX, MULTI_READ_FREE_BYTES,
    MULTI_READ_FREE_COST,
};
use crate::tree::acl::READ;
use alloc::vec::Vec;
use corral_wire::multi::{MultiKind, MultiOp, MultiRequest, MultiResponseEncoder};
use corral_wire::{ErrorCode, Reader};

pub(super) fn multi_read(
    context: &mut ReadContext<'_>,
    out: &mut Vec<u8>,
    xid: i32,
    reader: &mut Reader<'_>,
) -> Result<(), Failed> {
    let length = reader.remaining();
    let kind = if context.keeper { MultiKind::KeeperRead } else { MultiKind::Read };
    let request = MultiRequest::decode(kind, reader).map_err(undecodable)?;
    if request.iter().any(|op| op.path().is_none()) {
        return Err(ErrorCode::MarshallingError);
    }
    context.multi = true;
    context.in_turn(length <= MULTI_READ_FREE_BYTES)?;
    // A multiRead that is too large, or looks at too much, is not begun.
    let mut weight = 0;
    for op in request.iter() {
        weight += weigh(context, &op)?;
        if weight > context.reply_bytes_max.min(MULTI_READ_BYTES_MAX) || context.cost.get() > MULTI_READ_COST_MAX {
            return Err(ErrorCode::ThrottledOp);
        }
    }
    context.in_turn(weight / BYTES_PER_COST + context.cost.get() <= MULTI_READ_FREE_COST)?;
    context.fits(weight)?;
    // Copying, too, takes its time.
    context.cost.set(weight / BYTES_PER_COST);
    let (start, mut fits) = (out.len(), true);
    context.reply(out, xid, |writer| {
        let mut list = MultiResponseEncoder::new(writer);
        for op in request.iter() {
            if let Err(code) = one_of_many(context, &mut list, &op) {
                list.error(code);
            }
            fits = list.position() - start <= context.reply_bytes_max && context.cost.get() <= MULTI_READ_COST_MAX;
            if !fits {
                break;
            }
        }
        list.finish();
    });
    if !fits {
        return Err(ErrorCode::ThrottledOp);
    }
    Ok(())
}

/// Bytes of one result, about; of a list at most. Counts as half of the work. Children are looked up in turn alone, if they are
/// many.
fn weigh(context: &ReadContext<'_>, op: &MultiOp<'_>) -> Result<usize, Failed> {
    /// Without data or names.
    const RESULT_BYTES: usize = 96;
    context.spend(LOOK_UP_COST);
    let path = op.path().unwrap_or_default();
    let hash = context.view.hasher().hash(path);
    let Some(node) = context.find(path, hash) else { return Ok(RESULT_BYTES) };
    let more = match op {
        MultiOp::GetData(_) => node.data().map_or(0, <[u8]>::len),
        MultiOp::FilteredListWithStatsAndData(request) => {
            let look_ups = list_cost(context.children_size(path, hash), Some(path));
            context.in_turn(context.cost.get().saturating_add(look_ups) <= MULTI_READ_FREE_COST)?;
            filtered_list::list_whole(context, request).map_or(0, |listing| listing.bytes_max())
        }
        _ => {
            let size = context.children_size(path, hash);
            size.bytes + 4 * size.entries
        }
    };
    Ok(RESULT_BYTES + more)
}

fn one_of_many(
    context: &ReadContext<'_>,
    list: &mut MultiResponseEncoder<'_, '_>,
    op: &MultiOp<'_>,
) -> Result<(), Failed> {
    let path = op.path().unwrap_or_default();
    context.spend(LOOK_UP_COST);
    match op {
        MultiOp::FilteredList(request) => {
            let listing = filtered_list::list(context, request)?;
            list.with(op.op(), |writer| listing.encode(writer));
        }
        MultiOp::FilteredListWithStatsAndData(request) => {
            let listing = filtered_list::list_whole(context, request)?;
            list.with(op.op(), |writer| listing.encode(writer));
        }
        MultiOp::GetData(_) => {
            let node = context.readable(path, context.view.hasher().hash(path), READ)?;
            list.get_data(node.data(), &node.wire_stat());
        }
        _ => {
            let hash = context.view.hasher().hash(path);
            context.readable(path, hash, READ)?;
            context.affords(context.children_size(path, hash), None)?;
            list.get_children(context.children(path, hash));
        }
    }
    Ok(())
}
