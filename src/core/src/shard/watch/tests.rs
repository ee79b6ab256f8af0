//! The watch table against a plain map, and its limits.

use super::fire::{Watchers, fire, fire_some};
use super::*;
use crate::tree::path_hash::PathHasher;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use corral_types::SplitMix64;

fn table(per_conn_max: usize) -> WatchTable {
    WatchTable::new(WatchLimits { per_conn_max, bytes_per_conn_max: usize::MAX, bytes_max: usize::MAX })
}

fn conn(slot: u32) -> ConnId {
    ConnId { slot, generation: 1 }
}

fn hash(path: &str) -> u64 {
    xxhash_rust::xxh3::xxh3_64(path.as_bytes())
}

fn fired(table: &mut WatchTable, kind: Kind, path: &str) -> Vec<u32> {
    let mut into = Vec::new();
    fire(table, kind, path, hash(path), PathHasher::new(0), &mut into);
    let mut slots: Vec<u32> = into.iter().map(|conn| conn.slot).collect();
    slots.sort_unstable();
    slots
}

#[test]
fn one_shot_fires_once() {
    let mut table = table(10);
    for slot in [1, 2, 1] {
        assert_eq!(table.add(Kind::Data, conn(slot), "/a", hash("/a"), Mode::Standard), Ok(()));
    }
    assert_eq!((table.len(), table.paths()), (2, 1));
    assert_eq!(fired(&mut table, Kind::Child, "/a"), Vec::<u32>::new());
    assert_eq!(fired(&mut table, Kind::Data, "/a"), vec![1, 2]);
    assert_eq!(fired(&mut table, Kind::Data, "/a"), Vec::<u32>::new());
    assert!(table.is_empty() && table.paths() == 0 && table.data_places() == 0);
}

#[test]
fn modes_coexist_and_tell_once() {
    let mut table = table(10);
    for (path, mode) in [("/a/b", Mode::Standard), ("/a/b", Mode::Persistent), ("/a", Mode::PersistentRecursive)] {
        assert_eq!(table.add(Kind::Data, conn(1), path, hash(path), mode), Ok(()));
    }
    assert_eq!(fired(&mut table, Kind::Data, "/a/b"), vec![1]);
    assert!(!table.holds(Kind::Data, conn(1), "/a/b", hash("/a/b"), Mode::Standard));
    assert!(table.holds(Kind::Data, conn(1), "/a/b", hash("/a/b"), Mode::Persistent));
    assert_eq!(fired(&mut table, Kind::Data, "/a/b/c"), vec![1]);
    assert!(table.remove(Kind::Data, conn(1), "/a", hash("/a"), Mode::PersistentRecursive));
    assert_eq!(fired(&mut table, Kind::Data, "/a/b/c"), Vec::<u32>::new());
    assert!(!table.remove(Kind::Data, conn(1), "/a", hash("/a"), Mode::PersistentRecursive));
    while !table.drop_some(conn(1), &mut 1, hash) {}
    assert!(table.is_empty() && table.paths() == 0 && table.recursive.is_empty());
}

#[test]
fn a_piece_of_long_paths_that_are_dropped_is_short() {
    const LENGTH: usize = 50 << 10;
    let mut table = table(1000);
    for number in 0..1000 {
        let path = format!("/{number:0width$}", width = LENGTH - 1);
        assert_eq!(table.add(Kind::Data, conn(1), &path, hash(&path), Mode::Standard), Ok(()));
    }
    let mut left = 1000;
    assert!(!table.drop_some(conn(1), &mut left, hash));
    assert_eq!((left, table.len()), (0, 980));
    while !table.drop_some(conn(1), &mut 1000, hash) {}
    assert!(table.is_empty());
}

#[test]
fn long_lists_are_shortened_in_pieces_and_lose_nothing() {
    const PATHS: u64 = 20_000;
    const CONNS: u32 = 3;
    let mut table = table(usize::MAX);
    let mut random = SplitMix64::new(11);
    let mut draw = |below: u64| random.below(below);
    let path = |number: u64| format!("/{number}");
    let (mut held, mut shortened) = ([0_usize; CONNS as usize], 0);
    for step in 0..600_000_u32 {
        let conn = conn(step % CONNS);
        // Each watches about half of the paths, and swaps them.
        let path = path(draw(PATHS));
        let there = table.holds(Kind::Data, conn, &path, hash(&path), Mode::Standard);
        let before = table.tidying.looked();
        if there && draw(2) == 0 {
            assert!(table.remove(Kind::Data, conn, &path, hash(&path), Mode::Standard));
            held[conn.slot as usize] -= 1;
        } else {
            assert_eq!(table.add(Kind::Data, conn, &path, hash(&path), Mode::Standard), Ok(()));
            held[conn.slot as usize] += usize::from(!there);
        }
        let looked = table.tidying.looked();
        assert!(looked <= before + LIST_LOOKS, "{looked} entries after {before}");
        shortened += u32::from(looked < before);
        let list = &table.held[conn.slot as usize];
        assert_eq!(list.live as usize, held[conn.slot as usize]);
        assert!(list.listed() <= 3 * list.live as usize + 2 * LIST_AT_ONCE, "{} for {}", list.listed(), list.live);
    }
    assert!(shortened > 10, "{shortened} lists");
    for slot in 0..CONNS {
        while !table.drop_some(conn(slot), &mut 1000, hash) {}
        held[slot as usize] = 0;
        assert_eq!(table.len(), held.iter().sum::<usize>());
    }
    assert!(table.is_empty() && table.data_places() == 0);
}

#[test]
fn a_list_that_ends_while_it_is_shortened_is_left() {
    let mut table = table(usize::MAX);
    let path = |number: usize| format!("/{number}");
    let swap = |table: &mut WatchTable, of: ConnId, numbers: core::ops::Range<usize>| {
        for number in numbers {
            let (old, new) = (path(number), path(number + 2000));
            table.remove(Kind::Data, of, &old, hash(&old), Mode::Standard);
            table.add(Kind::Data, of, &new, hash(&new), Mode::Standard).expect("fits");
        }
    };
    for generation in 1..20 {
        let of = ConnId { slot: 1, generation };
        swap(&mut table, of, 0..2000);
        swap(&mut table, of, 2000..4010 + generation as usize);
        assert_eq!(table.held[1].live, 2000);
        while !table.drop_some(of, &mut 1000, hash) {}
    }
    assert!(table.is_empty());
}

#[test]
fn memory_of_many_paths_is_given_away_and_not_freed() {
    for (count, gives) in [(100_u64, false), (100_000, true)] {
        let mut table = table(usize::MAX);
        let paths: Vec<String> = (0..count).map(|number| format!("/{number}")).collect();
        for path in &paths {
            table.add(Kind::Data, conn(1), path, hash(path), Mode::Standard).expect("fits");
        }
        for path in &paths {
            assert!(table.take_emptied().is_none());
            assert!(table.remove(Kind::Data, conn(1), path, hash(path), Mode::Standard));
        }
        assert_eq!(table.take_emptied().is_some(), gives, "{count}");
        assert!(table.take_emptied().is_none() && table.data_places() == 0);
    }
}

#[test]
fn a_connection_has_a_limit() {
    let mut table = table(1);
    assert_eq!(table.add(Kind::Data, conn(1), "/a", hash("/a"), Mode::Standard), Ok(()));
    assert_eq!(table.add(Kind::Child, conn(1), "/a", hash("/a"), Mode::Standard), Ok(()));
    assert_eq!(table.add(Kind::Data, conn(1), "/b", hash("/b"), Mode::Standard), Err(Full));
    assert_eq!(table.add(Kind::Data, conn(2), "/b", hash("/b"), Mode::Standard), Ok(()));
}

/// Everything that can be done, against a plain map of modes by path and connection.
#[test]
fn plain_watchers_of_an_ancestor_are_looked_at_for_a_recursive_one_among_them_alone() {
    const PLAIN: u32 = 500;
    let mut table = table(10);
    for slot in 0..PLAIN {
        table.add(Kind::Data, conn(slot), "/services", hash("/services"), Mode::Persistent).expect("fits");
    }
    let add = |table: &mut WatchTable, slot: u32, path: &str| {
        table.add(Kind::Data, conn(slot), path, hash(path), Mode::PersistentRecursive).expect("fits");
    };
    let fire_all = |table: &mut WatchTable| {
        let (mut range, mut looked, mut into, mut most) = (Some(Watchers { from: 0, max: 64 }), 0, Vec::new(), 0);
        while let Some(some) = range {
            let fired =
                fire_some(table, Kind::Data, "/services/a", hash("/services/a"), PathHasher::new(0), some, &mut into);
            (looked, most) = (looked + fired.looked, most.max(fired.looked));
            range = fired.next.map(|from| Watchers { from, ..some });
        }
        assert!(most <= 64, "{most} in one call");
        (looked, into.len())
    };
    // Of the same length.
    add(&mut table, 1, "/whatever");
    assert_eq!(fire_all(&mut table), (0, 0));
    add(&mut table, PLAIN, "/services");
    assert_eq!(fire_all(&mut table), (PLAIN as usize + 1, 1));
}

#[test]
fn watchers_of_many_ancestors_are_told_a_few_at_a_time() {
    const LEVELS: u32 = 50;
    const EACH: u32 = 16;
    const MAX: usize = 20;
    let mut table = table(10);
    let path = |levels: u32| "/x".repeat(levels as usize);
    for level in 0..LEVELS {
        for watcher in 0..EACH {
            let path = path(level + 1);
            let conn = conn(watcher * LEVELS + level);
            table.add(Kind::Data, conn, &path, hash(&path), Mode::PersistentRecursive).expect("fits");
        }
    }
    let target = path(LEVELS + 4);
    let (mut range, mut all) = (Some(Watchers { from: 0, max: MAX }), Vec::new());
    while let Some(some) = range {
        let mut into = Vec::new();
        let fired = fire_some(&mut table, Kind::Data, &target, hash(&target), PathHasher::new(0), some, &mut into);
        assert!(into.len() <= MAX, "{} at a time", into.len());
        all.extend(into.iter().map(|conn| conn.slot));
        range = fired.next.map(|from| Watchers { from, ..some });
    }
    assert_eq!(all, (0..LEVELS * EACH).collect::<Vec<u32>>(), "each once, in order");
}

#[test]
fn agrees_with_a_plain_map() {
    const PER_CONN_MAX: usize = 12;
    let mut table = table(PER_CONN_MAX);
    let mut model: BTreeMap<(String, u32), u8> = BTreeMap::new();
    let mut random = SplitMix64::new(7);
    let mut draw = |below: u64| random.below(below);
    let places = [
        (Kind::Data, Mode::Standard),
        (Kind::Child, Mode::Standard),
        (Kind::Data, Mode::Persistent),
        (Kind::Child, Mode::Persistent),
        (Kind::Data, Mode::PersistentRecursive),
    ];
    for _ in 0..30_000 {
        let path = format!("/{}{}", draw(20), if draw(4) == 0 { "/a-name-that-is-no-short-one" } else { "" });
        let (slot, at) = (u32::try_from(draw(6)).expect("small"), usize::try_from(draw(5)).expect("small"));
        let (kind, mode) = places[at];
        let key = (path.clone(), slot);
        match draw(12) {
            0..=5 => {
                let full =
                    !model.contains_key(&key) && model.keys().filter(|key| key.1 == slot).count() >= PER_CONN_MAX;
                let added = table.add(kind, conn(slot), &path, hash(&path), mode);
                assert_eq!(added, if full { Err(Full) } else { Ok(()) });
                if !full {
                    *model.entry(key).or_default() |= kind.bit(mode);
                }
            }
            6..=7 => {
                let there = model.get(&key).is_some_and(|modes| modes & kind.bit(mode) != 0);
                assert_eq!(table.remove(kind, conn(slot), &path, hash(&path), mode), there);
                model.entry(key).and_modify(|modes| *modes &= !kind.bit(mode));
            }
            8..=10 => {
                let hears = |(watched, _): &(String, u32), modes: u8| {
                    let above = path == *watched || path.starts_with(&format!("{watched}/"));
                    (*watched == path && modes & kind.modes() != 0)
                        || (kind == Kind::Data && above && modes & RECURSIVE != 0)
                };
                let mut expected: Vec<u32> =
                    model.iter().filter(|(key, modes)| hears(key, **modes)).map(|(key, _)| key.1).collect();
                expected.sort_unstable();
                expected.dedup();
                assert_eq!(fired(&mut table, kind, &path), expected, "{kind:?} {path}");
                let exact = model.iter_mut().filter(|(key, _)| key.0 == path);
                exact.for_each(|(_, modes)| *modes &= !kind.bit(Mode::Standard));
            }
            _ if draw(8) == 0 => {
                while !table.drop_some(conn(slot), &mut 2, hash) {}
                model.retain(|key, _| key.1 != slot);
            }
            _ => {}
        }
        model.retain(|_, modes| *modes != 0);
        assert_eq!(table.len(), model.values().map(|modes| entries(*modes)).sum::<usize>());
        let watched = |table: u8| {
            let paths = model.iter().filter(|(_, modes)| *modes & table != 0).map(|(key, _)| &key.0);
            paths.collect::<alloc::collections::BTreeSet<_>>().len()
        };
        assert_eq!(table.paths(), watched(DATA_MODES) + watched(CHILD_MODES));
        let told = (0..table.data_places())
            .filter(|at| table.data_at(*at, 0, 99).is_some_and(|told| !told.watchers.is_empty()))
            .count();
        assert_eq!(told, watched(DATA_MODES));
    }
}
