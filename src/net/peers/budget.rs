//! How much of one peer may be received and not dealt with: back-pressure from the receiver of events to the socket.
//!
//! A budget is shared by the thread that reads the peer and by the holder of the received data. Giving back never
//! waits. Bytes that earlier connections of the peer received count until they are given back.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

/// How long the reader sleeps at most before it looks again by itself.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Bytes of one peer that are held, received by whichever of its connections.
pub(crate) type Held = Arc<AtomicUsize>;

/// The budget of one connection.
#[derive(Debug)]
pub(crate) struct Budget {
    held: Held,
    bytes_max: usize,
    closed: AtomicBool,
    waits: AtomicBool,
    reader: OnceLock<Thread>,
}

impl Budget {
    /// The budget of a connection. `held` counts the bytes of its peer.
    pub(crate) fn new(held: &Held, bytes_max: usize) -> Arc<Budget> {
        let (closed, waits) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Budget { held: Arc::clone(held), bytes_max, closed, waits, reader: OnceLock::new() })
    }

    /// Waits until there is room, or the budget is closed; for the reader's thread alone.
    pub(crate) fn wait(&self) {
        while !self.has_room() {
            self.reader.get_or_init(thread::current);
            self.waits.store(true, Ordering::SeqCst);
            // Either we see what is given back, or the giver sees that we wait.
            if !self.has_room() {
                thread::park_timeout(LOOK_AGAIN);
            }
            self.waits.store(false, Ordering::SeqCst);
        }
    }

    /// Takes bytes out, whether there are so many or not: they are received already.
    pub(crate) fn take(self: &Arc<Budget>, bytes: usize) -> Hold {
        self.held.fetch_add(bytes, Ordering::SeqCst);
        Hold { budget: Arc::clone(self), bytes }
    }

    /// Ends the wait of the reader, and every later one.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.wake();
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    fn has_room(&self) -> bool {
        self.held.load(Ordering::SeqCst) < self.bytes_max || self.closed.load(Ordering::SeqCst)
    }

    fn wake(&self) {
        if self.waits.load(Ordering::SeqCst)
            && let Some(reader) = self.reader.get()
        {
            reader.unpark();
        }
    }
}

/// Bytes taken out of a budget; they go back when this is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::SeqCst);
        self.budget.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gives_back_wakes_who_waits() {
        let budget = Budget::new(&Held::default(), 10);
        budget.wait();
        let (first, second) = (budget.take(9), budget.take(50));
        let waiter = thread::spawn({
            let budget = Arc::clone(&budget);
            move || budget.wait()
        });
        drop(first);
        assert!(budget.held() == 50);
        drop(second);
        waiter.join().expect("it ends");
        let _held = budget.take(100);
        let waiter = thread::spawn({
            let budget = Arc::clone(&budget);
            move || budget.wait()
        });
        budget.close();
        waiter.join().expect("it ends");
    }

    #[test]
    fn what_an_earlier_connection_received_counts() {
        let held = Held::default();
        let before = Budget::new(&held, 10).take(10);
        let budget = Budget::new(&held, 10);
        assert!(!budget.has_room());
        let waiter = thread::spawn({
            let budget = Arc::clone(&budget);
            move || budget.wait()
        });
        drop(before);
        waiter.join().expect("it ends");
        assert_eq!(budget.held(), 0);
    }
}
