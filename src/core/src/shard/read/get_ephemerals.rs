//! getEphemerals: the session's own ephemerals.

use super::context::{Failed, ReadContext, undecodable};
use crate::limits::{BYTES_PER_COST, EPHEMERALS_MAX, NAME_COST};
use alloc::vec::Vec;
use core::ops::Bound;
use corral_wire::records::GetEphemeralsRequest;
use corral_wire::vector::VectorEncoder;
use corral_wire::{ErrorCode, Reader};

/// The session's own ephemerals; the prefix is plain text, so `/a` finds `/ab` too.
pub(super) fn get_ephemerals(
    context: &ReadContext<'_>,
    out: &mut Vec<u8>,
    xid: i32,
    reader: &mut Reader<'_>,
) -> Result<(), Failed> {
    let request = GetEphemeralsRequest::decode(reader).map_err(undecodable)?;
    let prefix = request.prefix_path.filter(|prefix| !prefix.trim().is_empty()).unwrap_or("/");
    let paths = || {
        let all = context.ephemerals.into_iter().flat_map(|all| all.from(Bound::Included(prefix)));
        all.take_while(|path| path.starts_with(prefix))
    };
    let (mut count, mut bytes) = (0, 0);
    for path in paths().take(EPHEMERALS_MAX + 1) {
        (count, bytes) = (count + 1, bytes + 4 + path.len());
    }
    if count > EPHEMERALS_MAX || bytes > context.reply_bytes_max {
        return Err(ErrorCode::ThrottledOp);
    }
    context.spend(2 * count * NAME_COST + bytes / BYTES_PER_COST);
    context.fits(bytes)?;
    context.reply(out, xid, |writer| {
        let mut list = VectorEncoder::new(writer);
        for path in paths() {
            list.push(&Some(&**path));
        }
        list.finish();
    });
    Ok(())
}
