//! Replacing the state of this node when it is corrupt while the log is intact.
//!
//! The node requests a snapshot of everything from its leader. The log keeps counting for votes and commits, so nothing
//! acknowledged is lost, and the ensemble does not lose a voter. The requested snapshot ends at the last entry of this
//! log or later: while the request stands no entry is accepted, so the snapshot holds all that it replaces.
//!
//! This component decides when such a node may campaign and when it is stuck. The request itself is in
//! [`Library::request_snapshot`].

use raft::{INVALID_INDEX, ProgressState, Raft, StateRole};

use super::library::Library;
use crate::log::MemLog;
use crate::types::NodeId;

/// Election timeouts without a leader after which a node with a corrupt state campaigns all the same: its log may be the
/// only one that holds all that is committed.
const LEADERLESS_ELECTIONS: u32 = 4;
/// Election timeouts after which a leader with a corrupt state must be restarted, unless another member makes progress.
const STUCK_ELECTIONS: u32 = 20;

/// Whether the state is corrupt, and for how long what has been waited for.
#[derive(Default)]
pub(super) struct StateRepair {
    repair: Option<Repair>,
}

struct Repair {
    /// Ticks left without a leader before this node may campaign.
    leaderless_ticks_left: u32,
    /// Ticks as a leader in which no other member made progress.
    stuck_ticks: u32,
    /// Sum of what the others have acknowledged.
    matched: u64,
}

impl StateRepair {
    /// The state is corrupt.
    pub(super) fn begin(&mut self, library: &Library) {
        let leaderless_ticks_left = elections(library, LEADERLESS_ELECTIONS);
        self.repair = Some(Repair { leaderless_ticks_left, stuck_ticks: 0, matched: 0 });
    }

    /// A snapshot replaced the state. True if the state was corrupt before.
    pub(super) fn end(&mut self) -> bool {
        self.repair.take().is_some()
    }

    pub(super) fn is_active(&self) -> bool {
        self.repair.is_some()
    }

    /// Whether the state allows an election: it is intact, or no other server has been elected for long.
    pub(super) fn may_campaign(&self) -> bool {
        self.repair.as_ref().is_none_or(|repair| repair.leaderless_ticks_left == 0)
    }

    /// One tick.
    pub(super) fn tick(&mut self, library: &Library) {
        let (timeout, raft) = (elections(library, LEADERLESS_ELECTIONS), library.raft());
        let Some(repair) = &mut self.repair else { return };
        repair.leaderless_ticks_left =
            if raft.leader_id != 0 { timeout } else { repair.leaderless_ticks_left.saturating_sub(1) };
        let others = || raft.prs().iter().filter(|(id, _)| **id != raft.id);
        let matched = others().map(|(_, progress)| progress.matched).sum();
        let gets_snapshot = others().any(|(_, progress)| progress.state == ProgressState::Snapshot);
        let has_progress = std::mem::replace(&mut repair.matched, matched) != matched;
        let waits = raft.state == StateRole::Leader && !has_progress && !gets_snapshot;
        repair.stuck_ticks = if waits { repair.stuck_ticks.saturating_add(1) } else { 0 };
    }

    /// Whether this node leads with a corrupt state, and can neither transfer leadership nor send the others what they
    /// lack: the log in memory does not hold the entries, and no snapshot can be written. The data on disk are intact as
    /// far as they were checked, so a restart helps.
    pub(super) fn is_stuck(&self, library: &Library) -> bool {
        self.repair.as_ref().is_some_and(|repair| repair.stuck_ticks >= elections(library, STUCK_ELECTIONS))
    }

    /// The voter to which a leader with a corrupt state transfers leadership: not one that requests a snapshot itself.
    pub(super) fn successor(&self, raft: &Raft<MemLog>) -> Option<NodeId> {
        if self.repair.is_none() || raft.state != StateRole::Leader || raft.lead_transferee.is_some() {
            return None;
        }
        let may = |id: &u64| *id != raft.id && raft.prs().conf().voters().contains(*id);
        let intact = raft.prs().iter().filter(|(id, progress)| {
            may(id) && progress.recent_active && progress.pending_request_snapshot == INVALID_INDEX
        });
        let best = intact.max_by_key(|(id, progress)| (progress.matched, u64::MAX - **id));
        best.map(|(id, _)| NodeId(*id))
    }
}

/// Ticks of so many election timeouts.
fn elections(library: &Library, count: u32) -> u32 {
    count.saturating_mul(library.election_ticks())
}
