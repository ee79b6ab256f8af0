//! The ephemerals of one session: a sorted list of paths that is shared for nothing and changed for little.
//!
//! Each connection that attaches to the session gets a clone, and so does every snapshot. Pieces of the list are shared
//! until one side changes them: a change copies one piece and the list of pieces, not the list.

use crate::shared::Text;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Bound;

/// Paths of one piece at most.
const PIECE_MAX: usize = 128;
/// A piece that shrinks below this is joined with a neighbour, if both have room in one.
const PIECE_FEW: usize = PIECE_MAX / 4;
const JOINED_MAX: usize = PIECE_MAX / 2;

/// Paths of a session's ephemerals, sorted: the order in which closing removes them. Most sessions have none, so that
/// case takes a pointer's room.
#[derive(Clone, Debug, Default)]
pub struct Ephemerals(Option<Arc<List>>);

#[derive(Clone, Debug, Default)]
struct List {
    /// None is empty.
    pieces: Vec<Arc<Vec<Text>>>,
    len: usize,
    /// Of all paths.
    bytes: usize,
}

impl Ephemerals {
    /// Whether the path is new.
    pub fn insert(&mut self, path: Text) -> bool {
        let bytes = path.len();
        let list = Arc::make_mut(self.0.get_or_insert_default());
        let at = list.piece_of(&path).min(list.pieces.len().saturating_sub(1));
        let Some(piece) = list.pieces.get_mut(at) else {
            list.pieces.push(Arc::new(vec![path]));
            (list.len, list.bytes) = (1, bytes);
            return true;
        };
        let Err(place) = piece.binary_search(&path) else { return false };
        let piece = Arc::make_mut(piece);
        piece.insert(place, path);
        list.len += 1;
        list.bytes += bytes;
        if piece.len() > PIECE_MAX {
            // Growing names fill their pieces.
            let upper = piece.split_off(if place == PIECE_MAX { PIECE_MAX } else { PIECE_MAX / 2 });
            list.pieces.insert(at + 1, Arc::new(upper));
        }
        true
    }

    /// Whether the path was there.
    pub fn remove(&mut self, path: &str) -> bool {
        let Some(shared) = &mut self.0 else { return false };
        let at = shared.piece_of(path);
        let Some(Ok(place)) = shared.pieces.get(at).map(|piece| piece.binary_search_by(|other| (**other).cmp(path)))
        else {
            return false;
        };
        let list = Arc::make_mut(shared);
        let piece = Arc::make_mut(&mut list.pieces[at]);
        piece.remove(place);
        list.len -= 1;
        list.bytes -= path.len();
        if piece.len() < PIECE_FEW {
            list.join(at);
        }
        if list.len == 0 {
            self.0 = None;
        }
        true
    }

    /// Number of paths.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |list| list.len)
    }

    /// Bytes of all paths.
    pub fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |list| list.bytes)
    }

    /// Whether there is no path.
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The paths, sorted.
    pub fn iter(&self) -> impl Iterator<Item = &Text> {
        self.0.iter().flat_map(|list| &list.pieces).flat_map(|piece| piece.iter())
    }

    /// Those from there on.
    pub fn from<'a>(&'a self, from: Bound<&str>) -> impl Iterator<Item = &'a Text> + use<'a> {
        let list = self.0.as_deref();
        let (at, place) = match (list, from) {
            (Some(list), Bound::Included(path) | Bound::Excluded(path)) => {
                let at = list.piece_of(path);
                let before = |other: &Text| &**other < path || matches!(from, Bound::Excluded(_)) && &**other == path;
                (at, list.pieces.get(at).map_or(0, |piece| piece.partition_point(before)))
            }
            _ => (0, 0),
        };
        let pieces = list.map_or(&[][..], |list| &list.pieces[at..]);
        pieces.iter().flat_map(|piece| piece.iter()).skip(place)
    }
}

impl List {
    /// Returns the first piece with a last path that is not before this one.
    fn piece_of(&self, path: &str) -> usize {
        self.pieces.partition_point(|piece| piece.last().is_some_and(|last| &**last < path))
    }

    /// Joins a piece that has become small with the next one, or the one before it. An empty piece is removed.
    fn join(&mut self, at: usize) {
        if self.pieces[at].is_empty() {
            self.pieces.remove(at);
            return;
        }
        let fits = |first: usize| {
            self.pieces.get(first + 1).is_some_and(|next| self.pieces[first].len() + next.len() <= JOINED_MAX)
        };
        let first = match at.checked_sub(1) {
            _ if fits(at) => at,
            Some(before) if fits(before) => before,
            _ => return,
        };
        let next = self.pieces.remove(first + 1);
        Arc::make_mut(&mut self.pieces[first]).extend(Arc::unwrap_or_clone(next));
    }
}

impl PartialEq for Ephemerals {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Eq for Ephemerals {}

impl FromIterator<Text> for Ephemerals {
    fn from_iter<I: IntoIterator<Item = Text>>(paths: I) -> Self {
        let mut paths: Vec<Text> = paths.into_iter().collect();
        paths.sort_unstable();
        paths.dedup();
        let pieces: Vec<_> = paths.chunks(PIECE_MAX).map(|piece| Arc::new(piece.to_vec())).collect();
        let bytes = paths.iter().map(|path| path.len()).sum();
        Self((!paths.is_empty()).then(|| Arc::new(List { pieces, len: paths.len(), bytes })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::format;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn path(number: u16) -> Text {
        Text::from(&*format!("/{number:05}"))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn is_a_sorted_set_whose_clones_are_independent(
            first in vec(0_u16..2000, 0..600),
            steps in vec((0_u16..2000, any::<bool>()), 0..1500),
            froms in vec(0_u16..2000, 0..8),
        ) {
            let mut model: BTreeSet<Text> = first.iter().copied().map(path).collect();
            let mut list: Ephemerals = model.iter().cloned().collect();
            let (before, then) = (list.clone(), model.clone());
            for (number, inserts) in steps {
                let path = path(number);
                if inserts {
                    prop_assert_eq!(list.insert(path.clone()), model.insert(path));
                } else {
                    prop_assert_eq!(list.remove(&path), model.remove(&path));
                }
                prop_assert_eq!((list.len(), list.is_empty()), (model.len(), model.is_empty()));
                prop_assert_eq!(list.bytes(), model.iter().map(|path| path.len()).sum::<usize>());
            }
            prop_assert!(list.iter().eq(model.iter()) && before.iter().eq(then.iter()));
            prop_assert_eq!(&list, &model.iter().cloned().collect());
            for from in froms.into_iter().map(path) {
                prop_assert!(list.from(Bound::Included(&*from)).eq(model.range(from.clone()..)));
                let behind = (Bound::Excluded(from.clone()), Bound::Unbounded);
                prop_assert!(list.from(Bound::Excluded(&*from)).eq(model.range(behind)));
            }
            prop_assert!(list.from(Bound::Unbounded).eq(model.iter()));
        }
    }

    #[test]
    fn a_change_of_a_shared_list_copies_one_piece() {
        let mut list: Ephemerals = (0..20_000).map(path).collect();
        let shared = list.clone();
        let pieces = |list: &Ephemerals| list.0.as_ref().expect("it has some").pieces.clone();
        assert!(list.insert(Text::from("/00777x")) && list.remove("/19999"));
        let same =
            pieces(&list).iter().filter(|piece| pieces(&shared).iter().any(|other| Arc::ptr_eq(other, piece))).count();
        assert!(same >= 20_000 / PIECE_MAX - 2, "{same} pieces are still shared");
        let grown = (0..1280).map(path).fold(Ephemerals::default(), |mut list, path| {
            list.insert(path);
            list
        });
        assert_eq!(pieces(&grown).len(), 10, "growing names fill their pieces");
    }

    #[test]
    fn few_paths_are_few_pieces() {
        let number = |path: &Text| path[1..].parse::<usize>().expect("a number");
        let mut list: Ephemerals = (0..20_000).map(path).collect();
        let pieces = |list: &Ephemerals| list.0.as_ref().map_or(0, |list| list.pieces.len());
        assert_eq!(pieces(&list), 157);
        let shared = list.clone();
        // One path of each piece stays.
        for gone in shared.iter().filter(|path| number(path) % PIECE_MAX != 0) {
            assert!(list.remove(gone));
        }
        assert_eq!(list.len(), 157);
        assert!(pieces(&list) <= 157 / (PIECE_FEW / 2), "{} pieces", pieces(&list));
        assert_eq!((shared.len(), pieces(&shared)), (20_000, 157));
        let stay: Vec<usize> = list.iter().map(number).collect();
        assert!(stay.iter().eq(&Vec::from_iter((0..20_000).step_by(PIECE_MAX))));
    }
}
