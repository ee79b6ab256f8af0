//! The membership as the network and the operators follow it: a server dials the servers that it knows, and lets in no
//! other. Its file has the other servers as an operator wrote them there when it was started last.

use std::collections::{BTreeMap, BTreeSet};

use corral_consensus::{Membership, ServerId};
use corral_engine::PeerAddress;

use crate::reconfig::{Change, PEER_PORT};
use crate::servers::{founders, is_member, place_of, server_id, server_ids};
use crate::violation::Checked;
use crate::world::{Stage, World};

/// Worlds in which a file lacks a server at first, in a thousand.
const ODD_FILES: u64 = 150;
/// Of an operator's requests, in a thousand.
const WISHES: u64 = 40;
/// So long after it was asked for a change of the list may be on its way, although its connection is gone.
const ON_ITS_WAY: u64 = 6_000_000;

impl World {
    pub(crate) fn has_list(&self) -> bool {
        self.options.ensemble.is_some_and(|ensemble| ensemble.list.is_some())
    }

    /// Writes the operator's list into the file of a server that starts: the first servers and itself, or the servers
    /// of today.
    pub(super) fn write_file(&mut self) {
        let Some(ensemble) = self.options.ensemble else { return };
        let own = server_id(self.at);
        let mut file: BTreeMap<u8, u16> = (0..ensemble.servers).map(|at| (server_id(at), PEER_PORT)).collect();
        if self.has_list() {
            let updates = self.stage != Stage::Busy || self.schedule.per_mille(300);
            let seats = self.check.model.list.as_ref().map(|list| &list.seats);
            if let Some(seats) = seats.filter(|_| updates) {
                file = seats.iter().map(|(id, seat)| (*id, seat.peer_port)).collect();
            }
            // Its own port an operator always knows.
            let listed = seats.and_then(|seats| seats.get(&own)).map(|seat| seat.peer_port);
            file.insert(own, listed.unwrap_or_else(|| self.port_of(self.at)));
        }
        // Now and then an operator's first try lacks a server in one file: then the founders' files differ, and no
        // server may begin. Two such files would agree on an ensemble without that server, as they should.
        let is_first = self.at == 0 && self.nodes[0].life == 0 && file.len() > 2;
        let odd = self.has_list() && is_first && self.schedule.per_mille(ODD_FILES);
        if let Some(lacking) = (1..=server_id(ensemble.servers - 1)).rev().find(|id| odd && *id != own) {
            file.remove(&lacking);
            self.note(format_args!("the file of server {own} lacks server {lacking}"));
        }
        self.nodes[self.at].has_odd_file = odd;
        self.nodes[self.at].file = file;
    }

    /// An operator sees to it that every file is right.
    pub(crate) fn mend_files(&mut self) -> Checked {
        for node in 0..self.nodes.len() {
            if std::mem::take(&mut self.nodes[node].has_odd_file) && self.nodes[node].server.is_some() {
                self.note(format_args!("the file of server {} is mended", node + 1));
                self.at = node;
                self.crash(false)?;
            }
        }
        Ok(())
    }

    /// The servers in the file of a starting server, as its configuration has them.
    pub(super) fn configured(&self) -> Vec<PeerAddress> {
        let address = |(id, port): (&u8, &u16)| PeerAddress { id: ServerId(*id), host: format!("h{id}"), port: *port };
        self.nodes[self.at].file.iter().map(address).collect()
    }

    /// Whether that server would dial the other, and let it in.
    pub(super) fn knows(&self, at: usize, other: usize) -> bool {
        let id = server_id(other);
        self.nodes[at].server.as_ref().is_some_and(|server| server.known.contains_key(&id))
    }

    /// The port of that server by its own configuration.
    fn port_of(&self, at: usize) -> u16 {
        self.nodes[at].file.get(&server_id(at)).copied().unwrap_or(PEER_PORT)
    }

    /// Whether that server would find the other at a port that it knows.
    pub(super) fn finds(&self, at: usize, other: usize) -> bool {
        let (id, node) = (server_id(other), &self.nodes[at]);
        let configured = node.file.get(&id);
        let known = node.server.as_ref().and_then(|server| server.known.get(&id)).into_iter().flatten();
        let listens = self.nodes[other].server.as_ref().map(|server| &server.listens);
        listens.is_some_and(|listens| known.chain(configured).any(|port| listens.contains(port)))
    }

    /// Whether that server accepts others at the port that the newest list says.
    pub(super) fn is_at_listed_port(&self, at: usize) -> bool {
        let listed = self.check.model.list.as_ref().and_then(|list| list.seats.get(&server_id(at)));
        let server = self.nodes[at].server.as_ref();
        listed.is_none_or(|seat| server.is_some_and(|server| server.listens.contains(&seat.peer_port)))
    }

    /// The list says that this server is at this port: it accepts other servers there as well.
    pub(super) fn listen(&mut self, port: u16) {
        let at = self.at;
        self.counts.moves += 1;
        self.note(format_args!("server {} moves to port {port}", at + 1));
        self.nodes[at].file.insert(server_id(at), port);
        if let Some(server) = &mut self.nodes[at].server {
            server.listens.insert(port);
        }
    }

    /// The servers that this one connects with are these.
    pub(super) fn know(&mut self, servers: &[PeerAddress]) {
        let at = self.at;
        let Some(server) = &mut self.nodes[at].server else { return };
        let mut known = BTreeMap::new();
        let mut moved = BTreeSet::new();
        for PeerAddress { id, port, .. } in servers {
            let id = id.0;
            let mut ports = server.known.get(&id).cloned().unwrap_or_default();
            if ports.insert(*port) && ports.len() > 1 {
                moved.insert(id);
            }
            known.insert(id, ports);
        }
        if server.known == known {
            return;
        }
        server.known = known;
        let names: Vec<u8> = server.known.keys().copied().collect();
        self.note(format_args!("server {} knows {names:?}, moved are {moved:?}", at + 1));
        for other in (0..self.nodes.len()).filter(|other| *other != at) {
            if self.knows(at, other) {
                if moved.contains(&server_id(other)) {
                    self.break_wire(at, other, true);
                }
                self.dial_soon(at, other);
            } else {
                self.break_wire(at, other, true);
                self.break_wire(other, at, false);
            }
        }
    }

    /// The wanted membership, as every server's list has it that does not lag.
    pub(crate) fn listed(&self) -> Option<Membership> {
        let ensemble = self.options.ensemble?;
        let Some(list) = &self.check.model.list else { return Some(founders(&ensemble)) };
        let of =
            |observer: bool| list.seats.iter().filter(move |(_, seat)| seat.observer == observer).map(|(id, _)| id);
        Some(Membership::simple(&server_ids(of(false)), &server_ids(of(true))))
    }

    /// Whether that server belongs to the ensemble by the newest list.
    pub(crate) fn is_listed(&self, at: usize) -> bool {
        is_member(self.listed().as_ref(), at)
    }

    /// The occasional request of an operator; none while a server has to receive everything again.
    pub(crate) fn list_wish(&mut self) -> Option<Change> {
        if !self.workload.per_mille(WISHES) || self.emptied.is_some() {
            return None;
        }
        let ports: Vec<u16> = (0..self.nodes.len()).map(|at| self.port_of(at)).collect();
        let list = self.check.model.list.as_ref()?;
        Some(Change::draw(&mut self.workload, &list.seats, list.version, &ports))
    }

    /// Whether the leader hears of the sessions of this server, as far as the list is concerned. A server without space on its
    /// disk, or with a corrupt state, has no leader for its clients.
    pub(super) fn reaches_leader(&mut self) -> bool {
        let at = self.at;
        let Some(server) = &self.nodes[at].server else { return false };
        if !server.flows && (server.engine.status().stalled || server.distrusts) {
            return false;
        }
        if !self.has_list() {
            return true;
        }
        let raft = server.engine.raft();
        let leader = raft.leader().map(place_of);
        leader.is_some_and(|leader| leader == at || self.is_listed(at) && self.is_linked_with(leader))
    }

    /// Whether no change of the list is under way or may be on its way to the leader.
    pub(super) fn list_rests(&self) -> bool {
        !self.has_list() || self.check.list_rests() && self.list_asked.is_none_or(|at| self.now - at > ON_ITS_WAY)
    }
}
