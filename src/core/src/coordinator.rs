//! One server as its consensus actor: the sequencer, and in an ensemble the way its shards' commands take to the
//! leader.
//!
//! One per server, beside the Raft node, whose machine it is; both drivers, the server's executor and the simulator,
//! drive this same struct. It knows neither Raft nor connections: it is told who leads, which connections are up and
//! what came, and says what to send and what to tell the shards. A server that is alone has no `Ensemble`, and pays
//! nothing for it.
//!
//! # How commands go
//! All commands of a server to one leadership travel in one *stream*, in order and without a gap. While no leader is
//! known the stream lapses: shards hold back what they have not sent. It goes on if the same leadership is reached
//! again by the same connection. It is over when the connection to the same leadership is another one, when no leader
//! is found for too long, or, the usual case, once an entry of a later term is applied: whatever of the stream the log
//! holds is before that entry, and has come back. What was sent and has not come back has then no known outcome, and
//! shards end the connections that wait for it. So of one connection's writes a prefix is ordered, and none is ordered
//! twice.

mod activity;
mod bootstrap;
mod clock;
mod digests;
mod ensemble;
mod intakes;
mod links;
mod shard_flow;
mod silence;

pub use bootstrap::{Awaited, Founders};
pub use digests::{DIGEST_POINT_ENTRIES, DIGEST_REPORT_MS, Divergence};
pub use links::{PeerSend, Sender};

use crate::change::{AppliedBatch, AppliedTxn, Outcome};
use crate::command::{Command, CommandKind, Proposals};
use crate::evaluate::{Proof, StateMachine};
use crate::ids::{ConnId, Millis, SessionId, ShardId, WallMillis};
use crate::peer::{PeerFault, PeerMessage};
use crate::report::Sizes;
use crate::sequencer::{FrozenState, NotABatch, Sequencer, Ticked};
use crate::shard::Flow;
use alloc::boxed::Box;
use alloc::vec::Vec;
use clock::ClockComparison;
use core::mem;
use ensemble::Ensemble;

/// How a server is set up that is not alone.
#[derive(Clone, Copy, Debug)]
pub struct EnsembleConfig {
    /// Shards of this server.
    pub shards: u16,
    /// Time without a leader after which all clients are sent away.
    pub hold_ms: u64,
    /// A server that has sent no session activity report for so long is lost, see `session::Expiry`.
    pub lost_after_ms: u64,
}

/// What a server is in the present term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leadership {
    Leader,
    /// Or candidate; who leads, if that is known.
    Follower {
        leader: Option<u8>,
    },
}

/// What of an entry is this server's: commands that came back, and membership changes, which come back at
/// their end alone.
#[derive(Clone, Copy, Debug, Default)]
struct Back {
    done: u64,
    begun: u64,
    ended: u64,
}

impl Back {
    const fn note(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Underway(_) => self.begun += 1,
            Outcome::Later(_) => self.ended += 1,
            _ => self.done += 1,
        }
    }
}

/// See the module.
pub struct Coordinator {
    pub sequencer: Sequencer,
    /// The time of this turn.
    now: Millis,
    wall: WallMillis,
    /// Whether anybody is to be shown what is applied; nobody is during a recovery.
    pub shows: bool,
    /// What this turn applied, for the shards.
    applied: Vec<AppliedBatch>,
    ensemble: Option<Box<Ensemble>>,
    /// Other servers whose clients wait for what was proposed last.
    elsewhere: Vec<u8>,
    proposals: Sizes,
    clock: ClockComparison,
}

impl Coordinator {
    /// A server that is alone.
    pub fn alone(sequencer: Sequencer) -> Self {
        Self {
            sequencer,
            now: Millis(0),
            wall: WallMillis(0),
            shows: true,
            applied: Vec::new(),
            ensemble: None,
            elsewhere: Vec::new(),
            proposals: Sizes::default(),
            clock: ClockComparison::default(),
        }
    }

    /// A server of an ensemble that follows nobody yet; its shards are held first.
    pub fn of_ensemble(mut sequencer: Sequencer, config: EnsembleConfig) -> Self {
        sequencer.expiry_mut().expect_servers(config.lost_after_ms);
        sequencer.admit(false);
        let mut ensemble = Box::new(Ensemble::new(config));
        ensemble.applied_digest(sequencer.index(), sequencer.machine().view().tree_digest());
        Self { ensemble: Some(ensemble), ..Self::alone(sequencer) }
    }

    /// The time of what follows.
    pub const fn set_time(&mut self, now: Millis, wall: WallMillis) {
        (self.now, self.wall) = (now, wall);
    }

    /// Takes a shard's proposals of one turn. Returns the connections of that shard whose attach proves nothing: they
    /// are refused here ([`crate::shard::ShardMessage::Refused`]), and take no log entry.
    pub fn proposed(&mut self, now: Millis, mut proposals: Proposals) -> Vec<ConnId> {
        self.now = now;
        let refused = self.refused(&mut proposals);
        if !proposals.commands.is_empty() {
            match &mut self.ensemble {
                None => self.sequencer.enqueue(self.now, proposals),
                Some(ensemble) => ensemble.proposed(self.now, proposals, &mut self.sequencer),
            }
        }
        refused
    }

    /// Takes out the attaches that are known to be wrong.
    fn refused(&self, proposals: &mut Proposals) -> Vec<ConnId> {
        let machine = self.sequencer.machine();
        let wrong = |command: &Command| match &command.kind {
            CommandKind::AttachSession { session, password, .. } => machine.proof(*session, password) == Proof::Wrong,
            _ => false,
        };
        let mut refused = Vec::new();
        if proposals.commands.iter().any(wrong) {
            proposals.commands.retain(|command| {
                let origin = command.origin.filter(|_| wrong(command));
                refused.extend(origin.map(|origin| origin.conn));
                origin.is_none()
            });
        }
        refused
    }

    /// A shard's report of the sessions it heard from, complete up to `upto`.
    pub fn heard(&mut self, shard: ShardId, upto: Millis, sessions: &[(SessionId, Millis)]) {
        if let Some(ensemble) = &mut self.ensemble {
            ensemble.heard(shard, upto, sessions);
        }
        if self.sequencer.is_leading() || self.ensemble.is_none() {
            self.sequencer.heard(shard, upto, sessions);
        }
    }

    /// Time passes; see [`Sequencer::tick`]. Call it several times within `lost_after_ms`.
    pub fn tick(&mut self, now: Millis, wall: WallMillis) -> Ticked {
        self.set_time(now, wall);
        let ticked = self.sequencer.tick(self.now, self.wall);
        if let Some(ensemble) = &mut self.ensemble {
            ensemble.tick(self.now, &mut self.sequencer);
        }
        ticked
    }

    // ----- the replicated machine -----

    /// The next payload for the log. `None` when nothing waits.
    pub fn propose(&mut self) -> Option<Vec<u8>> {
        let batch = self.sequencer.next_batch(self.wall)?;
        let payload = batch.encode();
        self.proposals.note(payload.len());
        if self.ensemble.is_some() {
            self.elsewhere.clear();
            let (own, _) = self.sequencer.start();
            for origin in batch.commands.iter().filter_map(|command| command.origin) {
                if origin.server != own && !self.elsewhere.contains(&origin.server) {
                    self.elsewhere.push(origin.server);
                }
            }
        }
        self.sequencer.proposed(batch);
        Some(payload)
    }

    /// Sizes of the payloads that [`Coordinator::propose`] gave.
    pub const fn proposals(&self) -> Sizes {
        self.proposals
    }

    /// Other servers whose clients wait for what [`Coordinator::propose`] gave last.
    pub fn elsewhere(&self) -> &[u8] {
        &self.elsewhere
    }

    /// Applies a committed entry, see [`Sequencer::commit`].
    ///
    /// # Errors
    /// [`NotABatch`] when the payload cannot be read.
    pub fn commit(&mut self, index: u64, term: u64, payload: &[u8], own: bool) -> Result<(), NotABatch> {
        let batch = self.sequencer.commit(self.now, index, term, payload, own)?;
        if let Some(ensemble) = &mut self.ensemble {
            let start = self.sequencer.start();
            let ours = |txn: &&AppliedTxn| txn.origin.is_some_and(|at| (at.server, at.incarnation) == start);
            let mut back = Back::default();
            batch.txns.iter().filter(ours).for_each(|txn| back.note(&txn.outcome));
            if !own && !batch.txns.is_empty() {
                self.clock.observe(self.sequencer.stamped(), self.now, self.wall);
            }
            ensemble.applied_term(term, back);
            ensemble.applied_digest(index, self.sequencer.machine().view().tree_digest());
        }
        if self.shows && !batch.txns.is_empty() {
            self.applied.push(batch);
        }
        Ok(())
    }

    /// Milliseconds by which this server's wall clock is ahead of the leader's, as far as that is known.
    pub const fn clock_ahead_ms(&self) -> Option<i64> {
        self.clock.ahead_ms()
    }

    /// This server leads, and everything before its term is applied.
    pub fn lead(&mut self, term: u64) {
        self.sequencer.lead(self.now, term);
    }

    /// This server leads no more.
    pub fn follow(&mut self) {
        self.sequencer.follow();
    }

    /// What was applied since it was last taken, in order.
    pub fn applied(&self) -> &[AppliedBatch] {
        &self.applied
    }

    /// Takes it.
    pub fn take_applied(&mut self) -> Vec<AppliedBatch> {
        mem::take(&mut self.applied)
    }

    // ----- the ensemble -----

    /// Who leads is different, as the Raft node tells it. To be called in the turn in which it does, before anything
    /// that comes later is looked at.
    pub fn set_leadership(&mut self, leadership: Leadership, term: u64) {
        self.clock.forget();
        if let Some(ensemble) = &mut self.ensemble {
            ensemble.set_leadership(leadership, term, &mut self.sequencer);
        }
    }

    /// Whether this server has no space for what is to be written. As long as that is so its clients are served as if
    /// it had no leader, also while it leads itself and nobody takes over, unless no other server is connected with it.
    /// To be called before [`Coordinator::settle`].
    pub fn stall(&mut self, stalled: bool) {
        if let Some(ensemble) = &mut self.ensemble {
            ensemble.stall(stalled);
        }
    }

    /// The state here is not to be trusted: every client is sent away at once and nobody is served, not even read-only
    /// clients, before [`Coordinator::trust`]. To be called with [`Coordinator::stall`], before
    /// [`Coordinator::settle`].
    pub fn distrust(&mut self) {
        if let Some(ensemble) = &mut self.ensemble {
            ensemble.distrust();
        }
    }

    /// The state is intact again: another server's snapshot was installed, and the log is applied behind it.
    pub fn trust(&mut self) {
        if let Some(ensemble) = &mut self.ensemble {
            ensemble.trust();
        }
    }

    /// Whether this server's digest of the tree differs from another server's at the same log entry, as far as is
    /// known. To be called once a tick.
    pub fn divergence(&mut self, voters: &[u8]) -> Option<Divergence> {
        let (this, _) = self.sequencer.start();
        self.ensemble.as_mut()?.divergence(this, voters)
    }

    /// Whether the digest of another server, as far as it could be compared last, differs from this one's.
    pub fn differs(&self) -> bool {
        self.ensemble.as_ref().is_some_and(|ensemble| ensemble.differs())
    }

    /// Differences to other servers' digests that were found since this was asked last.
    pub fn take_digest_mismatches(&mut self) -> u64 {
        self.ensemble.as_mut().map_or(0, |ensemble| ensemble.take_digest_mismatches())
    }

    /// The end of a turn, behind [`Coordinator::set_leadership`]: decides whether commands flow, and to which server.
    pub fn settle(&mut self) {
        if let Some(ensemble) = &mut self.ensemble {
            ensemble.settle(self.now, &mut self.sequencer);
        }
    }

    /// Messages can be sent to that server. `connection` grows with every connection that is up.
    pub fn peer_connected(&mut self, peer: u8, connection: u64) {
        self.founder(peer, true);
        if let Some(ensemble) = &mut self.ensemble {
            ensemble.peer_connected(peer, connection);
        }
    }

    /// This connection broke: what was sent on it last may not have arrived.
    pub fn peer_disconnected(&mut self, peer: u8, connection: u64) {
        if let Some(ensemble) = &mut self.ensemble {
            ensemble.peer_disconnected(peer, connection);
        }
    }

    /// A message came from another server.
    ///
    /// # Errors
    /// [`PeerFault`]: the connection must be closed.
    pub fn received(&mut self, now: Millis, from: Sender, message: PeerMessage) -> Result<(), PeerFault> {
        self.now = now;
        let Some(ensemble) = &mut self.ensemble else { return Ok(()) };
        ensemble.received(now, from, message, &mut self.sequencer)
    }

    /// A snapshot took the place of everything here. The driver tells the shards so ([`crate::shard::ShardMessage::Install`])
    /// before anything else of this turn. Gives what is to be dropped elsewhere, as [`Sequencer::install`].
    pub fn installed(&mut self, machine: StateMachine, index: u64, term: u64) -> (StateMachine, Option<FrozenState>) {
        let former = self.sequencer.install(machine, index, term);
        self.applied.clear();
        if let Some(ensemble) = &mut self.ensemble {
            ensemble.installed(term);
            ensemble.applied_digest(index, self.sequencer.machine().view().tree_digest());
        }
        former
    }

    // ----- beginnings -----

    /// This server has promised nothing that it remembers, and is told who would bootstrap a new ensemble with it.
    /// `bootstrapped`: it has done so itself.
    pub fn begin_uninitialised(&mut self, founders: Founders, bootstrapped: bool) {
        let incarnation = self.sequencer.incarnation();
        if let Some(ensemble) = &mut self.ensemble {
            ensemble.begin_uninitialised(founders, bootstrapped, incarnation);
        }
    }

    /// Whether the new ensemble may begin; true once. The state here is then the empty one behind that log entry: it is
    /// to be made durable with the founders as members, and [`Coordinator::bootstrapped`] called.
    pub fn bootstraps(&mut self, index: u64, term: u64) -> bool {
        let begins = self.ensemble.as_mut().is_some_and(|ensemble| ensemble.bootstraps());
        if begins {
            self.sequencer.begin_behind(index, term);
        }
        begins
    }

    /// This server remembers that the ensemble has begun.
    pub fn bootstrapped(&mut self) {
        if let Some(ensemble) = &mut self.ensemble {
            ensemble.bootstrapped();
        }
    }

    /// This server remembers more than that the ensemble has begun: it does not say any more that it has promised
    /// nothing. To be called before the messages of the turn are taken in which its Raft first voted or took an entry.
    pub fn initialised(&mut self) {
        if let Some(ensemble) = &mut self.ensemble {
            ensemble.initialised();
        }
    }

    /// Founders that this uninitialised server waits for; empty also when it is none, or waits for a leader alone.
    pub fn awaited(&self) -> Vec<Awaited> {
        self.ensemble.as_ref().map_or_else(Vec::new, |ensemble| ensemble.awaited())
    }

    /// `exists`: the name of that server resolves, or the server has a connection with this one. A new ensemble waits for
    /// it then. Otherwise its name has not resolved since the start.
    pub fn founder(&mut self, server: u8, exists: bool) {
        let Some(bootstrap) = self.ensemble.as_mut().and_then(|ensemble| ensemble.bootstrap.as_mut()) else { return };
        if exists {
            bootstrap.exists(server);
        } else {
            bootstrap.unresolved(self.now, server);
        }
    }

    /// Founders that a new ensemble does not wait for, because their names never resolved.
    pub fn absent_founders(&self) -> Vec<u8> {
        let bootstrap = self.ensemble.as_ref().and_then(|ensemble| ensemble.bootstrap.as_ref());
        bootstrap.map_or_else(Vec::new, |bootstrap| bootstrap.absent())
    }

    /// Servers that said to this one, which is none, that they are uninitialised: the leader's Raft has to know.
    pub fn take_uninitialised(&mut self) -> Vec<u8> {
        self.ensemble.as_mut().map_or_else(Vec::new, |ensemble| ensemble.take_uninitialised())
    }

    // ----- letting another lead -----

    /// This server leads, and is about to let another lead: the others are to send no more commands. True the first
    /// time.
    pub fn pause(&mut self) -> bool {
        self.ensemble.as_mut().is_some_and(|ensemble| ensemble.ask_for_pause(self.now))
    }

    /// Whether all that others sent before they heard of the pause is here, and in the log; or it takes too long.
    pub fn is_paused(&self) -> bool {
        let silent = self.ensemble.as_ref().is_none_or(|ensemble| ensemble.is_silent(self.now));
        silent && self.sequencer.commands_waiting() == 0
    }

    // ----- what it is like -----

    /// Whether commands flow to a leader; always so of a server that is alone.
    pub fn is_flowing(&self) -> bool {
        self.ensemble.as_ref().is_none_or(|ensemble| ensemble.is_flowing())
    }

    /// Whether commands went out and have not come back.
    pub fn is_waiting(&self) -> bool {
        self.ensemble.as_ref().is_some_and(|ensemble| ensemble.is_waiting())
    }

    /// Whether the leader is about to let another lead.
    pub fn is_pausing(&self) -> bool {
        self.ensemble.as_ref().is_some_and(|ensemble| ensemble.is_pausing())
    }

    // ----- what is to be said -----

    /// Messages to be sent, in order.
    pub fn take_sends(&mut self) -> Vec<PeerSend> {
        self.ensemble.as_mut().map_or_else(Vec::new, |ensemble| ensemble.take_sends())
    }

    /// What the shards are to be told.
    pub fn take_flow(&mut self) -> Vec<Flow> {
        self.ensemble.as_mut().map_or_else(Vec::new, |ensemble| ensemble.take_flow())
    }
}

#[cfg(test)]
mod tests;
