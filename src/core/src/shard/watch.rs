//! One shard's watch tables: the connections of this shard that watch a path (protocol chapter 14).
//!
//! Local to the shard, never replicated. Two tables, as in ZooKeeper: data watches (exists, getData) and child watches
//! (getChildren). Persistent watches stand in both, recursive ones in the data table only. Both tables are kept as one
//! list of paths. So a watch costs about 60 bytes with a path of up to 22. A watch among many of a path costs about 40.

pub mod fire;
mod paths;
mod sets;
mod tidying;

use crate::ids::ConnId;
use crate::limits::{DROPPED_BYTES, ShardLimits};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem;
use paths::{PathId, Paths, Who};
use sets::{Sets, WatcherSet};
use smallvec::SmallVec;
use tidying::Tidying;

/// How a watch lives; several may stand for one path and connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// Fires once.
    Standard = 1,
    /// Fires until it is removed, for one path (ZooKeeper's `PERSISTENT`).
    Persistent = 2,
    /// The same for the path and all paths below it (ZooKeeper's `PERSISTENT_RECURSIVE`).
    PersistentRecursive = 4,
}

/// Which table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Watches of exists and getData.
    Data,
    /// Watches of getChildren.
    Child,
    /// Both: of a connection that watches in both, one event.
    Both,
}

/// The modes of one connection on one path: low nibble data, high nibble child. 0 is no watch.
const DATA_MODES: u8 = 0x0f;
const CHILD_MODES: u8 = 0xf0;
const RECURSIVE: u8 = Mode::PersistentRecursive as u8;

impl Kind {
    const fn modes(self) -> u8 {
        match self {
            Self::Data => DATA_MODES,
            Self::Child => CHILD_MODES,
            Self::Both => DATA_MODES | CHILD_MODES,
        }
    }

    const fn bit(self, mode: Mode) -> u8 {
        match self {
            Self::Data => mode as u8,
            Self::Child => (mode as u8) << 4,
            Self::Both => mode as u8 | (mode as u8) << 4,
        }
    }
}

/// Bytes that a watched path is counted with besides its text: its record, its place in the index and in the list of
/// its connection.
const WATCH_BYTES: usize = 64;
/// Entries of a connection's list beyond twice the paths that it watches.
const LIST_SLACK: usize = 8;
/// Entries of a list that is shortened at once: some ten microseconds.
const LIST_AT_ONCE: usize = 1024;
/// Entries of longer lists that are looked at with each watch that is added. Half of a list is out of date when it is due, so two
/// would do.
const LIST_LOOKS: usize = 8;

/// A connection, or all connections of the shard, hold as many watches as a limit allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The watches of a connection. The list may name paths that it watches no more, and a path twice.
#[derive(Clone, Debug, Default)]
struct Held {
    generation: u32,
    /// Paths watched.
    live: u32,
    /// Bytes of them, each with [`WATCH_BYTES`]; a path counts for each of its watchers.
    bytes: usize,
    first: Option<PathId>,
    /// Nearly every connection has one watch or none.
    more: Option<Box<More>>,
}

/// The watched paths of a connection besides the first of its list.
#[derive(Clone, Debug, Default)]
struct More {
    paths: Vec<PathId>,
    /// The list waits to be shortened, or that is under way.
    untidy: bool,
}

impl Held {
    fn push(&mut self, path: PathId) {
        match self.first {
            None => self.first = Some(path),
            Some(_) => self.more.get_or_insert_default().paths.push(path),
        }
    }

    fn pop(&mut self) -> Option<PathId> {
        self.more.as_mut().and_then(|more| more.paths.pop()).or_else(|| self.first.take())
    }

    fn listed(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.as_ref().map_or(0, |more| more.paths.len())
    }

    fn take(&mut self) -> Vec<PathId> {
        let mut all = self.more.take().map_or_else(Vec::new, |more| more.paths);
        all.extend(self.first.take());
        all
    }
}

/// Watchers of the data of a path, among some of its watchers.
#[derive(Debug)]
pub(crate) struct DataWatchers<'t> {
    pub(crate) path: &'t str,
    pub(crate) watchers: SmallVec<[ConnId; 1]>,
    /// Watchers that were looked at.
    pub(crate) looked: usize,
    /// The slot of the next one.
    pub(crate) next: Option<u32>,
}

/// All watches of a shard.
#[derive(Debug)]
pub struct WatchTable {
    paths: Paths,
    sets: Sets,
    /// By connection slot.
    held: Vec<Held>,
    /// How many recursive watches there are by the length of their path: a change looks for them at these lengths
    /// alone.
    recursive: BTreeMap<usize, usize>,
    /// Bytes of all connections' watches together.
    bytes: usize,
    total: usize,
    data_paths: usize,
    child_paths: usize,
    limits: WatchLimits,
    tidying: Tidying,
}

/// How much may be watched.
#[derive(Clone, Copy, Debug)]
pub struct WatchLimits {
    /// Paths of one connection.
    pub per_conn_max: usize,
    /// Bytes of one connection's watches, each counted with the length of its path.
    pub bytes_per_conn_max: usize,
    /// Bytes of all connections' watches together.
    pub bytes_max: usize,
}

impl WatchTable {
    /// A table with a shard's limits.
    pub(crate) fn of(limits: &ShardLimits) -> Self {
        Self::new(WatchLimits {
            per_conn_max: limits.watches_per_connection_max,
            bytes_per_conn_max: limits.watch_bytes_per_connection_max,
            bytes_max: limits.watch_bytes_total_max,
        })
    }

    /// An empty table.
    pub fn new(limits: WatchLimits) -> Self {
        Self {
            paths: Paths::default(),
            sets: Sets::default(),
            held: Vec::new(),
            recursive: BTreeMap::new(),
            bytes: 0,
            total: 0,
            data_paths: 0,
            child_paths: 0,
            limits,
            tidying: Tidying::default(),
        }
    }

    /// Watches, counted per path, table and connection.
    pub const fn len(&self) -> usize {
        self.total
    }

    /// Whether there is no watch.
    pub const fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Bytes of all watches, as their limits count them.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Paths that a connection watches.
    pub(crate) fn count_of(&self, conn: ConnId) -> u32 {
        let held = self.held.get(conn.slot as usize).filter(|held| held.generation == conn.generation);
        held.map_or(0, |held| held.live)
    }

    /// Whether any watch is recursive.
    pub(crate) fn has_recursive(&self) -> bool {
        !self.recursive.is_empty()
    }

    /// Registers a watch; registering it again changes nothing.
    ///
    /// # Errors
    /// [`Full`] when the connection watches as many paths, or as many bytes of them, as it may, or all together do.
    pub fn add(&mut self, kind: Kind, conn: ConnId, path: &str, hash: u64, mode: Mode) -> Result<(), Full> {
        let slot = conn.slot as usize;
        if self.held.len() <= slot {
            self.held.resize(slot + 1, Held::default());
        }
        let held = &mut self.held[slot];
        if held.generation != conn.generation {
            debug_assert!(held.live == 0, "a connection's watches go before its slot has another tenant");
            held.generation = conn.generation;
        }
        let (live, bytes) = (held.live as usize, held.bytes);
        let known = self.paths.find(path, hash);
        let before = known.map_or(0, |id| self.modes(id, conn.slot));
        let weight = path.len() + WATCH_BYTES;
        let limits = &self.limits;
        let full = || {
            live >= limits.per_conn_max
                || bytes + weight > limits.bytes_per_conn_max
                || self.bytes + weight > limits.bytes_max
        };
        if before == 0 && full() {
            return Err(Full);
        }
        let id = known.unwrap_or_else(|| self.paths.insert(path, hash));
        let after = before | kind.bit(mode);
        self.count(path.len(), before, after);
        self.set_modes(id, conn.slot, before, after);
        if before == 0 {
            self.bytes += weight;
            self.held[slot].bytes += weight;
            self.held[slot].live += 1;
            self.held[slot].push(id);
            self.tidy(conn.slot);
        }
        Ok(())
    }

    /// Whether the connection has a watch of the mode on the path. `hash` is the hash of the path.
    pub fn holds(&self, kind: Kind, conn: ConnId, path: &str, hash: u64, mode: Mode) -> bool {
        let known = self.held.get(conn.slot as usize).is_some_and(|held| held.generation == conn.generation);
        let modes = self.paths.find(path, hash).map_or(0, |id| self.modes(id, conn.slot));
        known && modes & kind.bit(mode) != 0
    }

    /// Takes a watch back; false when there is none.
    pub fn remove(&mut self, kind: Kind, conn: ConnId, path: &str, hash: u64, mode: Mode) -> bool {
        if !self.holds(kind, conn, path, hash, mode) {
            return false;
        }
        if let Some(id) = self.paths.find(path, hash) {
            let before = self.modes(id, conn.slot);
            self.lower(id, hash, conn.slot, before, before & !kind.bit(mode));
        }
        true
    }

    /// Takes a one-shot child watch back, if it has not fired.
    pub(crate) fn take_back(&mut self, conn: ConnId, path: &str, hash: u64) {
        self.remove(Kind::Child, conn, path, hash, Mode::Standard);
    }

    /// Drops watches of a connection that went away until `left` is used up; a long path counts for several. True when
    /// none remains: only then may its slot have another tenant. `hash_of` hashes a path.
    pub fn drop_some(&mut self, conn: ConnId, left: &mut usize, hash_of: impl Fn(&str) -> u64) -> bool {
        while *left > 0 {
            let held = self.held.get_mut(conn.slot as usize).filter(|held| held.generation == conn.generation);
            let Some(held) = held else { return true };
            let Some(id) = held.pop() else {
                debug_assert!(held.live == 0 && held.bytes == 0, "all that a connection watches is listed");
                return true;
            };
            *left -= 1;
            // The list may be out of date, but all watches of this connection go.
            let modes = self.modes(id, conn.slot);
            if modes != 0 {
                let path = self.paths.text(id);
                let hash = hash_of(path);
                *left = left.saturating_sub(path.len() / DROPPED_BYTES);
                self.lower(id, hash, conn.slot, modes, 0);
            }
        }
        false
    }

    /// Paths with at least one watch, in both tables; a path in both counts twice.
    pub const fn paths(&self) -> usize {
        self.data_paths + self.child_paths
    }

    /// Places of watched paths, filled or not; for passes in pieces.
    pub(crate) fn data_places(&self) -> usize {
        self.paths.places()
    }

    /// Returns the path at a place and the watchers of its data. They are among `most` of its watchers from a slot on,
    /// in the order of slots. `None` when there is no path.
    pub(crate) fn data_at(&self, place: usize, from: u32, most: usize) -> Option<DataWatchers<'_>> {
        let id = self.paths.at(place)?;
        let (mut watchers, mut looked, mut next) = (SmallVec::new(), 0, None);
        let set = match self.paths.who(id) {
            Who::NoConnection => None,
            Who::One { slot, modes } => {
                watchers.extend((modes & DATA_MODES != 0 && slot >= from).then(|| self.conn(slot)));
                looked = 1;
                None
            }
            Who::WatcherSet => self.sets.get(id).filter(|set| set.data > 0),
        };
        for (slot, modes) in set.into_iter().flat_map(|set| set.conns.range(from..)) {
            if looked == most {
                next = Some(*slot);
                break;
            }
            looked += 1;
            watchers.extend((modes & DATA_MODES != 0).then(|| self.conn(*slot)));
        }
        Some(DataWatchers { path: self.paths.text(id), watchers, looked, next })
    }

    fn conn(&self, slot: u32) -> ConnId {
        conn_of(&self.held, slot)
    }

    fn modes(&self, id: PathId, of: u32) -> u8 {
        modes_of(&self.paths, &self.sets, id, of)
    }

    /// Takes modes away, with all that hangs on them.
    fn lower(&mut self, id: PathId, hash: u64, slot: u32, before: u8, after: u8) {
        let length = self.paths.text_len(id);
        self.count(length, before, after);
        self.set_modes(id, slot, before, after);
        if after == 0 {
            self.bytes -= length + WATCH_BYTES;
            let_go(&mut self.held[slot as usize], length + WATCH_BYTES);
            self.forget_if_deserted(id, hash);
        }
    }

    /// Notes a connection's modes on a path; its list and the sums over all are the caller's.
    fn set_modes(&mut self, id: PathId, slot: u32, before: u8, after: u8) {
        let (data, child) = match self.paths.who(id) {
            Who::NoConnection => {
                self.paths.set_who(id, Who::One { slot, modes: after });
                (steps(0, after & DATA_MODES), steps(0, after & CHILD_MODES))
            }
            Who::One { slot: only, modes } if only == slot => {
                self.paths.set_who(id, if after == 0 { Who::NoConnection } else { Who::One { slot, modes: after } });
                (steps(modes & DATA_MODES, after & DATA_MODES), steps(modes & CHILD_MODES, after & CHILD_MODES))
            }
            Who::One { slot: first, modes } => {
                self.paths.set_who(id, Who::WatcherSet);
                let count = |table: u8| usize::from(modes & table != 0) + usize::from(after & table != 0);
                let (data, child) = (count(DATA_MODES), count(CHILD_MODES));
                let recursive = count(RECURSIVE);
                let conns = BTreeMap::from([(first, modes), (slot, after)]);
                self.sets.insert(id, WatcherSet { conns, data, child, recursive });
                let grown = |table: u8| (modes & table == 0 && after & table != 0, false);
                (grown(DATA_MODES), grown(CHILD_MODES))
            }
            Who::WatcherSet => {
                let set = self.sets.get_mut(id).expect("a set is listed");
                if after == 0 {
                    set.conns.remove(&slot);
                } else {
                    set.conns.insert(slot, after);
                }
                count_step(&mut set.recursive, before & RECURSIVE, after & RECURSIVE);
                let data = count_step(&mut set.data, before & DATA_MODES, after & DATA_MODES);
                (data, count_step(&mut set.child, before & CHILD_MODES, after & CHILD_MODES))
            }
        };
        self.data_paths = self.data_paths + usize::from(data.0) - usize::from(data.1);
        self.child_paths = self.child_paths + usize::from(child.0) - usize::from(child.1);
    }

    /// Counts what a connection's modes on a path of that length were, and are.
    fn count(&mut self, length: usize, before: u8, after: u8) {
        self.total = self.total + entries(after) - entries(before);
        match (before & RECURSIVE != 0, after & RECURSIVE != 0) {
            (false, true) => *self.recursive.entry(length).or_default() += 1,
            (true, false) => {
                let count = self.recursive.entry(length).or_default();
                *count -= 1;
                if *count == 0 {
                    self.recursive.remove(&length);
                }
            }
            _ => {}
        }
    }

    fn forget_if_deserted(&mut self, id: PathId, hash: u64) {
        let deserted = match self.paths.who(id) {
            Who::NoConnection => true,
            Who::One { .. } => false,
            Who::WatcherSet => self.sets.get(id).is_none_or(|set| set.conns.is_empty()),
        };
        if deserted {
            self.sets.remove(id);
            self.paths.remove(id, hash);
        }
    }

    /// Keeps lists short, of which most would be out of date otherwise; to be called for each watch that a connection adds.
    #[inline]
    fn tidy(&mut self, slot: u32) {
        let held = &self.held[slot as usize];
        if held.listed() > held.live as usize * 2 + LIST_SLACK {
            self.tidy_list(slot);
        }
        if !self.tidying.is_idle() {
            self.tidy_some();
        }
    }

    /// Shortens a short list. A longer one is shortened with the watches that are added from here on: 400,000 entries at once
    /// took 40 ms.
    #[inline(never)]
    fn tidy_list(&mut self, slot: u32) {
        let held = &mut self.held[slot as usize];
        if held.listed() > LIST_AT_ONCE {
            let id = ConnId { slot, generation: held.generation };
            if held.more.as_mut().is_some_and(|more| !mem::replace(&mut more.untidy, true)) {
                self.tidying.add(id);
            }
            return;
        }
        let mut list = held.take();
        list.sort_unstable();
        list.dedup();
        list.retain(|id| self.modes(*id, slot) != 0);
        debug_assert!(list.len() == self.held[slot as usize].live as usize, "all that a connection watches is listed");
        list.into_iter().for_each(|id| self.held[slot as usize].push(id));
    }

    #[inline(never)]
    fn tidy_some(&mut self) {
        let Self { paths, sets, held, tidying, .. } = self;
        for _ in 0..LIST_LOOKS {
            let Some(conn) = tidying.first() else { return };
            let held = held.get_mut(conn.slot as usize).filter(|held| held.generation == conn.generation);
            // It may have ended, or have none of the list's paths any more.
            let list = held.and_then(|held| held.more.as_mut()).filter(|more| more.untidy);
            let is_watched = |id| modes_of(paths, sets, id, conn.slot) != 0;
            let goes_on = list.is_some_and(|more| {
                more.untidy = tidying.look(&mut more.paths, paths.places(), is_watched);
                more.untidy
            });
            if !goes_on {
                tidying.go_on();
            }
        }
    }

    /// Takes the memory of paths that all lost their watchers, as a table without watches. Freeing it may take
    /// milliseconds. `None` if there is none.
    pub(crate) fn take_emptied(&mut self) -> Option<Box<Self>> {
        let paths = self.paths.take_emptied()?;
        Some(Box::new(Self { paths, ..Self::new(self.limits) }))
    }
}

fn modes_of(paths: &Paths, sets: &Sets, id: PathId, of: u32) -> u8 {
    match paths.who(id) {
        Who::One { slot, modes } if slot == of => modes,
        Who::NoConnection | Who::One { .. } => 0,
        Who::WatcherSet => sets.get(id).and_then(|set| set.conns.get(&of)).copied().unwrap_or(0),
    }
}

fn conn_of(held: &[Held], slot: u32) -> ConnId {
    ConnId { slot, generation: held[slot as usize].generation }
}

/// A connection watches one path less.
fn let_go(held: &mut Held, weight: usize) {
    held.live -= 1;
    held.bytes -= weight;
    if held.live == 0 {
        (held.first, held.more) = (None, None);
    }
}

/// In how many tables the modes stand.
const fn entries(modes: u8) -> usize {
    (modes & DATA_MODES != 0) as usize + (modes & CHILD_MODES != 0) as usize
}

/// Whether there is something now where there was nothing, and the other way round.
const fn steps(before: u8, after: u8) -> (bool, bool) {
    (before == 0 && after != 0, before != 0 && after == 0)
}

/// Counts a set's watchers in one table; tells whether it has got its first, or lost its last.
const fn count_step(count: &mut usize, before: u8, after: u8) -> (bool, bool) {
    let was = *count;
    *count = was + (after != 0) as usize - (before != 0) as usize;
    (was == 0 && *count > 0, was > 0 && *count == 0)
}

#[cfg(test)]
mod tests;
