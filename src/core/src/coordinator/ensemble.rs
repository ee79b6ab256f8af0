//! The stream to the leader, the streams from followers, and who heard which session: see the module above.

use super::bootstrap::{Awaited, Bootstrap, Founders};
use super::digests::{Digests, Divergence};
use super::{Back, EnsembleConfig, Leadership, PeerSend, Sender};
use crate::command::{CommandKind, Proposals, is_too_heavy};
use crate::ids::{Millis, SessionId, ShardId};
use crate::limits::{FORWARDED_BYTES_MAX, HEARTBEATS_MAX, PAUSE_MAX_MS, REPORT_SESSIONS, SERVERS_MAX};
use crate::peer::{Forward, Heartbeat, Pause, Paused, PeerFault, PeerMessage, SessionReport, Uninitialised};
use crate::sequencer::Sequencer;
use crate::shard::Flow;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
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

/// The newest stream from a follower.
#[derive(Clone, Copy, Debug)]
struct Intake {
    connection: u64,
    next: u64,
}

/// See the module.
pub(super) struct Ensemble {
    config: EnsembleConfig,
    leadership: Leadership,
    term: u64,
    /// Highest term of an applied entry.
    applied_term: u64,
    /// Connections that are up, by server.
    connections: BTreeMap<u8, u64>,
    stream: Option<Stream>,
    generation: u32,
    /// Came from shards that had not heard yet that they must hold back. They were not sent; what the shards may have
    /// in flight bounds them.
    late: VecDeque<Proposals>,
    /// Since when commands do not flow, or when those who waited were last sent away.
    held_since: Option<Millis>,
    intakes: BTreeMap<u8, Intake>,
    /// When a time of the leader's came, and that time.
    heartbeats: VecDeque<(Millis, Millis)>,
    /// Up to when the reports of each shard are complete.
    reports: Vec<Millis>,
    echo: Millis,
    /// Sessions heard from and not told to the leader.
    touched: Vec<SessionId>,
    released: bool,
    /// All clients were sent away.
    away: bool,
    /// As long as this server has promised nothing that it remembers.
    pub(super) bootstrap: Option<Bootstrap>,
    /// Others that said so.
    uninitialised_peers: Vec<u8>,
    /// This server cannot take what the leader gives: nothing that its clients write would come back.
    stalled: bool,
    /// The state here is not to be trusted: nobody is served before another server's snapshot has taken its place.
    distrusted: bool,
    /// The leader wants nothing sent to it any more, since then.
    paused: Option<Millis>,
    /// This leader wants that of the others: since when, and who has said that nothing comes.
    pause: Option<(Millis, BTreeSet<u8>)>,
    /// Of that term something may come back that is not of the present stream.
    strays: Option<u64>,
    digests: Digests,
    notes: Vec<Flow>,
    sends: Vec<PeerSend>,
}

impl Ensemble {
    pub(super) fn new(config: EnsembleConfig) -> Self {
        Self {
            config,
            leadership: Leadership::Follower { leader: None },
            term: 0,
            applied_term: 0,
            connections: BTreeMap::new(),
            stream: None,
            generation: 0,
            late: VecDeque::new(),
            held_since: None,
            intakes: BTreeMap::new(),
            heartbeats: VecDeque::new(),
            reports: alloc::vec![Millis(0); usize::from(config.shards)],
            echo: Millis(0),
            touched: Vec::new(),
            released: false,
            away: false,
            bootstrap: None,
            uninitialised_peers: Vec::new(),
            stalled: false,
            distrusted: false,
            paused: None,
            pause: None,
            strays: None,
            digests: Digests::default(),
            notes: Vec::from([Flow::Pause]),
            sends: Vec::new(),
        }
    }

    pub(super) fn take_sends(&mut self) -> Vec<PeerSend> {
        mem::take(&mut self.sends)
    }

    /// Whether the shards may send commands.
    pub(super) const fn is_flowing(&self) -> bool {
        self.released
    }

    /// Whether commands went out and have not come back.
    pub(super) fn is_waiting(&self) -> bool {
        self.stream.is_some_and(|stream| stream.outstanding > 0)
    }

    /// Whether the leader is about to let another lead.
    pub(super) const fn is_pausing(&self) -> bool {
        self.paused.is_some() || self.pause.is_some()
    }

    pub(super) fn take_flow(&mut self) -> Vec<Flow> {
        mem::take(&mut self.notes)
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
        self.connections.insert(peer, connection);
        self.digests.peer_connected();
        self.greet(peer);
    }

    pub(super) fn peer_disconnected(&mut self, peer: u8, connection: u64) {
        if self.connections.get(&peer) == Some(&connection) {
            self.connections.remove(&peer);
            // It may come back with data.
            if let Some(bootstrap) = &mut self.bootstrap {
                bootstrap.forget(peer);
            }
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
        (self.paused, self.pause) = (None, None);
        self.intakes.clear();
        self.heartbeats.clear();
        self.echo = Millis(0);
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
            self.sends.retain(|send| !matches!(send.message, PeerMessage::Uninitialised(_)));
        }
    }

    pub(super) fn awaited(&self) -> Vec<Awaited> {
        self.bootstrap.as_ref().filter(|bootstrap| !bootstrap.bootstrapped).map_or_else(Vec::new, Bootstrap::awaited)
    }

    pub(super) fn take_uninitialised(&mut self) -> Vec<u8> {
        mem::take(&mut self.uninitialised_peers)
    }

    fn greet(&mut self, peer: u8) {
        if let (Some(bootstrap), Some(connection)) = (&self.bootstrap, self.connections.get(&peer)) {
            self.sends.push(bootstrap.greeting(peer, *connection));
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
        self.away = true;
        self.notes.push(Flow::Distrusted);
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
                self.touched.clear();
                self.report();
            }
        }
        let flows = self.stream.is_some_and(|stream| stream.flows);
        if flows {
            self.held_since = None;
            for proposals in mem::take(&mut self.late) {
                self.pass_on(now, proposals, sequencer);
            }
        } else if self.held_since.is_none() {
            self.held_since = Some(now);
        }
        self.tell(flows);
    }

    fn leads_to(&self) -> Option<To> {
        match self.leadership {
            _ if self.paused.is_some() || self.distrusted => None,
            Leadership::Follower { .. } if self.stalled => None,
            // One that no other server is connected with goes on for those who read.
            Leadership::Leader if self.stalled && !self.connections.is_empty() => None,
            Leadership::Leader => Some(To::Own),
            Leadership::Follower { leader } => {
                let server = leader?;
                self.connections.get(&server).map(|connection| To::Peer { server, connection: *connection })
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

    fn tell(&mut self, release: bool) {
        if self.released != release {
            self.released = release;
            self.away &= !release;
            self.notes.push(if release { Flow::Resume } else { Flow::Pause });
        }
    }

    /// What was sent and has not come back has no known outcome. If all has come back, nobody needs to hear of that.
    fn break_off(&mut self, unsent_too: bool) {
        let stream = self.stream.take().filter(|stream| stream.used && !(stream.exact && stream.outstanding == 0));
        self.tell(false);
        if let Some(stream) = stream {
            self.strays = Some(stream.term);
        }
        if stream.is_some() || unsent_too {
            self.late.clear();
            self.generation = self.generation.wrapping_add(1);
            self.notes.push(Flow::Uncertain { generation: self.generation, unsent_too });
        }
    }

    pub(super) fn proposed(&mut self, now: Millis, proposals: Proposals, sequencer: &mut Sequencer) {
        if proposals.generation != self.generation {
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
                self.sends.push(PeerSend { peer: server, connection, message: PeerMessage::Forward(forward) });
            }
        }
    }

    // ----- sessions -----

    pub(super) fn heard(&mut self, shard: ShardId, upto: Millis, sessions: &[(SessionId, Millis)]) {
        if let Some(report) = self.reports.get_mut(usize::from(shard.0)) {
            *report = upto.max(*report);
        }
        // Without a stream to another server these sessions have a full timeout from when the next one begins.
        if self.stream.is_some_and(|stream| stream.to != To::Own) {
            self.touched.extend(sessions.iter().map(|(session, _)| *session));
        }
    }

    pub(super) fn tick(&mut self, now: Millis, sequencer: &mut Sequencer) {
        if self.paused.is_some_and(|since| now.since(since) >= 2 * PAUSE_MAX_MS) {
            self.paused = None;
            self.settle(now, sequencer);
        }
        if self.held_since.is_some_and(|since| now.since(since) >= self.config.hold_ms) {
            self.held_since = Some(now);
            self.break_off(true);
            self.settle(now, sequencer);
            if !self.released && !mem::replace(&mut self.away, true) {
                self.notes.push(Flow::Leaderless);
            }
        }
        if self.leadership == Leadership::Leader {
            let message = PeerMessage::Heartbeat(Heartbeat { term: self.term, clock: now });
            let heartbeats = self.connections.iter().map(|(peer, connection)| PeerSend {
                peer: *peer,
                connection: *connection,
                message: message.clone(),
            });
            self.sends.extend(heartbeats);
        }
        if self.bootstrap.as_mut().is_some_and(|bootstrap| bootstrap.is_due(now)) {
            let peers: Vec<u8> = self.connections.keys().copied().collect();
            peers.into_iter().for_each(|peer| self.greet(peer));
        }
        if !self.distrusted {
            self.digests.tick(now, &self.connections, &mut self.sends);
        }
        self.report();
    }

    /// Tells the leader who was heard from, and that this server is there.
    fn report(&mut self) {
        self.follow_echo();
        let Some(Stream { term, to: To::Peer { server, connection }, flows: true, sequence, .. }) = &mut self.stream
        else {
            return;
        };
        self.touched.sort_unstable();
        self.touched.dedup();
        let mut rest = mem::take(&mut self.touched);
        loop {
            let behind = rest.split_off(rest.len().min(REPORT_SESSIONS));
            // Only the last one makes the list complete.
            let echo = if behind.is_empty() { self.echo } else { Millis(0) };
            let report = SessionReport { term: *term, sequence: *sequence, echo, sessions: rest };
            *sequence += 1;
            self.sends.push(PeerSend {
                peer: *server,
                connection: *connection,
                message: PeerMessage::SessionReport(report),
            });
            if behind.is_empty() {
                return;
            }
            rest = behind;
        }
    }

    /// The latest time of the leader's that had come when the shards had read all sockets.
    fn follow_echo(&mut self) {
        let upto = self.reports.iter().min().copied().unwrap_or_default();
        while let Some((_, clock)) = self.heartbeats.front().filter(|(came, _)| *came <= upto) {
            self.echo = self.echo.max(*clock);
            self.heartbeats.pop_front();
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
                if self.take_in(now, from, (paused.term, paused.sequence), sequencer)?
                    && let Some((_, silent)) = &mut self.pause
                {
                    silent.insert(peer);
                }
            }
            PeerMessage::Heartbeat(heartbeat) => {
                let leads =
                    self.leadership == Leadership::Follower { leader: Some(peer) } && heartbeat.term == self.term;
                if leads && self.heartbeats.len() < HEARTBEATS_MAX {
                    self.heartbeats.push_back((now, heartbeat.clock));
                }
            }
            PeerMessage::Digest(_) if self.distrusted => {}
            PeerMessage::Digest(report) => self.digests.received(peer, report, &self.connections, &mut self.sends),
            PeerMessage::Uninitialised(uninitialised) => self.heard_uninitialised(from, uninitialised),
        }
        Ok(())
    }

    /// The leader is about to go: what was sent until now it takes, what comes later waits for the next one, or until
    /// it is clear that this one stays.
    fn fall_silent(&mut self, now: Millis) {
        if self.paused.replace(now).is_some() {
            return;
        }
        self.report();
        let Some(stream) = self.stream.as_mut().filter(|stream| stream.flows) else { return };
        if let To::Peer { server, connection } = stream.to {
            let message = PeerMessage::Paused(Paused { term: stream.term, sequence: stream.sequence });
            stream.sequence += 1;
            self.sends.push(PeerSend { peer: server, connection, message });
        }
        stream.flows = false;
        self.tell(false);
    }

    /// Whether there is anything to be sent because of it.
    pub(super) fn ask_for_pause(&mut self, now: Millis) -> bool {
        if self.leadership != Leadership::Leader || self.pause.is_some() {
            return false;
        }
        self.pause = Some((now, BTreeSet::new()));
        let message = PeerMessage::Pause(Pause { term: self.term });
        let asks = self.connections.iter().map(|(peer, connection)| PeerSend {
            peer: *peer,
            connection: *connection,
            message: message.clone(),
        });
        self.sends.extend(asks);
        true
    }

    pub(super) fn is_silent(&self, now: Millis) -> bool {
        self.pause.as_ref().is_none_or(|(since, silent)| {
            now.since(*since) >= PAUSE_MAX_MS || self.connections.keys().all(|peer| silent.contains(peer))
        })
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
        let Sender { peer, incarnation, connection } = from;
        let known = self.intakes.get(&peer).copied();
        if known.is_some_and(|intake| connection < intake.connection) {
            return Ok(false);
        }
        let expected = known.filter(|intake| intake.connection == connection).map_or(0, |intake| intake.next);
        // A stream may begin anew on the same connection; nothing of the former one comes behind.
        if sequence == 0 {
            sequencer.expiry_mut().server_begins(now, peer, incarnation);
        } else if sequence != expected {
            return Err(PeerFault::Gap { expected, found: sequence });
        }
        assert!(self.intakes.len() <= SERVERS_MAX, "a server's id is a byte");
        self.intakes.insert(peer, Intake { connection, next: sequence + 1 });
        Ok(true)
    }
}
