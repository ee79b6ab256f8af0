//! Which watches fire for an event. They fire all at once, or some at a time in the order of the connections' slots,
//! because a million connections may watch one path. Knows neither connections nor turns.

use super::{
    CHILD_MODES, DATA_MODES, Kind, Mode, RECURSIVE, WATCH_BYTES, WatchTable, Who, conn_of, entries, let_go,
    paths::PathId,
};
use crate::ids::ConnId;
use crate::tree::path_hash::PathHasher;
use alloc::vec::Vec;
use core::mem;

/// Lengths of recursively watched paths up to which each prefix is hashed by itself.
const LENGTHS_FEW: usize = 4;
/// Watchers taken of one path at a time, at least, however many paths are looked at.
const EACH_MIN: usize = 16;

/// Which watchers of an event are told next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watchers {
    /// Those of this slot and of greater ones.
    pub(crate) from: u32,
    /// Watches that are looked at, about; at least one.
    pub(crate) max: usize,
}

impl Watchers {
    fn has(self, slot: u32, next: Option<u32>) -> bool {
        slot >= self.from && next.is_none_or(|next| slot < next)
    }
}

/// The result of a call of [`fire_some`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fired {
    /// Where the event goes on, if there are more watchers.
    pub(crate) next: Option<u32>,
    /// Watches that were looked at.
    pub(crate) looked: usize,
}

/// Leaves `most` connections behind the first `before`, if there are more of them, and gives the slot from which on some are missing.
fn cut(into: &mut Vec<ConnId>, before: usize, most: usize, missing: Option<u32>) -> Option<u32> {
    if into.len() - before <= most {
        return missing;
    }
    let mut those = into.split_off(before);
    those.sort_unstable();
    those.dedup();
    let first_cut = those.get(most).map(|conn| conn.slot);
    those.truncate(most);
    into.append(&mut those);
    [missing, first_cut].into_iter().flatten().min()
}

/// Everything that fires in the table for an event on `path`: each connection once, appended to `into`. One-shot
/// watches are used up. Takes time in proportion to the length of the path and to the watchers, however deep the
/// path and however many recursive watches stand elsewhere.
pub fn fire(table: &mut WatchTable, kind: Kind, path: &str, hash: u64, hasher: PathHasher, into: &mut Vec<ConnId>) {
    let mut range = Some(Watchers { from: 0, max: usize::MAX });
    while let Some(some) = range {
        let next = fire_some(table, kind, path, hash, hasher, some, into).next;
        range = next.map(|from| Watchers { from, ..some });
    }
}

/// As [`fire`], for some of the watchers. They are taken in the order of slots, from a slot on, after a
/// look at about as many watches as `some` says. Between two calls for one event no watch may be added.
#[inline]
pub(crate) fn fire_some(
    table: &mut WatchTable,
    kind: Kind,
    path: &str,
    hash: u64,
    hasher: PathHasher,
    some: Watchers,
    into: &mut Vec<ConnId>,
) -> Fired {
    if kind == Kind::Child || table.recursive.is_empty() {
        // Nearly always one connection watches, or none does.
        let Some(id) = table.paths.find(path, hash) else { return Fired { next: None, looked: 0 } };
        if let Who::One { slot, modes } = table.paths.who(id) {
            if modes & kind.modes() != 0 && slot >= some.from {
                into.push(table.conn(slot));
                table.lower(id, hash, slot, modes, modes & !kind.bit(Mode::Standard));
            }
            return Fired { next: None, looked: 1 };
        }
    }
    fire_many(table, kind, path, hash, hasher, some, into)
}

#[inline(never)]
fn fire_many(
    table: &mut WatchTable,
    kind: Kind,
    path: &str,
    hash: u64,
    hasher: PathHasher,
    some: Watchers,
    into: &mut Vec<ConnId>,
) -> Fired {
    let before = into.len();
    let (mut looked, mut next) = (0, None);
    if kind != Kind::Child && !table.recursive.is_empty() {
        (looked, next) = watched_from_above(table, path, hash, hasher, some, into);
        next = cut(into, before, some.max, next);
    }
    let above = into.len() - before;
    if let Some(id) = table.paths.find(path, hash) {
        match table.paths.who(id) {
            Who::NoConnection => {}
            Who::One { slot, modes } if modes & kind.modes() != 0 && some.has(slot, next) => {
                into.push(table.conn(slot));
                table.lower(id, hash, slot, modes, modes & !kind.bit(Mode::Standard));
            }
            Who::One { .. } => {}
            Who::WatcherSet => looked += fire_set(table, kind, id, hash, some, &mut next, into),
        }
    }
    if above > 0 {
        into[before..].sort_unstable();
        let mut last = None;
        let mut at = 0;
        into.retain(|conn| {
            at += 1;
            at <= before || (next.is_none_or(|next| conn.slot < next) && last.replace(*conn) != Some(*conn))
        });
    }
    Fired { next, looked }
}

/// One pass over a set, or over so many of it; `next` is where the event goes on. Gives how many were looked at.
fn fire_set(
    table: &mut WatchTable,
    kind: Kind,
    id: PathId,
    hash: u64,
    some: Watchers,
    next: &mut Option<u32>,
    into: &mut Vec<ConnId>,
) -> usize {
    let once = kind.bit(Mode::Standard);
    let Some(set) = table.sets.get_mut(id) else { return 0 };
    let (mut looked, mut used_up) = (0, false);
    for (slot, modes) in set.conns.range(some.from..) {
        if next.is_some_and(|next| *slot >= next) {
            break;
        }
        if looked == some.max {
            *next = Some(*slot);
            break;
        }
        looked += 1;
        if modes & kind.modes() != 0 {
            into.push(conn_of(&table.held, *slot));
        }
        used_up |= modes & once != 0;
    }
    if !used_up {
        return looked;
    }
    // Watchers with a used-up watch. The rest of a whole set is put together anew.
    let whole = looked == set.conns.len();
    let those: Vec<(u32, u8)> = if whole {
        mem::take(&mut set.conns).into_iter().collect()
    } else {
        let told = set.conns.range(some.from..).take(looked);
        told.map(|(slot, modes)| (*slot, *modes)).filter(|(_, modes)| modes & once != 0).collect()
    };
    let had = (set.data > 0, set.child > 0);
    let mut left = Vec::new();
    let weight = table.paths.text_len(id) + WATCH_BYTES;
    for (slot, before) in those {
        let after = before & !once;
        match after {
            0 if whole => {}
            _ if whole => left.push((slot, after)),
            0 => drop(set.conns.remove(&slot)),
            _ => drop(set.conns.insert(slot, after)),
        }
        set.data -= usize::from(before & DATA_MODES != 0 && after & DATA_MODES == 0);
        set.child -= usize::from(before & CHILD_MODES != 0 && after & CHILD_MODES == 0);
        table.total -= entries(before) - entries(after);
        if after == 0 {
            table.bytes -= weight;
            let_go(&mut table.held[slot as usize], weight);
        }
    }
    if whole {
        set.conns = left.into_iter().collect();
    }
    table.data_paths -= usize::from(had.0 && set.data == 0);
    table.child_paths -= usize::from(had.1 && set.child == 0);
    table.forget_if_deserted(id, hash);
    looked
}

/// Adds recursive watchers of the path or of an ancestor, from a slot on. A watcher of several of these paths is
/// added several times. Looks at the prefixes that are as long as a recursively watched path; many of them are
/// hashed in one pass over the path. Gives how many watchers were looked at, and the slot from which on some may be
/// missing.
fn watched_from_above(
    table: &WatchTable,
    path: &str,
    hash: u64,
    hasher: PathHasher,
    some: Watchers,
    into: &mut Vec<ConnId>,
) -> (usize, Option<u32>) {
    let each = (some.max / table.recursive.len()).max(EACH_MIN.min(some.max));
    let few = table.recursive.range(..path.len()).nth(LENGTHS_FEW).is_none();
    let mut pass = if few { None } else { Some(hasher.prefixes()) };
    let (mut looked, mut missing) = (0, None::<u32>);
    for length in table.recursive.range(1..=path.len()).map(|(length, _)| *length) {
        let prefix = match path.get(..length) {
            Some(prefix) if length == path.len() || prefix == crate::path::ROOT => prefix,
            Some(prefix) if path.as_bytes()[length] == b'/' => prefix,
            _ => continue,
        };
        let hash = match &mut pass {
            _ if length == path.len() => hash,
            Some(pass) => pass.hash(prefix),
            None => hasher.hash(prefix),
        };
        if let Some(id) = table.paths.find(prefix, hash) {
            let (those, next) = recursive_watchers(table, id, some.from, each, into);
            looked += those;
            missing = [missing, next].into_iter().flatten().min();
        }
    }
    (looked, missing)
}

/// Adds the recursive watchers of this path, among `most` of its watchers from a slot on. Gives how many were
/// looked at, and the slot of the next one.
fn recursive_watchers(
    table: &WatchTable,
    id: PathId,
    from: u32,
    most: usize,
    into: &mut Vec<ConnId>,
) -> (usize, Option<u32>) {
    let set = match table.paths.who(id) {
        Who::NoConnection => return (0, None),
        Who::One { slot, modes } => {
            let watches = modes & RECURSIVE != 0 && slot >= from;
            into.extend(watches.then(|| table.conn(slot)));
            return (1, None);
        }
        Who::WatcherSet => table.sets.get(id).filter(|set| set.recursive > 0),
    };
    let mut looked = 0;
    for (slot, modes) in set.into_iter().flat_map(|set| set.conns.range(from..)) {
        if looked == most {
            return (looked, Some(*slot));
        }
        looked += 1;
        into.extend((modes & RECURSIVE != 0).then(|| table.conn(*slot)));
    }
    (looked, None)
}
