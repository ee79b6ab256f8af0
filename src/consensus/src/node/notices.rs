//! What a leader has told the others of its commit index, and how it tells them more.
//!
//! Appends and heartbeats say how far is committed. What they have not said yet a notice says: it is an append without
//! entries, and nobody answers it but who cannot place it. When it goes is for whoever drives the node to decide.

use raft::StateRole;
use raft::eraftpb::MessageType;

use super::RaftNode;
use crate::message::{PeerBody, PeerMessage};
use crate::types::{Index, NodeId, Term};

impl RaftNode {
    /// Of a leader: members that can be told of something committed that they have not been told of.
    pub fn untold(&self) -> impl Iterator<Item = NodeId> + '_ {
        let raft = &self.raw.raft;
        let members = (raft.state == StateRole::Leader).then(|| raft.prs().iter());
        members.into_iter().flatten().filter(|(id, _)| self.notice_to(**id).is_some()).map(|(id, _)| NodeId(*id))
    }

    /// A notice for this member, if there is anything to tell it: to be sent now.
    pub fn tell(&mut self, to: NodeId) -> Option<PeerMessage> {
        let message = self.notice_to(to.0)?;
        self.note_told(&message);
        Some(message)
    }

    fn notice_to(&self, to: u64) -> Option<PeerMessage> {
        let raft = &self.raw.raft;
        let (log, progress) = (&raft.raft_log, raft.prs().get(to)?);
        // Without a rejection of what it was sent it has all that; what is lost it will say when it gets the notice.
        let placed = to != self.id.0 && progress.state == raft::ProgressState::Replicate;
        let index = progress.next_idx.saturating_sub(1);
        let news = log.committed.min(index);
        let told = self.informed.get(&to).copied().unwrap_or(0);
        let promised = self.awaiting.iter().any(|append| append.vote);
        if !placed || promised || raft.state != StateRole::Leader || news <= told {
            return None;
        }
        let term = log.term(index).ok().filter(|term| *term > 0)?;
        let body = PeerBody::Notice { index: Index(index), term: Term(term), commit: Index(news) };
        Some(PeerMessage { from: self.id, to: NodeId(to), term: Term(raft.term), body })
    }

    /// A leader's message goes to a member, which learns of what is committed by it.
    pub(super) fn note_told(&mut self, message: &PeerMessage) {
        let upto = match &message.body {
            PeerBody::Append { prev_index, commit, entries, .. } => {
                (*commit).min(Index(prev_index.0 + entries.len() as u64))
            }
            PeerBody::Notice { commit, .. } | PeerBody::Heartbeat { commit, .. } => *commit,
            _ => return,
        };
        let told = self.informed.entry(message.to.0).or_default();
        *told = upto.0.max(*told);
    }

    /// A notice was taken: whoever sent it asks for no answer if all is well. `said`: messages there were before it.
    pub(super) fn keep_silent(&mut self, notice: &PeerMessage, said: usize) {
        let raft = &mut self.raw.raft;
        let answer = raft.msgs.get(said).filter(|_| raft.msgs.len() == said + 1 && raft.term == notice.term.0);
        if answer.is_some_and(|answer| answer.msg_type == MessageType::MsgAppendResponse && !answer.reject) {
            raft.msgs.pop();
        }
    }
}
