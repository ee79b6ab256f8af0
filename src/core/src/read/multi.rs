//! multiRead: several reads of one state, each with a result of its own (protocol chapter 13.3).

use super::{Failed, ReadContext, undecodable};
use crate::acl::READ;
use alloc::vec::Vec;
use corral_wire::multi::{MultiKind, MultiOp, MultiRequest, MultiResponseEncoder};
use corral_wire::{ErrorCode, Reader};

impl ReadContext<'_> {
    pub(super) fn multi_read(&self, out: &mut Vec<u8>, xid: i32, reader: &mut Reader<'_>) -> Result<(), Failed> {
        let request = MultiRequest::decode(MultiKind::Read, reader).map_err(undecodable)?;
        if request.iter().any(|op| path_of(&op).is_none()) {
            return Err(ErrorCode::MarshallingError);
        }
        let (start, mut fits) = (out.len(), true);
        self.reply(out, xid, |writer| {
            let mut list = MultiResponseEncoder::new(writer);
            for op in request.iter() {
                let path = path_of(&op).unwrap_or_default();
                match (self.readable(path, self.view.hasher().hash(path), READ), op) {
                    (Ok(node), MultiOp::GetData(_)) => list.get_data(node.data(), &node.wire_stat()),
                    (Ok(_), _) => list.get_children(self.children(path)),
                    (Err(code), _) => list.error(code),
                }
                fits = list.position() - start <= self.reply_bytes_max;
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
}

const fn path_of<'a>(op: &MultiOp<'a>) -> Option<&'a str> {
    match op {
        MultiOp::GetData(get) => get.path,
        MultiOp::GetChildren(get) => get.path,
        _ => None,
    }
}
