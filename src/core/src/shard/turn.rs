//! The work of one turn of a shard, and its limit.

/// Work done in this turn, in units of about a nanosecond. A turn that is over goes on in the next one.
#[derive(Debug)]
pub(super) struct Turn {
    spent: usize,
    cost_max: usize,
}

impl Turn {
    /// `cost_max`: see [`ShardLimits::turn_cost_max`](crate::limits::ShardLimits::turn_cost_max).
    pub(super) const fn new(cost_max: usize) -> Self {
        Self { spent: 0, cost_max }
    }

    pub(super) const fn begin(&mut self) {
        self.spent = 0;
    }

    #[inline]
    pub(super) const fn spend(&mut self, cost: usize) {
        self.spent += cost;
    }

    pub(super) const fn spent(&self) -> usize {
        self.spent
    }

    /// Whether the turn has done all that it may.
    #[inline]
    pub(super) const fn is_over(&self) -> bool {
        self.spent >= self.cost_max
    }
}
