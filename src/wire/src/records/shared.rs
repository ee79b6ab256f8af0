//! Records that appear inside others or in front of them: headers, `Stat`, `Acl`, `WatcherEvent`.
//!
//! Plain layouts, any core. Knows nothing of the operations that use them.

use crate::consts::{XID_NOTIFICATION, perms};
use crate::error::{DecodeError, ErrorCode};
use crate::jute::{Reader, Wire, Writer};
use crate::limits::{MULTI_HEADER_BYTES, REPLY_HEADER_BYTES, REQUEST_HEADER_BYTES, STAT_BYTES};
use crate::vector::Vector;

record! {
    /// The header of every request but the connect request.
    pub struct RequestHeader {
        /// The client's number of the request; echoed.
        pub xid: i32,
        /// The operation, see [`OpCode`](crate::OpCode).
        pub op: i32,
    }
}

record! {
    /// The header of every reply and notification but the `ConnectResponse`.
    pub struct ReplyHeader {
        /// The request's xid, or -1 for a notification.
        pub xid: i32,
        /// The last zxid applied when the reply was made, or the zxid that fired the event.
        pub zxid: i64,
        /// 0 or the number of an [`ErrorCode`](crate::ErrorCode); if not 0 no record follows.
        pub err: i32,
    }
}

impl ReplyHeader {
    /// The header of a successful reply.
    #[must_use]
    pub const fn ok(xid: i32, zxid: i64) -> Self {
        Self { xid, zxid, err: 0 }
    }

    /// An error reply, which is a header and nothing else.
    #[must_use]
    pub const fn error(xid: i32, zxid: i64, code: ErrorCode) -> Self {
        Self { xid, zxid, err: code.code() }
    }

    /// The header of a watch notification.
    #[must_use]
    pub const fn notification(zxid: i64) -> Self {
        Self { xid: XID_NOTIFICATION, zxid, err: 0 }
    }
}

record! {
    /// The header of every operation or result of a multi, and of its end.
    pub struct MultiHeader {
        /// The operation, -1 for an error or at the end.
        pub op: i32,
        /// True at the end.
        pub done: bool,
        /// -1 in requests and at the end; in results 0 or the error.
        pub err: i32,
    }
}

impl MultiHeader {
    /// The header that ends a multi in both directions.
    pub const END: Self = Self { op: -1, done: true, err: -1 };
}

record! {
    /// The record of a watch event, behind a notification's header.
    pub struct WatcherEvent<'a> {
        /// See [`EventType`](crate::consts::EventType).
        pub event_type: i32,
        /// See [`KeeperState`](crate::consts::KeeperState); servers send 3.
        pub state: i32,
        /// The znode's path.
        pub path: Option<&'a str>,
    }
}

record! {
    /// The metadata of a znode.
    #[derive(Default, Hash)]
    pub struct Stat {
        /// zxid of its creation.
        pub czxid: i64,
        /// zxid of its last change of data.
        pub mzxid: i64,
        /// Time of its creation, ms since 1970.
        pub ctime: i64,
        /// Time of its last change of data, ms since 1970.
        pub mtime: i64,
        /// Number of changes of data.
        pub version: i32,
        /// Number of creations and deletions of children, as clients see it.
        pub cversion: i32,
        /// Number of changes of the ACL.
        pub aversion: i32,
        /// The session of an ephemeral; 0 for every other znode, containers and TTL znodes too.
        pub ephemeral_owner: i64,
        /// Bytes of data.
        pub data_length: i32,
        /// Number of children.
        pub num_children: i32,
        /// zxid of the last creation or deletion of a child.
        pub pzxid: i64,
    }
}

/// One entry of an ACL: permissions and an Id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acl<'a> {
    /// Sum of [`perms`](crate::consts::perms).
    pub perms: i32,
    /// Authentication scheme: `world`, `auth`, `digest`, `ip`, `x509`, `sasl`.
    pub scheme: Option<&'a str>,
    /// The identity, in the scheme's terms.
    pub id: Option<&'a str>,
}

impl<'a> Wire<'a> for Acl<'a> {
    const SIZE_MIN: usize = 12;
    const USUAL: &'static [u8] = b"\0\0\0\x1f\0\0\0\x05world\0\0\0\x06anyone";

    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self { perms: reader.i32()?, scheme: reader.string()?, id: reader.string()? })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        writer.i32(self.perms);
        writer.string(self.scheme);
        writer.string(self.id);
    }
}

impl Acl<'static> {
    /// All permissions for every client.
    pub const WORLD_ALL: Self = Self { perms: perms::ALL, scheme: Some("world"), id: Some("anyone") };

    /// The ACL of one entry that grants everything to every client: `world:anyone:31`.
    pub const OPEN_ACL_UNSAFE: Vector<'static, Self> = Vector::of_valid(1, Self::USUAL);
}

record! {
    /// One identity of a connection.
    pub struct ClientInfo<'a> {
        /// Authentication scheme.
        pub auth_scheme: Option<&'a str>,
        /// The user as the scheme's provider names it; may be empty.
        pub user: Option<&'a str>,
    }
}

const _: () = assert!(<Stat as Wire<'_>>::SIZE_MIN == STAT_BYTES);
const _: () = assert!(<RequestHeader as Wire<'_>>::SIZE_MIN == REQUEST_HEADER_BYTES);
const _: () = assert!(<ReplyHeader as Wire<'_>>::SIZE_MIN == REPLY_HEADER_BYTES);
const _: () = assert!(<MultiHeader as Wire<'_>>::SIZE_MIN == MULTI_HEADER_BYTES);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::VectorBuf;

    #[test]
    fn the_open_acl_is_what_its_entry_encodes_to() {
        let buf = VectorBuf::of([Acl::WORLD_ALL]);
        assert_eq!(buf.view::<Acl<'_>>(), Ok(Acl::OPEN_ACL_UNSAFE));
        assert!(Acl::OPEN_ACL_UNSAFE.iter().eq([Acl::WORLD_ALL]));
    }
}
