//! The stream to the leader, the streams from followers, and who heard which session: see the module above.

use super::activity::Activity;
use super::bootstrap::{Awaited, Bootstrap, Founders};
use super::digests::{Digests, Divergence};
use super::intakes::Intakes;
use super::links::{Links, PeerSend, Sender};
use super::shard_flow::ShardFlow;
use super::silence::Silence;
use super::{Back, EnsembleConfig, Leadership};
use crate::command::{CommandKind, Proposals, is_too_heavy};
use crate::ids::{Millis, SessionId, ShardId};
use crate::limits::{FORWARDED_BYTES_MAX, SERVERS_MAX};
use crate::peer::{Forward, Heartbeat, Pause, Paused, PeerFault, PeerMessage, SessionReport, Uninitialised};
use crate::sequencer::Sequencer;
use crate::shard::Flow;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem;

/// Where a stream leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    /// This server leads.
    Own,
    Peer {
        server: u8,
        connection: u64,
    },
}

/// This server's commands to one leadership.
#[derive(Clone, Copy, Debug)]
struct Stream {
    term: u64,
    to: To,
    /// Number of the next message.
    sequence: u64,
    /// Commands go; otherwise it has lapsed.
    flows: bool,
    /// A command went.
    used: bool,
    /// Commands that went and have not come back.
    outstanding: u64,
    /// Those of them that are under way.
    underway: u64,
    /// What comes back of this term is of this stream: no other stream of the term broke.
    exact: bool,
}

/// See the module.
pub(super) struct Ensemble {
    config: EnsembleConfig,
    leadership: Leadership,
    term: u64,
    /// Highest term of an applied entry.
    applied_term: u64,
    links: Links,
    stream: Option<Stream>,
    /// Came from shards that had not heard yet that they must hold back. They were not sent; what the shards may have
    /// in flight bounds them.
    late: VecDeque<Proposals>,
    flow: ShardFlow,
    intakes: Intakes,
    activity: Activity,
    /// As long as this server has promised nothing that it remembers.
    pub(super) bootstrap: Option<Bootstrap>,
    /// Others that said so.
    uninitialised_peers: Vec<u8>,
    /// This server cannot take what the leader gives: nothing that its clients write would come back.
    stalled: bool,
    /// The state here is not to be trusted: nobody is served before another server's snapshot has taken its place.
    distrusted: bool,
    silence: Silence,
    /// Of that term something may come back that is not of the present stream.
    strays: Option<u64>,
    digests: Digests,
}

impl Ensemble {
    pub(super) fn new(config: EnsembleConfig) -> Self {
        Self {
            config,
            leadership: Leadership::Follower { leader: None },
            term: 0,
            applied_term: 0,
            links: Links::default(),
            stream: None,
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
            digests: Digests::default(),
        }
    }

    pub(super) fn take_sends(&mut self) -> Vec<PeerSend> {
        self.links.take()
    }

    /// Whether the shards may send commands.
    pub(super) const fn is_flowing(&self) -> bool {
        self.flow.is_released()
    }

    /// Whether commands went out and have not come back.
    pub(super) fn is_waiting(&self) -> bool {
        self.stream.is_some_and(|stream| stream.outstanding > 0)
    }

    /// Whether the leader is about to let another lead.
    pub(super) const fn is_pausing(&self) -> bool {
        self.silence.is_any()
    }

    pub(super) fn take_flow(&mut self) -> Vec<Flow> {
        self.flow.take_notes()
    }

    /// An entry of that term was applied, with these commands of this server.
    pub(super) fn applied_term(&mut self, term: u64, back: Back) {
        self.applied_term = self.applied_term.max(term);
        if let Some(stream) = self.stream.as_mut().filter(|stream| stream.term == term) {
            stream.underway += back.begun;
            // What an earlier stream began does not count.
            let ended = back.ended.min(stream.underway);
            stream.underway -= ended;
            stream.outstanding = stream.outstanding.saturating_sub(back.done + ended);
        }
    }

    /// What this server sent may be part of the snapshot, and will not come back by itself.
    pub(super) fn installed(&mut self, term: u64) {
        self.digests.reset();
        self.initialised();
        self.applied_term(term, Back::default());
        self.break_off(true);
    }

    pub(super) fn applied_digest(&mut self, index: u64, digest: Option<u64>) {
        self.digests.applied(index, digest);
    }

    pub(super) fn divergence(&mut self, this: u8, voters: &[u8]) -> Option<Divergence> {
        if self.distrusted { None } else { self.digests.divergence(this, voters) }
    }

    pub(super) fn differs(&self) -> bool {
        !self.distrusted && self.digests.differ()
    }

    pub(super) const fn take_digest_mismatches(&mut self) -> u64 {
        self.digests.take_mismatches()
    }

    pub(super) fn peer_connected(&mut self, peer: u8, connection: u64) {
        self.links.connected(peer, connection);
        self.digests.peer_connected();
        self.greet(peer);
    }

    pub(super) fn peer_disconnected(&mut self, peer: u8, connection: u64) {
        // It may come back with data.
        if self.links.disconnected(peer, connection)
            && let Some(bootstrap) = &mut self.bootstrap
        {
            bootstrap.forget(peer);
        }
    }

    pub(super) fn set_leadership(&mut self, leadership: Leadership, term: u64, sequencer: &mut Sequencer) {
        if (leadership, term) == (self.leadership, self.term) {
            return;
        }
        if self.leadership == Leadership::Leader && leadership != Leadership::Leader {
            // Also what came before it led in truth.
            sequencer.follow();
        }
        (self.leadership, self.term) = (leadership, term);
        self.silence = Silence::default();
        self.intakes.clear();
        self.activity.forget_leader();
    }

    // ----- beginnings -----

    pub(super) fn begin_uninitialised(&mut self, founders: Founders, bootstrapped: bool, incarnation: u64) {
        self.bootstrap = Some(Bootstrap::new(founders, bootstrapped, incarnation));
    }

    pub(super) fn bootstrapped(&mut self) {
        if let Some(bootstrap) = &mut self.bootstrap {
            bootstrap.bootstrapped = true;
        }
    }

    pub(super) fn bootstraps(&mut self) -> bool {
        let Some(bootstrap) = self.bootstrap.as_mut().filter(|bootstrap| bootstrap.is_complete()) else { return false };
        !mem::replace(&mut bootstrap.begun, true)
    }

    /// What was to be said as an uninitialised server is not true any more.
    pub(super) fn initialised(&mut self) {
        if self.bootstrap.take().is_some() {
            self.links.take_back(|message| matches!(message, PeerMessage::Uninitialised(_)));
        }
    }

    pub(super) fn awaited(&self) -> Vec<Awaited> {
        self.bootstrap.as_ref().filter(|bootstrap| !bootstrap.bootstrapped).map_or_else(Vec::new, Bootstrap::awaited)
    }

    pub(super) fn take_uninitialised(&mut self) -> Vec<u8> {
        mem::take(&mut self.uninitialised_peers)
    }

    fn greet(&mut self, peer: u8) {
        if let (Some(bootstrap), Some(connection)) = (&self.bootstrap, self.links.connection(peer)) {
            self.links.send(peer, connection, bootstrap.greeting(peer));
        }
    }

    fn heard_uninitialised(&mut self, from: Sender, uninitialised: Uninitialised) {
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

    pub(super) const fn stall(&mut self, stalled: bool) {
        self.stalled = stalled;
    }

    pub(super) fn distrust(&mut self) {
        self.distrusted = true;
        self.break_off(true);
        self.flow.distrust();
    }

    pub(super) const fn trust(&mut self) {
        self.distrusted = false;
    }

    /// Whether commands flow, and to whom, after all that a turn brought.
    pub(super) fn settle(&mut self, now: Millis, sequencer: &mut Sequencer) {
        if self.stream.is_some_and(|stream| stream.term < self.applied_term || self.is_reconnected(&stream)) {
            self.break_off(false);
        }
        let to = self.leads_to();
        match &mut self.stream {
            Some(stream) if stream.term == self.term && Some(stream.to) == to => stream.flows = true,
            Some(stream) if stream.used => stream.flows = false,
            stream => {
                let (term, exact) = (self.term, self.strays != Some(self.term));
                *stream = to.map(|to| Stream {
                    term,
                    to,
                    sequence: 0,
                    flows: true,
                    used: false,
                    outstanding: 0,
                    underway: 0,
                    exact,
                });
                self.activity.forget_sessions();
                self.report();
            }
        }
        let flows = self.stream.is_some_and(|stream| stream.flows);
        if flows {
            for proposals in mem::take(&mut self.late) {
                self.pass_on(now, proposals, sequencer);
            }
        }
        self.flow.settle(now, flows);
    }

    fn leads_to(&self) -> Option<To> {
        match self.leadership {
            _ if self.silence.is_kept() || self.distrusted => None,
            Leadership::Follower { .. } if self.stalled => None,
            // One that no other server is connected with goes on for those who read.
            Leadership::Leader if self.stalled && !self.links.is_empty() => None,
            Leadership::Leader => Some(To::Own),
            Leadership::Follower { leader } => {
                let server = leader?;
                self.links.connection(server).map(|connection| To::Peer { server, connection })
            }
        }
    }

    /// The leadership is the same, and the connection to it another: what was on its way is lost, or is not.
    fn is_reconnected(&self, stream: &Stream) -> bool {
        match (stream.to, self.leads_to()) {
            (To::Peer { server, connection }, Some(To::Peer { server: same, connection: other })) => {
                stream.term == self.term && server == same && connection != other
            }
            _ => false,
        }
    }

    /// What was sent and has not come back has no known outcome. If all has come back, nobody needs to hear of that.
    fn break_off(&mut self, unsent_too: bool) {
        let stream = self.stream.take().filter(|stream| stream.used && !(stream.exact && stream.outstanding == 0));
        self.flow.release(false);
        if let Some(stream) = stream {
            self.strays = Some(stream.term);
        }
        if stream.is_some() || unsent_too {
            self.late.clear();
            self.flow.lose(unsent_too);
        }
    }

    pub(super) fn proposed(&mut self, now: Millis, proposals: Proposals, sequencer: &mut Sequencer) {
        if !self.flow.is_present(proposals.generation) {
            return;
        }
        if self.stream.is_some_and(|stream| stream.flows) {
            self.pass_on(now, proposals, sequencer);
        } else {
            self.late.push_back(proposals);
        }
    }

    fn pass_on(&mut self, now: Millis, mut proposals: Proposals, sequencer: &mut Sequencer) {
        let stream = self.stream.as_mut().expect("it flows");
        stream.used = true;
        stream.outstanding += proposals.commands.len() as u64;
        match stream.to {
            To::Own => sequencer.enqueue(now, proposals),
            To::Peer { server, connection } => {
                // A leader has no entry for it, and would close the connection.
                for command in proposals.commands.iter_mut().filter(|command| is_too_heavy(&command.kind)) {
                    command.kind = CommandKind::Undecodable;
                }
                let forward = Forward { term: stream.term, sequence: stream.sequence, proposals };
                stream.sequence += 1;
                self.links.send(server, connection, PeerMessage::Forward(forward));
            }
        }
    }

    // ----- sessions -----

    pub(super) fn heard(&mut self, shard: ShardId, upto: Millis, sessions: &[(SessionId, Millis)]) {
        self.activity.complete(shard, upto);
        // Without a stream to another server these sessions have a full timeout from when the next one begins.
        if self.stream.is_some_and(|stream| stream.to != To::Own) {
            self.activity.add(sessions.iter().map(|(session, _)| *session));
        }
    }

    pub(super) fn tick(&mut self, now: Millis, sequencer: &mut Sequencer) {
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
            let peers: Vec<u8> = self.links.peers().collect();
            peers.into_iter().for_each(|peer| self.greet(peer));
        }
        if !self.distrusted {
            self.digests.tick(now, &mut self.links);
        }
        self.report();
    }

    /// Tells the leader who was heard from, and that this server is there.
    fn report(&mut self) {
        self.activity.follow_echo();
        let Some(Stream { term, to: To::Peer { server, connection }, flows: true, sequence, .. }) = &mut self.stream
        else {
            return;
        };
        for (echo, sessions) in self.activity.take() {
            let report = SessionReport { term: *term, sequence: *sequence, echo, sessions };
            *sequence += 1;
            self.links.send(*server, *connection, PeerMessage::SessionReport(report));
        }
    }

    // ----- what comes from others -----

    pub(super) fn received(
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
            PeerMessage::Pause(pause) => {
                if self.leadership == (Leadership::Follower { leader: Some(peer) }) && pause.term == self.term {
                    self.fall_silent(now);
                }
            }
            PeerMessage::Paused(paused) => {
                if self.take_in(now, from, (paused.term, paused.sequence), sequencer)? {
                    self.silence.note(peer);
                }
            }
            PeerMessage::Heartbeat(heartbeat) => {
                let leads =
                    self.leadership == Leadership::Follower { leader: Some(peer) } && heartbeat.term == self.term;
                if leads {
                    self.activity.heartbeat(now, heartbeat.clock);
                }
            }
            PeerMessage::Digest(_) if self.distrusted => {}
            PeerMessage::Digest(report) => self.digests.received(peer, report, &mut self.links),
            PeerMessage::Uninitialised(uninitialised) => self.heard_uninitialised(from, uninitialised),
        }
        Ok(())
    }

    /// The leader is about to go: what was sent until now it takes, what comes later waits for the next one, or until
    /// it is clear that this one stays.
    fn fall_silent(&mut self, now: Millis) {
        if !self.silence.keep(now) {
            return;
        }
        self.report();
        let Some(stream) = self.stream.as_mut().filter(|stream| stream.flows) else { return };
        if let To::Peer { server, connection } = stream.to {
            let message = PeerMessage::Paused(Paused { term: stream.term, sequence: stream.sequence });
            stream.sequence += 1;
            self.links.send(server, connection, message);
        }
        stream.flows = false;
        self.flow.release(false);
    }

    /// Whether there is anything to be sent because of it.
    pub(super) fn ask_for_pause(&mut self, now: Millis) -> bool {
        if self.leadership != Leadership::Leader || !self.silence.ask(now) {
            return false;
        }
        self.links.send_all(&PeerMessage::Pause(Pause { term: self.term }));
        true
    }

    pub(super) fn is_silent(&self, now: Millis) -> bool {
        self.silence.is_complete(now, self.links.peers())
    }

    /// Whether a message is the next of the newest stream from there. What belongs to another term, or to a stream that
    /// is over, is dropped: its sender knows, or will know, that the leadership is another.
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
