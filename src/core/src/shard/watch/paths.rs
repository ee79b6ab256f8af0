//! The watched paths of a shard, each with its watchers: small records in a slab, and an index over them by path hash.
//!
//! Lives on its shard's core. Most paths are short and watched by one connection: such a path takes 40 bytes and its
//! place in the index, about 8. Records lie in chunks and the index is cut into tables, so that growing neither copies
//! nor rehashes many at once. It knows slots of connections, and nothing of modes but that 0 is none.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;
use hashbrown::HashTable;

/// Power of two by which the index is cut.
const TABLE_BITS: u32 = 8;
/// Records of one chunk.
const CHUNK: usize = 512;
/// Paths up to this length lie in their record.
const SHORT_BYTES_MAX: usize = 22;
/// Records with memory that is freed at once.
const FREED_AT_ONCE: usize = 8 * CHUNK;

/// The number of a watched path's record. It is given to another path once this path has no watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PathId(u32);

impl PathId {
    /// Which of so many tables has what belongs to the path.
    pub(super) const fn table(self, tables: usize) -> usize {
        self.0 as usize % tables
    }

    /// The place of the path's bit among bits of all paths: a word, and the bit in it.
    pub(super) const fn bit(self) -> (usize, u64) {
        ((self.0 / u64::BITS) as usize, 1 << (self.0 % u64::BITS))
    }

    /// Words that have a bit for each of so many paths; one at least.
    pub(super) const fn words(places: usize) -> usize {
        places / u64::BITS as usize + 1
    }
}

/// The watchers of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// The record belongs to no path.
    NoConnection,
    /// One connection's slot, and its modes in both tables.
    One { slot: u32, modes: u8 },
    /// Several, listed elsewhere.
    WatcherSet,
}

#[derive(Debug)]
enum Name {
    Short(u8, [u8; SHORT_BYTES_MAX]),
    Long(Box<str>),
}

const _: () = assert!(size_of::<Name>() == 24 && size_of::<Record>() == 40);

impl Name {
    fn of(path: &str) -> Self {
        match u8::try_from(path.len()) {
            Ok(length) if path.len() <= SHORT_BYTES_MAX => {
                let mut bytes = [0; SHORT_BYTES_MAX];
                bytes[..path.len()].copy_from_slice(path.as_bytes());
                Self::Short(length, bytes)
            }
            _ => Self::Long(Box::from(path)),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Short(length, bytes) => &bytes[..usize::from(*length)],
            Self::Long(text) => text.as_bytes(),
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Short(length, bytes) => {
                core::str::from_utf8(&bytes[..usize::from(*length)]).expect("made of a whole text")
            }
            Self::Long(text) => text,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Short(length, _) => usize::from(*length),
            Self::Long(text) => text.len(),
        }
    }
}

#[derive(Debug)]
struct Record {
    name: Name,
    /// The low half of the path's hash.
    hash: u32,
    who: Who,
}

/// Records of watched paths, and the index of them by path hash.
#[derive(Debug)]
pub(super) struct Paths {
    tables: Box<[HashTable<PathId>]>,
    chunks: Vec<Vec<Record>>,
    free: Vec<PathId>,
    len: usize,
    emptied: Vec<Self>,
}

impl Default for Paths {
    fn default() -> Self {
        let tables = (0..1 << TABLE_BITS).map(|_| HashTable::new()).collect();
        Self { tables, chunks: Vec::new(), free: Vec::new(), len: 0, emptied: Vec::new() }
    }
}

impl Paths {
    pub(super) fn find(&self, path: &str, hash: u64) -> Option<PathId> {
        let is_it = |id: &PathId| is_at(&self.chunks, *id, path, hash);
        self.tables[table_of(hash)].find(spread(low(hash)), is_it).copied()
    }

    /// Adds a path that is not there, without watchers.
    pub(super) fn insert(&mut self, path: &str, hash: u64) -> PathId {
        let record = Record { name: Name::of(path), hash: low(hash), who: Who::NoConnection };
        let id = match self.free.pop() {
            Some(id) => {
                *record_mut(&mut self.chunks, id) = record;
                id
            }
            None => push(&mut self.chunks, record),
        };
        let chunks = &self.chunks;
        self.tables[table_of(hash)].insert_unique(spread(low(hash)), id, |id| spread(record_of(chunks, *id).hash));
        self.len += 1;
        id
    }

    /// Removes a path without watchers. With the last path all memory is freed, except that of [`Paths::take_emptied`].
    pub(super) fn remove(&mut self, id: PathId, hash: u64) {
        let entry = self.tables[table_of(hash)].find_entry(spread(low(hash)), |at| *at == id);
        entry.expect("every path is indexed by its hash").remove();
        self.len -= 1;
        if self.len == 0 {
            return self.empty();
        }
        let record = record_mut(&mut self.chunks, id);
        (record.name, record.who) = (Name::of(""), Who::NoConnection);
        self.free.push(id);
    }

    #[cold]
    fn empty(&mut self) {
        let mut emptied = mem::take(self);
        self.emptied = mem::take(&mut emptied.emptied);
        if emptied.chunks.len() * CHUNK > FREED_AT_ONCE {
            self.emptied.push(emptied);
        }
    }

    /// Memory of paths that were all removed, of which freeing it takes long.
    pub(super) fn take_emptied(&mut self) -> Option<Self> {
        self.emptied.pop()
    }

    pub(super) fn who(&self, id: PathId) -> Who {
        self.chunks.get(id.0 as usize / CHUNK).map_or(Who::NoConnection, |chunk| chunk[id.0 as usize % CHUNK].who)
    }

    pub(super) fn set_who(&mut self, id: PathId, who: Who) {
        record_mut(&mut self.chunks, id).who = who;
    }

    pub(super) fn text(&self, id: PathId) -> &str {
        record_of(&self.chunks, id).name.text()
    }

    /// Bytes of the path; cheaper than its text.
    pub(super) fn text_len(&self, id: PathId) -> usize {
        record_of(&self.chunks, id).name.len()
    }

    /// Records, in use or not; for passes in pieces.
    pub(super) fn places(&self) -> usize {
        // All but the last chunk are full.
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len())
    }

    /// The path at a place, if there is one.
    pub(super) fn at(&self, place: usize) -> Option<PathId> {
        let id = PathId(u32::try_from(place).ok()?);
        (self.who(id) != Who::NoConnection).then_some(id)
    }
}

fn record_of(chunks: &[Vec<Record>], id: PathId) -> &Record {
    &chunks[id.0 as usize / CHUNK][id.0 as usize % CHUNK]
}

fn record_mut(chunks: &mut [Vec<Record>], id: PathId) -> &mut Record {
    &mut chunks[id.0 as usize / CHUNK][id.0 as usize % CHUNK]
}

fn push(chunks: &mut Vec<Vec<Record>>, record: Record) -> PathId {
    if chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
        chunks.push(Vec::with_capacity(CHUNK));
    }
    let full = (chunks.len() - 1) * CHUNK;
    let last = chunks.last_mut().expect("one was pushed if there was none");
    last.push(record);
    PathId(u32::try_from(full + last.len() - 1).expect("fewer watched paths than 2^32"))
}

fn is_at(chunks: &[Vec<Record>], id: PathId, path: &str, hash: u64) -> bool {
    let record = record_of(chunks, id);
    record.hash == low(hash) && record.name.bytes() == path.as_bytes()
}

const fn table_of(hash: u64) -> usize {
    (hash >> (u64::BITS - TABLE_BITS)) as usize
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
const fn low(hash: u64) -> u32 {
    hash as u32
}

/// The hash inside a table, from the half that a record keeps. The table takes its bucket from the low bits, and tells
/// neighbours apart by the topmost.
const fn spread(low: u32) -> u64 {
    low as u64 | (low as u64) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    fn hash(path: &str) -> u64 {
        xxhash_rust::xxh3::xxh3_64(path.as_bytes())
    }

    #[test]
    fn paths_of_any_length_are_found_until_removed() {
        let paths = (0..2000).map(|at| format!("/{at}{}", "x".repeat(at % 40)));
        let paths: Vec<_> = paths.collect();
        let mut table = Paths::default();
        for round in 0..3 {
            let ids: Vec<PathId> = paths.iter().map(|path| table.insert(path, hash(path))).collect();
            for (id, path) in ids.iter().zip(&paths) {
                table.set_who(*id, Who::One { slot: 1, modes: 1 });
                assert_eq!((table.find(path, hash(path)), table.text(*id)), (Some(*id), path.as_str()));
            }
            assert_eq!(table.places(), paths.len(), "round {round}: records are used again");
            assert_eq!((0..table.places()).filter(|at| table.at(*at).is_some()).count(), paths.len());
            for (id, path) in ids.iter().zip(&paths).skip(1) {
                table.remove(*id, hash(path));
                assert_eq!((table.find(path, hash(path)), table.who(*id)), (None, Who::NoConnection));
            }
            assert_eq!((0..table.places()).filter(|at| table.at(*at).is_some()).count(), 1);
            table.remove(ids[0], hash(&paths[0]));
            assert_eq!(table.places(), 0, "no place is kept without a watch");
        }
    }
}
