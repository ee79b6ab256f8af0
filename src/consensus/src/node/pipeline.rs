//! The way of an entry through this node: proposed, appended, durable, committed, delivered, applied.
//!
//! Turns what the library wants done into [`Outputs`], in the order that durability allows. Each component guards one
//! stage. The pipeline knows nothing of elections, checks and members; [`RaftNode`](crate::RaftNode) does.

use bytes::Bytes;
use raft::Ready;
use raft::eraftpb::{Message, SnapshotMetadata};

use super::commit_notices::CommitNotices;
use super::delivery::Delivery;
use super::durability::Durability;
use super::library::Library;
use super::membership_history::MembershipHistory;
use super::proposals::ProposalLimits;
use crate::conf_change::ConfChange;
use crate::config::Config;
use crate::convert::{self, id_of};
use crate::error::{ConfChangeError, ProposeError};
use crate::log::ReplacedLog;
use crate::membership::Membership;
use crate::message::PeerMessage;
use crate::outputs::{Append, InstallSnapshot, Outputs};
use crate::reads::Reads;
use crate::types::{HardState, Index, ServerId, Term};

/// The stages of entries and reads.
pub(super) struct Pipeline {
    id: ServerId,
    proposals: ProposalLimits,
    durability: Durability,
    delivery: Delivery,
    memberships: MembershipHistory,
    notices: CommitNotices,
    reads: Reads,
}

impl Pipeline {
    /// `hard_state` is durable, everything up to `applied` is applied, and `membership` is in force there. `nonce`
    /// differs between starts.
    pub(super) fn new(
        config: &Config,
        hard_state: &HardState,
        applied: Index,
        membership: Membership,
        nonce: u64,
    ) -> Pipeline {
        Pipeline {
            id: config.id,
            proposals: ProposalLimits::new(config),
            durability: Durability::new(hard_state),
            delivery: Delivery::new(applied),
            memberships: MembershipHistory::new(applied, membership),
            notices: CommitNotices::default(),
            reads: Reads::new(config.id, nonce, config.election_ticks),
        }
    }

    /// Term, role or leader changed: what a former leader was sent or asked may be lost.
    pub(super) fn leader_changed(&mut self) {
        self.notices.clear();
        self.reads.ask_again();
    }

    /// One tick of time.
    pub(super) fn tick(&mut self) {
        self.reads.tick();
    }

    /// Whether entries or a snapshot are yet to become durable.
    pub(super) fn log_in_flight(&self) -> bool {
        self.durability.log_in_flight()
    }

    /// Whether replies to a leader wait until something is durable here.
    pub(super) fn replies_wait(&self) -> bool {
        !self.durability.is_settled()
    }

    // ----- proposals and reads -----

    /// Limits and amount of the proposals in flight.
    pub(super) fn proposals(&self) -> &ProposalLimits {
        &self.proposals
    }

    /// Appends a payload to a leader's log.
    pub(super) fn propose(&mut self, library: &mut Library, payload: Bytes) -> Result<(), ProposeError> {
        self.proposals.check_size(payload.len())?;
        let bytes = payload.len() as u64;
        self.proposals.check_room(library.raft(), bytes)?;
        library.propose(self.id, payload)?;
        self.proposals.proposed(bytes);
        Ok(())
    }

    /// Appends a membership change to a leader's log.
    pub(super) fn propose_conf_change(
        &mut self,
        library: &mut Library,
        change: &ConfChange,
    ) -> Result<(), ConfChangeError> {
        change.check().map_err(|reason| ConfChangeError::Invalid { reason })?;
        self.proposals.check_room(library.raft(), change.context.len() as u64)?;
        library.propose_conf_change(change)
    }

    /// Requests the index for a read.
    pub(super) fn read_index(&mut self, token: u64) {
        self.reads.add(token);
    }

    // ----- commit notices -----

    /// Messages to this member may be lost.
    pub(super) fn forget(&mut self, to: ServerId) {
        self.notices.forget(to);
    }

    /// Members that can be informed of a higher commit index.
    pub(super) fn uninformed(&self, library: &Library) -> Vec<ServerId> {
        if !library.is_leader() {
            return Vec::new();
        }
        let vote_in_flight = self.durability.vote_in_flight();
        let members = library.raft().prs().iter().map(|(id, _)| id_of(*id));
        members.filter(|id| self.notices.notice(library, vote_in_flight, *id).is_some()).collect()
    }

    /// A notice of the commit index, which is sent now.
    pub(super) fn commit_notice(&mut self, library: &Library, to: ServerId) -> Option<PeerMessage> {
        let message = self.notices.notice(library, self.durability.vote_in_flight(), to)?;
        self.notices.note_sent(&message);
        Some(message)
    }

    // ----- reports of the driver -----

    /// The append of this number, and all before it, are durable.
    pub(super) fn persisted(&mut self, library: &mut Library, number: u64) {
        self.durability.persisted(number);
        library.persisted(self.durability.durable_number());
    }

    /// Everything up to `index` is applied: membership changes up to there take effect.
    pub(super) fn applied(&mut self, library: &mut Library, index: Index) {
        let log = &library.raft().raft_log;
        let (before, persisted, delivered) = (log.applied, log.persisted, self.delivery.delivered());
        assert!(index <= delivered, "applied {index}, but only {delivered} was handed out");
        assert!(index.0 <= persisted, "applied {index}, but only {persisted} is durable");
        assert!(index.0 >= before, "applied {index} after {before}");
        if index.0 == before {
            return;
        }
        while let Some((at, change)) = self.memberships.next_applied(index) {
            if let Some(membership) = library.apply_conf_change(at, &change) {
                self.memberships.entered(at, membership);
            }
        }
        library.applied(index);
    }

    /// A durable snapshot holds everything up to `upto`.
    pub(super) fn compact(&mut self, library: &mut Library, upto: Index, term: Term) {
        let applied = library.raft().raft_log.applied;
        assert!(upto.0 <= applied, "snapshot at {upto}, but only {applied} is applied");
        let known = library.store().term_at(upto.0);
        assert!(known.is_none_or(|known| Term(known) == term), "snapshot at {upto} has term {term}, the log {known:?}");
        if let Some(membership) = self.memberships.snapshot_taken(upto) {
            library.store_mut().set_snapshot(upto, term, membership);
            library.store_mut().raise_floor();
        }
    }

    // ----- outputs -----

    /// Collects what is to be done into `out`, which is empty.
    pub(super) fn ready(&mut self, library: &mut Library, out: &mut Outputs) {
        if library.can_answer_reads() {
            self.reads.take_requests().into_iter().for_each(|context| library.request_read_index(context));
        }
        self.durability.release_messages(&mut out.messages);
        self.delivery.release(self.durability.durable_number(), &mut out.committed);
        if let Some(ready) = library.ready() {
            self.take_ready(library, ready, out);
        }
        self.memberships.handed_out(&out.committed);
        self.reads.drain(&mut out.reads, &mut out.reads_refused);
        out.snapshot_wanted = library.store().take_snapshot_wanted();
    }

    /// Turns what the library wants done into `out`.
    fn take_ready(&mut self, library: &mut Library, mut ready: Ready, out: &mut Outputs) {
        let number = ready.number();
        self.proposals.handed_out();
        if !ready.snapshot().is_empty() {
            out.install = Some(self.install(library, ready.snapshot().get_metadata(), &mut out.replaced));
            // Entries that were released before are in the snapshot.
            out.committed.clear();
        }
        let committed = ready.take_committed_entries();
        let append = take_append(
            library,
            &mut ready,
            committed.iter().any(convert::is_conf_change),
            self.durability.commit_unstored(),
        );
        self.durability.handed_out(&append, out.install.is_some());
        if append.must_sync || append.hard_state.is_some() {
            out.append = Some(append);
        }
        for (messages, from_leader) in [(ready.take_messages(), true), (ready.take_persisted_messages(), false)] {
            self.send(library.raft().term, &messages, from_leader, out);
        }
        for state in ready.take_read_states() {
            if let Some(context) = convert::context_out(&state.request_ctx) {
                self.reads.answer(context, Index(state.index));
            }
        }
        for entry in &committed {
            self.delivery.deliver_or_hold(number, convert::entry_out(entry), &mut out.committed);
        }
        library.handed_out(ready);
        if self.durability.is_settled() {
            library.persisted(number);
        }
    }

    fn send(&mut self, term: u64, messages: &[Message], from_leader: bool, out: &mut Outputs) {
        for message in messages.iter().filter_map(|message| convert::message_out(message, term)) {
            self.notices.note_sent(&message);
            self.durability.send_or_hold(message, from_leader, &mut out.messages);
        }
    }

    /// A leader's snapshot replaces everything here.
    fn install(
        &mut self,
        library: &mut Library,
        meta: &SnapshotMetadata,
        replaced: &mut Option<ReplacedLog>,
    ) -> InstallSnapshot {
        let (index, term) = (Index(meta.index), Term(meta.term));
        let membership = convert::membership_out(meta.get_conf_state());
        *replaced = Some(library.store_mut().install(index, term));
        self.delivery.installed(index);
        self.memberships = MembershipHistory::new(index, membership.clone());
        library.fit_log();
        InstallSnapshot { index, term, membership, from: library.leader() }
    }
}

/// The append of a `Ready`. `commits_change`: a membership change is committed by it.
///
/// Its hard state is synced if it commits a membership change, or appends while the log holds one. It is also synced if
/// the last commit index was not stored. The entries of a single writer are committed between two appends. Without the
/// last rule a log of any length could hold nothing that is known committed. A leader proposes a second membership
/// change when the first is committed. A server that acknowledges the second must know after a crash that the first is
/// in force. Otherwise it could be elected by the votes of the membership before both.
fn take_append(library: &mut Library, ready: &mut Ready, commits_change: bool, commit_unstored: bool) -> Append {
    let must_sync = ready.must_sync() || commits_change;
    let entries = ready.take_entries();
    let hard_state = match ready.hs() {
        None if commits_change || must_sync && (commit_unstored || library.store().holds_conf_change()) => {
            Some(convert::hard_state_out(&library.raft().hard_state()))
        }
        changed => changed.map(convert::hard_state_out),
    };
    let entries_out = entries.iter().map(convert::entry_out).collect();
    library.store_mut().append(entries);
    Append { number: ready.number(), entries: entries_out, hard_state, must_sync }
}
