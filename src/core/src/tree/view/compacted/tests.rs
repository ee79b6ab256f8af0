//! Lists of children that are made anew, against sets.

use super::*;
use crate::ids::Zxid;
use crate::shared::Text;
use crate::tree::acl::Acl;
use crate::tree::change::Change;
use crate::tree::snapshot::merge_in_memory;
use crate::tree::view::View;
use crate::tree::znode::Znode;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use proptest::collection::vec;
use proptest::prelude::*;

/// Moves a view by one change.
fn change(view: &mut View, path: &str, there: bool) {
    let at = view.hashed(Text::from(path));
    let node = Arc::new(Znode { stat: NodeStat::default(), acl: Acl::Open, data: None });
    view.apply(Zxid(view.zxid().0 + 1), &if there { Change::Created { at, node } } else { Change::Deleted { at } });
}

/// A znode with changing children, as a view and as a set.
struct World {
    view: View,
    model: BTreeSet<String>,
    hash: u64,
}

impl World {
    fn new() -> Self {
        let mut view = View::empty(7);
        change(&mut view, "/q", true);
        view.set_zxid(Zxid(1));
        let hash = view.hasher().hash("/q");
        Self { view, model: BTreeSet::new(), hash }
    }

    fn toggle(&mut self, number: u8) {
        let name = format!("{number:0width$}", width = 3 + usize::from(number % 7));
        let path = format!("/q/{name}");
        let there = !self.model.remove(&name);
        if there {
            self.model.insert(name);
        }
        change(&mut self.view, &path, there);
        self.view.set_zxid(Zxid(self.view.zxid().0 + 1));
    }

    fn freeze_or_swap(&mut self) {
        let Some(frozen) = self.view.frozen() else {
            self.view.freeze();
            return;
        };
        let snapshot = merge_in_memory(self.view.snapshot(), frozen, 1, Vec::new(), Vec::new()).expect("a sound tree");
        self.view.swap_snapshot(Arc::new(snapshot));
    }

    /// Gives how many marks of deleted children there are.
    fn check(&self) -> u64 {
        let stat = self.view.get("/q").expect("made").stat();
        let (size, children) = self.view.children_and_size("/q", self.hash).expect("made");
        assert!(children.eq(self.model.iter().map(String::as_str)));
        assert_eq!(stat.num_children as usize, self.model.len());
        let (entries, bytes) = marks_at_most(&stat);
        let there = u64::from(stat.num_children);
        // A list that was too long to be made anew is looked at again a step later.
        if there + MARKS_STEP <= u64::from(CHILDREN_MAX) && stat.names_bytes + MARKS_STEP_BYTES <= NAMES_MAX {
            assert!(size.entries as u64 <= entries + there, "{size:?} for {there}");
            assert!(size.bytes as u64 <= bytes + stat.names_bytes, "{size:?} for {there}");
        }
        size.entries as u64 - there
    }
}

proptest! {
    #[test]
    fn no_reader_sees_it_and_marks_stay_few(steps in vec((any::<u8>(), 1..100_u8), 0..100)) {
        let mut world = World::new();
        for (first, count) in steps {
            if first % 8 == 0 {
                world.freeze_or_swap();
            }
            // Runs of neighbours come and go together.
            for number in 0..count {
                world.toggle(first.wrapping_add(number));
                world.check();
            }
        }
    }
}

#[test]
fn an_emptied_list_is_made_anew_in_the_live_delta() {
    let mut world = World::new();
    (0..200).for_each(|number| world.toggle(number));
    world.freeze_or_swap();
    world.freeze_or_swap();
    (0..190).for_each(|number| world.toggle(number));
    assert!(world.check() < 40, "of 190 names and as many marks");
    // The list goes into the next snapshot, and into what is above it.
    world.freeze_or_swap();
    (150..200).for_each(|number| world.toggle(number));
    world.check();
    world.freeze_or_swap();
    world.check();
}

#[test]
fn lists_are_made_anew_before_one_transaction_finds_all_in_need() {
    const PARENTS: u32 = 50;
    let mut view = View::empty(7);
    for parent in 0..PARENTS {
        change(&mut view, &format!("/{parent}"), true);
        (0..160).for_each(|name| change(&mut view, &format!("/{parent}/{name:03}"), true));
    }
    view.set_zxid(Zxid(1));
    view.freeze();
    // All of them together come to where they are few enough to be made anew at once.
    for name in (CHILDREN_MAX..160).rev() {
        (0..PARENTS).for_each(|parent| change(&mut view, &format!("/{parent}/{name:03}"), false));
    }
    let size = |parent: u32| {
        let path = format!("/{parent}");
        view.children_size(&path, view.hasher().hash(&path)).expect("made").entries
    };
    let long = (0..PARENTS).filter(|parent| size(*parent) as u64 > TIMES * u64::from(CHILDREN_MAX) + LONGER);
    assert_eq!(long.count(), 0, "they wait for the next change");
    for parent in 0..PARENTS {
        let names: Vec<&str> = view.children(&format!("/{parent}")).expect("made").collect();
        let left: Vec<String> = (0..CHILDREN_MAX).map(|name| format!("{name:03}")).collect();
        assert_eq!(names, left);
    }
}

const CHILDREN: u32 = 4000;

/// `/q` with many children, all of them in the snapshot.
fn world() -> View {
    let mut view = View::empty(7);
    change(&mut view, "/q", true);
    (0..CHILDREN).for_each(|number| change(&mut view, &name(number), true));
    view.set_zxid(Zxid(1));
    take_snapshot(&mut view, Zxid(2));
    view
}

fn name(number: u32) -> String {
    format!("/q/{number:04}")
}

fn take_snapshot(view: &mut View, next: Zxid) {
    let frozen = view.freeze();
    let snapshot = merge_in_memory(view.snapshot(), &frozen, 1, Vec::new(), Vec::new()).expect("a sound tree");
    view.swap_snapshot(Arc::new(snapshot));
    view.set_zxid(next);
}

fn size(view: &View) -> u64 {
    view.children_size("/q", view.hasher().hash("/q")).expect("it is there").entries as u64
}

/// Takes the children away in this order until few are left, with others that come and go, and perhaps a snapshot in the midst.
fn empty(order: impl Fn(u32) -> u32, snapshot_at: Option<u32>) {
    const LEFT: u32 = 20;
    let mut view = world();
    let mut model: BTreeSet<String> = (0..CHILDREN).map(|number| String::from(&name(number)[3..])).collect();
    let mut copied = 0;
    for step in 0..CHILDREN - LEFT {
        let passers = [format!("/q/{:04}-{step}", order(step)), format!("/q/{:04}+{step}", order(step / 2))];
        let mut changes = Vec::from([(name(order(step)), false)]);
        changes.extend(passers.iter().map(|passer| (passer.clone(), true)));
        changes.extend(passers.iter().take(usize::from(step % 16 > 0) + 1).map(|passer| (passer.clone(), false)));
        for (path, there) in changes {
            change(&mut view, &path, there);
            if there {
                model.insert(String::from(&path[3..]))
            } else {
                model.remove(&path[3..])
            };
            let looked = mem::take(&mut view.compactions.copies.looked_at_once);
            assert!(looked <= 120, "{looked} entries at once in step {step}, of {}", size(&view));
            copied += looked;
        }
        if step % 64 == 0 {
            assert!(view.children("/q").expect("it is there").eq(model.iter().map(String::as_str)), "step {step}");
        }
        if snapshot_at == Some(step) {
            take_snapshot(&mut view, Zxid(3));
        }
    }
    assert!(view.children("/q").expect("it is there").eq(model.iter().map(String::as_str)));
    assert!(snapshot_at.is_some() || copied > CHILDREN / 2, "{copied} entries copied in steps");
    assert!(size(&view) < 4 * LONG, "{} entries for {}", size(&view), model.len());
}

#[test]
fn a_queue_of_many_that_is_emptied_is_made_anew_in_steps() {
    empty(|step| step, None);
    empty(|step| CHILDREN - 1 - step, None);
}

#[test]
fn children_that_go_here_and_there_leave_the_same_list() {
    empty(|step| step * 1237 % CHILDREN, None);
    [3300, 3700, 3900].iter().for_each(|at| empty(|step| step * 1237 % CHILDREN, Some(*at)));
}

#[test]
fn a_copy_that_is_not_needed_after_a_snapshot_is_dropped() {
    let mut view = world();
    (0..CHILDREN - 550).for_each(|number| change(&mut view, &name(number), false));
    assert!(!view.compactions.copies.is_empty());
    take_snapshot(&mut view, Zxid(3));
    (CHILDREN - 550..CHILDREN - 540).for_each(|number| change(&mut view, &name(number), false));
    assert!(view.compactions.copies.is_empty());
    (CHILDREN - 540..CHILDREN).for_each(|number| change(&mut view, &name(number), false));
    change(&mut view, "/q", false);
}
