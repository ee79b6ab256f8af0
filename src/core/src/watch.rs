//! One shard's watch tables: who of this shard's connections wants to hear of a path (protocol chapter 14).
//!
//! Local to the shard, never replicated. Two tables, as in ZooKeeper: data watches (exists, getData) and child watches
//! (getChildren). Persistent watches stand in both, recursive ones in the data table only. Both tables are kept as one list
//! of paths, so that a watch costs about 60 bytes with a path of up to 22, and one among many of a path about 40.

mod fire;
mod paths;

use crate::ids::ConnId;
use crate::limits::ShardLimits;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
pub(crate) use fire::Watchers;
use hashbrown::HashMap;
use paths::{PathId, Paths, Who};
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

/// Bytes that a watched path is counted with besides its text: its record, its place in the index and in the list of its
/// connection.
const WATCH_BYTES: usize = 64;
/// A connection, or all connections of the shard, hold as many watches as a limit allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The watchers of a path that has, or had, several: modes by connection slot.
#[derive(Debug, Default)]
struct Crowd {
    conns: BTreeMap<u32, u8>,
    /// How many watch its data, and how many its children.
    data: usize,
    child: usize,
}

/// What a connection watches. The list may name paths that it watches no more, and a path twice.
#[derive(Clone, Debug, Default)]
struct Held {
    generation: u32,
    /// Paths watched.
    live: u32,
    /// Bytes of them, each with [`WATCH_BYTES`]; a path counts for each of its watchers.
    bytes: usize,
    first: Option<PathId>,
    #[expect(clippy::box_collection, reason = "nearly every connection has one watch or none")]
    more: Option<Box<Vec<PathId>>>,
}

impl Held {
    fn push(&mut self, path: PathId) {
        match self.first {
            None => self.first = Some(path),
            Some(_) => self.more.get_or_insert_default().push(path),
        }
    }

    fn pop(&mut self) -> Option<PathId> {
        self.more.as_mut().and_then(|more| more.pop()).or_else(|| self.first.take())
    }

    fn listed(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.as_ref().map_or(0, |more| more.len())
    }

    fn take(&mut self) -> Vec<PathId> {
        let mut all = self.more.take().map_or_else(Vec::new, |more| *more);
        all.extend(self.first.take());
        all
    }
}

/// All watches of a shard.
#[derive(Debug)]
pub struct WatchTable {
    paths: Paths,
    crowds: HashMap<PathId, Crowd, Xxh3DefaultBuilder>,
    /// By connection slot.
    held: Vec<Held>,
    /// How many recursive watches there are by the length of their path: a change looks for them at these lengths alone.
    recursive: BTreeMap<usize, usize>,
    /// Bytes of all connections' watches together.
    bytes: usize,
    total: usize,
    data_paths: usize,
    child_paths: usize,
    limits: WatchLimits,
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

    pub fn new(limits: WatchLimits) -> Self {
        Self {
            paths: Paths::default(),
            crowds: HashMap::with_hasher(Xxh3DefaultBuilder::new()),
            held: Vec::new(),
            recursive: BTreeMap::new(),
            bytes: 0,
            total: 0,
            data_paths: 0,
            child_paths: 0,
            limits,
        }
    }

    /// Watches, counted per path, table and connection.
    pub const fn len(&self) -> usize {
        self.total
    }

    pub const fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Whether any watch is recursive.
    pub(crate) fn has_recursive(&self) -> bool {
        !self.recursive.is_empty()
    }

    /// Paths that a connection watches.
    pub(crate) fn watched_by(&self, conn: ConnId) -> usize {
        let held = self.held.get(conn.slot as usize).filter(|held| held.generation == conn.generation);
        held.map_or(0, |held| held.live as usize)
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

    /// Whether the connection has a watch of the mode on the path, whose hash is given.
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

    /// Drops watches of a connection that went away, about `count` of them. True when none is left: only then may its slot
    /// have another tenant. `hash_of` hashes a path.
    pub fn drop_some(&mut self, conn: ConnId, count: usize, hash_of: impl Fn(&str) -> u64) -> bool {
        for _ in 0..count {
            let held = self.held.get_mut(conn.slot as usize).filter(|held| held.generation == conn.generation);
            let Some(held) = held else { return true };
            let Some(id) = held.pop() else {
                debug_assert!(held.live == 0 && held.bytes == 0, "all that a connection watches is listed");
                return true;
            };
            // The list may be out of date, but whatever is this connection's goes.
            let modes = self.modes(id, conn.slot);
            if modes != 0 {
                let hash = hash_of(self.paths.text(id));
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

    /// The path at a place and who watches its data, from a slot on and in the order of slots; `None` when nobody does.
    pub(crate) fn data_at(&self, place: usize, from: u32) -> Option<(&str, impl Iterator<Item = ConnId>)> {
        let id = self.paths.at(place)?;
        self.watchers_from(id, DATA_MODES, from).next()?;
        Some((self.paths.text(id), self.watchers_from(id, DATA_MODES, from)))
    }

    /// The connections that watch a path in any of the modes, from a slot on and in the order of slots.
    fn watchers_from(&self, id: PathId, wanted: u8, from: u32) -> impl Iterator<Item = ConnId> {
        let who = self.paths.who(id);
        let one = if let Who::One { slot, modes } = who { Some((slot, modes)) } else { None };
        let one = one.filter(|(slot, _)| *slot >= from);
        let crowd = if who == Who::Crowd { self.crowds.get(&id) } else { None };
        let crowd =
            crowd.into_iter().flat_map(move |crowd| crowd.conns.range(from..).map(|(slot, modes)| (*slot, *modes)));
        let all = one.into_iter().chain(crowd);
        all.filter(move |(_, modes)| modes & wanted != 0).map(|(slot, _)| self.conn(slot))
    }

    fn conn(&self, slot: u32) -> ConnId {
        conn_of(&self.held, slot)
    }

    fn modes(&self, id: PathId, of: u32) -> u8 {
        match self.paths.who(id) {
            Who::One { slot, modes } if slot == of => modes,
            Who::Nobody | Who::One { .. } => 0,
            Who::Crowd => self.crowds.get(&id).and_then(|crowd| crowd.conns.get(&of)).copied().unwrap_or(0),
        }
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
            Who::Nobody => {
                self.paths.set_who(id, Who::One { slot, modes: after });
                (steps(0, after & DATA_MODES), steps(0, after & CHILD_MODES))
            }
            Who::One { slot: only, modes } if only == slot => {
                self.paths.set_who(id, if after == 0 { Who::Nobody } else { Who::One { slot, modes: after } });
                (steps(modes & DATA_MODES, after & DATA_MODES), steps(modes & CHILD_MODES, after & CHILD_MODES))
            }
            Who::One { slot: first, modes } => {
                self.paths.set_who(id, Who::Crowd);
                let count = |table: u8| usize::from(modes & table != 0) + usize::from(after & table != 0);
                let (data, child) = (count(DATA_MODES), count(CHILD_MODES));
                let conns = BTreeMap::from([(first, modes), (slot, after)]);
                self.crowds.insert(id, Crowd { conns, data, child });
                let grown = |table: u8| (modes & table == 0 && after & table != 0, false);
                (grown(DATA_MODES), grown(CHILD_MODES))
            }
            Who::Crowd => {
                let crowd = self.crowds.get_mut(&id).expect("a crowd is listed");
                if after == 0 {
                    crowd.conns.remove(&slot);
                } else {
                    crowd.conns.insert(slot, after);
                }
                let data = crowd_step(&mut crowd.data, before & DATA_MODES, after & DATA_MODES);
                (data, crowd_step(&mut crowd.child, before & CHILD_MODES, after & CHILD_MODES))
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
            Who::Nobody => true,
            Who::One { .. } => false,
            Who::Crowd => self.crowds.get(&id).is_none_or(|crowd| crowd.conns.is_empty()),
        };
        if deserted {
            self.crowds.remove(&id);
            self.paths.remove(id, hash);
        }
    }

    /// Shortens a connection's list once most of it is out of date.
    fn tidy(&mut self, slot: u32) {
        const SLACK: usize = 8;
        let held = &mut self.held[slot as usize];
        if held.listed() <= held.live as usize * 2 + SLACK {
            return;
        }
        let mut list = held.take();
        list.sort_unstable();
        list.dedup();
        list.retain(|id| self.modes(*id, slot) != 0);
        debug_assert!(list.len() == self.held[slot as usize].live as usize, "all that a connection watches is listed");
        list.into_iter().for_each(|id| self.held[slot as usize].push(id));
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

/// Counts a crowd's watchers in one table; tells whether it has got its first, or lost its last.
const fn crowd_step(count: &mut usize, before: u8, after: u8) -> (bool, bool) {
    let was = *count;
    *count = was + (after != 0) as usize - (before != 0) as usize;
    (was == 0 && *count > 0, was > 0 && *count == 0)
}

#[cfg(test)]
mod tests;
