//! Commit notices of a leader: for members that the messages of a turn do not inform of the commit index.

use std::collections::VecDeque;

use crate::message::{PeerBody, PeerMessage};
use crate::node::RaftNode;
use crate::notice_delay::{NoticeDecision, NoticeDelay};
use crate::types::{Index, Micros, ServerId};

/// Members that wait for a commit, and when the others are informed.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    delay: NoticeDelay,
    /// Own batches that clients of other members wait for, oldest first, with those members.
    awaited: VecDeque<(Index, Vec<ServerId>)>,
}

impl Notices {
    /// Clients of these members wait for the batch at `index`.
    pub(crate) fn wait(&mut self, index: Index, members: Vec<ServerId>) {
        if !members.is_empty() {
            self.awaited.push_back((index, members));
        }
    }

    /// The leadership is over.
    pub(crate) fn forget_waiting(&mut self) {
        self.awaited.clear();
    }

    /// Adds the notices that are due to `messages`. If the clients of a member wait, it is informed at once. Gives the time
    /// of the next notice, if one waits for an append.
    pub(crate) fn send(&mut self, now: Micros, raft: &mut RaftNode, messages: &mut Vec<PeerMessage>) -> Option<Micros> {
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
