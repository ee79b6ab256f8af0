//! What the consensus actor says to the other servers of an ensemble, and what these say to it: messages to frames and back.
//!
//! On the consensus actor's core. The links' own threads carry the bytes and tell what happens; who leads, and what becomes
//! of commands, the replica and its machine decide. A message that cannot be read is said in the log, and nothing more is
//! taken from the connection it came on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use corral_consensus::{Index, NodeId, PeerBody, PeerMessage as RaftMessage, Replica, Role, RoleChange};
use corral_core::ids::Millis;
use corral_core::member::{Note, Send, Sender, Standing};
use corral_core::peer::PeerMessage;
use corral_core::report::Mode;
use corral_link::image::{Ask, Part};
use corral_link::{Frame, Kind};

use crate::actor::authority::Authority;
use crate::actor::messages::{Incoming, ToImagesIn};
use crate::actor::transfer::{Course, Offer, Offered, Transfer};
use crate::control::Gauges;
use crate::net::peers::event::{Direction, Reason};
use crate::net::peers::{Links, PeerEvent};
use crate::node::images::LoadedImage;

/// See the module.
pub(crate) struct Peers {
    links: Arc<Links>,
    gauges: Arc<Gauges>,
    /// Connections that others send on, by number.
    from: BTreeMap<u64, Sender>,
    /// Whether a leader was known when that was said last.
    found: bool,
    /// What this server is by its place in Raft.
    mode: Mode,
    /// All clients were sent away: what it is then.
    away: Option<Mode>,
    /// What it is without a leader.
    leaderless: Mode,
    /// Images for other servers.
    pub(crate) offer: Offer,
    /// The image that comes in.
    transfer: Option<Box<Transfer>>,
    /// The image that has come, and is to be installed when Raft says so.
    arrived: Option<Box<LoadedImage>>,
    images_in: flume::Sender<ToImagesIn>,
}

impl Peers {
    /// `newest` is the image this server started from. `read_only`: without a leader it serves those who only read.
    pub(crate) fn new(
        links: Arc<Links>,
        gauges: Arc<Gauges>,
        newest: Option<Offered>,
        images_in: flume::Sender<ToImagesIn>,
        read_only: bool,
    ) -> Peers {
        gauges.set_mode(Mode::Looking);
        let leaderless = if read_only { Mode::ReadOnly } else { Mode::Looking };
        let mut offer = Offer::default();
        newest.into_iter().for_each(|image| offer.add(image));
        Peers {
            links,
            gauges,
            from: BTreeMap::new(),
            found: true,
            mode: Mode::Looking,
            away: None,
            leaderless,
            offer,
            transfer: None,
            arrived: None,
            images_in,
        }
    }

    /// Something happened on a link.
    pub(crate) fn take(&mut self, now: Millis, event: PeerEvent, replica: &mut Replica<Authority>) {
        match event {
            PeerEvent::Up { peer, direction: Direction::Out, stream, .. } => {
                replica.machine_mut().link_up(server(peer), stream);
                self.ask_again(now);
            }
            PeerEvent::Up { peer, direction: Direction::In, stream, incarnation } => {
                self.from.insert(stream, Sender { peer: server(peer), incarnation, link: stream });
            }
            PeerEvent::Down { peer, direction, stream, reason } => {
                match direction {
                    Direction::Out => {
                        replica.machine_mut().link_down(server(peer), stream);
                        replica.unreachable(peer);
                        // An image that was announced to it may not have been heard of: it is announced again.
                        replica.image_sent(peer, false);
                    }
                    Direction::In => drop(self.from.remove(&stream)),
                }
                if matches!(reason, Reason::Closed | Reason::Reset) && replica.raft().leader() == Some(peer) {
                    replica.leader_lost(peer, stagger(replica, peer));
                }
            }
            PeerEvent::Frames { peer, stream, frames, hold } => {
                for frame in frames {
                    let Some(sender) = self.from.get(&stream).copied() else { break };
                    if let Err(reason) = self.read(now, sender, &frame, replica) {
                        tracing::error!(
                            peer = peer.0,
                            "what the server says is not understood and not taken: {reason}"
                        );
                        self.from.remove(&stream);
                    }
                }
                drop(hold);
            }
        }
    }

    /// Reads one frame and gives it to whom it is for.
    fn read(
        &mut self,
        now: Millis,
        sender: Sender,
        frame: &Frame,
        replica: &mut Replica<Authority>,
    ) -> Result<(), String> {
        let peer = NodeId(u64::from(sender.peer));
        match frame.kind {
            Kind::Raft => {
                let message = RaftMessage::decode(&frame.payload).map_err(|error| error.to_string())?;
                if message.from != peer {
                    return Err(format!("server {peer} speaks for server {}", message.from));
                }
                self.step(now, message, replica);
            }
            Kind::Forward | Kind::Touch | Kind::Beat => {
                let message = PeerMessage::decode(&frame.payload).map_err(|fault| fault.to_string())?;
                replica.machine_mut().received(now, sender, message).map_err(|fault| fault.to_string())?;
            }
            Kind::ImageAsk => {
                let ask = Ask::decode(&frame.payload).map_err(|error| error.to_string())?;
                let part = ask.offset.map_or(Part::Gone { index: ask.index }, |at| self.offer.part(ask.index, at));
                if matches!(part, Part::Gone { .. }) {
                    replica.image_sent(peer, false);
                }
                if ask.offset.is_some() {
                    let _ = self.links.send(peer, Kind::ImagePart, part.encode());
                }
            }
            Kind::ImagePart => {
                let part = Part::decode(&frame.payload).map_err(|error| error.to_string())?;
                if let Some(transfer) = self.transfer.as_mut().filter(|transfer| transfer.from() == peer)
                    && let Course::Failed = transfer.piece(now, part)
                {
                    tracing::info!("the image is gone at its server, a newer one is awaited");
                    self.transfer = None;
                }
            }
        }
        Ok(())
    }

    /// A message of Raft; one that announces an image waits for that image.
    fn step(&mut self, now: Millis, message: RaftMessage, replica: &mut Replica<Authority>) {
        if let PeerBody::Snapshot { index, .. } = message.body
            && index > replica.applied()
            && message.term >= replica.raft().term()
        {
            if self.arrived.as_ref().is_some_and(|image| image.head.index == index.0) {
                // It came in an earlier term.
                let _ = replica.step(message);
                return;
            }
            match &mut self.transfer {
                Some(transfer) if transfer.index() == index.0 => transfer.announce(message),
                _ => {
                    let transfer = Transfer::begin(now, message, index.0, self.images_in.clone());
                    self.transfer = Some(Box::new(transfer));
                }
            }
            return self.ask();
        }
        if let Err(error) = replica.step(message) {
            tracing::debug!("a message of Raft is passed over: {error}");
        }
    }

    // ----- the image that comes in -----

    /// The thread that writes it tells how far it is.
    pub(crate) fn incoming(&mut self, incoming: Incoming, replica: &mut Replica<Authority>) {
        let Some(transfer) = self.transfer.take() else { return };
        let from = transfer.from();
        let (goes_on, course) = transfer.taken(&incoming);
        self.transfer = goes_on;
        match (course, incoming) {
            (Course::Over(announced), Incoming::Whole { index, loaded }) => {
                tracing::info!(
                    index,
                    zxid = loaded.head.zxid,
                    bytes = loaded.bytes.as_slice().len(),
                    "the image is here"
                );
                self.arrived = Some(loaded);
                if let Err(error) = replica.step(announced) {
                    tracing::debug!("the image is not needed any more: {error}");
                }
            }
            (Course::Failed, Incoming::Failed { index, reason }) => {
                tracing::error!("an image of another server cannot be taken over, asking for another: {reason}");
                let _ = self.links.send(from, Kind::ImageAsk, Ask { index, offset: None }.encode());
            }
            _ => self.ask(),
        }
    }

    /// The image that Raft wants installed, if it is the one that came.
    pub(crate) fn arrived(&mut self, index: Index) -> Option<Box<LoadedImage>> {
        self.arrived.take().filter(|image| image.head.index == index.0)
    }

    /// Time passes: what was lost is asked for again.
    pub(crate) fn tick(&mut self, now: Millis) {
        if self.transfer.as_ref().is_some_and(|transfer| transfer.is_silent(now)) {
            self.ask_again(now);
        }
    }

    fn ask_again(&mut self, now: Millis) {
        if let Some(transfer) = &mut self.transfer {
            transfer.ask_again();
            transfer.note(now);
        }
        self.ask();
    }

    fn ask(&mut self) {
        if let Some(transfer) = &mut self.transfer {
            for ask in transfer.asks() {
                let _ = self.links.send(transfer.from(), Kind::ImageAsk, ask.encode());
            }
        }
    }

    // ----- what is said -----

    /// Raft's messages. One that a link does not take is lost, as on any network.
    pub(crate) fn send_raft(&self, messages: Vec<RaftMessage>, replica: &mut Replica<Authority>) {
        let mut lost = BTreeSet::new();
        for message in messages {
            let mut bytes = BytesMut::new();
            message.encode(&mut bytes);
            if self.links.send(message.to, Kind::Raft, bytes.freeze()).is_err() {
                lost.insert(message.to);
            }
        }
        lost.into_iter().for_each(|peer| replica.unreachable(peer));
    }

    /// The machine's messages. A link that does not take one has broken, and tells so by itself.
    pub(crate) fn send(&self, sends: Vec<Send>) {
        for Send { peer, link, message } in sends {
            let kind = match message {
                PeerMessage::Forward(_) => Kind::Forward,
                PeerMessage::Touch(_) => Kind::Touch,
                PeerMessage::Beat(_) => Kind::Beat,
            };
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            let _ = self.links.send_on(NodeId(u64::from(peer)), link, kind, Bytes::from(bytes));
        }
    }

    /// Who leads is another: for the log and for whoever asks.
    pub(crate) fn tell(&mut self, change: RoleChange) -> Standing {
        let leader = change.leader.map(|leader| leader.0);
        let mode = match (change.role, change.leader) {
            (Role::Leader, _) => Mode::Leader,
            (_, None) => Mode::Looking,
            (Role::Learner, _) => Mode::Observer,
            _ => Mode::Follower,
        };
        self.mode = mode;
        self.show_mode();
        if mode != Mode::Looking || self.found {
            tracing::info!(role = mode.word(), term = change.term.0, leader, "who leads");
        }
        self.found = mode != Mode::Looking;
        match change.role {
            Role::Leader => Standing::Leader,
            _ => Standing::Follower { leader: change.leader.map(server) },
        }
    }

    /// What the shards are told: for the log and for whoever asks.
    pub(crate) fn noted(&mut self, note: Note) {
        match note {
            Note::Away => {
                tracing::warn!(mode = self.leaderless.word(), "no leader is found: clients are sent away");
                self.away = Some(self.leaderless);
            }
            Note::Release => self.away = None,
            Note::Hold | Note::Uncertain { .. } => return,
        }
        self.show_mode();
    }

    fn show_mode(&self) {
        self.gauges.set_mode(self.away.unwrap_or(self.mode));
    }
}

/// Ticks that this server lets those before it have to be elected first, so that two do not stand in each other's way.
fn stagger(replica: &Replica<Authority>, lost: NodeId) -> u32 {
    let raft = replica.raft();
    let before = raft.membership().voters.iter().filter(|voter| **voter != lost && **voter < raft.id()).count();
    u32::try_from(before).unwrap_or(0)
}

/// A server's number as the core has it.
fn server(node: NodeId) -> u8 {
    u8::try_from(node.0).expect("only configured servers are linked, and their numbers are at most 255")
}
