//! multiRead: several reads of one state, each with a result of its own (protocol chapter 13.3).

use super::{Failed, ReadContext, list_cost, undecodable};
use crate::limits::{
    BYTES_PER_COST, LOOK_UP_COST, MULTI_READ_BYTES_MAX, MULTI_READ_COST_MAX, MULTI_READ_FREE_BYTES,
    MULTI_READ_FREE_COST,
};
use crate::tree::acl::READ;
use alloc::vec::Vec;
use corral_wire::multi::{MultiKind, MultiOp, MultiRequest, MultiResponseEncoder};
use corral_wire::{ErrorCode, Reader};

impl ReadContext<'_> {
    pub(super) fn multi_read(&mut self, out: &mut Vec<u8>, xid: i32, reader: &mut Reader<'_>) -> Result<(), Failed> {
        let length = reader.remaining();
        let kind = if self.keeper { MultiKind::KeeperRead } else { MultiKind::Read };
        let request = MultiRequest::decode(kind, reader).map_err(undecodable)?;
        if request.iter().any(|op| path_of(&op).is_none()) {
            return Err(ErrorCode::MarshallingError);
        }
        self.multi = true;
        self.in_turn(length <= MULTI_READ_FREE_BYTES)?;
        // A multiRead that is too large, or looks at too much, is not begun.
        let mut weight = 0;
        for op in request.iter() {
            weight += self.weigh(&op)?;
            if weight > self.reply_bytes_max.min(MULTI_READ_BYTES_MAX) || self.cost.get() > MULTI_READ_COST_MAX {
                return Err(ErrorCode::ThrottledOp);
            }
        }
        self.in_turn(weight / BYTES_PER_COST + self.cost.get() <= MULTI_READ_FREE_COST)?;
        self.fits(weight)?;
        // Copying, too, takes its time.
        self.cost.set(weight / BYTES_PER_COST);
        let (start, mut fits) = (out.len(), true);
        self.reply(out, xid, |writer| {
            let mut list = MultiResponseEncoder::new(writer);
            for op in request.iter() {
                if let Err(code) = self.one_of_many(&mut list, &op) {
                    list.error(code);
                }
                fits = list.position() - start <= self.reply_bytes_max && self.cost.get() <= MULTI_READ_COST_MAX;
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
    fn weigh(&self, op: &MultiOp<'_>) -> Result<usize, Failed> {
        /// Without data or names.
        const RESULT_BYTES: usize = 96;
        self.spend(LOOK_UP_COST);
        let path = path_of(op).unwrap_or_default();
        let hash = self.view.hasher().hash(path);
        let Some(node) = self.find(path, hash) else { return Ok(RESULT_BYTES) };
        let more = match op {
            MultiOp::GetData(_) => node.data().map_or(0, <[u8]>::len),
            MultiOp::FilteredListWithStatsAndData(request) => {
                let look_ups = list_cost(self.children_size(path, hash), Some(path));
                self.in_turn(self.cost.get().saturating_add(look_ups) <= MULTI_READ_FREE_COST)?;
                self.list_whole(request).map_or(0, |listing| listing.bytes_max())
            }
            _ => {
                let size = self.children_size(path, hash);
                size.bytes + 4 * size.entries
            }
        };
        Ok(RESULT_BYTES + more)
    }

    fn one_of_many(&self, list: &mut MultiResponseEncoder<'_, '_>, op: &MultiOp<'_>) -> Result<(), Failed> {
        let path = path_of(op).unwrap_or_default();
        self.spend(LOOK_UP_COST);
        match op {
            MultiOp::FilteredList(request) => {
                let listing = self.list(request)?;
                list.with(op.op(), |writer| listing.encode(writer));
            }
            MultiOp::FilteredListWithStatsAndData(request) => {
                let listing = self.list_whole(request)?;
                list.with(op.op(), |writer| listing.encode(writer));
            }
            MultiOp::GetData(_) => {
                let node = self.readable(path, self.view.hasher().hash(path), READ)?;
                list.get_data(node.data(), &node.wire_stat());
            }
            _ => {
                let hash = self.view.hasher().hash(path);
                self.readable(path, hash, READ)?;
                self.affords(self.children_size(path, hash), None)?;
                list.get_children(self.children(path, hash));
            }
        }
        Ok(())
    }
}

const fn path_of<'a>(op: &MultiOp<'a>) -> Option<&'a str> {
    match op {
        MultiOp::GetData(get) => get.path,
        MultiOp::GetChildren(get) => get.path,
        MultiOp::FilteredList(list) => list.path,
        MultiOp::FilteredListWithStatsAndData(list) => list.path,
        _ => None,
    }
}
