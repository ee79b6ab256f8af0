//! A node whose state is not to be trusted, while its log is: it asks its leader for an image of everything.
//!
//! The log goes on counting for votes and commits, so nothing that was acknowledged is lost, and the ensemble does not lose a
//! voter. The image that is asked for ends at the last entry of this log or later: while it is asked for no entry is taken, so
//! that what the image replaces is all in it.

use raft::{INVALID_INDEX, ProgressState, StateRole};

use super::RaftNode;
use crate::message::{AppendReply, PeerBody, PeerMessage};
use crate::types::NodeId;

/// Election timeouts without a leader after which a node whose state is not to be trusted stands for election all the same.
const LEADERLESS_ELECTIONS: u32 = 4;

/// A node whose state is not to be trusted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Distrust {
    /// Ticks left without a leader. After that this log may be the only one that holds all that is committed: it has to be
    /// led by, until another server has it too.
    ticks_left: u32,
}

impl Distrust {
    pub(super) fn may_lead(self) -> bool {
        self.ticks_left == 0
    }
}

impl RaftNode {
    /// The state is not to be trusted. Until an image of the leader's is installed this node asks for one and stands for no
    /// election, unless nobody else is elected for long. As a leader it hands over, see [`RaftNode::misled`]. `gives_images`:
    /// images that it has made may be given to others all the same, because a damaged one is recognised.
    pub(crate) fn distrust(&mut self, gives_images: bool) {
        self.distrusted = Some(Distrust { ticks_left: self.patience() });
        self.raw.mut_store().give_images(gives_images);
        self.want_image();
    }

    /// An image takes the place of the state.
    pub(super) fn trust(&mut self) {
        if self.distrusted.take().is_some() {
            self.raw.mut_store().give_images(true);
        }
    }

    fn patience(&self) -> u32 {
        LEADERLESS_ELECTIONS.saturating_mul(u32::try_from(self.raw.raft.election_timeout()).unwrap_or(u32::MAX))
    }

    pub(super) fn count_leaderless(&mut self) {
        let (patience, led) = (self.patience(), self.raw.raft.leader_id != 0);
        if let Some(distrust) = &mut self.distrusted {
            distrust.ticks_left = if led { patience } else { distrust.ticks_left.saturating_sub(1) };
        }
    }

    /// Term or leader are others: what was asked of the former leader may be more than the new one has.
    pub(super) fn drop_request(&mut self) {
        if self.distrusted.is_some() {
            self.raw.raft.pending_request_snapshot = INVALID_INDEX;
        }
    }

    /// Asks for the image as soon as there is a leader that has all of this log. The library sends the request with each
    /// answer to the leader until the image is restored.
    pub(super) fn want_image(&mut self) {
        let raft = &mut self.raw.raft;
        let asked = raft.pending_request_snapshot != INVALID_INDEX;
        if self.distrusted.is_none()
            || asked
            || raft.state != StateRole::Follower
            || raft.leader_id == 0
            || raft.snap().is_some()
        {
            return;
        }
        let log = &raft.raft_log;
        let last = log.last_index();
        // With an entry of the leader's own it has all of this log, and can commit it without further answers of this node.
        if last > 0 && log.term(last).is_ok_and(|term| term == raft.term) {
            raft.pending_request_snapshot = last;
        }
    }

    /// A follower has taken the image that it asked for. The library would wait for an entry that it lacked before, and send
    /// the image again.
    pub(super) fn note_image_taken(&mut self, message: &PeerMessage) {
        let PeerBody::AppendReply(AppendReply::Accepted { index, .. }) = message.body else { return };
        let raft = &self.raw.raft;
        if raft.state != StateRole::Leader || message.term.0 != raft.term {
            return;
        }
        let taken = raft.prs().get(message.from.0).is_some_and(|progress| {
            progress.state == ProgressState::Snapshot
                && progress.pending_request_snapshot != INVALID_INDEX
                && index.0 >= progress.pending_snapshot
        });
        if taken {
            self.report_snapshot(message.from, true);
        }
    }

    /// Whether this node leads although its state is not to be trusted, and to whom it could hand over: to none that asks for
    /// an image itself.
    pub(crate) fn misled(&self) -> Option<NodeId> {
        let raft = &self.raw.raft;
        if self.distrusted.is_none() || raft.state != StateRole::Leader || self.is_transferring() {
            return None;
        }
        let may = |id: &u64| *id != self.id.0 && raft.prs().conf().voters().contains(*id);
        let sound = raft.prs().iter().filter(|(id, progress)| {
            may(id) && progress.recent_active && progress.pending_request_snapshot == INVALID_INDEX
        });
        let best = sound.max_by_key(|(id, progress)| (progress.matched, u64::MAX - **id));
        best.map(|(id, _)| NodeId(*id))
    }
}
