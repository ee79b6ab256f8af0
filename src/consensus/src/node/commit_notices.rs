//! How far a leader has informed each follower of its commit index, and the notice that informs it further.
//!
//! Appends and heartbeats hold the commit index. If they have not delivered it yet, a notice does. It is an append
//! without entries, and only a follower that lacks the named entry answers it. When a notice is sent the replica
//! decides.

use std::collections::BTreeMap;

use raft::{ProgressState, StateRole};

use super::library::Library;
use crate::convert::id_of;
use crate::message::{PeerBody, PeerMessage};
use crate::types::{Index, ServerId, Term};

/// Commit indices that followers were sent, of a leader.
#[derive(Default)]
pub(super) struct CommitNotices {
    sent: BTreeMap<ServerId, Index>,
}

impl CommitNotices {
    /// Term, role or leader changed.
    pub(super) fn clear(&mut self) {
        self.sent.clear();
    }

    /// Messages to this member may be lost.
    pub(super) fn forget(&mut self, to: ServerId) {
        self.sent.remove(&to);
    }

    /// This message leaves: if it informs a member of the commit index, that is noted.
    pub(super) fn note_sent(&mut self, message: &PeerMessage) {
        let upto = match &message.body {
            PeerBody::Append { prev_index, commit, entries, .. } => {
                (*commit).min(Index(prev_index.0 + entries.len() as u64))
            }
            PeerBody::Notice { commit, .. } | PeerBody::Heartbeat { commit, .. } => *commit,
            _ => return,
        };
        let sent = self.sent.entry(message.to).or_default();
        *sent = upto.max(*sent);
    }

    /// The notice for this member, if there is news for it and it may leave now.
    pub(super) fn notice(&self, library: &Library, vote_in_flight: bool, to: ServerId) -> Option<PeerMessage> {
        let raft = library.raft();
        let (log, progress) = (&raft.raft_log, raft.prs().get(to.wide())?);
        // A follower that rejected nothing has all that it was sent. If something was lost it rejects the notice.
        let is_in_sync = to.wide() != raft.id && progress.state == ProgressState::Replicate;
        let index = progress.next_idx.saturating_sub(1);
        let commit = Index(log.committed.min(index));
        let sent = self.sent.get(&to).copied().unwrap_or_default();
        if !is_in_sync || vote_in_flight || raft.state != StateRole::Leader || commit <= sent {
            return None;
        }
        let term = log.term(index).ok().filter(|term| *term > 0)?;
        let body = PeerBody::Notice { index: Index(index), term: Term(term), commit };
        Some(PeerMessage { from: id_of(raft.id), to, term: Term(raft.term), body })
    }
}
