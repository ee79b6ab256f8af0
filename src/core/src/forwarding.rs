//! How the commands of a follower's clients reach the leader, and the other messages between servers beside Raft.
//!
//! The engine owns one in an ensemble. A standalone server has none, and its commands go to the sequencer at once. It
//! knows neither Raft nor sockets: the engine reports the leader, the open connections, and received messages.
//!
//! # How commands go
//! All commands of a server to one leadership travel in one *stream*, in order and without a gap. While no leader is
//! known the stream lapses: shards hold back what they have not sent. It goes on if the same leadership is reached
//! again by the same connection. It ends when a new connection leads to the same leadership, or when no leader is found
//! for too long. Usually it ends once an entry of a later term is applied: its commands in the log are before, and have
//! come back. Other sent commands have no known outcome, and shards end the connections that wait for them. So of one
//! connection's writes a prefix is ordered, and none is ordered twice.

mod activity;
mod bootstrap;
mod clock;
mod digests;
mod intakes;
mod links;
pub mod peer;
mod shard_flow;
mod silence;
mod stream;

pub use bootstrap::{Awaited, Founders};
pub use digests::{DIGEST_POINT_ENTRIES, DIGEST_REPORT_MS, Divergence};
pub use links::{PeerSend, Sender};

use crate::apply::outcome::{AppliedEntry, AppliedTxn};
use crate::command::{CommandKind, Proposals, is_too_heavy};
use crate::forwarding::peer::{
    Forward, Heartbeat, Pause, Paused, PeerFault, PeerMessage, SessionReport, Uninitialised,
};
use crate::ids::{Millis, ServerId, SessionId, ShardId, WallMillis};
use crate::limits::{FORWARDED_BYTES_MAX, SERVERS_MAX};
use crate::sequencer::Sequencer;
use crate::shard::Flow;
use activity::Activity;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bootstrap::Bootstrap;
use clock::ClockComparison;
use core::mem;
use digests::Digests;
use intakes::Intakes;
use links::Links;
use shard_flow::ShardFlow;
use silence::Silence;
use stream::{Back, Stream, To};

/// Settings of a server of an ensemble.
#[derive(Clone, Copy, Debug)]
pub struct EnsembleConfig {
    /// Shards of this server.
    pub shards: u16,
    /// Time without a leader after which all clients are sent away.
    pub hold_ms: u64,
    /// A server that has sent no session activity report for so long is lost, see `session::Expiry`.
    pub lost_after_ms: u64,
}

/// The role of a server in the present term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// This server leads.
    Leader,
    /// A follower or candidate, with the leader if it is known.
    Follower {
        /// Server id of the leader; `None` while no leader is known.
        leader: Option<ServerId>,
    },
}

/// The stream to the leader, the streams from followers, and the reports of the other servers.
pub struct Forwarding {
    config: EnsembleConfig,
    /// This server, and this start of it.
    start: (ServerId, u64),
    leadership: Leadership,
    term: u64,
    /// Highest term of an applied entry.
    applied_term: u64,
    links: Links,
    stream: Option<Stream>,
    /// The stream to the present leader while `stream` is of an earlier leadership and may still come back. Only reports of
    /// session activity go on it until then.
    next: Option<Stream>,
    /// Commands that shards sent before they received [`Flow::Pause`], and that are not forwarded yet. The bound of the
    /// commands that a shard has in flight bounds them.
    late: VecDeque<Proposals>,
    flow: ShardFlow,
    intakes: Intakes,
    activity: Activity,
    /// While this server is uninitialised.
    bootstrap: Option<Bootstrap>,
    /// Other servers that reported themselves uninitialised, while this server is initialised.
    uninitialised_peers: Vec<ServerId>,
    /// This server cannot take what the leader gives: nothing that its clients write would come back.
    stalled: bool,
    /// The state here is corrupt: no client is served before another server's snapshot has replaced it.
    distrusted: bool,
    silence: Silence,
    /// Of that term something may come back that is not of the present stream.
    strays: Option<u64>,
    digests: Digests,
    clock: ClockComparison,
}

impl Forwarding {
    /// Of a server that follows no leader yet. Its shards are held first. `sequencer` has applied what recovery could.
    pub fn new(config: EnsembleConfig, sequencer: &mut Sequencer) -> Self {
        sequencer.expiry_mut().expect_servers(config.lost_after_ms);
        sequencer.all_members_know(0);
        let mut digests = Digests::default();
        digests.applied(sequencer.index(), sequencer.view().tree_digest());
        Self {
            config,
            start: sequencer.start(),
            leadership: Leadership::Follower { leader: None },
            term: 0,
            applied_term: 0,
            links: Links::default(),
            stream: None,
            next: None,
            late: VecDeque::new(),
            flow: ShardFlow::new(),
            intakes: Intakes::default(),
            activity: Activity::new(config.shards),
            bootstrap: None,
            uninitialised_peers: Vec::new(),
            stalled: false,
            distrusted: false,
            silence: Silence::default(),
            strays: None,
            digests,
            clock: ClockComparison::default(),
        }
    }

    /// Takes the messages for other servers, in order.
    pub fn take_sends(&mut self) -> Vec<PeerSend> {
        self.links.take()
    }

    /// Whether the shards may send commands.
    pub const fn is_flowing(&self) -> bool {
        self.flow.is_released()
    }

    /// Whether commands went out and have not come back.
    pub fn is_waiting(&self) -> bool {
        self.stream.as_ref().is_some_and(Stream::is_waiting)
    }

    /// Whether the leader is about to let another lead.
    pub const fn is_pausing(&self) -> bool {
        self.silence.is_any()
    }

    /// Takes what the shards are to be told, in order.
    pub fn take_flow(&mut self) -> Vec<Flow> {
        self.flow.take_notes()
    }

    /// A committed entry was applied. Called for each, in order, before [`Forwarding::settle`].
    pub fn applied(&mut self, now: Millis, wall: WallMillis, entry: &AppliedEntry) {
        let ours = |txn: &&AppliedTxn| txn.origin.is_some_and(|at| (at.server, at.incarnation) == self.start);
        let mut back = Back::default();
        entry.batch.txns.iter().filter(ours).for_each(|txn| back.note(&txn.outcome));
        if !entry.own && !entry.batch.txns.is_empty() {
            self.clock.observe(entry.batch.time, now, wall);
        }
        self.applied_term(entry.term, back);
        self.digests.applied(entry.index, entry.digest);
    }

    /// Milliseconds by which this server's wall clock is ahead of the leader's. `None` while that is not known.
    pub const fn clock_ahead_ms(&self) -> Option<i64> {
        self.clock.ahead_ms()
    }

    /// An entry of that term was applied, with these commands of this server.
    fn applied_term(&mut self, term: u64, back: Back) {
        self.applied_term = self.applied_term.max(term);
        if let Some(stream) = self.stream.as_mut().filter(|stream| stream.term() == term) {
            stream.came_back(back);
        }
    }

    /// A snapshot that ends at `index` replaced the state of `sequencer`. The shards are told so before anything else
    /// of this turn. Commands of this server may be part of the snapshot, and will not come back by themselves.
    pub fn installed(&mut self, sequencer: &Sequencer, index: u64, term: u64) {
        self.digests.reset();
        self.initialised();
        self.applied_term(term, Back::default());
        self.break_off(true);
        self.digests.applied(index, sequencer.view().tree_digest());
    }

    /// Whether this server's digest of the tree differs from another server's at the same log entry, as far as is
    /// known. Called once a tick.
    pub fn divergence(&mut self, voters: &[ServerId]) -> Option<Divergence> {
        if self.distrusted { None } else { self.digests.divergence(self.start.0, voters) }
    }

    /// Whether the digest of another server, as far as it could be compared last, differs from this one's.
    pub fn differs(&self) -> bool {
        !self.distrusted && self.digests.differ()
    }

    /// Number of differences to other servers' digests found since the last call.
    pub const fn take_digest_mismatches(&mut self) -> u64 {
        self.digests.take_mismatches()
    }

    /// Messages can be sent to that server. `connection` grows with each connection that opens.
    pub fn peer_connected(&mut self, now: Millis, peer: ServerId, connection: u64) {
        self.founder(now, peer, true);
        self.links.connected(peer, connection);
        self.digests.peer_connected();
        self.greet(peer);
    }

    /// Servers with an open connection from this one.
    pub fn connected(&self) -> impl Iterator<Item = ServerId> {
        self.links.peers()
    }

    /// This connection broke: what was sent on it last may not have arrived.
    pub fn peer_disconnected(&mut self, peer: ServerId, connection: u64) {
        // It may come back with data.
        if self.links.disconnected(peer, connection)
            && let Some(bootstrap) = &mut self.bootstrap
        {
            bootstrap.forget(peer);
        }
    }

    /// The role or the leader is another. Called in the turn in which Raft reports it, before [`Forwarding::settle`].
    pub fn set_leadership(&mut self, leadership: Leadership, term: u64, sequencer: &mut Sequencer) {
        self.clock.forget();
        if (leadership, term) == (self.leadership, self.term) {
            return;
        }
        if self.leadership == Leadership::Leader && leadership != Leadership::Leader {
            // Also what came before it led in truth.
            sequencer.end_leadership();
        }
        (self.leadership, self.term) = (leadership, term);
        self.silence = Silence::default();
        self.intakes.clear();
        self.activity.forget_leader();
    }

    // ----- bootstrap -----

    /// This server is uninitialised: it has stored no promise. `founders` would bootstrap a new ensemble with it.
    /// `bootstrapped`: it has done so itself.
    pub fn begin_uninitialised(&mut self, founders: Founders, bootstrapped: bool) {
        self.bootstrap = Some(Bootstrap::new(founders, bootstrapped, self.start.1));
    }

    /// `exists`: the name of that server resolves, or the server has a connection with this one. A new ensemble waits for
    /// it then. Otherwise its name has not resolved since the start.
    pub fn founder(&mut self, now: Millis, server: ServerId, exists: bool) {
        let Some(bootstrap) = &mut self.bootstrap else { return };
        if exists {
            bootstrap.exists(server);
        } else {
            bootstrap.unresolved(now, server);
        }
    }

    /// Founders that a new ensemble does not wait for, because their names never resolved.
    pub fn absent_founders(&self) -> Vec<ServerId> {
        self.bootstrap.as_ref().map_or_else(Vec::new, Bootstrap::absent)
    }

    /// This server has stored that the ensemble is bootstrapped.
    pub fn bootstrapped(&mut self) {
        if let Some(bootstrap) = &mut self.bootstrap {
            bootstrap.bootstrapped = true;
        }
    }

    /// Whether a new ensemble may be bootstrapped. True once. The empty state is then to be made durable with the founders
    /// as members, and [`Forwarding::bootstrapped`] called.
    pub fn bootstraps(&mut self) -> bool {
        let Some(bootstrap) = self.bootstrap.as_mut().filter(|bootstrap| bootstrap.is_complete()) else { return false };
        !mem::replace(&mut bootstrap.begun, true)
    }

    /// This server has stored a promise: it does not report itself uninitialised any more. Called before the messages of
    /// the turn are taken in which its Raft first voted or took an entry.
    pub fn initialised(&mut self) {
        if self.bootstrap.take().is_some() {
            self.links.take_back(|message| matches!(message, PeerMessage::Uninitialised(_)));
        }
    }

    /// Founders that this uninitialised server waits for. Empty also if it is initialised, or waits for a leader alone.
    pub fn awaited(&self) -> Vec<Awaited> {
        self.bootstrap.as_ref().filter(|bootstrap| !bootstrap.bootstrapped).map_or_else(Vec::new, Bootstrap::awaited)
    }

    /// Takes the peers that reported themselves uninitialised to this initialised server. The leader's Raft needs them.
    pub fn take_uninitialised(&mut self) -> Vec<ServerId> {
        mem::take(&mut self.uninitialised_peers)
    }

    fn greet(&mut self, peer: ServerId) {
        if let (Some(bootstrap), Some(connection)) = (&self.bootstrap, self.links.connection(peer)) {
            self.links.send(peer, connection, bootstrap.greeting(peer));
        }
    }

    fn take_uninitialised_report(&mut self, from: Sender, uninitialised: Uninitialised) {
        let Some(bootstrap) = &mut self.bootstrap else {
            if !uninitialised.bootstrapped && self.uninitialised_peers.len() < SERVERS_MAX {
                self.uninitialised_peers.push(from.peer);
            }
            return;
        };
        if bootstrap.received(from, uninitialised) {
            self.greet(from.peer);
        }
    }

    // ----- commands -----

    /// Sets whether this server has no space for its writes. Meanwhile its clients are served as if it had no leader.
    /// This holds for a leader too, until another server takes over, unless no other server is connected. Called before
    /// [`Forwarding::settle`].
    pub const fn stall(&mut self, stalled: bool) {
        self.stalled = stalled;
    }

    /// The state here is corrupt: all clients are sent away at once and none is served, not even read-only clients, before
    /// [`Forwarding::trust`]. Called before [`Forwarding::settle`].
    pub fn distrust(&mut self) {
        self.distrusted = true;
        self.break_off(true);
        self.flow.distrust();
    }

    /// The state is intact again: another server's snapshot was installed, and the log is applied behind it.
    pub const fn trust(&mut self) {
        self.distrusted = false;
    }

    /// The end of a turn: decides whether commands flow, and to which server.
    pub fn settle(&mut self, now: Millis, sequencer: &mut Sequencer) {
        let (term, to) = (self.term, self.leads_to());
        let is_over = |stream: &Stream| stream.term() < self.applied_term || stream.is_reconnected(term, to);
        if self.stream.as_ref().is_some_and(is_over) {
            self.break_off(false);
        }
        match &mut self.stream {
            Some(stream) if stream.term() == term && Some(stream.to()) == to => stream.resume(),
            Some(stream) if stream.is_used() => {
                stream.lapse();
                self.begin_next(to.filter(|to| *to != To::Own));
            }
            _ => {
                self.stream = None;
                self.begin_next(to);
                self.stream = self.next.take();
            }
        }
        let flows = self.stream.as_ref().is_some_and(Stream::flows);
        if flows {
            for proposals in mem::take(&mut self.late) {
                self.pass_on(now, proposals, sequencer);
            }
        }
        self.flow.settle(now, flows);
    }

    /// Makes `next` a stream to there, if it is not yet.
    fn begin_next(&mut self, to: Option<To>) {
        let is_begun = |next: &Stream| next.term() == self.term && Some(next.to()) == to;
        if self.next.as_ref().is_some_and(is_begun) {
            return;
        }
        let is_exact = self.strays != Some(self.term);
        self.next = to.map(|to| Stream::new(self.term, to, is_exact));
        if self.next.is_some() {
            // The leader gives the sessions of this server a full timeout from the first report on.
            self.activity.forget_sessions();
            self.report();
        }
    }

    fn leads_to(&self) -> Option<To> {
        match self.leadership {
            _ if self.silence.is_kept() || self.distrusted => None,
            Leadership::Follower { .. } if self.stalled => None,
            // A leader without connections to other servers goes on, for clients that read.
            Leadership::Leader if self.stalled && !self.links.is_empty() => None,
            Leadership::Leader => Some(To::Own),
            Leadership::Follower { leader } => {
                let server = leader?;
                self.links.connection(server).map(|connection| To::Peer { server, connection })
            }
        }
    }

    /// Commands that were sent and have not come back have no known outcome. If all have, shards are not told.
    fn break_off(&mut self, unsent_too: bool) {
        let stream = self.stream.take().filter(Stream::leaves_doubt);
        self.flow.release(false);
        if let Some(stream) = stream {
            self.strays = Some(stream.term());
        }
        if stream.is_some() || unsent_too {
            self.late.clear();
            self.flow.lose(unsent_too);
        }
    }

    /// Sends a shard's proposals of one turn to the leader, or hands them to `sequencer` if this server leads.
    pub fn proposed(&mut self, now: Millis, proposals: Proposals, sequencer: &mut Sequencer) {
        if !self.flow.is_present(proposals.generation) {
            return;
        }
        if self.stream.as_ref().is_some_and(Stream::flows) {
            self.pass_on(now, proposals, sequencer);
        } else {
            self.late.push_back(proposals);
        }
    }

    fn pass_on(&mut self, now: Millis, mut proposals: Proposals, sequencer: &mut Sequencer) {
        let stream = self.stream.as_mut().expect("it flows");
        stream.send(proposals.commands.len());
        match stream.to() {
            To::Own => sequencer.enqueue(now, proposals),
            To::Peer { server, connection } => {
                // A leader has no entry for it, and would close the connection.
                for command in proposals.commands.iter_mut().filter(|command| is_too_heavy(&command.kind)) {
                    command.kind = CommandKind::Undecodable;
                }
                let forward = Forward { term: stream.term(), sequence: stream.number(), proposals };
                self.links.send(server, connection, PeerMessage::Forward(forward));
            }
        }
    }

    // ----- sessions -----

    /// A shard's report of active sessions, complete up to `upto`.
    pub fn take_activity(&mut self, shard: ShardId, upto: Millis, sessions: &[(SessionId, Millis)]) {
        self.activity.complete(shard, upto);
        // Without a stream to another server these sessions have a full timeout from when the next one begins.
        let leads_away = |stream: &Option<Stream>| stream.as_ref().is_some_and(|stream| stream.to() != To::Own);
        if leads_away(&self.stream) || leads_away(&self.next) {
            self.activity.add(sessions.iter().map(|(session, _)| *session));
        }
    }

    /// Time passes. Called several times within [`EnsembleConfig::lost_after_ms`], behind [`Sequencer::tick`].
    pub fn tick(&mut self, now: Millis, sequencer: &mut Sequencer) {
        if self.silence.end_if_over(now) {
            self.settle(now, sequencer);
        }
        if self.flow.is_held_too_long(now, self.config.hold_ms) {
            self.break_off(true);
            self.settle(now, sequencer);
            self.flow.send_away();
        }
        if self.leadership == Leadership::Leader {
            self.links.send_all(&PeerMessage::Heartbeat(Heartbeat { term: self.term, clock: now }));
        }
        if self.bootstrap.as_mut().is_some_and(|bootstrap| bootstrap.is_due(now)) {
            let peers: Vec<ServerId> = self.links.peers().collect();
            peers.into_iter().for_each(|peer| self.greet(peer));
        }
        if !self.distrusted {
            self.digests.tick(now, &mut self.links);
        }
        self.report();
    }

    /// Reports the active sessions to the leader, and that this server is up.
    fn report(&mut self) {
        self.activity.follow_echo();
        let Some(stream) = flowing(&mut self.stream, &mut self.next) else { return };
        let To::Peer { server, connection } = stream.to() else { return };
        for (echo, sessions) in self.activity.take() {
            let report = SessionReport { term: stream.term(), sequence: stream.number(), echo, sessions };
            self.links.send(server, connection, PeerMessage::SessionReport(report));
        }
    }

    // ----- messages of other servers -----

    /// A message of another server was received.
    ///
    /// # Errors
    /// [`PeerFault`]: the connection must be closed.
    pub fn received(
        &mut self,
        now: Millis,
        from: Sender,
        message: PeerMessage,
        sequencer: &mut Sequencer,
    ) -> Result<(), PeerFault> {
        let Sender { peer, incarnation, .. } = from;
        match message {
            PeerMessage::Forward(forward) => {
                forward.check(peer, incarnation)?;
                if self.take_in(now, from, (forward.term, forward.sequence), sequencer)? {
                    if sequencer.bytes_waiting() > FORWARDED_BYTES_MAX {
                        return Err(PeerFault::Flood);
                    }
                    sequencer.enqueue(now, forward.proposals);
                }
            }
            PeerMessage::SessionReport(report) => {
                if self.take_in(now, from, (report.term, report.sequence), sequencer)? {
                    sequencer.expiry_mut().report(now, peer, incarnation, report.echo, &report.sessions);
                }
            }
            PeerMessage::Pause(pause) if self.follows(peer, pause.term) => self.fall_silent(now),
            PeerMessage::Paused(paused) => {
                if self.take_in(now, from, (paused.term, paused.sequence), sequencer)? {
                    self.silence.note(peer);
                }
            }
            PeerMessage::Heartbeat(heartbeat) if self.follows(peer, heartbeat.term) => {
                self.activity.heartbeat(now, heartbeat.clock);
            }
            PeerMessage::Pause(_) | PeerMessage::Heartbeat(_) => {}
            PeerMessage::Digest(_) if self.distrusted => {}
            PeerMessage::Digest(report) => self.digests.received(peer, report, &mut self.links),
            PeerMessage::Uninitialised(uninitialised) => self.take_uninitialised_report(from, uninitialised),
        }
        Ok(())
    }

    fn follows(&self, peer: ServerId, term: u64) -> bool {
        (self.leadership, self.term) == (Leadership::Follower { leader: Some(peer) }, term)
    }

    /// The leader is about to transfer leadership, and takes the commands that were sent until now. Later commands wait
    /// for the next leader, or until it is clear that this one stays.
    fn fall_silent(&mut self, now: Millis) {
        if !self.silence.keep(now) {
            return;
        }
        self.report();
        let Some(stream) = flowing(&mut self.stream, &mut self.next) else { return };
        if let To::Peer { server, connection } = stream.to() {
            let paused = Paused { term: stream.term(), sequence: stream.number() };
            self.links.send(server, connection, PeerMessage::Paused(paused));
        }
        stream.lapse();
        self.flow.release(false);
    }

    /// This server leads, and is about to transfer leadership: the others are to send no more commands. True the first
    /// time, because there are messages to send then.
    pub fn ask_for_pause(&mut self, now: Millis) -> bool {
        if self.leadership != Leadership::Leader || !self.silence.ask(now) {
            return false;
        }
        self.links.send_all(&PeerMessage::Pause(Pause { term: self.term }));
        true
    }

    /// Whether all messages that others sent before they received the pause are received, or it takes too long.
    pub fn is_silent(&self, now: Millis) -> bool {
        self.silence.is_complete(now, self.links.peers())
    }

    /// Whether a message is the next of the newest stream from there. A message of another term, or of a stream that is
    /// over, is dropped: its sender knows, or will know, of the other leadership.
    fn take_in(
        &mut self,
        now: Millis,
        from: Sender,
        (term, sequence): (u64, u64),
        sequencer: &mut Sequencer,
    ) -> Result<bool, PeerFault> {
        if self.leadership != Leadership::Leader || term != self.term {
            return Ok(false);
        }
        let is_next = self.intakes.take(from, sequence)?;
        if is_next && sequence == 0 {
            sequencer.expiry_mut().server_begins(now, from.peer, from.incarnation);
        }
        Ok(is_next)
    }
}

/// The stream on which messages go: that of the commands, or the one to the present leader.
fn flowing<'a>(stream: &'a mut Option<Stream>, next: &'a mut Option<Stream>) -> Option<&'a mut Stream> {
    [stream, next].into_iter().flatten().find(|stream| stream.flows())
}
