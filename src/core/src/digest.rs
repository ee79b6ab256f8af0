//! ZooKeeper's digest of the tree, version 2: for each znode the CRC-32 of its path, data and stat, summed modulo 2^64.
//!
//! Responsible for the definition, and for the sum that moves with each change. Does not know the tree: the view says what
//! changes, the image what the sum of its znodes is. The sum depends on the tree alone, not on the order of changes.

use crate::ids::Zxid;
use crate::znode::NodeStat;
use alloc::collections::{BTreeMap, VecDeque};
use crc32fast::Hasher;

/// The version of ZooKeeper's definition.
pub const DIGEST_VERSION: u32 = 2;
/// Six numbers of 64 bits, three of 32.
const STAT_BYTES: usize = 60;
/// Data from this length on are hashed once for each value: their CRC is stored until the data change. Otherwise each child of
/// a large znode would cost a pass over its data.
const BODY_STORED_FROM: usize = 1024;
/// ZooKeeper logs the digest at zxids that are multiples of this.
pub(crate) const LOG_EVERY: u64 = 128;
/// So many of them are kept.
const LOG_MAX: usize = 1024;
/// Znodes below it are left out: usage of quotas differs between ZooKeeper's servers.
const LEFT_OUT: &str = "/zookeeper/";

/// Whether a path is part of the digest.
#[inline]
pub(crate) fn counts(path: &str) -> bool {
    !path.starts_with(LEFT_OUT)
}

/// The digest of one znode as ZooKeeper defines it; 0 for those that are left out.
pub fn of_znode(path: &str, data: Option<&[u8]>, stat: &NodeStat) -> u64 {
    if counts(path) { of_stat(of_body(path, data), stat) } else { 0 }
}

/// The CRC-32 of path and data, and their length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Body {
    crc: u32,
    bytes: u64,
}

fn of_body(path: &str, data: Option<&[u8]>) -> Body {
    let mut hasher = Hasher::new();
    // The root has an empty path in ZooKeeper.
    let path = if path == "/" { "" } else { path };
    hasher.update(path.as_bytes());
    let data = data.unwrap_or_default();
    hasher.update(data);
    Body { crc: hasher.finalize(), bytes: (path.len() + data.len()) as u64 }
}

fn of_stat(body: Body, stat: &NodeStat) -> u64 {
    let mut bytes = [0; STAT_BYTES];
    let longs = [stat.czxid.0, stat.mzxid.0, stat.pzxid.0, stat.ctime.cast_unsigned(), stat.mtime.cast_unsigned()];
    for (place, number) in bytes.chunks_exact_mut(8).zip(longs) {
        place.copy_from_slice(&number.to_be_bytes());
    }
    for (place, number) in bytes[40..52].chunks_exact_mut(4).zip([stat.version, stat.cversion, stat.aversion]) {
        place.copy_from_slice(&number.to_be_bytes());
    }
    bytes[52..].copy_from_slice(&stat.owner.to_be_bytes());
    let mut hasher = Hasher::new_with_initial_len(body.crc, body.bytes);
    hasher.update(&bytes);
    u64::from(hasher.finalize())
}

/// The digest of a tree that changes.
#[derive(Debug, Default)]
pub(crate) struct TreeDigest {
    kept: bool,
    /// Of the tree where counting began, if that is known.
    base: Option<u64>,
    /// What the changes since then add.
    moved: u64,
    /// That where the delta was frozen.
    moved_frozen: u64,
    mismatches: u64,
    /// CRC-32 of path and data of znodes with much data, by the hash of the path.
    bodies: BTreeMap<u64, u32>,
    log: VecDeque<(Zxid, u64)>,
}

impl Clone for TreeDigest {
    /// A copy of a view keeps no digest: only the state machine pays for it.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl TreeDigest {
    pub(crate) fn kept(base: Option<u64>) -> Self {
        Self { kept: true, base, ..Self::default() }
    }

    #[inline]
    pub(crate) const fn is_kept(&self) -> bool {
        self.kept
    }

    pub(crate) fn value(&self) -> Option<u64> {
        Some(self.base.filter(|_| self.kept)?.wrapping_add(self.moved))
    }

    pub(crate) const fn mismatches(&self) -> u64 {
        self.mismatches
    }

    pub(crate) fn log(&mut self, zxid: Zxid) {
        // A command without a zxid of its own comes at the same one again.
        let Some(value) = self.value().filter(|_| self.log.back().is_none_or(|(last, _)| *last < zxid)) else { return };
        if self.log.len() == LOG_MAX {
            self.log.pop_front();
        }
        self.log.push_back((zxid, value));
    }

    pub(crate) const fn logged(&self) -> &VecDeque<(Zxid, u64)> {
        &self.log
    }

    pub(crate) fn add(&mut self, body: Body, stat: &NodeStat) {
        self.moved = self.moved.wrapping_add(of_stat(body, stat));
    }

    pub(crate) fn remove(&mut self, body: Body, stat: &NodeStat) {
        self.moved = self.moved.wrapping_sub(of_stat(body, stat));
    }

    /// Of a znode whose data are as they were.
    pub(crate) fn body(&mut self, path: &str, hash: u64, data: Option<&[u8]>) -> Body {
        let length = data.map_or(0, <[u8]>::len);
        if length < BODY_STORED_FROM {
            return of_body(path, data);
        }
        let path_bytes = if path == "/" { 0 } else { path.len() };
        match self.bodies.get(&hash) {
            Some(crc) => Body { crc: *crc, bytes: (path_bytes + length) as u64 },
            None => self.new_body(path, hash, data),
        }
    }

    /// Of a znode with new data.
    pub(crate) fn new_body(&mut self, path: &str, hash: u64, data: Option<&[u8]>) -> Body {
        let body = of_body(path, data);
        if data.is_some_and(|data| data.len() >= BODY_STORED_FROM) {
            self.bodies.insert(hash, body.crc);
        } else {
            self.forget_body(hash);
        }
        body
    }

    pub(crate) fn forget_body(&mut self, hash: u64) {
        if !self.bodies.is_empty() {
            self.bodies.remove(&hash);
        }
    }

    /// The changes up to here go into the next image.
    pub(crate) const fn freeze(&mut self) {
        self.moved_frozen = self.moved;
    }

    /// The image of what was frozen has this digest, computed from all of its znodes.
    pub(crate) fn anchor(&mut self, image: Option<u64>) {
        let Some(image) = image.filter(|_| self.kept) else { return };
        let base = image.wrapping_sub(self.moved_frozen);
        self.mismatches += u64::from(self.base.is_some_and(|known| known != base));
        self.base = Some(self.base.unwrap_or(base));
    }
}

// ----- in images -----

/// Not UTF-8: no image of a version without digests begins with it.
const STORED_MAGIC: [u8; 8] = *b"\xffDIGEST\x02";
/// Magic, digest, CRC-32 of both, padding to the alignment of sections.
pub(crate) const STORED_BYTES: usize = 32;

/// The digest as it stands in front of the archive of a meta section. Versions that do not know it read the archive from its
/// end, and do not see it.
pub(crate) fn stored(digest: u64) -> [u8; STORED_BYTES] {
    let mut bytes = [0; STORED_BYTES];
    bytes[..8].copy_from_slice(&STORED_MAGIC);
    bytes[8..16].copy_from_slice(&digest.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..16]);
    bytes[16..20].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The digest in front of a meta section's archive; `None` if an earlier version wrote it.
pub(crate) fn read_stored(part: &[u8]) -> Option<u64> {
    let head: &[u8; STORED_BYTES] = part.first_chunk()?;
    let digest = u64::from_le_bytes(head[8..16].try_into().ok()?);
    (*head == stored(digest)).then_some(digest)
}

#[cfg(test)]
mod tests;
