//! The list of servers as the processes follow it: whom each of them knows, and what the leader makes of clients' changes.
//!
//! Mirrors `actor/reconfig.rs`, `Peers::follow` and the door: a server dials whom it knows, and lets in nobody else. What
//! its file says of the others is what an operator wrote there when it was started last.

use std::collections::BTreeSet;

use corral_consensus::{Membership, NodeId};
use corral_core::command::{Batch, Command, CommandKind};
use corral_core::ids::SessionId;
use corral_core::sequencer::{MembersSeen, Proposal};
use corral_members::{carry_out, leader_out_of, membership_of, next_step, seen};

use super::server_id;
use crate::options::Bug;
use crate::reconfig::Change;
use crate::world::{Node, Stage, World};

/// So long a server of the list is not let in by another before an operator puts the list into that one's file.
const MENDED_AFTER: u64 = 3_000_000;
/// Of an operator's requests, in a thousand.
const WISHES: u64 = 40;
/// So long after it was asked for a change of the list may be on its way, although its connection is gone.
const ON_ITS_WAY: u64 = 6_000_000;

impl World {
    pub(crate) fn has_list(&self) -> bool {
        self.options.ensemble.is_some_and(|ensemble| ensemble.list.is_some())
    }

    /// What the operator has written into the file of a server that starts: the first servers and itself, or the servers of
    /// today.
    pub(super) fn write_file(&mut self) {
        let Some(ensemble) = self.options.ensemble else { return };
        let own = server_id(self.at);
        let mut ids: BTreeSet<u8> = (0..ensemble.servers).map(server_id).collect();
        if self.has_list() {
            ids.insert(own);
            let today = self.check.model().list().map(|list| list.seats.keys().copied().collect::<BTreeSet<u8>>());
            let updates = self.stage != Stage::Busy || self.schedule.per_mille(300);
            if let Some(mut today) = today.filter(|_| updates) {
                today.insert(own);
                ids = today;
            }
        }
        self.nodes[self.at].file = ids;
    }

    /// Whether that server would dial the other, and let it in.
    pub(super) fn knows(&self, at: usize, other: usize) -> bool {
        let id = server_id(other);
        let node = &self.nodes[at];
        !self.has_list()
            || node.file.contains(&id)
            || node.server.as_ref().is_some_and(|server| server.known.contains(&id))
    }

    /// The links follow the list.
    pub(super) fn follow_list(&mut self) {
        let at = self.at;
        if !self.has_list() {
            return;
        }
        let Some(server) = &mut self.nodes[at].server else { return };
        let sequencer = &server.replica.machine().sequencer;
        let version = Some(sequencer.servers_version());
        if server.list_version == version {
            return;
        }
        server.list_version = version;
        let known = sequencer.known_servers();
        let lost = leader_out_of(&server.replica, known.as_ref());
        server.known = known.map(|list| list.0.keys().copied().collect()).unwrap_or_default();
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
        if let (Some(lost), Some(server)) = (lost, &mut self.nodes[at].server) {
            let stagger = u32::try_from(at % 3).expect("below 3");
            server.replica.leader_lost(lost, stagger);
        }
    }

    /// The next step of a change of the list, if one can be done now.
    pub(super) fn reconfigure(&mut self) {
        let times = (self.clock(), self.wall());
        let bug = self.options.bug;
        let Some(server) = self.nodes[self.at].server.as_mut().filter(|_| self.options.ensemble.is_some()) else {
            return;
        };
        let look = |replica: &_| match bug {
            Some(Bug::BeginAtOnce) => everybody_is_there(seen(replica), server_ids(replica)),
            _ => seen(replica),
        };
        let Some(mut proposal) = next_step(&mut server.replica, times, look) else { return };
        if bug == Some(Bug::AnswerAtOnce) && !proposal.changes.is_empty() {
            end_with_the_beginning(&mut proposal);
        }
        let what = format!("{:?}", proposal.changes);
        carry_out(&mut server.replica, proposal);
        self.counts.members_changed += 1;
        self.note(format_args!("server {} changes the membership: {what}", self.at + 1));
    }

    /// Who ought to be a member, as that server has it.
    pub(super) fn wanted(&mut self) -> Option<Membership> {
        let Node { server, file, .. } = &mut self.nodes[self.at];
        let server = server.as_mut()?;
        let sequencer = &server.replica.machine().sequencer;
        let version = sequencer.servers_version();
        if server.wanted.as_ref().is_none_or(|(of, _)| *of != version) {
            server.wanted = Some((version, sequencer.wanted().map(|wanted| membership_of(&wanted))));
        }
        let configured = || Membership::simple(&file.iter().map(|id| NodeId(u64::from(*id))).collect::<Vec<_>>(), &[]);
        let (_, wanted) = server.wanted.as_ref()?;
        Some(wanted.clone().unwrap_or_else(configured))
    }

    /// Who ought to belong to the ensemble, as everybody's list has it that is not left behind.
    pub(crate) fn listed(&self) -> Option<Membership> {
        let ensemble = self.options.ensemble?;
        let of = |observer: bool| {
            let seats = &self.check.model().list()?.seats;
            let ids = seats.iter().filter(move |(_, seat)| seat.observer == observer);
            Some(ids.map(|(id, _)| NodeId(u64::from(*id))).collect::<Vec<_>>())
        };
        let founders = || (1..=ensemble.servers as u64).map(NodeId).collect();
        Some(Membership::simple(&of(false).unwrap_or_else(founders), &of(true).unwrap_or_default()))
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
        let list = self.check.model().list()?;
        Some(Change::draw(&mut self.workload, &list.seats, list.version, servers))
    }

    /// Whether what this server hears the leader hears too, as far as the list is concerned: not before it has applied the first
    /// entry of that leader, which takes a while where it is given an image.
    pub(super) fn reaches_leader(&mut self) -> bool {
        let at = self.at;
        if !self.has_list() {
            return true;
        }
        let Some(server) = self.nodes[at].server.as_ref().filter(|server| server.flows) else { return false };
        let raft = server.replica.raft();
        let leader = raft.leader().map(|leader| usize::try_from(leader.0 - 1).expect("few servers"));
        leader.is_some_and(|leader| leader == at || self.is_listed(at) && self.is_linked_with(leader))
    }

    /// Whether an operator puts the list into the file of a server that does not let another in.
    pub(super) fn may_mend(&self, from: usize, to: usize, for_long: u64) -> bool {
        self.stage != Stage::Busy && for_long > MENDED_AFTER && self.is_listed(from) && self.is_listed(to)
    }

    /// Whether no change of the list is under way or may be on its way to the leader.
    pub(super) fn list_rests(&self) -> bool {
        !self.has_list() || self.check.list_rests() && self.list_asked.is_none_or(|at| self.now - at > ON_ITS_WAY)
    }
}

/// Whether that server belongs to those; everybody does where nobody is named.
pub(crate) fn is_member(members: Option<&Membership>, at: usize) -> bool {
    members.is_none_or(|members| members.contains(NodeId(at as u64 + 1)))
}

fn server_ids<M: corral_consensus::Machine + std::ops::DerefMut<Target = corral_core::member::Member>>(
    replica: &corral_consensus::Replica<M>,
) -> BTreeSet<u8> {
    let known = replica.machine().sequencer.known_servers();
    known.map(|list| list.0.keys().copied().collect()).unwrap_or_default()
}

/// [`Bug::BeginAtOnce`].
fn everybody_is_there(seen: MembersSeen, all: BTreeSet<u8>) -> MembersSeen {
    MembersSeen { reached: all.clone(), in_step: all, ..seen }
}

/// [`Bug::AnswerAtOnce`].
fn end_with_the_beginning(proposal: &mut Proposal) {
    let Ok(mut batch) = Batch::decode(&proposal.context) else { return };
    if matches!(batch.commands.last(), Some(Command { kind: CommandKind::ReconfigBegins(_), .. })) {
        batch.commands.push(Command {
            origin: None,
            session: SessionId(0),
            identities: 0,
            kind: CommandKind::ReconfigEnds,
        });
        proposal.context = batch.encode();
    }
}
