//! Sockets of connections that have ended, closed some at a time. Each is a call of the kernel, and tens of thousands
//! may end in one turn.

use std::collections::{HashMap, VecDeque};
use std::mem::{Discriminant, discriminant};
use std::net::SocketAddr;

use corral_core::ids::ConnId;
use corral_core::shard::conn::Close;

use super::ShardActor;
use crate::messages::{Asker, ToControl};
use crate::net::acceptor::Ended;
use crate::runtime::complaint::Allowance;

/// Sockets closed with each call of the shard: about 0.1 ms. The others are closed between its other work, until the turn is over.
const CLOSED_AT_ONCE: usize = 16;
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

    fn next(&mut self) -> Option<(ConnId, Close)> {
        let next = self.queue.pop_front();
        if self.queue.is_empty() {
            self.queue.shrink_to(KEPT);
        }
        next
    }

    /// The connection that was in the slot, if its socket is still open.
    fn take_slot(&mut self, slot: u32) -> Option<(ConnId, Close)> {
        // Searched from the end: a new connection takes the slot that was vacated last.
        let at = self.queue.iter().rposition(|(id, _)| id.slot == slot)?;
        self.queue.remove(at)
    }
}

/// Lines for connections that ended, by reason.
#[derive(Debug, Default)]
pub(super) struct Lines(HashMap<Discriminant<Close>, Allowance>);

impl Lines {
    /// As [`Allowance::line`].
    fn line(&mut self, why: Close, now_ms: u64) -> Option<u64> {
        self.0.entry(discriminant(&why)).or_insert_with(|| Allowance::of(LINES_PER_SECOND)).line(now_ms)
    }
}

impl ShardActor {
    /// Closes some of the sockets that are to be closed.
    pub(super) fn close_some(&self) {
        for _ in 0..CLOSED_AT_ONCE {
            let next = self.closing.borrow_mut().next();
            let Some((id, why)) = next else { return };
            self.close(id, why);
        }
    }

    fn close(&self, id: ConnId, why: Close) {
        let Some(peer) = self.clients.close(id) else { return };
        self.say(peer, why);
        if self.asking.borrow_mut().remove(&id) {
            let _ = self.channels.control.send(ToControl::Ended(Asker::Connection { shard: self.id, conn: id }));
        }
        let _ = self.channels.ended.send(Ended { shard: self.id, address: peer.ip() });
    }

    /// The slot has another connection from now on: the socket of the one before is closed first.
    pub(super) fn vacate(&self, slot: u32) {
        if !self.clients.is_occupied(slot) {
            return;
        }
        let earlier = self.closing.borrow_mut().take_slot(slot);
        if let Some((earlier, why)) = earlier {
            self.close(earlier, why);
        }
    }

    /// Few lines a second for each reason that an operator may look for, with the number of the others.
    fn say(&self, peer: SocketAddr, why: Close) {
        let concerns_all = matches!(why, Close::Shutdown | Close::NoLeader | Close::LeaderFound);
        if concerns_all || matches!(why, Close::Done | Close::HungUp | Close::SessionMoved) {
            // The consensus actor reports an event that concerns all connections once.
            return tracing::debug!(%peer, "closed: {why}");
        }
        match self.lines.borrow_mut().line(why, self.clock.now().0) {
            None => tracing::debug!(%peer, "closed: {why}"),
            Some(0) => tracing::info!(%peer, "closed: {why}"),
            Some(not_logged) => tracing::info!(%peer, not_logged, "closed: {why}"),
        }
    }
}
