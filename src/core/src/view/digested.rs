//! ZooKeeper's digest of the tree, kept with each change of the state machine's view: see [`crate::digest`].
//!
//! Responsible for which znodes a change touches. On the core of the state machine.

use super::View;
use crate::change::Change;
use crate::digest::{self, TreeDigest};
use crate::ids::Zxid;
use alloc::collections::VecDeque;
use core::mem;

impl View {
    /// As [`View::apply`], and the digest moves with it.
    pub(super) fn apply_digested(&mut self, zxid: Zxid, change: &Change) {
        let at = change.at();
        let mut digest = mem::take(&mut self.digest);
        let parent = matches!(change, Change::Created { .. } | Change::Deleted { .. })
            .then(|| self.get_hashed(at.parent(), at.parent_hash))
            .flatten()
            .map(|node| (digest.body(at.parent(), at.parent_hash, node.data()), node.stat()));
        if let Some(old) = self.get_hashed(&at.path, at.hash) {
            let body = digest.body(&at.path, at.hash, old.data());
            digest.remove(body, &old.stat());
            if let Change::Quiet { node, .. } = change {
                digest.add(body, &node.stat);
            }
        }
        match change {
            Change::Created { node, .. } | Change::DataSet { node, .. } => {
                let body = digest.new_body(&at.path, at.hash, node.data.as_deref());
                digest.add(body, &node.stat);
            }
            Change::Deleted { .. } => digest.forget_body(at.hash),
            Change::Quiet { .. } => {}
        }
        self.apply_plain(zxid, change);
        if let Some((body, stat)) = parent
            && let Some(node) = self.get_hashed(at.parent(), at.parent_hash)
        {
            digest.remove(body, &stat);
            digest.add(body, &node.stat());
        }
        self.digest = digest;
    }

    /// Keeps ZooKeeper's digest of the tree from here on. Copies of this view do not.
    pub(crate) fn keep_digest(&mut self) {
        self.digest = TreeDigest::kept(self.image.digest());
    }

    /// ZooKeeper's digest of the tree (version 2). `None` where it is not kept, and where the image is of a version that did
    /// not store it, until the next image.
    pub fn tree_digest(&self) -> Option<u64> {
        self.digest.value()
    }

    /// Stores the digest of every 128th zxid, for `hash`. To be called once for each transaction.
    #[inline]
    pub(crate) fn log_digest(&mut self) {
        if self.zxid.0.is_multiple_of(digest::LOG_EVERY) {
            self.digest.log(self.zxid);
        }
    }

    /// The digests of the last 1,024 zxids that are multiples of 128, oldest first, as ZooKeeper keeps them.
    pub fn digest_log(&self) -> &VecDeque<(Zxid, u64)> {
        self.digest.logged()
    }

    /// Images whose digest differed from the one that was kept while they were written.
    pub fn digest_mismatches(&self) -> u64 {
        self.digest.mismatches()
    }
}
