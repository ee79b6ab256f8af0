//! Sockets of connections that have ended, closed some at a time. Each is a call of the kernel, and tens of thousands
//! may end in one turn.

use std::collections::{HashMap, VecDeque};
use std::mem::{Discriminant, discriminant};
use std::net::SocketAddr;

use corral_core::ids::ConnId;
use corral_core::shard::conn::Close;

use crate::runtime::complaint::Allowance;

/// Sockets closed with each call of the shard: about 0.1 ms. The others are closed between its other work, until the turn is over.
pub(super) const CLOSED_AT_ONCE: usize = 16;
/// Lines for one reason.
const LINES_PER_SECOND: u32 = 10;
/// Room for connections that is kept.
const KEPT: usize = 512;

/// Connections that have ended and still have open sockets, oldest first.
#[derive(Debug, Default)]
pub(super) struct Closing {
    queue: VecDeque<(ConnId, Close)>,
}

impl Closing {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn add(&mut self, ended: impl Iterator<Item = (ConnId, Close)>) {
        self.queue.extend(ended);
    }

    pub(super) fn next(&mut self) -> Option<(ConnId, Close)> {
        let next = self.queue.pop_front();
        if self.queue.is_empty() {
            self.queue.shrink_to(KEPT);
        }
        next
    }

    /// The connection that was in the slot, if its socket is still open.
    pub(super) fn take_slot(&mut self, slot: u32) -> Option<(ConnId, Close)> {
        // Searched from the end: a new connection takes the slot that was vacated last.
        let at = self.queue.iter().rposition(|(id, _)| id.slot == slot)?;
        self.queue.remove(at)
    }
}

/// Lines for connections that ended, by reason.
#[derive(Debug, Default)]
pub(super) struct Lines(HashMap<Discriminant<Close>, Allowance>);

impl Lines {
    /// Few lines a second for each reason that an operator may look for, with the number of the others.
    pub(super) fn log(&mut self, peer: SocketAddr, why: Close, now_ms: u64) {
        let concerns_all = matches!(why, Close::Shutdown | Close::NoLeader | Close::LeaderFound);
        if concerns_all || matches!(why, Close::Done | Close::HungUp | Close::SessionMoved) {
            // The consensus actor reports an event that concerns all connections once.
            return tracing::debug!(%peer, "closed: {why}");
        }
        match self.line(why, now_ms) {
            None => tracing::debug!(%peer, "closed: {why}"),
            Some(0) => tracing::info!(%peer, "closed: {why}"),
            Some(not_logged) => tracing::info!(%peer, not_logged, "closed: {why}"),
        }
    }

    /// As [`Allowance::line`].
    fn line(&mut self, why: Close, now_ms: u64) -> Option<u64> {
        self.0.entry(discriminant(&why)).or_insert_with(|| Allowance::of(LINES_PER_SECOND)).line(now_ms)
    }
}
