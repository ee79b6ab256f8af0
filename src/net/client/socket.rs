//! Events, bytes to send and slots of client sockets, for the ring and for the runtime alike.
//!
//! Plain data.

use std::net::TcpStream;
use std::ops::Deref;

use corral_core::ids::ConnId;

use super::ring::queue::Received;

/// Something that happened to a connection, or that there is a new one.
pub(crate) enum SocketEvent<'r> {
    /// A client connected.
    Accepted { stream: TcpStream },
    /// Bytes came in. They may come a little while after a pause, too.
    Received { conn: ConnId, bytes: Bytes<'r> },
    /// The client sends no more.
    Ended { conn: ConnId },
    /// The socket failed.
    Failed { conn: ConnId },
    /// The socket has taken so many bytes. 0: it had no room, and has room now.
    Sent { conn: ConnId, count: usize },
}

/// Received bytes. To be dropped soon, because the buffers of the ring are few.
pub(crate) enum Bytes<'r> {
    Ring(Received<'r>),
    Owned(Vec<u8>),
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Ring(bytes) => bytes,
            Bytes::Owned(bytes) => bytes,
        }
    }
}

/// Bytes for a socket.
pub(super) struct Outgoing<'b> {
    pub(super) place: SocketSlot,
    /// Not empty.
    pub(super) bytes: &'b [u8],
    /// The connection is closed when it has taken them.
    pub(super) last: bool,
}

/// A socket of the ring or the runtime. The slot of a closed socket is used again, under another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SocketSlot {
    pub(super) index: u32,
    pub(super) generation: u32,
}
