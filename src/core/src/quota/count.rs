//! Counts what a subtree uses, in pieces: a large one takes seconds, and no core is held for so long.
//!
//! The leader counts on its own state, a piece at a time, while the tree changes. Changes of znodes that were visited
//! already go into the sum. Changes of the rest are found when the walk comes there. So the sum is exact when the walk
//! ends. Nothing of this is replicated but the result, see [`Counted`].

use crate::ids::Zxid;
use crate::path;
use crate::shared::Text;
use crate::tree::view::{ListPosition, View};
use alloc::string::String;
use alloc::vec::Vec;

/// Znodes that a new usage znode may have counted at once, those of long paths more than once. A larger subtree is
/// counted by the leader, in pieces.
///
/// Not configurable, because it decides how the log is replayed.
pub(crate) const COUNTED_AT_ONCE_MAX: u32 = 1000;
/// Most deleted children below all znodes that the counts at once of one transaction visit. Marks of them may be there,
/// and are passed over.
pub(super) const DELETIONS_AT_ONCE_MAX: u64 = 1000;
/// Znodes that the leader counts in one piece: a few milliseconds.
pub(super) const COUNT_PIECE: u32 = if cfg!(test) { 400 } else { 8000 };
/// Names, and marks of deleted names, in one piece, by and large.
pub(super) const NAMES_PIECE: u32 = 200_000;

/// The usage of a subtree when its usage znode was created, to which later changes were added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The usage znode.
    pub path: Text,
    /// Of the usage znode, which must be the same still.
    pub mzxid: u64,
    /// Znodes of the subtree, its root included.
    pub znodes: i64,
    /// Bytes of the data of these znodes. Paths do not count.
    pub bytes: i64,
}

/// The children of a znode, as far as they were visited.
#[derive(Debug)]
struct Level {
    parent: String,
    /// Behind the child that was visited last.
    place: ListPosition,
    /// Names behind it, each followed by a NUL. Good for one piece only: the tree changes in between.
    names: String,
    at: usize,
    /// No more lie behind these.
    whole: bool,
}

/// A count under way.
#[derive(Debug)]
pub(super) struct Count {
    /// The usage znode that it is for.
    pub(super) stats: Text,
    pub(super) mzxid: Zxid,
    root: String,
    levels: Vec<Level>,
    pub(super) znodes: i64,
    pub(super) bytes: i64,
    /// Deletions of children that may yet be passed over; `None` when there are more.
    pub(super) deletions_left: Option<u64>,
    /// The walk is over, and its result is on its way into the log.
    pub(super) over: bool,
}

impl Count {
    /// Visits the root of the subtree. The count comes to no end when more than `deletions_max` children were deleted below the
    /// znodes that it visits.
    pub(super) fn begin(view: &View, root: &str, stats: &Text, mzxid: Zxid, deletions_max: u64) -> Self {
        let root = String::from(path::or_root(root));
        let stats = stats.clone();
        let mut count = Self {
            stats,
            mzxid,
            root,
            levels: Vec::new(),
            znodes: 0,
            bytes: 0,
            deletions_left: Some(deletions_max),
            over: false,
        };
        let root = count.root.clone();
        count.visit(view, root);
        count
    }

    fn visit(&mut self, view: &View, path: String) {
        let Some(node) = view.get(&path) else { return };
        self.znodes += 1;
        self.bytes = self.bytes.saturating_add(i64::try_from(node.data().map_or(0, <[u8]>::len)).unwrap_or(i64::MAX));
        if node.stat().num_children > 0 {
            let deletions = u64::from(node.stat().deletions());
            self.deletions_left = self.deletions_left.and_then(|left| left.checked_sub(deletions));
            self.levels.push(Level {
                parent: path,
                place: ListPosition::default(),
                names: String::new(),
                at: 0,
                whole: false,
            });
        }
    }

    /// Visits so many more znodes, or looks at about so many more names and marks of deleted ones. True when all have
    /// been visited.
    pub(super) fn piece(&mut self, view: &View, znodes: u32, names: u32) -> bool {
        for level in &mut self.levels {
            level.names.clear();
            (level.at, level.whole) = (0, false);
        }
        let (mut left, mut names_left) = (znodes, names);
        while let Some(level) = self.levels.last_mut() {
            if left == 0 || names_left == 0 || self.deletions_left.is_none() {
                return false;
            }
            let Some((name, _)) = level.names[level.at..].split_once('\0') else {
                if level.whole {
                    self.levels.pop();
                } else {
                    names_left = names_left.saturating_sub(level.fill(view, left, names_left));
                }
                continue;
            };
            level.at += name.len() + 1;
            let path = path::child(&level.parent, name);
            level.place.pass(name);
            left = left.saturating_sub(visits(&path));
            self.visit(view, path);
        }
        true
    }

    /// A znode was created, deleted or given other data; these numbers are what that adds.
    pub(super) fn note(&mut self, path: &str, (znodes, bytes): (i64, i64)) {
        if self.visited(path) {
            self.znodes = self.znodes.saturating_add(znodes);
            self.bytes = self.bytes.saturating_add(bytes);
        }
    }

    fn visited(&self, path: &str) -> bool {
        if path == self.root {
            return true;
        }
        if below(&self.root, path).is_none() {
            return false;
        }
        // The levels lie below each other: of all but the last that the path is below it is below the child visited
        // last.
        let above = self.levels.partition_point(|level| below(&level.parent, path).is_some());
        let Some(level) = above.checked_sub(1).and_then(|at| self.levels.get(at)) else { return true };
        // Of a subtree that the walk has left, all was visited.
        let name = below(&level.parent, path).and_then(|rest| rest.split('/').next());
        level.place.after.as_deref() >= name
    }
}

impl Level {
    /// Takes the next names, and tells how many it looked at. Behind what it leaves out nothing was there to be
    /// visited.
    fn fill(&mut self, view: &View, take: u32, names_max: u32) -> u32 {
        self.names.clear();
        self.at = 0;
        let (mut looked, mut taken) = (0_u32, 0);
        let hash = view.hasher().hash(&self.parent);
        let mut names_left = names_max;
        let Some(mut steps) = view.children_behind(&self.parent, hash, &mut self.place, &mut names_left) else {
            return names_max;
        };
        while taken < take && looked < NAMES_PIECE {
            let Some((name, there)) = steps.next() else {
                self.whole = true;
                break;
            };
            looked = looked.saturating_add(visits(name));
            if there {
                self.names.push_str(name);
                self.names.push('\0');
                taken += visits(name);
            } else if looked >= NAMES_PIECE && taken == 0 {
                steps.leave(&mut self.place, name);
                break;
            }
        }
        looked.saturating_add(names_max - names_left)
    }
}

/// Returns the number of visits that a path or a name counts for: a long one costs as much as several.
fn visits(path: &str) -> u32 {
    const BYTES: usize = 256;
    u32::try_from(1 + path.len() / BYTES).unwrap_or(u32::MAX)
}

/// The path as seen from a znode above it.
fn below<'p>(parent: &str, path: &'p str) -> Option<&'p str> {
    let rest = if parent == path::ROOT { path.strip_prefix('/') } else { path.strip_prefix(parent)?.strip_prefix('/') };
    rest.filter(|rest| !rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::tests::{World, create, delete, refused, set};
    use crate::command::CommandKind;
    use crate::ops::WriteOp;
    use crate::quota::count::Counted;
    use crate::{cost, features};
    use alloc::boxed::Box;
    use alloc::format;
    use corral_wire::error::ErrorCode;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const STATS: &str = "/zookeeper/quota/a/zookeeper_stats";
    const LIMITS: &str = "/zookeeper/quota/a/zookeeper_limits";

    /// `/a` with so many znodes below it, in two levels, of one byte each.
    fn world(parents: u32, children: u32) -> World {
        let mut world = World::new(features::BOUNDED | features::ENFORCE_QUOTA);
        assert_eq!(refused(&world.op(create("/a", ""))), None);
        for parent in 0..parents {
            let path = format!("/a/{parent:04}");
            let below = (0..children).map(|child| create(&format!("{path}/{child:04}"), "x"));
            let results = world.multi(core::iter::once(create(&path, "x")).chain(below).collect());
            assert!(results.iter().all(|result| refused(result).is_none()));
        }
        world
    }

    fn set_quota(world: &mut World, limits: &str) {
        for (path, data) in [("/zookeeper/quota/a", ""), (LIMITS, limits), (STATS, "anything")] {
            assert_eq!(refused(&world.op(create(path, data))), None, "{path}");
        }
    }

    /// The leader counts until it is done.
    fn count_all(world: &mut World) -> Counted {
        (0..100).find_map(|_| world.machine.count_on()).expect("it comes to its end")
    }

    fn order(world: &mut World, counted: Counted) {
        world.command(CommandKind::QuotaCounted(Box::new(counted)), None);
    }

    #[test]
    fn a_small_subtree_is_counted_at_once_and_a_large_one_by_the_leader() {
        let mut small = world(1, COUNTED_AT_ONCE_MAX - 2);
        set_quota(&mut small, "");
        assert_eq!(small.text(STATS), "count=1000,bytes=999");
        assert_eq!(small.machine.count_on(), None);
        let mut large = world(1, COUNTED_AT_ONCE_MAX);
        set_quota(&mut large, "");
        assert_eq!(large.text(STATS), "count=0,bytes=0=;counting=1");
        let counted = count_all(&mut large);
        assert_eq!((counted.znodes, counted.bytes), (1002, 1001));
        order(&mut large, counted.clone());
        assert_eq!(large.text(STATS), "count=1002,bytes=1001");
        order(&mut large, counted);
        assert_eq!(large.text(STATS), "count=1002,bytes=1001", "counted once");
        assert_eq!(large.machine.count_on(), None);
    }

    #[test]
    fn a_subtree_with_many_deleted_children_is_counted_by_the_leader() {
        for (features, at_once) in [(features::BOUNDED, true), (features::BOUNDS, false)] {
            let mut world = world(2, 2);
            world.features = features;
            for parent in ["/a/0000", "/a/0001"] {
                for _ in 0..DELETIONS_AT_ONCE_MAX / 2 {
                    world.multi(alloc::vec![create(&format!("{parent}/0"), ""), delete(&format!("{parent}/0"))]);
                }
            }
            set_quota(&mut world, "");
            assert_eq!(world.text(STATS), "count=7,bytes=6", "there may have been as many");
            assert_eq!(refused(&world.op(delete(STATS))), None);
            world.multi(alloc::vec![create("/a/0000/0", ""), delete("/a/0000/0")]);
            assert_eq!(refused(&world.op(create(STATS, ""))), None);
            assert_eq!(world.text(STATS) == "count=7,bytes=6", at_once, "{}", world.text(STATS));
            if !at_once {
                let counted = count_all(&mut world);
                assert_eq!((counted.znodes, counted.bytes), (7, 6));
            }
        }
    }

    #[test]
    fn long_paths_and_names_count_for_more() {
        let mut world = World::new(features::BOUNDED);
        assert_eq!(refused(&world.op(create("/a", ""))), None);
        for number in 0..100 {
            assert_eq!(refused(&world.op(create(&format!("/a/{number:016000}"), "x"))), None);
        }
        set_quota(&mut world, "");
        assert_eq!(world.text(STATS), "count=0,bytes=0=;counting=1", "not at once");
        let mut pieces = 1;
        let counted = loop {
            match world.machine.count_on() {
                Some(counted) => break counted,
                None => pieces += 1,
            }
        };
        assert_eq!((counted.znodes, counted.bytes), (101, 100));
        assert!(pieces > 10, "{pieces} pieces");
    }

    #[test]
    fn a_count_is_exact_though_the_tree_changes_meanwhile() {
        let mut world = world(4, 400);
        set_quota(&mut world, "");
        let (mut pieces, mut number) = (0, 0_u32);
        let counted = loop {
            if let Some(counted) = world.machine.count_on() {
                break counted;
            }
            pieces += 1;
            // Everywhere: before, at and behind the place where the count is.
            for _ in 0..60 {
                number += 1;
                let (parent, child) = (number.wrapping_mul(7919) % 4, number.wrapping_mul(104_729) % 500);
                let path = format!("/a/{parent:04}/{child:04}");
                match number % 4 {
                    0 => world.op(create(&path, "new")),
                    1 => world.op(delete(&path)),
                    2 => world.op(set(&path, "longer", -1)),
                    _ => world.op(create(&format!("{path}/below"), "y")),
                };
            }
        };
        assert!(pieces >= 2);
        // Changes between the end of the walk and the entry that tells its result.
        world.op(create("/a/late", "late"));
        order(&mut world, counted);
        let (mut znodes, mut bytes) = (0, 0);
        world.machine.view().walk("/a", |_, node| {
            znodes += 1;
            bytes += node.data().map_or(0, <[u8]>::len);
            true
        });
        assert_eq!(world.text(STATS), format!("count={znodes},bytes={bytes}"));
    }

    #[test]
    fn a_count_for_a_usage_znode_that_was_written_since_is_of_no_use() {
        let mut world = world(1, COUNTED_AT_ONCE_MAX);
        set_quota(&mut world, "");
        let counted = count_all(&mut world);
        world.op(set(STATS, "count=5,bytes=5", -1));
        order(&mut world, counted);
        assert_eq!(world.text(STATS), "count=5,bytes=5");
        world.op(set(STATS, "counting=1", -1));
        assert_eq!(count_all(&mut world).znodes, 1003, "absent numbers are -1");
        world.machine.stop_counting();
        assert_eq!(count_all(&mut world).znodes, 1003, "another leader begins anew");
        assert_eq!(refused(&world.op(delete(STATS))), None);
        world.machine.stop_counting();
        assert_eq!(world.machine.count_on(), None);
    }

    #[test]
    fn creating_usage_znodes_spends_the_budget_of_a_command() {
        let mut world = world(1, COUNTED_AT_ONCE_MAX);
        let again = |_| [create(STATS, ""), delete(STATS)];
        world.op(create("/zookeeper/quota/a", ""));
        let before = world.machine.units_spent();
        assert!(world.multi((0..40).flat_map(again).collect()).iter().all(|result| refused(result).is_none()));
        assert!(world.machine.units_spent() - before < cost::COMMAND_MAX / 2);
        let results = world.multi((0..100).flat_map(again).collect());
        assert!(results.iter().any(|result| refused(result) == Some(ErrorCode::ThrottledOp)));
    }

    #[test]
    fn the_path_of_a_quota_has_limits() {
        let mut world = World::new(features::BOUNDED);
        let mut path = String::from("/zookeeper/quota");
        let limits = |path: &str| -> WriteOp { create(&format!("{path}/zookeeper_limits"), "") };
        for _ in 0..super::super::QUOTA_PATH_LEVELS_MAX {
            path.push_str("/q");
            assert_eq!(refused(&world.op(create(&path, ""))), None);
        }
        assert_eq!(refused(&world.op(limits(&path))), None);
        path.push_str("/q");
        assert_eq!(refused(&world.op(create(&path, ""))), None);
        assert_eq!(refused(&world.op(limits(&path))), Some(ErrorCode::BadArguments));
        let long = format!("/zookeeper/quota/{}", "l".repeat(super::super::QUOTA_PATH_BYTES_MAX));
        assert_eq!(refused(&world.op(create(&long, ""))), None);
        assert_eq!(refused(&world.op(limits(&long))), Some(ErrorCode::BadArguments));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

        /// The usage is exact in the end, with any changes meanwhile and in any number of pieces. This holds on the
        /// leader that counted and on a server that did not. A subtree is counted at once only if it is small.
        #[test]
        fn counts_are_bounded_and_exact(
            parents in 1_u32..5,
            children in prop_oneof![1_u32..20, 190_u32..600],
            changes in vec((0_u32..5, 0_u32..700, 0_u8..4), 0..200),
            at_a_time in 1_usize..80,
        ) {
            let mut worlds = [world(parents, children), world(parents, children)];
            let znodes = u64::from(1 + parents * (1 + children));
            worlds.iter_mut().for_each(|world| set_quota(world, ""));
            let counting = worlds[0].text(STATS).contains("counting=1");
            prop_assert_eq!(counting, znodes > u64::from(COUNTED_AT_ONCE_MAX));
            let change = |world: &mut World, (parent, child, what): (u32, u32, u8)| {
                let path = format!("/a/{parent:04}/{child:04}");
                match what {
                    0 => world.op(create(&path, "new")),
                    1 => world.op(delete(&path)),
                    2 => world.op(set(&path, "longer", -1)),
                    _ => world.op(create(&format!("{path}/below"), "y")),
                };
            };
            let mut pieces = 0;
            for some in changes.chunks(at_a_time) {
                if let Some(counted) = worlds[0].machine.count_on() {
                    worlds.iter_mut().for_each(|world| order(world, counted.clone()));
                }
                pieces += 1;
                some.iter().for_each(|one| worlds.iter_mut().for_each(|world| change(world, *one)));
            }
            if worlds[0].text(STATS).contains("counting=1") {
                let counted = count_all(&mut worlds[0]);
                worlds.iter_mut().for_each(|world| order(world, counted.clone()));
            }
            prop_assert_eq!(worlds[0].machine.count_on(), None);
            let (mut znodes, mut bytes) = (0, 0);
            worlds[0].machine.view().walk("/a", |_, node| {
                znodes += 1;
                bytes += node.data().map_or(0, <[u8]>::len);
                true
            });
            let expected = format!("count={znodes},bytes={bytes}");
            prop_assert_eq!(worlds[0].text(STATS), expected, "after {} pieces", pieces);
            prop_assert_eq!(worlds[0].machine.view().digest(), worlds[1].machine.view().digest());
        }
    }
}
