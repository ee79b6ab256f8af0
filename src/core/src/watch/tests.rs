//! The watch table against a plain map, and its limits.

use super::*;
use crate::view::PathHasher;
use alloc::format;
use alloc::string::String;
use alloc::vec;

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
    table.fire(kind, path, hash(path), PathHasher::new(0), &mut into);
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
    while !table.drop_some(conn(1), 1, hash) {}
    assert!(table.is_empty() && table.paths() == 0 && table.recursive.is_empty());
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
fn agrees_with_a_plain_map() {
    const PER_CONN_MAX: usize = 12;
    let mut table = table(PER_CONN_MAX);
    let mut model: BTreeMap<(String, u32), u8> = BTreeMap::new();
    let mut seed = 7_u64;
    let mut draw = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
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
                while !table.drop_some(conn(slot), 2, hash) {}
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
        let told = (0..table.data_places()).filter(|at| table.data_at(*at, 0).is_some()).count();
        assert_eq!(told, watched(DATA_MODES));
    }
}
