//! The Raft library behind an interface that neither panics nor depends on chance.
//!
//! Owns the library's node, its log in memory, and the election timeout. It guarantees safe use of the library. Other
//! components decide which messages leave before they are durable, and when this node may campaign.
//!
//! Invariants:
//! - The election timeout is drawn from the configured seed, never from the thread's randomness: see
//!   [`Library::settle`], which every input ends with.
//! - A leader is a voter. The library cannot count a leader without a vote, and panics on a leader that is not a
//!   member.
//! - `next_idx` of a follower is above what it acknowledged, see [`Library::step`].

use std::collections::BTreeSet;

use bytes::Bytes;
use corral_types::SplitMix64;
use raft::eraftpb::{self, Message, MessageType};
use raft::{ProgressState, Raft, RawNode, ReadOnlyOption, Ready, StateRole};

use crate::conf_change::ConfChange;
use crate::config::{Config, Restored};
use crate::convert;
use crate::error::{ConfChangeError, ConsensusError, PeerError, ProposeError};
use crate::limits;
use crate::log::MemLog;
use crate::logger;
use crate::membership::Membership;
use crate::message::{PeerBody, PeerMessage, ReadContext};
use crate::types::{Entry, Index, Role, ServerId, Term};

/// The library's node of one member.
pub(super) struct Library {
    raw: RawNode<MemLog>,
    rng: SplitMix64,
    /// Ticks without a leader until the next election.
    election_timeout: usize,
    /// Term, role and leader at the last input.
    observed: (u64, StateRole, u64),
    /// Bytes of applied entries that the log keeps for followers.
    log_cache_bytes: u64,
    /// Probed members that a reply to a heartbeat has caused an append to since the last `ready`.
    probed: BTreeSet<ServerId>,
    /// The first of the entries that are being read from disk for followers.
    reading: Option<Index>,
}

impl Library {
    /// The library's node, with a number that differs between starts, for read contexts.
    ///
    /// # Errors
    /// A contradiction in `config` or `restored`.
    pub(super) fn new(
        config: &Config,
        membership: Membership,
        mut restored: Restored,
    ) -> Result<(Library, u64), ConsensusError> {
        config.check()?;
        restored.check()?;
        let mut entries = Vec::with_capacity(restored.entries.len());
        for entry in &restored.entries {
            let fault = |reason| ConsensusError::ConfChange { index: entry.index, reason };
            entries.push(convert::entry_in(entry).map_err(fault)?);
        }
        let (snapshot, applied) = (restored.snapshot.0, restored.applied.0);
        let cut = (restored.cut_index, restored.cut_term);
        let hard_state = convert::hard_state_in(&restored.hard_state);
        let mut store = MemLog::new(hard_state, convert::membership_in(&membership), cut, &restored.disk_terms);
        store.append(entries);
        let raw = RawNode::new(&library_config(config, applied), store, &logger::logger())
            .map_err(|error| ConsensusError::Library(error.to_string()))?;
        let mut rng = SplitMix64::new(config.seed);
        let nonce = rng.next_u64();
        let observed = (0, StateRole::Follower, 0);
        let mut library = Library {
            raw,
            rng,
            election_timeout: 0,
            observed,
            log_cache_bytes: config.log_cache_bytes,
            probed: BTreeSet::new(),
            reading: None,
        };
        if let (1.., Some(term)) = (snapshot, library.store().term_at(snapshot)) {
            library.store_mut().set_snapshot(Index(snapshot), Term(term), membership);
        }
        library.fit_log();
        library.store_mut().set_applied(applied);
        library.draw_timeout();
        library.observed = library.observe();
        library.raw.raft.set_randomized_election_timeout(library.election_timeout);
        Ok((library, nonce))
    }

    /// The library's state, read only.
    pub(super) fn raft(&self) -> &Raft<MemLog> {
        &self.raw.raft
    }

    /// The log in memory.
    pub(super) fn store(&self) -> &MemLog {
        self.raw.store()
    }

    /// The log in memory, for work that the library does not do there itself.
    pub(super) fn store_mut(&mut self) -> &mut MemLog {
        self.raw.mut_store()
    }

    // ----- state -----

    pub(super) fn is_leader(&self) -> bool {
        self.raw.raft.state == StateRole::Leader
    }

    pub(super) fn role(&self) -> Role {
        match self.raw.raft.state {
            StateRole::Leader => Role::Leader,
            StateRole::Candidate => Role::Candidate,
            StateRole::PreCandidate => Role::PreCandidate,
            StateRole::Follower if self.raw.raft.promotable() => Role::Follower,
            StateRole::Follower => Role::Learner,
        }
    }

    pub(super) fn term(&self) -> Term {
        Term(self.raw.raft.term)
    }

    pub(super) fn leader(&self) -> Option<ServerId> {
        ServerId::from_wide(self.raw.raft.leader_id)
    }

    /// The membership in force here, that is as of the applied index.
    pub(super) fn membership(&self) -> Membership {
        convert::membership_out(&self.raw.raft.prs().conf().to_conf_state())
    }

    /// Ticks of the shortest election timeout.
    pub(super) fn election_ticks(&self) -> u32 {
        u32::try_from(self.raw.raft.election_timeout()).unwrap_or(u32::MAX)
    }

    /// Whether the library allows an election. It panics if a node wins one before its log is durable to the end, or
    /// campaigns with a snapshot that is not applied yet.
    pub(super) fn may_campaign(&self) -> bool {
        let raft = &self.raw.raft;
        let log = &raft.raft_log;
        raft.term < limits::TERM_MAX
            && log.unstable_snapshot().is_none()
            && log.persisted == log.last_index()
            && log.applied >= log.store.cut_index()
    }

    // ----- inputs -----

    /// Begins an election, unless this node has no vote.
    pub(super) fn campaign(&mut self) {
        if self.raw.raft.promotable() {
            // The message goes to this node itself, so it cannot fail.
            let _ = self.raw.campaign();
        }
    }

    /// One tick of time. A node that `may_campaign` forbids to campaign begins no election. When its leader has been
    /// silent for an election timeout, the node clears that leader. Otherwise it would count as led for ever, and
    /// refuse its vote to the others.
    pub(super) fn tick(&mut self, may_campaign: bool) {
        let raft = &self.raw.raft;
        let election_due = raft.state != StateRole::Leader && raft.election_elapsed + 1 >= self.election_timeout;
        if election_due && raft.leader_id != 0 && !(raft.promotable() && may_campaign) {
            let elapsed = raft.election_elapsed;
            self.forget_leader();
            if self.raw.raft.promotable() {
                // It campaigns as soon as it may.
                self.raw.raft.election_elapsed = elapsed;
            }
        } else if !election_due || may_campaign {
            self.raw.tick();
        }
    }

    /// Makes this node a follower of the present term without a leader.
    pub(super) fn forget_leader(&mut self) {
        let term = self.raw.raft.term;
        self.raw.raft.become_follower(term, 0);
    }

    /// Appends `payload` to a leader's log.
    pub(super) fn propose(&mut self, id: ServerId, payload: Bytes) -> Result<(), ProposeError> {
        let entry = eraftpb::Entry { data: payload, ..eraftpb::Entry::default() };
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = id.wide();
        message.set_entries(vec![entry].into());
        self.raw.raft.step(message).map_err(|_| ProposeError::Full)
    }

    /// Appends a membership change to a leader's log.
    ///
    /// # Errors
    /// When a change is in flight, or this one does not fit the membership in force.
    pub(super) fn propose_conf_change(&mut self, change: &ConfChange) -> Result<(), ConfChangeError> {
        let raft = &mut self.raw.raft;
        if raft.has_pending_conf() {
            return Err(ConfChangeError::Pending);
        }
        dry_run(raft, change)?;
        raft.pending_conf_index = raft.raft_log.last_index() + 1;
        let mut entry = [convert::conf_change_entry(change)];
        if !raft.append_entry(&mut entry) {
            raft.pending_conf_index = 0;
            return Err(ConfChangeError::Propose(ProposeError::Full));
        }
        raft.bcast_append();
        Ok(())
    }

    /// Handles a peer's message that passed every check.
    pub(super) fn step(&mut self, message: &PeerMessage) -> Result<(), PeerError> {
        let from = message.from.wide();
        let inner = convert::message_in(message).map_err(PeerError::Entries)?;
        let replies = self.raw.raft.msgs.len();
        // Errors concern a peer that was just removed and the like: nothing changed.
        let stepped = self.raw.step(inner).map_err(|_| PeerError::Stale("not for the present state"));
        match &message.body {
            PeerBody::Notice { .. } => self.drop_reply_to_notice(message.term, replies),
            PeerBody::HeartbeatReply { .. } => self.probe_once(message.from, replies),
            _ => {}
        }
        // The library can set this below what the follower acknowledged, and would make no progress from there.
        if let Some(progress) = self.raw.raft.mut_prs().get_mut(from) {
            progress.next_idx = progress.next_idx.max(progress.matched + 1);
        }
        stepped
    }

    /// The library sends a probed member the same entries again for each reply to a heartbeat. Many replies may come
    /// together, so one append is enough until the next `ready`. `before`: messages queued before the reply.
    fn probe_once(&mut self, from: ServerId, before: usize) {
        let raft = &mut self.raw.raft;
        let is_probed = raft.prs().get(from.wide()).is_some_and(|progress| progress.state == ProgressState::Probe);
        let is_append = |message: &Message| message.msg_type == MessageType::MsgAppend && message.to == from.wide();
        let Some(at) = raft.msgs.iter().skip(before).position(is_append).filter(|_| is_probed) else { return };
        if !self.probed.insert(from) {
            // The member stays paused, as the append before left it.
            raft.msgs.remove(before + at);
        }
    }

    /// The sender of a commit notice expects no reply, except a rejection. `before`: messages queued before the notice.
    fn drop_reply_to_notice(&mut self, term: Term, before: usize) {
        let raft = &mut self.raw.raft;
        let reply = raft.msgs.get(before).filter(|_| raft.msgs.len() == before + 1 && raft.term == term.0);
        if reply.is_some_and(|reply| reply.msg_type == MessageType::MsgAppendResponse && !reply.reject) {
            raft.msgs.pop();
        }
    }

    /// Starts the transfer of leadership to a voter.
    pub(super) fn transfer_leader(&mut self, to: ServerId) {
        self.raw.transfer_leader(to.wide());
    }

    /// All appends up to this number are durable.
    pub(super) fn persisted(&mut self, number: u64) {
        self.raw.on_persist_ready(number);
    }

    /// Everything up to `index` is applied.
    pub(super) fn applied(&mut self, index: Index) {
        self.raw.advance_apply_to(index.0);
        self.store_mut().set_applied(index.0);
    }

    /// Puts a membership change into force; the new membership, or `None` if the change does not fit. Each member does
    /// the same with the same change on the same membership.
    pub(super) fn apply_conf_change(&mut self, at: Index, change: &ConfChange) -> Option<Membership> {
        let membership = match self.raw.apply_conf_change(&convert::conf_change_in(change)) {
            Ok(conf) => Some(convert::membership_out(&conf)),
            Err(error) => {
                tracing::warn!("membership change at index {at} has no effect: {error}");
                None
            }
        };
        if self.is_leader() && !self.raw.raft.promotable() {
            self.forget_leader();
        }
        self.fit_log();
        membership
    }

    /// Applied entries are kept for followers only, and a learner is given only a snapshot in which it is one.
    pub(super) fn fit_log(&mut self) {
        let id = self.raw.raft.id;
        let alone = self.raw.raft.prs().iter().all(|(member, _)| *member == id);
        let (budget, learners) = (if alone { 0 } else { self.log_cache_bytes }, self.membership().learners);
        let store = self.store_mut();
        store.set_budget(budget);
        store.set_learners(learners);
    }

    /// A message to `to` was lost: the next one probes.
    pub(super) fn report_unreachable(&mut self, to: ServerId) {
        self.raw.report_unreachable(to.wide());
    }

    /// The transfer of a snapshot to `to` ended.
    pub(super) fn report_snapshot(&mut self, to: ServerId, delivered: bool) {
        let status = if delivered { raft::SnapshotStatus::Finish } else { raft::SnapshotStatus::Failure };
        self.raw.report_snapshot(to.wide(), status);
    }

    /// Of a leader: sends its snapshot to an uninitialised learner. That one answers no append, so the library would
    /// never find that it needs a snapshot.
    pub(super) fn probe_uninitialised(&mut self, learner: ServerId) {
        let raft = &mut self.raw.raft;
        let Some(progress) = raft.mut_prs().get_mut(learner.wide()).filter(|progress| progress.matched == 0) else {
            return;
        };
        progress.recent_active = true;
        if progress.state != ProgressState::Snapshot {
            progress.become_probe();
            raft.send_append(learner.wide());
        }
    }

    /// Requests the index for a linearizable read. A request that the library drops is repeated by the caller.
    pub(super) fn request_read_index(&mut self, context: ReadContext) {
        let _ = self.raw.raft.step(convert::read_request(context));
    }

    /// Whether a read-index request would be answered: a leader has committed in its term, or a leader is known.
    pub(super) fn can_answer_reads(&self) -> bool {
        let raft = &self.raw.raft;
        if raft.state == StateRole::Leader { raft.commit_to_current_term() } else { raft.leader_id != 0 }
    }

    // ----- entries behind a snapshot -----

    /// One tick for entries behind a snapshot. They stay on disk until the follower that receives the snapshot has them, or
    /// has been silent for too long.
    pub(super) fn release_awaited_entries(&mut self) {
        self.store_mut().trim_some();
        if self.store_mut().awaited_mut().is_empty() {
            return;
        }
        let silence_max = limits::AWAITED_SILENCE_ELECTIONS * self.election_ticks();
        let mut awaited = std::mem::take(self.store_mut().awaited_mut());
        let raft = &self.raw.raft;
        awaited.retain(|id, waiting| {
            let Some(progress) = raft.prs().get(id.wide()).filter(|_| raft.state == StateRole::Leader) else {
                return false;
            };
            waiting.silent = if progress.recent_active { 0 } else { waiting.silent + 1 };
            let installs = progress.state == ProgressState::Snapshot;
            if !installs {
                waiting.from = waiting.from.max(Index(progress.matched));
            }
            let has_entries = !installs && progress.matched > 0 && raft.store().fits_behind(progress.matched);
            waiting.silent < silence_max && !has_entries
        });
        *self.store_mut().awaited_mut() = awaited;
        self.store_mut().raise_floor();
    }

    /// There is no space on disk for the entries that followers will need behind a snapshot. True if there were any.
    pub(super) fn give_up_awaited_entries(&mut self) -> bool {
        let before = self.store().needed_from();
        self.store_mut().awaited_mut().retain(|_, _| false);
        self.store_mut().raise_floor();
        self.store().needed_from() > before
    }

    /// The first and the last of the entries that followers need from disk, unless entries are being read already.
    pub(super) fn begin_to_read(&mut self) -> Option<(Index, Index)> {
        if self.reading.is_some() {
            return None;
        }
        let wanted = self.store().wanted()?;
        self.reading = Some(wanted.0);
        Some(wanted)
    }

    /// Entries were read from disk: followers are sent them. None: they are not there, and followers are sent a snapshot.
    pub(super) fn read(&mut self, entries: &[Entry]) {
        let Some(low) = self.reading.take() else { return };
        if entries.is_empty() {
            self.store_mut().lose_disk();
        }
        let entries = entries.iter().map_while(|entry| convert::entry_in(entry).ok()).collect();
        for context in self.store_mut().read(low, entries) {
            self.raw.on_entries_fetched(context);
        }
        self.store_mut().forget_read();
    }

    // ----- outputs -----

    /// The work that the library asks for, if any.
    pub(super) fn ready(&mut self) -> Option<Ready> {
        if !self.raw.has_ready() {
            return None;
        }
        self.probed.clear();
        Some(self.raw.ready())
    }

    /// Reports to the library that the result of [`Library::ready`] was handed out. Appends are reported durable later.
    pub(super) fn handed_out(&mut self, ready: Ready) {
        self.raw.advance_append_async(ready);
    }

    /// Ends every input: sets the election timeout again, because the library draws its own from the thread's
    /// randomness. True if term, role or leader have changed since the last call: then a new timeout was drawn.
    pub(super) fn settle(&mut self) -> bool {
        let now = self.observe();
        let has_changed = now != self.observed;
        if has_changed {
            self.observed = now;
            self.draw_timeout();
        }
        self.raw.raft.set_randomized_election_timeout(self.election_timeout);
        has_changed
    }

    fn observe(&self) -> (u64, StateRole, u64) {
        let raft = &self.raw.raft;
        (raft.term, raft.state, raft.leader_id)
    }

    fn draw_timeout(&mut self) {
        let shortest = self.raw.raft.election_timeout();
        let extra = self.random_below(shortest as u64);
        self.election_timeout = shortest + usize::try_from(extra).expect("below TICKS_MAX");
    }

    /// A random number below `bound`, from the configured seed.
    pub(super) fn random_below(&mut self, bound: u64) -> u64 {
        self.rng.below(bound)
    }
}

fn library_config(config: &Config, applied: u64) -> raft::Config {
    raft::Config {
        id: config.id.wide(),
        election_tick: config.election_ticks as usize,
        heartbeat_tick: config.heartbeat_ticks as usize,
        applied,
        max_size_per_msg: limits::APPEND_BYTES_MAX,
        max_inflight_msgs: limits::INFLIGHT_MESSAGES_MAX,
        check_quorum: true,
        pre_vote: true,
        // Commit notices do that, see `commit_notices`.
        skip_bcast_commit: true,
        read_only_option: ReadOnlyOption::Safe,
        max_committed_size_per_ready: limits::COMMITTED_PAGE_BYTES,
        ..raft::Config::default()
    }
}

/// Whether the change fits the membership in force, which is the applied one.
fn dry_run(raft: &Raft<MemLog>, change: &ConfChange) -> Result<(), ConfChangeError> {
    let invalid = |reason| Err(ConfChangeError::Invalid { reason });
    let joint = !raft.prs().conf().to_conf_state().voters_outgoing.is_empty();
    match (joint, change.changes.is_empty()) {
        (true, false) => return invalid("a joint change must end first"),
        (false, true) => return invalid("no joint change to end"),
        _ => {}
    }
    if raft.prs().iter().len() + change.changes.len() > limits::MEMBERS_MAX {
        return invalid("too many members");
    }
    let inner = convert::conf_change_in(change);
    let mut changer = raft::Changer::new(raft.prs());
    let outcome = if inner.leave_joint() {
        changer.leave_joint()
    } else if let Some(auto_leave) = inner.enter_joint() {
        changer.enter_joint(auto_leave, &inner.changes)
    } else {
        changer.simple(&inner.changes)
    };
    if outcome.is_err() { invalid("it does not fit the membership in force") } else { Ok(()) }
}
