//! Drives the consensus actor: what waits in its mailbox, then a turn of the replica and everything it leads to.

use std::rc::Rc;

use corral_consensus::{
    AppendReply, Effects, Index, Install, LogDisk, Micros, NodeId, PeerBody, PeerMessage, Role, Term,
};
use corral_core::change::Outcome;
use corral_core::command::Proposals;
use corral_core::ids::{ConnId, Millis, SessionId, ShardId, WallMillis};
use corral_core::member::{Send, Standing};
use corral_core::sequencer::{Sequencer, Ticked};

use super::{ELECTION, Inner, Opaque, RAFT_TICK, Server, Stopping, ToConsensus, ToLog, ToShard, WrittenImage};
use crate::limits::MAILBOX_BATCH;
use crate::options::Bug;
use crate::violation::{Checked, Violation, require};
use crate::world::{Lane, World};

const TICK: u64 = 100_000;
const RETRY: u64 = 1_000_000;
/// How long a leader that stops waits until another leads.
const HAND_OVER_MAX: u64 = 1_000_000;

impl World {
    pub(super) fn consensus_message(&mut self, message: ToConsensus) {
        let Some(server) = &mut self.nodes[self.at].server else { return };
        server.inbox.push_back(message);
        self.plan_turn();
    }

    pub(super) fn plan_turn(&mut self) {
        let Some(server) = &mut self.nodes[self.at].server else { return };
        if !std::mem::replace(&mut server.turn_planned, true) {
            let wait = self.schedule.delay(self.options.mailbox_delay);
            self.inside_after(wait, Inner::Turn);
        }
    }

    pub(super) fn consensus_turn(&mut self) -> Checked {
        let Some(server) = &mut self.nodes[self.at].server else { return Ok(()) };
        server.turn_planned = false;
        let taken = server.inbox.len().min(MAILBOX_BATCH);
        for message in server.inbox.drain(..taken).collect::<Vec<_>>() {
            self.consensus_receive(message)?;
        }
        self.consensus_act()?;
        if self.nodes[self.at].server.as_ref().is_some_and(|server| !server.inbox.is_empty()) {
            self.plan_turn();
        }
        Ok(())
    }

    fn consensus_receive(&mut self, message: ToConsensus) -> Checked {
        let Some(server) = &mut self.nodes[self.at].server else { return Ok(()) };
        match message {
            ToConsensus::Proposed { shard, proposals, syncs } => {
                self.take_proposals(shard, proposals)?;
                let Some(server) = &mut self.nodes[self.at].server else { return Ok(()) };
                if !syncs.is_empty() && self.options.bug == Some(Bug::StaleSync) {
                    self.mail(Lane::ConsensusToShard(shard), Inner::ToShard(shard, ToShard::Synced(syncs)));
                } else if !syncs.is_empty() {
                    let token = server.next_token;
                    server.next_token += 1;
                    server.syncs.insert(token, (shard, syncs));
                    server.replica.read_index(token);
                }
            }
            ToConsensus::Heard { shard, upto, sessions } => {
                let shard = ShardId(u16::try_from(shard).expect("few shards"));
                server.replica.machine_mut().heard(shard, upto, &sessions);
            }
            ToConsensus::Durable(number) => {
                server.replica.persisted(Micros(self.now), number);
                self.install_if_durable(number);
            }
            ToConsensus::ImageWritten(written) => self.image_written(written),
            ToConsensus::ImageFailed { index, reason } => self.image_failed(index, &reason),
            ToConsensus::Distrust => self.distrust(),
            ToConsensus::Stop => {
                if server.stopping == Stopping::No {
                    server.stopping = Stopping::Draining(server.shards.len());
                    self.tell_shards(&ToShard::Drain);
                }
            }
            ToConsensus::LinkUp { peer, link } => {
                server.replica.machine_mut().link_up(peer, link);
                if !server.taking.is_told() {
                    self.refuse_image(NodeId(u64::from(peer)));
                }
            }
            ToConsensus::LinkDown { peer, link } => {
                server.replica.machine_mut().link_down(peer, link);
                server.replica.unreachable(NodeId(u64::from(peer)));
                server.replica.image_sent(NodeId(u64::from(peer)), false);
            }
            ToConsensus::Reset { peer } => {
                let stagger = u32::try_from(self.at % 3).expect("below 3");
                server.replica.leader_lost(NodeId(u64::from(peer)), stagger);
            }
            ToConsensus::Frame { from, bytes } => self.take_frame(from, bytes)?,
            ToConsensus::Drained => {
                if let Stopping::Draining(left) = server.stopping {
                    server.stopping = Stopping::Draining(left - 1);
                }
            }
        }
        Ok(())
    }

    fn take_proposals(&mut self, shard: usize, proposals: Proposals) -> Checked {
        let now = self.clock();
        let Some(server) = self.nodes[self.at].server.as_mut().filter(|_| !proposals.commands.is_empty()) else {
            return Ok(());
        };
        let unproven = self.check.unproven(&proposals);
        let before = dues(server, &unproven);
        let member = server.replica.machine_mut();
        if self.options.bug == Some(Bug::HearAnybody) {
            let heard: Vec<_> = unproven.iter().map(|session| (*session, now)).collect();
            member.heard(ShardId(0), Millis(0), &heard);
        }
        let refused = member.proposed(now, proposals);
        let after = dues(server, &unproven);
        if !refused.is_empty() {
            self.counts.refused += refused.len() as u64;
            self.mail(Lane::ConsensusToShard(shard), Inner::ToShard(shard, ToShard::Refused(refused)));
        }
        self.check.heard_nobody(&unproven, &before, &after)
    }

    /// As the server's own: see `healing` there. Any number of servers may distrust their states at a time: logs and images on
    /// their disks are whole, so that a new start brings the state back where no other server has it.
    fn distrust(&mut self) {
        let Some(server) = &mut self.nodes[self.at].server else { return };
        if server.replica.distrust(true) {
            server.replica.machine_mut().distrust();
            self.counts.distrusted += 1;
            self.note(format_args!("server {} does not trust its state", self.at + 1));
            self.pass_notes();
        }
    }

    pub(super) fn consensus_tick(&mut self) -> Checked {
        let wait = TICK + self.schedule.delay(1_000);
        self.inside_after(wait, Inner::Tick);
        let (now, wall) = (self.clock(), self.wall());
        self.wall_latest = self.wall_latest.max(wall);
        let early = self.options.bug == Some(Bug::ExpireEarly);
        let in_ensemble = self.options.ensemble.is_some();
        let newest_leader = self.is_newest_leader();
        let Some(server) = &mut self.nodes[self.at].server else { return Ok(()) };
        if !in_ensemble {
            server.replica.tick();
        }
        let then = if early { now.plus(2_000) } else { now };
        let hour_ms = if self.options.bug == Some(Bug::ReapEarly) { 3_600_000 } else { 0 };
        let Ticked { expired, reaped } = server.replica.machine_mut().tick(then, WallMillis(wall.0 + hour_ms));
        for chosen in reaped {
            self.counts.reaped += 1;
            self.note(format_args!("{} is outlived", &*chosen.path));
            self.check.reaped(&chosen.path, chosen.mzxid.0, self.wall_latest)?;
        }
        for session in expired {
            self.counts.expiries += 1;
            self.note(format_args!("session {session} expires"));
            if newest_leader {
                self.check.expired(session.0, self.time())?;
            }
        }
        self.snapshot_if(|sequencer| sequencer.wants_snapshot(now));
        self.compare_digests()?;
        self.consensus_act()
    }

    /// Servers compare digests: in a world without bugs they never differ.
    fn compare_digests(&mut self) -> Checked {
        let Some(server) = &mut self.nodes[self.at].server else { return Ok(()) };
        let voters = &server.replica.raft().membership().voters;
        let voters: Vec<u8> = voters.iter().filter_map(|id| u8::try_from(id.0).ok()).collect();
        let found = server.replica.machine_mut().divergence(&voters);
        require(found.is_none(), "digests", || format!("server {} differs: {found:?}", self.at + 1))
    }

    /// All that the replica can do now, and who leads then.
    fn turn_replica(&mut self) -> Result<Effects, Violation> {
        let mut effects = Effects::default();
        let Some(server) = &mut self.nodes[self.at].server else { return Ok(effects) };
        if server.replica.machine().sequencer.is_reconfiguring() {
            self.reconfigure();
        }
        let Some(server) = &mut self.nodes[self.at].server else { return Ok(effects) };
        let raft = server.replica.raft();
        // Before anything is applied that changes it.
        let has_won = raft.role() == Role::Leader && self.check.is_without_leader(raft.term().0);
        let electors = has_won.then(|| raft.membership());
        if let Some(known) = electors.as_ref().filter(|_| self.options.ensemble.is_some()) {
            self.check.counted(self.at, known)?;
        }
        // Nothing here is late by itself: what the log is given first makes no difference.
        while server
            .replica
            .turn(Micros(self.now), &mut effects)
            .map_err(|_| Violation::of("recovery", "a committed entry is no batch"))?
        {}
        if let Some(change) = effects.role {
            let leader = change.leader.map(|id| u8::try_from(id.0).expect("few servers"));
            let leads = change.role == Role::Leader;
            let standing = if leads { Standing::Leader } else { Standing::Follower { leader } };
            server.replica.machine_mut().stand(standing, change.term.0);
            if leads && self.options.ensemble.is_some() {
                let electors = electors.unwrap_or_else(|| server.replica.raft().membership());
                self.check.elected(change.term.0, self.at, &electors)?;
            }
        }
        for append in &effects.appends {
            self.check.appended(&append.entries)?;
        }
        Ok(effects)
    }

    fn consensus_act(&mut self) -> Checked {
        let (now, wall) = (self.clock(), self.wall());
        let Some(server) = &mut self.nodes[self.at].server else { return Ok(()) };
        server.replica.machine_mut().set_time(now, wall);
        for newborn in server.replica.machine_mut().take_newborns() {
            server.replica.heard_newborn(NodeId(u64::from(newborn)));
        }
        let effects = self.turn_replica()?;
        let Some(server) = &mut self.nodes[self.at].server else { return Ok(()) };
        let raft = server.replica.raft();
        let grown_up = !raft.is_newborn() && !raft.is_pristine();
        let stalled = server.log.disk == LogDisk::Full;
        let authority = server.replica.machine_mut();
        if grown_up {
            authority.grow_up();
        }
        authority.stall(stalled);
        authority.settle();
        let committed = std::mem::take(&mut authority.committed);
        let applied = authority.take_applied();
        let sends = authority.take_sends();
        let leads = authority.sequencer.is_leading();
        let begins = leads && !std::mem::replace(&mut server.led, leads);
        server.led = leads;
        let term = server.replica.raft().term().0;
        for entry in committed {
            self.check.committed(entry, self.time())?;
        }
        if begins && self.options.ensemble.is_some() {
            self.counts.leaders += 1;
            self.note(format_args!("server {} leads", self.at + 1));
            self.check.leads(term, self.time());
        }
        self.send_to_peers(effects.messages, sends)?;
        self.follow_list();
        if let Some(at) = effects.wake_at {
            self.inside_after(at.since(Micros(self.now)).0, Inner::Turn);
        }
        for Install { number, image } in effects.installs {
            self.installs(number, image.index.0);
        }
        for append in effects.appends {
            self.mail(Lane::ConsensusToLog, Inner::ToLog(ToLog::Append(append)));
        }
        for batch in applied {
            self.trace_batch(&batch);
            self.tell_shards(&ToShard::Batch(Rc::new(batch)));
        }
        self.pass_notes();
        for token in effects.reads {
            self.answer_syncs(token, ToShard::Synced);
        }
        for token in effects.reads_refused {
            self.answer_syncs(token, ToShard::SyncRefused);
        }
        self.begin_or_offer(effects.image_wanted);
        self.go_on_stopping();
        Ok(())
    }

    fn send_to_peers(&mut self, messages: Vec<PeerMessage>, sends: Vec<Send>) -> Checked {
        for message in messages {
            let place = |id: NodeId| usize::try_from(id.0 - 1).expect("few servers");
            match message.body {
                PeerBody::Vote { pre: false, .. } => self.check.voted(message.term.0, self.at, self.at)?,
                PeerBody::VoteReply { pre: false, granted: true, .. } => {
                    self.check.voted(message.term.0, self.at, place(message.to))?;
                }
                PeerBody::AppendReply(AppendReply::Accepted { index, .. }) => {
                    self.check.holds_upto(message.term.0, self.at, index.0);
                }
                _ => {}
            }
            if self.skips_majority(&message) || self.send_raft(&message) {
                continue;
            }
            if let Some(server) = &mut self.nodes[self.at].server {
                server.replica.unreachable(message.to);
                if matches!(message.body, PeerBody::Snapshot { .. }) {
                    server.replica.image_sent(message.to, false);
                }
            }
        }
        for send in sends {
            self.send_of_member(send);
        }
        Ok(())
    }

    /// With [`Bug::SkipMajority`] some entries are not sent, and taken for written by their receiver.
    fn skips_majority(&mut self, message: &PeerMessage) -> bool {
        let PeerBody::Append { commit, entries, .. } = &message.body else { return false };
        let Some(last) = entries.last() else { return false };
        if self.options.bug != Some(Bug::SkipMajority) || !self.faults.per_mille(300) {
            return false;
        }
        let reply = AppendReply::Accepted { index: last.index, commit: *commit };
        let body = PeerBody::AppendReply(reply);
        let forged = PeerMessage { from: message.to, to: message.from, term: message.term, body };
        let Some(server) = &mut self.nodes[self.at].server else { return false };
        // Refused when leadership is over: then nothing is skipped.
        server.replica.step(forged).is_ok()
    }

    /// Whether this server leads, and nobody leads a later term.
    pub(super) fn is_newest_leader(&self) -> bool {
        let term = |server: &Server| server.replica.raft().term();
        let terms = self.nodes.iter().filter_map(|node| node.server.as_deref());
        let newest = terms.filter(|server| server.replica.raft().role() == Role::Leader).map(term).max();
        self.nodes[self.at].server.as_deref().map(term) == newest
    }

    /// Time passes for Raft in an ensemble.
    pub(super) fn raft_tick(&mut self) -> Checked {
        let wait = RAFT_TICK + self.schedule.delay(500);
        self.inside_after(wait, Inner::RaftTick);
        if let Some(server) = &mut self.nodes[self.at].server {
            server.replica.tick();
            if server.replica.is_stuck() {
                self.note(format_args!("server {} leads, and gets nowhere", self.at + 1));
                self.counts.stuck += 1;
                return self.crash(false);
            }
            if let Some(to) = server.replica.relieve(Micros(self.now), Micros(ELECTION), server.log.disk) {
                self.counts.relieved += 1;
                self.note(format_args!("the disk is slow, server {to} is to lead"));
            }
        }
        self.reconcile();
        self.reconfigure();
        self.consensus_act()
    }

    fn trace_batch(&mut self, batch: &corral_core::change::AppliedBatch) {
        for txn in &batch.txns {
            self.counts.lists += u64::from(is_new_list(&txn.outcome));
            self.note(format_args!("{} {:?}", txn.zxid, txn.outcome));
        }
    }

    pub(super) fn tell_shards(&mut self, message: &ToShard) {
        for shard in 0..usize::from(self.options.shards) {
            self.mail(Lane::ConsensusToShard(shard), Inner::ToShard(shard, message.clone()));
        }
    }

    fn answer_syncs(&mut self, token: u64, message: impl Fn(Vec<ConnId>) -> ToShard) {
        let waiting = self.nodes[self.at].server.as_mut().and_then(|server| server.syncs.remove(&token));
        if let Some((shard, list)) = waiting {
            self.mail(Lane::ConsensusToShard(shard), Inner::ToShard(shard, message(list)));
        }
    }

    pub(super) fn snapshot_if(&mut self, wanted: impl FnOnce(&Sequencer) -> bool) {
        let now = self.clock();
        let Some(members) = self.members_to_keep() else { return };
        let Some(server) = &mut self.nodes[self.at].server else { return };
        let sequencer = &mut server.replica.machine_mut().sequencer;
        if sequencer.snapshot_running() || !wanted(sequencer) {
            return;
        }
        let frozen = sequencer.freeze(now, members);
        self.note(format_args!("image of {} begins", frozen.zxid));
        self.tell_shards(&ToShard::Adopt(frozen.delta.clone()));
        self.mail(Lane::ConsensusToWriter, Inner::ToWriter(Box::new(frozen)));
    }

    fn image_written(&mut self, written: WrittenImage) {
        let WrittenImage { image, index, term, log_from } = written;
        if !self.counts_here(index) {
            return;
        }
        self.counts.images += 1;
        self.note(format_args!("image up to entry {index} written"));
        self.tell_shards(&ToShard::Swap(Opaque(image.0.clone())));
        let Some(server) = &mut self.nodes[self.at].server else { return };
        server.replica.machine_mut().sequencer.image_ready(image.0);
        server.replica.compact(Index(index), Term(term));
        self.mail(Lane::ConsensusToLog, Inner::ToLog(ToLog::Trim(log_from)));
    }

    fn image_failed(&mut self, index: u64, reason: &str) {
        self.note(format_args!("image failed: {reason}"));
        let Some(server) = &mut self.nodes[self.at].server else { return };
        if server.stopping != Stopping::No {
            server.stopping = Stopping::Done;
            return;
        }
        self.inside_after(RETRY, Inner::Retry(index));
    }

    pub(super) fn retry_image(&mut self, index: u64) {
        let Some(server) = &mut self.nodes[self.at].server else { return };
        let Some(again) = server.replica.machine().sequencer.frozen_again(index) else { return };
        self.mail(Lane::ConsensusToWriter, Inner::ToWriter(Box::new(again)));
    }

    fn go_on_stopping(&mut self) {
        let Some(server) = &mut self.nodes[self.at].server else { return };
        if server.stopping == Stopping::Draining(0) {
            server.stopping = Stopping::HandingOver(self.now + HAND_OVER_MAX);
        }
        if let Stopping::HandingOver(until) = server.stopping {
            let mut said = false;
            if self.now >= until || has_handed_over(server, &mut said) {
                server.stopping = Stopping::LastImage { begun: false };
            } else if said {
                // It leaves with the next turn.
                self.plan_turn();
            }
        }
        let Some(server) = &mut self.nodes[self.at].server else { return };
        if matches!(server.stopping, Stopping::LastImage { .. }) && server.replica.is_distrusted() {
            server.stopping = Stopping::Done;
        }
        let running = |server: &Server| server.replica.machine().sequencer.snapshot_running();
        if server.stopping == (Stopping::LastImage { begun: false }) && !running(server) {
            server.stopping = Stopping::LastImage { begun: true };
            self.snapshot_if(Sequencer::has_changes);
        }
        let Some(server) = &mut self.nodes[self.at].server else { return };
        if server.stopping == (Stopping::LastImage { begun: true }) && !running(server) {
            server.stopping = Stopping::Done;
        }
        if self.nodes[self.at].server.as_ref().is_some_and(|server| server.stopping == Stopping::Done) {
            self.stopped();
        }
    }
}

/// When each of these sessions ends, as far as this server, which may lead, keeps its deadline.
pub(super) fn dues(server: &Server, sessions: &[SessionId]) -> Vec<Option<Millis>> {
    let sequencer = &server.replica.machine().sequencer;
    sessions.iter().map(|session| sequencer.session_due(*session)).collect()
}

/// A client's change of the list of servers has come about.
fn is_new_list(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Later(answer) if matches!(**answer, Outcome::Configured(_)))
}

/// As the server's own: see `has_handed_over` there.
fn has_handed_over(server: &mut Server, said: &mut bool) -> bool {
    if server.replica.raft().role() != Role::Leader {
        return true;
    }
    let Some(to) = server.replica.raft().successor() else { return true };
    *said = server.replica.machine_mut().pause();
    if !server.replica.machine().is_paused() || server.replica.raft().is_transferring() {
        return false;
    }
    *said = true;
    server.replica.transfer(to).is_err()
}
