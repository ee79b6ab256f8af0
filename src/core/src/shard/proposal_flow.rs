//! Flow of a shard's proposals: they go on, they wait, or, after the loss of a leader, their outcome is unknown.
//!
//! A shard of a standalone server needs none of this. In an ensemble the consensus actor reports when proposals must
//! wait. They stay here, never sent, within the limits on commands in flight. It also reports when sent proposals that
//! did not come back have no known outcome. Then the connections that wait for them end, and only these. No later write
//! of such a connection is ever ordered, so that of its writes a prefix is.

use super::sessions::Sessions;
use super::{Garbage, Shard};
use crate::apply::outcome::Outcome;
use crate::ids::{ConnId, Millis};
use crate::shard::conn::Close;
use crate::shard::watch::WatchTable;
use crate::tree::view::View;
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
    /// The view is corrupt: no client is served, not even with a read-only session.
    pub(super) distrusted: bool,
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

    /// Ends the connections of commands that were taken and have not come back: their outcome is unknown. All others
    /// stay, with their commands that were not taken yet. With `unsent_too` these end as well, because no leader is
    /// found.
    pub(super) fn uncertain(&mut self, now: Millis, generation: u32, unsent_too: bool) {
        let ended = self.in_flight.lose(generation, unsent_too, &mut self.effects.audited);
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
        // The remaining watches are listed by the hashes of the old view, and no connection has any.
        mem::take(&mut self.dropping).into_iter().for_each(|id| self.conns.free(id));
        let watches = mem::replace(&mut self.watches, WatchTable::of(&self.config.limits));
        self.effects.garbage.push(Garbage::Watches(Box::new(watches)));
        self.events.clear();
        (self.lists, self.delay) = Default::default();
        self.memory.clear_queue();
        self.in_flight.clear(&mut self.effects.audited);
        self.sessions = Sessions::new(sessions_alive);
        self.freshness.clear_waiting();
        self.walking.clear();
        self.writes.clear();
        self.flow.distrusted = false;
        self.effects.garbage.push(Garbage::View(Box::new(mem::replace(&mut self.view, view))));
    }

    /// A command of this shard was applied. False if its connection ended because the outcome was not known.
    pub(super) fn came_back(&mut self, conn: ConnId, outcome: &Outcome) -> bool {
        let came_back = self.in_flight.come_back(conn, outcome, &mut self.effects.audited);
        let waits = || self.conns.get(conn).is_some_and(|conn| !conn.is_closing());
        assert!(came_back || !waits(), "each command of a connection that comes back was in flight");
        came_back
    }
}
