//! The parts that only a server of an ensemble has: connections with the other servers, and the forwarding of commands.

use bytes::Bytes;
use corral_consensus::{LogDisk, Replica, RoleChange, ServerId};
use corral_core::forwarding::peer::PeerMessage;
use corral_core::forwarding::{Forwarding, PeerSend};
use corral_core::sequencer::Sequencer;
use corral_core::shard::ShardMessage;
use corral_peer::Kind;

use crate::effect::{Outbox, ToPeers};
use crate::event::{Now, PeerEvent};
use crate::outgoing::undelivered;
use crate::peers::{PeerContext, Peers};
use crate::settings::EnsembleSettings;
use crate::snapshot::Offered;

/// `peers` has the connections, and the snapshots that travel on them. `forwarding` has the stream of commands to the
/// leader, and the messages between servers beside Raft.
pub(super) struct Ensemble {
    pub(super) peers: Peers,
    pub(super) forwarding: Forwarding,
    /// Version of the list of servers that the connections follow.
    list_version: Option<u64>,
}

impl Ensemble {
    pub(super) fn new(settings: EnsembleSettings, newest: Option<Offered>, forwarding: Forwarding) -> Ensemble {
        Ensemble { peers: Peers::new(settings, newest), forwarding, list_version: None }
    }

    /// The begin of a turn of the engine.
    pub(super) fn begin_turn(&mut self, replica: &mut Replica, sequencer: &mut Sequencer) {
        self.peers.begin_turn(replica.raft(), sequencer);
        for uninitialised in self.forwarding.take_uninitialised() {
            replica.report_uninitialised(uninitialised);
        }
    }

    /// The end of a turn of the replica: connects to the servers of a new list, and passes the role to forwarding. Then
    /// it sends the messages of forwarding.
    pub(super) fn follow(
        &mut self,
        now: Now,
        (role, disk): (Option<RoleChange>, LogDisk),
        replica: &mut Replica,
        sequencer: &mut Sequencer,
        out: &mut Outbox,
    ) {
        let Ensemble { peers, forwarding, list_version } = self;
        let version = Some(sequencer.servers().version());
        if *list_version != version {
            *list_version = version;
            peers.follow(replica, sequencer, out);
        }
        let stalled = peers.is_stalled(disk, replica);
        out.status.stalled = stalled;
        if let Some(change) = role {
            let leadership = peers.role_changed(change, out);
            forwarding.set_leadership(leadership, change.term.0, sequencer);
        }
        forwarding.stall(stalled);
        forwarding.settle(now.millis(), sequencer);
        let raft = replica.raft();
        let is_initialised = !raft.is_uninitialised() && !raft.is_pristine();
        (peers.has_no_data, out.status.leader) = (!is_initialised, raft.leader());
        if is_initialised {
            forwarding.initialised();
        }
        (out.status.reconfig, out.status.proposals) = (sequencer.servers().step(), sequencer.proposals());
        send_forwarding(forwarding.take_sends(), out);
    }

    /// Sends the shards whether commands are accepted, behind the batches before that.
    pub(super) fn send_flow(&mut self, out: &mut Outbox) {
        for note in self.forwarding.take_flow() {
            self.peers.on_flow(note, out);
            out.shards(ShardMessage::Flow(note));
        }
    }
}

/// Encodes and sends messages of the forwarding. If one is not delivered, the driver reports the end of the connection.
fn send_forwarding(sends: Vec<PeerSend>, out: &mut Outbox) {
    for PeerSend { peer, connection, message } in sends {
        let kind = match message {
            PeerMessage::Forward(_) => Kind::Forward,
            PeerMessage::SessionReport(_) | PeerMessage::Paused(_) => Kind::SessionReport,
            PeerMessage::Heartbeat(_) | PeerMessage::Pause(_) => Kind::Heartbeat,
            PeerMessage::Uninitialised(_) | PeerMessage::Digest(_) => Kind::Uninitialised,
        };
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let (stream, payload) = (Some(connection), Bytes::from(bytes));
        out.peers(ToPeers::Send { peer, stream, kind, payload, announces_snapshot: false });
    }
}

/// Handles an event of another server.
pub(super) fn handle(peers: &mut Peers, peer: ServerId, event: PeerEvent, context: &mut PeerContext<'_>) {
    match event {
        PeerEvent::Name { resolves } => context.forwarding.founder(context.now, peer, resolves),
        PeerEvent::ConnectedTo { stream } => peers.connected_to(peer, stream, context),
        PeerEvent::DisconnectedFrom { stream, gone } => {
            context.forwarding.peer_disconnected(peer, stream);
            // The announcement of a snapshot may be lost: it is announced again.
            undelivered(peer, true, context.replica);
            if gone {
                Peers::gone(peer, context.replica);
            }
        }
        PeerEvent::Accepted { stream, incarnation } => peers.accepted(peer, stream, incarnation, context),
        PeerEvent::Lost { stream, gone } => {
            peers.lost(stream);
            if gone {
                Peers::gone(peer, context.replica);
            }
        }
        PeerEvent::Frame { stream, frame } => peers.frame(peer, stream, &frame, context),
        PeerEvent::Undelivered { announced_snapshot } => undelivered(peer, announced_snapshot, context.replica),
    }
}
