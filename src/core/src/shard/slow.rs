//! Requests that took long, for the log.
//!
//! Plain values of one core.

use crate::ids::{SessionId, Zxid};
use crate::shard::conn::Conn;
use crate::shard::counters::Answered;
use crate::shared::Text;
use alloc::vec::Vec;
use core::net::SocketAddr;

/// Requests that are kept for the driver. More are counted.
const KEPT_MAX: usize = 16;

/// Bytes of a path that are kept.
const PATH_BYTES: usize = 256;

/// A request that took long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowRequest {
    /// From its receipt to its reply.
    pub ms: u64,
    /// ZooKeeper's short name of the operation.
    pub operation: &'static str,
    /// Session of the connection; 0 if it has none.
    pub session: SessionId,
    /// Address and port of the client.
    pub address: SocketAddr,
    /// Number that the client gave the request.
    pub xid: i32,
    /// Its first bytes, of the first operation of a multi; `None` if it is not known.
    pub path: Option<Text>,
    /// Whether it was a transaction.
    pub update: bool,
    /// Of the reply.
    pub zxid: Zxid,
}

/// Requests that took long, up to a limit.
#[derive(Debug, Default)]
pub struct SlowRequests {
    /// The first requests since the list was last taken, at most 16.
    pub kept: Vec<SlowRequest>,
    /// The number of further ones.
    pub left_out: u64,
}

impl SlowRequests {
    #[cold]
    pub(super) fn note(&mut self, conn: &Conn, what: Answered, zxid: Zxid, ms: u64) {
        if self.kept.len() >= KEPT_MAX {
            self.left_out += 1;
            return;
        }
        let operation = what.op.map_or("NA", corral_wire::OpCode::lop);
        let (session, address) = (conn.session.id(), conn.peer);
        let Answered { xid, update, .. } = what;
        self.kept.push(SlowRequest { ms, operation, session, address, xid, path: None, update, zxid });
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// The request of this session that was noted last has this path.
    #[cold]
    pub(super) fn name(&mut self, session: SessionId, xid: i32, path: &str) {
        let is_same = |slow: &&mut SlowRequest| (slow.session, slow.xid) == (session, xid);
        if let Some(slow) = self.kept.last_mut().filter(is_same) {
            slow.path = Some(Text::from(&path[..path.floor_char_boundary(PATH_BYTES)]));
        }
    }
}
