//! What the consensus actor says to the other servers of an ensemble, and what these say to it: messages to frames and back.
//!
//! On the consensus actor's core. The links' own threads carry the bytes and tell what happens; who leads, and what becomes
//! of commands, the replica and its machine decide. A message that cannot be read is said in the log, and nothing more is
//! taken from the connection it came on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use corral_consensus::{
    Index, LogDisk, Membership, Micros, NodeId, PeerBody, PeerError, PeerMessage as RaftMessage, Replica, Role,
    RoleChange,
};
use corral_core::ids::Millis;
use corral_core::member::{Note, Send, Sender, Standing};
use corral_core::peer::PeerMessage;
use corral_core::report::{Mode, ReconfigStep};
use corral_link::image::{Ask, Part};
use corral_link::{Frame, Generation, Kind};
use corral_members::{leader_out_of, membership_of};

use crate::actor::authority::Authority;
use crate::actor::census::Census;
use crate::actor::messages::{Distrust, Incoming, ToImagesIn};
use crate::actor::reconfig::{Whereabouts, addresses};
use crate::actor::serving::{Serving, Sight, say_what_is_awaited, say_who_is_not_known};
use crate::actor::transfer::{Course, IMAGE_AGAIN_AFTER_MS, Missed, Offer, Offered, Transfer, holds_membership};
use crate::control::Gauges;
use crate::net::peers::event::{Direction, Reason};
use crate::net::peers::{Links, PeerEvent};
use crate::node::images::LoadedImage;

/// What a server of an ensemble is told of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    /// Without a leader it serves those who only read.
    pub(crate) read_only: bool,
    /// A leader whose log stands still for so long lets another lead.
    pub(crate) patience: Micros,
}

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
    habits: Habits,
    /// Images for other servers.
    pub(crate) offer: Offer,
    /// The image that comes in.
    transfer: Option<Box<Transfer>>,
    /// Images that have come, and are to be installed when Raft says so; the newest last.
    arrived: VecDeque<Box<LoadedImage>>,
    images_in: flume::Sender<ToImagesIn>,
    /// Asks the scrubber to read everything now.
    scrub: flume::Sender<()>,
    /// An image that could not be taken over.
    missed: Option<Missed>,
    /// Who ought to belong to the ensemble.
    pub(crate) wanted: Membership,
    /// When it was last said what this server, as a newborn, waits for.
    said: Millis,
    /// Whether this server is in the list of servers; `None` where the configuration counts.
    listed: Option<bool>,
    whereabouts: Whereabouts,
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
    /// `newest` is the image this server started from, `wanted` who ought to belong to the ensemble.
    #[expect(clippy::too_many_arguments, reason = "what it is made of, once, by name")]
    pub(crate) fn new(
        links: Arc<Links>,
        gauges: Arc<Gauges>,
        newest: Option<Offered>,
        images_in: flume::Sender<ToImagesIn>,
        scrub: flume::Sender<()>,
        wanted: Membership,
        habits: Habits,
        whereabouts: Whereabouts,
    ) -> Peers {
        gauges.set_mode(Mode::Looking);
        let serving = Serving::new(Arc::clone(&gauges));
        let leaderless = if habits.read_only { Mode::ReadOnly } else { Mode::Looking };
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
            habits,
            offer,
            transfer: None,
            arrived: VecDeque::new(),
            images_in,
            scrub,
            missed: None,
            wanted,
            said: Millis(0),
            listed: None,
            whereabouts,
            is_blank: true,
            census: Census::default(),
            serving,
        }
    }

    /// Something happened on a link.
    pub(crate) fn take(&mut self, now: Millis, event: PeerEvent, replica: &mut Replica<Authority>) {
        match event {
            PeerEvent::Up { peer, direction: Direction::Out, stream, .. } => {
                replica.machine_mut().link_up(server(peer), stream);
                if self.transfer.is_none() {
                    // What was said of an image may have been lost with the link before: it may announce it once more.
                    self.refuse(peer, 0);
                }
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
                            "what the server says is not understood, its connection is closed: {reason}"
                        );
                        self.from.remove(&stream);
                        self.links.shut(peer, stream);
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
                self.step(now, message, replica)?;
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
                if ask.offset.is_none() && ask.index > 0 && ask.index == self.offer.newest() && self.scrub.is_empty() {
                    // It may be damaged: the other server checked it.
                    let _ = self.scrub.send(());
                }
                if ask.offset.is_some() {
                    let _ = self.links.send(peer, Kind::ImagePart, part.encode());
                }
            }
            Kind::ImagePart => {
                let part = Part::decode(&frame.payload).map_err(|error| error.to_string())?;
                let is_gone = matches!(part, Part::Gone { .. });
                if let Some(transfer) = self.transfer.as_mut().filter(|transfer| transfer.from() == peer)
                    && let Course::Failed = transfer.piece(now, part)
                {
                    tracing::info!("the image is gone at its server, a newer one is awaited");
                    let index = transfer.index();
                    self.transfer = None;
                    if !is_gone {
                        // It does not know that yet.
                        self.refuse(peer, index);
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
    fn step(&mut self, now: Millis, message: RaftMessage, replica: &mut Replica<Authority>) -> Result<(), String> {
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
                self.refuse(from, index.0);
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
                    let transfer = Transfer::begin(now, message, index.0, self.images_in.clone());
                    self.transfer = Some(Box::new(transfer));
                }
            }
            self.ask();
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
        self.arrived.iter().any(|image| image.head.index == index.0)
    }

    /// The thread that writes it tells how far it is. `installing` is the image that takes the place of everything just now.
    pub(crate) fn incoming(
        &mut self,
        now: Millis,
        incoming: Incoming,
        installing: Option<Index>,
        replica: &mut Replica<Authority>,
    ) {
        let Some(transfer) = self.transfer.take() else { return };
        let from = transfer.from();
        let (goes_on, course) = transfer.taken(&incoming);
        self.transfer = goes_on;
        match (course, incoming) {
            (Course::Over(announced), Incoming::Whole { index, loaded }) => {
                if let Err(reason) = holds_membership(&loaded, &announced) {
                    tracing::error!(
                        index,
                        "an image of another server cannot be taken over, asking for another in {} s: {reason}",
                        IMAGE_AGAIN_AFTER_MS / 1000
                    );
                    self.missed = Some(Missed::at(now, index, from, false));
                    return;
                }
                tracing::info!(
                    index,
                    zxid = loaded.head.zxid,
                    bytes = loaded.bytes.as_slice().len(),
                    "the image is here"
                );
                self.missed = None;
                // Before the one that is being installed has come to an end, another may have come.
                self.arrived.push_back(loaded);
                if self.arrived.len() > ARRIVED_MAX {
                    let spare = |index| installing.is_none_or(|installing| installing != Index(index));
                    self.arrived
                        .iter()
                        .position(|image| spare(image.head.index))
                        .and_then(|at| self.arrived.remove(at));
                }
                if let Err(error) = replica.step(announced) {
                    tracing::debug!("the image is not needed any more: {error}");
                }
            }
            (Course::Failed, Incoming::Failed { index, reason }) => {
                tracing::error!(
                    "an image of another server cannot be taken over, asking for another in {} s: {reason}",
                    IMAGE_AGAIN_AFTER_MS / 1000
                );
                self.missed = Some(Missed::at(now, index, from, true));
            }
            _ => self.ask(),
        }
    }

    /// Another image is wanted than that one, or none is on its way.
    fn refuse(&self, from: NodeId, index: u64) {
        let _ = self.links.send(from, Kind::ImageAsk, Ask { index, offset: None }.encode());
    }

    /// Whether a new ensemble may begin: nobody has data for it.
    pub(crate) fn may_begin(&self) -> bool {
        !self.takes_an_image() && self.links.stranger().is_none()
    }

    /// Whether an image comes in, or has come.
    fn takes_an_image(&self) -> bool {
        self.transfer.is_some() || !self.arrived.is_empty()
    }

    /// The image that Raft wants installed, if it is the one that came.
    pub(crate) fn arrived(&mut self, index: Index) -> Option<Box<LoadedImage>> {
        let at = self.arrived.iter().position(|image| image.head.index == index.0)?;
        self.arrived.drain(..=at).next_back()
    }

    /// Time passes: what was lost is asked for again, and a newborn says what it waits for.
    pub(crate) fn tick(&mut self, now: Millis, replica: &Replica<Authority>) {
        if replica.raft().is_newborn() && self.transfer.is_none() && now.since(self.said) >= SAY_EVERY_MS {
            self.said = now;
            match self.links.stranger() {
                Some(stranger) => say_who_is_not_known(stranger),
                None => say_what_is_awaited(&replica.machine().awaited()),
            }
        }
        for difference in self.whereabouts.compare(now, self.links.configured()) {
            tracing::warn!("{difference}");
        }
        if self.transfer.as_ref().is_some_and(|transfer| transfer.is_silent(now)) {
            self.ask_again(now);
        }
        if let Some(missed) = &mut self.missed
            && missed.again.take_if(|at| now >= *at).is_some()
        {
            let (from, index) = (missed.from, missed.index);
            self.refuse(from, index);
        }
    }

    /// The state here is not to be trusted, or is again: for whoever asks, and for a later process where the start would not find
    /// out by checksums.
    pub(crate) fn distrusted(&self, distrust: Option<&Distrust>) {
        self.gauges.withhold(distrust.map(|distrust| distrust.cause.obstacle()));
        let _ = ToImagesIn::trust(distrust).map(|note| self.images_in.send(note));
    }

    /// Whether what the leader gives has no space here, neither in the log nor as an image; for whoever asks, too.
    pub(crate) fn is_stalled(&mut self, disk: LogDisk, applied: Index) -> bool {
        self.missed.take_if(|missed| applied.0 >= missed.index);
        let stalled = disk == LogDisk::Full || self.missed.as_ref().is_some_and(|missed| missed.stalls);
        self.gauges.stalled.store(stalled, Ordering::Relaxed);
        stalled
    }

    /// A leader whose disk stands still, or is full, hands over.
    pub(crate) fn relieve(&self, now: Micros, disk: LogDisk, replica: &mut Replica<Authority>) {
        let Some(successor) = replica.relieve(now, self.habits.patience, disk) else { return };
        self.gauges.relieved.fetch_add(1, Ordering::Relaxed);
        match disk {
            LogDisk::Full => {
                tracing::warn!(to = successor.0, "the log has no space, handing over leadership; free space");
            }
            LogDisk::Writes => tracing::warn!(
                to = successor.0,
                patience_ms = self.habits.patience.0 / 1000,
                "the log is not synced in time, handing over leadership; look at the disk"
            ),
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
                lost.insert((message.to, matches!(message.body, PeerBody::Snapshot { .. })));
            }
        }
        for (peer, image) in lost {
            replica.unreachable(peer);
            if image {
                // Nobody heard of it, so nobody will say what became of it.
                replica.image_sent(peer, false);
            }
        }
    }

    /// Of this server's data; those that are being formed are of the first.
    pub(crate) fn generation(&self) -> Generation {
        match self.links.generation() {
            Generation::NONE => Generation::FIRST,
            own => own,
        }
    }

    /// This server's data are of that generation from now on.
    pub(crate) fn adopt(&self, generation: Generation) {
        if let Err(error) = self.links.adopt(generation) {
            tracing::error!("the links do not begin anew: {error}");
        }
    }

    /// What was said leaves.
    pub(crate) fn flush(&self) {
        self.links.flush();
    }

    /// The machine's messages. A link that does not take one has broken, and tells so by itself.
    pub(crate) fn send(&self, sends: Vec<Send>) {
        for Send { peer, link, message } in sends {
            let kind = match message {
                PeerMessage::Forward(_) => Kind::Forward,
                PeerMessage::Touch(_) | PeerMessage::Paused(_) => Kind::Touch,
                PeerMessage::Beat(_) | PeerMessage::Pause(_) => Kind::Beat,
                PeerMessage::Newborn(_) | PeerMessage::Digest(_) => Kind::Newborn,
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
            tracing::info!(role = mode.word(), term = change.term.0, leader, "leadership changed");
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
                let mode = self.leaderless.word();
                if self.gauges.stalled.load(Ordering::Relaxed) {
                    tracing::warn!(mode, "the disk is full: clients are sent away; free space");
                } else if self.is_blank {
                    tracing::info!(mode, "this server has no data yet: clients are sent away until it has a leader");
                } else {
                    tracing::warn!(mode, "no leader is found: clients are sent away");
                }
                if self.listed == Some(false) {
                    tracing::warn!("this server is not in the list of servers: stop it, or let it in with reconfig");
                }
                self.away = Some(self.leaderless);
            }
            Note::Distrusted => self.away = Some(Mode::Looking),
            Note::Release => self.away = None,
            Note::Hold | Note::Uncertain { .. } => return,
        }
        self.show_mode();
    }

    /// Who keeps up: for whoever asks, once a tick.
    pub(crate) fn show_quorum(&mut self, now: Micros, replica: &Replica<Authority>) {
        let quorum = self.census.count(now, self.habits.patience, replica.raft(), &self.wanted);
        self.gauges.set_quorum(quorum);
    }

    /// Whether this server takes sessions and writes: for the log and for whoever asks, once a tick.
    pub(crate) fn show_serving(&mut self, now: Millis, replica: &Replica<Authority>, stopping: bool, installing: bool) {
        let sight = Sight {
            stopping,
            stalled: self.gauges.stalled.load(Ordering::Relaxed),
            takes_an_image: installing || self.takes_an_image(),
            is_blank: self.is_blank,
            listed: self.listed,
            is_alone: false,
        };
        self.serving.look(now, replica, &sight);
    }

    /// How far a change of the list of servers is: for whoever asks.
    pub(crate) fn show_reconfig(&self, step: ReconfigStep) {
        self.gauges.set_reconfig(step);
    }

    fn show_mode(&self) {
        self.gauges.set_mode(self.away.unwrap_or(self.mode));
    }

    /// The list of servers is another: the links follow. A leader that is in it no more is not waited for.
    pub(crate) fn follow(&mut self, replica: &mut Replica<Authority>) {
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
        let counting = self.whereabouts.follow(list, known, self.links.configured());
        if let Err(error) = self.links.configure(addresses(counting, self.links.configured())) {
            tracing::error!("the links do not follow the list of servers: {error}");
        }
        if let Some(lost) = lost {
            replica.leader_lost(lost, stagger(replica, lost));
        }
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
