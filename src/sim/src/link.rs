//! One connection between a client and the server: two pipes, what waits at either end, and the requests under way.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use corral_core::ids::ConnId;

use crate::request::Request;

/// A request without its reply yet.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) xid: i32,
    pub(crate) request: Request,
    /// Its number among the connection's proposed commands, if it is one.
    pub(crate) command: Option<usize>,
    /// The highest zxid that any client had an answer with when this was sent.
    pub(crate) acked_before: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Link {
    pub(crate) client: usize,
    pub(crate) server: usize,
    pub(crate) shard: usize,
    pub(crate) life: u32,
    /// The server's end, while it is open.
    pub(crate) conn: Option<ConnId>,
    pub(crate) unread: Vec<u8>,
    pub(crate) ended_by_client: bool,
    /// Bytes that left the server and were not read by the client, and how many there may be.
    pub(crate) in_flight: usize,
    pub(crate) window: usize,
    /// The server has more to send than the socket took.
    pub(crate) writing: bool,
    pub(crate) client_gone: bool,
    pub(crate) server_gone: bool,
    pub(crate) input: Vec<u8>,
    /// Arrived while the client does not read.
    pub(crate) held: Vec<u8>,
    pub(crate) opened_at: u64,
    /// The connect request was granted.
    pub(crate) live: bool,
    /// The server is expected to end it: nothing more is sent.
    pub(crate) doomed: bool,
    pub(crate) wrong_password: bool,
    pub(crate) sent: VecDeque<Sent>,
    pub(crate) auths_due: usize,
}

/// The address of a client.
pub(crate) fn address(client: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, u8::try_from(client % 200).expect("below 200"))
}
