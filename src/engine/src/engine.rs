//! One server's decisions, turn by turn: see the crate.

mod healing;
mod images;
mod stopping;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use corral_consensus::{
    Backlog, Effects as RaftEffects, FORMED_INDEX, FORMED_TERM, Index, Install, LogDisk, Micros, NodeId, Replica, Term,
};
use corral_core::evaluate::QuotaExceeded;
use corral_core::ids::{ConnId, Millis, SessionId, ShardId};
use corral_core::report::{Mode, ReconfigStep, SessionMark, SessionPiece};
use corral_core::sequencer::{Oversized, Sequencer, Ticked};
use corral_core::shard::Garbage;
use corral_link::Generation;
use corral_members::{carry_out, next_step, seen};

use crate::effect::{Answer, Effect, Ended, Outbox, Status, ToLog, ToShards};
use crate::event::{Event, Now};
use crate::machine::{Replicated, ReplicatedMember};
use crate::peers::{self, Peers};
use crate::progress::{CatchUp, place_of};
use crate::serving::{ServerState, Serving};
use crate::settings::Settings;
use crate::transfer::Arrived;
use healing::{Differences, Distrusted};
use images::{Retry, Writes};
use stopping::Stopping;

/// Log lines for sessions that expire.
const EXPIRY_LINES_PER_SECOND: usize = 20;
/// What a transaction takes on its way to the shards, beside its bytes in the log.
const TXN_BYTES: u64 = 512;

/// What became of a call of [`Engine::turn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turned {
    /// To be called again at once, when the effects so far are carried out: they should not wait for what is left to do.
    Again,
    /// The turn is over. Another one is wanted at that time, whatever else happens; it may be now.
    Done(Option<Micros>),
}

/// How far a turn is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// None has begun.
    Rest,
    /// The replica does what it can.
    Replica,
    /// What that meant for this server's place in the ensemble is seen to, and commands that waited for a leader go.
    Settled,
}

/// See the crate.
pub struct Engine<M: Replicated = ReplicatedMember> {
    replica: Replica<M>,
    shards: usize,
    /// The other servers of the ensemble; `None` of a server that is alone.
    peers: Option<Peers>,
    out: Outbox,
    /// What the replica asked for in this turn, as far as it is not in `out`.
    asked: RaftEffects,
    stage: Stage,
    /// Syncs that wait for a read index, by token.
    syncs: BTreeMap<u64, (ShardId, Vec<ConnId>)>,
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
    retry: Option<Retry>,
    /// How often one could not be written since the last that was.
    failures: u32,
    writes: Writes,
    /// Of the list of servers that the connections follow.
    servers_version: Option<u64>,
    /// What a server that is alone shows; of one of an ensemble, [`Peers`] does.
    alone: Serving,
    catch_up: CatchUp,
    /// Lines for sessions that expired, in this second.
    expiry_lines: (u64, usize),
    /// What the slowest shard has not applied yet.
    backlog: Backlog,
    /// Bytes of all entries that were applied when the shards were last told.
    applied_bytes: u64,
}

impl<M: Replicated> Engine<M> {
    /// `replica` as recovery made it.
    pub fn new(replica: Replica<M>, settings: Settings) -> Engine<M> {
        let Settings { shards, newest, ensemble } = settings;
        let served_image = newest.as_ref().map_or(0, |image| image.index);
        let mode = if ensemble.is_some() { Mode::Looking } else { Mode::Standalone };
        let status = Status {
            mode,
            stalled: false,
            found: None,
            withheld: None,
            relieved: 0,
            quorum: None,
            reconfig: ReconfigStep::default(),
            served_image,
        };
        let writes = Writes::new(replica.machine().sequencer.snapshot_running());
        Engine {
            applied_bytes: replica.applied_bytes(),
            replica,
            shards,
            peers: ensemble.map(|ensemble| Peers::new(ensemble, newest)),
            out: Outbox { effects: Vec::new(), status },
            asked: RaftEffects::default(),
            stage: Stage::Rest,
            syncs: BTreeMap::new(),
            next_token: 1,
            log_disk: LogDisk::Writes,
            stopping: Stopping::No,
            installing: None,
            installed: 0,
            damaged_to: None,
            distrusted: None,
            differences: Differences::default(),
            retry: None,
            failures: 0,
            writes,
            servers_version: None,
            alone: Serving::default(),
            catch_up: CatchUp::default(),
            expiry_lines: (0, 0),
            backlog: Backlog::default(),
        }
    }

    /// To be called once, before anything else.
    pub fn begin(&mut self, now: Now) {
        // Recovery may have taken longer than a session's timeout. In an ensemble deadlines begin with a leader.
        if self.peers.is_none() {
            self.replica.machine_mut().sequencer.start_deadlines(now.millis());
        }
    }

    /// The replica, to be looked at.
    pub fn replica(&self) -> &Replica<M> {
        &self.replica
    }

    /// The replicated machine, for what the driver records there.
    pub fn machine_mut(&mut self) -> &mut M {
        self.replica.machine_mut()
    }

    /// What there is to be shown.
    pub fn status(&self) -> &Status {
        &self.out.status
    }

    /// Differences to other servers' digests that were found since this was asked last.
    pub fn take_digest_mismatches(&mut self) -> u64 {
        self.replica.machine_mut().take_digest_mismatches()
    }

    /// Sessions from this one on, for `dump`.
    pub fn report_sessions(&self, from: &SessionMark) -> SessionPiece {
        self.replica.machine().sequencer.report_sessions(from)
    }

    /// What is to be done now, in this order. To be taken after each call of [`Engine::handle`] and [`Engine::turn`].
    pub fn take_effects(&mut self, into: &mut Vec<Effect>) {
        into.append(&mut self.out.effects);
    }

    /// Whether a turn is due before anything else is handled: what was taken in is held in memory until then.
    pub fn needs_turn(&self) -> bool {
        self.replica.has_much_prepared()
    }

    /// Takes in what happened. What follows from it, but for effects that cannot wait, follows with the next turn.
    pub fn handle(&mut self, now: Now, event: Event) {
        match event {
            Event::Tick => self.tick(now),
            Event::Proposed { shard, proposals, syncs } => {
                if !proposals.commands.is_empty() {
                    let conns = self.replica.machine_mut().proposed(now.millis(), proposals);
                    if !conns.is_empty() {
                        self.out.push(Effect::Shard { shard, answer: Answer::Refused, conns });
                    }
                }
                if !syncs.is_empty() {
                    let token = self.next_token;
                    self.next_token += 1;
                    self.syncs.insert(token, (shard, syncs));
                    self.replica.read_index(token);
                }
            }
            Event::SessionActivity { shard, upto, sessions } => {
                self.replica.machine_mut().heard(shard, upto, &sessions);
            }
            Event::Durable(number) => {
                self.replica.persisted(now.micros, number);
                self.install_if_durable(now, number);
            }
            Event::LogFull(full) => self.log_disk = if full { LogDisk::Full } else { LogDisk::Writes },
            Event::ImageWritten(written) => self.image_written(now, written),
            Event::ImageFailed { index, was_tried } => self.image_failed(now, index, was_tried),
            Event::ImageAsked => self.write_image_if(now, Sequencer::has_changes),
            Event::Distrust(distrust) => self.distrust(now, &distrust),
            Event::LogDamaged(what) => self.log_damaged(now, &what),
            Event::Stop => {
                if self.stopping == Stopping::No {
                    tracing::info!("stopping: answering what is under way");
                    self.stopping = Stopping::Draining(self.shards);
                    self.out.shards(ToShards::Drain);
                }
            }
            Event::Drained => {
                if let Stopping::Draining(left) = self.stopping {
                    self.stopping = Stopping::Draining(left - 1);
                }
            }
            of_ensemble => self.handle_of_ensemble(now, of_ensemble),
        }
    }

    /// What happens to a server that is one of an ensemble.
    fn handle_of_ensemble(&mut self, now: Now, event: Event) {
        let (Some(peers), replica, out) = (&mut self.peers, &mut self.replica, &mut self.out) else { return };
        match event {
            Event::Incoming(incoming) => {
                let installing = self.installing.map(|(_, index)| index);
                peers.incoming(now.millis(), incoming, installing, replica, out);
            }
            Event::ConnectedTo { peer, stream } => peers.connected_to(now.millis(), peer, stream, replica, out),
            Event::DisconnectedFrom { peer, stream, gone } => {
                peers.disconnected_from(peer, stream, replica);
                if gone {
                    Peers::gone(peer, replica);
                }
            }
            Event::Accepted { peer, stream, incarnation } => peers.accepted(peer, stream, incarnation),
            Event::Lost { peer, stream, gone } => {
                peers.lost(stream);
                if gone {
                    Peers::gone(peer, replica);
                }
            }
            Event::Frame { peer, stream, frame } => peers.frame(now.millis(), (peer, stream), &frame, replica, out),
            Event::Undelivered { peer, announced_image } => peers::undelivered(peer, announced_image, replica),
            Event::Stranger(stranger) => peers.stranger = stranger,
            _ => unreachable!("handled above"),
        }
    }

    fn tick(&mut self, now: Now) {
        self.replica.tick();
        self.end_if_stuck();
        if let Some(peers) = &mut self.peers {
            peers.tick(now.millis(), &self.replica, &mut self.out);
            self.replica.reconcile(&peers.wanted);
            peers.relieve(now.micros, self.log_disk, &mut self.replica, &mut self.out);
        }
        self.show(now);
        let ticked = self.replica.machine_mut().tick(now.millis(), now.wall);
        self.replica.machine_mut().ticked(&ticked);
        let Ticked { expired, reaped } = ticked;
        self.tell_expired(now.millis(), &expired);
        for chosen in reaped {
            tracing::debug!(path = &*chosen.path, "container or TTL node outlived");
        }
        let applies = self.log_disk == LogDisk::Writes && !self.replica.is_distrusted();
        if let Some(progress) = self.catch_up.look(Duration::from_micros(now.micros.0), place_of(&self.replica))
            && applies
        {
            progress.log();
        }
        if let Some(report) = self.replica.machine_mut().sequencer.quota_report(now.millis()) {
            let QuotaExceeded { path, of, usage, limit, hard, refused } = report.last;
            tracing::warn!(path = &*path, ?of, usage, limit, hard, refused, writes = report.writes, "quota exceeded");
        }
        if let Some(Oversized { session, bytes, bytes_max }) = self.replica.machine_mut().sequencer.take_oversized() {
            tracing::warn!(%session, bytes, bytes_max, "a command that fits no log entry here was refused");
        }
        self.retry_image(now);
        self.replace_void_image(now);
        self.write_image_if(now, |sequencer| sequencer.wants_snapshot(now.millis()));
        self.reconfigure(now);
        self.compare_digests(now);
        self.replace_damaged_log(now);
    }

    /// Why this server takes no sessions and writes, if it does not.
    fn show(&mut self, now: Now) {
        let stopping = self.stopping != Stopping::No;
        if let Some(peers) = &mut self.peers {
            let installing = self.installing.is_some();
            return peers.show(now.micros, &self.replica, (stopping, installing), &mut self.out);
        }
        let stalled = self.log_disk == LogDisk::Full;
        self.out.status.stalled = stalled;
        self.alone.look(now.millis(), &self.replica, &ServerState::alone(stopping, stalled), &mut self.out.status);
    }

    /// A line for each session that expired, as long as they are few; the rest are counted.
    fn tell_expired(&mut self, now: Millis, expired: &[SessionId]) {
        let second = now.0 / 1000;
        let so_far = if self.expiry_lines.0 == second { self.expiry_lines.1 } else { 0 };
        let lines = expired.len().min(EXPIRY_LINES_PER_SECOND - so_far);
        self.expiry_lines = (second, so_far + lines);
        for session in &expired[..lines] {
            tracing::info!(%session, "session expired");
        }
        if expired.len() > lines {
            tracing::info!(sessions = expired.len() - lines, "more sessions expired");
        }
    }

    /// Does everything that can be done now, step by step: see [`Turned`]. `applied`: so many batches every shard has applied since
    /// the beginning; `u64::MAX` of one that has ended.
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
        let member = self.replica.machine_mut();
        member.set_time(now.millis(), now.wall);
        for newborn in member.take_newborns() {
            self.replica.heard_newborn(NodeId(u64::from(newborn)));
        }
        if self.replica.machine().sequencer.is_reconfiguring() {
            self.reconfigure(now);
        }
        // Nothing more is applied while a shard is far behind.
        if !self.backlog.is_empty() {
            self.backlog.taken(applied);
        }
        self.replica.hold(self.backlog.is_full(now.micros));
    }

    /// What the replica wants said and written.
    fn hand_out(&mut self) {
        peers::send_raft(&mut self.asked.messages, &mut self.out);
        for Install { number, image } in self.asked.installs.drain(..) {
            let here = self.peers.as_ref().is_some_and(|peers| peers.has_arrived(image.index));
            assert!(here, "an image is announced to Raft when it is here, and nothing is dropped before");
            self.out.log(ToLog::Reset(image.index.0 + 1));
            self.damaged_to = None;
            self.installing = Some((number, image.index));
        }
        for append in self.asked.appends.drain(..) {
            self.out.log(ToLog::Append(append));
        }
        if self.peers.is_some() {
            self.out.push(Effect::Flush);
        }
    }

    fn end_turn(&mut self, now: Now) -> Option<Micros> {
        let asked = std::mem::take(&mut self.asked);
        self.tell_applied(now.micros);
        self.tell_notes();
        asked.reads.into_iter().for_each(|token| self.answer_syncs(token, Answer::Synced));
        asked.reads_refused.into_iter().for_each(|token| self.answer_syncs(token, Answer::SyncRefused));
        // Behind the batches: a shard adopts what is frozen where it stands itself.
        self.form_if_complete(now);
        if asked.image_wanted {
            self.offer_image(now);
        }
        if self.peers.is_some() {
            self.out.push(Effect::Flush);
        }
        if self.go_on_stopping(now) { Some(now.micros) } else { asked.wake_at }
    }

    /// Every committed batch goes to every shard.
    fn tell_applied(&mut self, now: Micros) {
        for batch in self.replica.machine_mut().take_applied() {
            let payload = self.replica.applied_bytes() - self.applied_bytes;
            self.applied_bytes += payload;
            self.backlog.handed(now, payload + TXN_BYTES * batch.txns.len() as u64);
            self.out.shards(ToShards::Batch(Arc::new(batch)));
        }
    }

    /// What the shards are to be told of the way of commands, behind the batches before it.
    fn tell_notes(&mut self) {
        for note in self.replica.machine_mut().take_notes() {
            if let Some(peers) = &mut self.peers {
                peers.on_note(note, &mut self.out);
            }
            self.out.shards(ToShards::Note(note));
        }
    }

    fn answer_syncs(&mut self, token: u64, answer: Answer) {
        if let Some((shard, conns)) = self.syncs.remove(&token) {
            self.out.push(Effect::Shard { shard, answer, conns });
        }
    }

    // ----- the ensemble -----

    /// The next step of a membership change, if one can be done now.
    fn reconfigure(&mut self, now: Now) {
        if self.peers.is_none() {
            return;
        }
        let look = |replica: &Replica<M>| replica.machine().sees(seen(replica));
        if let Some(step) = next_step(&mut self.replica, (now.millis(), now.wall), look) {
            let step = self.replica.machine_mut().proposes(step);
            carry_out(&mut self.replica, step);
        }
    }

    /// The connections follow the list of servers.
    fn follow_list(&mut self) {
        let version = Some(self.replica.machine().sequencer.servers_version());
        if self.servers_version != version
            && let Some(peers) = &mut self.peers
        {
            self.servers_version = version;
            peers.follow(&mut self.replica, &mut self.out);
        }
    }

    /// What a turn means for the way of commands, and what is to be said to other servers because of it.
    fn follow_role(&mut self) {
        let Some(peers) = &mut self.peers else { return };
        let stalled = peers.is_stalled(self.log_disk, &self.replica);
        self.out.status.stalled = stalled;
        let member = self.replica.machine_mut();
        if let Some(change) = self.asked.role.take() {
            let standing = peers.role_changed(change, &mut self.out);
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
        self.out.status.reconfig = member.sequencer.reconfig_step();
        peers::send_of_member(member.take_sends(), &mut self.out);
    }

    /// A server lags so far behind that it needs an image: the newest, if that is of any use. Only behind the turn's batches.
    fn offer_image(&mut self, now: Now) {
        if let Some(peers) = &self.peers {
            let newest = peers.offer.newest();
            self.write_image_if(now, |sequencer| sequencer.index() > newest);
        }
    }

    /// All founders are newborn: the empty state becomes durable with them as its members, see [`Self::formed`].
    fn form_if_complete(&mut self, now: Now) {
        let Some(peers) = &self.peers else { return };
        if !peers.may_begin() || !self.replica.machine_mut().forms(FORMED_INDEX.0, FORMED_TERM.0) {
            return;
        }
        tracing::info!("all servers that vote have no data: a new ensemble begins");
        self.write_image_if(now, |_| true);
    }

    /// The ensemble has begun, and this server will remember that.
    fn formed(&mut self) {
        self.out.log(ToLog::Reset(FORMED_INDEX.0 + 1));
        self.replica.form();
        self.replica.machine_mut().formed();
        if let Some(peers) = &mut self.peers {
            peers.adopt(Generation::FIRST, &mut self.out);
        }
    }

    /// The log is empty behind the image that another server gave: from here on this server has that image's state.
    fn install_if_durable(&mut self, now: Now, number: u64) {
        let Some((_, index)) = self.installing.filter(|(wanted, _)| *wanted <= number) else { return };
        self.installing = None;
        self.writes.void();
        let arrived = self.peers.as_mut().and_then(|peers| peers.arrived(index));
        let Arrived { loaded, state } = *arrived.expect("an image is announced to Raft when it is here");
        let (view, alive) = (state.view().clone(), state.sessions().len() as u64);
        let former = self.replica.machine_mut().installed(state, loaded.index, loaded.term);
        self.out.push(Effect::Drop(Garbage::State(Box::new(former))));
        self.replica.installed(index);
        self.replica.compact(index, Term(loaded.term));
        self.installed = loaded.index;
        self.out.status.served_image = loaded.index;
        self.healed(now);
        if let Some(peers) = &mut self.peers {
            peers.offer.add(loaded.offered());
            peers.adopt(loaded.generation(), &mut self.out);
        }
        tracing::info!(index = loaded.index, zxid = %view.zxid(), nodes = view.node_count(), "the image is installed");
        self.out.shards(ToShards::Install(Arc::new(view), alive));
    }
}
