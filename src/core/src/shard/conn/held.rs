//! The memory that a connection holds, as its shard counts it.

use crate::ids::Millis;
use core::mem;

/// The memory that a connection holds, and the time since which it holds much.
#[derive(Debug, Default)]
pub(crate) struct Held {
    counted: usize,
    /// The low half of the time at which it began to hold more than little; 0 if it does not.
    since: u32,
    /// Bytes that the client took, or sent, since.
    moved: u32,
}

impl Held {
    /// Bytes that are part of the shard's sum.
    #[inline]
    pub(crate) const fn counted(&self) -> usize {
        self.counted
    }

    /// Gives the number that was part of the sum before.
    pub(crate) const fn count(&mut self, bytes: usize) -> usize {
        mem::replace(&mut self.counted, bytes)
    }

    /// Begins to hold more than little, holds it still, or holds it no more.
    pub(crate) fn note(&mut self, now: Millis, much: bool) {
        if !much {
            (self.since, self.moved) = (0, 0);
        } else if self.since == 0 {
            self.since = low_half(now.0).max(1);
        }
    }

    /// How long it has held more than little.
    pub(crate) fn ms(&self, now: Millis) -> u64 {
        if self.since == 0 { 0 } else { u64::from(low_half(now.0).wrapping_sub(self.since)) }
    }

    /// The client took, or sent, so many bytes.
    #[inline]
    pub(crate) fn note_moved(&mut self, count: usize) {
        self.moved = self.moved.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
    }

    /// Bytes that the client took, or sent, since the last call.
    pub(crate) const fn take_moved(&mut self) -> u32 {
        mem::replace(&mut self.moved, 0)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "times are compared within weeks")]
const fn low_half(ms: u64) -> u32 {
    ms as u32
}
