//! Received snapshots of other servers that wait until Raft installs them.
//!
//! To drop one takes long, because it holds a state and a mapping: the driver does that on another thread.

use std::collections::VecDeque;

use corral_consensus::Index;

use crate::effect::{Effect, Garbage};
use crate::snapshot::Arrived;

/// Snapshots that wait to be installed.
const ARRIVED_MAX: usize = 2;

/// Received snapshots, in the order in which they were received.
#[derive(Default)]
pub(crate) struct Arrivals {
    waiting: VecDeque<Box<Arrived>>,
}

impl Arrivals {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The snapshot that ends at `index`, if it was received.
    pub(crate) fn get(&self, index: Index) -> Option<&Arrived> {
        self.waiting.iter().find(|snapshot| snapshot.loaded.index == index.0).map(|snapshot| &**snapshot)
    }

    /// A snapshot was received. If there are too many, the oldest that is not `wanted` is dropped, perhaps this one.
    /// Wanted are the snapshot in installation, and the snapshot that Raft installs next.
    pub(crate) fn add(&mut self, snapshot: Box<Arrived>, wanted: [Option<Index>; 2], out: &mut Vec<Effect>) {
        self.waiting.push_back(snapshot);
        if self.waiting.len() > ARRIVED_MAX {
            let mut ends = self.waiting.iter().map(|snapshot| Some(Index(snapshot.loaded.index)));
            let oldest = ends.position(|end| !wanted.contains(&end));
            oldest.and_then(|at| self.waiting.remove(at)).into_iter().for_each(|snapshot| discard(snapshot, out));
        }
    }

    /// Takes the snapshot that ends at `index`. Those received before it are dropped.
    pub(crate) fn take(&mut self, index: Index, out: &mut Vec<Effect>) -> Option<Box<Arrived>> {
        let at = self.waiting.iter().position(|snapshot| snapshot.loaded.index == index.0)?;
        let wanted = self.waiting.remove(at);
        self.waiting.drain(..at).for_each(|snapshot| discard(snapshot, out));
        wanted
    }

    /// Takes the newest snapshot that ends between `least` and `most`.
    pub(crate) fn take_between(&mut self, least: Index, most: Index) -> Option<Box<Arrived>> {
        let ends = self.waiting.iter().map(|snapshot| Index(snapshot.loaded.index)).enumerate();
        let (at, _) = ends.filter(|(_, end)| (least..=most).contains(end)).max_by_key(|(_, end)| *end)?;
        self.waiting.remove(at)
    }

    /// Drops the snapshots that end at `applied` or before.
    pub(crate) fn drop_upto(&mut self, applied: Index, out: &mut Vec<Effect>) {
        let (stale, waiting) = self.waiting.drain(..).partition(|snapshot| snapshot.loaded.index <= applied.0);
        self.waiting = waiting;
        let stale: VecDeque<_> = stale;
        stale.into_iter().for_each(|snapshot| discard(snapshot, out));
    }
}

/// Drops a snapshot that will not be installed.
pub(crate) fn discard(snapshot: Box<Arrived>, out: &mut Vec<Effect>) {
    out.push(Effect::Drop(Garbage::Arrived(snapshot)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{LoadedSnapshot, SnapshotContent};
    use bytes::Bytes;
    use corral_core::tree::view::View;
    use std::sync::Arc;

    struct Nothing;

    impl SnapshotContent for Nothing {
        fn size(&self) -> u64 {
            0
        }

        fn copy(&self, _: u64, _: usize) -> Bytes {
            Bytes::new()
        }
    }

    fn snapshot(index: u64) -> Box<Arrived> {
        let snapshot = Arc::clone(View::empty(7).snapshot());
        LoadedSnapshot { snapshot, index, term: 1, zxid: 0, bytes: Arc::new(Nothing) }.into()
    }

    /// The snapshots that are to be dropped.
    fn dropped(out: &mut Vec<Effect>) -> Vec<u64> {
        let index = |effect| match effect {
            Effect::Drop(Garbage::Arrived(snapshot)) => snapshot.loaded.index,
            _ => unreachable!("nothing else is asked for"),
        };
        out.drain(..).map(index).collect()
    }

    #[test]
    fn neither_what_is_installed_nor_what_raft_was_told_of_is_dropped() {
        let (mut arrivals, mut out) = (Arrivals::default(), Vec::new());
        arrivals.add(snapshot(3), [None, None], &mut out);
        arrivals.add(snapshot(5), [None, None], &mut out);
        arrivals.add(snapshot(7), [Some(Index(3)), Some(Index(5))], &mut out);
        assert_eq!(dropped(&mut out), [7]);
        arrivals.add(snapshot(8), [Some(Index(5)), None], &mut out);
        assert_eq!(dropped(&mut out), [3]);
        assert!(arrivals.get(Index(5)).is_some() && arrivals.get(Index(8)).is_some());
    }

    #[test]
    fn snapshots_that_are_not_installed_are_dropped_by_the_driver() {
        let (mut arrivals, mut out) = (Arrivals::default(), Vec::new());
        arrivals.add(snapshot(3), [None, None], &mut out);
        arrivals.add(snapshot(5), [None, None], &mut out);
        assert!(out.is_empty());
        arrivals.add(snapshot(7), [Some(Index(3)), None], &mut out);
        assert_eq!(dropped(&mut out), [5], "the oldest that is not being installed");
        let taken = arrivals.take(Index(7), &mut out).expect("it is here");
        assert_eq!((taken.loaded.index, dropped(&mut out)), (7, vec![3]));
        arrivals.add(snapshot(8), [None, None], &mut out);
        arrivals.add(snapshot(9), [None, None], &mut out);
        arrivals.drop_upto(Index(8), &mut out);
        assert_eq!(dropped(&mut out), [8]);
        assert!(arrivals.get(Index(9)).is_some() && arrivals.get(Index(8)).is_none() && !arrivals.is_empty());
    }
}
