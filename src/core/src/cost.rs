//! Costs of work, in one unit for everything, and budgets that bound it.
//!
//! A unit is about a nanosecond of one core of a current server; the weights are rounded up. Costs are counted, never measured,
//! so every server and every replay of the log comes to the same sum. A write spends from the budget of its command while it is
//! evaluated; a read spends from the budget of its request on the shard.

use core::cell::Cell;

use corral_wire::limits::MULTI_OPS_MAX;

/// One operation, whatever it does.
pub const OP: u64 = 300;
/// A znode found by its path, or found missing.
pub const ZNODE: u64 = 200;
/// A change of one znode in a view: the index, the parent, the watches.
pub const CHANGE: u64 = 1000;
/// One entry of an ACL, held against one identity.
pub const ACL_ENTRY: u64 = 1;
/// One entry of an ACL that no cache holds, whatever it is held against: the least for each entry of a list that is checked.
pub const ACL_ENTRY_FETCHED: u64 = 6;
/// One child's name, listed.
pub const NAME: u64 = 20;
/// Bytes that are hashed, compared or copied for one unit.
pub const BYTES_PER_UNIT: u64 = 8;

/// Most cost of one command while it is evaluated. With the rest of an entry, it stays below 50 ms, for which no core
/// may be held.
///
/// Not configurable: members that order and apply commands together should agree. A leader judges commands by it before they are logged
/// (`features::ADMITTED`). Entries without that bit are replayed by it.
pub const COMMAND_MAX: u64 = 20_000_000;
const _: () = assert!(MULTI_OPS_MAX as u64 == COMMAND_MAX / OP, "a multi of more operations is never evaluated");

/// Most cost of the commands of one log entry together, if they are more than one. A leader closes an entry by the most
/// that its commands cost. So one client's expensive commands never use up the budget of another client's commands.
/// Half of [`COMMAND_MAX`]: a core may have to apply several entries that were committed at once.
pub const ENTRY_MAX: u64 = 10_000_000;

/// The cost of this many bytes.
#[must_use]
pub const fn bytes(count: usize) -> u64 {
    count as u64 / BYTES_PER_UNIT
}

/// The part of a granted cost that is left to be spent.
#[derive(Debug)]
pub struct Budget {
    granted: u64,
    left: Cell<u64>,
}

/// A budget is used up: the request is answered with an error, or goes on in a later turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

impl Budget {
    /// A budget of so many units.
    #[must_use]
    pub(crate) const fn new(units: u64) -> Self {
        Self { granted: units, left: Cell::new(units) }
    }

    /// For entries of the log that were ordered before there were budgets.
    #[must_use]
    pub const fn unlimited() -> Self {
        Self::new(u64::MAX)
    }

    /// Takes the cost of one piece of work off, before it is done.
    ///
    /// # Errors
    /// [`Exhausted`] when that much is not left; nothing is left then.
    #[inline]
    pub fn spend(&self, units: u64) -> Result<(), Exhausted> {
        let left = self.left.get().checked_sub(units);
        self.left.set(left.unwrap_or(0));
        left.map(|_| ()).ok_or(Exhausted)
    }

    /// Units that were taken off.
    #[must_use]
    pub const fn spent(&self) -> u64 {
        self.granted - self.left.get()
    }

    /// Units that are left.
    #[must_use]
    pub const fn left(&self) -> u64 {
        self.left.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_spent_once() {
        let budget = Budget::new(10);
        assert_eq!((budget.spend(4), budget.left()), (Ok(()), 6));
        assert_eq!((budget.spend(7), budget.left()), (Err(Exhausted), 0));
        assert_eq!(budget.spend(1), Err(Exhausted));
        assert_eq!(Budget::unlimited().spend(u64::MAX / 2), Ok(()));
    }
}
