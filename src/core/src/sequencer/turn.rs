//! The state of the sequencer for one turn of the replica: the time, and the entries that the turn applied.

use crate::apply::outcome::AppliedEntry;
use crate::command::Command;
use crate::ids::{Millis, ServerId, WallMillis};
use crate::sizes::Sizes;
use alloc::vec::Vec;

/// The time of a turn, and the entries that it applied.
#[derive(Default)]
pub(super) struct Turn {
    now: Millis,
    wall: WallMillis,
    applied: Vec<AppliedEntry>,
    /// Other servers with clients that wait for the batch that was proposed last.
    servers_waiting: Vec<ServerId>,
    /// Sizes of the payloads that were proposed.
    proposals: Sizes,
}

impl Turn {
    pub(super) const fn set_time(&mut self, now: Millis, wall: WallMillis) {
        (self.now, self.wall) = (now, wall);
    }

    pub(super) const fn now(&self) -> Millis {
        self.now
    }

    pub(super) const fn wall(&self) -> WallMillis {
        self.wall
    }

    /// A batch of these commands is proposed by server `own`.
    pub(super) fn proposed(&mut self, own: ServerId, commands: &[Command], bytes: usize) {
        self.proposals.note(bytes);
        self.servers_waiting.clear();
        for origin in commands.iter().filter_map(|command| command.origin) {
            if origin.server != own && !self.servers_waiting.contains(&origin.server) {
                self.servers_waiting.push(origin.server);
            }
        }
    }

    pub(super) fn servers_waiting(&self) -> &[ServerId] {
        &self.servers_waiting
    }

    pub(super) const fn proposals(&self) -> Sizes {
        self.proposals
    }

    pub(super) fn applied(&mut self, entry: AppliedEntry) {
        self.applied.push(entry);
    }

    pub(super) fn entries(&self) -> &[AppliedEntry] {
        &self.applied
    }

    pub(super) fn take_entries(&mut self) -> Vec<AppliedEntry> {
        core::mem::take(&mut self.applied)
    }
}
