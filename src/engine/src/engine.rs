//! The engine of one server: it takes events, drives the replica turn by turn, and composes the components that decide.
//!
//! Each component guards its own state, in its own file: `sync_requests`, `snapshots` (those of this server, and the
//! installation of another server's), `state_repair`, `shutdown`, `shard_backlog`, `expiry_log`, and [`Peers`]. What they
//! share in one call is a `Context`. The crate's page states the order of calls.

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
    BOOTSTRAP_INDEX, BOOTSTRAP_TERM, Effects as RaftEffects, Index, Install, LogDisk, Micros, NodeId, Replica, Term,
};
use corral_core::ids::ShardId;
use corral_core::report::{Mode, SessionMark, SessionPiece};
use corral_core::sequencer::{Sequencer, Ticked};
use corral_core::shard::{self, Requests, SessionActivity, ShardMessage};
use corral_members::{next_step, observe, propose_step};
use corral_peer::Generation;

use crate::effect::{Effect, Ended, Garbage, Outbox, Status, ToLog, ToPeers};
use crate::event::{CorruptState, Event, Now, PeerEvent, WrittenSnapshot};
use crate::machine::{Replicated, ReplicatedCoordinator};
use crate::outgoing::{send_of_member, send_raft, undelivered};
use crate::peers::{Peers, server};
use crate::progress::{CatchUp, log_position_of};
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

/// What a frame of another server counts for beside its bytes: there may be very many small ones.
const FRAME_BYTES: usize = 128;

/// The engine of one server. Owned by its driver, on one thread.
pub struct Engine<M: Replicated = ReplicatedCoordinator> {
    replica: Replica<M>,
    shards: usize,
    /// The other servers of the ensemble; `None` of a standalone server.
    peers: Option<Peers>,
    out: Outbox,
    /// What the replica asked for in this turn and is not in `out` yet.
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
    /// Version of the list of servers that the connections follow.
    servers_version: Option<u64>,
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
    /// An engine for the replica that [`crate::recovery::recover`] made.
    pub fn new(replica: Replica<M>, settings: Settings) -> Engine<M> {
        let Settings { shards, newest, ensemble } = settings;
        let served_snapshot = newest.as_ref().map_or(0, |snapshot| snapshot.index);
        let mode = if ensemble.is_some() { Mode::Looking } else { Mode::Standalone };
        let status = Status::new(mode, served_snapshot);
        let snapshots = Snapshots::new(replica.machine().sequencer.snapshot_running());
        Engine {
            backlog: ShardBacklog::new(replica.applied_bytes()),
            replica,
            shards,
            peers: ensemble.map(|ensemble| Peers::new(ensemble, newest)),
            out: Outbox { effects: Vec::new(), status },
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
            servers_version: None,
            frame_bytes: 0,
            standalone: Serving::default(),
        }
    }

    /// Starts the deadlines of sessions on a standalone server. Called once, before any event.
    pub fn begin(&mut self, now: Now) {
        // Recovery may have taken longer than a session's timeout. In an ensemble deadlines start with a leader.
        if self.peers.is_none() {
            self.replica.machine_mut().sequencer.start_deadlines(now.millis());
        }
    }

    /// The replica, read only.
    #[must_use]
    pub fn replica(&self) -> &Replica<M> {
        &self.replica
    }

    /// The replicated machine, for what the driver records there.
    pub fn machine_mut(&mut self) -> &mut M {
        self.replica.machine_mut()
    }

    /// The status, as of the last call.
    #[must_use]
    pub fn status(&self) -> &Status {
        &self.out.status
    }

    /// Number of differences to other servers' digests found since the last call.
    #[must_use]
    pub fn take_digest_mismatches(&mut self) -> u64 {
        self.replica.machine_mut().take_digest_mismatches()
    }

    /// A piece of the list of sessions, from this mark on, for the four-letter command `dump`.
    #[must_use]
    pub fn report_sessions(&self, from: &SessionMark) -> SessionPiece {
        self.replica.machine().sequencer.report_sessions(from)
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

    /// Handles one event. Its effects follow with the next turn, except those that cannot wait.
    pub fn handle(&mut self, now: Now, event: Event) {
        match event {
            Event::Tick => self.tick(now),
            Event::Requests(shard, requests) => self.take_requests(now, shard, requests),
            Event::SessionActivity(shard, SessionActivity { upto, sessions }) => {
                self.replica.machine_mut().heard(shard, upto, &sessions);
            }
            Event::Durable(number) => {
                self.replica.persisted(now.micros, number);
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
                // What was copied before an install is gone.
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
                if let Some(peers) = &mut self.peers {
                    peers.incoming(now.millis(), incoming, installing, &mut self.replica, &mut self.out);
                }
            }
            Event::UnknownServer(server) => self.peers.iter_mut().for_each(|peers| peers.unknown_server = server),
            Event::Peer(peer, event) => self.handle_peer(now, peer, event),
        }
    }

    fn take_requests(&mut self, now: Now, shard: ShardId, Requests { proposals, syncs }: Requests) {
        if !proposals.commands.is_empty() {
            let conns = self.replica.machine_mut().proposed(now.millis(), proposals);
            if !conns.is_empty() {
                self.out.push(Effect::Shard(shard, ShardMessage::Refused(conns)));
            }
        }
        if !syncs.is_empty() {
            self.replica.read_index(self.syncs.add(shard, syncs));
        }
    }

    fn handle_peer(&mut self, now: Now, peer: NodeId, event: PeerEvent) {
        let (Some(peers), replica, out) = (&mut self.peers, &mut self.replica, &mut self.out) else { return };
        match event {
            PeerEvent::Name { resolves } => replica.machine_mut().founder(server(peer), resolves),
            PeerEvent::ConnectedTo { stream } => peers.connected_to(now.millis(), peer, stream, replica, out),
            PeerEvent::DisconnectedFrom { stream, gone } => {
                peers.disconnected_from(peer, stream, replica);
                if gone {
                    Peers::gone(peer, replica);
                }
            }
            PeerEvent::Accepted { stream, incarnation } => peers.accepted(peer, stream, incarnation, replica),
            PeerEvent::Lost { stream, gone } => {
                peers.lost(stream);
                if gone {
                    Peers::gone(peer, replica);
                }
            }
            PeerEvent::Frame { stream, frame } => {
                self.frame_bytes += frame.payload.len() + FRAME_BYTES;
                peers.frame(now.millis(), (peer, stream), &frame, replica, out);
            }
            PeerEvent::Undelivered { announced_snapshot } => undelivered(peer, announced_snapshot, replica),
        }
    }

    fn tick(&mut self, now: Now) {
        self.replica.tick();
        let (parts, mut context) = self.parts(now);
        parts.repair.request_state(parts.snapshots.is_writing(), &mut context);
        if let Some(peers) = &mut self.peers {
            peers.tick(now.millis(), &self.replica, &mut self.out);
            self.replica.reconcile(&peers.wanted);
            peers.transfer_leadership_if_slow(now.micros, self.log_disk, &mut self.replica, &mut self.out);
        }
        self.scarcity.tick(now.micros, &mut self.replica, &mut self.out);
        self.show(now);
        let ticked = self.replica.machine_mut().tick(now.millis(), now.wall);
        self.replica.machine_mut().observe_tick(&ticked);
        let Ticked { expired, reaped } = ticked;
        let sessions = self.replica.machine().sequencer.machine().sessions();
        self.expiry_log.write(now.millis(), &expired, sessions);
        for chosen in reaped {
            tracing::debug!(path = &*chosen.path, "container or TTL node expired");
        }
        let applies = self.log_disk == LogDisk::Writes && !self.replica.is_state_corrupt();
        if let Some(progress) =
            self.catch_up.observe(Duration::from_micros(now.micros.0), log_position_of(&self.replica))
            && applies
        {
            progress.log();
        }
        log_refusals(&mut self.replica.machine_mut().sequencer, now.millis());
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

    /// Updates in the status why this server accepts no sessions or no writes.
    fn show(&mut self, now: Now) {
        let stopping = self.shutdown.has_begun();
        if let Some(peers) = &mut self.peers {
            let installing = self.snapshots.installing().is_some();
            return peers.show(now.micros, &self.replica, (stopping, installing), &mut self.out);
        }
        let stalled = self.log_disk == LogDisk::Full;
        self.out.status.stalled = stalled;
        let state = ServerState::standalone(stopping, stalled);
        self.standalone.tick(now.millis(), &self.replica, &state, &mut self.out.status);
    }

    /// Does one step of what can be done now: see [`Turned`]. `applied` is the number of batches that every shard has
    /// applied since the start; a shard that has ended counts as `u64::MAX`.
    pub fn turn(&mut self, now: Now, applied: u64) -> Turned {
        if self.stage == Stage::Rest {
            self.begin_turn(now, applied);
        }
        let more = match self.replica.turn(now.micros, &mut self.asked) {
            Ok(more) => more,
            Err(_) => {
                let index = self.replica.applied().0 + 1;
                self.out.push(Effect::End(Ended::NotABatch { index }));
                return Turned::Done(None);
            }
        };
        self.hand_out();
        if more {
            return Turned::Again;
        }
        if self.peers.is_some() {
            self.follow_list();
            self.follow_role();
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
        if let Some(peers) = &mut self.peers {
            peers.begin_turn(&mut self.replica);
        }
        let member = self.replica.machine_mut();
        member.set_time(now.millis(), now.wall);
        for uninitialised in member.take_uninitialised() {
            self.replica.report_uninitialised(NodeId(u64::from(uninitialised)));
        }
        if self.replica.machine().sequencer.is_reconfiguring() {
            self.reconfigure(now);
        }
        self.replica.hold(self.backlog.is_full(now.micros, applied));
    }

    /// Turns the messages, installs and appends of the replica into effects.
    fn hand_out(&mut self) {
        send_raft(self.asked.messages.drain(..), &mut self.out);
        for replaced in self.asked.replaced.drain(..) {
            self.out.push(Effect::Drop(Garbage::Log(replaced)));
        }
        for Install { number, snapshot } in self.asked.installs.drain(..) {
            let here = self.peers.as_ref().is_some_and(|peers| peers.arrivals.get(snapshot.index).is_some());
            assert!(here, "a snapshot is announced to Raft when it is received, and is not dropped before");
            self.snapshots.begin_install(number, snapshot.index, &mut self.out);
        }
        for append in self.asked.appends.drain(..) {
            self.out.log(ToLog::Append(append));
        }
        if let Some((from, upto)) = self.asked.log_wanted.take() {
            self.out.log(ToLog::Read { from: from.0, upto: upto.0 });
        }
        if self.peers.is_some() {
            self.out.peers(ToPeers::Flush);
        }
    }

    fn end_turn(&mut self, now: Now) -> Option<Micros> {
        let asked = std::mem::take(&mut self.asked);
        self.send_applied(now.micros);
        let replays = self.repair.is_active() && self.advance_repair(now);
        self.send_flow();
        let unordered = self.replica.machine_mut().sequencer.take_unordered().map(shard::Garbage::Unordered);
        self.out.effects.extend(unordered.map(|unordered| Effect::Drop(Garbage::Core(unordered))));
        self.syncs.answer(&asked.reads, ShardMessage::Synced, &mut self.out);
        self.syncs.answer(&asked.reads_refused, ShardMessage::SyncRefused, &mut self.out);
        // Behind the batches: a shard adopts the frozen delta at the zxid of its own view.
        self.bootstrap_if_complete(now);
        if asked.snapshot_wanted {
            self.offer_snapshot(now);
        }
        if self.peers.is_some() {
            self.out.peers(ToPeers::Flush);
        }
        let (parts, mut context) = self.parts(now);
        let has_sent = parts.shutdown.advance(parts.snapshots, &mut context);
        if has_sent || replays { Some(now.micros) } else { asked.wake_at }
    }

    /// Sends every applied batch to every shard.
    fn send_applied(&mut self, now: Micros) {
        for batch in self.replica.machine_mut().take_applied() {
            self.backlog.sent(now, &batch, self.replica.applied_bytes());
            self.out.shards(ShardMessage::Batch(Arc::new(batch)));
        }
    }

    /// Sends the shards whether commands are accepted, behind the batches before that.
    fn send_flow(&mut self) {
        for note in self.replica.machine_mut().take_flow() {
            if let Some(peers) = &mut self.peers {
                peers.on_flow(note, &mut self.out);
            }
            self.out.shards(ShardMessage::Flow(note));
        }
    }

    /// The components that need the rest of the engine, and what they need of it.
    fn parts(&mut self, now: Now) -> (Parts<'_>, Context<'_, M>) {
        let generation = self.peers.as_ref().map(Peers::generation);
        let (replica, out) = (&mut self.replica, &mut self.out);
        let parts = Parts { snapshots: &mut self.snapshots, repair: &mut self.repair, shutdown: &mut self.shutdown };
        (parts, Context { now, replica, generation, out })
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
        let WrittenSnapshot { snapshot, bytes, index, term, log_from } = written;
        if self.replica.raft().is_uninitialised() {
            self.bootstrapped();
        }
        if let Some(peers) = &mut self.peers {
            peers.offer.add(now.millis(), Offered { index, zxid: snapshot.zxid().0, bytes });
        }
        self.out.status.served_snapshot = index;
        self.out.shards(ShardMessage::Swap(Arc::clone(&snapshot)));
        let by = Arc::downgrade(&snapshot);
        let (snapshot, frozen) = self.replica.machine_mut().sequencer.snapshot_ready(snapshot);
        self.out.push(Effect::Replaced { snapshot, by, installs: self.snapshots.installs() });
        self.out.effects.extend(frozen.map(|frozen| Effect::Drop(Garbage::Frozen(Box::new(frozen)))));
        self.replica.compact(Index(index), Term(term));
        let (parts, mut context) = self.parts(now);
        parts.snapshots.trim_log(index, log_from, &mut context);
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
        if self.peers.is_none() {
            return;
        }
        let members_seen = |replica: &Replica<M>| replica.machine().members_seen(observe(replica));
        if let Some(step) = next_step(&mut self.replica, (now.millis(), now.wall), members_seen) {
            let step = self.replica.machine_mut().membership_step(step);
            propose_step(&mut self.replica, step);
        }
    }

    /// Connects to the servers of the list, if that has changed.
    fn follow_list(&mut self) {
        let version = Some(self.replica.machine().sequencer.servers_version());
        if self.servers_version != version
            && let Some(peers) = &mut self.peers
        {
            self.servers_version = version;
            peers.follow(&mut self.replica, &mut self.out);
        }
    }

    /// Passes the role after a turn to the coordinator, and sends its messages to other servers.
    fn follow_role(&mut self) {
        let Some(peers) = &mut self.peers else { return };
        let stalled = peers.is_stalled(self.log_disk, &self.replica);
        self.out.status.stalled = stalled;
        let member = self.replica.machine_mut();
        if let Some(change) = self.asked.role.take() {
            let leadership = peers.role_changed(change, &mut self.out);
            member.set_leadership(leadership, change.term.0);
        }
        member.stall(stalled);
        member.settle();
        let raft = self.replica.raft();
        let is_initialised = !raft.is_uninitialised() && !raft.is_pristine();
        (peers.has_no_data, self.out.status.leader) = (!is_initialised, raft.leader());
        let member = self.replica.machine_mut();
        if is_initialised {
            member.initialised();
        }
        (self.out.status.reconfig, self.out.status.proposals) = (member.sequencer.reconfig_step(), member.proposals());
        send_of_member(member.take_sends(), &mut self.out);
    }

    /// A follower lags so far that it needs a snapshot: writes one if it would be newer than the newest. Only behind the
    /// turn's batches.
    fn offer_snapshot(&mut self, now: Now) {
        if let Some(peers) = &self.peers {
            let newest = peers.offer.newest();
            self.write_snapshot_if(now, |sequencer| sequencer.index() > newest);
        }
    }

    /// If all founders are uninitialised, the empty state is written with them as members; see [`Self::bootstrapped`].
    fn bootstrap_if_complete(&mut self, now: Now) {
        let Some(peers) = &self.peers else { return };
        if !peers.may_bootstrap() || !self.replica.machine_mut().bootstraps(BOOTSTRAP_INDEX.0, BOOTSTRAP_TERM.0) {
            return;
        }
        log_bootstrap(&self.replica.machine().absent_founders());
        self.write_snapshot_if(now, |_| true);
    }

    /// The snapshot of the empty state is durable: the ensemble is bootstrapped.
    fn bootstrapped(&mut self) {
        self.out.log(ToLog::Reset(BOOTSTRAP_INDEX.0 + 1));
        self.replica.bootstrap();
        self.replica.machine_mut().bootstrapped();
        if let Some(peers) = &mut self.peers {
            peers.adopt(Generation::FIRST, &mut self.out);
        }
    }

    /// Installs the snapshot of another server if append `number`, which empties the log, is durable: from here on this
    /// server has the state of that snapshot.
    fn install_if_durable(&mut self, now: Now, number: u64) {
        let Some(index) = self.snapshots.next_install(number) else { return };
        let arrived = self.peers.as_mut().and_then(|peers| peers.arrivals.take(index, &mut self.out.effects));
        let arrived = arrived.expect("a snapshot is announced to Raft when it is received");
        self.install(now, *arrived, |replica| replica.installed(index));
        let (parts, mut context) = self.parts(now);
        parts.repair.end(&mut context);
    }

    /// Replaces a corrupt state by a received snapshot that this server's log reaches: then another turn is wanted at once.
    /// Ends the repair when the log is applied behind it.
    fn advance_repair(&mut self, now: Now) -> bool {
        if let Some(least) = self.replica.awaits_state()
            && let Some(peers) = &mut self.peers
        {
            let applied = self.replica.raft().applied_index();
            let Some(arrived) = peers.arrivals.take_between(least, applied) else { return false };
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

    fn install(&mut self, now: Now, arrived: Arrived, report: impl FnOnce(&mut Replica<M>)) {
        let peers = self.peers.as_mut().expect("only another server's snapshot is installed");
        installation::install(now, arrived, peers, &mut self.replica, &mut self.out, report);
    }
}

#[cfg(test)]
mod tests;
