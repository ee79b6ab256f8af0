//! Reads of one znode: its data, Stat, children, ACL.

use super::{Failed, ReadContext, undecodable};
use crate::limits::{BYTES_PER_COST, EPHEMERALS_MAX, NAME_COST};
use crate::shard::watch::Kind;
use crate::tree::acl::{self, READ};
use alloc::format;
use alloc::vec::Vec;
use core::ops::Bound;
use corral_wire::records::{
    Acl, ClientInfo, ExistsRequest, GetAclRequest, GetChildrenRequest, GetDataRequest, GetEphemeralsRequest,
};
use corral_wire::vector::{ChildrenEncoder, VectorEncoder};
use corral_wire::{ErrorCode, Reader};

impl ReadContext<'_> {
    pub(super) fn get_data(&mut self, out: &mut Vec<u8>, xid: i32, reader: &mut Reader<'_>) -> Result<(), Failed> {
        let request = GetDataRequest::decode(reader).map_err(undecodable)?;
        let path = request.path.ok_or(ErrorCode::MarshallingError)?;
        let hash = self.view.hasher().hash(path);
        let node = self.readable(path, hash, READ)?;
        self.fits(node.data().map_or(0, <[u8]>::len))?;
        self.reply(out, xid, |writer| {
            writer.buffer(node.data());
            node.wire_stat().encode(writer);
        });
        self.watch(Kind::Data, path, hash, request.watch)
    }

    pub(super) fn exists(&mut self, out: &mut Vec<u8>, xid: i32, reader: &mut Reader<'_>) -> Result<(), Failed> {
        let request = ExistsRequest::decode(reader).map_err(undecodable)?;
        let path = request.path.ok_or(ErrorCode::MarshallingError)?;
        if path.contains('\0') {
            return Err(ErrorCode::BadArguments);
        }
        let hash = self.view.hasher().hash(path);
        match self.readable(path, hash, READ) {
            Ok(node) => self.reply(out, xid, |writer| node.wire_stat().encode(writer)),
            Err(ErrorCode::NoNode) => {
                self.watch(Kind::Data, path, hash, request.watch)?;
                return Err(ErrorCode::NoNode);
            }
            Err(code) => return Err(code),
        }
        self.watch(Kind::Data, path, hash, request.watch)
    }

    pub(super) fn get_children(
        &mut self,
        out: &mut Vec<u8>,
        xid: i32,
        reader: &mut Reader<'_>,
        stat: bool,
    ) -> Result<(), Failed> {
        let request = GetChildrenRequest::decode(reader).map_err(undecodable)?;
        let path = request.path.ok_or(ErrorCode::MarshallingError)?;
        let hash = self.view.hasher().hash(path);
        let node = self.readable(path, hash, READ)?;
        let size = self.children_size(path, hash);
        self.affords(size, None)?;
        self.fits(size.bytes + 4 * size.entries)?;
        let children = self.children(path, hash);
        self.reply(out, xid, |writer| {
            let mut names = ChildrenEncoder::new(writer);
            for name in children {
                names.push(name);
            }
            names.finish();
            if stat {
                node.wire_stat().encode(writer);
            }
        });
        self.watch(Kind::Child, path, hash, request.watch)
    }

    pub(super) fn get_acl(&self, out: &mut Vec<u8>, xid: i32, reader: &mut Reader<'_>) -> Result<(), Failed> {
        let request = GetAclRequest::decode(reader).map_err(undecodable)?;
        let path = request.path.ok_or(ErrorCode::MarshallingError)?;
        let node = self.readable(path, self.view.hasher().hash(path), READ | acl::ADMIN)?;
        let full = self.allows(&node, acl::ADMIN);
        self.fits(node.acl().iter().map(|(_, scheme, id)| 16 + scheme.len() + id.len()).sum())?;
        self.reply(out, xid, |writer| {
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

    pub(super) fn who_am_i(&self, out: &mut Vec<u8>, xid: i32) {
        self.reply(out, xid, |writer| {
            let mut list = VectorEncoder::new(writer);
            for identity in acl::proven(self.identities, self.any_sasl_user) {
                list.push(&ClientInfo { auth_scheme: Some(&identity.scheme), user: Some(acl::user_name(identity)) });
            }
            list.finish();
        });
    }

    /// The session's own ephemerals; the prefix is plain text, so `/a` finds `/ab` too.
    pub(super) fn get_ephemerals(&self, out: &mut Vec<u8>, xid: i32, reader: &mut Reader<'_>) -> Result<(), Failed> {
        let request = GetEphemeralsRequest::decode(reader).map_err(undecodable)?;
        let prefix = request.prefix_path.filter(|prefix| !prefix.trim().is_empty()).unwrap_or("/");
        let paths = || {
            let all = self.ephemerals.into_iter().flat_map(|all| all.from(Bound::Included(prefix)));
            all.take_while(|path| path.starts_with(prefix))
        };
        let (mut count, mut bytes) = (0, 0);
        for path in paths().take(EPHEMERALS_MAX + 1) {
            (count, bytes) = (count + 1, bytes + 4 + path.len());
        }
        if count > EPHEMERALS_MAX || bytes > self.reply_bytes_max {
            return Err(ErrorCode::ThrottledOp);
        }
        self.spend(2 * count * NAME_COST + bytes / BYTES_PER_COST);
        self.fits(bytes)?;
        self.reply(out, xid, |writer| {
            let mut list = VectorEncoder::new(writer);
            for path in paths() {
                list.push(&Some(&**path));
            }
            list.finish();
        });
        Ok(())
    }
}
