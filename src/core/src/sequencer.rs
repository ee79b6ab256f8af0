//! The sequencer: gives each command its place, applies what the log has committed, and decides when to snapshot.
//!
//! One per server, beside the Raft node; it alone gives out zxids while this server leads. Knows neither Raft nor the
//! log: the driver hands it committed payloads in log order and takes batches to propose from it.

mod attaches;
mod backlog;
mod config;
mod deadlines;
mod prepared;
mod queue;
pub mod reaper;
mod reconfig;
mod snapshot_policy;
mod snapshots;
mod turn;

pub use attaches::take_wrong_attaches;
pub use backlog::Oversized;
pub use config::SequencerConfig;
pub use prepared::NotABatch;
pub use reconfig::{MembersSeen, Proposal, ReconfigStep, Seat, ServerList};
pub use snapshot_policy::SnapshotPolicy;
pub use snapshots::FrozenState;

use crate::apply::outcome::{AppliedBatch, AppliedEntry, Outcome, SessionChange};
use crate::apply::{Proof, StateMachine, configured, epoch_of, system_nodes};
use crate::command::{Batch, Command, CommandKind, Proposals};
use crate::features;
use crate::ids::{Millis, Origin, SessionId, ShardId, WallMillis, Zxid};
use crate::quota::QuotaReport;
use crate::sequencer::reaper::{Chosen, Reaper};
use crate::session::{Expiry, SessionTable};
use crate::shared::Text;
use crate::sizes::Sizes;
use crate::tree::snapshot::Snapshot;
use crate::tree::view::View;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use backlog::Backlog;
use corral_types::{Index, Machine, ServerId, Term};
use deadlines::Deadlines;
use prepared::Prepared;
use reconfig::{Reconfiguration, Step};
use snapshots::Snapshots;
use turn::Turn;

/// The results of one tick.
#[derive(Clone, Debug, Default)]
pub struct Ticked {
    /// Expired sessions.
    pub expired: Vec<SessionId>,
    /// Containers and TTL nodes to be deleted.
    pub reaped: Vec<Chosen>,
}

/// Orders commands while this server leads, and applies committed entries.
pub struct Sequencer {
    config: SequencerConfig,
    machine: StateMachine,
    deadlines: Deadlines,
    reaper: Reaper,
    /// Set while this server leads: the zxid that the next command takes.
    next_zxid: Option<u64>,
    backlog: Backlog,
    /// See [`Sequencer::take_unordered`].
    unordered: VecDeque<Proposals>,
    /// Batches proposed by this server and not yet committed, in log order.
    proposed: VecDeque<Batch>,
    /// Of another leader's, which are not committed here yet.
    prepared: Prepared,
    index: u64,
    term: u64,
    snapshots: Snapshots,
    quota_reported: Millis,
    /// When a subtree was last counted on.
    counted: Millis,
    /// The servers of the ensemble in the configuration. `None` without an ensemble.
    servers: Option<Text>,
    /// The change of that list which a client asked for.
    reconfiguration: Reconfiguration,
    /// See [`Sequencer::all_members_know`].
    known: u32,
    /// A batch with `features::ADMITTED` was proposed in this leadership.
    has_admitted: bool,
    turn: Turn,
}

impl Sequencer {
    /// `index` and `term` name the last log entry that `machine` contains.
    pub fn new(config: SequencerConfig, mut machine: StateMachine, index: u64, term: u64) -> Self {
        machine.limit_cost(config.command_cost_max);
        Self {
            config,
            machine,
            deadlines: Deadlines::new(config.tick_ms, (config.server, config.incarnation)),
            reaper: Reaper::new(config.reap),
            next_zxid: None,
            backlog: Backlog::new(&config),
            unordered: VecDeque::new(),
            proposed: VecDeque::new(),
            prepared: Prepared::default(),
            index,
            term,
            snapshots: Snapshots::new(config.snapshot),
            quota_reported: Millis(0),
            counted: Millis(0),
            servers: None,
            reconfiguration: Reconfiguration::default(),
            known: features::KNOWN,
            has_admitted: false,
            turn: Turn::default(),
        }
    }

    /// The servers of the ensemble as the configuration has them, line by line as in [`crate::servers`].
    pub fn configure(&mut self, servers: Text) {
        self.servers = Some(servers);
        self.config.features |= features::ENSEMBLE;
    }

    /// The state machine, with everything that was applied.
    pub const fn machine(&self) -> &StateMachine {
        &self.machine
    }

    /// The tree, with everything that was applied.
    pub const fn view(&self) -> &View {
        self.machine.view()
    }

    /// The sessions, with everything that was applied.
    pub const fn sessions(&self) -> &SessionTable {
        self.machine.sessions()
    }

    /// The time of the calls of [`Machine`](corral_types::Machine) that follow.
    pub const fn set_time(&mut self, now: Millis, wall: WallMillis) {
        self.turn.set_time(now, wall);
    }

    /// The entries that were committed since they were last taken, in order.
    pub fn applied(&self) -> &[AppliedEntry] {
        self.turn.entries()
    }

    /// Takes the entries that were committed, in order. The caller takes them behind each turn of the replica.
    pub fn take_applied(&mut self) -> Vec<AppliedEntry> {
        self.turn.take_entries()
    }

    /// Sizes of the payloads that [`Machine::next_batch`](corral_types::Machine::next_batch) gave.
    pub const fn proposals(&self) -> Sizes {
        self.turn.proposals()
    }

    /// When the session ends unless it is heard from, while this server leads.
    pub fn session_due(&self, session: SessionId) -> Option<Millis> {
        self.expiry().due(session)
    }

    pub(crate) const fn expiry(&self) -> &Expiry {
        self.deadlines.expiry()
    }

    /// Returns the deadlines, for the reports of other servers about their sessions.
    pub(crate) const fn expiry_mut(&mut self) -> &mut Expiry {
        self.deadlines.expiry_mut()
    }

    /// The empty state is that of this place in the log: a new log goes on behind it.
    pub fn begin_behind(&mut self, index: u64, term: u64) {
        assert!(self.index == 0 && self.machine.view().zxid() == Zxid(0), "nothing was applied");
        (self.index, self.term) = (index, term);
    }

    /// This server, and this start of it.
    pub(crate) const fn start(&self) -> (ServerId, u64) {
        (self.config.server, self.config.incarnation)
    }

    /// Index of the last log entry applied.
    pub const fn index(&self) -> u64 {
        self.index
    }

    /// Living sessions.
    pub fn sessions_alive(&self) -> u64 {
        self.machine.sessions().len() as u64
    }

    /// This server leads from now on, and everything committed before its term is applied. Every session gets a full
    /// timeout.
    pub fn begin_leadership(&mut self, now: Millis, term: u64) {
        self.reaper.start(now);
        self.next_zxid = Some(Zxid::of(epoch_of(term, self.machine.view().zxid()), 1).0);
        self.start_deadlines(now);
        self.propose_system_nodes();
        self.propose_servers();
    }

    /// Gives every session a full timeout from now on: no session could be heard before. If they are very many, some
    /// deadlines start later.
    pub fn start_deadlines(&mut self, now: Millis) {
        self.deadlines.start_all(now, self.machine.sessions());
    }

    /// Proposes the znodes that this version needs before the first client connects.
    fn propose_system_nodes(&mut self) {
        if self.config.features & features::KEEPER != 0
            && let Some(nodes) = system_nodes(self.machine.view())
        {
            self.propose_own(CommandKind::SystemNodes(nodes));
        }
    }

    /// The membership as the configuration has it, if that changes anything.
    fn propose_servers(&mut self) {
        let (Some(lines), Some(next)) = (&self.servers, self.next_zxid) else { return };
        if configured(self.machine.view(), lines, self.config.features, Zxid(next)).is_some() {
            self.propose_own(CommandKind::Configured(lines.clone()));
        }
    }

    fn propose_own(&mut self, kind: CommandKind) {
        self.propose_last(Command::own(None, kind));
    }

    fn propose_last(&mut self, command: Command) {
        self.wait(Proposals { commands: Vec::from([command]), ..Proposals::default() });
    }

    fn wait(&mut self, proposals: Proposals) {
        let (is_applied, admits) = (self.proposed.is_empty(), self.admits());
        self.backlog.wait(&backlog::Present { machine: &mut self.machine, is_applied, admits }, proposals);
    }

    /// Takes the commands that waited, or were not committed, when another server began to lead. Drop them where a long
    /// drop does no harm.
    pub fn take_unordered(&mut self) -> Option<VecDeque<Proposals>> {
        Some(core::mem::take(&mut self.unordered)).filter(|unordered| !unordered.is_empty())
    }

    /// Another leads: what waits here will not be ordered by this server.
    pub fn end_leadership(&mut self) {
        self.next_zxid = None;
        self.has_admitted = false;
        self.unordered.append(&mut self.backlog.take());
        let proposed = self.proposed.drain(..);
        self.unordered.extend(proposed.map(|Batch { identities, commands, .. }| Proposals {
            identities,
            commands,
            ..Proposals::default()
        }));
        self.deadlines.clear();
        self.machine.stop_counting();
        self.reconfiguration.forget();
    }

    /// Whether this server leads, as far as it knows, and gives out zxids.
    pub const fn is_leading(&self) -> bool {
        self.next_zxid.is_some()
    }

    /// Takes a shard's proposals of one turn. An attach with the session's password is a sign of life: the session does
    /// not expire while the attach waits for its log entry. An attach without it is none, because session ids are
    /// public.
    pub fn enqueue(&mut self, now: Millis, proposals: Proposals) {
        for command in &proposals.commands {
            if let CommandKind::AttachSession { session, password, .. } = &command.kind
                && self.machine.proof(*session, password) == Proof::Right
            {
                self.expiry_mut().note_active(now, *session);
            }
        }
        self.wait(proposals);
    }

    /// Bytes of the commands that wait for a log entry.
    pub const fn bytes_waiting(&self) -> usize {
        self.backlog.bytes()
    }

    /// Commands that wait for a log entry.
    pub const fn commands_waiting(&self) -> usize {
        self.backlog.commands()
    }

    /// A shard's report of the sessions it heard from, complete up to `upto`.
    pub fn take_activity(&mut self, shard: ShardId, upto: Millis, sessions: &[(SessionId, Millis)]) {
        self.expiry_mut().report_of_shard(shard, upto, sessions);
    }

    /// Ends expired sessions, and deletes due containers and TTL nodes. Returns them, for the log.
    pub fn tick(&mut self, now: Millis, wall: WallMillis) -> Ticked {
        if !self.is_leading() {
            return Ticked::default();
        }
        self.deadlines.start_some(now, self.machine.sessions());
        let expired = self.expiry_mut().expired(now);
        let reaped = self.reaper.tick(now, wall, self.machine.reapable(), self.machine.view());
        let close = expired.iter().map(|session| (*session, CommandKind::CloseSession));
        let reap = reaped
            .iter()
            .map(|Chosen { path, mzxid }| (SessionId(0), CommandKind::Reap { path: path.clone(), mzxid: mzxid.0 }));
        let own = |(session, kind)| Command { origin: None, session, identities: 0, kind };
        let commands: Vec<Command> = close.chain(reap).map(own).collect();
        if !commands.is_empty() {
            self.wait(Proposals::new(Vec::new(), commands));
        }
        self.count(now);
        Ticked { expired, reaped }
    }

    /// Goes on counting a large subtree that was given a quota, a few milliseconds in each tenth of a second.
    fn count(&mut self, now: Millis) {
        const INTERVAL_MS: u64 = 100;
        if now.since(self.counted) < INTERVAL_MS {
            return;
        }
        self.counted = now;
        if let Some(counted) = self.machine.count_on() {
            self.propose_own(CommandKind::QuotaCounted(Box::new(counted)));
        }
    }

    /// Returns the writes beyond a quota since the last report, at most once a second, for the log.
    pub fn quota_report(&mut self, now: Millis) -> Option<QuotaReport> {
        const INTERVAL_MS: u64 = 1000;
        if now.since(self.quota_reported) < INTERVAL_MS {
            return None;
        }
        let report = self.machine.take_quota_report()?;
        self.quota_reported = now;
        Some(report)
    }

    /// The next log entry, made of everything that waits, up to the limit; it always fits (`backlog`). `None` when nothing
    /// waits or another leads. `None` also if the next command is costly and batches are not applied yet (`backlog`).
    pub fn take_batch(&mut self, time: WallMillis) -> Option<Batch> {
        let first_zxid = self.next_zxid?;
        let (is_applied, admits, features) = (self.proposed.is_empty(), self.admits(), self.features());
        let mut present = backlog::Present { machine: &mut self.machine, is_applied, admits };
        let empty = Batch { time, first_zxid, features, identities: Vec::new(), commands: Vec::new() };
        let batch = self.backlog.fill(&mut present, empty)?;
        let taken = batch.commands.iter().filter(|command| command.takes_zxid()).count() as u64;
        self.next_zxid = Some(first_zxid + taken);
        self.has_admitted |= admits;
        Some(batch)
    }

    /// The configured features and those of this leadership, with a mark that no other change of the list may begin.
    fn features(&self) -> u32 {
        let reconfiguring = if self.reconfiguration.waits() { features::RECONFIGURING } else { 0 };
        let admitted = if self.admits() { features::ADMITTED } else { 0 };
        self.config.features | reconfiguring | features::BOUNDS | admitted | self.known & features::IDENTIFIED
    }

    /// Every member of the ensemble has reported that it knows these features. At first all: a standalone server has no other
    /// members.
    pub const fn all_members_know(&mut self, features: u32) {
        self.known = features;
    }

    /// Whether the batches of this leader have `features::ADMITTED`: all members know it, or entries have it already. A member that
    /// is down, as each is in a rolling upgrade, changes nothing then. Without the bit, commands are judged when they are applied.
    pub const fn admits(&self) -> bool {
        self.known & features::ADMITTED != 0 || self.has_admitted || self.machine.has_admitted()
    }

    /// From now on, or no longer, a leader refuses commands of clients that may add data to the tree: QUOTAEXCEEDED.
    pub const fn refuse_growth(&mut self, refuses: bool) {
        self.backlog.refuse_growth(refuses);
    }

    /// Whether it does.
    pub const fn refuses_growth(&self) -> bool {
        self.backlog.refuses_growth() && self.is_leading()
    }

    /// Commands that were refused for that.
    pub const fn growth_refused(&self) -> u64 {
        self.backlog.growth_refused()
    }

    /// The last command that was found to fit no entry since it was last told: for the log.
    pub const fn take_oversized(&mut self) -> Option<Oversized> {
        self.backlog.take_oversized()
    }

    /// The list of servers, and the change of it that is under way.
    pub const fn servers(&self) -> ServerList<'_> {
        ServerList::new(&self.machine, &self.reconfiguration, self.index)
    }

    /// Whether a look at the members is worth while before the next tick.
    pub fn is_reconfiguring(&self) -> bool {
        self.is_leading() && self.reconfiguration.is_under_way(&self.machine)
    }

    /// The next step of a membership change, if one can be done now. To be called only when the log has room for it and
    /// no membership change is on its way. The result must be proposed at once.
    pub fn reconfigure(&mut self, now: Millis, wall: WallMillis, seen: &MembersSeen) -> Option<Proposal> {
        let present = reconfig::Present {
            now,
            wall,
            machine: &self.machine,
            next_zxid: self.next_zxid?,
            features: self.config.features,
            oldest_proposed: self.proposed.front().map(|batch| batch.first_zxid),
            is_idle: self.backlog.commands() == 0 && self.proposed.is_empty(),
        };
        match self.reconfiguration.next(&present, seen)? {
            Step::Propose(proposal) => {
                // The end of a joint change takes a zxid.
                self.next_zxid = self.next_zxid.map(|next| next + u64::from(proposal.changes.is_empty()));
                return Some(proposal);
            }
            Step::Last(command) => self.propose_last(command),
            Step::First(commands) => self.backlog.put_first(commands),
        }
        None
    }

    /// The proposal was not taken.
    pub fn reconfigure_failed(&mut self) {
        if let Some(command) = self.reconfiguration.fail() {
            self.propose_last(command);
        }
    }

    /// A change of the list was ordered, or came to its end.
    fn track_change(&mut self, now: Millis, origin: Option<Origin>, outcome: &Outcome) {
        let newest_proposed = self.proposed.back().map(|batch| batch.first_zxid);
        if let Some(command) = self.reconfiguration.track(now, &self.machine, newest_proposed, origin, outcome) {
            self.propose_last(command);
        }
    }

    /// Replaces the state by that of a snapshot, up to that log entry. This server follows. Returns the former state,
    /// and the state that was being written. Drop them where a long drop does no harm.
    pub fn install(&mut self, mut machine: StateMachine, index: u64, term: u64) -> (StateMachine, Option<FrozenState>) {
        self.end_leadership();
        machine.limit_cost(self.config.command_cost_max);
        self.reconfiguration.note_installed(self.machine.list_changes());
        (self.index, self.term) = (index, term);
        (core::mem::replace(&mut self.machine, machine), self.snapshots.installed())
    }

    /// The driver has handed the batch to the log; it comes back through [`Sequencer::apply_entry`].
    pub fn proposed(&mut self, batch: Batch) {
        self.proposed.push_back(batch);
    }

    /// Applies a committed log entry. An entry without payload (a new leader's first) changes nothing. `own` says that
    /// this server proposed the entry in this run, so that it need not be decoded again.
    ///
    /// # Errors
    /// [`NotABatch`] when the payload cannot be read: the log holds something this version does not understand.
    pub fn apply_entry(
        &mut self,
        now: Millis,
        index: u64,
        term: u64,
        payload: &[u8],
        own: bool,
    ) -> Result<AppliedBatch, NotABatch> {
        assert!(index == self.index + 1, "log entries are applied one after the other");
        self.index = index;
        self.term = term;
        if payload.is_empty() {
            return Ok(AppliedBatch::default());
        }
        let batch = if own {
            let batch = self.proposed.pop_front().expect("an entry of our own was proposed");
            debug_assert!(Batch::decode(payload).ok().as_ref() == Some(&batch), "the log gives back what it was given");
            batch
        } else if let Some(batch) = self.prepared.take(index, term, payload) {
            batch
        } else {
            Batch::decode(payload).map_err(|_| NotABatch)?
        };
        let (txns, before) = (batch.commands.len(), self.machine.units_spent());
        let applied = self.machine.apply(batch, term);
        self.snapshots.applied(now, txns, payload.len(), self.machine.units_spent().wrapping_sub(before));
        if self.is_leading() {
            self.track(now, &applied);
        }
        Ok(applied)
    }

    /// Keeps the deadlines in step with the session table.
    fn track(&mut self, now: Millis, applied: &AppliedBatch) {
        for txn in &applied.txns {
            if matches!(txn.outcome, Outcome::Underway(_) | Outcome::Later(_)) {
                self.track_change(now, txn.origin, &txn.outcome);
            }
            match txn.session {
                Some(SessionChange::Created(id) | SessionChange::Attached(id)) => {
                    if let Some(session) = self.machine.sessions().get(&id) {
                        self.deadlines.start(now, id, session);
                    }
                }
                Some(SessionChange::Closed(id)) => self.expiry_mut().stop(id),
                None => {}
            }
        }
    }

    /// Whether it is time for the next snapshot.
    pub fn wants_snapshot(&self, now: Millis) -> bool {
        self.snapshots.wants_next(now, self.view(), self.refuses_growth())
    }

    /// Whether so much was replayed at this start that a snapshot is due before the shards take their views. They then
    /// share the frozen changes, and the next start has nothing to replay.
    pub fn wants_snapshot_of_replay(&self) -> bool {
        self.snapshots.wants_one_of_replay(self.view())
    }

    /// Whether a snapshot is being written.
    pub const fn snapshot_running(&self) -> bool {
        self.snapshots.is_running()
    }

    /// Whether anything changed since the last snapshot.
    pub const fn has_changes(&self) -> bool {
        self.snapshots.has_changes()
    }

    /// Freezes the state at this zxid for the snapshot writer. Every shard must be told to adopt the frozen delta
    /// before it is given the next batch. The snapshot holds `extra` besides.
    ///
    /// # Panics
    /// When a snapshot is being written already.
    pub fn freeze(&mut self, now: Millis, extra: Vec<u8>) -> FrozenState {
        self.snapshots.freeze(now, &mut self.machine, (self.index, self.term), extra)
    }

    /// The state frozen at this index, because writing it failed. `None` if another server's snapshot has replaced it.
    pub fn frozen_again(&self, index: u64) -> Option<FrozenState> {
        self.snapshots.frozen_again(index)
    }

    /// The snapshot of the frozen state is durable and mapped. Gives back what it replaces, to be dropped elsewhere: the
    /// former snapshot, and the frozen state.
    pub fn snapshot_ready(&mut self, snapshot: Arc<Snapshot>) -> (Arc<Snapshot>, Option<FrozenState>) {
        self.snapshots.ready(&mut self.machine, snapshot)
    }
}

impl Machine for Sequencer {
    type Fault = NotABatch;

    fn commands_queued(&self) -> usize {
        self.backlog.commands()
    }

    fn next_batch(&mut self) -> Option<Vec<u8>> {
        let batch = self.take_batch(self.turn.wall())?;
        let payload = batch.encode();
        self.turn.proposed(self.config.server, &batch.commands, payload.len());
        self.proposed(batch);
        Some(payload)
    }

    fn servers_waiting(&self) -> Vec<ServerId> {
        self.turn.servers_waiting().to_vec()
    }

    fn prepare(&mut self, index: Index, term: Term, payload: &[u8]) -> Result<(), NotABatch> {
        self.prepared.prepare(index.0, term.0, payload)
    }

    fn membership_ahead(&mut self, index: Index, context: &[u8]) {
        self.reconfiguration.note_ahead(index.0, context);
    }

    /// [`Sequencer::take_applied`] gives what was applied.
    fn commit(&mut self, index: Index, term: Term, payload: &[u8], own: bool) -> Result<(), NotABatch> {
        let batch = self.apply_entry(self.turn.now(), index.0, term.0, payload, own)?;
        let digest = self.view().tree_digest();
        self.turn.applied(AppliedEntry { index: index.0, term: term.0, own, digest, batch });
        Ok(())
    }

    fn work(&self) -> u64 {
        self.machine.units_spent()
    }

    fn lead(&mut self, term: Term) {
        self.begin_leadership(self.turn.now(), term.0);
    }

    fn follow(&mut self) {
        self.end_leadership();
    }
}
