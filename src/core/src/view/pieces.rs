//! A znode's list of children in pieces: how large it is in all layers, and the names behind one of them.
//!
//! A piece is cut by the marks and names it looks at, not by the names it gives: a list whose children were all deleted
//! since the last image is as long to read as before. Between two pieces the view may move and the image be replaced; the
//! place is a name. On the core of its view.

use super::{Children, Entry, View, overlay, present_kids};
use crate::ids::Zxid;
use crate::image::Names;
use crate::kids::{self, Mark};
use alloc::string::String;

/// What reading a list of children costs at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChildrenSize {
    /// Names and marks in all layers.
    pub(crate) entries: usize,
    /// Bytes of them.
    pub(crate) bytes: usize,
}

/// Where a reading in pieces has come to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    /// The last name looked at; `None` before the first.
    pub(crate) after: Option<String>,
    /// The image that was read, and how many bytes of its list lie before the place.
    image: Zxid,
    skipped: usize,
}

/// The children behind a place, and the marks of those that are deleted.
pub(crate) struct Steps<'v> {
    /// The image's names that are not passed, and behind the first of them.
    names: Names<'v>,
    name: Option<&'v str>,
    behind: Names<'v>,
    /// Bytes of all of the image's names.
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

struct Layers<'v> {
    live: Option<&'v kids::Kids>,
    frozen: Option<&'v kids::Kids>,
    names: Names<'v>,
    count: usize,
}

impl View {
    /// The layers of a list of children, from the top down to the first that hides all below it. `None` if there is no such
    /// znode.
    fn layers(&self, path: &str, hash: u64) -> Option<Layers<'_>> {
        let live = self.live.entry(path, hash);
        let frozen = self.frozen.as_ref().and_then(|frozen| frozen.entry(path, hash));
        let top = live.or(frozen);
        if let Some(entry) = top {
            entry.state.node()?;
        }
        let hidden = |entry: Option<&Entry>| entry.is_some_and(|entry| !entry.state.shows_below());
        let frozen_kids = if hidden(live) { None } else { frozen.and_then(present_kids) };
        let image = if hidden(live) || hidden(frozen) { None } else { self.image.find(path, hash) };
        if top.is_none() && image.is_none() {
            return None;
        }
        let names = image.map_or_else(Names::default, |node| node.names());
        let count = image.map_or(0, |node| node.stat().num_children as usize);
        Some(Layers { live: live.and_then(present_kids), frozen: frozen_kids, names, count })
    }

    /// The names of a znode's children, see [`View::children`], and how many names and marks they are made of.
    pub(crate) fn children_and_size(&self, path: &str, hash: u64) -> Option<(ChildrenSize, Children<'_>)> {
        let Layers { live, frozen, names, count } = self.layers(path, hash)?;
        let kids = [live, frozen].into_iter().flatten();
        let (marks, bytes) = kids.fold((0, 0), |(len, bytes), kids| (len + kids.len(), bytes + kids.bytes()));
        let size = ChildrenSize { entries: count + marks, bytes: names.bytes() + bytes };
        Some((size, overlay(overlay(names, frozen), live)))
    }

    /// The children behind `place`; none if there is no such znode.
    pub(crate) fn children_behind(&self, path: &str, hash: u64, place: &mut Place) -> Steps<'_> {
        let none = || Layers { live: None, frozen: None, names: Names::default(), count: 0 };
        let Layers { live, frozen, mut names, .. } = self.layers(path, hash).unwrap_or_else(none);
        if place.image != self.image.zxid() {
            (place.image, place.skipped) = (self.image.zxid(), 0);
        }
        let all = names.bytes();
        names.skip_bytes(place.skipped);
        if let Some(after) = place.after.as_deref() {
            let mut rest = names.clone();
            while rest.next().is_some_and(|name| name <= after) {
                names = rest.clone();
            }
            place.skipped = all - names.bytes();
        }
        let mut rest = names.clone();
        let name = rest.next();
        Steps {
            names,
            name,
            behind: rest,
            bytes: all,
            frozen: Marks::new(behind(frozen, place.after.as_deref())),
            live: Marks::new(behind(live, place.after.as_deref())),
        }
    }
}

fn behind<'v>(kids: Option<&'v kids::Kids>, after: Option<&str>) -> kids::Iter<'v> {
    static NONE: kids::Kids = kids::Kids::new();
    let kids = kids.unwrap_or(&NONE);
    after.map_or_else(|| kids.iter(), |name| kids.iter_after(name))
}

impl Place {
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
    pub(crate) fn leave(self, place: &mut Place, last: &str) {
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
