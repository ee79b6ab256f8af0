//! ZooKeeper's digest of the tree, version 2: for each znode the CRC-32 of its path, data and stat, summed modulo 2^64.
//!
//! Responsible for the definition, and for the sum that moves with each change. Does not know the tree: the view says
//! what changes, the snapshot what the sum of its znodes is. The sum depends on the tree alone, not on the order of
//! changes.

use crate::ids::Zxid;
use crate::tree::znode::NodeStat;
use alloc::collections::VecDeque;
use crc32fast::Hasher;

/// The version of ZooKeeper's definition.
pub const DIGEST_VERSION: u32 = 2;
/// Six numbers of 64 bits, three of 32.
const STAT_BYTES: usize = 60;
/// Path, data and Stat of so many bytes together are hashed as one piece.
const ENDING_BYTES: usize = 256;
const STAT_AT: usize = ENDING_BYTES - STAT_BYTES;
/// Bytes of one block of the fast CRC-32.
const BLOCK_BYTES: usize = 16;
const _: () = assert!(ENDING_BYTES.is_multiple_of(BLOCK_BYTES));
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

/// The digest of one znode as ZooKeeper defines it; 0 for znodes that are left out.
pub fn of_znode(path: &str, data: Option<&[u8]>, stat: &NodeStat) -> u64 {
    if counts(path) { crc_of(path, data, stat).into() } else { 0 }
}

/// The CRC-32 of a znode that counts. Reads all of its data.
pub(crate) fn crc_of(path: &str, data: Option<&[u8]>, stat: &NodeStat) -> u32 {
    // The root has an empty path in ZooKeeper.
    let path = if path == "/" { &[] } else { path.as_bytes() };
    let data = data.unwrap_or_default();
    let mut bytes = [0; ENDING_BYTES];
    bytes[STAT_AT..].copy_from_slice(&bytes_of(stat));
    if path.len() + data.len() <= STAT_AT {
        let data_at = STAT_AT - data.len();
        bytes[data_at..STAT_AT].copy_from_slice(data);
        let path_at = data_at - path.len();
        bytes[path_at..data_at].copy_from_slice(path);
        return crc_of_ending(0, &mut bytes, path_at);
    }
    let mut hasher = Hasher::new();
    hasher.update(path);
    hasher.update(data);
    crc_of_ending(hasher.finalize(), &mut bytes, STAT_AT)
}

/// Returns the CRC-32 of a znode after a change of its Stat alone. A CRC is linear: the difference of two texts of one
/// length gives the difference of their CRCs. So neither path nor data are read.
pub(crate) fn crc_restated(crc: u32, before: &NodeStat, after: &NodeStat) -> u32 {
    let mut differ = [0; ENDING_BYTES];
    differ[STAT_AT..].copy_from_slice(&bytes_of(&difference(before, after)));
    // Without the inversions of CRC-32 at both ends.
    crc ^ !crc_of_ending(u32::MAX, &mut differ, STAT_AT)
}

/// Returns the CRC-32 of a text. Its beginning has the CRC `before`, its end is these bytes from `first` on, and all
/// bytes before `first` are 0.
///
/// A CRC-32 is fast in whole blocks, and slow byte by byte. With nothing before them leading zeros change nothing. The
/// CRC of the beginning can be added to the first four bytes of the end. So the end is hashed as whole blocks.
#[inline]
fn crc_of_ending(before: u32, bytes: &mut [u8; ENDING_BYTES], first: usize) -> u32 {
    for (byte, register) in bytes[first..first + 4].iter_mut().zip((!before).to_le_bytes()) {
        *byte ^= register;
    }
    let mut hasher = Hasher::new_with_initial(u32::MAX);
    hasher.update(&bytes[first - first % BLOCK_BYTES..]);
    hasher.finalize()
}

/// The bits in which two Stats differ, of the numbers that are hashed.
const fn difference(one: &NodeStat, other: &NodeStat) -> NodeStat {
    NodeStat {
        czxid: Zxid(one.czxid.0 ^ other.czxid.0),
        mzxid: Zxid(one.mzxid.0 ^ other.mzxid.0),
        pzxid: Zxid(one.pzxid.0 ^ other.pzxid.0),
        ctime: one.ctime ^ other.ctime,
        mtime: one.mtime ^ other.mtime,
        version: one.version ^ other.version,
        cversion: one.cversion ^ other.cversion,
        aversion: one.aversion ^ other.aversion,
        owner: one.owner ^ other.owner,
        num_children: 0,
        names_bytes: 0,
    }
}

fn bytes_of(stat: &NodeStat) -> [u8; STAT_BYTES] {
    let mut bytes = [0; STAT_BYTES];
    let longs = [stat.czxid.0, stat.mzxid.0, stat.pzxid.0, stat.ctime.cast_unsigned(), stat.mtime.cast_unsigned()];
    for (place, number) in bytes.chunks_exact_mut(8).zip(longs) {
        place.copy_from_slice(&number.to_be_bytes());
    }
    for (place, number) in bytes[40..52].chunks_exact_mut(4).zip([stat.version, stat.cversion, stat.aversion]) {
        place.copy_from_slice(&number.to_be_bytes());
    }
    bytes[52..].copy_from_slice(&stat.owner.to_be_bytes());
    bytes
}

/// The digest of a tree that changes.
#[derive(Debug, Default)]
pub(crate) struct TreeDigest {
    /// `None` where it is not kept.
    value: Option<u64>,
    log: VecDeque<(Zxid, u64)>,
}

impl Clone for TreeDigest {
    /// A copy of a view keeps no digest: only the state machine pays for it.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl TreeDigest {
    /// Of a tree with this digest.
    pub(crate) fn kept(value: u64) -> Self {
        Self { value: Some(value), ..Self::default() }
    }

    #[inline]
    pub(crate) const fn is_kept(&self) -> bool {
        self.value.is_some()
    }

    pub(crate) const fn value(&self) -> Option<u64> {
        self.value
    }

    pub(crate) fn log(&mut self, zxid: Zxid) {
        // A command without a zxid of its own comes at the same one again.
        let Some(value) = self.value.filter(|_| self.log.back().is_none_or(|(last, _)| *last < zxid)) else { return };
        if self.log.len() == LOG_MAX {
            self.log.pop_front();
        }
        self.log.push_back((zxid, value));
    }

    pub(crate) const fn logged(&self) -> &VecDeque<(Zxid, u64)> {
        &self.log
    }

    /// A znode of this CRC became one of the other; `None` is no znode.
    #[inline]
    pub(crate) fn moves(&mut self, before: Option<u32>, after: Option<u32>) {
        if let Some(value) = &mut self.value {
            *value = value.wrapping_sub(before.map_or(0, u64::from)).wrapping_add(after.map_or(0, u64::from));
        }
    }
}

// ----- in snapshots -----

/// Not UTF-8: no snapshot of a version without digests begins with it.
const STORED_MAGIC: [u8; 8] = *b"\xffDIGEST\x02";
/// Magic, digest, CRC-32 of both, padding to the alignment of sections.
pub(crate) const STORED_BYTES: usize = 32;

/// The digest as it stands in front of the archive of a meta section. Versions that do not know it read the archive
/// from its end, and do not see it.
pub(crate) fn stored(digest: u64) -> [u8; STORED_BYTES] {
    let mut bytes = [0; STORED_BYTES];
    bytes[..8].copy_from_slice(&STORED_MAGIC);
    bytes[8..16].copy_from_slice(&digest.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..16]);
    bytes[16..20].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The digest in front of a meta section's archive; `None` if an earlier version wrote it.
pub fn read_stored(part: &[u8]) -> Option<u64> {
    let head: &[u8; STORED_BYTES] = part.first_chunk()?;
    let digest = u64::from_le_bytes(head[8..16].try_into().ok()?);
    (*head == stored(digest)).then_some(digest)
}

#[cfg(test)]
mod tests;
