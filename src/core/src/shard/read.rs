//! Reads: served from the shard's own view, in one go, straight from the stored bytes (protocol chapter 12.1). Each has a file.

mod add_watch;
mod context;
mod exists;
mod filtered_list;
mod get_acl;
mod get_children;
mod get_data;
mod get_ephemerals;
mod gradual;
mod list_format;
mod long_list;
mod multi_read;
mod outline;
mod rewatch;
mod set_watches;
mod watches;
mod who_am_i;

pub(crate) use context::{PutOff, ReadContext, Unserved, is_short};
pub(crate) use gradual::{GradualList, ListContext};
pub(crate) use long_list::begin_list;
pub(crate) use outline::{Length, Outline, Watching};
pub(crate) use rewatch::Rewatch;

use crate::limits::BYTES_PER_COST;
use crate::shard::reply;
use alloc::vec::Vec;
use corral_wire::{OpCode, Reader};

/// Appends the reply (and, for setWatches, the events before it) to `out`.
pub(crate) fn serve(
    context: &mut ReadContext<'_>,
    out: &mut Vec<u8>,
    xid: i32,
    op: OpCode,
    reader: &mut Reader<'_>,
) -> Result<(), Unserved> {
    let start = out.len();
    let served = match op {
        OpCode::GetData => get_data::get_data(context, out, xid, reader),
        OpCode::Exists => exists::exists(context, out, xid, reader),
        OpCode::GetChildren => get_children::get_children(context, out, xid, reader, false),
        OpCode::GetChildren2 => get_children::get_children(context, out, xid, reader, true),
        OpCode::GetAcl => get_acl::get_acl(context, out, xid, reader),
        OpCode::FilteredList => filtered_list::filtered_list(context, out, xid, reader),
        OpCode::FilteredListWithStatsAndData => filtered_list::filtered_list_whole(context, out, xid, reader),
        OpCode::GetEphemerals => get_ephemerals::get_ephemerals(context, out, xid, reader),
        OpCode::SetWatches => set_watches::set_watches(context, out, xid, reader),
        OpCode::SetWatches2 => set_watches::set_watches2(context, out, xid, reader),
        OpCode::AddWatch => add_watch::add_watch(context, out, xid, reader),
        OpCode::CheckWatches => watches::check_watches(context, out, xid, reader),
        OpCode::RemoveWatches => watches::remove_watches(context, out, xid, reader),
        OpCode::MultiRead => multi_read::multi_read(context, out, xid, reader),
        OpCode::WhoAmI => {
            who_am_i::who_am_i(context, out, xid);
            Ok(())
        }
        _ => return Err(Unserved::Unknown),
    };
    context.spend((out.len() - start) / BYTES_PER_COST);
    if let Err(code) = served {
        out.truncate(start);
        if let Some(why) = context.put_off.take() {
            return Err(Unserved::Later(why));
        }
        reply::error(out, xid, context.zxid(), code);
    }
    Ok(())
}
