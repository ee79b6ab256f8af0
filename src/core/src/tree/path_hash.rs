//! The hash of paths, and the section of a snapshot that it leads to.

use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

/// Most doublings of the number of sections: 65,536 sections.
pub const SECTION_BITS_MAX: u32 = 16;

/// The hash of paths. Its seed is chosen once for a data directory and stored with every snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathHasher {
    seed: u64,
}

impl PathHasher {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The seed of this hash.
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// Hash of a whole path. Equal paths of views with one seed have equal hashes.
    #[inline]
    pub fn hash(&self, path: &str) -> u64 {
        xxh3_64_with_seed(path.as_bytes(), self.seed)
    }

    /// Hashes longer and longer prefixes of one path in a single pass over it.
    pub(crate) fn prefixes(&self) -> Prefixes {
        Prefixes { state: Xxh3::with_seed(self.seed), taken: 0 }
    }
}

/// See [`PathHasher::prefixes`].
pub(crate) struct Prefixes {
    state: Xxh3,
    taken: usize,
}

impl Prefixes {
    /// The hash of a prefix that is no shorter than the one before.
    pub(crate) fn hash(&mut self, prefix: &str) -> u64 {
        self.state.update(&prefix.as_bytes()[self.taken..]);
        self.taken = prefix.len();
        self.state.digest()
    }
}

/// The section, of `1 << bits`, in which a path is found.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "at most SECTION_BITS_MAX bits are left")]
pub(crate) const fn section_of(hash: u64, bits: u32) -> usize {
    debug_assert!(bits <= SECTION_BITS_MAX);
    if bits == 0 { 0 } else { (hash >> (u64::BITS - bits)) as usize }
}
