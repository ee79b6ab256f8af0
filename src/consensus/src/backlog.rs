//! Data sent to several readers that not all of them have taken yet.
//!
//! The slowest reader sets the pace: while it lags too far nothing more is applied ([`crate::Replica::hold`]). So the
//! data in flight to the readers are bounded here. [`crate::limits::UNAPPLIED_BYTES_MAX`] bounds the committed entries
//! that are not applied. Pure: time comes in.

use std::collections::VecDeque;

use crate::limits::{BACKLOG_AGE_MAX, BACKLOG_BYTES_MAX};
use crate::types::Micros;

#[derive(Debug)]
struct Handed {
    number: u64,
    bytes: u64,
    at: Micros,
}

/// Pieces in flight to the readers, numbered from 1 on in the order in which they are sent.
#[derive(Debug, Default)]
pub struct Backlog {
    in_flight: VecDeque<Handed>,
    bytes: u64,
    last: u64,
}

impl Backlog {
    /// The next piece was sent to all readers at `now`.
    pub fn handed(&mut self, now: Micros, bytes: u64) {
        self.last += 1;
        self.bytes += bytes;
        self.in_flight.push_back(Handed { number: self.last, bytes, at: now });
    }

    /// Every reader has taken the pieces up to this number.
    pub fn taken(&mut self, number: u64) {
        while self.in_flight.front().is_some_and(|first| first.number <= number) {
            let first = self.in_flight.pop_front().expect("just seen");
            self.bytes -= first.bytes;
        }
    }

    /// Whether nothing is in flight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Whether a reader lags so far that nothing more is to be sent: by bytes, or by the age of the oldest piece.
    #[must_use]
    pub fn is_full(&self, now: Micros) -> bool {
        let late = self.in_flight.front().is_some_and(|first| now.since(first.at) > BACKLOG_AGE_MAX);
        late || self.bytes > BACKLOG_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_full_of_bytes_until_the_slowest_has_taken_some() {
        let mut backlog = Backlog::default();
        let half = BACKLOG_BYTES_MAX / 2;
        (0..2).for_each(|_| backlog.handed(Micros(0), half));
        assert!(!backlog.is_full(Micros(1)), "as much as is allowed");
        backlog.handed(Micros(0), 1);
        assert!(backlog.is_full(Micros(1)));
        backlog.taken(1);
        assert!(!backlog.is_full(Micros(1)) && !backlog.is_empty());
        backlog.taken(u64::MAX);
        assert!(backlog.is_empty() && backlog.bytes == 0);
    }

    #[test]
    fn it_is_full_when_one_piece_waits_for_long() {
        let mut backlog = Backlog::default();
        backlog.handed(Micros(5), 1);
        backlog.handed(Micros(5).plus(BACKLOG_AGE_MAX), 1);
        let late = Micros(6).plus(BACKLOG_AGE_MAX);
        assert!(!backlog.is_full(Micros(5).plus(BACKLOG_AGE_MAX)) && backlog.is_full(late));
        backlog.taken(1);
        assert!(!backlog.is_full(late));
    }
}
