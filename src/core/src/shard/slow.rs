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

#[cfg(test)]
mod tests {
    use crate::ids::{Millis, SessionId};
    use crate::shard::counters::Answered;
    use crate::shard::slow::SlowRequests;
    use crate::shard::tests::{client, shard};
    use corral_wire::OpCode;

    #[test]
    fn slow_requests_are_kept_to_a_limit() {
        let mut shard = shard();
        shard.state.config.slow_request_ms = 5;
        let id = client(&mut shard);
        let mut conn = shard.state.conns.take(id).expect("it is there");
        conn.session.attach(SessionId(9), 1000);
        let mut answer = |xid, at| {
            let what = Answered { op: Some(OpCode::SetData), xid, at: Millis(at).micros(), update: true };
            shard.state.count_reply(&mut conn, Millis(10), what, 20);
        };
        (0..20).for_each(|xid| answer(xid, 5));
        answer(99, 6);
        let SlowRequests { kept, left_out } = shard.state.effects.slow;
        assert_eq!((kept.len(), left_out), (16, 4));
        let first = &kept[0];
        assert_eq!((first.ms, first.operation, first.session, first.xid), (5, "SETD", SessionId(9), 0));
        assert_eq!(first.address.port(), 1);
    }
}
