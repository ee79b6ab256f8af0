//! Sorted names with the marks of a layer laid over them.

use crate::tree::kids::{self, Kids, Mark};
use core::cmp::Ordering;
use core::mem;

/// Sorted names with a layer's marks laid over them.
#[derive(Clone, Debug)]
pub struct Overlay<'v, I: Iterator<Item = &'v str>> {
    below: I,
    below_next: Option<&'v str>,
    marks: kids::Iter<'v>,
    mark_next: Option<(&'v str, Mark)>,
}

/// Lays marks over names. Passes at once over the deleted names in front of the first child of the lower layers. So the
/// caller checks the size of the list before.
pub(crate) fn overlay<'v, I: Iterator<Item = &'v str>>(below: I, marks: Option<&'v Kids>) -> Overlay<'v, I> {
    static NONE: Kids = Kids::new();
    let mut over = Overlay { below, below_next: None, marks: marks.unwrap_or(&NONE).iter(), mark_next: None };
    over.below_next = over.below.next();
    over.advance_mark();
    over
}

impl<'v, I: Iterator<Item = &'v str>> Overlay<'v, I> {
    #[inline]
    fn advance_mark(&mut self) {
        self.mark_next = self.marks.next();
    }
}

impl<'v, I: Iterator<Item = &'v str>> Iterator for Overlay<'v, I> {
    type Item = &'v str;

    #[inline]
    fn next(&mut self) -> Option<&'v str> {
        loop {
            let Some((name, mark)) = self.mark_next else {
                let name = self.below_next?;
                self.below_next = self.below.next();
                return Some(name);
            };
            match self.below_next.map_or(Ordering::Greater, |below| below.cmp(name)) {
                Ordering::Less => return mem::replace(&mut self.below_next, self.below.next()),
                Ordering::Equal => self.below_next = self.below.next(),
                Ordering::Greater => {}
            }
            self.advance_mark();
            if mark == Mark::Added {
                return Some(name);
            }
        }
    }
}
