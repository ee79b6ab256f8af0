//! whoAmI: the identities of the connection.

use super::context::ReadContext;
use crate::tree::acl;
use alloc::vec::Vec;
use corral_wire::records::ClientInfo;
use corral_wire::vector::VectorEncoder;

pub(super) fn who_am_i(context: &ReadContext<'_>, out: &mut Vec<u8>, xid: i32) {
    context.reply(out, xid, |writer| {
        let mut list = VectorEncoder::new(writer);
        for identity in acl::proven(context.identities, context.any_sasl_user) {
            list.push(&ClientInfo { auth_scheme: Some(&identity.scheme), user: Some(acl::user_name(identity)) });
        }
        list.finish();
    });
}
