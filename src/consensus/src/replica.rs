//! A Raft node beside the state machine that it replicates: batches in, appends and committed entries out.
//!
//! The caller owns the machine, and passes the same one to each call that takes a [`Machine`].
//!
//! The same for a standalone server and for a server of an ensemble. Invariants:
//! - The machine leads only after everything of former terms is applied.
//! - An entry of this leadership is applied as the machine's own, in the order in which the machine made the batches.
//! - At most [`crate::APPENDS_MAX`] appends with entries are in flight, so commands that come meanwhile share the next one.
//! - No entry behind a snapshot is applied before the snapshot is installed. A corrupt state holds up neither log nor Raft.

use std::collections::VecDeque;

use bytes::Bytes;
use corral_types::Machine;

use crate::appends::Appends;
use crate::conf_change::ConfChange;
use crate::config::BOOTSTRAP_INDEX;
use crate::effects::{Effects, Install};
use crate::error::{ConfChangeError, PeerError, TransferError};
use crate::grouping::GroupDecision;
use crate::leadership_transfer::{LogDisk, TransferPolicy};
use crate::limits::{APPLIED_WORK_MAX, ENTRY_WORK, HELD_PAUSE, PREPARED_BYTES_MAX};
use crate::log_reads::LogReads;
use crate::membership::Membership;
use crate::message::{PeerBody, PeerMessage};
use crate::node::RaftNode;
use crate::notice_delay::{NoticeDecision, NoticeDelay};
use crate::outputs::{Outputs, ReadReady};
use crate::state_repair::StateRepair;
use crate::types::{Entry, EntryKind, Index, Micros, Role, ServerId, Term};

/// Members that wait for a commit, and when the others are informed.
#[derive(Debug, Default)]
struct Notices {
    delay: NoticeDelay,
    /// Own batches that clients of other members wait for, oldest first, with those members.
    awaited: VecDeque<(Index, Vec<ServerId>)>,
}

/// One member: its Raft node, and the part of the log that its machine has applied. Owned by the engine.
pub struct Replica {
    raft: RaftNode,
    out: Outputs,
    /// The second half of a turn is due: appends were handed out, committed entries are to be applied.
    apply_is_due: bool,
    /// The node has more outputs.
    has_more: bool,
    notices: Notices,
    appends: Appends,
    /// Indices of this leadership's own batches that are not applied, oldest first.
    own: VecDeque<Index>,
    leading: bool,
    /// The term in which it leads or has led.
    led_term: Term,
    applied: Index,
    /// The snapshot to install: nothing is applied before [`Replica::installed`] names it.
    installing: Option<Index>,
    repair: StateRepair,
    log_reads: LogReads,
    /// The readers of applied entries lag too far: nothing more is applied.
    held: bool,
    /// Committed entries to apply: behind that snapshot, or more than one turn applies.
    committed: VecDeque<Entry>,
    /// Bytes of the entries that were applied.
    applied_bytes: u64,
    /// Bytes of entries of other leaders that were prepared since the last turn.
    prepared_bytes: u64,
    /// The machine keeps commands until all its batches are applied. It is asked again in the turn that applies one.
    waits_for_apply: bool,
    waiting_reads: Vec<ReadReady>,
    transfer: TransferPolicy,
}

impl Replica {
    /// `applied` is the index up to which the machine has applied the log.
    pub fn new(raft: RaftNode, applied: Index) -> Replica {
        Replica {
            raft,
            out: Outputs::default(),
            apply_is_due: false,
            has_more: false,
            notices: Notices::default(),
            appends: Appends::default(),
            own: VecDeque::new(),
            leading: false,
            led_term: Term(0),
            applied,
            installing: None,
            repair: StateRepair::None,
            log_reads: LogReads::default(),
            held: false,
            committed: VecDeque::new(),
            applied_bytes: 0,
            prepared_bytes: 0,
            waits_for_apply: false,
            waiting_reads: Vec::new(),
            transfer: TransferPolicy::default(),
        }
    }

    /// The Raft node, read only.
    #[must_use]
    pub fn raft(&self) -> &RaftNode {
        &self.raft
    }

    /// Whether this node leads and has applied everything of former terms.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.leading
    }

    /// Index of the last entry applied.
    #[must_use]
    pub fn applied(&self) -> Index {
        self.applied
    }

    /// Payload bytes of the entries that were applied since the start.
    #[must_use]
    pub fn applied_bytes(&self) -> u64 {
        self.applied_bytes
    }

    /// Begins an election; a group of one does so at its start.
    pub fn campaign(&mut self) {
        self.raft.campaign();
    }

    /// One tick of time passed.
    pub fn tick(&mut self) {
        self.raft.tick();
        if self.repair.is_active()
            && !self.raft.is_transferring()
            && let Some(successor) = self.raft.followers().successor()
        {
            // If it is refused the next tick retries.
            let _ = self.raft.transfer_leader(successor);
        }
    }

    /// Handles a message from another member. A snapshot must be received and durable before the message that announces
    /// it is passed.
    ///
    /// # Errors
    /// The message is dropped and nothing changed; see [`PeerError`].
    pub fn step(&mut self, machine: &mut impl Machine, message: PeerMessage) -> Result<(), PeerError> {
        if let PeerBody::Append { entries, .. } = &message.body {
            entries.iter().try_for_each(|entry| self.prepare(machine, entry))?;
        }
        self.raft.step(message)
    }

    fn prepare(&mut self, machine: &mut impl Machine, entry: &Entry) -> Result<(), PeerError> {
        self.prepared_bytes += entry.payload.len() as u64;
        if entry.payload.len() > self.raft.max_entry_bytes() {
            return Err(PeerError::Entries(
                "larger than the log takes here: make log.segment_bytes and limits.frame_bytes_max as large as on the other servers",
            ));
        }
        let prepared = match entry.kind {
            EntryKind::Normal => machine.prepare(entry.index, entry.term, &entry.payload),
            EntryKind::ConfChange => {
                let change = ConfChange::decode(&entry.payload).map_err(PeerError::Entries)?;
                machine.prepare(entry.index, entry.term, &change.context)
            }
        };
        prepared.map_err(|_| PeerError::Entries("of a format that is not known here"))
    }

    /// Whether a turn is due before further messages of other members: their entries are held in memory until then.
    #[must_use]
    pub fn has_much_prepared(&self) -> bool {
        self.prepared_bytes >= PREPARED_BYTES_MAX
    }

    /// See [`RaftNode::leader_lost`].
    pub fn leader_lost(&mut self, leader: ServerId, stagger_ticks: u32) {
        self.raft.leader_lost(leader, stagger_ticks);
    }

    /// Transfers leadership to a voter. Nothing is proposed meanwhile, for an election timeout at most.
    ///
    /// # Errors
    /// If this node does not lead, or `to` is not another voter.
    pub fn transfer(&mut self, to: ServerId) -> Result<(), TransferError> {
        self.raft.transfer_leader(to)
    }

    /// Transfers leadership if this leader's log is slow: an append is not durable here, and has been at a voter for
    /// `timeout`. A new leader waits, and transfers are rare, so leadership stays where it is when all disks are slow.
    /// A leader without space in its log transfers whenever a voter has an entry that it cannot write. A follower
    /// without space does not campaign. Called every tick. Gives the successor when a transfer begins.
    pub fn transfer_leadership_if_slow(&mut self, now: Micros, timeout: Micros, disk: LogDisk) -> Option<ServerId> {
        self.raft.set_log_full(disk == LogDisk::Full);
        let oldest = self.appends.oldest();
        let behind = oldest.filter(|(_, last)| self.raft.followers().any_has(*last)).map(|(append, _)| append);
        if !self.transfer.is_due(now, timeout, self.leading, behind, disk) {
            return None;
        }
        // There may be no active voter at this moment: then the next tick retries.
        let to = self
            .raft
            .followers()
            .successor()
            .filter(|to| oldest.is_some_and(|(_, last)| self.raft.followers().matched(*to) >= last))?;
        self.raft.transfer_leader(to).ok()?;
        self.transfer.handed_over(now);
        Some(to)
    }

    /// Proposes a membership change. Every machine is passed its context as a payload when the change is committed.
    ///
    /// # Errors
    /// The change was not appended and will not be committed; see [`ConfChangeError`].
    pub fn propose_conf_change(&mut self, change: ConfChange) -> Result<(), ConfChangeError> {
        self.raft.propose_conf_change(change)
    }

    /// See [`RaftNode::reconcile`]. `wanted` is part of the machine's state, so nothing is done while that is corrupt: a later
    /// list of servers may be in force.
    pub fn reconcile(&mut self, wanted: &Membership) {
        if !self.repair.is_active() {
            self.raft.reconcile(wanted);
        }
    }

    /// See [`RaftNode::report_uninitialised`].
    pub fn report_uninitialised(&mut self, from: ServerId) {
        self.raft.report_uninitialised(from);
    }

    /// See [`RaftNode::bootstrap`]. The machine already has the empty state of that index.
    pub fn bootstrap(&mut self) {
        self.raft.bootstrap();
        self.applied = BOOTSTRAP_INDEX;
    }

    /// A message to this member was lost, or its connection ended.
    pub fn unreachable(&mut self, to: ServerId) {
        self.raft.report_unreachable(to);
    }

    /// The transfer of a snapshot to this member ended. Without this report it is sent nothing more.
    pub fn snapshot_sent(&mut self, to: ServerId, delivered: bool) {
        self.raft.report_snapshot(to, delivered);
    }

    /// The machine has the state of the snapshot in [`Effects::installs`], and the append of that number was reported
    /// durable. Entries committed behind the snapshot are applied in the next turn. If a newer snapshot is to be installed
    /// this one is ignored.
    ///
    /// # Panics
    /// If that snapshot was not to be installed.
    pub fn installed(&mut self, index: Index) {
        let newest = self.installing.expect("a snapshot is to be installed");
        assert!(index <= newest, "installed {index}, expected {newest}");
        if index < newest {
            return;
        }
        self.installing = None;
        self.end_repair();
        self.applied = index;
        self.raft.applied(index);
    }

    /// Sets whether the readers of applied entries lag so far that nothing more is applied ([`crate::Backlog`]
    /// decides). Called before each turn. Unapplied entries are bounded, so all members stop accepting.
    pub fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// Requests the index that makes a read linearizable. The answer is in [`Effects::reads`] or
    /// [`Effects::reads_refused`].
    pub fn read_index(&mut self, token: u64) {
        self.raft.read_index(token);
    }

    /// The append of this number, and all before it, are durable.
    pub fn persisted(&mut self, machine: &impl Machine, now: Micros, number: u64) {
        self.appends.durable(now, number, machine.commands_queued());
        self.raft.persisted(number);
    }

    /// A durable snapshot holds everything up to `upto`.
    pub fn compact(&mut self, upto: Index, term: Term) {
        self.raft.compact(upto, term);
    }

    /// Does what can be done now: proposes, collects appends, applies committed entries. Adds to `effects`.
    ///
    /// True: it is called again at once, with the same effects. The driver carries them out before, because an append
    /// takes longer than the rest of the turn. False with [`Effects::wake_at`] equal to `now`: there is more to apply, and
    /// these effects have cost [`APPLIED_WORK_MAX`].
    ///
    /// # Errors
    /// Those of the machine, when an entry cannot be decoded. The replica must not be used after that.
    pub fn turn<M: Machine>(&mut self, machine: &mut M, now: Micros, effects: &mut Effects) -> Result<bool, M::Fault> {
        self.follow_if_over(machine);
        self.prepared_bytes = 0;
        if !std::mem::replace(&mut self.apply_is_due, false) {
            effects.wake_at = self.propose_batch(machine, now);
            let mut out = std::mem::take(&mut self.out);
            self.has_more = self.raft.ready(&mut out);
            let notice_at = self.notices.send(now, &mut self.raft, &mut out.messages);
            effects.wake_at = [effects.wake_at, notice_at].into_iter().flatten().min();
            let appended = self.hand_out(machine, now, &mut out, effects);
            self.committed.extend(out.committed.drain(..));
            self.out = out;
            if appended && self.can_apply() {
                self.apply_is_due = true;
                return Ok(true);
            }
        }
        self.apply(machine, effects)?;
        self.serve_reads(effects);
        if effects.work >= APPLIED_WORK_MAX && (self.has_more || self.can_apply()) {
            effects.wake_at = Some(now);
            return Ok(false);
        }
        if self.held && (self.repair.is_active() || !self.committed.is_empty()) {
            let again = now.plus(HELD_PAUSE);
            effects.wake_at = Some(effects.wake_at.map_or(again, |wake_at| wake_at.min(again)));
        }
        Ok(self.has_more)
    }

    /// Whether there are entries to apply, and they may be applied.
    fn can_apply(&self) -> bool {
        if self.held || self.installing.is_some() {
            return false;
        }
        match &self.repair {
            StateRepair::None => !self.committed.is_empty(),
            StateRepair::AwaitsState { .. } => false,
            StateRepair::Replays { .. } => {
                let next = self.next();
                next > self.raft.applied_index() || self.repair.has(next) || self.raft.held_entry(next).is_some()
            }
        }
    }

    /// Ends a leadership that was lost, before anything else is done. Entries of its term may still be committed by the
    /// next leader, and are not own any more. The term shows a leadership that was lost and won again between two turns.
    fn follow_if_over(&mut self, machine: &mut impl Machine) {
        if self.leading && (self.raft.role() != Role::Leader || self.raft.term() != self.led_term) {
            self.leading = false;
            self.own.clear();
            self.notices.forget_waiting();
            machine.follow();
        }
    }

    /// Proposes at most one batch: the append that holds it is handed out before the next one is made. There is no room
    /// while too much is not acknowledged, and while leadership is transferred. Gives the time of the next attempt, if
    /// commands wait for others to join them.
    fn propose_batch(&mut self, machine: &mut impl Machine, now: Micros) -> Option<Micros> {
        if !self.leading || self.repair.is_active() || !self.raft.has_room() {
            return None;
        }
        let queued = machine.commands_queued();
        if queued == 0 {
            return None;
        }
        match self.appends.decide(now, queued) {
            GroupDecision::Go => {}
            GroupDecision::Behind => return None,
            GroupDecision::Until(time) => return Some(time),
        }
        let payload = machine.next_batch().map(Bytes::from);
        self.waits_for_apply = payload.is_none();
        let payload = payload?;
        self.appends.batch_proposed(queued - machine.commands_queued());
        let before = self.raft.last_index();
        self.raft.propose(payload).expect("there is room for a batch within its limits");
        self.own.push_back(Index(before.0 + 1));
        self.notices.wait(Index(before.0 + 1), machine.servers_waiting());
        None
    }

    /// Moves the node's outputs to `effects`, except committed entries. Whether there is an append.
    fn hand_out(&mut self, machine: &mut impl Machine, now: Micros, out: &mut Outputs, effects: &mut Effects) -> bool {
        if let Some(snapshot) = out.install.take() {
            let number = out.append.as_ref().expect("a snapshot comes with an append").number;
            self.installing = Some(snapshot.index);
            // Entries committed before are in the snapshot.
            self.committed.clear();
            out.committed.retain(|entry| entry.index > snapshot.index);
            effects.installs.push(Install { number, snapshot });
            effects.replaced.extend(out.replaced.take());
        }
        effects.messages.append(&mut out.messages);
        effects.role = out.role_change.or(effects.role);
        effects.snapshot_wanted |= out.snapshot_wanted;
        self.follow_if_over(machine);
        // An append that need not be synced holds only a commit index, which the next append holds as well.
        let Some(append) = out.append.take().filter(|append| append.must_sync) else { return false };
        self.appends.begin(now, &append);
        effects.appends.push(append);
        true
    }

    /// Applies committed entries, up to the work of one turn. An entry is applied as a whole.
    fn apply<M: Machine>(&mut self, machine: &mut M, effects: &mut Effects) -> Result<(), M::Fault> {
        self.skip_committed(machine);
        while effects.work < APPLIED_WORK_MAX
            && self.can_apply()
            && let Some(entry) = self.next_entry()
        {
            let before = machine.work();
            self.commit(machine, &entry)?;
            let bytes = entry.payload.len() as u64;
            self.applied_bytes += bytes;
            effects.work += machine.work() - before + bytes + ENTRY_WORK;
        }
        let replays = !self.held && self.installing.is_none() && !self.can_apply() && self.repair.replays();
        let for_repair = replays.then(|| (self.next(), self.raft.applied_index()));
        effects.log_wanted = self.log_reads.begin(for_repair, &mut self.raft).or(effects.log_wanted);
        Ok(())
    }

    fn serve_reads(&mut self, effects: &mut Effects) {
        self.waiting_reads.append(&mut self.out.reads);
        let ready = self.waiting_reads.extract_if(.., |read| read.index <= self.applied);
        effects.reads.extend(ready.map(|read| read.token));
        effects.reads_refused.append(&mut self.out.reads_refused);
    }

    fn commit<M: Machine>(&mut self, machine: &mut M, entry: &Entry) -> Result<(), M::Fault> {
        let own = self.own.front() == Some(&entry.index);
        if own {
            self.own.pop_front();
        }
        let normal = entry.kind == EntryKind::Normal;
        if normal {
            machine.commit(entry.index, entry.term, &entry.payload, own)?;
        } else {
            machine.commit(entry.index, entry.term, &context_of(entry), false)?;
        }
        self.applied = entry.index;
        self.has_more |= std::mem::take(&mut self.waits_for_apply);
        if entry.index > self.raft.applied_index() {
            self.raft.applied(entry.index);
        }
        let empty = normal && entry.payload.is_empty();
        let first_of_our_term = empty && entry.term == self.raft.term() && self.raft.role() == Role::Leader;
        if first_of_our_term && !self.leading {
            self.leading = true;
            self.led_term = entry.term;
            machine.lead(entry.term);
        }
        Ok(())
    }

    /// The state of the machine is corrupt, the log is not: this node goes on voting, storing and acknowledging. From here
    /// on it proposes nothing and transfers leadership, and the machine stops. The driver requests a snapshot
    /// ([`Replica::state_requests`]), and reports [`Replica::state_replaced`]. Then the entries behind the snapshot are applied
    /// from this server's own log. False if no repair begins: a snapshot is being installed or awaited already, or there is
    /// no state yet.
    pub fn mark_state_corrupt(&mut self) -> bool {
        let is_replaced = self.installing.is_some() || self.repair.awaits().is_some() || self.raft.is_restoring();
        if is_replaced || self.raft.is_uninitialised() {
            return false;
        }
        self.repair.begin(self.applied);
        self.raft.set_state_corrupt(true);
        true
    }

    /// Whether the state of the machine is corrupt, or behind what it was before it was replaced.
    #[must_use]
    pub fn is_state_corrupt(&self) -> bool {
        self.repair.is_active()
    }

    /// Where a snapshot ends at least that can replace a corrupt state; `None` if none is awaited.
    #[must_use]
    pub fn awaits_state(&self) -> Option<Index> {
        self.repair.awaits().filter(|_| self.installing.is_none())
    }

    /// Requests for a snapshot that can replace a corrupt state, to be sent in each tick until it is received. None if no snapshot is awaited.
    #[must_use]
    pub fn state_requests(&self) -> Vec<PeerMessage> {
        self.awaits_state().map_or_else(Vec::new, |least| self.raft.state_requests(least))
    }

    /// The machine has the state of a snapshot that ends at `index`, in the place of a corrupt one. The log stays.
    ///
    /// # Panics
    /// If that state was not awaited, or Raft has not applied the log up to `index`.
    pub fn state_replaced(&mut self, index: Index) {
        let least = self.awaits_state().expect("a state is awaited");
        let applied = self.raft.applied_index();
        assert!(least <= index && index <= applied, "a state at {index}, awaited between {least} and {applied}");
        self.applied = index;
        self.repair.replay();
    }

    /// Entries of this server's log that [`Effects::log_wanted`] asked for. None: they cannot be read, and a newer snapshot
    /// is needed here or by followers.
    pub fn log_read(&mut self, entries: Vec<Entry>) {
        self.log_reads.end(entries, &mut self.repair, &mut self.raft);
    }

    /// The log has no space: see [`RaftNode::log_needed_from`]. True if entries are needed less than before.
    pub fn give_up_log(&mut self) -> bool {
        self.raft.give_up_log()
    }

    /// While a state is repaired, committed entries are only reported to Raft: the log on disk holds them. The machine is
    /// informed of changes of the membership, because their members are needed for a quorum at once.
    fn skip_committed(&mut self, machine: &mut impl Machine) {
        if !self.repair.is_active() || self.installing.is_some() {
            return;
        }
        let Some(last) = self.committed.back().map(|entry| entry.index) else { return };
        let changes = self.committed.iter().filter(|entry| entry.kind == EntryKind::ConfChange);
        changes.for_each(|entry| machine.membership_ahead(entry.index, &context_of(entry)));
        self.committed.clear();
        self.raft.applied(last);
    }

    /// The index behind the last entry applied.
    fn next(&self) -> Index {
        Index(self.applied.0 + 1)
    }

    /// The next entry to apply: committed since the last turn, or from this server's own log. The repair of a state ends
    /// with the last entry that Raft has applied.
    fn next_entry(&mut self) -> Option<Entry> {
        if self.repair.is_active() {
            let next = self.next();
            if next <= self.raft.applied_index() {
                return self.repair.take(next).or_else(|| self.raft.held_entry(next));
            }
            self.end_repair();
        }
        self.committed.pop_front()
    }

    fn end_repair(&mut self) {
        self.repair = StateRepair::None;
        self.raft.set_state_corrupt(false);
    }
}

/// The context of a committed membership change.
fn context_of(change: &Entry) -> Bytes {
    ConfChange::decode(&change.payload).expect("checked before it entered the log").context
}

impl Notices {
    /// Clients of these members wait for the batch at `index`.
    fn wait(&mut self, index: Index, members: Vec<ServerId>) {
        if !members.is_empty() {
            self.awaited.push_back((index, members));
        }
    }

    /// The leadership is over.
    fn forget_waiting(&mut self) {
        self.awaited.clear();
    }

    /// Adds the notices that are due to `messages`. If the clients of a member wait, it is informed at once. Gives the time
    /// of the next notice, if one waits for an append.
    fn send(&mut self, now: Micros, raft: &mut RaftNode, messages: &mut Vec<PeerMessage>) -> Option<Micros> {
        while self.awaited.front().is_some_and(|(index, _)| *index <= raft.commit()) {
            let (_, waiting) = self.awaited.pop_front().expect("just seen");
            messages.extend(waiting.into_iter().filter_map(|member| raft.commit_notice(member)));
        }
        // If reads of a member wait for that index, it is informed at once, too.
        for at in 0..messages.len() {
            if matches!(messages[at].body, PeerBody::ReadIndexReply { .. }) {
                let notice = raft.commit_notice(messages[at].to);
                messages.extend(notice);
            }
        }
        let has_uninformed = !raft.uninformed().is_empty();
        match self.delay.decide(now, has_uninformed) {
            NoticeDecision::None => None,
            NoticeDecision::Send => {
                let uninformed = raft.uninformed();
                messages.extend(uninformed.into_iter().filter_map(|member| raft.commit_notice(member)));
                None
            }
            NoticeDecision::Until(time) => Some(time),
        }
    }
}
