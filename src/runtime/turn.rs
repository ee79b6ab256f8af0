//! Fair turns on one executor. A task that has used up the turn's time lets the reactor look at every socket and timer
//! before any task goes on.
//!
//! The runtime's own yielding does not poll for input, and its preemption is coarse. Awaiting a very short timer does
//! force a whole pass. One `Turn` an executor, shared by its tasks.

use std::cell::Cell;
use std::hint;
use std::time::{Duration, Instant};

use glommio::timer::Timer;

/// Long enough that the timer is not due at once, short enough not to matter.
const PASS: Duration = Duration::from_nanos(600);

/// The working time used since the reactor last had a pass that was asked for here.
///
/// Passes that happen by themselves, when nothing is left to do, are not seen. So a lightly loaded executor makes one
/// needless pass for each budget of work, which costs under one per cent.
#[derive(Debug)]
pub(crate) struct Turn {
    budget: Duration,
    poll: Duration,
    used: Cell<Duration>,
    /// Whether anything was done since the heartbeat last asked.
    busy: Cell<bool>,
}

/// One piece of work that counts against the turn from its making to [`Turn::end`].
#[must_use = "a piece that is not ended does not count"]
pub(crate) struct Piece(Instant);

impl Turn {
    /// `poll` is how long to look for more before a sleep.
    pub(crate) fn new(budget: Duration, poll: Duration) -> Turn {
        Turn { budget, poll, used: Cell::new(Duration::ZERO), busy: Cell::new(false) }
    }

    /// Whether there is any looking for more before a sleep.
    pub(crate) fn polls(&self) -> bool {
        !self.poll.is_zero()
    }

    /// Looks for work, again and again, for as long as is configured. Whether there is some. Nothing else runs on the
    /// executor meanwhile.
    pub(crate) fn poll(&self, has_work: impl Fn() -> bool) -> bool {
        let begun = Instant::now();
        while !has_work() {
            if begun.elapsed() >= self.poll {
                return false;
            }
            hint::spin_loop();
        }
        true
    }

    /// A task begins to work.
    pub(crate) fn begin() -> Piece {
        Piece(Instant::now())
    }

    /// The task's piece of work is done.
    pub(crate) fn end(&self, piece: &Piece) {
        self.busy.set(true);
        self.used.set(self.used.get() + piece.0.elapsed());
    }

    /// Whether this piece alone has used up a turn's time.
    pub(crate) fn is_long(&self, piece: &Piece) -> bool {
        piece.0.elapsed() > self.budget
    }

    /// To be awaited after each piece of work; returns at once while there is time left in the turn. A task that comes
    /// while the pass is still owed waits for it too, so that no task keeps the executor from it.
    pub(crate) async fn yield_if_over(&self) {
        if self.used.get() > self.budget {
            self.yield_now().await;
        }
    }

    /// Lets every other task run, whatever time is left in the turn.
    pub(crate) async fn yield_now(&self) {
        Timer::new(PASS).await;
        self.used.set(Duration::ZERO);
    }

    /// Whether there was work since the last call.
    pub(crate) fn was_busy(&self) -> bool {
        self.busy.replace(false)
    }
}
