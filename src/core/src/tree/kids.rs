//! A layer's child marks of one znode, sorted by name.
//!
//! Part of a delta, so it grows on the core of its view and is only read once frozen. Most znodes get their children in
//! the order of the names, as sequential znodes do: those go to the end after one comparison. The list is cut into
//! chunks, and the list of chunks into groups. So a child in the midst of millions moves no more than the others of a
//! chunk, and the chunks of a group.

use crate::shared::{HashedPath, Text};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;
use core::mem::size_of;
use core::slice;

/// Marks of one chunk at most, and chunks of one group. A random insert moves 3 KiB within its chunk and, once in 128
/// times, 3 KiB within its group. Groups are few: 25 million names, which a parent has at most, make 1,500 of them.
const CHUNK_MAX: usize = 256;
/// A chunk or a group that shrinks below this is joined with a neighbour, if both have room in one.
const CHUNK_FEW: usize = CHUNK_MAX / 4;
const JOINED_MAX: usize = CHUNK_MAX / 2;

/// Estimated heap bytes of one mark, at the usual fill of its chunk.
pub(crate) const KID_BYTES: usize = size_of::<Kid>() * 4 / 3;

/// Whether a child is there, whatever the layers below say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Added,
    Removed,
}

/// A child's name, as the tail of its path's shared allocation, and its mark.
#[derive(Clone, Debug)]
struct Kid {
    path: Text,
    start: u32,
    mark: Mark,
}

impl Kid {
    fn new(at: &HashedPath, mark: Mark) -> Self {
        Self { path: at.path.clone(), start: at.name_at(), mark }
    }

    #[inline]
    fn name(&self) -> &str {
        &self.path[self.start as usize..]
    }
}

/// Sorted chunks, none of them empty.
type Group = Vec<Vec<Kid>>;

/// The child marks of one znode in a layer, sorted by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kids {
    /// The last group. Most lists have no other.
    chunks: Group,
    /// The groups before it, none of them empty.
    #[expect(clippy::box_collection, reason = "nearly no list has any, and each list has the room for them")]
    before: Option<Box<Vec<Group>>>,
    len: usize,
    /// Bytes of all names.
    bytes: usize,
}

/// Where a name is, or where it would go: group, chunk within it and place within that.
type KidPosition = (usize, usize, usize);

impl Kids {
    pub(crate) const fn new() -> Self {
        Self { chunks: Vec::new(), before: None, len: 0, bytes: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the names of all marks.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The marks behind a name, sorted by the names' bytes.
    pub(crate) fn iter_after(&self, name: &str) -> Iter<'_> {
        let (group, chunk, at) = match self.find(name) {
            Ok((group, chunk, at)) => (group, chunk, at + 1),
            Err(place) => place,
        };
        let chunks = self.group(group);
        let kids = chunks.get(chunk).map_or(&[][..], |kids| &kids[at..]);
        Iter {
            groups: self.before().get(group + 1..).unwrap_or_default().iter(),
            last: if group < self.before().len() { &self.chunks[..] } else { &[] }.iter(),
            chunks: chunks.get(chunk + 1..).unwrap_or_default().iter(),
            kids: kids.iter(),
        }
    }

    /// Names with their marks, sorted by the names' bytes.
    pub(crate) fn iter(&self) -> Iter<'_> {
        Iter { groups: self.before().iter(), last: self.chunks.iter(), chunks: [].iter(), kids: [].iter() }
    }

    /// Marks the child of this path. The path's allocation replaces that of a former mark: it may belong to a znode
    /// that is gone.
    pub(crate) fn set(&mut self, child: &HashedPath, mark: Mark) {
        self.put(Kid::new(child, mark));
    }

    /// Marks a child as added, by an allocation of its name alone.
    pub(crate) fn add_name(&mut self, name: &str) {
        self.put(Kid { path: Text::from(name), start: 0, mark: Mark::Added });
    }

    fn put(&mut self, kid: Kid) {
        // The usual case: behind all others.
        if let Some(last) = self.chunks.last_mut().filter(|last| last.len() < CHUNK_MAX)
            && last.last().is_some_and(|last| last.name() < kid.name())
        {
            self.len += 1;
            self.bytes += kid.name().len();
            last.push(kid);
            return;
        }
        match self.find(kid.name()) {
            Ok((group, chunk, at)) => self.group_mut(group)[chunk][at] = kid,
            Err(place) => self.insert(place, kid),
        }
    }

    /// Takes a mark away, if there is one.
    pub(crate) fn remove(&mut self, name: &str) {
        let Ok((group, chunk, at)) = self.find(name) else { return };
        let chunks = self.group_mut(group);
        chunks[chunk].remove(at);
        join(chunks, chunk);
        self.bytes -= name.len();
        self.len -= 1;
        self.join_group(group);
    }

    fn before(&self) -> &[Group] {
        self.before.as_ref().map_or(&[], |before| before)
    }

    fn group(&self, at: usize) -> &Group {
        self.before().get(at).unwrap_or(&self.chunks)
    }

    fn group_mut(&mut self, at: usize) -> &mut Group {
        match &mut self.before {
            Some(before) if at < before.len() => &mut before[at],
            _ => &mut self.chunks,
        }
    }

    fn find(&self, name: &str) -> Result<KidPosition, KidPosition> {
        let (before, Some(last)) = (self.before(), self.chunks.last()) else { return Err((0, 0, 0)) };
        if last.last().is_some_and(|kid| kid.name() < name) {
            return Err((before.len(), self.chunks.len() - 1, last.len()));
        }
        // The first chunk that ends at the name or behind it; the last one does.
        let ends_before = |chunk: &Vec<Kid>| chunk.last().is_some_and(|kid| kid.name() < name);
        let group = before.partition_point(|group| group.last().is_some_and(ends_before));
        let chunks = self.group(group);
        let chunk = chunks.partition_point(ends_before);
        match chunks[chunk].binary_search_by(|kid| kid.name().cmp(name)) {
            Ok(at) => Ok((group, chunk, at)),
            Err(at) => Err((group, chunk, at)),
        }
    }

    fn insert(&mut self, (group, chunk, at): KidPosition, kid: Kid) {
        self.len += 1;
        self.bytes += kid.name().len();
        let chunks = self.group_mut(group);
        let Some(kids) = chunks.get_mut(chunk) else {
            self.chunks = Vec::with_capacity(1);
            self.chunks.push(Vec::from([kid]));
            return;
        };
        let Some(behind) = put(kids, at, kid) else { return };
        let Some(behind) = put(chunks, chunk + 1, behind) else { return };
        let before = self.before.get_or_insert_default();
        if group < before.len() {
            before.insert(group + 1, behind);
        } else {
            before.push(mem::replace(&mut self.chunks, behind));
        }
    }

    /// As [`join`], with a group.
    fn join_group(&mut self, group: usize) {
        if self.group(group).len() >= CHUNK_FEW {
            return;
        }
        let Some(before) = &mut self.before else { return };
        before.push(mem::take(&mut self.chunks));
        join(before, group);
        self.chunks = before.pop().unwrap_or_default();
        if before.is_empty() {
            self.before = None;
        }
    }
}

/// Puts an item in its place. Gives the part of the list that goes behind it as a list of its own, if it was full.
#[inline]
fn put<T>(list: &mut Vec<T>, at: usize, item: T) -> Option<Vec<T>> {
    if list.len() < CHUNK_MAX {
        list.insert(at, item);
        return None;
    }
    // Names that come in their order leave full chunks behind, others half full ones.
    let mut behind = if at == CHUNK_MAX { Vec::new() } else { list.split_off(CHUNK_MAX / 2) };
    match at.checked_sub(list.len()) {
        None => list.insert(at, item),
        Some(at) => behind.insert(at, item),
    }
    Some(behind)
}

/// Joins a list that has become small with the next one, or the one before it.
fn join<T>(lists: &mut Vec<Vec<T>>, at: usize) {
    let few = lists[at].len();
    if few == 0 {
        lists.remove(at);
        return;
    }
    if few >= CHUNK_FEW {
        return;
    }
    let fits = |first: usize| lists.get(first + 1).is_some_and(|next| lists[first].len() + next.len() <= JOINED_MAX);
    let first = match at.checked_sub(1) {
        _ if fits(at) => at,
        Some(before) if fits(before) => before,
        _ => return,
    };
    let mut next = lists.remove(first + 1);
    lists[first].append(&mut next);
}

/// See [`Kids::iter`].
#[derive(Clone, Debug)]
pub(crate) struct Iter<'k> {
    groups: slice::Iter<'k, Group>,
    /// Behind these.
    last: slice::Iter<'k, Vec<Kid>>,
    /// Before all groups.
    chunks: slice::Iter<'k, Vec<Kid>>,
    kids: slice::Iter<'k, Kid>,
}

impl<'k> Iter<'k> {
    fn next_chunk(&mut self) -> Option<&'k Vec<Kid>> {
        if self.chunks.len() == 0 {
            self.chunks = self.groups.next().map_or_else(|| mem::take(&mut self.last), |group| group.iter());
        }
        self.chunks.next()
    }
}

impl<'k> Iterator for Iter<'k> {
    type Item = (&'k str, Mark);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(kid) = self.kids.next() {
                return Some((kid.name(), kid.mark));
            }
            self.kids = self.next_chunk()?.iter();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path;
    use alloc::collections::BTreeMap;
    use alloc::format;
    use alloc::string::String;
    use core::ops::Bound;

    fn at(path: &str) -> HashedPath {
        HashedPath::new(Text::from(path), false, |_| 0)
    }

    /// Whether no insert moves more than a chunk's worth of marks and a group's worth of chunks.
    fn is_short(group: &Group) -> bool {
        let fits = 1..=CHUNK_MAX;
        fits.contains(&group.len()) && group.iter().all(|chunk| fits.contains(&chunk.len()))
    }

    /// Sets and removals of names below `names`, against a plain map.
    fn check(names: u32, steps: u32, number: impl Fn(u32) -> u32, removes: impl Fn(u32) -> bool) {
        let (mut kids, mut model) = (Kids::new(), BTreeMap::<String, Mark>::new());
        for step in 0..steps {
            let path = format!("/parent/{:06}", number(step) % names);
            let name = String::from(path::name(&path));
            if removes(step) {
                kids.remove(&name);
                model.remove(&name);
            } else {
                let mark = if step % 3 == 0 { Mark::Removed } else { Mark::Added };
                kids.set(&at(&path), mark);
                model.insert(name, mark);
            }
            assert_eq!((kids.len(), kids.is_empty()), (model.len(), model.is_empty()));
            assert_eq!(kids.bytes(), model.keys().map(String::len).sum::<usize>());
            assert!(is_short(&kids.chunks) || kids.is_empty());
            if step % 97 == 0 || step + 1 == steps {
                assert!(kids.iter().eq(model.iter().map(|(name, mark)| (name.as_str(), *mark))), "after step {step}");
                for from in ["", "000100", "0001005", "002999", "9"] {
                    let behind = model.iter().filter(|(name, _)| name.as_str() > from);
                    assert!(kids.iter_after(from).eq(behind.map(|(name, mark)| (name.as_str(), *mark))), "{from}");
                }
            }
        }
    }

    fn scattered(step: u32) -> u32 {
        step.wrapping_mul(0x9e37_79b1) >> 7
    }

    #[test]
    fn the_same_as_a_map() {
        check(1, 5, |step| step, |step| step % 2 == 1);
        check(10_000, 10_000, |step| step, |_| false);
        check(3000, 3000, |step| 3000 - step, |_| false);
        check(3000, 20_000, scattered, |step| step % 3 == 1);
        check(3000, 20_000, scattered, |step| step > 6000 && step % 50 != 0);
    }

    #[test]
    fn names_in_order_fill_their_chunks_and_few_are_few_chunks() {
        let mut kids = Kids::new();
        let paths: Vec<String> = (0..8 * 256).map(|number| format!("/{number:06}")).collect();
        paths.iter().for_each(|path| kids.set(&at(path), Mark::Added));
        assert_eq!(kids.chunks.len(), 8);
        for (path, number) in paths.iter().zip(0..) {
            if number % 32 != 0 {
                kids.remove(path::name(path));
            }
        }
        assert_eq!((kids.len(), kids.chunks.len()), (64, 1));
    }

    #[test]
    fn the_lists_of_very_many_are_short_and_few() {
        const CHUNKS: u32 = 600;
        const EACH: u32 = 256;
        let (mut kids, mut model) = (Kids::new(), BTreeMap::<String, Mark>::new());
        let mut set = |kids: &mut Kids, number: u32| {
            let path = format!("/{number:07}");
            kids.set(&at(&path), Mark::Added);
            model.insert(String::from(path::name(&path)), Mark::Added);
        };
        (0..CHUNKS * EACH).for_each(|number| set(&mut kids, number * 2));
        assert_eq!((kids.before().len(), kids.chunks.len()), (2, 88), "names in order fill their groups");
        // Each full chunk is split, the last one first.
        (0..CHUNKS).rev().for_each(|chunk| set(&mut kids, chunk * EACH * 2 + EACH + 1));
        assert!(kids.before().iter().chain([&kids.chunks]).all(is_short));
        let same = |kids: &Kids, model: &BTreeMap<String, Mark>| {
            let expected = || model.iter().map(|(name, mark)| (name.as_str(), *mark));
            assert!(kids.iter().eq(expected()));
            for from in (0..CHUNKS * EACH * 2).step_by(1021) {
                let from = format!("{from:07}");
                let behind = model.range::<str, _>((Bound::Excluded(&*from), Bound::Unbounded)).take(300);
                assert!(kids.iter_after(&from).take(300).eq(behind.map(|(name, mark)| (name.as_str(), *mark))));
            }
        };
        same(&kids, &model);
        // Most go, group by group; then all.
        for (number, name) in (0..).zip(model.keys().cloned().collect::<Vec<String>>()) {
            if number % 97 != 0 {
                kids.remove(&name);
                model.remove(&name);
            }
        }
        assert!(kids.before().iter().chain([&kids.chunks]).all(is_short));
        assert!(kids.before().is_empty() && kids.chunks.len() < 64, "{} groups more", kids.before().len());
        same(&kids, &model);
        model.keys().for_each(|name| kids.remove(name));
        assert!(kids.is_empty() && kids.bytes() == 0 && kids.chunks.is_empty());
    }
}
