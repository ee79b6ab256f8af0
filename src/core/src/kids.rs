//! A layer's child marks of one znode, sorted by name.
//!
//! Part of a delta, so it grows on the core of its view and is only read once frozen. Most znodes get their children in
//! the order of the names, as sequential znodes do: those go to the end after one comparison. The list is cut into
//! chunks, so that a child in the midst of a million moves no more than a chunk's worth of others.

use crate::shared::{HashedPath, Text};
use alloc::vec::Vec;
use core::mem::size_of;
use core::slice;

/// Marks of one chunk at most. With 256 a random insert among a million children moves 3 KiB within its chunk and, once
/// in 128 times, 120 KiB of the list of chunks.
const CHUNK_MAX: usize = 256;
/// A chunk that shrinks below this is joined with a neighbour, if both have room in one.
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

/// A child's name, as the tail of its path's shared allocation, and what is said of it.
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

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kids {
    /// Sorted, none of them empty.
    chunks: Vec<Vec<Kid>>,
    len: usize,
    /// Bytes of all names.
    bytes: usize,
}

/// Where a name is, or where it would go: chunk and place within it.
type Place = (usize, usize);

impl Kids {
    pub(crate) const fn new() -> Self {
        Self { chunks: Vec::new(), len: 0, bytes: 0 }
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
        let (chunk, at) = match self.find(name) {
            Ok((chunk, at)) => (chunk, at + 1),
            Err(place) => place,
        };
        let kids = self.chunks.get(chunk).map_or(&[][..], |kids| &kids[at..]);
        Iter { chunks: self.chunks.get(chunk + 1..).unwrap_or_default().iter(), kids: kids.iter() }
    }

    /// Names with their marks, sorted by the names' bytes.
    pub(crate) fn iter(&self) -> Iter<'_> {
        Iter { chunks: self.chunks.iter(), kids: [].iter() }
    }

    /// Marks the child of this path. The path's allocation replaces that of a former mark: it may belong to a znode that
    /// is gone.
    pub(crate) fn set(&mut self, child: &HashedPath, mark: Mark) {
        let kid = Kid::new(child, mark);
        match self.find(kid.name()) {
            Ok((chunk, at)) => self.chunks[chunk][at] = kid,
            Err(place) => self.insert(place, kid),
        }
    }

    /// Takes a mark away, if there is one.
    pub(crate) fn remove(&mut self, name: &str) {
        let Ok((chunk, at)) = self.find(name) else { return };
        self.bytes -= self.chunks[chunk].remove(at).name().len();
        self.len -= 1;
        self.join(chunk);
    }

    fn find(&self, name: &str) -> Result<Place, Place> {
        let Some(last) = self.chunks.last() else { return Err((0, 0)) };
        if last.last().is_some_and(|kid| kid.name() < name) {
            return Err((self.chunks.len() - 1, last.len()));
        }
        // The first chunk that ends at the name or behind it; the last one does.
        let chunk = self.chunks.partition_point(|chunk| chunk.last().is_some_and(|kid| kid.name() < name));
        match self.chunks[chunk].binary_search_by(|kid| kid.name().cmp(name)) {
            Ok(at) => Ok((chunk, at)),
            Err(at) => Err((chunk, at)),
        }
    }

    fn insert(&mut self, (chunk, at): Place, kid: Kid) {
        self.len += 1;
        self.bytes += kid.name().len();
        let Some(kids) = self.chunks.get_mut(chunk) else {
            self.chunks = Vec::with_capacity(1);
            self.chunks.push(Vec::from([kid]));
            return;
        };
        if kids.len() < CHUNK_MAX {
            return kids.insert(at, kid);
        }
        // Names that come in their order leave full chunks behind, others half full ones.
        let mut behind = if at == CHUNK_MAX { Vec::new() } else { kids.split_off(CHUNK_MAX / 2) };
        match at.checked_sub(kids.len()) {
            None => kids.insert(at, kid),
            Some(at) => behind.insert(at, kid),
        }
        self.chunks.insert(chunk + 1, behind);
    }

    /// Joins a chunk that has become small with the next one, or the one before it.
    fn join(&mut self, chunk: usize) {
        let few = self.chunks[chunk].len();
        if few == 0 {
            self.chunks.remove(chunk);
            return;
        }
        if few >= CHUNK_FEW {
            return;
        }
        let fits = |first: usize| {
            self.chunks.get(first + 1).is_some_and(|next| self.chunks[first].len() + next.len() <= JOINED_MAX)
        };
        let first = match chunk.checked_sub(1) {
            _ if fits(chunk) => chunk,
            Some(before) if fits(before) => before,
            _ => return,
        };
        let mut next = self.chunks.remove(first + 1);
        self.chunks[first].append(&mut next);
    }
}

/// See [`Kids::iter`].
#[derive(Clone, Debug)]
pub(crate) struct Iter<'k> {
    chunks: slice::Iter<'k, Vec<Kid>>,
    kids: slice::Iter<'k, Kid>,
}

impl<'k> Iterator for Iter<'k> {
    type Item = (&'k str, Mark);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(kid) = self.kids.next() {
                return Some((kid.name(), kid.mark));
            }
            self.kids = self.chunks.next()?.iter();
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

    fn at(path: &str) -> HashedPath {
        HashedPath::new(Text::from(path), false, |_| 0)
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
            assert!(kids.chunks.iter().all(|chunk| (1..=CHUNK_MAX).contains(&chunk.len())));
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
}
