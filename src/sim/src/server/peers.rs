//! The network between the servers of an ensemble: one link per direction, and what its threads tell the consensus actors.
//!
//! A link is a TCP connection: it keeps order and loses nothing, but for what is under way when it breaks. A direction that
//! is cut delivers nothing for a while; if that takes long the connection is given up. Whoever's links were disturbed is
//! noted: signs of life that reach such a server may not reach the leader.

use bytes::{Bytes, BytesMut};
use corral_consensus::{NodeId, PeerBody, PeerError, PeerMessage as RaftMessage};
use corral_core::member::{Note, Send, Sender};
use corral_core::peer::PeerMessage;

use super::consensus::dues;
use super::{Inner, ToConsensus, ToShard, server_id};
use crate::options::Bug;
use crate::violation::Checked;
use crate::world::{Event, Lane, World};

/// A cut that takes longer ends the connection.
const GIVEN_UP: u64 = 1_500_000;
/// So long after the last disturbance signs of life surely reach the leader again.
const SURE_AFTER: u64 = 2_000_000;
/// Between two attempts to dial.
const REDIAL: u64 = 40_000;

/// First byte of a frame: whose message it is.
const RAFT: u8 = 0;
const MEMBER: u8 = 1;
/// The image that was announced is not taken.
const REFUSED: u8 = 2;

/// One direction between two servers.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    /// Counts the connections.
    number: u64,
    up: bool,
    /// The sender's start.
    incarnation: u64,
    /// Nothing gets through for the time being.
    cut: bool,
    /// A dial is planned for that life of the sender.
    dials: Option<u32>,
    /// Since when the other does not let it in.
    refused: Option<u64>,
    /// What was sent since.
    waiting: Vec<Vec<u8>>,
    /// The last forward, for [`Bug::ForwardTwice`].
    forward: Option<PeerMessage>,
    /// .. of a connection that broke.
    lost_forward: Option<PeerMessage>,
}

/// What happens to links.
#[derive(Debug)]
pub(crate) enum WireEvent {
    /// The sender, in this life of its, dials.
    Dial { from: usize, to: usize, life: u32 },
    /// A frame of this connection arrives.
    Frame { from: usize, to: usize, number: u64, bytes: Vec<u8> },
    /// A cut since then ends.
    Heal { from: usize, to: usize, since: u64 },
}

impl World {
    pub(crate) fn wire_event(&mut self, event: WireEvent) -> Checked {
        match event {
            WireEvent::Dial { from, to, life } => self.dial(from, to, life)?,
            WireEvent::Frame { from, to, number, bytes } => {
                let wire = self.wire(from, to);
                if wire.up && wire.number == number {
                    if wire.cut {
                        wire.waiting.push(bytes);
                    } else {
                        self.frame_arrives(from, to, bytes);
                    }
                }
            }
            WireEvent::Heal { from, to, since } => {
                let long = self.now - since > GIVEN_UP;
                self.heal_wire(from, to, long);
            }
        }
        Ok(())
    }

    fn wire(&mut self, from: usize, to: usize) -> &mut Wire {
        self.wires.entry((from, to)).or_default()
    }

    fn others(&self, at: usize) -> impl Iterator<Item = usize> + use<> {
        (0..self.nodes.len()).filter(move |other| *other != at)
    }

    // ----- connections -----

    /// A server starts: it dials all others.
    pub(super) fn dial_everybody(&mut self) {
        let from = self.at;
        for to in self.others(from) {
            self.dial_soon(from, to);
        }
    }

    /// It dials that server, if it knows it.
    pub(super) fn dial_soon(&mut self, from: usize, to: usize) {
        let life = self.nodes[from].life;
        let wire = self.wire(from, to);
        if !wire.up && wire.dials != Some(life) && self.knows(from, to) {
            self.plan_dial(from, to);
        }
    }

    fn plan_dial(&mut self, from: usize, to: usize) {
        let life = self.nodes[from].life;
        self.wire(from, to).dials = Some(life);
        let wait = REDIAL / 2 + self.schedule.delay(REDIAL);
        self.after(wait, Event::Wire(WireEvent::Dial { from, to, life }));
    }

    fn dial(&mut self, from: usize, to: usize, life: u32) -> Checked {
        self.wire(from, to).dials.take_if(|planned| *planned == life);
        let (knows, is_known) = (self.knows(from, to), self.knows(to, from));
        let sender = &self.nodes[from];
        let Some(server) = sender.server.as_ref().filter(|_| sender.life == life && knows) else { return Ok(()) };
        let (incarnation, stands_still) = (server.incarnation, sender.frozen.is_some());
        let other = &self.nodes[to];
        let answers = other.server.is_some() && other.frozen.is_none();
        let cut = self.wire(from, to).cut || self.wire(to, from).cut;
        let wire = self.wire(from, to);
        if wire.up {
            return Ok(());
        }
        if stands_still || !answers || cut || !is_known {
            self.plan_dial(from, to);
            return if answers && !is_known { self.not_let_in(from, to) } else { Ok(()) };
        }
        wire.refused = None;
        wire.number += 1;
        if wire.incarnation != incarnation {
            wire.lost_forward = None;
        }
        (wire.up, wire.incarnation) = (true, incarnation);
        let link = wire.number;
        self.note(format_args!("server {} is linked to {} by {link}", from + 1, to + 1));
        self.tell(from, to, ToConsensus::LinkUp { peer: server_id(to), link });
        Ok(())
    }

    /// When faults are over somebody sees to it that the servers of the list let each other in.
    fn not_let_in(&mut self, from: usize, to: usize) -> Checked {
        let now = self.now;
        let since = *self.wire(from, to).refused.get_or_insert(now);
        if self.may_mend(from, to, now - since) {
            self.wire(from, to).refused = None;
            self.note(format_args!("the file of server {} is mended", to + 1));
            self.at = to;
            return self.crash(false);
        }
        Ok(())
    }

    /// A link's thread tells the consensus actor of `at` something of `about`.
    fn tell(&mut self, at: usize, about: usize, message: ToConsensus) {
        let before = std::mem::replace(&mut self.at, at);
        self.mail(Lane::LinksToConsensus(about), Inner::ToConsensus(message));
        self.at = before;
    }

    /// The connection is over. Its ends hear of that at once, or, without power to say so, not at all.
    pub(crate) fn break_wire(&mut self, from: usize, to: usize, told: bool) {
        let wire = self.wire(from, to);
        wire.waiting.clear();
        if !std::mem::replace(&mut wire.up, false) {
            return;
        }
        wire.lost_forward = wire.forward.take();
        let link = wire.number;
        self.counts.broken_wires += 1;
        self.note(format_args!("link {link} from server {} to {} breaks", from + 1, to + 1));
        self.tell(from, to, ToConsensus::LinkDown { peer: server_id(to), link });
        if told {
            self.tell(to, from, ToConsensus::Reset { peer: server_id(from) });
        }
        self.plan_dial(from, to);
        self.disturb(from, to);
    }

    /// A process has ended.
    pub(super) fn wires_end(&mut self, power: bool) {
        let at = self.at;
        for other in self.others(at) {
            self.break_wire(at, other, !power);
            self.break_wire(other, at, false);
        }
    }

    pub(crate) fn cut_wire(&mut self, from: usize, to: usize, time: u64) {
        let since = self.now;
        self.wire(from, to).cut = true;
        self.note(format_args!("nothing gets from server {} to {}", from + 1, to + 1));
        self.disturb(from, to);
        self.after(time, Event::Wire(WireEvent::Heal { from, to, since }));
    }

    fn heal_wire(&mut self, from: usize, to: usize, given_up: bool) {
        let wire = self.wire(from, to);
        if !std::mem::replace(&mut wire.cut, false) {
            return;
        }
        let waiting = std::mem::take(&mut wire.waiting);
        if given_up {
            self.break_wire(from, to, true);
        } else {
            // Before anything that was sent later.
            for bytes in waiting {
                self.frame_arrives(from, to, bytes);
            }
        }
        self.disturb(from, to);
    }

    /// All is well from now on.
    pub(crate) fn mend_wires(&mut self) {
        let cut: Vec<(usize, usize)> =
            self.wires.iter().filter(|(_, wire)| wire.cut).map(|(between, _)| *between).collect();
        for (from, to) in cut {
            self.heal_wire(from, to, false);
        }
        for node in 0..self.nodes.len() {
            if self.nodes[node].frozen.is_some() {
                self.after(0, Event::Thaw(node));
            }
        }
    }

    pub(crate) fn clog_wire(&mut self, from: usize, to: usize, time: u64) {
        self.note(format_args!("the way from server {} to {} is clogged", from + 1, to + 1));
        self.hold_lane(Lane::Wire(from, to), time);
        self.disturb(from, to);
        self.unsure_for(from, time + SURE_AFTER);
        self.unsure_for(to, time + SURE_AFTER);
    }

    fn disturb(&mut self, from: usize, to: usize) {
        for node in [from, to] {
            self.review_sureness(node);
        }
    }

    /// Signs of life that reach this server may not reach the leader for a while, or for as long as something is cut.
    pub(crate) fn review_sureness(&mut self, node: usize) {
        let is_cut = self.wires.iter().any(|((from, to), wire)| wire.cut && (*from == node || *to == node));
        let until = if is_cut || self.nodes[node].frozen.is_some() { u64::MAX } else { self.now + SURE_AFTER };
        self.nodes[node].unsure_until = until;
    }

    fn unsure_for(&mut self, node: usize, time: u64) {
        let until = self.now + time;
        self.nodes[node].unsure_until = self.nodes[node].unsure_until.max(until);
    }

    // ----- frames -----

    /// Sends on the link that is up, or on none: then the receiver is out of reach.
    pub(super) fn send_raft(&mut self, message: &RaftMessage) -> bool {
        let to = usize::try_from(message.to.0 - 1).expect("few servers");
        let mut bytes = BytesMut::from(&[RAFT][..]);
        message.encode(&mut bytes);
        let from = self.at;
        let wire = self.wire(from, to);
        let (up, number) = (wire.up, wire.number);
        if up {
            self.carry(from, to, number, bytes.to_vec());
        }
        up
    }

    /// Sends what belongs to this very link. If that broke, it is lost, and the sender hears of that.
    pub(super) fn send_of_member(&mut self, send: Send) {
        let (from, to) = (self.at, usize::from(send.peer) - 1);
        let resends = self.options.bug == Some(Bug::ForwardTwice);
        let wire = self.wire(from, to);
        if !wire.up || wire.number != send.link {
            return;
        }
        let mut message = send.message;
        if let PeerMessage::Forward(forward) = &mut message {
            wire.forward = Some(PeerMessage::Forward(forward.clone()));
            if let Some(PeerMessage::Forward(lost)) = wire.lost_forward.take().filter(|_| resends) {
                let offset = u32::try_from(forward.proposals.identities.len()).expect("few");
                forward.proposals.identities.extend(lost.proposals.identities);
                forward.proposals.commands.extend(lost.proposals.commands.into_iter().map(|mut command| {
                    command.identities += offset;
                    command
                }));
            }
        }
        let mut bytes = vec![MEMBER];
        message.encode(&mut bytes);
        self.carry(from, to, send.link, bytes);
    }

    /// The image that this server announced is not taken, or not to be had any more.
    pub(super) fn refuse_image(&mut self, announced_by: NodeId) {
        let (from, to) = (self.at, usize::try_from(announced_by.0 - 1).expect("few servers"));
        let (up, number) = (self.wire(from, to).up, self.wire(from, to).number);
        if up {
            self.carry(from, to, number, vec![REFUSED]);
        }
    }

    /// Whether something gets through both ways.
    pub(super) fn is_linked_with(&mut self, other: usize) -> bool {
        let at = self.at;
        [(at, other), (other, at)].into_iter().all(|(from, to)| {
            let wire = self.wire(from, to);
            wire.up && !wire.cut
        })
    }

    fn carry(&mut self, from: usize, to: usize, number: u64, bytes: Vec<u8>) {
        let usual = self.options.ensemble.map_or(0, |ensemble| ensemble.wire_delay);
        let delay = self.schedule.delay(usual);
        self.send(Lane::Wire(from, to), delay, Event::Wire(WireEvent::Frame { from, to, number, bytes }));
    }

    fn frame_arrives(&mut self, from: usize, to: usize, bytes: Vec<u8>) {
        let wire = self.wire(from, to);
        let from_there = Sender { peer: server_id(from), incarnation: wire.incarnation, link: wire.number };
        if self.nodes[to].server.is_some() {
            self.tell(to, from, ToConsensus::Frame { from: from_there, bytes });
        }
    }

    /// The consensus actor takes a frame. A healthy peer over such links sends nothing that is refused.
    pub(super) fn take_frame(&mut self, from: Sender, bytes: Vec<u8>) -> Checked {
        let now = self.clock();
        let Some(server) = &mut self.nodes[self.at].server else { return Ok(()) };
        let mut bytes = Bytes::from(bytes);
        let kind = bytes.split_to(1);
        if kind[0] == RAFT {
            let message = RaftMessage::decode(&bytes).expect("as it was encoded");
            if matches!(message.body, PeerBody::Snapshot { .. }) {
                self.image_announced(message);
                return Ok(());
            }
            if let Err(error) = server.replica.step(message) {
                // Servers leave and come back.
                let harmless = error.is_harmless() || matches!(error, PeerError::Sender(_));
                assert!(harmless, "server {} said: {error}", from.peer);
            }
        } else if kind[0] == REFUSED {
            server.replica.image_sent(NodeId(u64::from(from.peer)), false);
        } else {
            let message = PeerMessage::decode(&bytes).expect("as it was encoded");
            let unproven = match &message {
                // The first message of a stream may move every deadline.
                PeerMessage::Forward(forward) if forward.sequence > 0 => self.check.unproven(&forward.proposals),
                _ => Vec::new(),
            };
            let before = dues(server, &unproven);
            let taken = server.replica.machine_mut().received(now, from, message);
            assert_eq!(taken, Ok(()), "server {} said that", from.peer);
            let after = dues(server, &unproven);
            self.check.heard_nobody(&unproven, &before, &after)?;
        }
        Ok(())
    }

    /// What the member wants told to the shards, behind the batches of this turn.
    pub(super) fn pass_notes(&mut self) {
        let Some(server) = &mut self.nodes[self.at].server else { return };
        for note in server.replica.machine_mut().take_notes() {
            self.note(format_args!("server {} tells its shards {note:?}", self.at + 1));
            if let (Some(server), Note::Hold | Note::Release) = (&mut self.nodes[self.at].server, &note) {
                server.flows = matches!(note, Note::Release);
            }
            self.tell_shards(&ToShard::Note(note));
        }
    }
}
