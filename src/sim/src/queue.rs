//! What is to happen, by time: the earliest first, and of one time what was planned first.
//!
//! Part of the simulated world; knows nothing of what an event is. The heap holds places only, because events are large and
//! a run moves hundreds of thousands of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::world::Event;

#[derive(Default)]
pub(crate) struct Queue {
    /// Time, how many were planned before, place of the event.
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    events: Vec<Option<Event>>,
    /// Places without an event.
    free: Vec<usize>,
    pushed: u64,
}

impl Queue {
    pub(crate) fn push(&mut self, at: u64, event: Event) {
        self.pushed += 1;
        let place = if let Some(place) = self.free.pop() {
            self.events[place] = Some(event);
            place
        } else {
            self.events.push(Some(event));
            self.events.len() - 1
        };
        self.heap.push(Reverse((at, self.pushed, place)));
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
        let Reverse((at, _, place)) = self.heap.pop()?;
        self.free.push(place);
        let event = self.events[place].take().expect("a place in the heap has its event");
        Some((at, event))
    }

    pub(crate) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    pub(crate) fn pushed(&self) -> u64 {
        self.pushed
    }
}
