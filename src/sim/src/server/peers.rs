//! The network between the servers of an ensemble: one link per direction, and the reports of its threads to the
//! consensus actors.
//!
//! A link is a TCP connection: it keeps order and loses nothing, but for bytes under way when it breaks. A direction
//! that is cut delivers nothing for a while; if that takes long the connection is given up. Whoever's links were
//! disturbed is noted: signs of life that reach such a server may not reach the leader.

use bytes::Bytes;
use corral_consensus::ServerId;
use corral_core::forwarding::peer::PeerMessage;
use corral_engine::{Event, PeerEvent};
use corral_peer::{Frame, Kind};

use super::Inner;
use crate::options::Bug;
use crate::servers::{place_of, server_id};
use crate::violation::Checked;
use crate::world::{self, Channel, Stage, World};

/// A cut that takes longer ends the connection.
const GIVEN_UP: u64 = 1_500_000;
/// So long after the last disturbance signs of life surely reach the leader again.
const SURE_AFTER: u64 = 2_000_000;
const REDIAL: u64 = 40_000;

/// So long a server of the list is not let in by another before an operator puts the list into that one's file.
const MENDED_AFTER: u64 = 3_000_000;

/// One direction between two servers.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    /// Names the connection among all of this world.
    number: u64,
    up: bool,
    /// The connection that the receiver takes for standing.
    pub(super) accepted: Option<u64>,
    incarnation: u64,
    /// Nothing gets through for the time being.
    cut: bool,
    /// A dial is planned for that life of the sender.
    dials: Option<u32>,
    /// Since when the other does not let it in.
    refused: Option<u64>,
    waiting: Vec<Frame>,
    /// The last forward, for [`Bug::ForwardTwice`].
    forward: Option<Bytes>,
    /// .. of a connection that broke.
    lost_forward: Option<Bytes>,
}

impl World {
    fn wire(&mut self, from: usize, to: usize) -> &mut Wire {
        self.wires.entry((from, to)).or_default()
    }

    // ----- connections -----

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
        self.after(wait, world::Event::Dial { from, to, life });
    }

    pub(crate) fn dial(&mut self, from: usize, to: usize, life: u32) -> Checked {
        self.wire(from, to).dials.take_if(|planned| *planned == life);
        let (knows, is_known) = (self.knows(from, to), self.knows(to, from) && self.finds(from, to));
        let sender = &self.nodes[from];
        let Some(server) = sender.server.as_ref().filter(|_| sender.life == life && knows) else { return Ok(()) };
        let (incarnation, is_stopped) = (server.incarnation, sender.frozen.is_some());
        let other = &self.nodes[to];
        let answers = other.server.is_some() && other.frozen.is_none();
        let cut = self.wire(from, to).cut || self.wire(to, from).cut;
        let wire = self.wire(from, to);
        if wire.up {
            return Ok(());
        }
        if is_stopped || !answers || cut || !is_known {
            self.plan_dial(from, to);
            return if answers && !is_known { self.not_let_in(from, to) } else { Ok(()) };
        }
        wire.refused = None;
        if wire.incarnation != incarnation {
            wire.lost_forward = None;
        }
        (wire.up, wire.incarnation) = (true, incarnation);
        self.connections += 1;
        let stream = self.connections;
        let wire = self.wire(from, to);
        wire.number = stream;
        let before = wire.accepted.replace(stream);
        self.note(format_args!("server {} is linked to {} by {stream}", from + 1, to + 1));
        self.tell(from, to, PeerEvent::ConnectedTo { stream });
        if let Some(stream) = before {
            self.tell(to, from, PeerEvent::Lost { stream, gone: false });
        }
        self.tell(to, from, PeerEvent::Accepted { stream, incarnation });
        Ok(())
    }

    /// When faults are over an operator sees to it that the servers of the list find each other and let each other in.
    fn not_let_in(&mut self, from: usize, to: usize) -> Checked {
        let now = self.now;
        let since = *self.wire(from, to).refused.get_or_insert(now);
        let overdue = self.stage != Stage::Busy && now - since > MENDED_AFTER;
        if overdue && self.is_listed(from) && self.is_listed(to) {
            self.wire(from, to).refused = None;
            let wrong = if self.finds(from, to) || !self.is_at_listed_port(to) { to } else { from };
            self.note(format_args!("the file of server {} is mended", wrong + 1));
            self.at = wrong;
            return self.crash(false);
        }
        Ok(())
    }

    /// A link's thread tells the consensus actor of `at` something of `about`.
    fn tell(&mut self, at: usize, about: usize, event: PeerEvent) {
        let event = Event::Peer(ServerId(server_id(about)), event);
        let before = std::mem::replace(&mut self.at, at);
        self.mail(Channel::LinksToConsensus(about), Inner::ToConsensus(event));
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
        let stream = wire.number;
        if told {
            wire.accepted = None;
        }
        self.counts.broken_wires += 1;
        self.note(format_args!("link {stream} from server {} to {} breaks", from + 1, to + 1));
        self.tell(from, to, PeerEvent::DisconnectedFrom { stream, gone: false });
        if told {
            self.tell(to, from, PeerEvent::Lost { stream, gone: true });
        }
        self.plan_dial(from, to);
        self.disturb(from, to);
    }

    pub(super) fn wires_end(&mut self, power: bool) {
        let at = self.at;
        for other in (0..self.nodes.len()).filter(|other| *other != at) {
            self.break_wire(at, other, !power);
            self.break_wire(other, at, false);
        }
    }

    pub(crate) fn cut_wire(&mut self, from: usize, to: usize, time: u64) {
        let since = self.now;
        self.wire(from, to).cut = true;
        self.note(format_args!("nothing gets from server {} to {}", from + 1, to + 1));
        self.disturb(from, to);
        self.after(time, world::Event::EndCut { from, to, since });
    }

    /// A cut ends. The connection ends with a long one.
    pub(crate) fn heal_wire(&mut self, from: usize, to: usize, since: u64) {
        let given_up = self.now - since > GIVEN_UP;
        let wire = self.wire(from, to);
        if !std::mem::replace(&mut wire.cut, false) {
            return;
        }
        let waiting = std::mem::take(&mut wire.waiting);
        if given_up {
            self.break_wire(from, to, true);
        } else {
            // Before anything that was sent later.
            for frame in waiting {
                self.frame_arrives(from, to, frame);
            }
        }
        self.disturb(from, to);
    }

    pub(crate) fn mend_wires(&mut self) {
        let cut: Vec<(usize, usize)> =
            self.wires.iter().filter(|(_, wire)| wire.cut).map(|(between, _)| *between).collect();
        for (from, to) in cut {
            self.heal_wire(from, to, self.now);
        }
        for node in 0..self.nodes.len() {
            if self.nodes[node].frozen.is_some() {
                self.after(0, world::Event::Thaw(node));
            }
        }
    }

    pub(crate) fn clog_wire(&mut self, from: usize, to: usize, time: u64) {
        self.note(format_args!("the way from server {} to {} is clogged", from + 1, to + 1));
        self.hold_channel(Channel::Wire(from, to), time);
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

    /// Sends on this connection, or on the connection that is up. Without one, the engine receives a report of that,
    /// unless it does so anyway.
    pub(super) fn send_to_peer(
        &mut self,
        peer: ServerId,
        stream: Option<u64>,
        frame: Frame,
        announced: bool,
    ) -> Checked {
        let Frame { kind, mut payload } = frame;
        if kind == Kind::Raft && !self.judge_message(&payload)? {
            return Ok(());
        }
        let (from, to) = (self.at, place_of(peer));
        let resends = self.options.bug == Some(Bug::ForwardTwice);
        let wire = self.wire(from, to);
        if !wire.up || stream.is_some_and(|stream| stream != wire.number) {
            return match stream {
                Some(_) => Ok(()),
                None => {
                    let event = PeerEvent::Undelivered { announced_snapshot: announced };
                    self.tell_engine(Event::Peer(peer, event))
                }
            };
        }
        let number = wire.number;
        if kind == Kind::Forward {
            wire.forward = Some(payload.clone());
            if let Some(lost) = wire.lost_forward.take().filter(|_| resends) {
                payload = both(&lost, &payload);
            }
        }
        let usual = self.options.ensemble.map_or(0, |ensemble| ensemble.wire_delay);
        let delay = self.schedule.delay(usual);
        let event = world::Event::Frame { from, to, number, frame: Frame { kind, payload } };
        self.send(Channel::Wire(from, to), delay, event);
        Ok(())
    }

    /// Whether something gets through both ways.
    pub(super) fn is_linked_with(&mut self, other: usize) -> bool {
        let at = self.at;
        [(at, other), (other, at)].into_iter().all(|(from, to)| {
            let wire = self.wire(from, to);
            wire.up && !wire.cut
        })
    }

    /// A frame that was sent on the connection of this number.
    pub(crate) fn frame_comes(&mut self, from: usize, to: usize, number: u64, frame: Frame) {
        let wire = self.wire(from, to);
        if wire.up && wire.number == number {
            if wire.cut {
                wire.waiting.push(frame);
            } else {
                self.frame_arrives(from, to, frame);
            }
        }
    }

    fn frame_arrives(&mut self, from: usize, to: usize, frame: Frame) {
        let stream = self.wire(from, to).number;
        if self.nodes[to].server.is_some() {
            self.tell(to, from, PeerEvent::Frame { stream, frame });
        }
    }
}

/// [`Bug::ForwardTwice`]: what was lost, behind what is sent.
fn both(lost: &Bytes, sent: &Bytes) -> Bytes {
    let decode = |payload: &Bytes| PeerMessage::decode(payload).expect("as it was encoded");
    let (PeerMessage::Forward(lost), PeerMessage::Forward(mut forward)) = (decode(lost), decode(sent)) else {
        unreachable!("both are forwards")
    };
    let offset = u32::try_from(forward.proposals.identities.len()).expect("few");
    forward.proposals.identities.extend(lost.proposals.identities);
    forward.proposals.commands.extend(lost.proposals.commands.into_iter().map(|mut command| {
        command.identities += offset;
        command
    }));
    let mut bytes = Vec::new();
    PeerMessage::Forward(forward).encode(&mut bytes);
    Bytes::from(bytes)
}
