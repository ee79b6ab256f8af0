//! Messages for other servers: those of Raft, refusals of snapshots, and messages that were lost.

use bytes::BytesMut;
use corral_consensus::{PeerBody, PeerMessage as RaftMessage, Replica, ServerId};
use corral_peer::Kind;
use corral_peer::snapshot::Ask;

use crate::effect::{Outbox, ToPeers};

/// Encodes and sends Raft messages.
pub(crate) fn send_raft(messages: impl IntoIterator<Item = RaftMessage>, out: &mut Outbox) {
    for message in messages {
        let mut bytes = BytesMut::new();
        message.encode(&mut bytes);
        let announces_snapshot = matches!(message.body, PeerBody::Snapshot { .. });
        let (peer, payload) = (message.to, bytes.freeze());
        out.peers(ToPeers::Send { peer, stream: None, kind: Kind::Raft, payload, announces_snapshot });
    }
}

/// A message for that server is lost. If it announced a snapshot, the receiver will not report the end of that transfer.
pub(crate) fn undelivered(peer: ServerId, announced_snapshot: bool, replica: &mut Replica) {
    replica.unreachable(peer);
    if announced_snapshot {
        replica.snapshot_sent(peer, false);
    }
}

/// Refuses the snapshot at `index`, so that the sender announces another one; 0 refuses all of them.
pub(crate) fn refuse(from: ServerId, index: u64, out: &mut Outbox) {
    out.send(from, Kind::SnapshotAsk, Ask { index, offset: None }.encode());
}
