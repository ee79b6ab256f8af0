//! Checks of a peer's message against this node's state, before the library sees it.
//!
//! The library trusts its peers and panics on invalid messages. Each check names the panic or the wrong turn it
//! prevents; what a message must satisfy by itself is checked in `message.rs`.

use raft::{Raft, StateRole};

use super::library::Library;
use crate::convert::id_of;
use crate::error::PeerError;
use crate::limits;
use crate::log::MemLog;
use crate::membership::Membership;
use crate::message::{AppendReply, PeerBody, PeerMessage};
use crate::types::{Entry, Index, ServerId, Term};

/// This node's state, as far as checks depend on it.
pub(super) struct MessageCheck<'a> {
    pub(super) id: ServerId,
    pub(super) library: &'a Library,
    /// The largest plausible term.
    pub(super) term_max: Term,
    pub(super) is_uninitialised: bool,
    /// Whether this node may stand for election.
    pub(super) may_campaign: bool,
}

impl MessageCheck<'_> {
    fn raft(&self) -> &Raft<MemLog> {
        self.library.raft()
    }

    fn last_index(&self) -> Index {
        Index(self.raft().raft_log.last_index())
    }

    /// Checks one message.
    ///
    /// # Errors
    /// Why it must not be stepped.
    pub(super) fn message(&self, message: &PeerMessage) -> Result<(), PeerError> {
        message.check()?;
        if message.to != self.id {
            return Err(PeerError::WrongTarget(message.to));
        }
        uninitialised(self.id, self.is_uninitialised, message)?;
        self.check_term_jump(message.term)?;
        match &message.body {
            PeerBody::Append { prev_index, entries, .. } => {
                self.check_leader(message)?;
                self.check_append(message, *prev_index, entries)
            }
            PeerBody::Notice { .. } => self.check_leader(message),
            PeerBody::Heartbeat { commit, .. } => {
                self.check_leader(message)?;
                self.check_heartbeat(message, *commit)
            }
            PeerBody::Snapshot { index, term, membership } => {
                self.check_leader(message)?;
                self.check_snapshot(*index, *term, membership)
            }
            PeerBody::AppendReply(reply) => {
                self.check_member(message.from)?;
                self.check_append_reply(message, reply)
            }
            PeerBody::HeartbeatReply { .. } | PeerBody::WantsState { .. } => self.check_member(message.from),
            PeerBody::VoteReply { pre, granted, .. } => {
                self.check_member(message.from)?;
                // A pre-vote granted in an earlier round says nothing about this one.
                if *pre && *granted && message.term.0 != self.raft().term + 1 {
                    return Err(PeerError::Stale("pre-vote of another round"));
                }
                Ok(())
            }
            PeerBody::Vote { .. } => Ok(()),
            PeerBody::TimeoutNow => self.check_timeout_now(message),
            PeerBody::ReadIndex { .. } => self.check_read_request(message),
            PeerBody::ReadIndexReply { .. } => self.check_read_reply(message),
        }
    }

    fn check_member(&self, id: ServerId) -> Result<(), PeerError> {
        if self.raft().prs().get(id.wide()).is_none() { Err(PeerError::Sender(id)) } else { Ok(()) }
    }

    /// There is one leader in a term: the library would follow the second one.
    fn check_leader(&self, message: &PeerMessage) -> Result<(), PeerError> {
        let raft = self.raft();
        if message.term.0 == raft.term && raft.leader_id != 0 && raft.leader_id != message.from.wide() {
            let known = id_of(raft.leader_id);
            return Err(PeerError::SecondLeader { claims: message.from, known, term: message.term });
        }
        Ok(())
    }

    /// Each reply to a heartbeat causes another append, however many were not replied to. A slow log, or slow
    /// application of it, would fill the memory. If all is stored, and all that is known committed is applied, only
    /// more entries help. After a restart the known commit index may lag far, and the leader's first entry commits all
    /// before it. The library panics if an entry conflicts with a committed one. It looks only at messages that begin
    /// at or after the commit index. So this function checks that messages that begin before agree with the committed
    /// entries.
    fn check_append(&self, message: &PeerMessage, prev_index: Index, entries: &[Entry]) -> Result<(), PeerError> {
        let raft = self.raft();
        let log = &raft.raft_log;
        let goes_on_alone = log.committed > log.applied || log.persisted < log.last_index();
        if !entries.is_empty() && goes_on_alone && raft.store().unapplied_bytes() > limits::UNSTORED_BYTES_MAX {
            return Err(PeerError::Busy("unapplied entries fill the limit"));
        }
        if message.term.0 < raft.term || prev_index.0 >= raft.raft_log.committed {
            return Ok(());
        }
        // 0 stands for "no longer known": such entries are applied, and the library skips them too.
        let conflicts = |entry: &&Entry| {
            let known = entry.index.0 <= raft.raft_log.committed;
            known && raft.raft_log.term(entry.index.0).is_ok_and(|term| term != 0 && term != entry.term.0)
        };
        match entries.iter().find(conflicts) {
            Some(entry) => Err(PeerError::Conflict(entry.index)),
            None => self.check_before(message),
        }
    }

    /// The entry before the first, if it is committed here and known.
    fn check_before(&self, message: &PeerMessage) -> Result<(), PeerError> {
        let PeerBody::Append { prev_index, prev_term, .. } = &message.body else { return Ok(()) };
        let known = self.raft().raft_log.term(prev_index.0).is_ok_and(|term| term != 0 && term != prev_term.0);
        if known && *prev_index != Index(0) { Err(PeerError::Conflict(*prev_index)) } else { Ok(()) }
    }

    /// One forged message must not move the term near its end, where no election can be held any more. A node that
    /// holds nothing has no term to protect.
    fn check_term_jump(&self, term: Term) -> Result<(), PeerError> {
        let most = self.term_max;
        if term > most && !self.is_uninitialised { Err(PeerError::TermJump { term, most }) } else { Ok(()) }
    }

    /// The library panics on a commit index beyond its last entry.
    fn check_heartbeat(&self, message: &PeerMessage, commit: Index) -> Result<(), PeerError> {
        let last = self.last_index();
        if message.term.0 >= self.raft().term && commit > last {
            return Err(PeerError::CommitBeyondLog { commit, last });
        }
        Ok(())
    }

    /// The library assumes itself in the membership after a restore. It would also restore a snapshot that contradicts
    /// entries committed here.
    fn check_snapshot(&self, index: Index, term: Term, membership: &Membership) -> Result<(), PeerError> {
        if !membership.contains(self.id) {
            return Err(PeerError::Membership("the receiver is no member"));
        }
        let log = &self.raft().raft_log;
        let differs = index.0 <= log.committed && log.term(index.0).is_ok_and(|known| known != 0 && known != term.0);
        if differs { Err(PeerError::Conflict(index)) } else { Ok(()) }
    }

    fn check_append_reply(&self, message: &PeerMessage, reply: &AppendReply) -> Result<(), PeerError> {
        let raft = self.raft();
        if raft.state != StateRole::Leader || message.term.0 != raft.term {
            return Ok(());
        }
        let last = self.last_index();
        match reply {
            // The library would send from beyond its log.
            AppendReply::Accepted { index, .. } if *index > last => {
                Err(PeerError::AckBeyondLog { index: *index, last })
            }
            // A late rejection would move the follower's progress below what it acknowledged.
            AppendReply::Rejected { index, .. }
                if raft.prs().get(message.from.wide()).is_some_and(|p| index.0 <= p.matched) =>
            {
                Err(PeerError::Stale("rejection of an entry acknowledged since"))
            }
            AppendReply::Rejected { index, .. } if *index > last => {
                Err(PeerError::AckBeyondLog { index: *index, last })
            }
            _ => Ok(()),
        }
    }

    /// The next leader has the whole log of the present one, so it knows term and leader.
    fn check_timeout_now(&self, message: &PeerMessage) -> Result<(), PeerError> {
        let raft = self.raft();
        if raft.term != message.term.0 || raft.leader_id != message.from.wide() {
            return Err(PeerError::Stale("leadership handed over by another leader"));
        }
        if self.may_campaign { Ok(()) } else { Err(PeerError::Busy("cannot stand for election now")) }
    }

    /// Only the leader answers. A follower would forward the request, and requests could circulate.
    fn check_read_request(&self, message: &PeerMessage) -> Result<(), PeerError> {
        self.check_member(message.from)?;
        if self.raft().state != StateRole::Leader {
            return Err(PeerError::Stale("read request to a node that does not lead"));
        }
        if self.raft().pending_read_count() >= limits::READS_PENDING_MAX {
            return Err(PeerError::Busy("too many reads are waiting"));
        }
        Ok(())
    }

    fn check_read_reply(&self, message: &PeerMessage) -> Result<(), PeerError> {
        let raft = self.raft();
        if raft.state != StateRole::Follower || raft.term != message.term.0 || raft.leader_id != message.from.wide() {
            return Err(PeerError::Stale("read answer of another leader"));
        }
        Ok(())
    }
}

/// An uninitialised server becomes a member only by a snapshot in which it is a learner. One in which it votes is from
/// before it lost its data.
pub(super) fn uninitialised(id: ServerId, is_uninitialised: bool, message: &PeerMessage) -> Result<(), PeerError> {
    match &message.body {
        PeerBody::Snapshot { membership, .. } if membership.learners.contains(&id) => Ok(()),
        _ if is_uninitialised => Err(PeerError::Uninitialised),
        _ => Ok(()),
    }
}
