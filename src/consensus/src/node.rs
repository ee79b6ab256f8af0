//! The Raft node: inputs in, [`Outputs`] out.
//!
//! [`RaftNode`] composes the components of one member. Each guards its own state, in its own file:
//!
//! | component | guards |
//! |---|---|
//! | `library` | the Raft library, its log in memory, election timeouts |
//! | `check`, `plausibility` | checks of a peer's message before the library sees it |
//! | `pipeline` | the way of entries and reads: it composes the six stages below |
//! | `proposals` | the amount of proposals in flight |
//! | `durability` | appends in flight, and messages that wait for them |
//! | `delivery` | committed entries, and entries that wait until their commit is durable |
//! | `membership_history` | memberships since the last snapshot, and changes not applied yet |
//! | `commit_notices` | how far followers were informed of the commit index |
//! | [`crate::reads`] | read barriers (read index) |
//! | `reconciliation`, `followers` | the members as a leader observes them |
//! | `early_election` | elections after the end of the leader's process |
//! | `repairs` | members with a corrupt state |
//!
//! Lives on the consensus actor's core and is driven by it turn by turn. It knows neither how anything is stored nor how
//! messages travel.

mod check;
mod commit_notices;
mod delivery;
mod durability;
mod early_election;
mod followers;
mod library;
mod membership_history;
mod next_change;
mod pipeline;
mod plausibility;
mod proposals;
mod reconciliation;
mod repairs;

pub use followers::Followers;

use bytes::Bytes;

use crate::conf_change::{ConfChange, MemberChange};
use crate::config::{BOOTSTRAP_INDEX, BOOTSTRAP_TERM, Config, Restored};
use crate::convert;
use crate::error::{ConfChangeError, ConsensusError, PeerError, ProposeError, TransferError};
use crate::membership::Membership;
use crate::message::{PeerBody, PeerMessage};
use crate::outputs::{Outputs, RoleChange};
use crate::types::{Entry, HardState, Index, Role, ServerId, Term};
use check::MessageCheck;
use early_election::EarlyElection;
use library::Library;
use pipeline::Pipeline;
use plausibility::Plausibility;
use reconciliation::Reconciliation;
use repairs::Repairs;

/// The Raft node of one member.
///
/// The crate's page has an example.
pub struct RaftNode {
    id: ServerId,
    library: Library,
    pipeline: Pipeline,
    plausibility: Plausibility,
    reconciliation: Reconciliation,
    early_election: EarlyElection,
    repairs: Repairs,
    /// The log has no space: this node could not make durable what an election needs.
    log_full: bool,
    /// Present while this server has no data and is not a member.
    uninitialised: Option<Box<Config>>,
    /// The role that was reported last.
    reported_role: RoleChange,
}

impl RaftNode {
    /// Starts a node from the restored state, as a follower. A group of one calls [`RaftNode::campaign`] next.
    ///
    /// # Errors
    /// A contradiction in `config` or `restored`.
    pub fn new(config: Config, restored: Restored) -> Result<RaftNode, ConsensusError> {
        let membership = Membership::simple(&config.voters, &config.learners);
        RaftNode::with_membership(config, membership, restored)
    }

    /// Like [`RaftNode::new`] for a restart during joint consensus. `membership` is the one in force at
    /// `restored.applied`, and replaces `config.voters` and `config.learners`.
    ///
    /// # Errors
    /// As for [`RaftNode::new`].
    pub fn with_membership(
        config: Config,
        membership: Membership,
        restored: Restored,
    ) -> Result<RaftNode, ConsensusError> {
        membership.check().map_err(|reason| ConsensusError::Membership { reason })?;
        RaftNode::build(config, membership, restored)
    }

    /// A server with neither snapshot nor log on its disk. `config.voters` and `config.learners` are the founders.
    ///
    /// It may have voted before it lost its data, so it neither votes, nor campaigns, nor acknowledges anything. It
    /// becomes a member by [`RaftNode::bootstrap`], or by a leader's snapshot in which it is a learner.
    ///
    /// # Errors
    /// As for [`RaftNode::new`].
    pub fn uninitialised(config: Config) -> Result<RaftNode, ConsensusError> {
        let founders = Membership::simple(&config.voters, &config.learners);
        founders.check().map_err(|reason| ConsensusError::Membership { reason })?;
        let mut node = RaftNode::build(config.clone(), Membership::default(), Restored::default())?;
        node.uninitialised = Some(Box::new(config));
        Ok(node)
    }

    fn build(config: Config, membership: Membership, restored: Restored) -> Result<RaftNode, ConsensusError> {
        let (hard_state, applied) = (restored.hard_state, restored.applied);
        let (library, nonce) = Library::new(&config, membership.clone(), restored)?;
        Ok(RaftNode {
            id: config.id,
            pipeline: Pipeline::new(&config, &hard_state, applied, membership, nonce),
            plausibility: Plausibility::new(library.term()),
            reconciliation: Reconciliation::default(),
            early_election: EarlyElection::default(),
            repairs: Repairs::default(),
            log_full: false,
            uninitialised: None,
            reported_role: RoleChange { role: library.role(), term: hard_state.term, leader: None },
            library,
        })
    }

    /// Begins a new ensemble: all founders are uninitialised. A snapshot at [`BOOTSTRAP_INDEX`] with
    /// [`RaftNode::founders`] as its membership must be durable before, and the log must begin behind it.
    ///
    /// # Panics
    /// If this node is not uninitialised.
    pub fn bootstrap(&mut self) {
        let config = *self.uninitialised.take().expect("only an uninitialised server bootstraps an ensemble");
        let founders = Membership::simple(&config.voters, &config.learners);
        let restored = Restored {
            hard_state: HardState { term: BOOTSTRAP_TERM, vote: None, commit: BOOTSTRAP_INDEX },
            cut_index: BOOTSTRAP_INDEX,
            cut_term: BOOTSTRAP_TERM,
            disk_terms: Vec::new(),
            entries: Vec::new(),
            snapshot: BOOTSTRAP_INDEX,
            applied: BOOTSTRAP_INDEX,
        };
        *self = RaftNode::build(config, founders, restored).expect("the configuration was checked at the start");
    }

    // ----- time and elections -----

    /// Begins an election at once, if nothing forbids it (see [`RaftNode::role`] afterwards). A group of one leads on
    /// return.
    pub fn campaign(&mut self) {
        if self.may_campaign() {
            self.library.campaign();
        }
        self.settle();
    }

    /// Reports whether the log has no space. A node with a full log does not campaign. It goes on voting; votes wait for
    /// space.
    pub fn set_log_full(&mut self, full: bool) {
        self.log_full = full;
    }

    /// One tick of time: heartbeats, elections, checks that a quorum is reachable.
    pub fn tick(&mut self) {
        self.plausibility.tick();
        let may_campaign = self.may_campaign();
        self.library.tick(may_campaign);
        if self.early_election.tick(&self.library) {
            self.attempt_early_election();
        }
        self.leave_joint_if_due();
        self.pipeline.tick();
        self.repairs.tick();
        self.library.release_awaited_entries();
        self.settle();
    }

    /// The transport reports that the process of `leader` ended. If this node follows it, it clears that leader and
    /// campaigns after `stagger_ticks` (0: at once). It campaigns a few more times if others have not noticed yet.
    pub fn leader_lost(&mut self, leader: ServerId, stagger_ticks: u32) {
        if self.library.raft().state != raft::StateRole::Follower || self.leader() != Some(leader) {
            return;
        }
        self.library.forget_leader();
        let is_due = self.early_election.begin(stagger_ticks);
        self.settle();
        if is_due {
            self.attempt_early_election();
        }
    }

    fn attempt_early_election(&mut self) {
        self.early_election.attempt(&mut self.library);
        // A node with a corrupt state could only transfer leadership: an intact one comes first.
        if self.library.store().gives_snapshots() {
            self.campaign();
        }
    }

    /// Transfers leadership to the voter `to` once it has the whole log. Proposals are refused meanwhile, for at most an
    /// election timeout.
    ///
    /// # Errors
    /// If this node does not lead, or `to` is not another voter.
    pub fn transfer_leader(&mut self, to: ServerId) -> Result<(), TransferError> {
        if !self.library.is_leader() {
            return Err(TransferError::NotLeader { leader: self.leader() });
        }
        if to == self.id || !self.library.raft().prs().conf().voters().contains(to.wide()) {
            return Err(TransferError::NotEligible { to });
        }
        self.library.transfer_leader(to);
        self.settle();
        Ok(())
    }

    /// Whether leadership is being transferred.
    #[must_use]
    pub fn is_transferring(&self) -> bool {
        self.library.raft().lead_transferee.is_some()
    }

    /// Whether an election may begin: the log of this node allows it.
    fn may_campaign(&self) -> bool {
        !self.log_full && !self.pipeline.log_in_flight() && self.library.may_campaign()
    }

    // ----- proposals and reads -----

    /// Appends `payload` to the log. When it is committed it is in [`Outputs::committed`]. The payload is shared, never
    /// copied. One payload should hold a whole batch of commands.
    ///
    /// # Errors
    /// The payload was not appended and will not be committed; see [`ProposeError`].
    pub fn propose(&mut self, payload: Bytes) -> Result<(), ProposeError> {
        self.pipeline.propose(&mut self.library, payload)
    }

    /// Whether [`RaftNode::propose`] would accept a payload of the largest size now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let largest = u64::from(self.pipeline.proposals().entry_bytes_max());
        self.pipeline.proposals().check_room(self.library.raft(), largest).is_ok()
    }

    /// Bytes of the largest payload.
    #[must_use]
    pub fn max_entry_bytes(&self) -> usize {
        self.pipeline.proposals().entry_bytes_max() as usize
    }

    /// Requests the index up to which a read that begins now must wait. The answer is in [`Outputs::reads`], or in
    /// [`Outputs::reads_refused`] if no leader confirms it in time. `token` names the request.
    pub fn read_index(&mut self, token: u64) {
        self.pipeline.read_index(token);
    }

    // ----- membership -----

    /// Appends a membership change to the log. It takes effect on each member when that member reports its entry
    /// applied.
    ///
    /// # Errors
    /// The change was not appended and will not be committed; see [`ConfChangeError`].
    pub fn propose_conf_change(&mut self, change: ConfChange) -> Result<(), ConfChangeError> {
        self.pipeline.propose_conf_change(&mut self.library, &change)?;
        self.settle();
        Ok(())
    }

    /// A leader that stepped down before it ended joint consensus leaves that to the next one.
    fn leave_joint_if_due(&mut self) {
        let raft = self.library.raft();
        let is_due = raft.prs().conf().to_conf_state().auto_leave && !raft.has_pending_conf();
        if self.library.is_leader() && is_due {
            // Refused while the log is full or leadership is transferred: the next tick retries.
            let _ = self.propose_conf_change(ConfChange::leave_joint());
        }
    }

    /// Of a leader: begins the next change, if any, that brings the membership closer to `wanted`, which is not a joint
    /// one. Called every tick.
    pub fn reconcile(&mut self, wanted: &Membership) {
        let Some(change) = self.reconciliation.tick(&self.library, wanted) else { return };
        let proposed = ConfChange { changes: vec![change], ..ConfChange::default() };
        match (self.propose_conf_change(proposed), change) {
            (Ok(()), MemberChange::Remove(id)) => {
                tracing::warn!("server {id} lost its data: removed, and added again as a learner");
            }
            (Ok(()), MemberChange::AddLearner(id)) => {
                tracing::info!("server {id} is added as a learner and receives all data")
            }
            (Ok(()), MemberChange::AddVoter(id)) => tracing::info!("server {id} has caught up and becomes a voter"),
            // An earlier change is in flight, or there is no room: the next observation retries.
            (Err(error), _) => tracing::debug!("a membership change has to wait: {error}"),
        }
    }

    /// A member reported that it is uninitialised. The leader notes it, and sends the snapshot if the member is a learner.
    pub fn report_uninitialised(&mut self, from: ServerId) {
        if !self.library.is_leader() || from == self.id {
            return;
        }
        self.reconciliation.note_uninitialised(from);
        if self.membership().learners.contains(&from) {
            self.library.probe_uninitialised(from);
        }
    }

    // ----- peers -----

    /// Handles a message from another member.
    ///
    /// # Errors
    /// The message is dropped and the node unchanged; see [`PeerError`].
    pub fn step(&mut self, message: PeerMessage) -> Result<(), PeerError> {
        let check = MessageCheck {
            id: self.id,
            library: &self.library,
            term_max: self.plausible_term(),
            is_uninitialised: self.is_uninitialised(),
            may_campaign: self.may_campaign(),
        };
        check.message(&message)?;
        if self.uninitialised.is_some() {
            self.plausibility.becomes_member(message.term);
        }
        self.plausibility.note(&message, self.library.raft(), self.pipeline.replies_wait());
        if let PeerBody::WantsState { least, .. } = message.body {
            self.repairs.answer(&self.library, (message.from, message.term), least);
            return Ok(());
        }
        let stepped = self.library.step(&message);
        if matches!(message.body, PeerBody::AppendReply(_) | PeerBody::HeartbeatReply { .. }) {
            self.reconciliation.note_reply(message.from);
        }
        self.settle();
        stepped
    }

    /// Checks the sender's message against the rule that an uninitialised server becomes a member only by a snapshot in
    /// which it is a learner. A snapshot is checked so before it is transferred.
    ///
    /// # Errors
    /// [`PeerError::Uninitialised`] for any other message, if this node is uninitialised.
    pub fn check_uninitialised(&self, message: &PeerMessage) -> Result<(), PeerError> {
        check::uninitialised(self.id, self.is_uninitialised(), message)
    }

    /// The transport gave up on a message to `to`: the next append probes.
    pub fn report_unreachable(&mut self, to: ServerId) {
        self.reconciliation.forget(to);
        self.pipeline.forget(to);
        self.library.report_unreachable(to);
        self.settle();
    }

    /// The transfer of a snapshot to `to` ended. Without this report a leader sends that follower nothing more.
    pub fn report_snapshot(&mut self, to: ServerId, delivered: bool) {
        self.library.report_snapshot(to, delivered);
        self.settle();
    }

    /// Of a leader: members that can be informed of a higher commit index by [`RaftNode::commit_notice`].
    #[must_use]
    pub fn uninformed(&self) -> Vec<ServerId> {
        self.pipeline.uninformed(&self.library)
    }

    /// A notice of the commit index for this member, if there is news for it. The caller sends it now.
    #[must_use]
    pub fn commit_notice(&mut self, to: ServerId) -> Option<PeerMessage> {
        self.pipeline.commit_notice(&self.library, to)
    }

    // ----- the log -----

    /// The append of this number, and all before it, are durable. Entries count for commits from here on.
    ///
    /// # Panics
    /// If no append of this number was handed out: acknowledging what was never written must not go on.
    pub fn persisted(&mut self, number: u64) {
        self.pipeline.persisted(&mut self.library, number);
        self.settle();
    }

    /// Everything up to `index` is applied to the state machine.
    ///
    /// # Panics
    /// If that was not handed out as committed, was not reported durable, or goes back.
    pub fn applied(&mut self, index: Index) {
        self.pipeline.applied(&mut self.library, index);
        self.settle();
    }

    /// A durable snapshot holds everything up to `upto`, and the entry there has `term`. It can be sent to followers
    /// that lag behind the log in memory.
    ///
    /// # Panics
    /// If `upto` is not applied, or the log holds another term there.
    pub fn compact(&mut self, upto: Index, term: Term) {
        self.pipeline.compact(&mut self.library, upto, term);
    }

    /// The first entry still needed from the log on disk. Entries before it are in the newest snapshot.
    #[must_use]
    pub fn log_needed_from(&self) -> Index {
        self.library.store().needed_from()
    }

    /// The log has no space: entries that followers will need behind a snapshot are given up. True if there were any.
    pub(crate) fn give_up_log(&mut self) -> bool {
        self.library.give_up_awaited_entries()
    }

    /// The first and last entry that followers need from the log on disk, for [`RaftNode::log_read`]. `None` while some are
    /// being read.
    pub fn begin_to_read(&mut self) -> Option<(Index, Index)> {
        self.library.begin_to_read()
    }

    /// Entries were read from the log on disk, perhaps none.
    pub fn log_read(&mut self, entries: &[Entry]) {
        self.library.read(entries);
        self.settle();
    }

    /// Sets whether the state of this node is corrupt. Then it sends no snapshot, and attempts no early election.
    pub(crate) fn set_state_corrupt(&mut self, corrupt: bool) {
        self.library.store_mut().give_snapshots(!corrupt);
    }

    /// Asks every other member for a snapshot that ends at `least` or behind it, see [`repairs::requests`].
    pub(crate) fn state_requests(&self, least: Index) -> Vec<PeerMessage> {
        repairs::requests(self.library.raft(), least)
    }

    /// The entry at `index`, if it is in memory.
    pub(crate) fn held_entry(&self, index: Index) -> Option<Entry> {
        self.library.store().at(index.0).map(convert::entry_out)
    }

    // ----- outputs -----

    /// Collects what is to be done into `out`, which is cleared first. False: there is nothing. Call it again until it
    /// returns false.
    pub fn ready(&mut self, out: &mut Outputs) -> bool {
        out.clear();
        self.pipeline.ready(&mut self.library, out);
        self.repairs.take_announcements(&mut out.messages);
        if out.install.is_some() {
            // An uninitialised server is a member from here on.
            self.uninitialised = None;
        }
        let now = RoleChange { role: self.role(), term: self.term(), leader: self.leader() };
        if now != self.reported_role {
            self.reported_role = now;
            out.role_change = Some(now);
        }
        !out.is_empty()
    }

    /// Ends every input, see [`Library::settle`].
    fn settle(&mut self) {
        if self.library.settle() {
            self.reconciliation.leader_changed();
            self.plausibility.leader_changed();
            self.pipeline.leader_changed();
            self.repairs.drop_announcements();
        }
    }

    // ----- state -----

    /// This server.
    #[must_use]
    pub fn id(&self) -> ServerId {
        self.id
    }

    /// The present role.
    #[must_use]
    pub fn role(&self) -> Role {
        self.library.role()
    }

    /// The current term.
    #[must_use]
    pub fn term(&self) -> Term {
        self.library.term()
    }

    /// The leader, if one is known here.
    #[must_use]
    pub fn leader(&self) -> Option<ServerId> {
        self.library.leader()
    }

    /// The membership in force here, that is as of the applied index.
    #[must_use]
    pub fn membership(&self) -> Membership {
        self.library.membership()
    }

    /// The other members as a leader knows them.
    #[must_use]
    pub fn followers(&self) -> Followers<'_> {
        Followers::new(self.library.raft(), self.reconciliation.uninitialised(), &self.repairs)
    }

    /// The highest index known committed.
    #[must_use]
    pub fn commit(&self) -> Index {
        Index(self.library.raft().raft_log.committed)
    }

    /// The highest index reported applied.
    #[must_use]
    pub fn applied_index(&self) -> Index {
        Index(self.library.raft().raft_log.applied)
    }

    /// Index of the last entry, durable or not.
    #[must_use]
    pub fn last_index(&self) -> Index {
        Index(self.library.raft().raft_log.last_index())
    }

    /// Bytes of log entries held in memory, overhead included.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.pipeline.proposals().unready_bytes() + self.library.store().held_bytes()
    }

    /// The largest term that is accepted from a peer now. It does not depend on the terms that peers send.
    #[must_use]
    pub fn plausible_term(&self) -> Term {
        self.plausibility.term_max(self.library.election_ticks())
    }

    /// Whether the present leader's log ends before what is committed here, as far as its appends tell.
    #[must_use]
    pub fn leader_lacks_committed(&self) -> bool {
        !self.library.is_leader() && self.plausibility.leader_lacks_committed()
    }

    /// Whether a membership change would be accepted now: this node leads, no change is in flight, and the log has room.
    #[must_use]
    pub fn may_change_membership(&self) -> bool {
        self.library.is_leader() && !self.library.raft().has_pending_conf() && self.has_room()
    }

    /// Whether this node's log holds a membership change that is not applied.
    #[must_use]
    pub fn holds_membership_change(&self) -> bool {
        self.library.store().holds_conf_change()
    }

    /// Whether a snapshot of the leader is on its way to [`Outputs::install`]. Then the membership is already that of
    /// the snapshot, and all else is not.
    #[must_use]
    pub fn is_restoring(&self) -> bool {
        self.restores().is_some()
    }

    /// The index at which the snapshot ends that this node is restoring, if there is one.
    #[must_use]
    pub fn restores(&self) -> Option<Index> {
        let snapshot = self.library.raft().raft_log.unstable.snapshot.as_ref();
        snapshot.map(|snapshot| Index(snapshot.get_metadata().index))
    }

    /// Whether this server has no data and is not a member yet.
    #[must_use]
    pub fn is_uninitialised(&self) -> bool {
        self.uninitialised.is_some()
    }

    /// Whether it has bootstrapped an ensemble and done nothing since: it has not voted and has no entry.
    #[must_use]
    pub fn is_pristine(&self) -> bool {
        let raft = self.library.raft();
        let has_begun = !self.is_uninitialised() && raft.raft_log.last_index() == BOOTSTRAP_INDEX.0;
        has_begun && raft.term == BOOTSTRAP_TERM.0 && raft.vote == 0
    }

    /// The members of the ensemble that this server would bootstrap; `None` unless it is uninitialised.
    #[must_use]
    pub fn founders(&self) -> Option<Membership> {
        self.uninitialised.as_deref().map(|config| Membership::simple(&config.voters, &config.learners))
    }
}
