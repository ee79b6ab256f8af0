//! Reads: served from the shard's own view, in one go, straight from the stored bytes (protocol chapter 12).

use crate::acl::{self, READ, grants};
use crate::command::Identity;
use crate::ids::{ConnId, Zxid};
use crate::reply;
use crate::view::{NodeRef, View};
use crate::watch::{Kind, Mode, WatchTable};
use alloc::format;
use alloc::vec::Vec;
use corral_wire::consts::EventType;
use corral_wire::multi::{MultiKind, MultiOp, MultiRequest, MultiResponseEncoder};
use corral_wire::records::{
    Acl, ClientInfo, ExistsRequest, GetAclRequest, GetChildrenRequest, GetDataRequest, ReplyHeader, SetWatches,
};
use corral_wire::vector::{ChildrenEncoder, VectorEncoder};
use corral_wire::{ErrorCode, OpCode, Reader, Writer};

/// Everything a read may look at, and the one table it may add to.
pub(crate) struct ReadContext<'s> {
    pub(crate) view: &'s View,
    pub(crate) watches: &'s mut WatchTable,
    pub(crate) conn: ConnId,
    pub(crate) identities: &'s [Identity],
    pub(crate) skip_acl: bool,
    /// A multiRead whose reply outgrows this is refused; a single read's reply is bounded by what one node holds.
    pub(crate) reply_bytes_max: usize,
}

/// A read that is not served here: UNIMPLEMENTED, and the connection ends.
#[derive(Debug)]
pub(crate) struct NotServed;

type Failed = ErrorCode;

/// Bytes of one result in a multiRead's reply without data or names, about.
const RESULT_BYTES: usize = 96;
/// Bytes of one child's name in a reply, about.
const NAME_BYTES: usize = 32;

impl ReadContext<'_> {
    /// Appends the reply (and, for setWatches, the events before it) to `out`.
    pub(crate) fn serve(
        &mut self,
        out: &mut Vec<u8>,
        xid: i32,
        op: OpCode,
        reader: &mut Reader<'_>,
    ) -> Result<(), NotServed> {
        let start = out.len();
        let served = match op {
            OpCode::GetData => self.get_data(out, xid, reader),
            OpCode::Exists => self.exists(out, xid, reader),
            OpCode::GetChildren => self.get_children(out, xid, reader, false),
            OpCode::GetChildren2 => self.get_children(out, xid, reader, true),
            OpCode::GetAcl => self.get_acl(out, xid, reader),
            OpCode::SetWatches => self.set_watches(out, xid, reader),
            OpCode::MultiRead => self.multi_read(out, xid, reader),
            OpCode::WhoAmI => {
                self.who_am_i(out, xid);
                Ok(())
            }
            _ => return Err(NotServed),
        };
        if let Err(code) = served {
            out.truncate(start);
            reply::error(out, xid, self.zxid(), code);
        }
        Ok(())
    }

    const fn zxid(&self) -> Zxid {
        self.view.zxid()
    }

    fn reply(&self, out: &mut Vec<u8>, xid: i32, body: impl FnOnce(&mut Writer<'_>)) {
        let zxid = self.zxid().wire();
        reply::frame(out, |writer| {
            ReplyHeader::ok(xid, zxid).encode(writer);
            body(writer);
        });
    }

    fn readable(&self, path: &str, hash: u64, wanted: i32) -> Result<NodeRef<'_>, Failed> {
        let node = self.view.get_hashed(path, hash).ok_or(ErrorCode::NoNode)?;
        if self.allows(&node, wanted) { Ok(node) } else { Err(ErrorCode::NoAuth) }
    }

    fn allows(&self, node: &NodeRef<'_>, wanted: i32) -> bool {
        node.is_open_acl() || self.skip_acl || grants(node.acl().iter(), wanted, self.identities)
    }

    fn watch(&mut self, kind: Kind, path: &str, hash: u64, wanted: bool) -> Result<(), Failed> {
        if !wanted {
            return Ok(());
        }
        self.watches.add(kind, self.conn, path, hash, Mode::Standard).map_err(|_| ErrorCode::ThrottledOp)
    }

    fn get_data(&mut self, out: &mut Vec<u8>, xid: i32, reader: &mut Reader<'_>) -> Result<(), Failed> {
        let request = GetDataRequest::decode(reader).map_err(undecodable)?;
        let path = request.path.ok_or(ErrorCode::MarshallingError)?;
        let hash = self.view.hasher().hash(path);
        let node = self.readable(path, hash, READ)?;
        self.reply(out, xid, |writer| {
            writer.buffer(node.data());
            node.wire_stat().encode(writer);
        });
        self.watch(Kind::Data, path, hash, request.watch)
    }

    fn exists(&mut self, out: &mut Vec<u8>, xid: i32, reader: &mut Reader<'_>) -> Result<(), Failed> {
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

    fn get_children(&mut self, out: &mut Vec<u8>, xid: i32, reader: &mut Reader<'_>, stat: bool) -> Result<(), Failed> {
        let request = GetChildrenRequest::decode(reader).map_err(undecodable)?;
        let path = request.path.ok_or(ErrorCode::MarshallingError)?;
        let hash = self.view.hasher().hash(path);
        let node = self.readable(path, hash, READ)?;
        self.reply(out, xid, |writer| {
            let mut names = ChildrenEncoder::new(writer);
            for name in self.view.children(path).into_iter().flatten() {
                names.push(name);
            }
            names.finish();
            if stat {
                node.wire_stat().encode(writer);
            }
        });
        self.watch(Kind::Child, path, hash, request.watch)
    }

    fn get_acl(&self, out: &mut Vec<u8>, xid: i32, reader: &mut Reader<'_>) -> Result<(), Failed> {
        let request = GetAclRequest::decode(reader).map_err(undecodable)?;
        let path = request.path.ok_or(ErrorCode::MarshallingError)?;
        let node = self.readable(path, self.view.hasher().hash(path), READ | acl::ADMIN)?;
        let full = self.allows(&node, acl::ADMIN);
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

    fn who_am_i(&self, out: &mut Vec<u8>, xid: i32) {
        self.reply(out, xid, |writer| {
            let mut list = VectorEncoder::new(writer);
            for identity in self.identities {
                list.push(&ClientInfo { auth_scheme: Some(&identity.scheme), user: Some(acl::user_name(identity)) });
            }
            list.finish();
        });
    }

    fn multi_read(&self, out: &mut Vec<u8>, xid: i32, reader: &mut Reader<'_>) -> Result<(), Failed> {
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

    /// Registers a reconnecting client's watches, or tells at once what changed meanwhile (protocol chapter 14.4).
    fn set_watches(&mut self, out: &mut Vec<u8>, xid: i32, reader: &mut Reader<'_>) -> Result<(), Failed> {
        let request = SetWatches::decode(reader).map_err(undecodable)?;
        let (Some(data), Some(exist), Some(child)) =
            (request.data_watches, request.exist_watches, request.child_watches)
        else {
            return Err(ErrorCode::MarshallingError);
        };
        let seen = Zxid::from_wire(request.relative_zxid.max(0));
        for path in data.iter().flatten() {
            let changed = |node: &NodeRef<'_>| (node.stat().mzxid > seen).then_some(EventType::NodeDataChanged);
            self.catch_up(out, Kind::Data, path, Some(EventType::NodeDeleted), changed)?;
        }
        for path in exist.iter().flatten() {
            self.catch_up(out, Kind::Data, path, None, |_| Some(EventType::NodeCreated))?;
        }
        for path in child.iter().flatten() {
            let changed = |node: &NodeRef<'_>| (node.stat().pzxid > seen).then_some(EventType::NodeChildrenChanged);
            self.catch_up(out, Kind::Child, path, Some(EventType::NodeDeleted), changed)?;
        }
        reply::done(out, xid, self.zxid());
        Ok(())
    }

    fn catch_up(
        &mut self,
        out: &mut Vec<u8>,
        kind: Kind,
        path: &str,
        if_missing: Option<EventType>,
        if_present: impl FnOnce(&NodeRef<'_>) -> Option<EventType>,
    ) -> Result<(), Failed> {
        let hash = self.view.hasher().hash(path);
        let missed = match self.view.get_hashed(path, hash) {
            None => if_missing,
            Some(node) => if_present(&node),
        };
        match missed {
            Some(event) => reply::event(out, -1, event, path),
            None => self.watch(kind, path, hash, true)?,
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

fn undecodable(_: corral_wire::DecodeError) -> ErrorCode {
    ErrorCode::MarshallingError
}
