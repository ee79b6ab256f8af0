//! The engine of one server: it takes events, drives the replica turn by turn, and composes the components that decide.
//!
//! Each component guards its own state, in its own file: `ensemble`, `sync_requests`, `snapshots`, `state_repair`,
//! `shutdown`, `scarcity`, `shard_backlog` and `expiry_log`. In one call they share a `Context`. The crate's page
//! states the order of calls.

mod context;
mod expiry_log;
mod installation;
mod refusals;
mod scarcity;
mod shard_backlog;
mod shutdown;
mod snapshots;
mod state_repair;
mod sync_requests;
mod turned;

pub use turned::Turned;

use std::sync::Arc;
use std::time::Duration;

use corral_consensus::limits::PREPARED_BYTES_MAX;
use corral_consensus::{
    BOOTSTRAP_INDEX, BOOTSTRAP_TERM, Effects as RaftEffects, Index, Install, LogDisk, Micros, RaftNode, Replica, Term,
};
use corral_core::apply::outcome::AppliedBatch;
use corral_core::ids::ShardId;
use corral_core::report::Mode;
use corral_core::sequencer::{Sequencer, Ticked, take_wrong_attaches};
use corral_core::shard::{self, Requests, SessionActivity, ShardMessage};
use corral_peer::Generation;

use crate::effect::{Effect, Ended, Garbage, Outbox, Status, ToLog, ToPeers};
use crate::event::{CorruptState, Event, Now, PeerEvent, WrittenSnapshot};
use crate::machine::Replicated;
use crate::membership::{next_step, propose_step};
use crate::outgoing::send_raft;
use crate::peers::{Ensemble, PeerContext, Peers};
use crate::progress::{CatchUp, log_position_of};
use crate::recovery::Member;
use crate::serving::{ServerState, Serving, log_bootstrap};
use crate::settings::Settings;
use crate::snapshot::{Arrived, Offered};
use context::Context;
use expiry_log::ExpiryLog;
use refusals::log_refusals;
use scarcity::Scarcity;
use shard_backlog::ShardBacklog;
use shutdown::Shutdown;
use snapshots::Snapshots;
use state_repair::StateRepair;
use sync_requests::SyncRequests;
use turned::Stage;

/// Bytes that a frame of another server counts for beside its payload, because many frames may be small.
const FRAME_BYTES: usize = 128;

/// The engine of one server. Owned by its driver, on one thread.
pub struct Engine<M: Replicated = Sequencer> {
    replica: Replica,
    machine: M,
    /// `None` of a standalone server.
    ensemble: Option<Ensemble>,
    shards: usize,
    out: Outbox,
    /// Batches that this turn applied, for the shards.
    applied: Vec<AppliedBatch>,
    /// Requests of the replica in this turn that are not in `out` yet.
    asked: RaftEffects,
    stage: Stage,
    syncs: SyncRequests,
    snapshots: Snapshots,
    repair: StateRepair,
    shutdown: Shutdown,
    backlog: ShardBacklog,
    scarcity: Scarcity,
    expiry_log: ExpiryLog,
    catch_up: CatchUp,
    log_disk: LogDisk,
    /// Bytes of the frames that were handled since the last turn, see [`FRAME_BYTES`].
    frame_bytes: usize,
    /// Why a standalone server does not serve; in an ensemble, [`Peers`] has that.
    standalone: Serving,
}

/// Components of the engine that work on its other parts.
struct Parts<'a> {
    snapshots: &'a mut Snapshots,
    repair: &'a mut StateRepair,
    shutdown: &'a mut Shutdown,
}

impl<M: Replicated> Engine<M> {
    /// An engine for the member that [`crate::recovery::recover`] made.
    ///
    /// # Panics
    /// If either settings or member are those of a standalone server, and the other is not.
    pub fn new(member: Member<M>, settings: Settings) -> Engine<M> {
        let Settings { shards, snapshots_retained, newest, ensemble } = settings;
        let Member { replica, machine, forwarding } = member;
        assert_eq!(ensemble.is_some(), forwarding.is_some(), "settings and data are of one kind");
        let served_snapshot = newest.as_ref().map_or(0, |snapshot| snapshot.index);
        let mode = if ensemble.is_some() { Mode::Looking } else { Mode::Standalone };
        let status = Status::new(mode, served_snapshot);
        let snapshots = Snapshots::new(machine.sequencer().snapshot_running(), snapshots_retained);
        let ensemble =
            ensemble.zip(forwarding).map(|(settings, forwarding)| Ensemble::new(settings, newest, forwarding));
        Engine {
            backlog: ShardBacklog::new(replica.applied_bytes()),
            replica,
            machine,
            ensemble,
            shards,
            out: Outbox { effects: Vec::new(), status },
            applied: Vec::new(),
            asked: RaftEffects::default(),
            stage: Stage::Rest,
            syncs: SyncRequests::new(),
            snapshots,
            repair: StateRepair::default(),
            shutdown: Shutdown::new(),
            scarcity: Scarcity::default(),
            expiry_log: ExpiryLog::default(),
            catch_up: CatchUp::default(),
            log_disk: LogDisk::Writes,
            frame_bytes: 0,
            standalone: Serving::default(),
        }
    }

    /// Starts the deadlines of sessions on a standalone server. Called once, before any event.
    pub fn begin(&mut self, now: Now) {
        // Recovery may have taken longer than a session's timeout. In an ensemble deadlines start with a leader.
        if self.ensemble.is_none() {
            self.machine.sequencer_mut().start_deadlines(now.millis());
        }
    }

    /// The replica, read only.
    #[must_use]
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    /// The Raft node, read only.
    #[must_use]
    pub fn raft(&self) -> &RaftNode {
        self.replica.raft()
    }

    /// The sequencer, read only.
    #[must_use]
    pub fn sequencer(&self) -> &Sequencer {
        self.machine.sequencer()
    }

    /// The replicated machine. A simulator keeps its records there.
    pub fn machine_mut(&mut self) -> &mut M {
        &mut self.machine
    }

    /// The status, as of the last call.
    #[must_use]
    pub fn status(&self) -> &Status {
        &self.out.status
    }

    /// Number of differences to other servers' digests found since the last call.
    #[must_use]
    pub fn take_digest_mismatches(&mut self) -> u64 {
        self.ensemble.as_mut().map_or(0, |ensemble| ensemble.forwarding.take_digest_mismatches())
    }

    /// Appends the effects of the calls so far to `into`, in the order in which they are to be carried out. Called after
    /// each call of [`Engine::handle`] and [`Engine::turn`].
    pub fn take_effects(&mut self, into: &mut Vec<Effect>) {
        into.append(&mut self.out.effects);
    }

    /// Whether a turn is due before the next event: received entries are held in memory until then.
    #[must_use]
    pub fn needs_turn(&self) -> bool {
        self.replica.has_much_prepared() || self.frame_bytes as u64 >= PREPARED_BYTES_MAX
    }

    /// Handles one event. Most of its effects follow with the next turn.
    pub fn handle(&mut self, now: Now, event: Event) {
        match event {
            Event::Tick => self.tick(now),
            Event::Requests(shard, requests) => self.take_requests(now, shard, requests),
            Event::SessionActivity(shard, activity) => self.take_activity(shard, &activity),
            Event::Durable(number) => {
                self.replica.persisted(&self.machine, now.micros, number);
                self.install_if_durable(now, number);
            }
            Event::LogFull(full) => {
                self.log_disk = if full { LogDisk::Full } else { LogDisk::Writes };
                let (parts, mut context) = self.parts(now);
                parts.snapshots.give_up_log_if(full, &mut context);
            }
            Event::SnapshotWritten(written) => self.snapshot_written(now, written),
            Event::SnapshotFailed { index, was_tried, found } => self.snapshot_failed(now, index, was_tried, found),
            Event::SnapshotRequested => self.write_snapshot_if(now, snapshots::differs_from_last),
            Event::StateCorrupt(found) => self.begin_repair(now, &found),
            Event::CopiedDamage { found, installs } => {
                // Data that were copied before an install are gone.
                if installs == self.snapshots.installs() {
                    self.begin_repair(now, &found);
                }
            }
            Event::LogRead(entries) => {
                if entries.is_empty() {
                    tracing::error!(
                        "the log cannot be read behind the snapshot that replaced the state: asking for a newer one"
                    );
                }
                self.replica.log_read(entries);
            }
            Event::LogDamaged(what) => {
                let (parts, mut context) = self.parts(now);
                parts.snapshots.log_damaged(&what, &mut context);
            }
            Event::Scarce(scarce) => self.scarcity.set(scarce),
            Event::Stop => {
                let shards = self.shards;
                let (parts, mut context) = self.parts(now);
                parts.shutdown.begin(shards, &mut context);
            }
            Event::Drained => self.shutdown.drained(),
            Event::Incoming(incoming) => {
                let installing = self.snapshots.installing();
                self.with_peers(now, |peers, context| peers.incoming(incoming, installing, context));
            }
            Event::UnknownServer(server) => self.with_peers(now, |peers, _| peers.unknown_server = server),
            Event::Peer(peer, event) => {
                if let PeerEvent::Frame { frame, .. } = &event {
                    self.frame_bytes += frame.payload.len() + FRAME_BYTES;
                }
                self.with_peers(now, |peers, context| peers.handle(peer, event, context));
            }
        }
    }

    fn take_requests(&mut self, now: Now, shard: ShardId, Requests { mut proposals, syncs }: Requests) {
        let sequencer = self.machine.sequencer_mut();
        if !proposals.commands.is_empty() {
            let refused = take_wrong_attaches(sequencer.machine(), &mut proposals);
            if !refused.is_empty() {
                self.out.push(Effect::Shard(shard, ShardMessage::Refused(refused)));
            }
        }
        if !proposals.commands.is_empty() {
            match &mut self.ensemble {
                None => sequencer.enqueue(now.millis(), proposals),
                Some(ensemble) => ensemble.forwarding.proposed(now.millis(), proposals, sequencer),
            }
        }
        if !syncs.is_empty() {
            self.replica.read_index(self.syncs.add(shard, syncs));
        }
    }

    fn take_activity(&mut self, shard: ShardId, SessionActivity { upto, sessions }: &SessionActivity) {
        if let Some(ensemble) = &mut self.ensemble {
            ensemble.forwarding.take_activity(shard, *upto, sessions);
        }
        let sequencer = self.machine.sequencer_mut();
        if sequencer.is_leading() || self.ensemble.is_none() {
            sequencer.take_activity(shard, *upto, sessions);
        }
    }

    /// Calls `does` with the other servers. Does nothing on a standalone server.
    fn with_peers(&mut self, now: Now, does: impl FnOnce(&mut Peers, &mut PeerContext<'_>)) {
        let Some(Ensemble { peers, forwarding, .. }) = &mut self.ensemble else { return };
        let (sequencer, out) = (self.machine.sequencer_mut(), &mut self.out);
        does(peers, &mut PeerContext { now: now.millis(), replica: &mut self.replica, sequencer, forwarding, out });
    }

    fn tick(&mut self, now: Now) {
        self.replica.tick();
        let (parts, mut context) = self.parts(now);
        parts.repair.request_state(parts.snapshots.is_writing(), &mut context);
        if let Some(Ensemble { peers, forwarding, .. }) = &mut self.ensemble {
            peers.tick(now.millis(), &self.replica, forwarding, &mut self.out);
            self.replica.reconcile(&peers.wanted);
            peers.transfer_leadership_if_slow(now.micros, self.log_disk, &mut self.replica, &mut self.out);
        }
        self.scarcity.tick(now.micros, &mut self.replica, self.machine.sequencer_mut(), &mut self.out);
        self.show(now);
        self.tick_sessions(now);
        let logs = self.log_disk == LogDisk::Writes && !self.replica.is_state_corrupt() && !self.shutdown.has_begun();
        if let Some(progress) =
            self.catch_up.observe(Duration::from_micros(now.micros.0), log_position_of(&self.replica))
            && logs
        {
            progress.log();
        }
        log_refusals(self.machine.sequencer_mut(), now.millis());
        let (parts, mut context) = self.parts(now);
        parts.snapshots.tick(&mut context);
        parts.snapshots.write_if(&mut context, |sequencer| sequencer.wants_snapshot(now.millis()));
        self.reconfigure(now);
        let (parts, mut context) = self.parts(now);
        if let Some(found) = parts.repair.compare_digests(&mut context) {
            self.begin_repair(now, &found);
        }
        let (parts, mut context) = self.parts(now);
        parts.snapshots.replace_damaged_log(&mut context);
    }

    /// Ends expired sessions, and deletes containers and TTL nodes.
    fn tick_sessions(&mut self, now: Now) {
        let sequencer = self.machine.sequencer_mut();
        sequencer.set_time(now.millis(), now.wall);
        let ticked = sequencer.tick(now.millis(), now.wall);
        if let Some(ensemble) = &mut self.ensemble {
            ensemble.forwarding.tick(now.millis(), sequencer);
        }
        self.machine.observe_tick(&ticked);
        let Ticked { expired, reaped } = ticked;
        self.expiry_log.write(now.millis(), &expired, self.machine.sequencer().sessions());
        for chosen in reaped {
            tracing::debug!(path = &*chosen.path, "container or TTL node expired");
        }
    }

    /// Updates in the status why this server accepts no sessions or no writes.
    fn show(&mut self, now: Now) {
        let (stopping, sequencer) = (self.shutdown.has_begun(), self.machine.sequencer());
        if let Some(Ensemble { peers, forwarding, .. }) = &mut self.ensemble {
            let installing = self.snapshots.installing().is_some();
            let parts = (&self.replica, sequencer, &*forwarding);
            return peers.show(now.micros, parts, (stopping, installing), &mut self.out);
        }
        let stalled = self.log_disk == LogDisk::Full;
        self.out.status.stalled = stalled;
        let state = ServerState::standalone(stopping, stalled);
        self.standalone.tick(now.millis(), (&self.replica, sequencer, None), &state, &mut self.out.status);
    }

    /// Does the next step of a turn: see [`Turned`]. `applied` is the number of batches that every shard has applied
    /// since the start; a shard that has ended counts as `u64::MAX`.
    pub fn turn(&mut self, now: Now, applied: u64) -> Turned {
        if self.stage == Stage::Rest {
            self.begin_turn(now, applied);
        }
        let more = match self.replica.turn(&mut self.machine, now.micros, &mut self.asked) {
            Ok(more) => more,
            Err(_) => {
                let index = self.replica.applied().0 + 1;
                self.out.push(Effect::End(Ended::NotABatch { index }));
                return Turned::Done(None);
            }
        };
        self.take_applied(now);
        self.hand_out();
        if more {
            return Turned::Again;
        }
        if let Some(ensemble) = &mut self.ensemble {
            let (role, disk) = (self.asked.role.take(), self.log_disk);
            let (sequencer, out) = (self.machine.sequencer_mut(), &mut self.out);
            ensemble.follow(now, (role, disk), &mut self.replica, sequencer, out);
            if self.stage == Stage::Replica {
                self.stage = Stage::Settled;
                return Turned::Again;
            }
        }
        self.stage = Stage::Rest;
        Turned::Done(self.end_turn(now))
    }

    fn begin_turn(&mut self, now: Now, applied: u64) {
        self.stage = Stage::Replica;
        self.frame_bytes = 0;
        let sequencer = self.machine.sequencer_mut();
        sequencer.set_time(now.millis(), now.wall);
        if let Some(ensemble) = &mut self.ensemble {
            ensemble.begin_turn(&mut self.replica, sequencer);
        }
        if self.machine.sequencer().is_reconfiguring() {
            self.reconfigure(now);
        }
        self.replica.hold(self.backlog.is_full(now.micros, applied));
    }

    /// Takes the entries that the replica has applied: for forwarding now, and for the shards at the end of the turn.
    fn take_applied(&mut self, now: Now) {
        for entry in self.machine.sequencer_mut().take_applied() {
            if let Some(ensemble) = &mut self.ensemble {
                ensemble.forwarding.applied(now.millis(), now.wall, &entry);
            }
            self.applied.extend(Some(entry.batch).filter(|batch| !batch.txns.is_empty()));
        }
    }

    /// Turns the messages, installs and appends of the replica into effects.
    fn hand_out(&mut self) {
        send_raft(self.asked.messages.drain(..), &mut self.out);
        for replaced in self.asked.replaced.drain(..) {
            self.out.push(Effect::Drop(Garbage::Log(replaced)));
        }
        for Install { number, snapshot } in self.asked.installs.drain(..) {
            let has = |ensemble: &mut Ensemble| ensemble.peers.arrivals().get(snapshot.index).is_some();
            let here = self.ensemble.as_mut().is_some_and(has);
            assert!(here, "a snapshot is announced to Raft when it is received, and is not dropped before");
            self.snapshots.begin_install(number, snapshot.index, &mut self.out);
        }
        for append in self.asked.appends.drain(..) {
            self.out.log(ToLog::Append(append));
        }
        if let Some((from, upto)) = self.asked.log_wanted.take() {
            self.out.log(ToLog::Read { from: from.0, upto: upto.0 });
        }
        if self.ensemble.is_some() {
            self.out.peers(ToPeers::Flush);
        }
    }

    fn end_turn(&mut self, now: Now) -> Option<Micros> {
        let asked = std::mem::take(&mut self.asked);
        self.send_applied(now.micros);
        let replays = self.repair.is_active() && self.advance_repair(now);
        self.send_flow();
        let unordered = self.machine.sequencer_mut().take_unordered().map(shard::Garbage::Unordered);
        self.out.effects.extend(unordered.map(|unordered| Effect::Drop(Garbage::Core(unordered))));
        self.syncs.answer(&asked.reads, ShardMessage::Synced, &mut self.out);
        self.syncs.answer(&asked.reads_refused, ShardMessage::SyncRefused, &mut self.out);
        // Behind the batches: a shard adopts the frozen delta at the zxid of its own view.
        self.bootstrap_if_complete(now);
        if asked.snapshot_wanted {
            self.offer_snapshot(now);
        }
        if self.ensemble.is_some() {
            self.out.peers(ToPeers::Flush);
        }
        let (parts, mut context) = self.parts(now);
        let has_sent = parts.shutdown.advance(parts.snapshots, &mut context);
        if has_sent || replays { Some(now.micros) } else { asked.wake_at }
    }

    /// Sends every applied batch to every shard.
    fn send_applied(&mut self, now: Micros) {
        for batch in self.applied.drain(..) {
            self.backlog.sent(now, &batch, self.replica.applied_bytes());
            self.out.shards(ShardMessage::Batch(Arc::new(batch)));
        }
    }

    /// Sends the shards whether commands are accepted, behind the batches before that.
    fn send_flow(&mut self) {
        if let Some(ensemble) = &mut self.ensemble {
            ensemble.send_flow(&mut self.out);
        }
    }

    /// The components that need the rest of the engine, with that rest.
    fn parts(&mut self, now: Now) -> (Parts<'_>, Context<'_>) {
        let generation = self.ensemble.as_ref().map(|ensemble| ensemble.peers.generation());
        let forwarding = self.ensemble.as_mut().map(|ensemble| &mut ensemble.forwarding);
        let (replica, sequencer, out) = (&mut self.replica, self.machine.sequencer_mut(), &mut self.out);
        let parts = Parts { snapshots: &mut self.snapshots, repair: &mut self.repair, shutdown: &mut self.shutdown };
        (parts, Context { now, replica, sequencer, forwarding, generation, out })
    }

    fn write_snapshot_if(&mut self, now: Now, wanted: impl FnOnce(&Sequencer) -> bool) {
        let (parts, mut context) = self.parts(now);
        parts.snapshots.write_if(&mut context, wanted);
    }

    /// A snapshot is durable: it is served, offered to other servers, and the log before it is trimmed.
    fn snapshot_written(&mut self, now: Now, written: WrittenSnapshot) {
        let (parts, context) = self.parts(now);
        if !parts.snapshots.written(written.index, &context) {
            return self.out.push(Effect::Drop(Garbage::Written(written)));
        }
        let WrittenSnapshot { snapshot, bytes, index, term, kept } = written;
        if self.replica.raft().is_uninitialised() {
            self.bootstrapped();
        }
        if let Some(Ensemble { peers, .. }) = &mut self.ensemble {
            peers.offer.add(now.millis(), Offered { index, zxid: snapshot.zxid().0, bytes });
        }
        self.out.status.served_snapshot = index;
        self.out.shards(ShardMessage::Swap(Arc::clone(&snapshot)));
        let by = Arc::downgrade(&snapshot);
        let (snapshot, frozen) = self.machine.sequencer_mut().snapshot_ready(snapshot);
        self.out.push(Effect::Replaced { snapshot, by, installs: self.snapshots.installs() });
        self.out.effects.extend(frozen.map(|frozen| Effect::Drop(Garbage::Frozen(Box::new(frozen)))));
        self.replica.compact(Index(index), Term(term));
        let (parts, mut context) = self.parts(now);
        parts.snapshots.trim_log(index, &kept, &mut context);
    }

    fn snapshot_failed(&mut self, now: Now, index: u64, was_tried: bool, found: Option<CorruptState>) {
        if !self.snapshots.failed() {
            return;
        }
        if let Some(found) = found {
            self.begin_repair(now, &found);
        }
        if self.shutdown.gives_up_snapshot() {
            return;
        }
        self.snapshots.retry_later(now.micros, index, was_tried);
    }

    fn begin_repair(&mut self, now: Now, found: &CorruptState) {
        let (parts, mut context) = self.parts(now);
        if parts.repair.begin(found, &mut context) {
            self.send_flow();
        }
    }

    /// Proposes the next step of a membership change, if one is possible now.
    fn reconfigure(&mut self, now: Now) {
        if self.ensemble.is_none() {
            return;
        }
        if let Some(step) = next_step(&self.replica, &mut self.machine, (now.millis(), now.wall)) {
            propose_step(&mut self.replica, self.machine.sequencer_mut(), step);
        }
    }

    /// A follower lags so far that it needs a snapshot: writes one if it would be newer than the newest. Only behind the
    /// turn's batches.
    fn offer_snapshot(&mut self, now: Now) {
        if let Some(ensemble) = &self.ensemble {
            let newest = ensemble.peers.offer.newest();
            self.write_snapshot_if(now, |sequencer| sequencer.index() > newest);
        }
    }

    /// If all founders are uninitialised, the empty state is written with them as members; see [`Self::bootstrapped`].
    fn bootstrap_if_complete(&mut self, now: Now) {
        let Some(Ensemble { peers, forwarding, .. }) = &mut self.ensemble else { return };
        if !peers.may_bootstrap() || !forwarding.bootstraps() {
            return;
        }
        self.machine.sequencer_mut().begin_behind(BOOTSTRAP_INDEX.0, BOOTSTRAP_TERM.0);
        log_bootstrap(&forwarding.absent_founders());
        self.write_snapshot_if(now, |_| true);
    }

    /// The snapshot of the empty state is durable: the ensemble is bootstrapped.
    fn bootstrapped(&mut self) {
        self.out.log(ToLog::Reset(BOOTSTRAP_INDEX.0 + 1));
        self.replica.bootstrap();
        if let Some(Ensemble { peers, forwarding, .. }) = &mut self.ensemble {
            forwarding.bootstrapped();
            peers.adopt(Generation::FIRST, &mut self.out);
        }
    }

    /// Installs the snapshot of another server if append `number` is durable, which empties the log. From here on this
    /// server has the state of that snapshot.
    fn install_if_durable(&mut self, now: Now, number: u64) {
        let Some(index) = self.snapshots.next_install(number) else { return };
        let arrivals = self.ensemble.as_mut().map(|ensemble| ensemble.peers.arrivals());
        let arrived = arrivals.and_then(|arrivals| arrivals.take(index, &mut self.out.effects));
        let arrived = arrived.expect("a snapshot is announced to Raft when it is received");
        self.install(now, *arrived, |replica| replica.installed(index));
        let (parts, mut context) = self.parts(now);
        parts.repair.end(&mut context);
    }

    /// Replaces a corrupt state by a received snapshot that this server's log reaches: then another turn is wanted at once.
    /// Ends the repair when the log is applied behind it.
    fn advance_repair(&mut self, now: Now) -> bool {
        if let Some(least) = self.replica.awaits_state()
            && let Some(Ensemble { peers, .. }) = &mut self.ensemble
        {
            let applied = self.replica.raft().applied_index();
            let Some(arrived) = peers.arrivals().take_between(least, applied) else { return false };
            let index = Index(arrived.loaded.index);
            self.snapshots.state_replaced(index);
            self.install(now, *arrived, |replica| replica.state_replaced(index));
            return true;
        }
        if !self.replica.is_state_corrupt() {
            let (parts, mut context) = self.parts(now);
            parts.repair.end(&mut context);
        }
        false
    }

    fn install(&mut self, now: Now, arrived: Arrived, report: impl FnOnce(&mut Replica)) {
        let ensemble = self.ensemble.as_mut().expect("only another server's snapshot is installed");
        let parts = (&mut self.replica, self.machine.sequencer_mut());
        installation::install(now, arrived, ensemble, parts, &mut self.out, report);
    }
}

#[cfg(test)]
mod tests;
