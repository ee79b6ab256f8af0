//! ZooKeeper's digest of the tree, kept with each change of the state machine's view: see [`crate::tree::digest`].
//!
//! The live delta holds the CRC of each of its znodes. So a change hashes the new state alone, and a child's creation
//! only the difference between two Stats of its parent. On the core of the state machine.

use super::View;
use crate::ids::Zxid;
use crate::tree::delta::{Delta, Entry};
use crate::tree::digest::{self, TreeDigest};
use crate::tree::snapshot::Snapshot;
use crate::tree::znode::Znode;
use alloc::collections::VecDeque;

impl View {
    /// The CRC of a znode's new state, where the digest is kept and the znode counts.
    #[inline]
    pub(super) fn crc_of(&self, path: &str, node: &Znode) -> Option<u32> {
        self.counts(path).then(|| digest::crc_of(path, node.data.as_deref(), &node.stat))
    }

    /// The CRC of a znode that was changed without an event. Where its data are at the same place as before, they are
    /// not read again. They may be lent from a snapshot with a file that is damaged by now. The kept CRC then shows the
    /// damage when the next snapshot is written.
    pub(super) fn crc_of_quiet(&self, path: &str, hash: u64, node: &Znode) -> Option<u32> {
        let place = |data: Option<&[u8]>| data.map(|data| (data.as_ptr(), data.len()));
        let kept = self.get_hashed(path, hash).filter(|old| place(old.data()) == place(node.data.as_deref()));
        let before = || {
            let here = self.live.entry(path, hash).map(Entry::known_crc);
            here.unwrap_or_else(|| self.crc_below(path, hash))
        };
        match kept.and_then(|old| Some((before()?, old.stat()))) {
            Some((crc, stat)) if self.counts(path) => Some(digest::crc_restated(crc, &stat, &node.stat)),
            _ => self.crc_of(path, node),
        }
    }

    /// Whether the digest is kept and the znode counts.
    #[inline]
    pub(super) fn counts(&self, path: &str) -> bool {
        self.digest.is_kept() && digest::counts(path)
    }

    /// The CRC of a znode as the layers below the live delta have it.
    pub(super) fn crc_below(&self, path: &str, hash: u64) -> Option<u32> {
        crc_in(self.frozen.as_deref(), &self.snapshot, path, hash)
    }

    /// Keeps ZooKeeper's digest of the tree from here on. Copies of this view do not.
    pub(crate) fn keep_digest(&mut self) {
        let mut value = self.snapshot.digest();
        if self.frozen.is_some() || !self.live.is_empty() {
            value = 0;
            self.walk("/", |path, node| {
                value = value.wrapping_add(digest::of_znode(path, node.data(), &node.stat()));
                true
            });
        }
        self.digest = TreeDigest::kept(value);
    }

    /// ZooKeeper's digest of the tree (version 2). `None` where it is not kept.
    pub const fn tree_digest(&self) -> Option<u64> {
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
}

/// The CRC of a znode in a frozen delta over a snapshot.
pub(super) fn crc_in(frozen: Option<&Delta>, snapshot: &Snapshot, path: &str, hash: u64) -> Option<u32> {
    if let Some(entry) = frozen.and_then(|frozen| frozen.entry(path, hash)) {
        let node = entry.state.node()?;
        return Some(entry.crc.unwrap_or_else(|| digest::crc_of(path, node.data.as_deref(), &node.stat)));
    }
    snapshot.find(path, hash).map(|node| node.crc())
}
