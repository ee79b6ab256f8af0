//! Drives the engine: the events of its mailbox, then a turn, then its effects. Decides nothing.

use corral_consensus::{BOOTSTRAP_INDEX, Micros};
use corral_core::apply::outcome::Outcome;
use corral_core::forwarding::peer::PeerMessage;
use corral_core::ids::{Millis, SessionId, WallMillis};
use corral_core::shard::{Flow, SessionActivity, ShardMessage};
use corral_engine::{CorruptState, Effect, Ended, Event, Finding, Now, PeerEvent, ToLog, ToPeers, Turned};
use corral_peer::{Frame, Kind};

use super::{Inner, Server};
use crate::check::Checkers;
use crate::limits::MAILBOX_BATCH;
use crate::options::Bug;
use crate::violation::{Checked, Violation};
use crate::world::{Channel, World};

/// The engine's unit of time, in microseconds: of a server that is alone, and of one of an ensemble.
const TICK_ALONE: u64 = 100_000;
pub(crate) const TICK: u64 = 20_000;

impl World {
    pub(super) fn engine_time(&self) -> Now {
        Now { micros: Micros(self.now + self.nodes[self.at].clock_ahead_ms * 1000), wall: self.wall() }
    }

    pub(super) fn begin(&mut self) -> Checked {
        let (at, now) = (self.at, self.engine_time());
        let known = self.configured();
        if let Some(server) = &mut self.nodes[at].server {
            server.engine.begin(now);
        }
        self.know(&known);
        if let Some(what) = self.nodes[at].distrusted.clone() {
            self.tell_engine(Event::StateCorrupt(CorruptState { finding: Finding::NotedByEarlierProcess, what }))?;
        }
        if let Some(what) = self.nodes[at].server.as_mut().and_then(|server| server.log.damaged.take()) {
            self.tell_engine(Event::LogDamaged(what))?;
        }
        if self.nodes[at].is_scarce {
            self.tell_engine(Event::Scarce(true))?;
        }
        Ok(())
    }

    pub(super) fn consensus_message(&mut self, event: Event) {
        let Some(server) = &mut self.nodes[self.at].server else { return };
        server.inbox.push_back(event);
        self.plan_turn();
    }

    fn plan_turn(&mut self) {
        let Some(server) = &mut self.nodes[self.at].server else { return };
        if !std::mem::replace(&mut server.turn_planned, true) {
            self.inside_soon(self.options.mailbox_delay, Inner::Turn);
        }
    }

    pub(super) fn consensus_turn(&mut self) -> Checked {
        let Some(server) = &mut self.nodes[self.at].server else { return Ok(()) };
        server.turn_planned = false;
        let life = self.nodes[self.at].life;
        for _ in 0..MAILBOX_BATCH {
            let Some(server) = self.running(life) else { return Ok(()) };
            let Some(event) = server.inbox.pop_front() else { break };
            self.receive(event)?;
            if self.running(life).is_some_and(|server| server.engine.needs_turn()) {
                break;
            }
        }
        self.turn_engine()?;
        if self.running(life).is_some_and(|server| !server.inbox.is_empty()) {
            self.plan_turn();
        }
        Ok(())
    }

    pub(super) fn wake(&mut self, at: Micros) -> Checked {
        let life = self.nodes[self.at].life;
        let due = self.running(life).is_some_and(|server| server.wake_at.take_if(|planned| *planned == at).is_some());
        if due { self.turn_engine() } else { Ok(()) }
    }

    /// The server, if this process of its still runs.
    fn running(&mut self, life: u32) -> Option<&mut Server> {
        let node = &mut self.nodes[self.at];
        node.server.as_deref_mut().filter(|_| node.life == life)
    }

    /// Takes an event from the mailbox, as it was sent or as a bug makes it.
    fn receive(&mut self, mut event: Event) -> Checked {
        let unproven = match &event {
            Event::Requests(_, requests) => self.check.unproven(&requests.proposals),
            Event::Peer(_, PeerEvent::Frame { frame, .. }) if frame.kind == Kind::Forward => {
                match PeerMessage::decode(&frame.payload) {
                    // The first message of a stream may move every deadline.
                    Ok(PeerMessage::Forward(forward)) if forward.sequence > 0 => {
                        self.check.unproven(&forward.proposals)
                    }
                    _ => Vec::new(),
                }
            }
            _ => Vec::new(),
        };
        let before = self.dues(&unproven);
        if let Event::Requests(shard, requests) = &mut event {
            if self.options.bug == Some(Bug::StaleSync) && !requests.syncs.is_empty() {
                let (at, stale) = (usize::from(shard.0), ShardMessage::Synced(std::mem::take(&mut requests.syncs)));
                self.mail(Channel::ConsensusToShard(at), Inner::ToShard(at, stale));
            }
            if self.options.bug == Some(Bug::HearAnybody) {
                let (now, upto) = (self.clock(), Default::default());
                let sessions = unproven.iter().map(|session| (*session, now)).collect();
                self.tell_engine(Event::SessionActivity(*shard, SessionActivity { upto, sessions }))?;
            }
        }
        self.tell_engine(event)?;
        Checkers::no_deadline_moved(&before, &self.dues(&unproven))
    }

    /// When each of these sessions ends, as far as this server, which may lead, keeps its deadline.
    fn dues(&self, sessions: &[SessionId]) -> Vec<(SessionId, Option<Millis>)> {
        let Some(server) = &self.nodes[self.at].server else { return Vec::new() };
        let sequencer = server.engine.sequencer();
        sessions.iter().map(|session| (*session, sequencer.session_due(*session))).collect()
    }

    /// Something is to find that this server's state is damaged.
    pub(crate) fn damage(&mut self, what: &str) {
        let damaged = CorruptState { finding: Finding::DamagedSnapshot, what: what.to_owned() };
        self.inside_after(0, Inner::ToConsensus(Event::StateCorrupt(damaged)));
    }

    pub(super) fn tell_engine(&mut self, event: Event) -> Checked {
        self.tell_engine_at(self.engine_time(), event)
    }

    fn tell_engine_at(&mut self, now: Now, event: Event) -> Checked {
        if let Some(server) = &mut self.nodes[self.at].server {
            server.engine.handle(now, event);
        }
        self.carry_out_effects()
    }

    pub(super) fn consensus_tick(&mut self) -> Checked {
        let every = if self.options.ensemble.is_some() { TICK } else { TICK_ALONE };
        let wait = every + self.schedule.delay(every / 50);
        self.inside_after(wait, Inner::Tick);
        let mut now = self.engine_time();
        self.wall_latest = self.wall_latest.max(now.wall);
        match self.options.bug {
            Some(Bug::ExpireEarly) => now.micros = now.micros.plus(Micros(2_000_000)),
            Some(Bug::ReapEarly) => now.wall = WallMillis(now.wall.0 + 3_600_000),
            _ => {}
        }
        self.tell_engine_at(now, Event::Tick)?;
        self.judge_tick()?;
        self.turn_engine()
    }

    fn turn_engine(&mut self) -> Checked {
        let life = self.nodes[self.at].life;
        loop {
            let now = self.engine_time();
            let electors = self.electors()?;
            let Some(server) = self.running(life) else { return Ok(()) };
            let applied = server.shards.iter().map(|side| side.taken).min().unwrap_or(u64::MAX);
            let turned = server.engine.turn(now, applied);
            self.judge_turn(electors)?;
            self.carry_out_effects()?;
            if let Turned::Done(wake_at) = turned {
                if let Some(at) = wake_at
                    && let Some(server) = self.running(life)
                    && server.wake_at.is_none_or(|planned| at < planned)
                {
                    server.wake_at = Some(at);
                    self.inside_after(at.since(now.micros).0, Inner::Wake(at));
                }
                self.judge_end_of_turn();
                return Ok(());
            }
        }
    }

    fn carry_out_effects(&mut self) -> Checked {
        let life = self.nodes[self.at].life;
        let mut effects = Vec::new();
        loop {
            let Some(server) = self.running(life) else { return Ok(()) };
            server.engine.take_effects(&mut effects);
            if effects.is_empty() {
                return Ok(());
            }
            for effect in effects.drain(..) {
                if self.running(life).is_none() {
                    return Ok(());
                }
                self.do_one(effect)?;
            }
        }
    }

    fn do_one(&mut self, effect: Effect) -> Checked {
        match effect {
            Effect::Shards(message) => self.tell_shards(&message),
            Effect::Shard(shard, message) => {
                if let ShardMessage::Refused(conns) = &message {
                    self.counts.refused += conns.len() as u64;
                }
                let shard = usize::from(shard.0);
                self.mail(Channel::ConsensusToShard(shard), Inner::ToShard(shard, message));
            }
            Effect::Log(message) => {
                if let ToLog::Append(append) = &message {
                    self.check.appended(&append.entries)?;
                }
                if matches!(message, ToLog::Reset(next) if next == BOOTSTRAP_INDEX.0 + 1) {
                    self.counts.founders += 1;
                    // All others have said that they hold nothing that was committed.
                    self.check.healed(self.at);
                    self.note(format_args!("server {} is a founder", self.at + 1));
                }
                self.mail(Channel::ConsensusToLog, Inner::ToLog(message));
            }
            Effect::WriteSnapshot(frozen) => {
                self.note(format_args!("snapshot of {} begins", frozen.zxid));
                self.mail(Channel::ConsensusToWriter, Inner::ToWriter(frozen));
            }
            Effect::Installed { zxid, index } => {
                self.purge((zxid, index))?;
                if self.options.bug == Some(Bug::RepairReplacesLog) {
                    return self.replace_log(index);
                }
            }
            Effect::Replaced { .. } | Effect::Drop(_) => {}
            Effect::Receive(receive) => self.mail(Channel::ConsensusToReceiver, Inner::ToReceiver(receive)),
            Effect::NoteStateCorrupt(reason) => {
                if reason.is_some() {
                    self.note(format_args!("server {} notes that its state is wrong", self.at + 1));
                }
                self.nodes[self.at].is_healing &= reason.is_some();
                self.nodes[self.at].distrusted = reason;
            }
            Effect::Scrub => self.inside_after(0, Inner::Scrub),
            Effect::Peers(command) => return self.tell_peers(command),
            Effect::End(Ended::Stopped) => self.stopped(),
            Effect::End(Ended::Damaged(reason)) => {
                self.note(format_args!("server {} ends: {reason}", self.at + 1));
                return self.crash(false);
            }
            Effect::End(Ended::NotABatch { index }) => {
                return Err(Violation::of("recovery", format!("committed entry {index} is no batch")));
            }
        }
        Ok(())
    }

    fn tell_peers(&mut self, command: ToPeers) -> Checked {
        match command {
            ToPeers::Send { peer, stream, kind, payload, announces_snapshot } => {
                return self.send_to_peer(peer, stream, Frame { kind, payload }, announces_snapshot);
            }
            ToPeers::Close { peer, .. } => {
                let what = format!("server {} does not understand server {peer}", self.at + 1);
                return Err(Violation::of("peers", what));
            }
            ToPeers::Connect(servers) => self.know(&servers),
            // All data here are of the first generation.
            ToPeers::Adopt(_) | ToPeers::Flush => {}
            ToPeers::Moved(moved) => {
                if let Some((_, port)) = moved.peers {
                    self.listen(port);
                }
                if moved.list.is_some() {
                    self.nodes[self.at].remembered = moved.list;
                }
            }
        }
        Ok(())
    }

    /// With [`Bug::RepairReplacesLog`]: the log ends where the installed snapshot ends, and the process with it.
    fn replace_log(&mut self, index: u64) -> Checked {
        let Some(server) = self.nodes[self.at].server.as_mut().filter(|server| server.log.log.last_index() > index)
        else {
            return Ok(());
        };
        server.log.log.reset_to(index + 1).map_err(|error| Violation::of("recovery", error.to_string()))?;
        self.crash(false)
    }

    fn tell_shards(&mut self, message: &ShardMessage) {
        match message {
            ShardMessage::Batch(batch) => {
                for txn in &batch.txns {
                    let is_new_list =
                        matches!(&txn.outcome, Outcome::Later(answer) if matches!(**answer, Outcome::Configured(_)));
                    self.counts.lists += u64::from(is_new_list);
                    self.note(format_args!("{} {:?}", txn.zxid, txn.outcome));
                }
            }
            ShardMessage::Flow(note) => {
                self.note(format_args!("server {} tells its shards {note:?}", self.at + 1));
                if let (Some(server), Flow::Pause | Flow::Resume) = (&mut self.nodes[self.at].server, note) {
                    server.flows = matches!(note, Flow::Resume);
                }
            }
            ShardMessage::Install(view, _) => {
                self.counts.installs += 1;
                self.note(format_args!("the snapshot of {} is installed", view.zxid()));
            }
            _ => {}
        }
        for shard in 0..usize::from(self.options.shards) {
            self.mail(Channel::ConsensusToShard(shard), Inner::ToShard(shard, message.clone()));
        }
    }
}
