//! Where each live entry lies: 16 bytes an entry, in memory, rebuilt by recovery. Knows no bytes and no disk.

use std::collections::VecDeque;

/// Place and term of one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryPlace {
    pub(crate) term: u64,
    /// Segment, counted from the generation the log was opened with.
    pub(crate) segment: u32,
    pub(crate) offset: u32,
}

/// The live entries, `first..next`, without gaps.
#[derive(Debug, Default)]
pub(crate) struct EntryIndex {
    first: u64,
    places: VecDeque<EntryPlace>,
}

impl EntryIndex {
    pub(crate) fn new(first: u64) -> EntryIndex {
        EntryIndex { first, places: VecDeque::new() }
    }

    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Index the next entry gets; saturates at the end of the number space, which `allows` refuses.
    pub(crate) fn next(&self) -> u64 {
        self.first.saturating_add(self.places.len() as u64)
    }

    pub(crate) fn last(&self) -> u64 {
        self.next().saturating_sub(1)
    }

    pub(crate) fn place(&self, index: u64) -> Option<EntryPlace> {
        let nth = usize::try_from(index.checked_sub(self.first)?).ok()?;
        self.places.get(nth).copied()
    }

    pub(crate) fn last_term(&self) -> Option<u64> {
        self.places.back().map(|place| place.term)
    }

    /// Adds an entry; one at or before the last supersedes it and all that follow. `index` must not lie beyond `next`.
    /// Before `first` it replaces everything: older entries have been trimmed away with their segments.
    pub(crate) fn put(&mut self, index: u64, place: EntryPlace) {
        assert!(index <= self.next(), "entries are put without gaps");
        if index < self.first {
            *self = EntryIndex::new(index);
        }
        let keep = usize::try_from(index.saturating_sub(self.first)).unwrap_or(usize::MAX);
        self.places.truncate(keep);
        self.places.push_back(place);
    }

    /// Forgets the entries in segments before `segment`.
    pub(crate) fn drop_segments_before(&mut self, segment: u32) {
        while self.places.front().is_some_and(|place| place.segment < segment) {
            self.places.pop_front();
            self.first = self.first.saturating_add(1);
        }
    }
}
