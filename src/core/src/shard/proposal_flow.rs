//! Where a shard's proposals go: on, nowhere for now, or, when a leader is gone, nobody knows.
//!
//! A shard of a server that is alone never hears of any of this. In an ensemble the consensus actor says when proposals
//! must wait (they stay here, never sent, within the limits on what is in flight), and when those that were sent and
//! did not come back have no known outcome: then the connections that wait for them end, and only those. No later write
//! of such a connection is ever ordered, so that of its writes a prefix is.

use super::flow::InFlight;
use super::{Garbage, Shard};
use crate::audit::{AuditResult, Draft};
use crate::change::{AppliedTxn, Outcome};
use crate::conn::Close;
use crate::ids::{ConnId, Millis};
use crate::view::View;
use crate::watch::WatchTable;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;

/// How proposals go.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProposalFlow {
    /// They wait here.
    pub(super) paused: bool,
    /// Since then.
    pub(super) paused_since: Millis,
    /// No leader is found: see `leaderless`.
    pub(super) leaderless: bool,
    /// The view is not to be trusted: nobody is served, not even who asks for a read-only session.
    pub(super) distrusted: bool,
    /// Stamped on them, so that late ones of a former course are known.
    pub(super) generation: u32,
}

impl Shard {
    /// No leader is known: proposals wait here from now on.
    pub(super) fn pause_proposals(&mut self, now: Millis) {
        if !mem::replace(&mut self.flow.paused, true) {
            self.flow.paused_since = now;
        }
    }

    /// Proposals go again, with the next turn.
    pub(super) fn resume_proposals(&mut self, now: Millis) {
        self.flow.paused = false;
        if mem::replace(&mut self.flow.leaderless, false) {
            self.end_read_only(now);
        }
    }

    /// Of the commands that were taken and have not come back nobody knows what becomes. Their connections end; all
    /// others stay, with their commands that were not taken yet. `unsent_too`: those end as well, because no leader is
    /// found.
    pub(super) fn uncertain(&mut self, now: Millis, generation: u32, unsent_too: bool) {
        self.flow.generation = generation;
        let sent = self.in_flight.len() - self.proposals.len();
        let doomed = if unsent_too { self.in_flight.len() } else { sent };
        let mut ended: Vec<ConnId> = self.in_flight.iter().take(doomed).map(|command| command.conn).collect();
        // Whoever leads now does not know who waits for the end of a membership change.
        ended.append(&mut self.underway);
        ended.sort_unstable();
        ended.dedup();
        self.forget_in_flight(sent, &ended);
        for id in ended {
            if let Some(conn) = self.conns.take(id) {
                if conn.is_closing() {
                    self.conns.put_back(conn);
                } else {
                    self.end_now(now, conn, Close::Uncertain);
                }
            }
        }
        self.resume_held_back(now);
        self.close_if_drained(now);
    }

    /// The leader's snapshot took the place of the state: every connection ends, and the view is that of the snapshot.
    pub(super) fn install(&mut self, view: View, sessions_alive: u64) {
        let all: Vec<ConnId> = self.conns.iter().map(|conn| conn.id).collect();
        for id in all {
            if let Some(conn) = self.conns.take(id) {
                self.end(&conn, Close::Replaced);
            }
        }
        // The watches that are left are listed by the hashes of the old view, and nobody has any.
        mem::take(&mut self.dropping).into_iter().for_each(|id| self.conns.free(id));
        let watches = mem::replace(&mut self.watches, WatchTable::of(&self.config.limits));
        self.effects.garbage.push(Garbage::Watches(Box::new(watches)));
        self.telling = None;
        self.lists.clear();
        (self.preserved, self.delay) = Default::default();
        self.wanting.clear();
        self.proposals.retain(|_| false);
        self.forget_in_flight(self.in_flight.len(), &[]);
        self.sessions.clear();
        self.ephemerals.clear();
        self.behind.clear();
        self.walking.clear();
        self.underway.clear();
        self.held_back.clear();
        self.costly.clear();
        self.sessions_alive = sessions_alive;
        self.flow.distrusted = false;
        self.effects.garbage.push(Garbage::View(Box::new(mem::replace(&mut self.view, view))));
    }

    /// Drops what was sent, and of the rest what belongs to these connections.
    fn forget_in_flight(&mut self, sent: usize, ended: &[ConnId]) {
        let stays = |conn: &ConnId| ended.binary_search(conn).is_err();
        let Self { in_flight, proposals, audited_later, effects, .. } = self;
        let lost = in_flight.drain(..sent).filter_map(|command| command.draft);
        for draft in audited_later.drain(..).map(|(_, draft)| draft).chain(lost) {
            draft.give_up(AuditResult::Invoked, &mut effects.audited);
        }
        in_flight.retain_mut(|command| {
            let stays = stays(&command.conn);
            if let Some(draft) = command.draft.take_if(|_| !stays) {
                draft.give_up(AuditResult::Failure, &mut effects.audited);
            }
            stays
        });
        proposals.retain(|command| command.origin.is_some_and(|origin| stays(&origin.conn)));
        assert!(in_flight.len() == proposals.len(), "proposals in flight were not taken yet");
        self.in_flight_bytes = self.in_flight.iter().map(|command| command.weight).sum();
        self.large_bytes = self.in_flight.iter().map(|command| command.large).sum();
        self.costly.in_flight = self.in_flight.iter().map(|command| command.cost).sum();
    }

    /// A command of this shard was applied. False if its connection ended because nobody knew what would become of it.
    pub(super) fn came_back(&mut self, conn: ConnId, txn: &AppliedTxn) -> bool {
        if self.in_flight.front().is_none_or(|first| first.conn != conn) {
            let waits = self.conns.get(conn).is_some_and(|conn| !conn.is_closing());
            assert!(!waits, "every command of ours that comes back was in flight");
            return false;
        }
        if let Some(InFlight { weight, large, cost, draft, .. }) = self.in_flight.pop_front() {
            self.in_flight_bytes -= weight;
            self.large_bytes -= large;
            self.costly.in_flight -= cost;
            if let Some(draft) = draft {
                self.audit(conn, draft, &txn.outcome);
            }
        }
        true
    }

    fn audit(&mut self, conn: ConnId, draft: Box<Draft>, outcome: &Outcome) {
        match outcome {
            Outcome::Underway(_) => self.audited_later.push((conn, draft)),
            outcome => draft.complete(outcome, &mut self.effects.audited),
        }
    }

    /// The membership change that a connection had ordered is at its end.
    pub(super) fn audit_later(&mut self, conn: ConnId, outcome: &Outcome) {
        if let Some(at) = self.audited_later.iter().position(|(other, _)| *other == conn) {
            let (_, draft) = self.audited_later.swap_remove(at);
            draft.complete(outcome, &mut self.effects.audited);
        }
    }
}
