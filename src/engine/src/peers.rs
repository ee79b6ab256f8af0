//! What this server says to the others of an ensemble, and what these say to it: messages to frames and back.
//!
//! The driver carries the bytes and reports what happens to connections; who leads, and what becomes of commands, the replica and its
//! machine decide. A message that cannot be read is said in the log, and nothing more is taken from the connection it came on.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use corral_consensus::{
    Index, LogDisk, Membership, Micros, NodeId, PeerBody, PeerError, PeerMessage as RaftMessage, Replica, Role,
    RoleChange,
};
use corral_core::ids::Millis;
use corral_core::member::{Note, Send, Sender, Standing};
use corral_core::peer::PeerMessage;
use corral_core::report::Mode;
use corral_link::image::{Ask, Part};
use corral_link::{Frame, Generation, Kind};
use corral_members::{leader_out_of, membership_of};

use crate::addresses::{AdvertisedAddress, PeerAddress, addresses};
use crate::census::Census;
use crate::effect::{Effect, Outbox};
use crate::event::{Cause, Distrust, Incoming};
use crate::machine::Replicated;
use crate::serving::{ServerState, Serving, say_what_is_awaited, say_who_is_not_known};
use crate::settings::EnsembleSettings;
use crate::transfer::{
    Arrived, FailedTransfer, IMAGE_AGAIN_AFTER_MS, Offer, Offered, Outcome, Transfer, holds_membership,
};

/// See the module.
pub(crate) struct Peers {
    /// Connections that other servers dialled, by stream.
    from: BTreeMap<u64, Sender>,
    /// Whether a leader was known when that was said last.
    found: bool,
    /// What this server is by its place in Raft.
    mode: Mode,
    /// All clients were sent away: what it is then.
    drained: Option<Mode>,
    /// What it is without a leader.
    leaderless: Mode,
    /// A leader whose log stands still for so long lets another lead; a member that was not heard from for so long does not count.
    election: Micros,
    /// Of this server's data.
    generation: Generation,
    /// The servers as this one is configured with them.
    configured: Vec<PeerAddress>,
    /// Bytes of a piece of an image.
    piece_bytes: usize,
    /// Images for other servers.
    pub(crate) offer: Offer,
    /// The image that comes in.
    transfer: Option<Box<Transfer>>,
    /// Images that have come, and are to be installed when Raft says so; the newest last.
    arrived: VecDeque<Box<Arrived>>,
    /// An image that could not be taken over.
    failed_transfer: Option<FailedTransfer>,
    /// Who ought to belong to the ensemble.
    pub(crate) wanted: Membership,
    /// When it was last said what this server, as a newborn, waits for.
    said: Millis,
    /// A server that this one does not know, and that holds data of this cluster.
    pub(crate) stranger: Option<NodeId>,
    /// Whether this server is in the list of servers; `None` where the configuration counts.
    listed: Option<bool>,
    advertised: AdvertisedAddress,
    /// It has never had any state, so that no leader was lost.
    pub(crate) is_blank: bool,
    census: Census,
    serving: Serving,
}

/// Images that wait to be installed.
const ARRIVED_MAX: usize = 2;
/// How often a newborn says what it waits for.
const SAY_EVERY_MS: u64 = 3000;

impl Peers {
    pub(crate) fn new(settings: EnsembleSettings, newest: Option<Offered>) -> Peers {
        let EnsembleSettings { own, configured, client_addr, wanted, remembered, .. } = settings;
        let EnsembleSettings { read_only, election, generation, piece_bytes, .. } = settings;
        Peers {
            from: BTreeMap::new(),
            found: true,
            mode: Mode::Looking,
            drained: None,
            leaderless: if read_only { Mode::ReadOnly } else { Mode::Looking },
            election,
            generation,
            configured,
            piece_bytes,
            offer: Offer::new(newest, piece_bytes),
            transfer: None,
            arrived: VecDeque::new(),
            failed_transfer: None,
            wanted,
            said: Millis(0),
            stranger: None,
            listed: None,
            advertised: AdvertisedAddress::new(own, client_addr, remembered),
            is_blank: true,
            census: Census::default(),
            serving: Serving::default(),
        }
    }

    // ----- connections -----

    /// Messages for that server go there from now on.
    pub(crate) fn connected_to<M: Replicated>(
        &mut self,
        now: Millis,
        peer: NodeId,
        stream: u64,
        replica: &mut Replica<M>,
        out: &mut Outbox,
    ) {
        replica.machine_mut().link_up(server(peer), stream);
        if self.transfer.is_none() {
            // What was said of an image may have been lost with the connection before: it may announce it once more.
            refuse(peer, 0, out);
        }
        self.ask_again(now, out);
    }

    pub(crate) fn disconnected_from<M: Replicated>(&mut self, peer: NodeId, stream: u64, replica: &mut Replica<M>) {
        replica.machine_mut().link_down(server(peer), stream);
        // An image that was announced to it may not have been heard of: it is announced again.
        undelivered(peer, true, replica);
    }

    pub(crate) fn accepted(&mut self, peer: NodeId, stream: u64, incarnation: u64) {
        self.from.insert(stream, Sender { peer: server(peer), incarnation, link: stream });
    }

    pub(crate) fn lost(&mut self, stream: u64) {
        self.from.remove(&stream);
    }

    /// The process of that server has ended.
    pub(crate) fn gone<M: Replicated>(peer: NodeId, replica: &mut Replica<M>) {
        if replica.raft().leader() == Some(peer) {
            replica.leader_lost(peer, stagger(replica, peer));
        }
    }

    /// A frame came on a connection; on one that said what is not understood, none is taken any more.
    pub(crate) fn frame<M: Replicated>(
        &mut self,
        now: Millis,
        (peer, stream): (NodeId, u64),
        frame: &Frame,
        replica: &mut Replica<M>,
        out: &mut Outbox,
    ) {
        let Some(sender) = self.from.get(&stream).copied() else { return };
        if let Err(reason) = self.read(now, sender, frame, replica, out) {
            tracing::error!(
                peer = peer.0,
                "what the server says is not understood, its connection is closed: {reason}"
            );
            self.from.remove(&stream);
            out.push(Effect::Close { peer, stream });
        }
    }

    /// Reads one frame and gives it to whom it is for.
    fn read<M: Replicated>(
        &mut self,
        now: Millis,
        sender: Sender,
        frame: &Frame,
        replica: &mut Replica<M>,
        out: &mut Outbox,
    ) -> Result<(), String> {
        let peer = NodeId(u64::from(sender.peer));
        match frame.kind {
            Kind::Raft => {
                let message = RaftMessage::decode(&frame.payload).map_err(|error| error.to_string())?;
                if message.from != peer {
                    return Err(format!("server {peer} speaks for server {}", message.from));
                }
                self.step(now, message, replica, out)?;
            }
            Kind::Forward | Kind::Touch | Kind::Beat | Kind::Newborn => {
                let message = PeerMessage::decode(&frame.payload).map_err(|fault| fault.to_string())?;
                replica.machine_mut().received(now, sender, message).map_err(|fault| fault.to_string())?;
            }
            Kind::ImageAsk => {
                let ask = Ask::decode(&frame.payload).map_err(|error| error.to_string())?;
                let part = ask.offset.map_or(Part::Gone { index: ask.index }, |at| self.offer.part(ask.index, at));
                if matches!(part, Part::Gone { .. }) {
                    replica.image_sent(peer, false);
                }
                if ask.offset.is_none() && ask.index > 0 && ask.index == self.offer.newest() {
                    // It may be damaged: the other server checked it.
                    out.push(Effect::Scrub);
                }
                if ask.offset.is_some() {
                    out.send(peer, Kind::ImagePart, part.encode());
                }
            }
            Kind::ImagePart => {
                let part = Part::decode(&frame.payload).map_err(|error| error.to_string())?;
                let is_gone = matches!(part, Part::Gone { .. });
                if let Some(transfer) = self.transfer.as_mut().filter(|transfer| transfer.from() == peer)
                    && let Outcome::Failed = transfer.piece(now, part, &mut out.effects)
                {
                    tracing::info!("the image is gone at its server, a newer one is awaited");
                    let index = transfer.index();
                    self.transfer = None;
                    if !is_gone {
                        // It does not know that yet.
                        refuse(peer, index, out);
                    }
                }
            }
        }
        Ok(())
    }

    /// A message of Raft; one that announces an image waits for that image.
    ///
    /// # Errors
    /// What no server sends.
    fn step<M: Replicated>(
        &mut self,
        now: Millis,
        message: RaftMessage,
        replica: &mut Replica<M>,
        out: &mut Outbox,
    ) -> Result<(), String> {
        let from = message.from;
        let most = replica.raft().plausible_term();
        if message.term > most && !replica.raft().is_newborn() {
            return Err(PeerError::TermJump { term: message.term, most }.to_string());
        }
        if let PeerBody::Snapshot { index, .. } = message.body
            && (index > replica.applied() || replica.is_distrusted() && index == replica.applied())
            && message.term >= replica.raft().term()
        {
            // Also while a new ensemble is being formed here.
            let forms = replica.raft().is_newborn() && replica.machine().sequencer.index() > 0;
            if forms || replica.raft().check_newborn(&message).is_err() {
                refuse(from, index.0, out);
                return Ok(());
            }
            if self.has_arrived(index) {
                // It came in an earlier term.
                let _ = replica.step(message);
                return Ok(());
            }
            match &mut self.transfer {
                Some(transfer) if transfer.is_of(message.from, index.0) => transfer.announce(message),
                _ => {
                    let transfer = Transfer::begin(now, message, index.0, self.piece_bytes);
                    self.transfer = Some(Box::new(transfer));
                }
            }
            self.ask(out);
            return Ok(());
        }
        match replica.step(message) {
            Err(error) if error.breaks_link() => Err(error.to_string()),
            Err(error) => {
                if error.contradicts() {
                    self.serving.contradicted(now, from, replica.raft().leader(), &error);
                }
                tracing::debug!("a message of Raft is passed over: {error}");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    // ----- the image that comes in -----

    /// Whether the image that ends there is here, whole.
    pub(crate) fn has_arrived(&self, index: Index) -> bool {
        self.arrived.iter().any(|image| image.loaded.index == index.0)
    }

    /// It is written so far. `installing` is the image that takes the place of everything just now.
    pub(crate) fn incoming<M: Replicated>(
        &mut self,
        now: Millis,
        incoming: Incoming,
        installing: Option<Index>,
        replica: &mut Replica<M>,
        out: &mut Outbox,
    ) {
        let Some(transfer) = self.transfer.take() else { return };
        let from = transfer.from();
        let (goes_on, outcome) = transfer.taken(&incoming);
        self.transfer = goes_on;
        match (outcome, incoming) {
            (Outcome::Over(announced), Incoming::Whole { index, image }) => {
                let loaded = &image.loaded;
                if let Err(reason) = holds_membership(loaded, &announced) {
                    tracing::error!(
                        index,
                        "an image of another server cannot be taken over, asking for another in {} s: {reason}",
                        IMAGE_AGAIN_AFTER_MS / 1000
                    );
                    self.failed_transfer = Some(FailedTransfer::at(now, index, from, false));
                    return;
                }
                tracing::info!(index, zxid = loaded.zxid, bytes = loaded.bytes.size(), "the image is here");
                self.failed_transfer = None;
                // Before the one that is being installed has come to an end, another may have come.
                self.arrived.push_back(image);
                if self.arrived.len() > ARRIVED_MAX {
                    let spare = |index| installing.is_none_or(|installing| installing != Index(index));
                    self.arrived
                        .iter()
                        .position(|image| spare(image.loaded.index))
                        .and_then(|at| self.arrived.remove(at));
                }
                if let Err(error) = replica.step(announced) {
                    tracing::debug!("the image is not needed any more: {error}");
                }
            }
            (Outcome::Failed, Incoming::Failed { index, reason }) => {
                tracing::error!(
                    "an image of another server cannot be taken over, asking for another in {} s: {reason}",
                    IMAGE_AGAIN_AFTER_MS / 1000
                );
                self.failed_transfer = Some(FailedTransfer::at(now, index, from, true));
            }
            _ => self.ask(out),
        }
    }

    /// Whether a new ensemble may begin: nobody has data for it.
    pub(crate) fn may_begin(&self) -> bool {
        !self.takes_an_image() && self.stranger.is_none()
    }

    /// Whether an image comes in, or has come.
    fn takes_an_image(&self) -> bool {
        self.transfer.is_some() || !self.arrived.is_empty()
    }

    /// A leader's log, perhaps of another than the one who gave the image, brought this server that far.
    fn forget_images_upto(&mut self, applied: Index) {
        if let Some(transfer) = self.transfer.take_if(|transfer| transfer.index() <= applied.0) {
            tracing::info!(index = transfer.index(), "the image is not needed any more: the log has come that far");
        }
        self.arrived.retain(|image| image.loaded.index > applied.0);
    }

    /// The image that Raft wants installed, if it is the one that came.
    pub(crate) fn arrived(&mut self, index: Index) -> Option<Box<Arrived>> {
        let at = self.arrived.iter().position(|image| image.loaded.index == index.0)?;
        self.arrived.drain(..=at).next_back()
    }

    /// Time passes: what was lost is asked for again, and a newborn says what it waits for.
    pub(crate) fn tick<M: Replicated>(&mut self, now: Millis, replica: &Replica<M>, out: &mut Outbox) {
        if replica.raft().is_newborn() && self.transfer.is_none() && now.since(self.said) >= SAY_EVERY_MS {
            self.said = now;
            match self.stranger {
                Some(stranger) => say_who_is_not_known(stranger),
                None => say_what_is_awaited(&replica.machine().awaited()),
            }
        }
        for difference in self.advertised.compare(now, &self.configured) {
            tracing::warn!("{difference}");
        }
        if !replica.is_distrusted() {
            self.forget_images_upto(replica.applied());
        }
        if self.transfer.as_ref().is_some_and(|transfer| transfer.is_silent(now)) {
            self.ask_again(now, out);
        }
        if let Some(failed_transfer) = &mut self.failed_transfer
            && failed_transfer.again.take_if(|at| now >= *at).is_some()
        {
            let (from, index) = (failed_transfer.from, failed_transfer.index);
            refuse(from, index, out);
        }
    }

    /// The state here is not to be trusted, or is again: for whoever asks, and for a later process where the start would not find
    /// out by checksums.
    pub(crate) fn distrusted(distrust: Option<&Distrust>, out: &mut Outbox) {
        out.status.withheld = distrust.map(|distrust| distrust.cause.obstacle());
        match distrust {
            None => out.push(Effect::NoteDistrust(None)),
            Some(Distrust { cause: Cause::Digest, what }) => out.push(Effect::NoteDistrust(Some(what.clone()))),
            Some(Distrust { cause: Cause::Image | Cause::Noted, .. }) => {}
        }
    }

    /// Whether what the leader gives has no space here, neither in the log nor as an image; for whoever asks, too.
    pub(crate) fn is_stalled<M: Replicated>(&mut self, disk: LogDisk, replica: &Replica<M>) -> bool {
        let applied = replica.applied();
        // One that heals needs an image of what it has applied, too.
        self.failed_transfer.take_if(|failed| applied.0 >= failed.index && !replica.is_distrusted());
        disk == LogDisk::Full || self.failed_transfer.as_ref().is_some_and(|failed_transfer| failed_transfer.stalls)
    }

    /// A leader whose disk stands still, or is full, hands over.
    pub(crate) fn relieve<M: Replicated>(
        &self,
        now: Micros,
        disk: LogDisk,
        replica: &mut Replica<M>,
        out: &mut Outbox,
    ) {
        let Some(successor) = replica.relieve(now, self.election, disk) else { return };
        out.status.relieved += 1;
        match disk {
            LogDisk::Full => {
                tracing::warn!(to = successor.0, "the log has no space, handing over leadership; free space");
            }
            LogDisk::Writes => tracing::warn!(
                to = successor.0,
                patience_ms = self.election.0 / 1000,
                "the log is not synced in time, handing over leadership; look at the disk"
            ),
        }
    }

    fn ask_again(&mut self, now: Millis, out: &mut Outbox) {
        if let Some(transfer) = &mut self.transfer {
            transfer.ask_again();
            transfer.note(now);
        }
        self.ask(out);
    }

    fn ask(&mut self, out: &mut Outbox) {
        if let Some(transfer) = &mut self.transfer {
            for ask in transfer.asks() {
                out.send(transfer.from(), Kind::ImageAsk, ask.encode());
            }
        }
    }

    // ----- what is said -----

    /// Of this server's data; those that are being formed are of the first.
    pub(crate) fn generation(&self) -> Generation {
        match self.generation {
            Generation::NONE => Generation::FIRST,
            own => own,
        }
    }

    /// This server's data are of that generation from now on.
    pub(crate) fn adopt(&mut self, generation: Generation, out: &mut Outbox) {
        self.generation = generation;
        out.push(Effect::Adopt(generation));
    }

    /// Who leads is another: for the log and for whoever asks.
    pub(crate) fn role_changed(&mut self, change: RoleChange, out: &mut Outbox) -> Standing {
        let leader = change.leader.map(|leader| leader.0);
        let mode = match (change.role, change.leader) {
            (Role::Leader, _) => Mode::Leader,
            (_, None) => Mode::Looking,
            (Role::Learner, _) => Mode::Observer,
            _ => Mode::Follower,
        };
        self.mode = mode;
        self.show_mode(out);
        if mode != Mode::Looking || self.found {
            tracing::info!(role = mode.word(), term = change.term.0, leader, "leadership changed");
        }
        self.found = mode != Mode::Looking;
        match change.role {
            Role::Leader => Standing::Leader,
            _ => Standing::Follower { leader: change.leader.map(server) },
        }
    }

    /// What the shards are told: for the log and for whoever asks.
    pub(crate) fn on_note(&mut self, note: Note, out: &mut Outbox) {
        match note {
            Note::Away => {
                let mode = self.leaderless.word();
                if out.status.stalled {
                    tracing::warn!(mode, "the disk is full: clients are sent away; free space");
                } else if self.is_blank {
                    tracing::info!(mode, "this server has no data yet: clients are sent away until it has a leader");
                } else {
                    tracing::warn!(mode, "no leader is found: clients are sent away");
                }
                if self.listed == Some(false) {
                    tracing::warn!("this server is not in the list of servers: stop it, or let it in with reconfig");
                }
                self.drained = Some(self.leaderless);
            }
            Note::Distrusted => self.drained = Some(Mode::Looking),
            Note::Release => self.drained = None,
            Note::Hold | Note::Uncertain { .. } => return,
        }
        self.show_mode(out);
    }

    /// Who keeps up, and whether this server takes sessions and writes: for the log and for whoever asks, once a tick.
    pub(crate) fn show<M: Replicated>(
        &mut self,
        now: Micros,
        replica: &Replica<M>,
        (stopping, installing): (bool, bool),
        out: &mut Outbox,
    ) {
        out.status.quorum = Some(self.census.count(now, self.election, replica.raft(), &self.wanted));
        let state = ServerState {
            stopping,
            stalled: out.status.stalled,
            takes_an_image: installing || self.takes_an_image(),
            is_blank: self.is_blank,
            listed: self.listed,
            is_alone: false,
        };
        self.serving.look(Millis(now.0 / 1000), replica, &state, &mut out.status);
    }

    fn show_mode(&self, out: &mut Outbox) {
        out.status.mode = self.drained.unwrap_or(self.mode);
    }

    /// The list of servers is another: the connections follow. A leader that is in it no more is not waited for.
    pub(crate) fn follow<M: Replicated>(&mut self, replica: &mut Replica<M>, out: &mut Outbox) {
        if let Some(wanted) = replica.machine().sequencer.wanted() {
            self.wanted = membership_of(&wanted);
        }
        let listed = replica.machine().sequencer.lists(server(replica.raft().id()));
        if (self.listed, listed) == (Some(true), Some(false)) {
            tracing::warn!("this server is taken out of the list of servers: stop it then, or let it in again");
        }
        self.listed = listed;
        let known = replica.machine().sequencer.known_servers();
        let lost = leader_out_of(replica, known.as_ref());
        let list = replica.machine().sequencer.listed_servers();
        let (counting, moved) = self.advertised.follow(list, known, &self.configured);
        out.effects.extend(moved.map(Effect::Moved));
        out.push(Effect::Connect(addresses(counting, &self.configured)));
        if let Some(lost) = lost {
            replica.leader_lost(lost, stagger(replica, lost));
        }
    }
}

/// Raft's messages.
pub(crate) fn send_raft(messages: &mut Vec<RaftMessage>, out: &mut Outbox) {
    for message in messages.drain(..) {
        let mut bytes = BytesMut::new();
        message.encode(&mut bytes);
        let announces_image = matches!(message.body, PeerBody::Snapshot { .. });
        let (peer, payload) = (message.to, bytes.freeze());
        out.push(Effect::Send { peer, stream: None, kind: Kind::Raft, payload, announces_image });
    }
}

/// The machine's messages. A connection that does not take one has ended, and that is reported.
pub(crate) fn send_of_member(sends: Vec<Send>, out: &mut Outbox) {
    for Send { peer, link, message } in sends {
        let kind = match message {
            PeerMessage::Forward(_) => Kind::Forward,
            PeerMessage::Touch(_) | PeerMessage::Paused(_) => Kind::Touch,
            PeerMessage::Beat(_) | PeerMessage::Pause(_) => Kind::Beat,
            PeerMessage::Newborn(_) | PeerMessage::Digest(_) => Kind::Newborn,
        };
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let (peer, stream, payload) = (NodeId(u64::from(peer)), Some(link), Bytes::from(bytes));
        out.push(Effect::Send { peer, stream, kind, payload, announces_image: false });
    }
}

/// A message for that server is lost. If it announced an image nobody heard of that, so nobody will say what became of it.
pub(crate) fn undelivered<M: Replicated>(peer: NodeId, announced_image: bool, replica: &mut Replica<M>) {
    replica.unreachable(peer);
    if announced_image {
        replica.image_sent(peer, false);
    }
}

/// Another image is wanted than that one, or none is on its way.
fn refuse(from: NodeId, index: u64, out: &mut Outbox) {
    out.send(from, Kind::ImageAsk, Ask { index, offset: None }.encode());
}

/// Ticks that this server lets those before it have to be elected first, so that two do not stand in each other's way.
fn stagger<M: Replicated>(replica: &Replica<M>, lost: NodeId) -> u32 {
    let raft = replica.raft();
    let before = raft.membership().voters.iter().filter(|voter| **voter != lost && **voter < raft.id()).count();
    u32::try_from(before).unwrap_or(0)
}

/// A server's number as the core has it.
fn server(node: NodeId) -> u8 {
    u8::try_from(node.0).expect("only configured servers are connected, and their numbers are at most 255")
}
