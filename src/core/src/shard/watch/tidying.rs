//! Shortens the lists of watched paths of connections, once most of a list is out of date: some entries at a time.
//!
//! One list at a time, the others wait. A list stays valid between two looks: every path that its connection watches is
//! in it. It knows neither connections nor watchers.

use super::paths::PathId;
use crate::ids::ConnId;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// The lists that are to be shortened.
#[derive(Debug, Default)]
pub(super) struct Tidying {
    /// Connections with a list that is due, the first of them under way. A connection may have ended, or have a new
    /// list.
    queue: VecDeque<ConnId>,
    /// Of the first: entries looked at ...
    looked: usize,
    /// ... those of them that stay, which are moved to the front ...
    kept: usize,
    /// ... and one bit for each path among those.
    seen: Vec<u64>,
}

impl Tidying {
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn add(&mut self, conn: ConnId) {
        self.queue.push_back(conn);
    }

    /// The connection with the list under way.
    pub(super) fn first(&self) -> Option<ConnId> {
        self.queue.front().copied()
    }

    #[cfg(test)]
    pub(super) fn looked(&self) -> usize {
        self.looked
    }

    /// Looks at one more entry of the first connection's list; `places` is how many paths there may be. False when all were
    /// looked at: then the list is short.
    pub(super) fn look(&mut self, list: &mut Vec<PathId>, places: usize, is_watched: impl Fn(PathId) -> bool) -> bool {
        let Some(id) = list.get(self.looked).copied() else {
            list.truncate(self.kept);
            list.shrink_to(2 * self.kept);
            return false;
        };
        if self.seen.is_empty() {
            self.seen = vec![0; PathId::words(places)];
        }
        self.looked += 1;
        if is_watched(id) && !self.see(id) {
            list[self.kept] = id;
            self.kept += 1;
        }
        true
    }

    /// Whether the path was seen before in this list, which is noted.
    fn see(&mut self, id: PathId) -> bool {
        let (word, bit) = id.bit();
        // A path that is younger than the look may stay in the list twice.
        let Some(word) = self.seen.get_mut(word) else { return false };
        let seen = *word & bit != 0;
        *word |= bit;
        seen
    }

    /// Goes on to the next connection's list.
    pub(super) fn go_on(&mut self) {
        self.queue.pop_front();
        (self.looked, self.kept, self.seen) = (0, 0, Vec::new());
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
        }
    }
}
