//! One shard's watch tables: who of this shard's connections wants to hear of a path (protocol chapter 14).
//!
//! Local to the shard, never replicated. Two tables, as in ZooKeeper: data watches (exists, getData) and child watches
//! (getChildren). Persistent watches stand in both, recursive ones in the data table only.

use crate::ids::ConnId;
use crate::shared::Text;
use alloc::vec::Vec;
use hashbrown::HashMap;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use smallvec::SmallVec;
use xxhash_rust::xxh3::Xxh3DefaultBuilder;

/// How a watch lives; several may stand for one path and connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// Fires once.
    Standard = 1,
    Persistent = 2,
    PersistentRecursive = 4,
}

/// Which table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Data,
    Child,
}

#[derive(Clone, Copy, Debug)]
struct Watcher {
    conn: ConnId,
    modes: u8,
}

#[derive(Debug)]
struct Watched {
    hash: u64,
    path: Text,
    watchers: SmallVec<[Watcher; 1]>,
}

#[derive(Debug, Default)]
struct Table {
    paths: HashTable<Watched>,
}

/// A connection holds as many watches as its limit allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The modes of one connection on one path, by table: low nibble data, high nibble child.
type Held = HashMap<Text, u8, Xxh3DefaultBuilder>;

/// All watches of a shard.
#[derive(Debug)]
pub struct WatchTable {
    data: Table,
    child: Table,
    held: HashMap<ConnId, Held, Xxh3DefaultBuilder>,
    recursive: usize,
    total: usize,
    per_conn_max: usize,
}

impl WatchTable {
    /// `per_conn_max` bounds the paths that one connection watches.
    pub fn new(per_conn_max: usize) -> Self {
        Self {
            data: Table::default(),
            child: Table::default(),
            held: HashMap::with_hasher(Xxh3DefaultBuilder::new()),
            recursive: 0,
            total: 0,
            per_conn_max,
        }
    }

    /// Watches, counted per path, table and connection.
    pub const fn len(&self) -> usize {
        self.total
    }

    pub const fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Registers a watch; registering it again changes nothing.
    ///
    /// # Errors
    /// [`Full`] when the connection watches as many paths as it may.
    pub fn add(&mut self, kind: Kind, conn: ConnId, path: &str, hash: u64, mode: Mode) -> Result<(), Full> {
        let held = self.held.entry(conn).or_insert_with(|| HashMap::with_hasher(Xxh3DefaultBuilder::new()));
        if held.len() >= self.per_conn_max && !held.contains_key(path) {
            return Err(Full);
        }
        let table = table(&mut self.data, &mut self.child, kind);
        let (key, added, fresh) = table.add(conn, path, hash, mode);
        let bits = held.entry(key).or_insert(0);
        *bits |= (mode as u8) << shift(kind);
        self.total += usize::from(fresh);
        self.recursive += usize::from(added && mode == Mode::PersistentRecursive);
        Ok(())
    }

    /// Whether the connection has a watch of the mode on the path.
    pub fn holds(&self, kind: Kind, conn: ConnId, path: &str, mode: Mode) -> bool {
        let bits = self.held.get(&conn).and_then(|held| held.get(path)).copied().unwrap_or(0);
        bits >> shift(kind) & mode as u8 != 0
    }

    /// Takes a watch back; false when there is none.
    pub fn remove(&mut self, kind: Kind, conn: ConnId, path: &str, hash: u64, mode: Mode) -> bool {
        if !self.holds(kind, conn, path, mode) {
            return false;
        }
        let gone = table(&mut self.data, &mut self.child, kind).remove(conn, path, hash, mode as u8);
        self.total -= usize::from(gone);
        self.recursive -= usize::from(mode == Mode::PersistentRecursive);
        self.forget(conn, path, (mode as u8) << shift(kind));
        true
    }

    fn forget(&mut self, conn: ConnId, path: &str, bits: u8) {
        let Some(held) = self.held.get_mut(&conn) else { return };
        if let Some(left) = held.get_mut(path) {
            *left &= !bits;
            if *left == 0 {
                held.remove(path);
            }
        }
        if held.is_empty() {
            self.held.remove(&conn);
        }
    }

    /// Everything that fires in a table for an event on `path`: each connection once, appended to `into`. One-shot
    /// watches are used up. `hash_of` hashes an ancestor's path, needed only while recursive watches exist.
    pub fn fire(&mut self, kind: Kind, path: &str, hash: u64, hash_of: impl Fn(&str) -> u64, into: &mut Vec<ConnId>) {
        let before = into.len();
        let spent = table(&mut self.data, &mut self.child, kind).fire(path, hash, into);
        self.total -= spent;
        for conn in into.iter().skip(before).copied().collect::<SmallVec<[ConnId; 8]>>() {
            self.forget(conn, path, (Mode::Standard as u8) << shift(kind));
        }
        if kind == Kind::Data && self.recursive > 0 {
            self.fire_recursive(path, hash_of, before, into);
        }
    }

    /// Adds those who watch the path or an ancestor of it recursively; afterwards each connection stands there once.
    fn fire_recursive(&self, path: &str, hash_of: impl Fn(&str) -> u64, before: usize, into: &mut Vec<ConnId>) {
        let exact = into.len();
        let mut at = path;
        loop {
            if let Some(watched) = self.data.find(at, hash_of(at)) {
                let recursive = |watcher: &&Watcher| watcher.modes & Mode::PersistentRecursive as u8 != 0;
                into.extend(watched.watchers.iter().filter(recursive).map(|watcher| watcher.conn));
            }
            if at == "/" {
                break;
            }
            at = crate::path::parent(at);
        }
        if into.len() > exact {
            into[before..].sort_unstable();
            into.dedup();
        }
    }

    /// Drops all watches of a connection that went away.
    pub fn drop_conn(&mut self, conn: ConnId, hash_of: impl Fn(&str) -> u64) {
        let Some(held) = self.held.remove(&conn) else { return };
        for (path, bits) in held {
            let hash = hash_of(&path);
            for kind in [Kind::Data, Kind::Child] {
                let modes = bits >> shift(kind) & 0x0f;
                if modes != 0 {
                    let gone = table(&mut self.data, &mut self.child, kind).remove(conn, &path, hash, modes);
                    self.total -= usize::from(gone);
                }
            }
            self.recursive -= usize::from(bits & Mode::PersistentRecursive as u8 != 0);
        }
    }

    /// Paths with at least one watch, in both tables; a path in both counts twice.
    pub fn paths(&self) -> usize {
        self.data.paths.len() + self.child.paths.len()
    }

    /// Places of the data table, filled or not; for passes in pieces. They move when the table grows or shrinks.
    pub(crate) fn data_places(&self) -> usize {
        self.data.paths.num_buckets()
    }

    /// The path at a place of the data table, with its hash and who watches it.
    pub(crate) fn data_at(&self, place: usize) -> Option<(u64, &Text, impl Iterator<Item = ConnId>)> {
        let Watched { hash, path, watchers } = self.data.paths.get_bucket(place)?;
        Some((*hash, path, watchers.iter().map(|watcher| watcher.conn)))
    }
}

const fn shift(kind: Kind) -> u32 {
    match kind {
        Kind::Data => 0,
        Kind::Child => 4,
    }
}

const fn table<'t>(data: &'t mut Table, child: &'t mut Table, kind: Kind) -> &'t mut Table {
    match kind {
        Kind::Data => data,
        Kind::Child => child,
    }
}

impl Table {
    fn find(&self, path: &str, hash: u64) -> Option<&Watched> {
        self.paths.find(hash, |watched| watched.hash == hash && *watched.path == *path)
    }

    /// The path's shared text, whether the mode is new, whether the connection is new.
    fn add(&mut self, conn: ConnId, path: &str, hash: u64, mode: Mode) -> (Text, bool, bool) {
        let same = |watched: &Watched| watched.hash == hash && *watched.path == *path;
        let mut entry = match self.paths.entry(hash, same, |watched| watched.hash) {
            Entry::Occupied(entry) => entry,
            Entry::Vacant(entry) => entry.insert(Watched { hash, path: Text::from(path), watchers: SmallVec::new() }),
        };
        let watched = entry.get_mut();
        let key = watched.path.clone();
        if let Some(watcher) = watched.watchers.iter_mut().find(|watcher| watcher.conn == conn) {
            let added = watcher.modes & mode as u8 == 0;
            watcher.modes |= mode as u8;
            return (key, added, false);
        }
        watched.watchers.push(Watcher { conn, modes: mode as u8 });
        (key, true, true)
    }

    /// Whether the connection's entry went away altogether.
    fn remove(&mut self, conn: ConnId, path: &str, hash: u64, modes: u8) -> bool {
        let Ok(mut entry) = self.paths.find_entry(hash, |watched| watched.hash == hash && *watched.path == *path)
        else {
            return false;
        };
        let watchers = &mut entry.get_mut().watchers;
        let Some(at) = watchers.iter().position(|watcher| watcher.conn == conn) else { return false };
        watchers[at].modes &= !modes;
        let gone = watchers[at].modes == 0;
        if gone {
            watchers.swap_remove(at);
        }
        if watchers.is_empty() {
            entry.remove();
        }
        gone
    }

    /// Appends those who hear of an event on exactly this path; gives the number of entries that are used up.
    fn fire(&mut self, path: &str, hash: u64, into: &mut Vec<ConnId>) -> usize {
        let Ok(mut entry) = self.paths.find_entry(hash, |watched| watched.hash == hash && *watched.path == *path)
        else {
            return 0;
        };
        let watchers = &mut entry.get_mut().watchers;
        let before = watchers.len();
        watchers.retain(|watcher| {
            into.push(watcher.conn);
            watcher.modes &= !(Mode::Standard as u8);
            watcher.modes != 0
        });
        let entries = before - watchers.len();
        if watchers.is_empty() {
            entry.remove();
        }
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn conn(slot: u32) -> ConnId {
        ConnId { slot, generation: 1 }
    }

    fn hash(path: &str) -> u64 {
        xxhash_rust::xxh3::xxh3_64(path.as_bytes())
    }

    fn fired(table: &mut WatchTable, kind: Kind, path: &str) -> Vec<u32> {
        let mut into = Vec::new();
        table.fire(kind, path, hash(path), hash, &mut into);
        let mut slots: Vec<u32> = into.iter().map(|conn| conn.slot).collect();
        slots.sort_unstable();
        slots
    }

    #[test]
    fn one_shot_fires_once() {
        let mut table = WatchTable::new(10);
        for slot in [1, 2, 1] {
            assert_eq!(table.add(Kind::Data, conn(slot), "/a", hash("/a"), Mode::Standard), Ok(()));
        }
        assert_eq!((table.len(), table.paths()), (2, 1));
        assert_eq!(fired(&mut table, Kind::Child, "/a"), Vec::<u32>::new());
        assert_eq!(fired(&mut table, Kind::Data, "/a"), vec![1, 2]);
        assert_eq!(fired(&mut table, Kind::Data, "/a"), Vec::<u32>::new());
        assert!(table.is_empty() && table.held.is_empty());
    }

    #[test]
    fn modes_coexist_and_tell_once() {
        let mut table = WatchTable::new(10);
        for (path, mode) in [("/a/b", Mode::Standard), ("/a/b", Mode::Persistent), ("/a", Mode::PersistentRecursive)] {
            assert_eq!(table.add(Kind::Data, conn(1), path, hash(path), mode), Ok(()));
        }
        assert_eq!(fired(&mut table, Kind::Data, "/a/b"), vec![1]);
        assert!(!table.holds(Kind::Data, conn(1), "/a/b", Mode::Standard));
        assert!(table.holds(Kind::Data, conn(1), "/a/b", Mode::Persistent));
        assert_eq!(fired(&mut table, Kind::Data, "/a/b/c"), vec![1]);
        assert!(table.remove(Kind::Data, conn(1), "/a", hash("/a"), Mode::PersistentRecursive));
        assert_eq!(fired(&mut table, Kind::Data, "/a/b/c"), Vec::<u32>::new());
        assert!(!table.remove(Kind::Data, conn(1), "/a", hash("/a"), Mode::PersistentRecursive));
        table.drop_conn(conn(1), hash);
        assert!(table.is_empty() && table.paths() == 0 && table.recursive == 0);
    }

    #[test]
    fn a_connection_has_a_limit() {
        let mut table = WatchTable::new(1);
        assert_eq!(table.add(Kind::Data, conn(1), "/a", hash("/a"), Mode::Standard), Ok(()));
        assert_eq!(table.add(Kind::Child, conn(1), "/a", hash("/a"), Mode::Standard), Ok(()));
        assert_eq!(table.add(Kind::Data, conn(1), "/b", hash("/b"), Mode::Standard), Err(Full));
        assert_eq!(table.add(Kind::Data, conn(2), "/b", hash("/b"), Mode::Standard), Ok(()));
    }
}
