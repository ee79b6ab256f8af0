//! The silence before leadership is transferred: the followers send no more commands to a leader that is about to go.

use crate::ids::{Millis, ServerId};
use crate::limits::PAUSE_MAX_MS;
use alloc::collections::BTreeSet;

/// The silence that this server keeps for its leader, and the servers that keep it for this server as a leader.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// When the leader asked for it.
    kept_since: Option<Millis>,
    /// When this leader asked for it, and the servers that keep it.
    asked: Option<(Millis, BTreeSet<ServerId>)>,
}

impl Silence {
    /// Whether leadership is about to be transferred.
    pub(super) const fn is_any(&self) -> bool {
        self.kept_since.is_some() || self.asked.is_some()
    }

    /// Whether this server sends no commands.
    pub(super) const fn is_kept(&self) -> bool {
        self.kept_since.is_some()
    }

    /// The leader asks for it. Whether it does so for the first time.
    pub(super) const fn keep(&mut self, now: Millis) -> bool {
        self.kept_since.replace(now).is_none()
    }

    /// The leader stays, if it has not gone for too long. Whether that was found now.
    pub(super) fn end_if_over(&mut self, now: Millis) -> bool {
        self.kept_since.take_if(|since| now.since(*since) >= 2 * PAUSE_MAX_MS).is_some()
    }

    /// This leader asks for it. Whether it does so for the first time.
    pub(super) fn ask(&mut self, now: Millis) -> bool {
        let is_first = self.asked.is_none();
        self.asked.get_or_insert_with(|| (now, BTreeSet::new()));
        is_first
    }

    /// This server keeps the silence that was asked for.
    pub(super) fn note(&mut self, peer: ServerId) {
        if let Some((_, silent)) = &mut self.asked {
            silent.insert(peer);
        }
    }

    /// Whether all of these servers keep it, or it has lasted too long.
    pub(super) fn is_complete(&self, now: Millis, mut peers: impl Iterator<Item = ServerId>) -> bool {
        self.asked
            .as_ref()
            .is_none_or(|(since, silent)| now.since(*since) >= PAUSE_MAX_MS || peers.all(|peer| silent.contains(&peer)))
    }
}
