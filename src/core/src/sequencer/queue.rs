//! Proposals that wait for a log entry, in order, and how many commands and bytes they are.

use crate::command::Proposals;
use alloc::collections::VecDeque;

/// Proposals that wait for a log entry, in order.
#[derive(Debug, Default)]
pub(super) struct Queue {
    proposals: VecDeque<Proposals>,
    commands: usize,
    bytes: usize,
}

impl Queue {
    pub(super) const fn commands(&self) -> usize {
        self.commands
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn front(&self) -> Option<&Proposals> {
        self.proposals.front()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Proposals> {
        self.proposals.iter()
    }

    pub(super) fn push_back(&mut self, proposals: Proposals) {
        self.count(&proposals);
        self.proposals.push_back(proposals);
    }

    pub(super) fn push_front(&mut self, proposals: Proposals) {
        self.count(&proposals);
        self.proposals.push_front(proposals);
    }

    pub(super) fn pop_front(&mut self) -> Option<Proposals> {
        let proposals = self.proposals.pop_front()?;
        self.commands -= proposals.commands.len();
        self.bytes -= proposals.bytes;
        Some(proposals)
    }

    /// The first proposals cost something else than they did, of which so much is for closing sessions.
    pub(super) fn weigh_front(&mut self, cost: u64, of_closing: u64) {
        if let Some(front) = self.proposals.front_mut() {
            (front.cost, front.cost_of_closing) = (cost, of_closing);
        }
    }

    /// All of them, in no time.
    pub(super) fn take(&mut self) -> VecDeque<Proposals> {
        core::mem::take(self).proposals
    }

    fn count(&mut self, proposals: &Proposals) {
        self.commands += proposals.commands.len();
        self.bytes += proposals.bytes;
    }
}
