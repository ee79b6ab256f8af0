//! A znode's list of children in pieces: the names behind one of them.
//!
//! A piece is cut by the marks and names it looks at, not by the names it gives. If all children were deleted since the
//! last snapshot, a list takes as long to read as before. Between two pieces the view may move and the snapshot be
//! replaced; the place is a name. On the core of its view.

use super::layers::{Layers, List};
use crate::ids::Zxid;
use crate::tree::kids::{self, Mark};
use crate::tree::snapshot::Names;
use alloc::string::String;

/// Bytes of a name that count for another one.
const NAME_BYTES: usize = 64;

/// Where a reading in pieces has come to.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListPosition {
    /// The last name looked at; `None` before the first.
    pub(crate) after: Option<String>,
    /// The snapshot that was read, and how many bytes of its list lie before the place.
    snapshot: Zxid,
    skipped: usize,
}

/// The children behind a place, and the marks of deleted ones.
pub(crate) struct Steps<'v> {
    /// The snapshot's names that are not passed, and behind the first of them.
    names: Names<'v>,
    name: Option<&'v str>,
    behind: Names<'v>,
    /// Bytes of all of the snapshot's names.
    bytes: usize,
    frozen: Marks<'v>,
    live: Marks<'v>,
}

/// A layer's marks that are not passed.
struct Marks<'v> {
    first: Option<(&'v str, Mark)>,
    behind: kids::Iter<'v>,
}

impl<'v> Marks<'v> {
    fn new(mut behind: kids::Iter<'v>) -> Self {
        Self { first: behind.next(), behind }
    }

    #[inline]
    fn pass(&mut self) {
        self.first = self.behind.next();
    }
}

/// Returns the children behind `place`; none if there is no such znode. `None` when the snapshot was replaced, and
/// `names_left` is used up before the place is found in the new snapshot. The next call goes on from there. A long
/// name counts for several.
pub(super) fn children_behind<'v>(
    layers: Layers<'v>,
    path: &str,
    hash: u64,
    place: &mut ListPosition,
    names_left: &mut u32,
) -> Option<Steps<'v>> {
    let List { live, frozen, mut names, .. } = layers.list(path, hash).unwrap_or_default();
    let snapshot = layers.below.snapshot.zxid();
    if place.snapshot != snapshot {
        (place.snapshot, place.skipped) = (snapshot, 0);
    }
    let all = names.bytes();
    names.skip_bytes(place.skipped);
    if let Some(after) = place.after.as_deref() {
        let mut rest = names.clone();
        while *names_left > 0
            && let Some(name) = rest.next().filter(|name| *name <= after)
        {
            names = rest.clone();
            *names_left = names_left.saturating_sub(1 + u32::try_from(name.len() / NAME_BYTES).unwrap_or(u32::MAX));
        }
        place.skipped = all - names.bytes();
        if *names_left == 0 {
            return None;
        }
    }
    let mut rest = names.clone();
    let name = rest.next();
    Some(Steps {
        names,
        name,
        behind: rest,
        bytes: all,
        frozen: Marks::new(behind(frozen, place.after.as_deref())),
        live: Marks::new(behind(live, place.after.as_deref())),
    })
}

fn behind<'v>(kids: Option<&'v kids::Kids>, after: Option<&str>) -> kids::Iter<'v> {
    static NONE: kids::Kids = kids::Kids::new();
    let kids = kids.unwrap_or(&NONE);
    after.map_or_else(|| kids.iter(), |name| kids.iter_after(name))
}

impl ListPosition {
    /// The last name looked at is this one.
    pub(crate) fn pass(&mut self, name: &str) {
        let after = self.after.get_or_insert_default();
        after.clear();
        after.push_str(name);
    }
}

impl<'v> Steps<'v> {
    /// The next name, which is not passed yet.
    pub(crate) fn peek(&self) -> Option<&'v str> {
        let heads = [self.name, self.frozen.first.map(|kid| kid.0), self.live.first.map(|kid| kid.0)];
        heads.into_iter().flatten().min()
    }

    /// The last name looked at is this one, and no name in front of it is left.
    pub(crate) fn leave(self, place: &mut ListPosition, last: &str) {
        place.pass(last);
        place.skipped = self.bytes - self.names.bytes();
    }

    #[inline]
    fn pass_name(&mut self) {
        self.names = self.behind.clone();
        self.name = self.behind.next();
    }
}

impl<'v> Steps<'v> {
    fn next_of_layers(&mut self) -> Option<(&'v str, bool)> {
        let first = self.peek()?;
        let mut there = self.name == Some(first);
        if there {
            self.pass_name();
        }
        for marks in [&mut self.frozen, &mut self.live] {
            if let Some((_, mark)) = marks.first.filter(|kid| kid.0 == first) {
                there = mark == Mark::Added;
                marks.pass();
            }
        }
        Some((first, there))
    }
}

impl<'v> Iterator for Steps<'v> {
    /// A name, and whether there is such a child.
    type Item = (&'v str, bool);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        // Nearly always all that is left is of one layer.
        let one = match (self.name, &mut self.frozen, &mut self.live) {
            (Some(name), Marks { first: None, .. }, Marks { first: None, .. }) => {
                self.pass_name();
                return Some((name, true));
            }
            (None, one, Marks { first: None, .. }) | (None, Marks { first: None, .. }, one) => one,
            _ => return self.next_of_layers(),
        };
        let (name, mark) = one.first?;
        one.pass();
        Some((name, mark == Mark::Added))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::Text;
    use crate::tree::acl::Acl;
    use crate::tree::change::Change;
    use crate::tree::snapshot::merge_in_memory;
    use crate::tree::view::View;
    use crate::tree::znode::{NodeStat, Znode};
    use alloc::format;
    use alloc::sync::Arc;
    use alloc::vec::Vec;

    fn snapshot_of(view: &mut View) {
        let frozen = view.freeze();
        let snapshot = merge_in_memory(view.snapshot(), &frozen, 1, Vec::new(), Vec::new()).expect("a sound tree");
        view.swap_snapshot(Arc::new(snapshot));
    }

    fn create(view: &mut View, path: &str) {
        let node = Arc::new(Znode { stat: NodeStat::default(), acl: Acl::Open, data: None });
        let at = view.hashed(Text::from(path));
        view.apply(view.zxid(), &Change::Created { at, node });
    }

    #[test]
    fn the_place_is_found_again_in_pieces_when_the_snapshot_was_replaced() {
        const CHILDREN: u32 = 1000;
        let mut view = View::empty(7);
        view.set_zxid(Zxid(1));
        (0..CHILDREN).for_each(|number| create(&mut view, &format!("/{number:04}")));
        snapshot_of(&mut view);
        let (mut place, hash) = (ListPosition::default(), view.hasher().hash("/"));
        let take = |view: &View, place: &mut ListPosition, count: usize| {
            let mut names_left = 100;
            let mut steps = view.children_behind("/", hash, place, &mut names_left)?;
            let names: Vec<String> = steps.by_ref().take(count).map(|(name, _)| String::from(name)).collect();
            if let Some(last) = names.last() {
                steps.leave(place, last);
            }
            Some(names)
        };
        assert_eq!(take(&view, &mut place, 750).map(|names| names.len()), Some(750));
        view.set_zxid(Zxid(2));
        create(&mut view, "/0000-long");
        snapshot_of(&mut view);
        let calls = (1..).find_map(|call| Some((call, take(&view, &mut place, 1000)?))).expect("it is found");
        assert_eq!((calls.0, calls.1[0].as_str(), calls.1.len()), (8, "0750", 251), "and `zookeeper` is the last");
        assert_eq!(take(&view, &mut place, 1), Some(Vec::new()), "at once");
    }
}
