//! The znodes that one session of a load has created and not deleted, by number.
//!
//! Owned by the session's client thread. A session's requests are carried out in order, so this is exact for the next request
//! although replies are still missing.

use std::collections::BTreeSet;

/// The znodes of a session: those numbered from `deleted` to `created`, but for the exceptions.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnZnodes {
    created: u32,
    deleted: u32,
    /// Their create was refused with a tolerated error.
    absent: BTreeSet<u32>,
    /// Their delete was refused with a tolerated error.
    left: BTreeSet<u32>,
}

impl OwnZnodes {
    /// The znodes numbered below `created`, all there.
    pub(crate) fn prepared(created: u32) -> Self {
        Self { created, ..Self::default() }
    }

    /// How many were created, deleted ones included.
    pub(crate) fn created(&self) -> u32 {
        self.created
    }

    /// Whether every znode that was created has been deleted.
    pub(crate) fn all_deleted(&self) -> bool {
        self.deleted == self.created
    }

    /// Notes a create. Returns the znode's number.
    pub(crate) fn create(&mut self) -> u32 {
        self.created += 1;
        self.created - 1
    }

    /// Notes the delete of the oldest znode. Returns its number.
    pub(crate) fn delete(&mut self) -> u32 {
        self.deleted += 1;
        self.deleted - 1
    }

    /// Notes that the create of a znode was refused.
    pub(crate) fn create_refused(&mut self, nth: u32) {
        self.absent.insert(nth);
    }

    /// Notes that the delete of a znode was refused.
    pub(crate) fn delete_refused(&mut self, nth: u32) {
        self.left.insert(nth);
    }

    /// Whether the create of this znode was refused. The answer is given once.
    pub(crate) fn take_absent(&mut self, nth: u32) -> bool {
        self.absent.remove(&nth)
    }

    /// The numbers of the znodes that are there.
    pub(crate) fn there(&self) -> impl Iterator<Item = u32> {
        let range = (self.deleted..self.created).filter(|nth| !self.absent.contains(nth));
        self.left.iter().copied().chain(range)
    }
}
