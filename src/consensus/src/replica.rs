//! A Raft node and the machine it replicates, turned together: proposals in, appends and committed entries out.
//!
//! Pure like the rest of this crate, the same for a server that is alone and for one of an ensemble. It owns the order in
//! which things happen: a machine leads only after everything of former terms is applied, an entry of our own is
//! recognised as such, no more appends are under way than keep the log busy, so that what arrives meanwhile shares the
//! next one, and nothing behind an image is applied before the machine is the image's.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::conf_change::ConfChange;
use crate::error::{ConfChangeError, PeerError, TransferError};
use crate::grouping::{self, Grouping, Load};
use crate::limits::{APPLIED_WORK_MAX, ENTRY_WORK, HELD_PAUSE, PREPARED_BYTES_MAX};
use crate::message::{PeerBody, PeerMessage};
use crate::node::{FORMED_INDEX, RaftNode};
use crate::notices::{Notices, Verdict};
use crate::outputs::{Append, InstallSnapshot, Outputs, ReadReady, RoleChange};
use crate::relief::{Behind, LogDisk, Relief};
use crate::types::{Entry, EntryKind, Index, Membership, Micros, NodeId, Role, Term};

/// What is replicated. Implemented outside; called in log order.
pub trait Machine {
    /// Why a committed entry cannot be applied.
    type Fault;

    /// Commands that wait to be proposed.
    fn waiting(&self) -> usize;

    /// The next payload for the log; never empty. `None` when nothing waits.
    fn propose(&mut self) -> Option<Bytes>;

    /// Other members whose clients wait for what [`Machine::propose`] gave last: they are told at once when that is committed,
    /// the rest a little later at most.
    fn waiting_elsewhere(&self) -> Vec<NodeId>;

    /// Looks at an entry of another leader, which may take the place of those from its index on, before it gets into the log.
    ///
    /// # Errors
    /// When [`Machine::commit`] could not apply it: then it is refused, because every member would stop at it.
    fn prepare(&mut self, index: Index, term: Term, payload: &[u8]) -> Result<(), Self::Fault>;

    /// Applies a committed entry; an empty payload changes nothing but the index. `own`: this very machine made the
    /// payload, by the oldest [`Machine::propose`] not yet given back. A membership change brings its context, never as
    /// our own.
    ///
    /// # Errors
    /// When the payload is not understood; the replica must stop then.
    fn commit(&mut self, index: Index, term: Term, payload: &[u8], own: bool) -> Result<(), Self::Fault>;

    /// What all commits have cost so far, in nanoseconds by and large: counted, so that it is the same everywhere. It bounds what
    /// one turn applies.
    fn work(&self) -> u64;

    /// This node leads, and everything before its term is applied.
    fn lead(&mut self, term: Term);

    /// This node leads no more: what it proposed and was not committed may or may not come, and comes as somebody
    /// else's.
    fn follow(&mut self);
}

/// What one turn asks of the driver.
#[derive(Debug, Default)]
pub struct Effects {
    /// To be written to the log in this order, then reported with [`Replica::persisted`].
    pub appends: Vec<Append>,
    /// A leader's image, which the transport brought before, takes the place of log and machine: see [`Install`].
    pub installs: Vec<Install>,
    /// May go to the other members now, in this order.
    pub messages: Vec<PeerMessage>,
    /// Role, term or leader are different from what was told last; the newest.
    pub role: Option<RoleChange>,
    /// A member lags so far behind that it needs an image newer than the last one reported by [`Replica::compact`].
    pub image_wanted: bool,
    /// Tokens of [`Replica::read_index`] whose reads may be served now: their index is applied.
    pub reads: Vec<u64>,
    /// Tokens that will not be answered.
    pub reads_refused: Vec<u64>,
    /// Another turn is wanted then, whatever else happens: writes wait for others to join them, or committed entries for the
    /// driver to have looked after everything else (then it is the time of this turn).
    pub wake_at: Option<Micros>,
    /// What was applied cost so much.
    work: u64,
}

/// An append with entries that is not yet durable.
#[derive(Debug)]
struct UnderWay {
    number: u64,
    /// Commands in it.
    writes: usize,
    /// Its last entry.
    last: Index,
    since: Micros,
}

/// An image that replaces everything here.
///
/// The log is emptied, and goes on behind `image.index`, before the append of this number is written. When that append
/// is durable the driver reports it, puts the image's state into the machine and calls [`Replica::installed`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Install {
    /// Number of the append it is part of.
    pub number: u64,
    /// Which image.
    pub image: InstallSnapshot,
}

/// See the module.
pub struct Replica<M: Machine> {
    raft: RaftNode,
    machine: M,
    out: Outputs,
    /// Of `out`, what is committed is yet to be applied.
    unapplied: bool,
    /// The node has more to hand out.
    more: bool,
    grouping: Grouping,
    notices: Notices,
    /// Of our own proposals, oldest first: by which index somebody elsewhere waits for one, and who.
    waited_for: VecDeque<(Index, Vec<NodeId>)>,
    under_way: VecDeque<UnderWay>,
    /// Commands of the proposal that the next append holds.
    proposed_writes: usize,
    /// Indices of our own proposals, oldest first.
    own: VecDeque<Index>,
    leading: bool,
    /// The term in which it leads.
    led: Term,
    applied: Index,
    /// Image that is to be installed: nothing is applied before [`Replica::installed`] names it.
    installing: Option<Index>,
    /// The machine's state is not to be trusted: nothing is applied to it before an image has taken its place.
    distrusted: bool,
    /// Those who are told what is applied are far behind: nothing more is applied.
    held: bool,
    /// Committed and yet to be applied: behind that image, or more than one turn takes.
    committed: VecDeque<Entry>,
    /// Bytes of the entries that were applied.
    applied_bytes: u64,
    /// Bytes of others' entries that were looked at since the last turn.
    prepared_bytes: u64,
    waiting_reads: Vec<ReadReady>,
    relief: Relief,
}

impl<M: Machine> Replica<M> {
    /// `applied` is the index that `machine` contains already.
    pub fn new(raft: RaftNode, machine: M, applied: Index) -> Replica<M> {
        Replica {
            raft,
            machine,
            out: Outputs::default(),
            unapplied: false,
            more: false,
            grouping: Grouping::default(),
            notices: Notices::default(),
            waited_for: VecDeque::new(),
            under_way: VecDeque::new(),
            proposed_writes: 0,
            own: VecDeque::new(),
            leading: false,
            led: Term(0),
            applied,
            installing: None,
            distrusted: false,
            held: false,
            committed: VecDeque::new(),
            applied_bytes: 0,
            prepared_bytes: 0,
            waiting_reads: Vec::new(),
            relief: Relief::default(),
        }
    }

    /// The replicated machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// The replicated machine, for inputs that do not pass through the log.
    pub fn machine_mut(&mut self) -> &mut M {
        &mut self.machine
    }

    /// The Raft node, to be looked at.
    pub fn raft(&self) -> &RaftNode {
        &self.raft
    }

    /// Whether this node leads and has applied everything of former terms.
    pub fn is_leading(&self) -> bool {
        self.leading
    }

    /// Index of the last entry applied.
    pub fn applied(&self) -> Index {
        self.applied
    }

    /// Bytes of the entries that were applied since the start.
    pub fn applied_bytes(&self) -> u64 {
        self.applied_bytes
    }

    /// Stands for election; a group of one does so at its start.
    pub fn campaign(&mut self) {
        self.raft.campaign();
    }

    /// One tick of time passed.
    pub fn tick(&mut self) {
        if let Some(successor) = self.raft.misled() {
            // Refused at worst; then the next tick tries again.
            let _ = self.raft.transfer_leader(successor);
        }
        self.raft.tick();
    }

    /// Takes a message from another member. An image must be here, whole and durable, before the message that announces
    /// it.
    ///
    /// # Errors
    /// Nothing happened; see [`PeerError`].
    pub fn step(&mut self, message: PeerMessage) -> Result<(), PeerError> {
        if let PeerBody::Append { entries, .. } = &message.body {
            entries.iter().try_for_each(|entry| self.prepare(entry))?;
        }
        self.raft.step(message)
    }

    fn prepare(&mut self, entry: &Entry) -> Result<(), PeerError> {
        self.prepared_bytes += entry.payload.len() as u64;
        if entry.payload.len() > self.raft.max_entry_bytes() {
            return Err(PeerError::Entries(
                "larger than the log takes here: make log.segment_bytes and limits.frame_bytes_max as large as on the other servers",
            ));
        }
        let prepared = match entry.kind {
            EntryKind::Normal => self.machine.prepare(entry.index, entry.term, &entry.payload),
            EntryKind::ConfChange => {
                let change = ConfChange::decode(&entry.payload).map_err(PeerError::Entries)?;
                self.machine.prepare(entry.index, entry.term, &change.context)
            }
        };
        prepared.map_err(|_| PeerError::Entries("of a format that is not known here"))
    }

    /// Whether the next messages of others are to wait until a turn was done.
    pub fn has_much_prepared(&self) -> bool {
        self.prepared_bytes >= PREPARED_BYTES_MAX
    }

    /// See [`RaftNode::leader_lost`].
    pub fn leader_lost(&mut self, leader: NodeId, stagger_ticks: u32) {
        self.raft.leader_lost(leader, stagger_ticks);
    }

    /// Hands leadership to a voter; nothing is proposed meanwhile, for an election timeout at most.
    ///
    /// # Errors
    /// See [`TransferError`].
    pub fn transfer(&mut self, to: NodeId) -> Result<(), TransferError> {
        self.raft.transfer_leader(to)
    }

    /// A leader whose log does not get an append durable, although a voter has had it durable for as long as `patience`,
    /// hands over to that voter. Not soon after it began to lead, and seldom: where all disks are slow, leadership stays
    /// where it is. Where the log has no space it hands over whenever another has had what it cannot write, and who does not
    /// lead stands for no election. To be called each tick; gives the successor when it hands over.
    pub fn relieve(&mut self, now: Micros, patience: Micros, disk: LogDisk) -> Option<NodeId> {
        self.raft.set_log_full(disk == LogDisk::Full);
        let oldest = self.under_way.front();
        let late = oldest.filter(|append| self.raft.others_have(append.last));
        let behind = late.map(|append| Behind { number: append.number, begun: append.since });
        let last = oldest.map(|append| append.last);
        if !self.relief.is_due(now, patience, self.leading, behind, disk) {
            return None;
        }
        // Nobody may have been heard from in this very moment: then the next tick tries again.
        let to = self.raft.successor().filter(|to| last.is_some_and(|last| self.raft.matched(*to) >= last))?;
        self.raft.transfer_leader(to).ok()?;
        self.relief.handed_over(now);
        Some(to)
    }

    /// Proposes a membership change. Its context reaches every machine as a payload when the change is committed.
    ///
    /// # Errors
    /// See [`ConfChangeError`]; then it will never be committed.
    pub fn propose_conf_change(&mut self, change: ConfChange) -> Result<(), ConfChangeError> {
        self.raft.propose_conf_change(change)
    }

    /// See [`RaftNode::reconcile`].
    pub fn reconcile(&mut self, wanted: &Membership) {
        self.raft.reconcile(wanted);
    }

    /// See [`RaftNode::heard_newborn`].
    pub fn heard_newborn(&mut self, from: NodeId) {
        self.raft.heard_newborn(from);
    }

    /// See [`RaftNode::form`]. The machine has the empty state of that index already.
    pub fn form(&mut self) {
        self.raft.form();
        self.applied = FORMED_INDEX;
    }

    /// A message to this member was lost, or its link broke.
    pub fn unreachable(&mut self, to: NodeId) {
        self.raft.report_unreachable(to);
    }

    /// How the transfer of an image to this member ended: without this report it is sent nothing more.
    pub fn image_sent(&mut self, to: NodeId, delivered: bool) {
        self.raft.report_snapshot(to, delivered);
    }

    /// The machine is now the image's, as [`Effects::installs`] asked, and the append of that number was reported
    /// durable. What was committed behind the image is applied in the next turn.
    ///
    /// Of two images that came one behind the other the older is passed over.
    ///
    /// # Panics
    /// If that image was not to be installed.
    pub fn installed(&mut self, index: Index) {
        let newest = self.installing.expect("an image is to be installed");
        assert!(index <= newest, "installed {index}, expected {newest}");
        if index < newest {
            return;
        }
        self.installing = None;
        self.distrusted = false;
        self.applied = index;
        self.raft.applied(index);
    }

    /// The machine's state is not to be trusted. The log is: it goes on voting and acknowledging. Nothing is proposed or applied
    /// from here on. Leadership is handed over, and the leader is asked for an image, which is installed like that for a
    /// follower that lags ([`Effects::installs`]); that ends it. False if nothing came of it: an image takes the place of
    /// everything already, or there is no state yet. `gives_images`: its images are good for others, who check them.
    pub fn distrust(&mut self, gives_images: bool) -> bool {
        if self.distrusted {
            // Found again, by whoever refused the image that was given: it is not given any more.
            self.raft.give_no_images();
            return false;
        }
        if self.installing.is_some() || self.raft.is_newborn() || self.raft.is_restoring() {
            return false;
        }
        self.distrusted = true;
        self.raft.distrust(gives_images);
        true
    }

    /// Whether the machine's state is not to be trusted.
    pub fn is_distrusted(&self) -> bool {
        self.distrusted
    }

    /// Whether this node leads although its state is not to be trusted, and neither it nor another member gets on: the process
    /// has to end, and to begin anew with what its disk holds.
    pub fn is_stuck(&self) -> bool {
        self.distrusted && self.raft.is_stuck()
    }

    /// Whether those who are told what is applied are so far behind that nothing more is to be applied; to be said anew before each
    /// turn ([`crate::Backlog`] knows). A leader proposes, and a follower takes, only so much until it goes on.
    pub fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// Asks for an index that makes a read linearizable; answered in [`Effects::reads`].
    pub fn read_index(&mut self, token: u64) {
        self.raft.read_index(token);
    }

    /// The append of this number, and all before it, are durable.
    pub fn persisted(&mut self, now: Micros, number: u64) {
        let (mut answered, mut since) = (0, None);
        while self.under_way.front().is_some_and(|first| first.number <= number) {
            let append = self.under_way.pop_front().expect("just seen");
            answered += append.writes;
            since = Some(append.since);
        }
        if let Some(since) = since {
            let under_way: usize = self.under_way.iter().map(|append| append.writes).sum();
            self.grouping.durable(now, now.since(since), answered + under_way + self.machine.waiting());
        }
        self.raft.persisted(number);
    }

    /// A durable image holds everything up to `upto`.
    pub fn compact(&mut self, upto: Index, term: Term) {
        self.raft.compact(upto, term);
    }

    /// Does what can be done now: proposes, collects appends, applies what is committed. Adds to `effects`.
    ///
    /// True: to be called again at once, with the same effects. They are better sent on before, because an append takes the log
    /// longer than anything that is left to do. False while there is more to apply, when what these effects hold has cost
    /// [`APPLIED_WORK_MAX`]: then [`Effects::wake_at`] is `now`.
    ///
    /// # Errors
    /// The machine's, when an entry is not understood. Nothing may be done with the replica after that.
    pub fn turn(&mut self, now: Micros, effects: &mut Effects) -> Result<bool, M::Fault> {
        self.follow_if_over();
        self.prepared_bytes = 0;
        if !std::mem::replace(&mut self.unapplied, false) {
            effects.wake_at = self.propose(now);
            let mut out = std::mem::take(&mut self.out);
            self.more = self.raft.ready(&mut out);
            self.tell_others(now, &mut out, effects);
            let appended = self.hand_out(now, &mut out, effects);
            self.committed.extend(out.committed.drain(..));
            self.out = out;
            if appended && self.can_apply() {
                self.unapplied = true;
                return Ok(true);
            }
        }
        self.apply(effects)?;
        self.serve_reads(effects);
        if effects.work >= APPLIED_WORK_MAX && (self.more || self.can_apply()) {
            effects.wake_at = Some(now);
            return Ok(false);
        }
        if self.held && !self.committed.is_empty() {
            let again = now.plus(HELD_PAUSE);
            effects.wake_at = Some(effects.wake_at.map_or(again, |wake_at| wake_at.min(again)));
        }
        Ok(self.more)
    }

    /// Whether there is something to apply, and nothing forbids it.
    fn can_apply(&self) -> bool {
        !self.held && self.installing.is_none() && !self.distrusted && !self.committed.is_empty()
    }

    /// A leadership ends before anything else is done: entries of its term may still be committed, by the next leader,
    /// and are nobody's own any more. The term tells when it was lost and won again between two turns.
    fn follow_if_over(&mut self) {
        if self.leading && (self.raft.role() != Role::Leader || self.raft.term() != self.led) {
            self.leading = false;
            self.own.clear();
            self.waited_for.clear();
            self.machine.follow();
        }
    }

    /// At most one batch: the append that holds it is handed out before the next is made. What the others have not
    /// acknowledged yet, and leadership on its way to another, leave no room. The time at which to try again, if that is
    /// to be soon.
    fn propose(&mut self, now: Micros) -> Option<Micros> {
        if !self.leading || self.distrusted || !self.raft.has_room() {
            return None;
        }
        let load = Load { writes: self.machine.waiting(), appends: self.under_way.len() };
        if load.writes == 0 {
            return None;
        }
        match self.grouping.judge(now, load) {
            grouping::Verdict::Go => {}
            grouping::Verdict::Behind => return None,
            grouping::Verdict::Until(time) => return Some(time),
        }
        let payload = self.machine.propose()?;
        self.proposed_writes = load.writes - self.machine.waiting();
        let before = self.raft.last_index();
        self.raft.propose(payload).expect("there is room for a batch within its limits");
        self.own.push_back(Index(before.0 + 1));
        let waiting = self.machine.waiting_elsewhere();
        if !waiting.is_empty() {
            self.waited_for.push_back((Index(before.0 + 1), waiting));
        }
        None
    }

    /// How far all is committed: what the messages of this turn do not say anyway. Those who wait for it are told at once.
    fn tell_others(&mut self, now: Micros, out: &mut Outputs, effects: &mut Effects) {
        while self.waited_for.front().is_some_and(|(index, _)| *index <= self.raft.commit()) {
            let (_, waiting) = self.waited_for.pop_front().expect("just seen");
            out.messages.extend(waiting.into_iter().filter_map(|member| self.raft.tell(member)));
        }
        // So do those whose reads wait for that index.
        for at in 0..out.messages.len() {
            if matches!(out.messages[at].body, PeerBody::ReadIndexReply { .. }) {
                let notice = self.raft.tell(out.messages[at].to);
                out.messages.extend(notice);
            }
        }
        let untold = self.raft.untold().next().is_some();
        match self.notices.judge(now, untold) {
            Verdict::Rest => {}
            Verdict::Tell => {
                let untold: Vec<NodeId> = self.raft.untold().collect();
                out.messages.extend(untold.into_iter().filter_map(|member| self.raft.tell(member)));
            }
            Verdict::Until(time) => effects.wake_at = Some(effects.wake_at.map_or(time, |wake_at| wake_at.min(time))),
        }
    }

    /// Everything but what is to be applied. Whether there is an append.
    fn hand_out(&mut self, now: Micros, out: &mut Outputs, effects: &mut Effects) -> bool {
        if let Some(image) = out.install.take() {
            let number = out.append.as_ref().expect("an image comes with an append").number;
            self.installing = Some(image.index);
            // What was committed before is in the image, also what waited until now for its append.
            self.committed.clear();
            out.committed.retain(|entry| entry.index > image.index);
            effects.installs.push(Install { number, image });
        }
        effects.messages.append(&mut out.messages);
        effects.role = out.role_change.or(effects.role);
        effects.image_wanted |= out.image_wanted;
        self.follow_if_over();
        // What need not be synced is the commit index alone, which a restart finds out again.
        let Some(append) = out.append.take().filter(|append| append.must_sync) else { return false };
        if !append.entries.is_empty() {
            let writes = std::mem::take(&mut self.proposed_writes);
            let last = append.entries.last().expect("it has entries").index;
            self.under_way.push_back(UnderWay { number: append.number, writes, last, since: now });
        }
        effects.appends.push(append);
        true
    }

    /// Applies what is committed, until the turn's work is done. An entry is applied whole.
    fn apply(&mut self, effects: &mut Effects) -> Result<(), M::Fault> {
        while effects.work < APPLIED_WORK_MAX
            && self.can_apply()
            && let Some(entry) = self.committed.pop_front()
        {
            let before = self.machine.work();
            self.commit(&entry)?;
            let bytes = entry.payload.len() as u64;
            self.applied_bytes += bytes;
            effects.work += self.machine.work() - before + bytes + ENTRY_WORK;
        }
        Ok(())
    }

    fn serve_reads(&mut self, effects: &mut Effects) {
        self.waiting_reads.append(&mut self.out.reads);
        let applied = self.applied;
        self.waiting_reads.retain(|read| {
            let ready = read.index <= applied;
            if ready {
                effects.reads.push(read.token);
            }
            !ready
        });
        effects.reads_refused.append(&mut self.out.reads_refused);
    }

    fn commit(&mut self, entry: &Entry) -> Result<(), M::Fault> {
        let own = self.own.front() == Some(&entry.index);
        if own {
            self.own.pop_front();
        }
        let normal = entry.kind == EntryKind::Normal;
        if normal {
            self.machine.commit(entry.index, entry.term, &entry.payload, own)?;
        } else {
            let change = ConfChange::decode(&entry.payload).expect("checked before it entered the log");
            self.machine.commit(entry.index, entry.term, &change.context, false)?;
        }
        self.applied = entry.index;
        self.raft.applied(entry.index);
        let empty = normal && entry.payload.is_empty();
        let first_of_our_term = empty && entry.term == self.raft.term() && self.raft.role() == Role::Leader;
        if first_of_our_term && !self.leading {
            self.leading = true;
            self.led = entry.term;
            self.machine.lead(entry.term);
        }
        Ok(())
    }
}
