//! The connections to other servers, and the messages for them.

use crate::forwarding::peer::PeerMessage;
use crate::ids::ServerId;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem;

/// Where a message came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// Server id of the sender.
    pub peer: ServerId,
    /// Its start, as it said when the connection began.
    pub incarnation: u64,
    /// The connection from it: a later connection has a larger number.
    pub connection: u64,
}

/// A message for a connection. Should it not fit the connection's queue, or the connection be another one by now, the
/// connection has broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerSend {
    /// Server id of the receiver.
    pub peer: ServerId,
    /// As `Forwarding::peer_connected` named it.
    pub connection: u64,
    /// The message, not encoded yet.
    pub message: PeerMessage,
}

/// The open connections to other servers, and the messages for them.
#[derive(Default)]
pub(super) struct Links {
    /// Connections that are open, by server.
    open: BTreeMap<ServerId, u64>,
    sends: Vec<PeerSend>,
}

impl Links {
    pub(super) fn connected(&mut self, peer: ServerId, connection: u64) {
        self.open.insert(peer, connection);
    }

    /// Whether it was the open connection to that server.
    pub(super) fn disconnected(&mut self, peer: ServerId, connection: u64) -> bool {
        let was_open = self.open.get(&peer) == Some(&connection);
        if was_open {
            self.open.remove(&peer);
        }
        was_open
    }

    pub(super) fn connection(&self, peer: ServerId) -> Option<u64> {
        self.open.get(&peer).copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Servers with an open connection.
    pub(super) fn peers(&self) -> impl Iterator<Item = ServerId> {
        self.open.keys().copied()
    }

    pub(super) fn send(&mut self, peer: ServerId, connection: u64, message: PeerMessage) {
        self.sends.push(PeerSend { peer, connection, message });
    }

    /// Sends it on every open connection.
    pub(super) fn send_all(&mut self, message: &PeerMessage) {
        let send = |(peer, connection): (&ServerId, &u64)| PeerSend {
            peer: *peer,
            connection: *connection,
            message: message.clone(),
        };
        self.sends.extend(self.open.iter().map(send));
    }

    /// Messages that were not taken yet and are not true any more are not sent.
    pub(super) fn take_back(&mut self, is_stale: impl Fn(&PeerMessage) -> bool) {
        self.sends.retain(|send| !is_stale(&send.message));
    }

    pub(super) fn take(&mut self) -> Vec<PeerSend> {
        mem::take(&mut self.sends)
    }
}
