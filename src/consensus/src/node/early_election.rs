//! Elections that do not wait for the timeout, because the transport reported the end of the leader's process.
//!
//! A reset connection is a better sign than a missing heartbeat. The node clears the leader, because its lease would
//! make the node ignore other candidates. It campaigns after a delay of its own, so that two survivors do not split the
//! votes. It always begins with a pre-vote: if the leader runs after all, no term changes.

use raft::StateRole;

use super::library::Library;
use crate::limits;

/// Attempts at an election before the timeout; none as a rule.
#[derive(Default)]
pub(super) struct EarlyElection {
    attempts: Option<Attempts>,
}

struct Attempts {
    /// Ticks until the next attempt.
    in_ticks: u32,
    /// Ticks between attempts, beside what is drawn.
    stagger_ticks: u32,
    left: u32,
}

impl EarlyElection {
    /// Schedules attempts, the first after `stagger_ticks`. True: the first one is due at once.
    pub(super) fn begin(&mut self, stagger_ticks: u32) -> bool {
        let stagger_ticks = stagger_ticks.min(limits::TICKS_MAX);
        let left = limits::EARLY_ELECTIONS_MAX;
        self.attempts = Some(Attempts { in_ticks: stagger_ticks, stagger_ticks, left });
        stagger_ticks == 0
    }

    /// One tick. True: an attempt is due. Ends all attempts when a leader is known or an election is in progress.
    pub(super) fn tick(&mut self, library: &Library) -> bool {
        let raft = library.raft();
        let waits = matches!(raft.state, StateRole::Follower | StateRole::PreCandidate) && raft.leader_id == 0;
        let Some(attempts) = self.attempts.as_mut().filter(|_| waits) else {
            self.attempts = None;
            return false;
        };
        attempts.in_ticks = attempts.in_ticks.saturating_sub(1);
        attempts.in_ticks == 0
    }

    /// An attempt begins now: schedules the next one.
    pub(super) fn attempt(&mut self, library: &mut Library) {
        let Some(attempts) = &mut self.attempts else { return };
        attempts.left -= 1;
        // Two servers that attempt in the same tick must not do so for ever.
        let extra = library.random_below(u64::from(limits::EARLY_ELECTION_TICKS));
        let extra = u32::try_from(extra).expect("below a u32");
        attempts.in_ticks = attempts.stagger_ticks + limits::EARLY_ELECTION_TICKS + extra;
        if attempts.left == 0 {
            self.attempts = None;
        }
    }
}
