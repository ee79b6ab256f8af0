//! One connection between a client and the server: two pipes, what waits at either end, and the requests under way.

use std::collections::VecDeque;

use corral_core::ids::ConnId;

use crate::model::LinkId;
use crate::request::Request;
use crate::world::{Channel, Event, World};

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

impl World {
    /// The client's bytes go on their way, perhaps in pieces.
    pub(crate) fn transmit(&mut self, link: LinkId, mut bytes: Vec<u8>) {
        while !bytes.is_empty() {
            let split = self.schedule.per_mille(150);
            let count = if split { self.schedule.index(bytes.len()) + 1 } else { bytes.len() };
            let rest = bytes.split_off(count);
            self.send_over_network(Channel::ToServer(link), Event::ToServer(link, bytes));
            bytes = rest;
        }
    }

    /// The server's end closes; what it sent before still arrives.
    pub(crate) fn close_at_server(&mut self, link: LinkId) {
        self.links[link.0].conn = None;
        if !std::mem::replace(&mut self.links[link.0].server_gone, true) {
            self.send_over_network(Channel::ToClient(link), Event::EndToClient(link));
        }
    }
}
