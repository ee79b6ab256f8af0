//! The network between the servers of an ensemble: one link per direction, and the reports of its threads to the
//! consensus actors.
//!
//! A link is a TCP connection: it keeps order and loses nothing, but for bytes under way when it breaks. A direction
//! that is cut delivers nothing for a while; if that takes long the connection is given up. Whoever's links were
//! disturbed is noted: signs of life that reach such a server may not reach the leader.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use corral_consensus::ServerId;
use corral_core::forwarding::peer::PeerMessage;
use corral_engine::{self as engine, PeerAddress, PeerEvent};
use corral_peer::{Frame, Kind};

use crate::options::Bug;
use crate::server::{judges, list};
use crate::servers::{place_of, server_id};
use crate::violation::Violation;
use crate::world::World;
use crate::world::event::{Channel, Event, Inner};
use crate::world::wire::Wire;

/// A cut that takes longer ends the connection.
const GIVEN_UP: u64 = 1_500_000;
/// So long after the last disturbance signs of life surely reach the leader again.
const SURE_AFTER: u64 = 2_000_000;
const REDIAL: u64 = 40_000;

pub(super) fn wire(world: &mut World, from: usize, to: usize) -> &mut Wire {
    world.wires.entry((from, to)).or_default()
}

// ----- connections -----

/// The servers that this one connects with are these.
pub(super) fn know(world: &mut World, servers: &[PeerAddress]) {
    let at = world.at;
    let Some(server) = &mut world.nodes[at].server else { return };
    let mut known = BTreeMap::new();
    let mut moved = BTreeSet::new();
    for PeerAddress { id, port, .. } in servers {
        let mut ports = server.known.get(id).cloned().unwrap_or_default();
        if ports.insert(*port) && ports.len() > 1 {
            moved.insert(id.0);
        }
        known.insert(*id, ports);
    }
    if server.known == known {
        return;
    }
    server.known = known;
    let names: Vec<u8> = server.known.keys().map(|id| id.0).collect();
    world.note(format_args!("server {} knows {names:?}, moved are {moved:?}", at + 1));
    for other in (0..world.nodes.len()).filter(|other| *other != at) {
        if list::knows(world, at, other) {
            if moved.contains(&server_id(other).0) {
                break_wire(world, at, other, true);
            }
            dial_soon(world, at, other);
        } else {
            break_wire(world, at, other, true);
            break_wire(world, other, at, false);
        }
    }
}

fn dial_soon(world: &mut World, from: usize, to: usize) {
    let life = world.nodes[from].life;
    let wire = wire(world, from, to);
    if !wire.up && wire.dials != Some(life) && list::knows(world, from, to) {
        plan_dial(world, from, to);
    }
}

pub(super) fn plan_dial(world: &mut World, from: usize, to: usize) {
    let life = world.nodes[from].life;
    wire(world, from, to).dials = Some(life);
    let wait = REDIAL / 2 + world.schedule.delay(REDIAL);
    world.after(wait, Event::Dial { from, to, life });
}

/// A link's thread reports an event of the link with `about` to the consensus actor of `at`.
pub(super) fn report(world: &mut World, at: usize, about: usize, event: PeerEvent) {
    let event = engine::Event::Peer(server_id(about), event);
    let before = std::mem::replace(&mut world.at, at);
    world.mail(Channel::LinksToConsensus(about), Inner::ToConsensus(event));
    world.at = before;
}

/// The connection is over. Its ends hear of that at once, or, without power to say so, not at all.
pub(crate) fn break_wire(world: &mut World, from: usize, to: usize, told: bool) {
    let wire = wire(world, from, to);
    wire.waiting.clear();
    if !std::mem::replace(&mut wire.up, false) {
        return;
    }
    wire.lost_forward = wire.forward.take();
    let stream = wire.number;
    if told {
        wire.accepted = None;
    }
    world.counts.broken_wires += 1;
    world.note(format_args!("link {stream} from server {} to {} breaks", from + 1, to + 1));
    report(world, from, to, PeerEvent::DisconnectedFrom { stream, gone: false });
    if told {
        report(world, to, from, PeerEvent::Lost { stream, gone: true });
    }
    plan_dial(world, from, to);
    disturb(world, from, to);
}

pub(super) fn end_wires(world: &mut World, power: bool) {
    let at = world.at;
    for other in (0..world.nodes.len()).filter(|other| *other != at) {
        break_wire(world, at, other, !power);
        break_wire(world, other, at, false);
    }
}

pub(crate) fn cut_wire(world: &mut World, from: usize, to: usize, time: u64) {
    let since = world.now;
    wire(world, from, to).cut = true;
    world.note(format_args!("nothing gets from server {} to {}", from + 1, to + 1));
    disturb(world, from, to);
    world.after(time, Event::EndCut { from, to, since });
}

/// A cut ends. The connection ends with a long one.
pub(crate) fn heal_wire(world: &mut World, from: usize, to: usize, since: u64) {
    let given_up = world.now - since > GIVEN_UP;
    let wire = wire(world, from, to);
    if !std::mem::replace(&mut wire.cut, false) {
        return;
    }
    let waiting = std::mem::take(&mut wire.waiting);
    if given_up {
        break_wire(world, from, to, true);
    } else {
        // Before anything that was sent later.
        for frame in waiting {
            frame_arrives(world, from, to, frame);
        }
    }
    disturb(world, from, to);
}

pub(crate) fn mend_wires(world: &mut World) {
    let cut: Vec<(usize, usize)> =
        world.wires.iter().filter(|(_, wire)| wire.cut).map(|(between, _)| *between).collect();
    let now = world.now;
    for (from, to) in cut {
        heal_wire(world, from, to, now);
    }
    for node in 0..world.nodes.len() {
        if world.nodes[node].frozen.is_some() {
            world.after(0, Event::Thaw(node));
        }
    }
}

pub(crate) fn clog_wire(world: &mut World, from: usize, to: usize, time: u64) {
    world.note(format_args!("the way from server {} to {} is clogged", from + 1, to + 1));
    world.hold_channel(Channel::Wire(from, to), time);
    disturb(world, from, to);
    unsure_for(world, from, time + SURE_AFTER);
    unsure_for(world, to, time + SURE_AFTER);
}

fn disturb(world: &mut World, from: usize, to: usize) {
    for node in [from, to] {
        review_sureness(world, node);
    }
}

/// Signs of life that reach this server may not reach the leader for a while, or for as long as something is cut.
pub(crate) fn review_sureness(world: &mut World, node: usize) {
    let is_cut = world.wires.iter().any(|((from, to), wire)| wire.cut && (*from == node || *to == node));
    let until = if is_cut || world.nodes[node].frozen.is_some() { u64::MAX } else { world.now + SURE_AFTER };
    world.nodes[node].unsure_until = until;
}

fn unsure_for(world: &mut World, node: usize, time: u64) {
    let until = world.now + time;
    world.nodes[node].unsure_until = world.nodes[node].unsure_until.max(until);
}

/// Whether something gets through both ways.
fn is_linked_with(world: &mut World, other: usize) -> bool {
    let at = world.at;
    [(at, other), (other, at)].into_iter().all(|(from, to)| {
        let wire = wire(world, from, to);
        wire.up && !wire.cut
    })
}

/// Whether the leader hears of the sessions of this server, as far as the list is concerned. A server without space on its
/// disk, or with a corrupt state, has no leader for its clients.
pub(super) fn reaches_leader(world: &mut World) -> bool {
    let at = world.at;
    let Some(server) = &world.nodes[at].server else { return false };
    if !server.flows && (server.engine.status().stalled || server.distrusts) {
        return false;
    }
    if !world.options.has_list() {
        return true;
    }
    let Some(leader) = server.engine.raft().leader().map(place_of) else { return false };
    // A former leader that was removed may still be taken for the leader here.
    leader == at || judges::leads(world, leader) && list::is_listed(world, at) && is_linked_with(world, leader)
}

// ----- frames -----

/// Sends on this connection, or on the connection that is up. Without one, gives the report that the engine receives of
/// that, unless it does so anyway.
pub(super) fn send(
    world: &mut World,
    peer: ServerId,
    stream: Option<u64>,
    frame: Frame,
    announced: bool,
) -> Result<Option<PeerEvent>, Violation> {
    let Frame { kind, mut payload } = frame;
    if kind == Kind::Raft && !judges::message(world, &payload)? {
        return Ok(None);
    }
    let (from, to) = (world.at, place_of(peer));
    let resends = world.options.bug == Some(Bug::ForwardTwice);
    let wire = wire(world, from, to);
    if !wire.up || stream.is_some_and(|stream| stream != wire.number) {
        let report = PeerEvent::Undelivered { announced_snapshot: announced };
        return Ok(stream.is_none().then_some(report));
    }
    let number = wire.number;
    if kind == Kind::Forward {
        wire.forward = Some(payload.clone());
        if let Some(lost) = wire.lost_forward.take().filter(|_| resends) {
            payload = both(&lost, &payload);
        }
    }
    let usual = world.options.ensemble.map_or(0, |ensemble| ensemble.wire_delay);
    let delay = world.schedule.delay(usual);
    let event = Event::Frame { from, to, number, frame: Frame { kind, payload } };
    world.send(Channel::Wire(from, to), delay, event);
    Ok(None)
}

/// A frame that was sent on the connection of this number.
pub(crate) fn frame_comes(world: &mut World, from: usize, to: usize, number: u64, frame: Frame) {
    let wire = wire(world, from, to);
    if wire.up && wire.number == number {
        if wire.cut {
            wire.waiting.push(frame);
        } else {
            frame_arrives(world, from, to, frame);
        }
    }
}

fn frame_arrives(world: &mut World, from: usize, to: usize, frame: Frame) {
    let stream = wire(world, from, to).number;
    if world.nodes[to].server.is_some() {
        report(world, to, from, PeerEvent::Frame { stream, frame });
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
