//! The commands of this shard's clients from their proposal until they come back.
//!
//! The newest of them wait here for the end of the turn, or for a leader. The others were handed out. Commands come back in the
//! order in which they were proposed.

use super::effects::Requests;
use crate::apply::outcome::Outcome;
use crate::command::{Command, Proposals, Waiting};
use crate::ids::ConnId;
use crate::limits::ShardLimits;
use crate::shard::audit::{AuditResult, Draft, Record};
use crate::tree::acl::Identity;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// A command that has not come back, and the amounts that it counts for.
#[derive(Debug)]
pub(super) struct Proposed {
    pub(super) conn: ConnId,
    /// Bytes.
    pub(super) weight: usize,
    /// The size of its frame if that is a large one.
    pub(super) large: usize,
    /// The most that it may cost if it is costly, or 0.
    pub(super) cost: u64,
    /// If it is audited.
    pub(super) draft: Option<Box<Draft>>,
}

/// The commands of a shard that have not come back.
#[derive(Default)]
pub(super) struct InFlight {
    /// Oldest first.
    proposed: VecDeque<Proposed>,
    /// The commands of the last of them.
    waiting: Waiting,
    /// Sums over `proposed`.
    bytes: usize,
    large_bytes: usize,
    cost: u64,
    /// Stamped on proposals, so that those from before a change of leader are known when they arrive late.
    generation: u32,
    /// Membership changes that have come back and go on: connection, and draft of the audit record.
    underway: Vec<(ConnId, Option<Box<Draft>>)>,
}

impl InFlight {
    pub(super) fn is_empty(&self) -> bool {
        self.proposed.is_empty()
    }

    /// Bytes of the commands that were not handed out; 0 if there are none, and only then.
    pub(super) const fn waiting_bytes(&self) -> usize {
        self.waiting.bytes()
    }

    /// The cost of all costly commands.
    pub(super) const fn cost(&self) -> u64 {
        self.cost
    }

    /// Whether nothing more is proposed before a command has come back.
    pub(super) fn is_full(&self, limits: &ShardLimits) -> bool {
        self.bytes >= limits.inflight_bytes_per_shard_max || self.proposed.len() >= limits.requests_in_flight_max
    }

    /// Whether a large request of so many bytes may be proposed.
    pub(super) const fn has_room_for_large(&self, bytes: usize, limits: &ShardLimits) -> bool {
        self.large_bytes + bytes <= limits.large_requests_bytes_max
    }

    /// As [`Waiting::place_of`].
    pub(super) fn place_of(&mut self, identities: &Arc<Vec<Identity>>, last: (u64, u32)) -> (u64, u32) {
        self.waiting.place_of(identities, last)
    }

    pub(super) fn push(&mut self, command: Command, proposed: Proposed) {
        self.waiting.push(command, proposed.weight);
        self.bytes += proposed.weight;
        self.large_bytes += proposed.large;
        self.cost += proposed.cost;
        self.proposed.push_back(proposed);
    }

    /// Hands out the commands that wait, in pieces.
    pub(super) fn hand_out(&mut self, bytes_max: usize, into: &mut Vec<Requests>) {
        while let Some(piece) = self.waiting.take(bytes_max) {
            let proposals = Proposals { generation: self.generation, ..piece };
            into.push(Requests { proposals, syncs: Vec::new() });
        }
    }

    /// The oldest command of this connection has come back with this outcome. False if it was forgotten before.
    pub(super) fn come_back(&mut self, conn: ConnId, outcome: &Outcome, audited: &mut Vec<Record>) -> bool {
        if self.proposed.front().is_none_or(|first| first.conn != conn) {
            return false;
        }
        let Some(Proposed { weight, large, cost, draft, .. }) = self.proposed.pop_front() else { return false };
        self.bytes -= weight;
        self.large_bytes -= large;
        self.cost -= cost;
        match (outcome, draft) {
            (Outcome::Underway(_), draft) => self.underway.push((conn, draft)),
            (_, Some(draft)) => draft.complete(outcome, audited),
            (_, None) => {}
        }
        true
    }

    /// The membership change of this connection is at its end.
    pub(super) fn end_underway(&mut self, conn: ConnId, outcome: &Outcome, audited: &mut Vec<Record>) {
        if let Some(at) = self.underway.iter().position(|(other, _)| *other == conn)
            && let (_, Some(draft)) = self.underway.swap_remove(at)
        {
            draft.complete(outcome, audited);
        }
    }

    /// Forgets the commands of these connections, which the leader refused. They are sorted, and have one command each.
    pub(super) fn refuse(&mut self, refused: &[ConnId]) {
        let Self { proposed, bytes, large_bytes, .. } = self;
        proposed.retain(|command| {
            let stays = refused.binary_search(&command.conn).is_err();
            if !stays {
                *bytes -= command.weight;
                *large_bytes -= command.large;
            }
            stays
        });
    }

    /// The commands that were handed out have no known outcome, from now on with this generation: forgets them, and every other
    /// command of their connections. Gives these connections, sorted. `waiting_too`: the same for the commands that wait.
    pub(super) fn lose(&mut self, generation: u32, waiting_too: bool, audited: &mut Vec<Record>) -> Vec<ConnId> {
        self.generation = generation;
        let sent = self.proposed.len() - self.waiting.len();
        let doomed = if waiting_too { self.proposed.len() } else { sent };
        let mut ended: Vec<ConnId> = self.proposed.iter().take(doomed).map(|command| command.conn).collect();
        // The next leader does not know that they wait for the end of a membership change.
        ended.extend(self.underway.iter().map(|(conn, _)| *conn));
        ended.sort_unstable();
        ended.dedup();
        self.forget(sent, &ended, audited);
        ended
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self, audited: &mut Vec<Record>) {
        self.waiting.retain(|_| false);
        self.forget(self.proposed.len(), &[], audited);
    }

    /// Drops the commands that were handed out, and of the others those of these connections.
    fn forget(&mut self, sent: usize, ended: &[ConnId], audited: &mut Vec<Record>) {
        let stays = |conn: &ConnId| ended.binary_search(conn).is_err();
        let underway = self.underway.drain(..).filter_map(|(_, draft)| draft);
        let lost = self.proposed.drain(..sent).filter_map(|command| command.draft);
        underway.chain(lost).for_each(|draft| draft.give_up(AuditResult::Invoked, audited));
        self.proposed.retain_mut(|command| {
            let stays = stays(&command.conn);
            if let Some(draft) = command.draft.take_if(|_| !stays) {
                draft.give_up(AuditResult::Failure, audited);
            }
            stays
        });
        self.waiting.retain(|command| command.origin.is_some_and(|origin| stays(&origin.conn)));
        assert!(self.proposed.len() == self.waiting.len(), "the commands that are left were not handed out");
        self.bytes = self.proposed.iter().map(|command| command.weight).sum();
        self.large_bytes = self.proposed.iter().map(|command| command.large).sum();
        self.cost = self.proposed.iter().map(|command| command.cost).sum();
    }
}
