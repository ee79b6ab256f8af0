//! The Raft node: inputs in, `Outputs` out.
//!
//! Lives on the consensus actor's core and is driven by it turn by turn. It drives the library with asynchronous
//! appends: entries are handed out to be written, and count for a commit only when reported durable. It keeps back
//! messages that must not be said before, and applies membership changes when the entry is reported applied. It
//! knows neither how anything is stored nor how messages travel.

mod distrust;
mod hurry;
mod members;
mod newborn;
mod notices;
mod plausible;
mod ready;
mod seen;

pub use newborn::{FORMED_INDEX, FORMED_TERM};

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use raft::eraftpb::{self, Message, MessageType};
use raft::{Raft, RawNode, ReadOnlyOption, StateRole};

use crate::conf_change::ConfChange;
use crate::convert;
use crate::error::{ConsensusError, PeerError, ProposeError, TransferError};
use crate::limits;
use crate::log::MemLog;
use crate::logger;
use crate::message::{PeerBody, PeerMessage};
use crate::outputs::RoleChange;
use crate::reads::Reads;
use crate::rng::Rng;
use crate::types::{Config, Entry, Index, Membership, NodeId, Restored, Role, Term};
use distrust::Distrust;
use hurry::Hurry;

/// One member's Raft.
pub struct RaftNode {
    raw: RawNode<MemLog>,
    id: NodeId,
    max_entry_bytes: u32,
    max_inflight_entries: u64,
    log_cache_bytes: u64,
    rng: Rng,
    /// Ticks without a leader until the next election.
    timeout: usize,
    /// Term, role and leader at the last input.
    seen: (u64, StateRole, u64),
    /// What was told last as a role change.
    told: RoleChange,
    /// Term and vote handed out last.
    hard_told: (Term, Option<NodeId>),
    /// Appends handed out and not reported durable, oldest first.
    awaiting: VecDeque<Awaiting>,
    last_number: u64,
    /// Messages that may go out when the append of that number is durable, by number.
    held: VecDeque<(u64, PeerMessage)>,
    /// Highest index handed out as committed, or installed.
    delivered: u64,
    /// Committed, but behind a membership change whose commit is not durable yet; with the append that makes it so.
    committed_later: VecDeque<(u64, Entry)>,
    /// Membership changes handed out and not applied yet.
    conf_pending: VecDeque<(u64, ConfChange)>,
    /// Membership by the index from which it is in force; the first is the one of the image.
    conf_history: VecDeque<(u64, Membership)>,
    /// Bytes proposed since the last `ready`.
    unready_bytes: u64,
    reads: Reads,
    /// The log has no space: it could not make durable what an election needs, nor lead.
    log_full: bool,
    /// The state that the log led to is not to be trusted: see `distrust`.
    distrusted: Option<Distrust>,
    /// The leader was seen to go: elections before the timeout would begin one.
    hurry: Option<Hurry>,
    /// Set while this server remembers nothing and belongs to nothing.
    newborn: Option<Box<Config>>,
    /// Of a leader: how far each member was told that all is committed.
    informed: BTreeMap<u64, u64>,
    /// Of a leader: members that said that they are newborn, and have acknowledged nothing since.
    newborns: BTreeSet<NodeId>,
    /// Who has answered since it last looked, and who was close behind then.
    replied: BTreeSet<NodeId>,
    keeping_up: BTreeSet<NodeId>,
    /// Ticks until it looks again.
    look_in: u32,
    /// The term this node started with, and the ticks since: see [`RaftNode::plausible_term`].
    first_term: u64,
    ticks: u64,
    /// Appends of the present leader in a row that end before what is committed here.
    short_appends: u32,
}

/// An append that must become durable.
struct Awaiting {
    number: u64,
    /// Holds entries or an image.
    log: bool,
    /// Changes term or vote.
    vote: bool,
}

impl RaftNode {
    /// Bytes of the largest entry that the log takes here.
    pub fn max_entry_bytes(&self) -> usize {
        self.max_entry_bytes as usize
    }

    /// Starts a node from what storage brought back. It is a follower; a group of one calls `campaign` next.
    ///
    /// # Errors
    /// Whatever does not hold together in `config` or `restored`, see `ConsensusError`.
    pub fn new(config: Config, restored: Restored) -> Result<RaftNode, ConsensusError> {
        let membership = Membership::simple(&config.voters, &config.learners);
        RaftNode::with_membership(config, membership, restored)
    }

    /// Like `new` for a restart in the middle of a joint change: `membership` is the one in force at
    /// `restored.applied` and replaces `config.voters` and `config.learners`.
    ///
    /// # Errors
    /// As for `new`.
    pub fn with_membership(
        config: Config,
        membership: Membership,
        restored: Restored,
    ) -> Result<RaftNode, ConsensusError> {
        membership.check().map_err(|reason| ConsensusError::Membership { reason })?;
        RaftNode::build(config, membership, restored)
    }

    fn build(config: Config, membership: Membership, mut restored: Restored) -> Result<RaftNode, ConsensusError> {
        config.check()?;
        restored.check()?;
        let entry_in = |entry: &Entry| {
            convert::entry_in(entry).map_err(|reason| ConsensusError::ConfChange { index: entry.index, reason })
        };
        let entries = restored.entries.iter().map(entry_in).collect::<Result<Vec<_>, _>>()?;
        let (hard, image, applied) = (restored.hard_state, restored.image.0, restored.applied.0);
        let cut = (restored.cut_index, restored.cut_term);
        let mut store = MemLog::new(convert::hard_state_in(&hard), convert::membership_in(&membership), cut);
        store.append(entries);
        let raw = RawNode::new(&library_config(&config, applied), store, &logger::logger())
            .map_err(|error| ConsensusError::Library(error.to_string()))?;
        let mut rng = Rng::new(config.seed);
        let nonce = rng.next();
        let mut node = RaftNode {
            id: config.id,
            max_entry_bytes: config.max_entry_bytes,
            max_inflight_entries: u64::from(config.max_inflight_entries),
            log_cache_bytes: config.log_cache_bytes,
            rng,
            timeout: 0,
            seen: (0, StateRole::Follower, 0),
            told: RoleChange { role: Role::Follower, term: hard.term, leader: None },
            hard_told: (hard.term, hard.vote),
            awaiting: VecDeque::new(),
            last_number: 0,
            held: VecDeque::new(),
            delivered: applied,
            committed_later: VecDeque::new(),
            conf_pending: VecDeque::new(),
            conf_history: VecDeque::from([(applied, membership.clone())]),
            unready_bytes: 0,
            reads: Reads::new(config.id, nonce, config.election_ticks),
            log_full: false,
            distrusted: None,
            hurry: None,
            newborn: None,
            informed: BTreeMap::new(),
            newborns: BTreeSet::new(),
            replied: BTreeSet::new(),
            keeping_up: BTreeSet::new(),
            look_in: 0,
            first_term: raw.raft.term,
            ticks: 0,
            short_appends: 0,
            raw,
        };
        node.told.role = node.role();
        if let (1.., Some(term)) = (image, node.raw.store().term_at(image)) {
            node.raw.mut_store().set_image(Index(image), Term(term), membership);
        }
        node.fit_log();
        node.raw.mut_store().set_applied(applied);
        node.draw_timeout();
        node.seen = node.now_seen();
        node.raw.raft.set_randomized_election_timeout(node.timeout);
        Ok(node)
    }

    /// Stands for election at once, if nothing forbids it (see `role` afterwards). A group of one leads on return.
    pub fn campaign(&mut self) {
        if self.can_campaign() && self.raw.raft.promotable() {
            // Fails for nobody: it is a message to this node itself.
            let _ = self.raw.campaign();
        }
        self.settle();
    }

    /// Whether the log has no space: a node stands for no election meanwhile. It goes on voting; votes wait for space.
    pub fn set_log_full(&mut self, full: bool) {
        self.log_full = full;
    }

    /// One tick of time passed: heartbeats, elections, checks that a quorum is still there.
    pub fn tick(&mut self) {
        self.ticks += 1;
        let raft = &self.raw.raft;
        let would_campaign = raft.state != StateRole::Leader && raft.election_elapsed + 1 >= self.timeout;
        if would_campaign && raft.leader_id != 0 && !(raft.promotable() && self.can_campaign()) {
            self.forget_silent_leader();
        } else if !would_campaign || self.can_campaign() {
            self.raw.tick();
        }
        self.hurry_on();
        self.leave_joint_if_due();
        self.reads.tick();
        self.count_distrust();
        self.want_image();
        self.look_after_awaited();
        self.settle();
    }

    /// Appends `payload` to the log; it comes back in `Outputs::committed` if all goes well. The payload is shared,
    /// never copied. One payload should hold a whole batch of commands.
    ///
    /// # Errors
    /// See `ProposeError`; the payload will then never be committed.
    pub fn propose(&mut self, payload: Bytes) -> Result<(), ProposeError> {
        if payload.is_empty() {
            return Err(ProposeError::Empty);
        }
        if payload.len() > self.max_entry_bytes as usize {
            return Err(ProposeError::TooLarge { bytes: payload.len(), max: self.max_entry_bytes });
        }
        let bytes = payload.len() as u64 + limits::ENTRY_OVERHEAD_BYTES;
        self.check_proposal(bytes)?;
        let entry = eraftpb::Entry { data: payload, ..eraftpb::Entry::default() };
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = self.id.0;
        message.set_entries(vec![entry].into());
        self.raw.raft.step(message).map_err(|_| ProposeError::Full)?;
        self.unready_bytes += bytes;
        Ok(())
    }

    /// Whether a payload of any allowed size would be taken now.
    pub fn has_room(&self) -> bool {
        self.check_proposal(u64::from(self.max_entry_bytes) + limits::ENTRY_OVERHEAD_BYTES).is_ok()
    }

    fn check_proposal(&self, bytes: u64) -> Result<(), ProposeError> {
        let raft = &self.raw.raft;
        if raft.state != StateRole::Leader {
            return Err(ProposeError::NotLeader { leader: self.leader() });
        }
        if let Some(to) = raft.lead_transferee {
            return Err(ProposeError::Transferring { to: NodeId(to) });
        }
        let log = &raft.raft_log;
        let waiting = log.last_index() - log.applied;
        let held = self.unready_bytes + log.store.unapplied_bytes();
        if waiting >= self.max_inflight_entries || held > 0 && held + bytes > limits::UNAPPLIED_BYTES_MAX {
            return Err(ProposeError::Full);
        }
        Ok(())
    }

    /// Asks up to which index a read that begins now must wait. The answer comes in `Outputs::reads`, or the token
    /// in `Outputs::reads_refused` when no leader confirms it for too long.
    pub fn read_index(&mut self, token: u64) {
        self.reads.add(token);
    }

    /// Takes a message from another member.
    ///
    /// # Errors
    /// The message is dropped and the node unchanged; see `PeerError`.
    pub fn step(&mut self, message: PeerMessage) -> Result<(), PeerError> {
        self.check_message(&message)?;
        self.measure(&message);
        let from = message.from.0;
        let inner = convert::message_in(&message).map_err(PeerError::Entries)?;
        self.note_image_taken(&message);
        let said = self.raw.raft.msgs.len();
        // Errors are answers to a peer just removed and the like: nothing happened.
        let stepped = self.raw.step(inner).map_err(|_| PeerError::Stale("not for the present state"));
        if matches!(message.body, PeerBody::AppendReply(_) | PeerBody::HeartbeatReply { .. }) {
            // A newborn says neither.
            self.newborns.remove(&message.from);
            self.replied.insert(message.from);
            self.drop_stale_request(&message);
        }
        if matches!(message.body, PeerBody::Notice { .. }) {
            self.keep_silent(&message, said);
        }
        // The library can set this below what the follower acknowledged, and would never get on from there.
        if let Some(progress) = self.raw.raft.mut_prs().get_mut(from) {
            progress.next_idx = progress.next_idx.max(progress.matched + 1);
        }
        self.settle();
        stepped
    }

    /// Hands leadership to the voter `to` once it has the whole log. Proposals are refused meanwhile, for at most an
    /// election timeout.
    ///
    /// # Errors
    /// See `TransferError`.
    pub fn transfer_leader(&mut self, to: NodeId) -> Result<(), TransferError> {
        if self.raw.raft.state != StateRole::Leader {
            return Err(TransferError::NotLeader { leader: self.leader() });
        }
        if to == self.id || !self.raw.raft.prs().conf().voters().contains(to.0) {
            return Err(TransferError::NotEligible { to });
        }
        self.raw.transfer_leader(to.0);
        self.settle();
        Ok(())
    }

    /// Whether leadership is on its way to another, by [`RaftNode::transfer_leader`].
    pub fn is_transferring(&self) -> bool {
        self.raw.raft.lead_transferee.is_some()
    }

    /// The append of this number, and all before it, are durable. Entries count for commits from here on.
    ///
    /// # Panics
    /// If no append of this number was handed out: acknowledging what was never written must not go on.
    pub fn persisted(&mut self, number: u64) {
        assert!(number <= self.last_number, "append {number} reported durable, {} is the last", self.last_number);
        while self.awaiting.front().is_some_and(|append| append.number <= number) {
            self.awaiting.pop_front();
        }
        self.raw.on_persist_ready(self.durable_number());
        self.settle();
    }

    /// Everything up to `index` is applied to the state machine.
    ///
    /// # Panics
    /// If that was not handed out as committed, was not reported durable, or goes back.
    pub fn applied(&mut self, index: Index) {
        let log = &self.raw.raft.raft_log;
        let (before, persisted) = (log.applied, log.persisted);
        assert!(index.0 <= self.delivered, "applied {index}, but only {} was handed out", self.delivered);
        assert!(index.0 <= persisted, "applied {index}, but only {persisted} is durable");
        assert!(index.0 >= before, "applied {index} after {before}");
        if index.0 == before {
            return;
        }
        while self.conf_pending.front().is_some_and(|(at, _)| *at <= index.0) {
            let (at, change) = self.conf_pending.pop_front().expect("just seen");
            self.apply_conf_change(at, &change);
        }
        self.raw.advance_apply_to(index.0);
        self.raw.mut_store().set_applied(index.0);
        self.settle();
    }

    /// A durable image holds everything up to `upto`, whose entry has `term`: it can be given to followers that lag
    /// behind what is kept in memory.
    ///
    /// # Panics
    /// If `upto` is not applied, or the term is another one where it is known.
    pub fn compact(&mut self, upto: Index, term: Term) {
        let applied = self.raw.raft.raft_log.applied;
        assert!(upto.0 <= applied, "image at {upto}, but only {applied} is applied");
        let known = self.raw.store().term_at(upto.0);
        assert!(known.is_none_or(|known| Term(known) == term), "image at {upto} has term {term}, the log {known:?}");
        while self.conf_history.get(1).is_some_and(|(from, _)| *from <= upto.0) {
            self.conf_history.pop_front();
        }
        let (from, membership) = self.conf_history.front().expect("never emptied");
        if *from <= upto.0 && upto.0 > 0 {
            let membership = membership.clone();
            self.raw.mut_store().set_image(upto, term, membership);
        }
    }

    /// The transport gave up on a message to `to`: probe before sending more.
    pub fn report_unreachable(&mut self, to: NodeId) {
        self.newborns.remove(&to);
        self.informed.remove(&to.0);
        self.raw.report_unreachable(to.0);
        self.settle();
    }

    /// How the transfer of an image to `to` ended. Without this report a leader sends that follower nothing more.
    pub fn report_snapshot(&mut self, to: NodeId, delivered: bool) {
        let status = if delivered { raft::SnapshotStatus::Finish } else { raft::SnapshotStatus::Failure };
        self.raw.report_snapshot(to.0, status);
        self.settle();
    }

    /// This server.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// What this node is at the moment.
    pub fn role(&self) -> Role {
        match self.raw.raft.state {
            StateRole::Leader => Role::Leader,
            StateRole::Candidate => Role::Candidate,
            StateRole::PreCandidate => Role::PreCandidate,
            StateRole::Follower if self.raw.raft.promotable() => Role::Follower,
            StateRole::Follower => Role::Learner,
        }
    }

    /// Current term.
    pub fn term(&self) -> Term {
        Term(self.raw.raft.term)
    }

    /// Who leads, as far as known here.
    pub fn leader(&self) -> Option<NodeId> {
        convert::node_id(self.raw.raft.leader_id)
    }

    /// Highest index known committed.
    pub fn commit(&self) -> Index {
        Index(self.raw.raft.raft_log.committed)
    }

    /// Highest index reported applied.
    pub fn applied_index(&self) -> Index {
        Index(self.raw.raft.raft_log.applied)
    }

    /// Index of the last entry, durable or not.
    pub fn last_index(&self) -> Index {
        Index(self.raw.raft.raft_log.last_index())
    }

    /// Bytes of log entries held in memory, overhead included.
    pub fn held_bytes(&self) -> u64 {
        self.unready_bytes + self.raw.store().held_bytes()
    }

    pub(crate) fn raft(&self) -> &Raft<MemLog> {
        &self.raw.raft
    }

    /// Whether an election may begin. The library panics if a node wins one whose log is not durable to the end, or
    /// stands for one with an image not applied yet.
    pub(crate) fn can_campaign(&self) -> bool {
        let raft = &self.raw.raft;
        let log = &raft.raft_log;
        raft.term < limits::TERM_MAX
            && !self.log_full
            && self.distrusted.is_none_or(Distrust::may_lead)
            && self.awaiting.iter().all(|append| !append.log)
            && log.unstable_snapshot().is_none()
            && log.persisted == log.last_index()
            && log.applied >= log.store.cut_index()
    }

    /// All appends up to this one are durable.
    fn durable_number(&self) -> u64 {
        self.awaiting.front().map_or(self.last_number, |append| append.number - 1)
    }

    fn now_seen(&self) -> (u64, StateRole, u64) {
        let raft = &self.raw.raft;
        (raft.term, raft.state, raft.leader_id)
    }

    /// To be called after every input: the library draws election timeouts from the thread's own randomness, which
    /// must not show. A new one is drawn here whenever term, role or leader changed.
    fn settle(&mut self) {
        let now = self.now_seen();
        if now != self.seen {
            self.seen = now;
            self.newborns.clear();
            self.informed.clear();
            self.keeping_up.clear();
            self.draw_timeout();
            self.drop_request();
            self.reads.ask_again();
            self.short_appends = 0;
        }
        self.raw.raft.set_randomized_election_timeout(self.timeout);
        self.want_image();
    }

    fn draw_timeout(&mut self) {
        let shortest = self.raw.raft.election_timeout();
        let extra = self.rng.below(shortest as u64);
        self.timeout = shortest + usize::try_from(extra).expect("below TICKS_MAX");
    }
}

fn library_config(config: &Config, applied: u64) -> raft::Config {
    raft::Config {
        id: config.id.0,
        election_tick: config.election_ticks as usize,
        heartbeat_tick: config.heartbeat_ticks as usize,
        applied,
        max_size_per_msg: limits::APPEND_BYTES_MAX,
        max_inflight_msgs: limits::INFLIGHT_MESSAGES_MAX,
        check_quorum: true,
        pre_vote: true,
        // See `notices`.
        skip_bcast_commit: true,
        read_only_option: ReadOnlyOption::Safe,
        max_committed_size_per_ready: limits::COMMITTED_PAGE_BYTES,
        ..raft::Config::default()
    }
}
