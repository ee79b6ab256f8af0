//! The membership as the network and the operators follow it: a server dials the servers that it knows, and lets
//! in no other. What its file says of the others is what an operator wrote there when it was started last.

use std::collections::BTreeSet;

use corral_consensus::{Membership, NodeId};
use corral_engine::PeerAddress;

use super::recovery::founders;
use super::server_id;
use crate::reconfig::Change;
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

    /// What the operator has written into the file of a server that starts: the first servers and itself, or the
    /// servers of today.
    pub(super) fn write_file(&mut self) {
        let Some(ensemble) = self.options.ensemble else { return };
        let own = server_id(self.at);
        let mut ids: BTreeSet<u8> = (0..ensemble.servers).map(server_id).collect();
        if self.has_list() {
            let updates = self.stage != Stage::Busy || self.schedule.per_mille(300);
            if let Some(list) = self.check.model.list.as_ref().filter(|_| updates) {
                ids = list.seats.keys().copied().collect();
            }
            ids.insert(own);
        }
        // Now and then an operator's first try lacks a server in one file: then the founders' files differ, and nobody
        // may begin. Two such files would agree on an ensemble without that server, as they should.
        let is_first = self.at == 0 && self.nodes[0].life == 0 && ids.len() > 2;
        let odd = self.has_list() && is_first && self.schedule.per_mille(ODD_FILES);
        if let Some(lacking) = (1..=server_id(ensemble.servers - 1)).rev().find(|id| odd && *id != own) {
            ids.remove(&lacking);
            self.note(format_args!("the file of server {own} lacks server {lacking}"));
        }
        self.nodes[self.at].has_odd_file = odd;
        self.nodes[self.at].file = ids;
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

    /// The servers in the file of one that starts, as its configuration has them.
    pub(super) fn configured(&self) -> Vec<PeerAddress> {
        let address = |id: &u8| PeerAddress { id: NodeId(u64::from(*id)), host: format!("h{id}"), port: 1 };
        self.nodes[self.at].file.iter().map(address).collect()
    }

    /// Whether that server would dial the other, and let it in.
    pub(super) fn knows(&self, at: usize, other: usize) -> bool {
        let id = server_id(other);
        self.nodes[at].server.as_ref().is_some_and(|server| server.known.contains(&id))
    }

    pub(super) fn know(&mut self, servers: impl Iterator<Item = NodeId>) {
        let at = self.at;
        let Some(server) = &mut self.nodes[at].server else { return };
        let known: BTreeSet<u8> = servers.map(|id| u8::try_from(id.0).expect("few servers")).collect();
        if server.known == known {
            return;
        }
        server.known = known;
        let names: Vec<u8> = server.known.iter().copied().collect();
        self.note(format_args!("server {} knows {names:?}", at + 1));
        for other in (0..self.nodes.len()).filter(|other| *other != at) {
            if self.knows(at, other) {
                self.dial_soon(at, other);
            } else {
                self.break_wire(at, other, true);
                self.break_wire(other, at, false);
            }
        }
    }

    /// Who ought to belong to the ensemble, as everybody's list has it that is not left behind.
    pub(crate) fn listed(&self) -> Option<Membership> {
        let ensemble = self.options.ensemble?;
        let Some(list) = &self.check.model.list else { return Some(founders(&ensemble)) };
        let of =
            |observer: bool| list.seats.iter().filter(move |(_, seat)| seat.observer == observer).map(|(id, _)| id);
        Some(Membership::simple(&node_ids(of(false)), &node_ids(of(true))))
    }

    /// Whether that server belongs to the ensemble by the newest list.
    pub(crate) fn is_listed(&self, at: usize) -> bool {
        is_member(self.listed().as_ref(), at)
    }

    /// What an operator asks for now and then; nothing while a server has to learn everything again.
    pub(crate) fn list_wish(&mut self) -> Option<Change> {
        if !self.workload.per_mille(WISHES) || self.emptied.is_some() {
            return None;
        }
        let servers = u8::try_from(self.nodes.len()).expect("few servers");
        let list = self.check.model.list.as_ref()?;
        Some(Change::draw(&mut self.workload, &list.seats, list.version, servers))
    }

    /// Whether what this server hears the leader hears too, as far as the list is concerned: not before it has applied
    /// the first entry of that leader, which takes a while where it is given a snapshot.
    pub(super) fn reaches_leader(&mut self) -> bool {
        let at = self.at;
        if !self.has_list() {
            return true;
        }
        let Some(server) = self.nodes[at].server.as_ref().filter(|server| server.flows) else { return false };
        let raft = server.engine.raft();
        let leader = raft.leader().map(|leader| usize::try_from(leader.0 - 1).expect("few servers"));
        leader.is_some_and(|leader| leader == at || self.is_listed(at) && self.is_linked_with(leader))
    }

    /// Whether no change of the list is under way or may be on its way to the leader.
    pub(super) fn list_rests(&self) -> bool {
        !self.has_list() || self.check.list_rests() && self.list_asked.is_none_or(|at| self.now - at > ON_ITS_WAY)
    }
}

pub(super) fn node_ids<'i>(ids: impl IntoIterator<Item = &'i u8>) -> Vec<NodeId> {
    ids.into_iter().map(|id| NodeId(u64::from(*id))).collect()
}

/// Whether that server belongs to those; everybody does where nobody is named.
pub(crate) fn is_member(members: Option<&Membership>, at: usize) -> bool {
    members.is_none_or(|members| members.contains(NodeId(at as u64 + 1)))
}
