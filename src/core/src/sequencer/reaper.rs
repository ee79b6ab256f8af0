//! Empty containers and expired TTL nodes: the choice of them, and the time of each deletion (protocol chapter 9.4).
//! ZooKeeper's `ContainerManager` does the same.
//!
//! Kept by the leader alone, in its memory alone, beside the deadlines of sessions. It only proposes: each deletion is
//! decided again, from the state alone, when the command is evaluated.

use crate::ids::{Millis, WallMillis, Zxid};
use crate::shared::Text;
use crate::tree::view::View;
use crate::tree::znode::{NodeStat, Owner};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ops::Bound;

/// When to look, and how fast to delete.
#[derive(Clone, Copy, Debug)]
pub struct ReapPolicy {
    /// From the beginning of one check to that of the next, if it is done by then.
    pub check_interval_ms: u64,
    /// Deletions are spread evenly; at least 1.
    pub deletes_per_minute_max: u32,
    /// A container that never had a child is deleted this long after its last change; 0 is never.
    pub never_used_max_ms: u64,
}

/// Znodes looked at in one tick, so that a million of them hold up no other work.
const LOOKS_PER_TICK: usize = 4096;
/// So many bytes of a path cost about as much as a look at one.
const LOOK_BYTES: usize = 256;
/// Znodes chosen and not yet deleted before the check waits.
const CHOSEN_MAX: usize = 16_384;

/// A znode to delete, if it has not changed since it was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Path of the container or TTL node.
    pub path: Text,
    /// Zxid of its last change. A later change prevents the deletion.
    pub mzxid: Zxid,
}

/// The check for znodes to delete, and the znodes chosen by it.
#[derive(Clone, Debug)]
pub(crate) struct Reaper {
    policy: ReapPolicy,
    next_check: Millis,
    /// The last path that the check under way has looked at.
    after: Option<Text>,
    chosen: VecDeque<Chosen>,
    /// When the next deletion may be proposed, in microseconds.
    next_delete_us: u64,
}

impl Reaper {
    pub(crate) fn new(policy: ReapPolicy) -> Self {
        Self { policy, next_check: Millis(0), after: None, chosen: VecDeque::new(), next_delete_us: 0 }
    }

    /// This server leads from now on: the first check comes an interval later.
    pub(crate) fn start(&mut self, now: Millis) {
        self.next_check = now.plus(self.policy.check_interval_ms);
        self.after = None;
        self.chosen.clear();
    }

    /// Time passes. Looks at the next few of the containers and TTL nodes, `reapable`, and gives what is to be deleted.
    pub(crate) fn tick(
        &mut self,
        now: Millis,
        wall: WallMillis,
        reapable: &BTreeSet<Text>,
        view: &View,
    ) -> Vec<Chosen> {
        if self.after.is_none() && self.chosen.is_empty() && now >= self.next_check {
            self.next_check = now.plus(self.policy.check_interval_ms);
            self.after = Some(Text::from(""));
            self.next_delete_us = now.0.saturating_mul(1000);
        }
        if let Some(after) = self.after.take() {
            self.after = self.look(wall, reapable, view, after);
        }
        self.due(now)
    }

    /// One slice of a check, behind the path `after`. Gives where to go on; `None` at the end.
    fn look(&mut self, wall: WallMillis, reapable: &BTreeSet<Text>, view: &View, after: Text) -> Option<Text> {
        let slice = LOOKS_PER_TICK.min(CHOSEN_MAX.saturating_sub(self.chosen.len()));
        let mut last = after.clone();
        let mut left = slice;
        for path in reapable.range::<str, _>((Bound::Excluded(&*after), Bound::Unbounded)) {
            if left == 0 {
                return Some(last);
            }
            left = left.saturating_sub(1 + path.len() / LOOK_BYTES);
            last = path.clone();
            if let Some(stat) = view.get(path).map(|node| node.stat())
                && self.is_over(&stat, wall)
            {
                self.chosen.push_back(Chosen { path: path.clone(), mzxid: stat.mzxid });
            }
        }
        None
    }

    fn is_over(&self, stat: &NodeStat, wall: WallMillis) -> bool {
        let age_ms = wall.0.saturating_sub(stat.mtime);
        stat.num_children == 0
            && match Owner::from_bits(stat.owner) {
                Owner::Container => {
                    let never_used = i64::try_from(self.policy.never_used_max_ms).unwrap_or(i64::MAX);
                    stat.cversion > 0 || (never_used != 0 && age_ms > never_used)
                }
                Owner::Ttl(ttl) => ttl != 0 && age_ms > ttl,
                Owner::Persistent | Owner::Session(_) => false,
            }
    }

    fn due(&mut self, now: Millis) -> Vec<Chosen> {
        let now_us = now.0.saturating_mul(1000);
        let pause_us = 60_000_000 / u64::from(self.policy.deletes_per_minute_max.max(1));
        let mut due = Vec::new();
        while self.next_delete_us <= now_us
            && let Some(chosen) = self.chosen.pop_front()
        {
            due.push(chosen);
            self.next_delete_us += pause_us;
        }
        if self.chosen.is_empty() {
            self.next_delete_us = self.next_delete_us.max(now_us);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::acl::Acl;
    use crate::tree::change::Change;
    use crate::tree::znode::Znode;
    use alloc::format;
    use alloc::string::String;
    use alloc::sync::Arc;

    const POLICY: ReapPolicy =
        ReapPolicy { check_interval_ms: 1000, deletes_per_minute_max: 60_000, never_used_max_ms: 0 };

    struct World {
        view: View,
        reapable: BTreeSet<Text>,
        reaper: Reaper,
    }

    impl World {
        fn new(policy: ReapPolicy) -> Self {
            let mut reaper = Reaper::new(policy);
            reaper.start(Millis(0));
            Self { view: View::empty(1), reapable: BTreeSet::new(), reaper }
        }

        fn add(&mut self, name: &str, owner: Owner, cversion: i32, num_children: u32, mtime: i64) {
            let path = Text::from(format!("/{name}"));
            let at = self.view.hashed(path.clone());
            let stat =
                NodeStat { mzxid: Zxid(9), owner: owner.bits(), cversion, num_children, mtime, ..NodeStat::default() };
            let node = Arc::new(Znode { stat, acl: Acl::Open, data: None });
            self.view.apply(Zxid(9), &Change::Created { at, node });
            self.reapable.insert(path);
        }

        fn tick(&mut self, now: u64, wall: i64) -> Vec<String> {
            let chosen = self.reaper.tick(Millis(now), WallMillis(wall), &self.reapable, &self.view);
            chosen.iter().map(|chosen| String::from(&*chosen.path)).collect()
        }
    }

    #[test]
    fn who_is_chosen() {
        let check = |owner, cversion, children, age: i64, never_used_max_ms, want| {
            let mut world = World::new(ReapPolicy { never_used_max_ms, ..POLICY });
            world.add("n", owner, cversion, children, 5000);
            assert_eq!(world.tick(999, 5000 + age), Vec::<String>::new(), "not before the interval");
            let got = world.tick(1000, 5000 + age).len() == 1;
            assert_eq!(got, want, "{owner:?} {cversion} {children} {age} {never_used_max_ms}");
        };
        check(Owner::Container, 1, 0, 0, 0, true);
        check(Owner::Container, 1, 1, 0, 0, false);
        check(Owner::Container, 0, 0, 1_000_000, 0, false);
        check(Owner::Container, 0, 0, 100, 100, false);
        check(Owner::Container, 0, 0, 101, 100, true);
        check(Owner::Ttl(100), 0, 0, 100, 0, false);
        check(Owner::Ttl(100), 0, 0, 101, 0, true);
        check(Owner::Ttl(100), 5, 1, 101, 0, false);
        check(Owner::Ttl(100), 0, 0, -5_000_000, 0, false);
    }

    #[test]
    fn deletions_are_spread_and_checks_sliced() {
        let mut world = World::new(POLICY);
        let count = LOOKS_PER_TICK + 10;
        for at in 0..count {
            world.add(&format!("{at:06}"), Owner::Container, 1, 0, 0);
        }
        assert_eq!(world.tick(1000, 0).len(), 1, "60,000 a minute is one a millisecond");
        let mut all = 1;
        for now in (1100..100_000).step_by(100) {
            let some = world.tick(now, 0).len();
            assert!(some <= 100, "{some} at {now}");
            all += some;
            if all == count {
                break;
            }
        }
        assert_eq!(all, count);
        world.reapable.clear();
        assert!(world.tick(200_000, 0).is_empty());
        world.add("late", Owner::Container, 1, 0, 0);
        assert_eq!(world.tick(200_100, 0), Vec::<String>::new(), "the next check is an interval later");
        assert_eq!(world.tick(201_000, 0), ["/late"]);
    }

    #[test]
    fn a_check_waits_while_much_is_chosen() {
        let mut world = World::new(ReapPolicy { deletes_per_minute_max: 1, ..POLICY });
        for at in 0..CHOSEN_MAX + LOOKS_PER_TICK {
            world.add(&format!("{at:06}"), Owner::Container, 1, 0, 0);
        }
        for now in 0..20 {
            world.tick(1000 + now, 0);
        }
        assert_eq!(world.reaper.chosen.len(), CHOSEN_MAX);
        assert!(world.reaper.after.is_some());
    }
}
