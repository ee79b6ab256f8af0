//! The watchers of paths that several connections watch.
//!
//! Cut into tables by the path's id, so that growing never rehashes more than one of them. A million sets in one table
//! took 50 ms. On the core of its shard.

use super::paths::PathId;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use hashbrown::HashMap;
use xxhash_rust::xxh3::Xxh3DefaultBuilder;

const TABLES: usize = 256;

/// The watchers of a path that has, or had, several: modes by connection slot.
#[derive(Debug, Default)]
pub(super) struct WatcherSet {
    pub(super) conns: BTreeMap<u32, u8>,
    /// How many watch its data, how many its children, and how many all below it.
    pub(super) data: usize,
    pub(super) child: usize,
    pub(super) recursive: usize,
}

type Table = HashMap<PathId, WatcherSet, Xxh3DefaultBuilder>;

/// The sets by path.
#[derive(Debug)]
pub(super) struct Sets {
    tables: Box<[Table]>,
}

impl Default for Sets {
    fn default() -> Self {
        Self { tables: (0..TABLES).map(|_| Table::default()).collect() }
    }
}

impl Sets {
    pub(super) fn get(&self, id: PathId) -> Option<&WatcherSet> {
        self.tables[id.table(TABLES)].get(&id)
    }

    pub(super) fn get_mut(&mut self, id: PathId) -> Option<&mut WatcherSet> {
        self.tables[id.table(TABLES)].get_mut(&id)
    }

    pub(super) fn insert(&mut self, id: PathId, set: WatcherSet) {
        self.tables[id.table(TABLES)].insert(id, set);
    }

    /// Takes a set away, and its table's memory with the last one.
    pub(super) fn remove(&mut self, id: PathId) {
        let table = &mut self.tables[id.table(TABLES)];
        table.remove(&id);
        if table.is_empty() && table.capacity() > 0 {
            *table = Table::default();
        }
    }
}
