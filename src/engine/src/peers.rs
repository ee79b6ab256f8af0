//! The other servers of an ensemble: messages to frames and back, and the snapshot in transfer. Besides: the status of
//! this server for the others and for clients.
//!
//! The driver carries the bytes, and reports what happens to connections. The replica and its machine decide elections
//! and commands. An invalid message is logged, and closes its connection.

use std::collections::BTreeMap;

use corral_consensus::{
    Index, LogDisk, Membership, Micros, PeerBody, PeerError, PeerMessage as RaftMessage, RaftNode, Replica, Role,
    RoleChange, ServerId,
};
use corral_core::features;
use corral_core::forwarding::peer::PeerMessage;
use corral_core::forwarding::{Forwarding, Leadership, Sender};
use corral_core::ids::{Millis, Zxid};
use corral_core::report::Mode;
use corral_core::sequencer::Sequencer;
use corral_core::shard::Flow;
use corral_peer::snapshot::{Ask, Knows, Part};
use corral_peer::{Frame, Generation, Kind};

use crate::addresses::{AdvertisedAddress, PeerAddress, addresses};
use crate::arrivals::{Arrivals, discard};
use crate::effect::{Effect, Outbox, ToPeers};
use crate::event::{Incoming, Receive};
use crate::frame_error::FrameError;
use crate::known_features::KnownFeatures;
use crate::membership::{leader_out_of, membership_of};
use crate::one_way::OneWay;
use crate::outgoing::refuse;
use crate::quorum_counter::QuorumCounter;
use crate::serving::{ServerState, Serving, log_unknown_server, log_what_is_awaited};
use crate::settings::EnsembleSettings;
use crate::snapshot::Offered;
use crate::transfer::{FailedTransfer, Offer, Outcome, Transfer, is_as_announced, is_of_ensemble};

/// The other servers, as this one is connected with them.
pub(crate) struct Peers {
    /// Connections that other servers dialled, by stream.
    from: BTreeMap<u64, Sender>,
    one_way: OneWay,
    /// Whether a leader was known when the role was logged last.
    had_leader: bool,
    /// The mode that follows from the role in Raft.
    mode: Mode,
    /// The mode while client connections are closed.
    drained: Option<Mode>,
    /// The mode without a leader.
    leaderless: Mode,
    /// The election timeout. A leader transfers leadership if its log is not synced for so long. A member that is
    /// silent for so long does not count as active.
    election: Micros,
    /// Generation of this server's data.
    generation: Generation,
    /// The servers of this server's configuration.
    configured: Vec<PeerAddress>,
    /// Bytes of a piece of a snapshot.
    piece_bytes: usize,
    /// Snapshots that other servers may request.
    pub(crate) offer: Offer,
    /// The snapshot that is being received.
    transfer: Option<Box<Transfer>>,
    pub(crate) arrivals: Arrivals,
    /// The snapshot that another server refused, and when all files were checked because of that.
    refused: Option<(u64, Millis)>,
    /// A snapshot that could not be installed.
    failed_transfer: Option<FailedTransfer>,
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
    pub(crate) has_no_data: bool,
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
    pub(crate) fn new(settings: EnsembleSettings, newest: Option<Offered>) -> Peers {
        let EnsembleSettings { own, configured, client_addr, wanted, stored, .. } = settings;
        let EnsembleSettings { read_only, election, generation, piece_bytes, .. } = settings;
        Peers {
            from: BTreeMap::new(),
            one_way: OneWay::default(),
            had_leader: true,
            mode: Mode::Looking,
            drained: None,
            leaderless: if read_only { Mode::ReadOnly } else { Mode::Looking },
            election,
            generation,
            configured,
            piece_bytes,
            offer: Offer::new(newest, piece_bytes),
            transfer: None,
            arrivals: Arrivals::default(),
            refused: None,
            failed_transfer: None,
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

    pub(crate) fn begin_turn(&mut self, raft: &RaftNode, sequencer: &mut Sequencer) {
        self.offer.begin_turn();
        self.known_features.report_to(&self.wanted, raft, sequencer);
    }

    // ----- connections -----

    /// A connection to that server is open: messages for it use that from now on.
    pub(crate) fn connected_to(&mut self, peer: ServerId, stream: u64, context: &mut PeerContext<'_>) {
        let PeerContext { now, forwarding, out, .. } = context;
        forwarding.peer_connected(*now, peer, stream);
        if self.transfer.is_none() {
            // A reply about a snapshot may be lost with the former connection: this one makes the server announce it again.
            refuse(peer, 0, out);
        }
        out.send(peer, Kind::SnapshotAsk, Knows { features: features::KNOWN }.encode());
        self.request_again(*now, out);
    }

    pub(crate) fn accepted(
        &mut self,
        peer: ServerId,
        connection: u64,
        incarnation: u64,
        context: &mut PeerContext<'_>,
    ) {
        context.forwarding.founder(context.now, peer, true);
        self.known_features.accepted(connection, peer);
        self.from.insert(connection, Sender { peer, incarnation, connection });
    }

    pub(crate) fn lost(&mut self, stream: u64) {
        self.known_features.lost(stream);
        self.from.remove(&stream);
    }

    /// The process of that server has ended.
    pub(crate) fn gone(peer: ServerId, replica: &mut Replica) {
        if replica.raft().leader() == Some(peer) {
            replica.leader_lost(peer, stagger(replica, peer));
        }
    }

    /// A frame was received. An invalid one closes its connection, and later frames of it are dropped.
    pub(crate) fn frame(&mut self, peer: ServerId, stream: u64, frame: &Frame, context: &mut PeerContext<'_>) {
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
                self.read_part(context.now, peer, part, context.out);
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

    /// A piece of the snapshot that is being received, or its end.
    fn read_part(&mut self, now: Millis, peer: ServerId, part: Part, out: &mut Outbox) {
        let is_gone = matches!(part, Part::Gone { .. });
        if let Some(transfer) = self.transfer.as_mut().filter(|transfer| transfer.from() == peer)
            && let Outcome::Failed = transfer.piece(now, part, &mut out.effects)
        {
            tracing::info!("the sending server no longer has the snapshot: waiting for a newer one");
            let index = transfer.index();
            self.transfer = None;
            if !is_gone {
                // The sender does not know that yet.
                refuse(peer, index, out);
            }
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
        let repairs = replica.awaits_state();
        if let PeerBody::Snapshot { index, .. } = message.body
            && (index > replica.raft().applied_index() || repairs.is_some_and(|least| index >= least))
            && message.term >= replica.raft().term()
        {
            if let Some(least) = repairs
                && index <= replica.raft().last_index()
                && self.has_state_from(least, from)
            {
                // The state is on its way. Each request makes the leader announce the newest one.
                return Ok(());
            }
            // A snapshot is refused as well while a new ensemble is bootstrapped here.
            let forms = replica.raft().is_uninitialised() && sequencer.index() > 0;
            if forms || replica.raft().check_uninitialised(&message).is_err() {
                refuse(from, index.0, out);
                return Ok(());
            }
            if let Some(arrived) = self.arrivals.get(index) {
                // It was received in an earlier term.
                match is_as_announced(&arrived.loaded, &message) {
                    Ok(()) => drop(replica.step(*sequencer, message)),
                    Err(reason) => tracing::error!(from = from.0, "a received snapshot is not used: {reason}"),
                }
                return Ok(());
            }
            match &mut self.transfer {
                Some(transfer) if transfer.is_of(message.from, index.0) => transfer.announce(message),
                _ => {
                    let transfer = Transfer::begin(*now, message, index.0, self.piece_bytes);
                    self.transfer = Some(Box::new(transfer));
                }
            }
            self.request_pieces(out);
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

    // ----- the snapshot that is being received -----

    /// The driver reports its progress. `installing` is the snapshot that is being installed.
    pub(crate) fn incoming(&mut self, incoming: Incoming, installing: Option<Index>, context: &mut PeerContext<'_>) {
        let PeerContext { now, replica, sequencer, out, .. } = context;
        let Some(transfer) = self.transfer.take() else { return };
        let from = transfer.from();
        let (rest, outcome) = transfer.progress(&incoming);
        self.transfer = rest;
        match (outcome, incoming) {
            (Outcome::Received(announced), Incoming::Whole { index, snapshot }) => {
                let loaded = &snapshot.loaded;
                let fits = is_as_announced(loaded, &announced);
                if let Err(reason) = fits.and_then(|()| is_of_ensemble(&snapshot.state, sequencer.machine())) {
                    self.failed_transfer = Some(FailedTransfer::at(*now, index, from, false, &reason.to_string()));
                    // A later start would begin with it.
                    out.push(Effect::Receive(Receive::Forget { index: loaded.index, zxid: loaded.zxid }));
                    return discard(snapshot, &mut out.effects);
                }
                tracing::info!(index, zxid = %Zxid(loaded.zxid), bytes = loaded.bytes.size(), "snapshot received");
                self.failed_transfer = None;
                self.arrivals.add(snapshot, [installing, replica.raft().restores()], &mut out.effects);
                if self.arrivals.get(Index(index)).is_none() {
                    return refuse(from, index, out);
                }
                if let Err(error) = replica.step(*sequencer, announced) {
                    tracing::debug!("the snapshot is not needed any more: {error}");
                }
            }
            (Outcome::Failed, Incoming::Failed { index, reason }) => {
                self.failed_transfer = Some(FailedTransfer::at(*now, index, from, true, &reason));
            }
            _ => self.request_pieces(out),
        }
    }

    /// Whether a new ensemble may be bootstrapped: no server is known to have data.
    #[must_use]
    pub(crate) fn may_bootstrap(&self) -> bool {
        !self.receives_snapshot() && self.unknown_server.is_none()
    }

    /// Whether a snapshot that ends at `least` or later is here or on its way, or another one is to be requested later. A former
    /// leader may never send the rest: only the transfer from `leader` counts.
    fn has_state_from(&self, least: Index, leader: ServerId) -> bool {
        let transfer = self.transfer.as_ref();
        let is_on_its_way = transfer.is_some_and(|transfer| transfer.index() >= least.0 && transfer.needs_only(leader));
        let waits = self.failed_transfer.as_ref().is_some_and(|failed| failed.again.is_some());
        is_on_its_way || waits || !self.arrivals.is_empty()
    }

    /// Whether a snapshot is being received, or waits to be installed.
    fn receives_snapshot(&self) -> bool {
        self.transfer.is_some() || !self.arrivals.is_empty()
    }

    /// Cancels the transfer of snapshots that the log has made superfluous: everything up to `applied` is applied.
    fn cancel_snapshots_upto(&mut self, applied: Index, out: &mut Outbox) {
        if let Some(transfer) = self.transfer.take_if(|transfer| transfer.index() <= applied.0) {
            tracing::info!(index = transfer.index(), "snapshot transfer cancelled: the log covers it by now");
        }
        self.arrivals.drop_upto(applied, &mut out.effects);
    }

    /// One tick: requests lost pieces again. An uninitialised server logs what it waits for.
    pub(crate) fn tick(&mut self, now: Millis, replica: &Replica, forwarding: &Forwarding, out: &mut Outbox) {
        self.known_features.membership_changed();
        if replica.raft().is_uninitialised()
            && self.transfer.is_none()
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
        let superfluous = replica.awaits_state().map_or(replica.applied(), |least| Index(least.0 - 1));
        self.cancel_snapshots_upto(superfluous, out);
        if self.transfer.as_ref().is_some_and(|transfer| transfer.is_silent(now)) {
            self.request_again(now, out);
        }
        if let Some(failed_transfer) = &mut self.failed_transfer
            && failed_transfer.again.take_if(|at| now >= *at).is_some()
        {
            let (from, index) = (failed_transfer.from, failed_transfer.index);
            refuse(from, index, out);
        }
    }

    /// Whether this server has no space for entries in its log, or for a snapshot.
    pub(crate) fn is_stalled(&mut self, disk: LogDisk, replica: &Replica) -> bool {
        let applied = replica.applied();
        // With a corrupt state a snapshot of applied entries is needed, too.
        self.failed_transfer.take_if(|failed| applied.0 >= failed.index && replica.awaits_state().is_none());
        disk == LogDisk::Full || self.failed_transfer.as_ref().is_some_and(|failed_transfer| failed_transfer.stalls)
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

    fn request_again(&mut self, now: Millis, out: &mut Outbox) {
        if let Some(transfer) = &mut self.transfer {
            transfer.request_again();
            transfer.restart_timer(now);
        }
        self.request_pieces(out);
    }

    fn request_pieces(&mut self, out: &mut Outbox) {
        if let Some(transfer) = &mut self.transfer {
            for ask in transfer.requests() {
                out.send(transfer.from(), Kind::SnapshotAsk, ask.encode());
            }
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

    /// Term, role or leader have changed: logs that, and updates the status.
    pub(crate) fn role_changed(&mut self, change: RoleChange, out: &mut Outbox) -> Leadership {
        self.known_features.membership_changed();
        let leader = change.leader.map(|leader| leader.0);
        let mode = match (change.role, change.leader) {
            (Role::Leader, _) => Mode::Leader,
            (_, None) => Mode::Looking,
            (Role::Learner, _) => Mode::Observer,
            _ => Mode::Follower,
        };
        self.mode = mode;
        self.show_mode(out);
        if mode != Mode::Looking || self.had_leader {
            tracing::info!(role = mode.word(), term = change.term.0, leader, "leadership changed");
        }
        self.had_leader = mode != Mode::Looking;
        match change.role {
            Role::Leader => Leadership::Leader,
            _ => Leadership::Follower { leader: change.leader },
        }
    }

    /// The shards are sent this: logs it, and updates the status.
    pub(crate) fn on_flow(&mut self, note: Flow, out: &mut Outbox) {
        match note {
            Flow::Leaderless => {
                let mode = self.leaderless.word();
                if out.status.stalled {
                    tracing::warn!(mode, "the disk is full: client connections are closed; free space");
                } else if self.has_no_data {
                    tracing::info!(
                        mode,
                        "this server has no data yet: client connections are closed until it has a leader"
                    );
                } else {
                    tracing::warn!(mode, "no leader: client connections are closed");
                }
                if self.listed == Some(false) {
                    tracing::warn!("this server is not a member of the ensemble: stop it, or add it with reconfig");
                }
                self.drained = Some(self.leaderless);
            }
            Flow::Distrusted => self.drained = Some(Mode::Looking),
            Flow::Resume => self.drained = None,
            Flow::Pause | Flow::Uncertain { .. } => return,
        }
        self.show_mode(out);
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
            receives_snapshot: installing || self.receives_snapshot(),
            has_no_data: self.has_no_data,
            listed: self.listed,
            is_standalone: false,
        };
        let parts = (replica, sequencer, Some(forwarding));
        self.serving.tick(Millis(now.0 / 1000), parts, &state, &mut out.status);
    }

    fn show_mode(&self, out: &mut Outbox) {
        out.status.mode = self.drained.unwrap_or(self.mode);
    }

    /// The list of servers has changed: connects to its servers. A leader that is not in it counts as lost.
    pub(crate) fn follow(&mut self, replica: &mut Replica, sequencer: &Sequencer, out: &mut Outbox) {
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
