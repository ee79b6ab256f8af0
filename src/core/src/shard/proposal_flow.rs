//! Whether proposals go, or wait until there is a leader.
//!
//! A shard of a standalone server needs none of this.

use crate::ids::Millis;
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

impl ProposalFlow {
    /// No leader is known: proposals wait from now on.
    pub(super) fn pause(&mut self, now: Millis) {
        if !mem::replace(&mut self.paused, true) {
            self.paused_since = now;
        }
    }
}
