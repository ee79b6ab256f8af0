//! multiRead: several reads of one state, each with a result of its own (protocol chapter 13.3).

use super::{Failed, ReadContext, undecodable};
use crate::acl::READ;
use alloc::vec::Vec;
use corral_wire::multi::{MultiKind, MultiOp, MultiRequest, MultiResponseEncoder};
use corral_wire::{ErrorCode, Reader};

/// Bytes of one result in the reply without data or names, about.
const RESULT_BYTES: usize = 96;
/// Bytes of one child's name in a reply, about.
const NAME_BYTES: usize = 32;

impl ReadContext<'_> {
    pub(super) fn multi_read(&self, out: &mut Vec<u8>, xid: i32, reader: &mut Reader<'_>) -> Result<(), Failed> {
        let request = MultiRequest::decode(MultiKind::Read, reader).map_err(undecodable)?;
        if request.iter().any(|op| path_of(&op).is_none()) {
            return Err(ErrorCode::MarshallingError);
        }
        // What will be too large is not begun: each result is weighed before it is written.
        let mut bytes = 0;
        for op in request.iter() {
            let path = path_of(&op).unwrap_or_default();
            let node = self.view.get_hashed(path, self.view.hasher().hash(path));
            bytes += node.map_or(RESULT_BYTES, |node| match op {
                MultiOp::GetData(_) => RESULT_BYTES + node.data().map_or(0, <[u8]>::len),
                _ => RESULT_BYTES + node.stat().num_children as usize * NAME_BYTES,
            });
            if bytes > self.reply_bytes_max {
                return Err(ErrorCode::ThrottledOp);
            }
        }
        self.reply(out, xid, |writer| {
            let mut list = MultiResponseEncoder::new(writer);
            for op in request.iter() {
                let path = path_of(&op).unwrap_or_default();
                match (self.readable(path, self.view.hasher().hash(path), READ), op) {
                    (Ok(node), MultiOp::GetData(_)) => list.get_data(node.data(), &node.wire_stat()),
                    (Ok(_), _) => list.get_children(self.view.children(path).into_iter().flatten()),
                    (Err(code), _) => list.error(code),
                }
            }
            list.finish();
        });
        Ok(())
    }
}

const fn path_of<'a>(op: &MultiOp<'a>) -> Option<&'a str> {
    match op {
        MultiOp::GetData(get) => get.path,
        MultiOp::GetChildren(get) => get.path,
        _ => None,
    }
}
