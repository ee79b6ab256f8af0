//! Drives the consensus actor: its mailbox, its timers, the log and image threads it commands, the shards it tells.
//!
//! On its own executor or on a shard's. One turn: take what waits in the mailbox, let the replica do all it can, send
//! the results on: appends to the log thread, each committed batch to every shard, then the syncs that waited for it.

pub(crate) mod audience;
mod healing;
mod images;
mod stopping;

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use audience::{Audience, Taken};
use corral_consensus::{Effects, FORMED_INDEX, FORMED_TERM, Index, Install, LogDisk, Micros, NodeId, Replica, Term};
use corral_core::evaluate::QuotaExceeded;
use corral_core::ids::{ConnId, Millis, SessionId, ShardId};
use corral_core::sequencer::{Oversized, Ticked};
use corral_link::Generation;
use glommio::timer::Timer;
use healing::{Differences, Distrusted};
use stopping::Stopping;

use crate::actor::authority::Authority;
use crate::actor::messages::{Ending, ToConsensus, ToLog, ToShard, ToWords, ToWriter};
use crate::actor::peers::Peers;
use crate::actor::progress::{CatchUp, place_of};
use crate::actor::reconfig::reconfigure;
use crate::actor::serving::{Serving, Sight};
use crate::control::Gauges;
use crate::node::recovery::not_a_batch;
use crate::runtime::clock::Clock;
use crate::runtime::complaint::Allowance;
use crate::runtime::mailbox::Post;
use crate::runtime::turn::Turn;

/// Messages taken from the mailbox before the replica has its turn.
const MAILBOX_BATCH: usize = 256;
/// Lines for sessions that expire.
const EXPIRY_LINES_PER_SECOND: u32 = 20;
/// Raft's unit of time, and how often sessions are looked at, of a server that is alone.
const TICK: Duration = Duration::from_millis(100);

/// Where the actor's messages go.
pub(crate) struct ConsensusLinks {
    pub(crate) shards: Vec<Post<ToShard>>,
    /// What each of them has applied.
    pub(crate) taken: Vec<Taken>,
    pub(crate) log: flume::Sender<ToLog>,
    pub(crate) writer: flume::Sender<ToWriter>,
    pub(crate) words: flume::Sender<ToWords>,
    pub(crate) endings: flume::Sender<Ending>,
    pub(crate) gauges: Arc<Gauges>,
    /// The actor's own mailbox, for its timer.
    pub(crate) own: Post<ToConsensus>,
    /// The other servers of the ensemble, and its unit of time.
    pub(crate) peers: Option<(Peers, Duration)>,
}

/// See the module.
pub(crate) struct ConsensusActor {
    replica: Replica<Authority>,
    links: ConsensusLinks,
    clock: Clock,
    turn: Rc<Turn>,
    /// Syncs that wait for a read index, by token.
    syncs: HashMap<u64, (ShardId, Vec<ConnId>)>,
    next_token: u64,
    log_disk: LogDisk,
    stopping: Stopping,
    /// An image of another server takes the place of everything when the append of that number is durable.
    installing: Option<(u64, Index)>,
    /// Place in the log of the last such image.
    installed: u64,
    /// The log is damaged somewhere up to this entry: an image that holds it takes the place of all of the log before.
    damaged_to: Option<Index>,
    /// Present while the state is not to be trusted.
    distrusted: Option<Distrusted>,
    differences: Differences,
    /// An image could not be written, and waits to be tried again.
    retrying: bool,
    /// How often one could not be written since the last that was.
    failures: u32,
    /// Of the list of servers that the links follow.
    servers_version: Option<u64>,
    /// What a server that is alone shows; of one of an ensemble, [`Peers`] does.
    alone: Serving,
    /// The replica wants a turn then.
    wake_at: Option<Micros>,
    catch_up: CatchUp,
    expiries: Allowance,
    audience: Audience,
    /// The time for which a timer is set, where a task of its own drives the actor.
    alarm: Option<Micros>,
}

impl ConsensusActor {
    pub(crate) fn new(
        replica: Replica<Authority>,
        links: ConsensusLinks,
        clock: Clock,
        turn: Rc<Turn>,
    ) -> ConsensusActor {
        let audience = Audience::new(links.taken.clone(), replica.applied_bytes());
        let alone = Serving::new(Arc::clone(&links.gauges));
        ConsensusActor {
            alone,
            audience,
            replica,
            links,
            clock,
            turn,
            syncs: HashMap::new(),
            next_token: 1,
            log_disk: LogDisk::Writes,
            stopping: Stopping::No,
            installing: None,
            installed: 0,
            damaged_to: None,
            distrusted: None,
            differences: Differences::default(),
            retrying: false,
            failures: 0,
            servers_version: None,
            wake_at: None,
            catch_up: CatchUp::default(),
            expiries: Allowance::of(EXPIRY_LINES_PER_SECOND),
            alarm: None,
        }
    }

    /// Serves until stopped.
    pub(crate) async fn run(mut self, mailbox: flume::Receiver<ToConsensus>) {
        self.begin();
        while let Ok(first) = mailbox.recv_async().await {
            let piece = Turn::begin();
            if !self.take(first, &mailbox) {
                return;
            }
            self.set_alarm();
            self.turn.end(&piece);
            self.turn.yield_if_over().await;
        }
    }

    fn set_alarm(&mut self) {
        let wanted = self.wake_at.filter(|at| self.alarm.is_none_or(|set| *at < set));
        if let Some(rest) = wanted.and(self.rest()) {
            self.alarm = wanted;
            let own = self.links.own.clone();
            glommio::spawn_local(async move {
                Timer::new(rest).await;
                let _ = own.send(ToConsensus::Alarm);
            })
            .detach();
        }
    }

    /// How long the replica can do without a turn, if it wants one soon.
    fn rest(&self) -> Option<Duration> {
        self.wake_at.map(|at| Duration::from_micros(at.since(self.clock.now_us()).0))
    }

    fn begin(&mut self) {
        // Recovery may have taken longer than a session's timeout. In an ensemble deadlines begin with a leader.
        let now = self.clock.now();
        if self.links.peers.is_none() {
            self.replica.machine_mut().sequencer.start_deadlines(now);
        }
        let every = self.links.peers.as_ref().map_or(TICK, |(_, tick)| *tick);
        glommio::spawn_local(tick(self.links.own.clone(), every)).detach();
    }

    /// One turn over this message and those behind it. False when the process is to end.
    fn take(&mut self, first: ToConsensus, mailbox: &flume::Receiver<ToConsensus>) -> bool {
        for message in std::iter::once(first).chain(mailbox.try_iter().take(MAILBOX_BATCH)) {
            self.receive(message);
            if self.replica.has_much_prepared() {
                break;
            }
        }
        self.act()
    }

    fn receive(&mut self, message: ToConsensus) {
        let now = self.clock.now();
        match message {
            ToConsensus::Proposed { shard, proposals, syncs } => {
                if !proposals.commands.is_empty() {
                    let refused = self.replica.machine_mut().proposed(now, proposals);
                    if !refused.is_empty() {
                        let _ = self.links.shards[usize::from(shard.0)].send(ToShard::Refused(refused));
                    }
                }
                if !syncs.is_empty() {
                    let token = self.next_token;
                    self.next_token += 1;
                    self.syncs.insert(token, (shard, syncs));
                    self.replica.read_index(token);
                }
            }
            ToConsensus::Heard { shard, upto, sessions } => {
                self.replica.machine_mut().heard(shard, upto, &sessions);
            }
            ToConsensus::Durable(number) => {
                self.replica.persisted(self.clock.now_us(), number);
                self.install_if_durable(number);
            }
            ToConsensus::NoSpace(full) => self.log_disk = if full { LogDisk::Full } else { LogDisk::Writes },
            ToConsensus::Alarm => self.alarm = None,
            ToConsensus::ImageWritten(written) => self.image_written(written),
            ToConsensus::ImageFailed { index, was_tried } => self.image_failed(index, was_tried),
            ToConsensus::RetryImage(index) => self.retry_image(index),
            ToConsensus::Distrust(distrust) => self.found_wrong(&distrust),
            ToConsensus::LogDamaged(what) => self.log_damaged(&what),
            ToConsensus::Snapshot => self.snapshot_if(|sequencer| sequencer.has_changes()),
            ToConsensus::Tick => self.tick(),
            ToConsensus::Incoming(incoming) => {
                if let Some((peers, _)) = &mut self.links.peers {
                    let installing = self.installing.map(|(_, index)| index);
                    peers.incoming(now, incoming, installing, &mut self.replica);
                }
            }
            ToConsensus::Peer(event) => {
                if let Some((peers, _)) = &mut self.links.peers {
                    peers.take(now, event, &mut self.replica);
                }
            }
            ToConsensus::Stop => {
                if self.stopping == Stopping::No {
                    tracing::info!("stopping: answering what is under way");
                    self.stopping = Stopping::Draining(self.links.shards.len());
                    self.tell_shards(|| ToShard::Drain);
                }
            }
            ToConsensus::Drained => {
                if let Stopping::Draining(left) = self.stopping {
                    self.stopping = Stopping::Draining(left - 1);
                }
            }
            ToConsensus::SessionsAsked { asker, from } => {
                let piece = Box::new(self.replica.machine().sequencer.report_sessions(&from));
                let _ = self.links.words.send(ToWords::Sessions { asker, piece });
            }
        }
    }

    fn tick(&mut self) {
        let now = self.clock.now();
        self.replica.tick();
        self.end_if_stuck();
        if let Some((peers, _)) = &mut self.links.peers {
            peers.tick(now, &self.replica);
            self.replica.reconcile(&peers.wanted);
            peers.relieve(self.clock.now_us(), self.log_disk, &mut self.replica);
            peers.show_quorum(self.clock.now_us(), &self.replica);
        }
        self.show_serving(now);
        let Ticked { expired, reaped } = self.replica.machine_mut().tick(now, self.clock.wall());
        self.tell_expired(now, &expired);
        for chosen in reaped {
            tracing::debug!(path = &*chosen.path, "container or TTL node outlived");
        }
        let applies = self.log_disk == LogDisk::Writes && !self.replica.is_distrusted();
        if let Some(progress) = self.catch_up.look(Duration::from_millis(now.0), place_of(&self.replica))
            && applies
        {
            progress.log();
        }
        if let Some(report) = self.replica.machine_mut().sequencer.quota_report(now) {
            let QuotaExceeded { path, of, usage, limit, hard, refused } = report.last;
            tracing::warn!(path = &*path, ?of, usage, limit, hard, refused, writes = report.writes, "quota exceeded");
        }
        if let Some(Oversized { session, bytes, bytes_max }) = self.replica.machine_mut().sequencer.take_oversized() {
            tracing::warn!(%session, bytes, bytes_max, "a command that fits no log entry here was refused");
        }
        self.snapshot_if(|sequencer| sequencer.wants_snapshot(now));
        if self.links.peers.is_some() {
            reconfigure(&mut self.replica, now, self.clock.wall());
        }
        self.compare_digests(now);
        self.replace_damaged_log();
    }

    /// Why this server takes no sessions and writes, if it does not.
    fn show_serving(&mut self, now: Millis) {
        let stopping = self.stopping != Stopping::No;
        if let Some((peers, _)) = &mut self.links.peers {
            return peers.show_serving(now, &self.replica, stopping, self.installing.is_some());
        }
        let stalled = self.log_disk == LogDisk::Full;
        self.links.gauges.stalled.store(stalled, Ordering::Relaxed);
        self.alone.look(now, &self.replica, &Sight::alone(stopping, stalled));
    }

    /// A line for each session that expired, as long as they are few; the rest are counted.
    fn tell_expired(&mut self, now: Millis, expired: &[SessionId]) {
        let lines = expired.iter().filter(|_| self.expiries.line(now.0).is_some()).count();
        for session in &expired[..lines] {
            tracing::info!(%session, "session expired");
        }
        if expired.len() > lines {
            tracing::info!(sessions = expired.len() - lines, "more sessions expired");
        }
    }

    /// One turn of the replica and everything it leads to. False when the process is to end.
    fn act(&mut self) -> bool {
        let (now, wall) = (self.clock.now(), self.clock.wall());
        self.replica.machine_mut().set_time(now, wall);
        for newborn in self.replica.machine_mut().take_newborns() {
            self.replica.heard_newborn(NodeId(u64::from(newborn)));
        }
        if self.links.peers.is_some() && self.replica.machine().sequencer.is_reconfiguring() {
            reconfigure(&mut self.replica, now, wall);
        }
        self.wait_for_shards();
        let mut effects = Effects::default();
        if !self.turn_replica(&mut effects) {
            return false;
        }
        if self.links.peers.is_some() {
            self.follow_list();
            self.stand(&mut effects);
            // Commands that waited for a leader may go now.
            if !self.turn_replica(&mut effects) {
                return false;
            }
            self.follow_list();
            self.stand(&mut effects);
        }
        self.wake_at = effects.wake_at;
        self.tell_applied();
        self.tell_notes();
        for token in effects.reads {
            self.answer_syncs(token, ToShard::Synced);
        }
        for token in effects.reads_refused {
            self.answer_syncs(token, ToShard::SyncRefused);
        }
        // Behind the batches: a shard adopts what is frozen where it stands itself.
        self.form_if_complete();
        if effects.image_wanted {
            self.offer_image();
        }
        self.flush();
        self.go_on_stopping()
    }

    /// What was said to other servers leaves: behind the waking of the log's thread, which takes less time.
    fn flush(&self) {
        if let Some((peers, _)) = &self.links.peers {
            peers.flush();
        }
    }

    /// All that the replica can do now; false when it cannot go on.
    fn turn_replica(&mut self, effects: &mut Effects) -> bool {
        let now = self.clock.now_us();
        let mut more = true;
        while more {
            let Ok(turned) = self.replica.turn(now, effects) else {
                let _ = self.links.endings.send(Ending::Failed(not_a_batch(self.replica.applied())));
                return false;
            };
            if let Some((peers, _)) = &self.links.peers {
                peers.send_raft(std::mem::take(&mut effects.messages), &mut self.replica);
            }
            for Install { number, image } in effects.installs.drain(..) {
                let here = self.links.peers.as_ref().is_some_and(|(peers, _)| peers.has_arrived(image.index));
                assert!(here, "an image is announced to Raft when it is here, and nothing is dropped before");
                let _ = self.links.log.send(ToLog::Reset(image.index.0 + 1));
                self.damaged_to = None;
                self.installing = Some((number, image.index));
            }
            for append in effects.appends.drain(..) {
                let _ = self.links.log.send(ToLog::Append(append));
            }
            self.flush();
            more = turned;
        }
        true
    }

    /// The links follow the list of servers.
    fn follow_list(&mut self) {
        let version = Some(self.replica.machine().sequencer.servers_version());
        if self.servers_version != version
            && let Some((peers, _)) = &mut self.links.peers
        {
            self.servers_version = version;
            peers.follow(&mut self.replica);
        }
    }

    /// What a turn means for the way of commands, and what is to be said to other servers because of it.
    fn stand(&mut self, effects: &mut Effects) {
        let Some((peers, _)) = &mut self.links.peers else { return };
        let stalled = peers.is_stalled(self.log_disk, self.replica.applied());
        let member = self.replica.machine_mut();
        if let Some(change) = effects.role.take() {
            let standing = peers.tell(change);
            member.stand(standing, change.term.0);
        }
        member.stall(stalled);
        member.settle();
        let raft = self.replica.raft();
        let grown_up = !raft.is_newborn() && !raft.is_pristine();
        peers.is_blank = !grown_up;
        let member = self.replica.machine_mut();
        if grown_up {
            member.grow_up();
        }
        peers.show_reconfig(member.sequencer.reconfig_step());
        peers.send(member.take_sends());
    }

    /// A server lags so far behind that it needs an image: the newest, if that is of any use. Only behind the turn's batches.
    fn offer_image(&mut self) {
        if let Some((peers, _)) = &self.links.peers {
            let newest = peers.offer.newest();
            self.snapshot_if(|sequencer| sequencer.index() > newest);
        }
    }

    /// All founders are newborn: the empty state becomes durable with them as its members, see [`Self::formed`].
    fn form_if_complete(&mut self) {
        let Some((peers, _)) = &self.links.peers else { return };
        if !peers.may_begin() || !self.replica.machine_mut().forms(FORMED_INDEX.0, FORMED_TERM.0) {
            return;
        }
        tracing::info!("all servers that vote have no data: a new ensemble begins");
        self.snapshot_if(|_| true);
    }

    /// The ensemble has begun, and this server will remember that.
    fn formed(&mut self) {
        let _ = self.links.log.send(ToLog::Reset(FORMED_INDEX.0 + 1));
        self.replica.form();
        self.replica.machine_mut().formed();
        if let Some((peers, _)) = &self.links.peers {
            peers.adopt(Generation::FIRST);
        }
    }

    /// The log is empty behind the image that another server gave: from here on this server has that image's state.
    fn install_if_durable(&mut self, number: u64) {
        let Some((_, index)) = self.installing.filter(|(wanted, _)| *wanted <= number) else { return };
        self.installing = None;
        let arrived = self.links.peers.as_mut().and_then(|(peers, _)| peers.arrived(index));
        let loaded = arrived.expect("an image is announced to Raft when it is here");
        let (offered, head, generation) = (loaded.offered(), loaded.head, loaded.generation());
        let machine = loaded.state();
        let (view, alive) = (machine.view().clone(), machine.sessions().len() as u64);
        self.replica.machine_mut().installed(machine, head.index, head.term);
        self.replica.installed(index);
        self.replica.compact(index, Term(head.term));
        self.installed = head.index;
        self.links.gauges.served_image.store(head.index, Ordering::Relaxed);
        self.healed();
        if let Some((peers, _)) = &mut self.links.peers {
            peers.offer.add(offered);
            peers.adopt(generation);
        }
        self.tell_shards(|| ToShard::Install(Box::new(view.clone()), alive));
        tracing::info!(index = head.index, zxid = %view.zxid(), nodes = view.node_count(), "the image is installed");
    }

    /// What the shards are to be told of the way of commands, behind the batches before it.
    fn tell_notes(&mut self) {
        for note in self.replica.machine_mut().take_notes() {
            if let Some((peers, _)) = &mut self.links.peers {
                peers.noted(note);
            }
            self.tell_shards(|| ToShard::Note(note));
        }
    }

    fn answer_syncs(&mut self, token: u64, message: impl Fn(Vec<ConnId>) -> ToShard) {
        if let Some((shard, list)) = self.syncs.remove(&token) {
            let _ = self.links.shards[usize::from(shard.0)].send(message(list));
        }
    }
}

/// The actor as a shard drives it that shares its executor with it: no task of its own, and no wake-up between the two.
pub(crate) struct Resident {
    actor: ConsensusActor,
    mailbox: flume::Receiver<ToConsensus>,
    over: bool,
}

impl Resident {
    pub(crate) fn new(actor: ConsensusActor, mailbox: flume::Receiver<ToConsensus>) -> Resident {
        Resident { actor, mailbox, over: false }
    }

    /// To be called once, on the executor, before the first turn.
    pub(crate) fn begin(&mut self) {
        self.actor.begin();
    }

    /// One turn, if there is anything to do.
    pub(crate) fn turn(&mut self) {
        if self.over {
            return;
        }
        if let Ok(first) = self.mailbox.try_recv() {
            self.over = !self.actor.take(first, &self.mailbox);
        } else if self.rest() == Some(Duration::ZERO) {
            self.over = !self.actor.act();
        }
    }

    /// Whether nothing waits for a turn.
    pub(crate) fn is_quiet(&self) -> bool {
        self.over || self.mailbox.is_empty() && self.rest() != Some(Duration::ZERO)
    }

    /// A turn is wanted after this time even if nothing comes.
    pub(crate) fn rest(&self) -> Option<Duration> {
        self.actor.rest().filter(|_| !self.over)
    }

    /// Whether the process is to end.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// For an executor whose shard does not drive it.
    pub(crate) async fn run(self) {
        self.actor.run(self.mailbox).await;
    }
}

async fn tick(mailbox: Post<ToConsensus>, every: Duration) {
    loop {
        Timer::new(every).await;
        if mailbox.send(ToConsensus::Tick).is_err() {
            return;
        }
    }
}
