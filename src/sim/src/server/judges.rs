//! The view of the checkers on a server: its elections, its entries and its expiries, before and after the engine's
//! work.
//!
//! Looks at the engine from outside, and changes nothing in it.

use crate::servers::place_of;
use corral_consensus::{AppendReply, Membership, PeerBody, PeerMessage, Role};
use corral_core::report::Obstacle;
use corral_engine::{Event, PeerEvent};
use corral_peer::{Frame, Kind};

use super::Server;
use crate::options::Bug;
use crate::violation::{Checked, Violation, require};
use crate::world::World;

impl World {
    /// The members that elected this server, if it leads and the checkers do not know that yet. Called before anything
    /// is applied that changes them.
    pub(super) fn electors(&mut self) -> Result<Option<Membership>, Violation> {
        let (at, Some(server)) = (self.at, &self.nodes[self.at].server) else { return Ok(None) };
        let raft = server.engine.raft();
        let has_won = raft.role() == Role::Leader && self.check.is_without_leader(raft.term().0);
        let electors = has_won.then(|| raft.membership());
        if let Some(known) = electors.as_ref().filter(|_| self.options.ensemble.is_some()) {
            self.check.counted(at, known, raft.commit().0)?;
        }
        Ok(electors)
    }

    /// A step of a turn is done, and nothing of it is carried out.
    pub(super) fn judge_turn(&mut self, electors: Option<Membership>) -> Checked {
        let (at, time) = (self.at, self.time());
        let Some(server) = &mut self.nodes[at].server else { return Ok(()) };
        let raft = server.engine.raft();
        let (term, leads) = (raft.term().0, raft.role() == Role::Leader);
        if leads && self.options.ensemble.is_some() && self.check.is_without_leader(term) {
            let electors = electors.unwrap_or_else(|| raft.membership());
            self.check.elected(term, at, &electors)?;
        }
        for entry in std::mem::take(&mut server.engine.machine_mut().committed) {
            self.check.committed(entry, time)?;
        }
        Ok(())
    }

    pub(super) fn judge_end_of_turn(&mut self) {
        let (at, time) = (self.at, self.time());
        let Some(server) = &mut self.nodes[at].server else { return };
        let replica = server.engine.replica();
        let (leads, distrusts) = (server.engine.sequencer().is_leading(), replica.is_state_corrupt());
        let term = replica.raft().term().0;
        let led = std::mem::replace(&mut server.led, leads);
        if !std::mem::replace(&mut server.distrusts, distrusts) && distrusts {
            self.counts.distrusted += 1;
            self.note(format_args!("server {} does not trust its state", at + 1));
        }
        if leads && !led && self.options.ensemble.is_some() {
            self.counts.leaders += 1;
            self.note(format_args!("server {} leads", at + 1));
            self.check.leads(term, time);
        }
    }

    /// Time has passed, and none of the effects is applied.
    pub(super) fn judge_tick(&mut self) -> Checked {
        let (newest_leader, time) = (self.is_newest_leader(), self.time());
        let Some(server) = &mut self.nodes[self.at].server else { return Ok(()) };
        let (mismatches, status) = (server.engine.take_digest_mismatches(), *server.engine.status());
        let slow_disk_transfers =
            status.slow_disk_transfers - std::mem::replace(&mut server.slow_disk_transfers, status.slow_disk_transfers);
        let ticked = std::mem::take(&mut server.engine.machine_mut().ticked);
        let applied = server.engine.replica().applied().0;
        let at = self.at;
        require(mismatches == 0, "digests", || format!("the digest of server {} differs from another's", at + 1))?;
        let contradicts = status.found == Some(Obstacle::LogContradicts);
        require(!contradicts, "logs", || format!("the log of server {} contradicts another's", at + 1))?;
        if slow_disk_transfers > 0 {
            self.counts.slow_disk_transfers += slow_disk_transfers;
            self.note(format_args!("the disk of server {} is slow, another is to lead", at + 1));
        }
        for (path, mzxid) in ticked.reaped {
            self.counts.reaped += 1;
            self.note(format_args!("{path} is outlived"));
            self.check.reaped(&path, mzxid, self.wall_latest)?;
        }
        for step in ticked.steps {
            self.counts.members_changed += 1;
            self.note(format_args!("server {} changes the membership: {step}", at + 1));
        }
        for session in ticked.expired {
            self.counts.expiries += 1;
            self.note(format_args!("session {session} expires"));
            if newest_leader {
                self.check.expired(session.0, time, applied)?;
            }
        }
        self.judge_members();
        Ok(())
    }

    /// Whether this server leads, and no other leads a later term.
    pub(super) fn is_newest_leader(&self) -> bool {
        let raft = |server: &Server| (server.engine.raft().term(), server.engine.raft().role());
        let all = self.nodes.iter().filter_map(|node| node.server.as_deref()).map(raft);
        let newest = all.filter(|(_, role)| *role == Role::Leader).map(|(term, _)| term).max();
        self.nodes[self.at].server.as_deref().map(|server| raft(server).0) == newest
    }

    /// A Raft message is about to be sent. False if [`Bug::SkipMajority`] keeps it back.
    pub(super) fn judge_message(&mut self, payload: &bytes::Bytes) -> Result<bool, Violation> {
        let message = PeerMessage::decode(payload).expect("as it was encoded");
        match &message.body {
            PeerBody::Vote { pre: false, .. } => self.check.voted(message.term.0, self.at, self.at)?,
            PeerBody::VoteReply { pre: false, granted: true, .. } => {
                self.check.voted(message.term.0, self.at, place_of(message.to))?;
            }
            PeerBody::AppendReply(AppendReply::Accepted { index, .. }) => {
                self.check.holds_upto(message.term.0, self.at, index.0);
            }
            PeerBody::Append { .. } if self.options.bug == Some(Bug::SkipMajority) => {
                return Ok(!self.skips_majority(&message));
            }
            _ => {}
        }
        Ok(true)
    }

    /// With [`Bug::SkipMajority`] some entries are not sent, and taken for written by their receiver.
    fn skips_majority(&mut self, message: &PeerMessage) -> bool {
        let PeerBody::Append { commit, entries, .. } = &message.body else { return false };
        let Some(last) = entries.last().filter(|_| self.faults.per_mille(300)) else { return false };
        let reply = AppendReply::Accepted { index: last.index, commit: *commit };
        let body = PeerBody::AppendReply(reply);
        let forged = PeerMessage { from: message.to, to: message.from, term: message.term, body };
        let from = place_of(message.to);
        let Some(stream) = self.wires.get(&(from, self.at)).and_then(|wire| wire.accepted) else { return false };
        let mut bytes = bytes::BytesMut::new();
        forged.encode(&mut bytes);
        let frame = Frame { kind: Kind::Raft, payload: bytes.freeze() };
        self.consensus_message(Event::Peer(message.to, PeerEvent::Frame { stream, frame }));
        true
    }
}
