//! The membership as the network and the operators follow it: a server dials the servers that it knows, and lets in no
//! other. Its file has the other servers as an operator wrote them there when it was started last.

use std::collections::BTreeMap;

use corral_consensus::{Membership, ServerId};
use corral_engine::PeerAddress;

use crate::check::members;
use crate::reconfig::{Change, PEER_PORT};
use crate::servers::{founders, is_member, server_id};
use crate::world::{Stage, World};

/// Worlds in which a file lacks a server at first, in a thousand.
const ODD_FILES: u64 = 150;
/// Of an operator's requests, in a thousand.
const WISHES: u64 = 40;
/// So long after it was asked for a change of the list may be on its way, although its connection is gone.
const ON_ITS_WAY: u64 = 6_000_000;

/// Writes the operator's list into the file of a server that starts: the first servers and itself, or the servers
/// of today.
pub(super) fn write_file(world: &mut World) {
    let Some(ensemble) = world.options.ensemble else { return };
    let own = server_id(world.at);
    let mut file: BTreeMap<ServerId, u16> = (0..ensemble.servers).map(|at| (server_id(at), PEER_PORT)).collect();
    if world.options.has_list() {
        let updates = world.stage != Stage::Busy || world.schedule.per_mille(300);
        let seats = world.check.model.list.as_ref().map(|list| &list.seats);
        if let Some(seats) = seats.filter(|_| updates) {
            file = seats.iter().map(|(id, seat)| (ServerId(*id), seat.peer_port)).collect();
        }
        // Its own port an operator always knows.
        file.insert(own, peer_port(world, world.at));
    }
    // Now and then an operator's first try lacks a server in one file: then the founders' files differ, and no
    // server may begin. Two such files would agree on an ensemble without that server, as they should.
    let is_first = world.at == 0 && world.nodes[0].life == 0 && file.len() > 2;
    let odd = world.options.has_list() && is_first && world.schedule.per_mille(ODD_FILES);
    if let Some(lacking) = (0..ensemble.servers).rev().map(server_id).find(|id| odd && *id != own) {
        file.remove(&lacking);
        world.note(format_args!("the file of server {own} lacks server {lacking}"));
    }
    world.nodes[world.at].has_odd_file = odd;
    world.nodes[world.at].file = file;
}

/// The servers in the file of a starting server, as its configuration has them.
pub(super) fn configured(world: &World) -> Vec<PeerAddress> {
    let address = |(id, port): (&ServerId, &u16)| PeerAddress { id: *id, host: format!("h{id}"), port: *port };
    world.nodes[world.at].file.iter().map(address).collect()
}

/// Whether that server would dial the other, and let it in.
pub(super) fn knows(world: &World, at: usize, other: usize) -> bool {
    let id = server_id(other);
    world.nodes[at].server.as_ref().is_some_and(|server| server.known.contains_key(&id))
}

/// The port of that server for the others, as an operator knows it: by the newest list, or by its own configuration.
pub(crate) fn peer_port(world: &World, at: usize) -> u16 {
    let configured = || world.nodes.get(at).and_then(|node| node.file.get(&server_id(at))).copied();
    listed_port(world, at).or_else(configured).unwrap_or(PEER_PORT)
}

fn listed_port(world: &World, at: usize) -> Option<u16> {
    let list = world.check.model.list.as_ref()?;
    list.seats.get(&server_id(at).0).map(|seat| seat.peer_port)
}

/// Whether that server would find the other at a port that it knows.
pub(super) fn finds(world: &World, at: usize, other: usize) -> bool {
    let (id, node) = (server_id(other), &world.nodes[at]);
    let configured = node.file.get(&id);
    let known = node.server.as_ref().and_then(|server| server.known.get(&id)).into_iter().flatten();
    let listens = world.nodes[other].server.as_ref().map(|server| &server.listens);
    listens.is_some_and(|listens| known.chain(configured).any(|port| listens.contains(port)))
}

/// Whether that server accepts others at the port that the newest list says.
pub(super) fn is_at_listed_port(world: &World, at: usize) -> bool {
    let server = world.nodes[at].server.as_ref();
    listed_port(world, at).is_none_or(|port| server.is_some_and(|server| server.listens.contains(&port)))
}

/// The list says that this server is at this port: it accepts other servers there as well.
pub(super) fn listen(world: &mut World, port: u16) {
    let at = world.at;
    world.counts.moves += 1;
    world.note(format_args!("server {} moves to port {port}", at + 1));
    world.nodes[at].file.insert(server_id(at), port);
    if let Some(server) = &mut world.nodes[at].server {
        server.listens.insert(port);
    }
}

/// The wanted membership, as every server's list has it that does not lag.
pub(crate) fn wanted(world: &World) -> Option<Membership> {
    let ensemble = world.options.ensemble?;
    let Some(list) = &world.check.model.list else { return Some(founders(&ensemble)) };
    let seats = |observer: bool| list.seats.iter().filter(move |(_, seat)| seat.observer == observer);
    let of = |observer| seats(observer).map(|(id, _)| ServerId(*id)).collect::<Vec<_>>();
    Some(Membership::simple(&of(false), &of(true)))
}

/// Whether that server belongs to the ensemble by the newest list.
pub(crate) fn is_listed(world: &World, at: usize) -> bool {
    is_member(wanted(world).as_ref(), at)
}

/// The occasional request of an operator; none while a server has to receive everything again.
pub(crate) fn wish(world: &mut World) -> Option<Change> {
    if !world.workload.per_mille(WISHES) || world.emptied.is_some() {
        return None;
    }
    let ports: Vec<u16> = (0..world.nodes.len()).map(|at| peer_port(world, at)).collect();
    let list = world.check.model.list.as_ref()?;
    Some(Change::draw(&mut world.workload, &list.seats, list.version, &ports))
}

/// Whether no change of the list is under way or may be on its way to the leader.
pub(super) fn rests(world: &World) -> bool {
    !world.options.has_list()
        || members::list_rests(&world.check) && world.list_asked.is_none_or(|at| world.now - at > ON_ITS_WAY)
}
