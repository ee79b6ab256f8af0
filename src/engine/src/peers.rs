//! The parts that only a server of an ensemble has: connections with the other servers, and the forwarding of commands. Here
//! messages become frames, and frames messages.
//!
//! The driver carries the bytes, and reports what happens to connections. The replica and its machine decide elections
//! and commands. An invalid message is logged, and closes its connection.

use std::collections::BTreeMap;

use bytes::Bytes;
use corral_consensus::{
    Index, LogDisk, Membership, Micros, PeerBody, PeerError, PeerMessage as RaftMessage, RaftNode, Replica, RoleChange,
    ServerId,
};
use corral_core::features;
use corral_core::forwarding::peer::PeerMessage;
use corral_core::forwarding::{Forwarding, PeerSend, Sender};
use corral_core::ids::Millis;
use corral_core::sequencer::Sequencer;
use corral_core::shard::ShardMessage;
use corral_peer::snapshot::{Ask, Knows, Part};
use corral_peer::{Frame, Generation, Kind};

use crate::addresses::{AdvertisedAddress, PeerAddress, addresses};
use crate::arrivals::Arrivals;
use crate::effect::{Effect, Outbox, ToPeers};
use crate::event::{Incoming, Now, PeerEvent};
use crate::frame_error::FrameError;
use crate::known_features::KnownFeatures;
use crate::membership::{leader_out_of, membership_of};
use crate::one_way::OneWay;
use crate::outgoing::{refuse, undelivered};
use crate::quorum_counter::QuorumCounter;
use crate::reception::Reception;
use crate::served_mode::ServedMode;
use crate::serving::{ServerState, Serving, log_unknown_server, log_what_is_awaited};
use crate::settings::EnsembleSettings;
use crate::snapshot::Offered;
use crate::transfer::Offer;

/// The other servers, and the forwarding of commands. `peers` has the connections, and the snapshots that travel on them.
/// `forwarding` has the stream of commands to the leader, and the messages between servers beside Raft.
pub(crate) struct Ensemble {
    pub(crate) peers: Peers,
    pub(crate) forwarding: Forwarding,
    /// Version of the list of servers that the connections follow.
    list_version: Option<u64>,
}

impl Ensemble {
    pub(crate) fn new(settings: EnsembleSettings, newest: Option<Offered>, forwarding: Forwarding) -> Ensemble {
        Ensemble { peers: Peers::new(settings, newest), forwarding, list_version: None }
    }

    /// The begin of a turn of the engine.
    pub(crate) fn begin_turn(&mut self, replica: &mut Replica, sequencer: &mut Sequencer) {
        self.peers.begin_turn(replica.raft(), sequencer);
        for uninitialised in self.forwarding.take_uninitialised() {
            replica.report_uninitialised(uninitialised);
        }
    }

    /// The end of a turn of the replica: connects to the servers of a new list, and passes the role to forwarding. Then
    /// it sends the messages of forwarding.
    pub(crate) fn follow(
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
        let stalled = peers.reception.is_stalled(disk, replica);
        out.status.stalled = stalled;
        if let Some(change) = role {
            peers.known_features.membership_changed();
            let leadership = peers.mode.role_changed(change, &mut out.status);
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
    pub(crate) fn send_flow(&mut self, out: &mut Outbox) {
        let Peers { mode, has_no_data, listed, .. } = &mut self.peers;
        for flow in self.forwarding.take_flow() {
            mode.flow(flow, *has_no_data, *listed, &mut out.status);
            out.shards(ShardMessage::Flow(flow));
        }
    }
}

/// The other servers, as this one is connected with them.
pub(crate) struct Peers {
    /// Connections that other servers dialled, by stream.
    from: BTreeMap<u64, Sender>,
    one_way: OneWay,
    mode: ServedMode,
    /// The election timeout. A leader transfers leadership if its log is not synced for so long. A member that is
    /// silent for so long does not count as active.
    election: Micros,
    /// Generation of this server's data.
    generation: Generation,
    /// The servers of this server's configuration.
    configured: Vec<PeerAddress>,
    /// Snapshots that other servers may request.
    pub(crate) offer: Offer,
    reception: Reception,
    /// The snapshot that another server refused, and when all files were checked because of that.
    refused: Option<(u64, Millis)>,
    /// The members that the ensemble is to have.
    pub(crate) wanted: Membership,
    /// When this server, while uninitialised, last logged what it waits for.
    logged_waiting: Millis,
    /// A server that is not in the list of servers and holds data of this cluster.
    pub(crate) unknown_server: Option<ServerId>,
    /// Whether this server is a member; `None` where the configuration counts.
    listed: Option<bool>,
    advertised: AdvertisedAddress,
    /// This server has had no data yet, so it lost no leader.
    has_no_data: bool,
    quorum_counter: QuorumCounter,
    known_features: KnownFeatures,
    serving: Serving,
}

/// The parts of the engine that a call about another server works on.
pub(crate) struct PeerContext<'a> {
    pub(crate) now: Millis,
    pub(crate) replica: &'a mut Replica,
    pub(crate) sequencer: &'a mut Sequencer,
    pub(crate) forwarding: &'a mut Forwarding,
    pub(crate) out: &'a mut Outbox,
}

/// Least time between two checks of all files because a snapshot is refused, in milliseconds. A server without space
/// refuses it every few seconds.
const CHECK_AGAIN_AFTER_MS: u64 = 300_000;
/// Time between two log lines of an uninitialised server, in milliseconds.
const LOG_WAITING_EVERY_MS: u64 = 3000;

impl Peers {
    fn new(settings: EnsembleSettings, newest: Option<Offered>) -> Peers {
        let EnsembleSettings { own, configured, client_addr, wanted, stored, .. } = settings;
        let EnsembleSettings { read_only, election, generation, piece_bytes, .. } = settings;
        Peers {
            from: BTreeMap::new(),
            one_way: OneWay::default(),
            mode: ServedMode::new(read_only),
            election,
            generation,
            configured,
            offer: Offer::new(newest, piece_bytes),
            reception: Reception::new(piece_bytes),
            refused: None,
            wanted,
            logged_waiting: Millis(0),
            unknown_server: None,
            listed: None,
            advertised: AdvertisedAddress::new(own, client_addr, stored),
            has_no_data: true,
            quorum_counter: QuorumCounter::default(),
            known_features: KnownFeatures::default(),
            serving: Serving::default(),
        }
    }

    fn begin_turn(&mut self, raft: &RaftNode, sequencer: &mut Sequencer) {
        self.offer.begin_turn();
        self.known_features.report_to(&self.wanted, raft, sequencer);
    }

    // ----- connections -----

    /// An event of another server.
    pub(crate) fn handle(&mut self, peer: ServerId, event: PeerEvent, context: &mut PeerContext<'_>) {
        match event {
            PeerEvent::Name { resolves } => context.forwarding.founder(context.now, peer, resolves),
            PeerEvent::ConnectedTo { stream } => self.connected_to(peer, stream, context),
            PeerEvent::DisconnectedFrom { stream, gone } => {
                context.forwarding.peer_disconnected(peer, stream);
                // The announcement of a snapshot may be lost: it is announced again.
                undelivered(peer, true, context.replica);
                if gone {
                    Peers::gone(peer, context.replica);
                }
            }
            PeerEvent::Accepted { stream, incarnation } => self.accepted(peer, stream, incarnation, context),
            PeerEvent::Lost { stream, gone } => {
                self.lost(stream);
                if gone {
                    Peers::gone(peer, context.replica);
                }
            }
            PeerEvent::Frame { stream, frame } => self.frame(peer, stream, &frame, context),
            PeerEvent::Undelivered { announced_snapshot } => undelivered(peer, announced_snapshot, context.replica),
        }
    }

    /// A connection to that server is open: messages for it use that from now on.
    fn connected_to(&mut self, peer: ServerId, stream: u64, context: &mut PeerContext<'_>) {
        let PeerContext { now, forwarding, out, .. } = context;
        forwarding.peer_connected(*now, peer, stream);
        if !self.reception.is_under_way() {
            // A reply about a snapshot may be lost with the former connection: this one makes the server announce it again.
            refuse(peer, 0, out);
        }
        out.send(peer, Kind::SnapshotAsk, Knows { features: features::KNOWN }.encode());
        self.reception.request_again(*now, out);
    }

    fn accepted(&mut self, peer: ServerId, connection: u64, incarnation: u64, context: &mut PeerContext<'_>) {
        context.forwarding.founder(context.now, peer, true);
        self.known_features.accepted(connection, peer);
        self.from.insert(connection, Sender { peer, incarnation, connection });
    }

    fn lost(&mut self, stream: u64) {
        self.known_features.lost(stream);
        self.from.remove(&stream);
    }

    /// The process of that server has ended.
    fn gone(peer: ServerId, replica: &mut Replica) {
        if replica.raft().leader() == Some(peer) {
            replica.leader_lost(peer, stagger(replica, peer));
        }
    }

    /// A frame was received. An invalid one closes its connection, and later frames of it are dropped.
    fn frame(&mut self, peer: ServerId, stream: u64, frame: &Frame, context: &mut PeerContext<'_>) {
        let Some(sender) = self.from.get(&stream).copied() else { return };
        if let Err(reason) = self.read(sender, frame, context) {
            tracing::error!(peer = peer.0, "a message of the server is malformed, its connection is closed: {reason}");
            self.lost(stream);
            context.out.peers(ToPeers::Close { peer, stream });
        }
    }

    /// Decodes one frame, and passes the message on.
    ///
    /// # Errors
    /// If no server sends such a frame. The connection is closed then.
    fn read(&mut self, sender: Sender, frame: &Frame, context: &mut PeerContext<'_>) -> Result<(), FrameError> {
        let peer = sender.peer;
        match frame.kind {
            Kind::Raft => {
                let message = RaftMessage::decode(&frame.payload)?;
                if message.from != peer {
                    return Err(FrameError::ForeignSender { peer, sender: message.from });
                }
                return self.step(message, context);
            }
            Kind::Forward | Kind::SessionReport | Kind::Heartbeat | Kind::Uninitialised => {
                let message = PeerMessage::decode(&frame.payload).map_err(FrameError::other)?;
                let PeerContext { now, sequencer, forwarding, .. } = context;
                return forwarding.received(*now, sender, message, sequencer).map_err(FrameError::other);
            }
            Kind::SnapshotAsk => {
                self.read_ask(sender, &Ask::decode(&frame.payload).map_err(FrameError::other)?, context)
            }
            Kind::SnapshotPart => {
                let part = Part::decode(&frame.payload).map_err(FrameError::other)?;
                self.reception.piece(context.now, peer, part, context.out);
            }
        }
        Ok(())
    }

    /// Another server asks for a piece of a snapshot, refuses the snapshot, or tells which features it knows.
    fn read_ask(&mut self, sender: Sender, ask: &Ask, context: &mut PeerContext<'_>) {
        let PeerContext { now, replica, out, .. } = context;
        let peer = sender.peer;
        if let Some(Knows { features }) = Knows::of(ask) {
            return self.known_features.reported(sender.connection, features);
        }
        if ask.offset.is_some() && !self.offer.gives(peer) {
            return;
        }
        let part = ask.offset.map_or(Part::Gone { index: ask.index }, |at| self.offer.part(*now, ask.index, at));
        if matches!(part, Part::Gone { .. }) {
            replica.snapshot_sent(peer, false);
        }
        if ask.offset.is_none() && ask.index > 0 && ask.index == self.offer.newest() {
            self.check_refused(*now, ask.index, out);
        }
        if ask.offset.is_some() {
            out.send(peer, Kind::SnapshotPart, part.encode());
        }
    }

    /// Another server refused the newest snapshot. It may be damaged: the other server checked it.
    fn check_refused(&mut self, now: Millis, index: u64, out: &mut Outbox) {
        let is_known = |(refused, at): (u64, Millis)| refused == index && now.since(at) < CHECK_AGAIN_AFTER_MS;
        if !self.refused.is_some_and(is_known) {
            self.refused = Some((index, now));
            out.push(Effect::Scrub);
        }
    }

    /// Handles a Raft message. The announcement of a snapshot waits until the snapshot is received.
    ///
    /// # Errors
    /// If no server sends such a message.
    fn step(&mut self, message: RaftMessage, context: &mut PeerContext<'_>) -> Result<(), FrameError> {
        let PeerContext { now, replica, sequencer, out, .. } = context;
        let from = message.from;
        let most = replica.raft().plausible_term();
        if message.term > most && !replica.raft().is_uninitialised() {
            return Err(PeerError::TermJump { term: message.term, most }.into());
        }
        if let PeerBody::Snapshot { index, .. } = message.body
            && (index > replica.raft().applied_index() || replica.awaits_state().is_some_and(|least| index >= least))
            && message.term >= replica.raft().term()
        {
            self.reception.announced(*now, index, message, replica, sequencer, out);
            return Ok(());
        }
        match replica.step(*sequencer, message) {
            Err(error) if error.breaks_connection() => Err(error.into()),
            Err(error) => {
                if error.contradicts() {
                    self.serving.contradicted(*now, from, replica.raft().leader(), &error);
                }
                tracing::debug!("Raft message dropped: {error}");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// The driver reports the progress of a snapshot. `installing` is the snapshot that is being installed.
    pub(crate) fn incoming(&mut self, incoming: Incoming, installing: Option<Index>, context: &mut PeerContext<'_>) {
        let PeerContext { now, replica, sequencer, out, .. } = context;
        self.reception.progress(*now, incoming, installing, replica, sequencer, out);
    }

    /// Received snapshots that wait to be installed.
    pub(crate) fn arrivals(&mut self) -> &mut Arrivals {
        &mut self.reception.arrivals
    }

    /// Whether a new ensemble may be bootstrapped: no server is known to have data.
    #[must_use]
    pub(crate) fn may_bootstrap(&self) -> bool {
        !self.reception.has_any() && self.unknown_server.is_none()
    }

    /// One tick: requests lost pieces again. An uninitialised server logs what it waits for.
    pub(crate) fn tick(&mut self, now: Millis, replica: &Replica, forwarding: &Forwarding, out: &mut Outbox) {
        self.known_features.membership_changed();
        if replica.raft().is_uninitialised()
            && !self.reception.is_under_way()
            && now.since(self.logged_waiting) >= LOG_WAITING_EVERY_MS
        {
            self.logged_waiting = now;
            match self.unknown_server {
                Some(server) => log_unknown_server(server),
                None => log_what_is_awaited(&forwarding.awaited()),
            }
        }
        self.one_way.tick(now, forwarding, !self.from.is_empty());
        for difference in self.advertised.compare(now, &self.configured) {
            tracing::warn!("{difference}");
        }
        self.reception.tick(now, replica, out);
    }

    /// A leader with a slow or full log transfers leadership, see [`Replica::transfer_leadership_if_slow`].
    pub(crate) fn transfer_leadership_if_slow(
        &self,
        now: Micros,
        disk: LogDisk,
        replica: &mut Replica,
        out: &mut Outbox,
    ) {
        let Some(successor) = replica.transfer_leadership_if_slow(now, self.election, disk) else { return };
        out.status.slow_disk_transfers += 1;
        match disk {
            LogDisk::Full => {
                tracing::warn!(to = successor.0, "the log has no space: transferring leadership; free space");
            }
            LogDisk::Writes => tracing::warn!(
                to = successor.0,
                timeout_ms = self.election.0 / 1000,
                "the log is not synced in time: transferring leadership; look at the disk"
            ),
        }
    }

    // ----- the status of this server -----

    /// Generation of this server's data. Data that are being bootstrapped are of the first.
    pub(crate) fn generation(&self) -> Generation {
        match self.generation {
            Generation::NONE => Generation::FIRST,
            own => own,
        }
    }

    /// This server's data are of that generation from now on.
    pub(crate) fn adopt(&mut self, generation: Generation, out: &mut Outbox) {
        self.generation = generation;
        out.peers(ToPeers::Adopt(generation));
    }

    /// One tick: updates in the status which followers keep up, and whether this server accepts sessions and writes.
    pub(crate) fn show(
        &mut self,
        now: Micros,
        (replica, sequencer, forwarding): (&Replica, &Sequencer, &Forwarding),
        (stopping, installing): (bool, bool),
        out: &mut Outbox,
    ) {
        let raft = replica.raft();
        out.status.quorum = Some(self.quorum_counter.count(now, self.election, raft, &self.wanted));
        out.status.lag = raft.commit().0.saturating_sub(replica.applied().0);
        out.status.log_entries_kept = raft.followers().log_entries_kept();
        let state = ServerState {
            stopping,
            stalled: out.status.stalled,
            receives_snapshot: installing || self.reception.has_any(),
            has_no_data: self.has_no_data,
            listed: self.listed,
            is_standalone: false,
        };
        let parts = (replica, sequencer, Some(forwarding));
        self.serving.tick(Millis(now.0 / 1000), parts, &state, &mut out.status);
    }

    /// The list of servers has changed: connects to its servers. A leader that is not in it counts as lost.
    fn follow(&mut self, replica: &mut Replica, sequencer: &Sequencer, out: &mut Outbox) {
        let servers = sequencer.servers();
        if let Some(wanted) = servers.wanted() {
            self.wanted = membership_of(&wanted);
        }
        self.known_features.membership_changed();
        let listed = servers.lists(replica.raft().id());
        if (self.listed, listed) == (Some(true), Some(false)) {
            tracing::warn!(
                "this server is being removed from the ensemble: stop it then, or add it again with reconfig"
            );
        }
        self.listed = listed;
        let known = servers.known();
        let lost = leader_out_of(replica.raft(), known.as_ref());
        let (counting, moved) = self.advertised.follow(servers.listed(), known, &self.configured);
        moved.into_iter().for_each(|moved| out.peers(ToPeers::Moved(moved)));
        out.peers(ToPeers::Connect(addresses(counting, &self.configured)));
        if let Some(lost) = lost {
            replica.leader_lost(lost, stagger(replica, lost));
        }
    }
}

/// Ticks of delay before an election: one for each voter with a smaller id, so that two do not split the votes.
fn stagger(replica: &Replica, lost: ServerId) -> u32 {
    let raft = replica.raft();
    let before = raft.membership().voters.iter().filter(|voter| **voter != lost && **voter < raft.id()).count();
    u32::try_from(before).unwrap_or(0)
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
