//! The subtrees that have a quota, by the parts of their paths: each write below one looks for the deepest that contains it.
//!
//! Looking for it takes one search among names for each part of the path that leads to any of them.

use crate::shared::Text;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Subtrees {
    root: Branch,
    count: usize,
}

#[derive(Debug, Default)]
struct Branch {
    /// The path, if this subtree has a quota.
    subtree: Option<Text>,
    /// Ordered, because clients choose the names: with a hash they could choose colliding ones.
    below: BTreeMap<Box<str>, Branch>,
}

impl Subtrees {
    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) const fn len(&self) -> usize {
        self.count
    }

    pub(super) fn insert(&mut self, path: &str) {
        let mut branch = &mut self.root;
        for part in parts(path) {
            branch = branch.below.entry(Box::from(part)).or_default();
        }
        self.count += usize::from(branch.subtree.replace(Text::from(path)).is_none());
    }

    pub(super) fn remove(&mut self, path: &str) {
        if self.deepest(path).is_some_and(|found| **found == *path) {
            self.root.remove(path.strip_prefix('/').unwrap_or(path));
            self.count -= 1;
        }
    }

    /// The deepest of them that contains the path.
    pub(super) fn deepest(&self, path: &str) -> Option<&Text> {
        let (mut branch, mut found) = (&self.root, None);
        for part in parts(path) {
            branch = match branch.below.get(part) {
                Some(next) => next,
                None => break,
            };
            found = branch.subtree.as_ref().or(found);
        }
        found
    }
}

impl Branch {
    /// Takes the quota off what lies there below this one, and the branches that lead nowhere any more.
    fn remove(&mut self, path: &str) {
        let (part, rest) = path.split_once('/').map_or((path, None), |(part, rest)| (part, Some(rest)));
        let Some(next) = self.below.get_mut(part) else { return };
        match rest {
            Some(rest) => next.remove(rest),
            None => next.subtree = None,
        }
        if next.subtree.is_none() && next.below.is_empty() {
            self.below.remove(part);
        }
    }
}

/// The parts of an absolute path.
fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.strip_prefix('/').unwrap_or(path).split('/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::string::String;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn contains(subtree: &str, path: &str) -> bool {
        path.strip_prefix(subtree).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    proptest! {
        #[test]
        fn the_deepest_is_found_among_any(
            steps in vec((any::<bool>(), "(/[ab]{1,2}){1,4}"), 0..40),
            path in "(/[ab]{1,2}){1,6}",
        ) {
            let (mut subtrees, mut model) = (Subtrees::default(), BTreeSet::<String>::new());
            for (adds, one) in steps {
                if adds {
                    subtrees.insert(&one);
                    model.insert(one);
                } else {
                    subtrees.remove(&one);
                    model.remove(&one);
                }
                prop_assert_eq!((subtrees.len(), subtrees.is_empty()), (model.len(), model.is_empty()));
                let expected = model.iter().filter(|one| contains(one, &path)).max_by_key(|one| one.len());
                prop_assert_eq!(subtrees.deepest(&path).map(|found| &**found), expected.map(|one| &**one));
            }
            model.iter().for_each(|one| subtrees.remove(one));
            prop_assert!(subtrees.is_empty() && subtrees.root.below.is_empty());
        }
    }
}
