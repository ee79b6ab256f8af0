//! Lists of children that consist of marks for the most part are made anew.
//!
//! A deleted child leaves a mark above the name in the layer below, until the next snapshot. Each reading of the list
//! passes over all marks. A queue from which a million entries were taken would be as slow to read as with these
//! entries. So a znode with few children compared with the marks gets a complete list in the live delta. The layers
//! below do not count any more. That costs one reading of the list, some 15 ns an entry, after at least three quarters
//! of its entries were deleted. The children that a reader sees are the same, and each view does it by itself.
//!
//! One transaction may change the lists of thousands of znodes, and must not find all of them in need of that. So a
//! list that is half as long as it may be waits to be made anew ahead of need. Each change of a child allows for some
//! entries of such a list. These are more than a list grows by until it has its full length.
//!
//! Reading a list of millions of entries takes too long for one turn. So a long list is copied ahead of need, some
//! entries at each step of its changes. Their number makes the copy complete when the list has to be made anew. Changes
//! in the copied part are made in the copy as well. Where the layers below are replaced meanwhile, the children that a
//! reader sees stay the same, and so the copy holds.

use super::layers::{Below, Layers};
use super::pieces::{ListPosition, children_behind};
use crate::shared::Text;
use crate::tree::delta::{Delta, KidNote, MARKS_STEP, MARKS_STEP_BYTES};
use crate::tree::kids::{Kids, Mark};
use crate::tree::znode::NodeStat;
use alloc::collections::{BTreeMap, BTreeSet};

/// A list of more children, or of more bytes of their names, is left as it is.
///
/// These constants decide how the log is replayed, because removals weigh what they allow.
const CHILDREN_MAX: u32 = if cfg!(test) { 40 } else { 32 << 10 };
const NAMES_MAX: u64 = if cfg!(test) { 400 } else { 4 << 20 };
/// So many times as long as its children alone would make it may a list be ...
const TIMES: u64 = 4;
/// ... and so much longer, in names and in bytes of names.
const LONGER: u64 = if cfg!(test) { 8 } else { 4096 };
const LONGER_BYTES: u64 = if cfg!(test) { 160 } else { 256 << 10 };

/// A list of fewer entries is made anew at once: 10 ms if no cache holds the entries.
const LONG: u64 = if cfg!(test) { 400 } else { 256 << 10 };

/// Bytes of names that count for an entry.
const ENTRY_BYTES: u64 = 64;
/// A long list is copied from when it has so many times the children and names, or fewer.
const COPIED_FROM: u64 = 16;

/// A list is made anew ahead of need when it exceeds its allowed length divided by this factor. The children that it
/// may then have are multiplied by the factor.
const AHEAD: u64 = 2;
/// After so many changes of children lists are made anew ahead of need.
const EVERY: u32 = if cfg!(test) { 4 } else { 256 };
/// Entries of lists made anew for each of these changes. Unused entries of earlier changes are added, up to
/// [`SAVED_MAX`]: 10 ms if no cache holds them.
const PER_CHANGE: u64 = 8;
const SAVED_MAX: u64 = LONG;
/// Lists that wait for that; of more, the longest do not.
const WAITING_MAX: usize = 4096;

/// The lists of children that a view makes anew ahead of need.
#[derive(Clone, Debug, Default)]
pub(super) struct Compactions {
    /// Changes of children.
    changes: u32,
    /// Entries that they allow for still.
    saved: u64,
    /// Lists to be made anew, the shortest first: they reach their full length with the fewest changes. By size class,
    /// hash and path.
    waiting: BTreeSet<(u64, u64, Text)>,
    /// Copies of long lists that are under way.
    pub(super) copies: ListCopies,
}

impl Compactions {
    /// Counts a change of a child. Whether it is time to make lists anew.
    #[inline]
    pub(super) const fn are_due(&mut self) -> bool {
        self.changes = self.changes.wrapping_add(1);
        self.changes.is_multiple_of(EVERY)
    }

    fn wait(&mut self, entries: u64, hash: u64, path: Text) {
        self.waiting.insert((entries.ilog2().into(), hash, path));
        if self.waiting.len() > WAITING_MAX {
            self.waiting.pop_last();
        }
    }

    /// Makes the list of children of a znode of the live delta anew, if it consists of marks for the most part.
    #[cold]
    #[inline(never)]
    pub(super) fn compact_children(&mut self, live: &mut Delta, below: Below<'_>, path: &str, hash: u64) {
        match need_of(below.under(live), path, hash) {
            Some(Need::Now) => self.make_anew(live, below, path, hash),
            Some(Need::InSteps(entries, steps)) => self.copy_some(live, below, (path, hash), entries, steps),
            Some(Need::Soon(entries)) => {
                if let Some(path) = live.entry(path, hash).map(|entry| entry.path.clone()) {
                    self.wait(entries, hash, path);
                }
            }
            None if self.copies.is_empty() => {}
            None => self.drop_copy(live, path, hash),
        }
    }

    /// Makes lists anew ahead of need, as far as changes of children allow.
    #[cold]
    #[inline(never)]
    pub(super) fn compact_some(&mut self, live: &mut Delta, below: Below<'_>) {
        let saved = self.saved + PER_CHANGE * u64::from(EVERY);
        self.saved = saved.min(SAVED_MAX);
        while let Some((class, hash, path)) = self.waiting.pop_first() {
            match need_of(below.under(live), &path, hash) {
                Some(Need::Soon(entries)) if entries <= self.saved => {
                    self.saved -= entries;
                    self.make_anew(live, below, &path, hash);
                }
                Some(Need::Soon(_)) => {
                    self.waiting.insert((class, hash, path));
                    return;
                }
                _ => {}
            }
        }
    }

    /// Copies some more entries of a list of this size. At least `steps` further steps of changes come before it has to
    /// be made anew.
    fn copy_some(&mut self, live: &mut Delta, below: Below<'_>, (path, hash): (&str, u64), size: u64, steps: u64) {
        let copy = self.copies.take(path, hash).unwrap_or_else(|| PartialCopy::new(path));
        // After a new snapshot the number of copied entries says little about the number left.
        let left = size.saturating_sub(copy.looked).max(size / 4);
        self.copy_on(live, below, hash, copy, u32::try_from(left.div_ceil(steps)).unwrap_or(u32::MAX));
    }

    /// Makes a list anew now, from its copy if there is one.
    fn make_anew(&mut self, live: &mut Delta, below: Below<'_>, path: &str, hash: u64) {
        if let Some(copy) = self.copies.take(path, hash) {
            return self.copy_on(live, below, hash, copy, u32::MAX);
        }
        let Some((_, children)) = below.under(live).children_and_size(path, hash) else { return };
        let mut kids = Kids::new();
        children.for_each(|name| kids.add_name(name));
        live.replace_kids(path, hash, kids);
    }

    /// Goes on with a copy, for so many entries. If it is complete, it is the list.
    fn copy_on(&mut self, live: &mut Delta, below: Below<'_>, hash: u64, mut copy: PartialCopy, most: u32) {
        let mut left = most;
        let mut is_complete = false;
        if let Some(mut entries) = children_behind(below.under(live), &copy.path, hash, &mut copy.place, &mut left) {
            let mut last = None;
            while left > 0
                && let Some((name, is_there)) = entries.next()
            {
                if is_there {
                    copy.children.add_name(name);
                }
                let cost = 1 + name.len() as u64 / ENTRY_BYTES;
                copy.looked += cost;
                left = left.saturating_sub(u32::try_from(cost).unwrap_or(u32::MAX));
                last = Some(name);
            }
            is_complete = entries.peek().is_none();
            if let Some(last) = last {
                entries.leave(&mut copy.place, last);
            }
        }
        #[cfg(test)]
        {
            self.copies.looked_at_once = most - left;
        }
        if is_complete {
            live.replace_kids(&copy.path, hash, copy.children);
        } else {
            // One of another list with the same hash is given up: that list is made anew at once.
            self.copies.by_hash.insert(hash, copy);
        }
    }

    /// The list need not be made anew any more.
    pub(super) fn drop_copy(&mut self, live: &mut Delta, path: &str, hash: u64) {
        let copies = &mut self.copies.by_hash;
        if copies.get(&hash).is_some_and(|copy| *copy.path == *path)
            && let Some(copy) = copies.remove(&hash)
        {
            live.drop_later(copy.children);
        }
    }
}

/// The copy of one list, as far as it has come.
#[derive(Clone, Debug)]
struct PartialCopy {
    path: Text,
    children: Kids,
    place: ListPosition,
    /// Entries that were looked at.
    looked: u64,
}

impl PartialCopy {
    fn new(path: &str) -> Self {
        Self { path: Text::from(path), children: Kids::new(), place: ListPosition::default(), looked: 0 }
    }

    fn has_passed(&self, name: &str) -> bool {
        self.place.after.as_deref().is_some_and(|last| name <= last)
    }

    fn note(&mut self, note: KidNote<'_>) {
        match note {
            KidNote::Set(child, Mark::Added) if self.has_passed(child.name()) => self.children.set(child, Mark::Added),
            KidNote::Set(child, Mark::Removed) if self.has_passed(child.name()) => self.children.remove(child.name()),
            KidNote::Forget(name) if self.has_passed(name) => self.children.remove(name),
            _ => {}
        }
    }
}

/// The copies of long lists that are under way, by the hash of their paths.
#[derive(Clone, Debug, Default)]
pub(super) struct ListCopies {
    by_hash: BTreeMap<u64, PartialCopy>,
    /// Entries that the last step looked at.
    #[cfg(test)]
    looked_at_once: u32,
}

impl ListCopies {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.by_hash.is_empty()
    }

    /// Notes a change of a child of this znode.
    pub(super) fn note(&mut self, path: &str, hash: u64, note: KidNote<'_>) {
        if let Some(copy) = self.by_hash.get_mut(&hash).filter(|copy| *copy.path == *path) {
            copy.note(note);
        }
    }

    fn take(&mut self, path: &str, hash: u64) -> Option<PartialCopy> {
        self.by_hash.get(&hash).filter(|copy| *copy.path == *path)?;
        self.by_hash.remove(&hash)
    }
}

/// The time at which a list of children is made anew, and its cost in entries.
enum Need {
    Now,
    Soon(u64),
    /// A long list, with the steps of changes that come before it has to be made anew, at least.
    InSteps(u64, u64),
}

/// The most marks of deleted children, and bytes of their names, that any view keeps below a znode of this Stat with
/// few children.
pub(crate) fn marks_at_most(stat: &NodeStat) -> (u64, u64) {
    // Most changes before the list is checked again, in each of two layers.
    const STEP: u64 = 2 * (TIMES + 1) * MARKS_STEP;
    const STEP_BYTES: u64 = 2 * (TIMES + 1) * MARKS_STEP_BYTES;
    let marks = (TIMES - 1) * u64::from(stat.num_children) + LONGER + STEP;
    let bytes = stat.names_bytes.saturating_mul(TIMES - 1).saturating_add(LONGER_BYTES + STEP_BYTES);
    if stat.names_bytes > NAMES_MAX { (u64::MAX, u64::MAX) } else { (marks, bytes) }
}

/// Steps of changes of children, at least, before a znode of this Stat has so few that its list is made anew.
fn steps_left(stat: &NodeStat) -> u64 {
    let children = u64::from(stat.num_children.saturating_sub(CHILDREN_MAX)) / MARKS_STEP;
    let names = stat.names_bytes.saturating_sub(NAMES_MAX) / MARKS_STEP_BYTES;
    1 + children.max(names)
}

/// When the list of a znode of the live delta has to be made anew. `None` if it has not.
fn need_of(layers: Layers<'_>, path: &str, hash: u64) -> Option<Need> {
    let entry = layers.live.entry(path, hash).filter(|entry| entry.state.shows_below())?;
    let stat = entry.state.node()?.stat;
    let is_few = |most: u64| {
        u64::from(stat.num_children) <= most * u64::from(CHILDREN_MAX) && stat.names_bytes <= most * NAMES_MAX
    };
    if !is_few(COPIED_FROM) {
        return None;
    }
    let size = layers.children_size(path, hash)?;
    let (entries, bytes) = (size.entries as u64, size.bytes as u64);
    let is_long = |part: u64| {
        entries > (TIMES * u64::from(stat.num_children) + LONGER) / part
            || bytes > stat.names_bytes.saturating_mul(TIMES).saturating_add(LONGER_BYTES) / part
    };
    let all = entries + bytes / ENTRY_BYTES;
    match () {
        () if is_few(1) && is_long(1) => Some(Need::Now),
        () if all > LONG && is_long(AHEAD) => Some(Need::InSteps(all, steps_left(&stat))),
        () if is_few(AHEAD) && is_long(AHEAD) => Some(Need::Soon(all)),
        () => None,
    }
}

#[cfg(test)]
mod tests;
