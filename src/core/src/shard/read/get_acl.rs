//! getACL: ACL and Stat of a znode.

use super::context::{Failed, ReadContext, undecodable};
use crate::tree::acl::{self, READ};
use alloc::format;
use alloc::vec::Vec;
use corral_wire::records::{Acl, GetAclRequest};
use corral_wire::vector::VectorEncoder;
use corral_wire::{ErrorCode, Reader};

pub(super) fn get_acl(
    context: &ReadContext<'_>,
    out: &mut Vec<u8>,
    xid: i32,
    reader: &mut Reader<'_>,
) -> Result<(), Failed> {
    let request = GetAclRequest::decode(reader).map_err(undecodable)?;
    let path = request.path.ok_or(ErrorCode::MarshallingError)?;
    let node = context.readable(path, context.view.hasher().hash(path), READ | acl::ADMIN)?;
    let full = context.allows(&node, acl::ADMIN);
    context.fits(node.acl().iter().map(|(_, scheme, id)| 16 + scheme.len() + id.len()).sum())?;
    context.reply(out, xid, |writer| {
        let mut list = VectorEncoder::new(writer);
        for (perms, scheme, id) in node.acl().iter() {
            if full {
                list.push(&Acl { perms, scheme: Some(scheme), id: Some(id) });
            } else {
                let (kept, mark) = acl::redact(scheme, id);
                list.push(&Acl { perms, scheme: Some(scheme), id: Some(&format!("{kept}{mark}")) });
            }
        }
        list.finish();
        node.wire_stat().encode(writer);
    });
    Ok(())
}
