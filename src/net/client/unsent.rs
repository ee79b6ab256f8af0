//! The order of a shard's clients with unsent bytes. Clients of this turn come before those of an earlier one, so that
//! a reply does not wait behind ten thousand events. Not all of them do, so that the earlier ones do not wait for ever.
//!
//! On the shard's executor, beside its ring. It knows no bytes and no sockets. A client is in it once.

use std::collections::VecDeque;

use corral_core::ids::ConnId;

/// Clients in one portion, which the kernel is given in one call: some 0.6 ms of its time.
pub(super) const PORTION: usize = 128;
/// The share of a portion for clients that have waited longer, if there are as many.
const LATE: usize = PORTION / 4;

/// The order of clients with unsent bytes.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    /// Of this turn, in the order they are to be sent.
    fresh: VecDeque<ConnId>,
    /// Left from earlier turns, likewise.
    late: VecDeque<ConnId>,
}

impl Unsent {
    pub(super) fn push(&mut self, id: ConnId) {
        self.fresh.push_back(id);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.late.is_empty()
    }

    /// The next portion; `offer` says whether there is room for more after this one.
    pub(super) fn take(&mut self, mut offer: impl FnMut(ConnId) -> bool) {
        let late = self.late.len().min(LATE);
        let fresh = self.fresh.len().min(PORTION - late);
        let mut taken = 0;
        for at in 0..PORTION {
            let next = if at < fresh { self.fresh.pop_front() } else { self.late.pop_front() };
            let Some(id) = next else { break };
            taken = at + 1;
            if !offer(id) {
                break;
            }
        }
        // Clients that are left of this turn are behind those left before.
        if taken > 0 {
            self.late.append(&mut self.fresh);
        }
        if self.is_empty() && self.late.capacity() > PORTION {
            self.late = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(range: std::ops::Range<u32>) -> impl Iterator<Item = ConnId> {
        range.map(|slot| ConnId { slot, generation: 1 })
    }

    fn portion(unsent: &mut Unsent, room: usize) -> Vec<u32> {
        let mut taken = Vec::new();
        unsent.take(|id| {
            taken.push(id.slot);
            taken.len() < room
        });
        taken
    }

    #[test]
    fn who_comes_late_does_not_wait_for_thousands_nor_they_for_ever() {
        let mut unsent = Unsent::default();
        ids(0..10_000).for_each(|id| unsent.push(id));
        assert_eq!(portion(&mut unsent, PORTION), (0..128).collect::<Vec<u32>>());
        ids(20_000..20_002).for_each(|id| unsent.push(id));
        assert_eq!(portion(&mut unsent, PORTION)[..4], [20_000, 20_001, 128, 129]);
        let mut next = 128 + 126;
        for turn in 0..50 {
            let first = 30_000 + turn * 1000;
            ids(first..first + 200).for_each(|id| unsent.push(id));
            let taken = portion(&mut unsent, PORTION);
            assert_eq!(taken[..96], (first..first + 96).collect::<Vec<u32>>());
            assert_eq!(taken[96..], (next..next + 32).collect::<Vec<u32>>());
            next += 32;
        }
        let mut count = 0;
        while !unsent.is_empty() {
            count += portion(&mut unsent, PORTION).len();
        }
        assert_eq!(count, 10_000 - usize::try_from(next).unwrap_or(0) + 50 * 104);
    }

    #[test]
    fn a_portion_ends_with_its_room() {
        let mut unsent = Unsent::default();
        ids(0..5).for_each(|id| unsent.push(id));
        assert_eq!(portion(&mut unsent, 2), [0, 1]);
        assert_eq!(portion(&mut unsent, 2), [2, 3]);
        assert_eq!(portion(&mut unsent, 2), [4]);
        assert!(unsent.is_empty() && portion(&mut unsent, 2).is_empty());
    }
}
