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
/// Election timeouts after which a node that leads although its state is not to be trusted has to begin anew from its disk, unless
/// another member gets on by what it is given.
const STUCK_ELECTIONS: u32 = 20;

/// A node whose state is not to be trusted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Distrust {
    /// Ticks left without a leader. After that this log may be the only one that holds all that is committed: it has to be
    /// led by, until another server has it too.
    ticks_left: u32,
    /// Ticks as a leader in which no other member got on.
    stuck: u32,
    /// What the others have acknowledged, summed up.
    matched: u64,
}

impl Distrust {
    fn new(ticks_left: u32) -> Distrust {
        Distrust { ticks_left, stuck: 0, matched: 0 }
    }

    pub(super) fn may_lead(self) -> bool {
        self.ticks_left == 0
    }
}

impl RaftNode {
    /// The state is not to be trusted. Until an image of the leader's is installed this node asks for one and stands for no
    /// election, unless nobody else is elected for long. As a leader it hands over, see [`RaftNode::misled`]. `gives_images`:
    /// images that it has made may be given to others all the same, because a damaged one is recognised.
    pub(crate) fn distrust(&mut self, gives_images: bool) {
        self.distrusted = Some(Distrust::new(self.elections(LEADERLESS_ELECTIONS)));
        self.raw.mut_store().give_images(gives_images);
        self.want_image();
    }

    /// The images that this node has made are not to be given either.
    pub(crate) fn give_no_images(&mut self) {
        self.raw.mut_store().give_images(false);
    }

    /// An image takes the place of the state.
    pub(super) fn trust(&mut self) {
        if self.distrusted.take().is_some() {
            self.raw.mut_store().give_images(true);
        }
    }

    fn elections(&self, count: u32) -> u32 {
        count.saturating_mul(u32::try_from(self.raw.raft.election_timeout()).unwrap_or(u32::MAX))
    }

    /// A tick passed.
    pub(super) fn count_distrust(&mut self) {
        let (patience, raft) = (self.elections(LEADERLESS_ELECTIONS), &self.raw.raft);
        let Some(distrust) = &mut self.distrusted else { return };
        distrust.ticks_left = if raft.leader_id != 0 { patience } else { distrust.ticks_left.saturating_sub(1) };
        let others = || raft.prs().iter().filter(|(id, _)| **id != self.id.0);
        let matched = others().map(|(_, progress)| progress.matched).sum();
        let gets_image = others().any(|(_, progress)| progress.state == ProgressState::Snapshot);
        let got_on = std::mem::replace(&mut distrust.matched, matched) != matched;
        let waits = raft.state == StateRole::Leader && !got_on && !gets_image;
        distrust.stuck = if waits { distrust.stuck.saturating_add(1) } else { 0 };
    }

    /// Whether this node leads although its state is not to be trusted, and can neither hand over nor give the others what they
    /// lack: its memory does not hold the entries, and no image can be made. What its disk holds is whole as far as it checks, so
    /// a new start gets on.
    pub(crate) fn is_stuck(&self) -> bool {
        self.distrusted.is_some_and(|distrust| distrust.stuck >= self.elections(STUCK_ELECTIONS))
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

    /// A follower that asks for an image answers nothing else. What it asked for in a former life, or before it took an image, it
    /// does not ask for any more: it needs entries.
    pub(super) fn drop_stale_request(&mut self, message: &PeerMessage) {
        let raft = &mut self.raw.raft;
        let asks = matches!(message.body, PeerBody::AppendReply(AppendReply::WantsImage { .. }));
        if asks || raft.state != StateRole::Leader || message.term.0 != raft.term {
            return;
        }
        if let Some(progress) = raft.mut_prs().get_mut(message.from.0)
            && progress.state != ProgressState::Snapshot
        {
            progress.pending_request_snapshot = INVALID_INDEX;
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
