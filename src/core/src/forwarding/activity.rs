//! The reports of session activity that a follower sends to its leader.
//!
//! The leader sends its clock. A report echoes the latest of these times that came before all shards had read their sockets: up to
//! that time the report is complete.

use crate::ids::{Millis, SessionId, ShardId};
use crate::limits::{HEARTBEATS_MAX, REPORT_SESSIONS};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem;

/// The sessions for a follower's next report, and the time up to which it is complete.
pub(super) struct Activity {
    /// When a time of the leader's came, and that time.
    heartbeats: VecDeque<(Millis, Millis)>,
    /// The time up to which the reports of each shard are complete.
    complete: Vec<Millis>,
    echo: Millis,
    /// Sessions that were active and are not reported.
    sessions: Vec<SessionId>,
}

impl Activity {
    pub(super) fn new(shards: u16) -> Self {
        let complete = alloc::vec![Millis(0); usize::from(shards)];
        Self { heartbeats: VecDeque::new(), complete, echo: Millis(0), sessions: Vec::new() }
    }

    /// The leader is another one, or none.
    pub(super) fn forget_leader(&mut self) {
        self.heartbeats.clear();
        self.echo = Millis(0);
    }

    /// The leader gives every session a full timeout: nothing needs to be reported.
    pub(super) fn forget_sessions(&mut self) {
        self.sessions.clear();
    }

    /// A time of the leader's came.
    pub(super) fn heartbeat(&mut self, now: Millis, clock: Millis) {
        if self.heartbeats.len() < HEARTBEATS_MAX {
            self.heartbeats.push_back((now, clock));
        }
    }

    /// The report of a shard is complete up to this time.
    pub(super) fn complete(&mut self, shard: ShardId, upto: Millis) {
        if let Some(complete) = self.complete.get_mut(usize::from(shard.0)) {
            *complete = upto.max(*complete);
        }
    }

    pub(super) fn add(&mut self, sessions: impl Iterator<Item = SessionId>) {
        self.sessions.extend(sessions);
    }

    /// The latest time of the leader's that had come when the shards had read all sockets.
    pub(super) fn follow_echo(&mut self) {
        let upto = self.complete.iter().min().copied().unwrap_or_default();
        while let Some((_, clock)) = self.heartbeats.front().filter(|(came, _)| *came <= upto) {
            self.echo = self.echo.max(*clock);
            self.heartbeats.pop_front();
        }
    }

    /// The report: parts with an echo and sessions, one at least. Only the last has an echo, because it makes the list complete.
    pub(super) fn take(&mut self) -> Vec<(Millis, Vec<SessionId>)> {
        self.sessions.sort_unstable();
        self.sessions.dedup();
        let mut rest = mem::take(&mut self.sessions);
        let mut parts = Vec::new();
        while rest.len() > REPORT_SESSIONS {
            let behind = rest.split_off(REPORT_SESSIONS);
            parts.push((Millis(0), mem::replace(&mut rest, behind)));
        }
        parts.push((self.echo, rest));
        parts
    }
}
