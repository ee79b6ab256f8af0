//! Drives the engine: its mailbox, its timers, the log and snapshot threads it commands, the shards it tells, the other
//! servers.
//!
//! On its own executor or on a shard's. One turn: take what waits in the mailbox, let the engine do all it can, and
//! carry out what it asks for. Decides nothing.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use corral_consensus::{Micros, ServerId};
use corral_core::report::session_piece;
use corral_core::shard::ShardMessage;
use corral_engine::{
    CorruptState, Effect, Ended, Engine, Event, Finding, Now, PeerEvent, Status, ToLog, ToPeers, Turned,
};
use glommio::timer::Timer;

use crate::actor::append_times::AppendTimes;
use crate::actor::taken::Taken;
use crate::exit::not_a_batch;
use crate::exit::{Ending, ExitCode, Fault};
use crate::gauges::Gauges;
use crate::messages::{ToConsensus, ToControl, ToShard, ToSnapshotReceiver, ToWriter};
use crate::net::peers::event::{Direction, Reason};
use crate::net::peers::{ConnectionEvent, PeerConnections};
use crate::runtime::clock::Clock;
use crate::runtime::mailbox::Post;
use crate::runtime::turn::Turn;

/// Messages taken from the mailbox before the engine has its turn.
const MAILBOX_BATCH: usize = 256;

/// Where the actor's messages go.
pub(crate) struct ConsensusChannels {
    pub(crate) shards: Vec<Post<ToShard>>,
    /// How far each shard has applied.
    pub(crate) taken: Vec<Taken>,
    pub(crate) log: flume::Sender<corral_engine::ToLog>,
    pub(crate) writer: flume::Sender<ToWriter>,
    pub(crate) snapshot_receiver: flume::Sender<ToSnapshotReceiver>,
    /// Asks the scrubber to read everything now.
    pub(crate) scrub: flume::Sender<()>,
    pub(crate) ports: flume::Sender<corral_engine::Moved>,
    pub(crate) control: flume::Sender<ToControl>,
    pub(crate) endings: flume::Sender<Ending>,
    pub(crate) gauges: Arc<Gauges>,
    /// The actor's own mailbox, for its timer.
    pub(crate) own: Post<ToConsensus>,
    /// To the other servers of the ensemble.
    pub(crate) peers: Option<Arc<PeerConnections>>,
    /// The engine's unit of time.
    pub(crate) tick: Duration,
}

/// Drives the engine: takes events from the mailbox, and carries out the engine's effects.
pub(crate) struct ConsensusActor {
    engine: Box<Engine>,
    channels: ConsensusChannels,
    clock: Clock,
    turn: Rc<Turn>,
    /// The effects of the last step, kept for their memory.
    effects: Vec<Effect>,
    times: AppendTimes,
    /// The engine's status as it was shown last.
    shown: Option<Status>,
    /// As it was reported last.
    stranger: Option<ServerId>,
    /// The engine wants a turn then.
    wake_at: Option<Micros>,
    /// The time for which a timer is set, where a task of its own drives the actor.
    timer: Option<Micros>,
    over: bool,
}

impl ConsensusActor {
    pub(crate) fn new(
        engine: Box<Engine>,
        channels: ConsensusChannels,
        clock: Clock,
        turn: Rc<Turn>,
    ) -> ConsensusActor {
        let times = AppendTimes::new(channels.gauges.add_latencies());
        ConsensusActor {
            engine,
            times,
            channels,
            clock,
            turn,
            effects: Vec::new(),
            shown: None,
            stranger: None,
            wake_at: None,
            timer: None,
            over: false,
        }
    }

    /// Serves until stopped.
    pub(crate) async fn run(mut self, mailbox: flume::Receiver<ToConsensus>) {
        self.begin();
        while let Ok(first) = mailbox.recv_async().await {
            let piece = Turn::begin();
            self.take(first, &mailbox);
            if self.over {
                return;
            }
            self.set_timer();
            self.turn.end(&piece);
            self.turn.yield_if_over().await;
        }
    }

    fn set_timer(&mut self) {
        let wanted = self.wake_at.filter(|at| self.timer.is_none_or(|set| *at < set));
        if let Some(rest) = wanted.and(self.rest()) {
            self.timer = wanted;
            let own = self.channels.own.clone();
            glommio::spawn_local(async move {
                Timer::new(rest).await;
                let _ = own.send(ToConsensus::Timer);
            })
            .detach();
        }
    }

    /// How long the engine can do without a turn, if it wants one soon.
    fn rest(&self) -> Option<Duration> {
        self.wake_at.map(|at| Duration::from_micros(at.since(self.clock.now_us()).0))
    }

    fn begin(&mut self) {
        self.engine.begin(self.now());
        self.show();
        glommio::spawn_local(tick(self.channels.own.clone(), self.channels.tick)).detach();
    }

    fn now(&self) -> Now {
        Now { micros: self.clock.now_us(), wall: self.clock.wall() }
    }

    /// One turn over this message and those behind it.
    fn take(&mut self, first: ToConsensus, mailbox: &flume::Receiver<ToConsensus>) {
        for message in std::iter::once(first).chain(mailbox.try_iter().take(MAILBOX_BATCH)) {
            self.receive(message);
            if self.over || self.engine.needs_turn() {
                break;
            }
        }
        self.act();
    }

    fn receive(&mut self, message: ToConsensus) {
        match message {
            ToConsensus::Requests { shard, requests, sent } => {
                self.times.queued(self.clock.now_us().since(sent).0);
                self.handle(Event::Requests(shard, requests));
            }
            ToConsensus::Event(event) => {
                if let Event::Durable(number) = &event {
                    self.times.synced(self.clock.now_us(), *number);
                }
                if let Event::Tick = &event {
                    self.show_digests();
                    // It was reported when it failed first.
                    let _ = self.channels.peers.as_ref().map(|peers| peers.add_missing());
                }
                if let Event::StateCorrupt(found)
                | Event::CopiedDamage { found, .. }
                | Event::SnapshotFailed { found: Some(found), .. } = &event
                {
                    self.count(found);
                }
                self.handle(event);
            }
            ToConsensus::Peer(event) => self.take_connection_event(event),
            ToConsensus::Timer => self.timer = None,
            ToConsensus::SessionsAsked { asker, from } => {
                let piece = Box::new(session_piece(self.engine.sequencer(), &from));
                let _ = self.channels.control.send(ToControl::Sessions { asker, piece });
            }
        }
    }

    fn take_connection_event(&mut self, event: ConnectionEvent) {
        match event {
            ConnectionEvent::Name { peer, resolves } => self.handle_peer(peer, PeerEvent::Name { resolves }),
            ConnectionEvent::Up { peer, direction: Direction::Out, stream, .. } => {
                self.handle_peer(peer, PeerEvent::ConnectedTo { stream });
            }
            ConnectionEvent::Up { peer, direction: Direction::In, stream, incarnation } => {
                self.handle_peer(peer, PeerEvent::Accepted { stream, incarnation });
            }
            ConnectionEvent::Down { peer, direction, stream, reason } => {
                let gone = matches!(reason, Reason::Closed | Reason::Reset);
                let event = match direction {
                    Direction::Out => PeerEvent::DisconnectedFrom { stream, gone },
                    Direction::In => PeerEvent::Lost { stream, gone },
                };
                self.handle_peer(peer, event);
            }
            ConnectionEvent::Frames { peer, stream, frames, hold } => {
                frames.into_iter().for_each(|frame| self.handle_peer(peer, PeerEvent::Frame { stream, frame }));
                drop(hold);
            }
        }
    }

    fn handle_peer(&mut self, peer: ServerId, event: PeerEvent) {
        self.handle(Event::Peer(peer, event));
    }

    fn handle(&mut self, event: Event) {
        if !self.over {
            self.engine.handle(self.now(), event);
            self.carry_out();
        }
    }

    /// One turn of the engine.
    fn act(&mut self) {
        self.report_stranger();
        while !self.over {
            let turned = self.engine.turn(self.now(), Taken::by_all(&self.channels.taken));
            self.times.applied(self.clock.now_us(), self.engine.replica().applied().0);
            self.carry_out();
            if let Turned::Done(wake_at) = turned {
                self.wake_at = wake_at;
                break;
            }
        }
        self.show();
    }

    fn report_stranger(&mut self) {
        let Some(channels) = &self.channels.peers else { return };
        let stranger = channels.stranger();
        if stranger != self.stranger {
            self.stranger = stranger;
            self.handle(Event::UnknownServer(stranger));
        }
    }

    fn carry_out(&mut self) {
        let mut effects = std::mem::take(&mut self.effects);
        loop {
            self.engine.take_effects(&mut effects);
            if effects.is_empty() {
                break;
            }
            for effect in effects.drain(..) {
                self.do_one(effect);
            }
        }
        self.effects = effects;
    }

    fn do_one(&mut self, effect: Effect) {
        let channels = &self.channels;
        match effect {
            Effect::Shards(message) => channels.shards.iter().for_each(|shard| self.tell(shard, message.clone())),
            Effect::Shard(shard, message) => self.tell(&channels.shards[usize::from(shard.0)], message),
            Effect::Log(message) => {
                if let ToLog::Append(append) = &message {
                    self.times.begin(self.clock.now_us(), append);
                }
                let _ = channels.log.send(message);
            }
            Effect::WriteSnapshot(frozen) => drop(channels.writer.send(ToWriter::Write(frozen))),
            Effect::Replaced { snapshot, by, installs } => {
                drop(channels.writer.send(ToWriter::Replaced { snapshot, by, installs }));
            }
            Effect::Installed { zxid, index } => drop(channels.writer.send(ToWriter::Installed { zxid, index })),
            Effect::Drop(garbage) => drop(channels.writer.send(ToWriter::Drop(garbage))),
            Effect::Receive(receive) => drop(channels.snapshot_receiver.send(ToSnapshotReceiver::Receive(receive))),
            Effect::NoteStateCorrupt(reason) => drop(channels.snapshot_receiver.send(ToSnapshotReceiver::Note(reason))),
            Effect::Scrub => {
                if channels.scrub.is_empty() {
                    let _ = channels.scrub.send(());
                }
            }
            Effect::End(ended) => {
                self.over = true;
                let _ = channels.endings.send(match ended {
                    Ended::Stopped => Ending::Stopped,
                    Ended::NotABatch { index } => Ending::Failed(not_a_batch(index)),
                    Ended::Damaged(sentence) => Ending::Failed(Fault::new(ExitCode::DataDamaged, sentence)),
                });
            }
            Effect::Peers(command) => self.tell_peers(command),
        }
    }

    fn tell(&self, shard: &Post<ToShard>, message: ShardMessage) {
        let sent = Some(self.clock.now_us());
        let _ = shard.send(ToShard::Message { message, sent });
    }

    fn tell_peers(&mut self, command: ToPeers) {
        let Some(peers) = &self.channels.peers else { return };
        match command {
            ToPeers::Send { peer, stream: Some(stream), kind, payload, .. } => {
                // Where it is not taken the connection has ended, and that is reported.
                let _ = peers.send_on(peer, stream, kind, payload);
            }
            ToPeers::Send { peer, stream: None, kind, payload, announces_snapshot: announced_snapshot } => {
                if peers.send(peer, kind, payload).is_err() {
                    let event = PeerEvent::Undelivered { announced_snapshot };
                    self.engine.handle(self.now(), Event::Peer(peer, event));
                }
            }
            ToPeers::Flush => peers.flush(),
            ToPeers::Close { peer, stream } => peers.shut(peer, stream),
            ToPeers::Connect(servers) => {
                if let Err(error) = peers.configure(servers) {
                    tracing::error!("peer connections cannot follow the membership, trying again: {error}");
                }
            }
            ToPeers::Adopt(generation) => {
                if let Err(error) = peers.adopt(generation) {
                    tracing::error!("peer connections cannot be restarted, trying again: {error}");
                }
            }
            // Fails only if no thread receives yet, because this server is told to stop.
            ToPeers::Moved(moved) => {
                moved.list.iter().for_each(|list| self.channels.gauges.show_members(list.clone()));
                let _ = self.channels.ports.send(moved);
            }
        }
    }

    // ----- figures -----

    /// Counts a finding of another component than the engine.
    fn count(&self, distrust: &CorruptState) {
        let gauges = &self.channels.gauges;
        match distrust.finding {
            Finding::DivergedDigest => gauges.digest_mismatches.fetch_add(1, Ordering::Relaxed),
            Finding::DamagedSnapshot => gauges.scrub_damaged.fetch_add(1, Ordering::Relaxed),
            Finding::NotedByEarlierProcess => 0,
        };
    }

    /// Stores the digests in the gauges, once a tick.
    fn show_digests(&mut self) {
        let mismatches = self.engine.take_digest_mismatches();
        let view = self.engine.sequencer().view();
        self.channels.gauges.show_digests(mismatches, view.digest_log());
    }

    /// Stores the engine's status in the gauges, as soon as it changes.
    fn show(&mut self) {
        let status = self.engine.status();
        if self.shown.as_ref() != Some(status) {
            self.channels.gauges.show(status);
            self.shown = Some(*status);
        }
    }
}

/// The actor as a shard drives it that shares its executor with it: no task of its own, and no wake-up between the two.
pub(crate) struct Resident {
    actor: ConsensusActor,
    mailbox: flume::Receiver<ToConsensus>,
}

impl Resident {
    pub(crate) fn new(actor: ConsensusActor, mailbox: flume::Receiver<ToConsensus>) -> Resident {
        Resident { actor, mailbox }
    }

    /// To be called once, on the executor, before the first turn.
    pub(crate) fn begin(&mut self) {
        self.actor.begin();
    }

    /// One turn, if there is anything to do.
    pub(crate) fn turn(&mut self) {
        if self.actor.over {
            return;
        }
        if let Ok(first) = self.mailbox.try_recv() {
            self.actor.take(first, &self.mailbox);
        } else if self.rest() == Some(Duration::ZERO) {
            self.actor.act();
        }
    }

    /// Whether nothing waits for a turn.
    pub(crate) fn is_quiet(&self) -> bool {
        self.actor.over || self.mailbox.is_empty() && self.rest() != Some(Duration::ZERO)
    }

    /// A turn is wanted after this time even if nothing comes.
    pub(crate) fn rest(&self) -> Option<Duration> {
        self.actor.rest().filter(|_| !self.actor.over)
    }

    /// Whether the process is to end.
    pub(crate) fn is_over(&self) -> bool {
        self.actor.over
    }

    /// Serves on an executor without a shard that drives the actor.
    pub(crate) async fn run(self) {
        self.actor.run(self.mailbox).await;
    }
}

async fn tick(mailbox: Post<ToConsensus>, every: Duration) {
    loop {
        Timer::new(every).await;
        if mailbox.send(Event::Tick.into()).is_err() {
            return;
        }
    }
}
